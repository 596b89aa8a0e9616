"""The page docs/rtl.md, from what was measured (report, random, mutants and coverage in rtl) and the papers' figures."""

from table import papers, rows

# The factor by which the device of Tonic's prototype is at least faster than ECP5 of speed grade 8: Tonic's own stage
# for incoming packets, which meets 10 ns there, reaches 45.6 MHz here.
ECP5_TO_XCKU15P = 2.2

HEAD = """# Circuits in numbers

`make rtl-report` measures what has changed and writes this page. The folder `rtl` has the circuits;
[rtl/README.md](../rtl/README.md) says how to take one.

## What is not comparable

- **No vendor tool was used.** The papers' figures come from Vivado, ours from yosys: `synth_xilinx -family xcup -abc9`.
  For the published text of Tonic the same flow needs up to 1.5 times as many LUTs as the paper reports, so that our LUT
  counts are upper bounds.
- **No frequency of an UltraScale+ device can be given.** *Levels* are those of the netlist for this device class, counted
  as Vivado counts them: LUT 1, MUXF and CARRY4 half a level, CARRY8 1, a DSP without registers 4. Tonic finds that 31
  levels meet 10 ns on XCKU15P, and more than 42 do not.
- **ns** is the longest path by OpenSTA with the cells of osu018, an open library of 180 nm, without wires. In delays of an
  inverter that drives four of its kind (**FO4**: 99 ps there) it is nearly independent of the process.
- **MHz** is the frequency after placement and routing on an ECP5 (LFE5U-85F, speed grade 8, nextpnr) between registers.
  That device is at least 2.2 times slower than XCKU15P: Tonic's stage for incoming packets reaches 45.6 MHz there, and
  100 MHz in the paper. It has LUTs of four inputs. **ns / 2.2** is therefore the most that the period would be on
  XCKU15P.
- Papers report circuits with their interfaces to memory; ours are listed with and without.
"""

GROUPS = {
    "programs": ("Transport programs", "Emitted from the Rust functions; 128 segments. *incoming* is run for each packet, "
                 "*periodic* for each visit of the timer. The paper's LUTs contain marking of ranges and merging of "
                 "results, which are in the template here."),
    "tonic": ("Tonic's template", "The NIC around a program, the credit engines alone, and the store of the program's "
              "state. Large modules are synthesised once each, without yosys' pass `share`, and put together: no logic "
              "is simplified across their ports. A memory cell of which one output is used is counted as a whole one. "
              "So LUT and levels are upper bounds."),
    "irn": ("IRN", "The four modules of IRN, section 6. The paper's are from Vivado HLS, with 128-bit maps."),
    "fasr": ("FaSR", "FaSR's recovery beside go-back-N with the same contexts."),
    "falcon": ("Falcon", "Receive window and loss detection by time. The paper has no figures of circuits."),
    "shell": ("AXI-Stream shell", "Parser and builder of packet headers."),
    "lib": ("Library", "Modules of which the others are made."),
    "other": ("Others", ""),
}


def number(value, digits=1):
    """A number as it is shown: integers without a point, `-` when there is none."""
    if value is None:
        return "-"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def table(head, lines):
    """A table in Markdown; all columns but the first have numbers."""
    text = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    text += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(text) + "\n"


def parameters(row):
    """The parameters of a row, after its module."""
    shown = dict(row.parameters)
    if "folder" in row.sweep:
        shown[row.sweep["parameter"]] = row.value
    values = ", ".join(f"{name} {value}" for name, value in shown.items())
    name = f"{row.name}: " if row.parts else ""
    return f"{name}`{row.module}`" + (f" ({values})" if values else "")


def figures(report, row):
    """The columns of a row's figures."""
    found = report["modules"].get(row.name, {})
    scaled = 1000 / found["mhz"] / ECP5_TO_XCKU15P if "mhz" in found else None
    names = ("lut", "ff", "ramb36", "dsp", "levels", "ns", "fo4", "mhz")
    return [*(number(found.get(name)) for name in names), number(scaled)]


def group(report, name, members):
    """The section of a group."""
    title, about = GROUPS[name]
    has_paper = [row for row in members if row.name in papers()]
    head = ["module", "LUT", "FF", "RAMB36", "DSP", "levels", "ns", "FO4", "MHz", "ns / 2.2"]
    head += ["LUT, paper", "FF, paper"] if has_paper else []
    lines = []
    for row in members:
        line = [parameters(row), *figures(report, row)]
        if has_paper:
            paper = papers().get(row.name, {})
            line += [number(paper.get("lut")), number(paper.get("ff"))]
        lines.append(line)
    text = f"\n## {title}\n\n{about}\n\n" if about else f"\n## {title}\n\n"
    text += table(head, lines)
    for row in has_paper:
        text += f"\n- `{row.name}`, {papers()[row.name]['row']}: {papers()[row.name]['source']}"
    return text + ("\n" if has_paper else "")


def programs(report):
    """T-R1 and T-R3 for the six programs."""
    lines = []
    for name, paper in papers()["tonic"].items():
        both = [report["modules"].get(f"{name}_{function}") for function in ("incoming", "periodic")]
        if None in both:
            continue
        levels = max(figures["levels"] for figures in both)
        lut = sum(figures["lut"] for figures in both)
        lines.append([name, number(lut), number(levels), number(paper["user_lut"]),
                      number(paper["fixed_lut"]), number(paper["bram36"])])
    head = ["program", "LUT, both functions", "levels", "user LUT, paper", "template LUT, paper", "BRAM36, paper"]
    return ("\nT-R1 and T-R3. The paper's programs have 13 to 29 levels.\n\n" + table(head, lines)) if lines else ""


def template(report):
    """T-R1 and T-R9: what the template costs beside programs, and the credit engines."""
    lines = []
    for name, paper in papers()["tonic"].items():
        whole = report["modules"].get(f"tonic_{name}")
        if whole is None:
            continue
        user = user_lut(report, name)
        fixed = whole["lut"] - user
        lines.append([name, number(fixed), number(whole["lut_memory"]), number(whole["ff"]), number(whole["ramb36"]),
                      number(user), f"{100 * user / fixed:.1f} %", number(paper["fixed_lut"]),
                      number(paper["user_lut"]), f"{100 * paper['user_lut'] / paper['fixed_lut']:.1f} %",
                      number(paper["bram36"])])
    if not lines:
        return ""
    head = ["program", "template LUT", "of them memory", "FF", "BRAM36", "program LUT", "of template",
            "template LUT, paper", "user LUT, paper", "of template, paper", "BRAM36, paper"]
    text = ("\nT-R1 and T-R2, with 128 segments and 1024 flows. The template is the whole NIC without the program's "
            "two functions as they are alone, so it has marking of ranges and merging of results; BRAM36 are RAMB36 and "
            "half of each RAMB18.\n\n" + table(head, lines))
    engines = [(scheme, report["modules"].get(f"credit_{scheme}")) for scheme in ("window", "rate", "token")]
    lines = [[scheme, *(number(found[name]) for name in ("lut", "lut_memory", "ff", "ramb36", "dsp", "levels"))]
             for scheme, found in engines if found]
    text += ("\nT-R9, credit engines. The paper: by windows the least; by rates more LUT and fewer BRAM than by "
             "tokens.\n\n")
    text += table(["credit by", "LUT", "of them memory", "FF", "BRAM36", "DSP", "levels"], lines)
    paths = [(row, report["modules"].get(row.name, {})) for row in rows() if row.paths]
    lines = [[row.name, number(found["levels"]), *(f"`{end}`" for end in found["path"])]
             for row, found in paths if "path" in found]
    text += ("\nThe longest path of each. 31 levels meet 10 ns on the paper's device. A program's function has a cycle of its "
             "own; in the next one its answer is merged. Generation chooses a segment, merges it and inserts its flow into "
             "the active set in one cycle, so that one flow alone can send in each; credit by rates decides about two "
             "addresses in one.\n\n")
    text += table(["row", "levels", "from", "to"], lines)
    return text


def user_lut(report, name):
    """LUT of a program's two functions."""
    return sum(report["modules"][f"{name}_{function}"]["lut"] for function in ("incoming", "periodic"))


def sweeps(report):
    """How figures grow with a parameter: between neighbouring values, as a factor or a slope."""
    families = {}
    for row in rows():
        if row.sweep and row.name in report["modules"]:
            family = families.setdefault((row.sweep["row"], row.module, row.sweep["parameter"]), {})
            family[row.value] = report["modules"][row.name]
            # A row of its own, which has another value.
            if row.sweep.get("base") in report["modules"]:
                family[row.sweep["at"]] = report["modules"][row.sweep["base"]]
    if not families:
        return ""
    lines = []
    for (paper_row, module, parameter), members in families.items():
        before = None
        for value, found in sorted(members.items()):
            line = [f"{paper_row}: `{module}`, {parameter} {value}"]
            line += [number(found["lut"]), number(found["levels"]), number(found["ramb36"])]
            if before is None:
                line += ["-", "-", "-"]
            else:
                was, old = before
                line += [f"{found['lut'] / was['lut']:.2f} x", number(found["levels"] - was["levels"]),
                         f"{(found['ramb36'] - was['ramb36']) / (value - old):.4f}"]
            before = (found, value)
            lines.append(line)
    head = ["row", "LUT", "levels", "RAMB36", "LUT, growth", "levels more", "RAMB36 a unit"]
    return ("\n## Growth with parameters\n\nEach row beside the one before it: Tonic's table 4 (T-R5: user state, T-R6: "
            "window, T-R7: flows).\n\n" + table(head, lines))


def depth(random):
    """T-R4."""
    if not random:
        return ""
    found = random["summary"]
    text = f"""
## Random programs (T-R4)

{found['programs']} of 70 random functions, with {found['levels'][0]} to {found['levels'][1]} levels by the recorder's estimate,
and {number(found['state_bytes'][0])} to {number(found['state_bytes'][1])} bytes of state, without products and quotients.
Rank correlations; 0.9 is the least that is expected of the first row, and
[T-R4](outside.md#t-r4-the-delay-of-random-programs) has the reason where it is less:

"""
    text += table(["", "levels for UltraScale+", "ns in osu018"], [
        ["recorder's levels", f"{found['recorder_to_xcup']:.3f}", f"{found['recorder_to_osu018']:.3f}"],
        ["levels for UltraScale+", "-", f"{found['xcup_to_osu018']:.3f}"]])
    placed = found.get("ecp5_10_ns")
    if placed:
        text += f"""
{found['placed']} of them were placed on the ECP5, whose delay is divided by 2.2. Tonic's paper: up to 31 levels meet
10 ns, between 31 and 42 it depends, beyond 42 none does.

"""
        lines = []
        for name, title in (("recorder", "recorder's levels"), ("xcup", "levels for UltraScale+")):
            point = placed[name]
            lines.append([title, number(point["line"]), number(point["all_meet_below"]),
                          number(point["none_meets_above"])])
        text += table(["10 ns at", "on the fitted line", "first that misses", "last that meets"], lines)
    lines = [[str(p["seed"]), number(p["state_bits"] / 8), number(p["operations"]), number(p["levels"]),
              number(p["xcup"]["levels"]), number(p["xcup"]["lut"]), number(p["osu018"]["ns"], 2),
              number(p.get("ecp5_mhz"))] for p in random["programs"]]
    head = ["seed", "state, bytes", "operations", "recorder's levels", "levels", "LUT", "ns", "MHz"]
    return text + "\n" + table(head, lines)


def faults(mutants):
    """Mutants of modules written by hand, and how many are noticed."""
    modules = [(family, name, found) for family, modules in mutants.items() for name, found in modules.items()]
    if not modules:
        return ""
    columns = ["mutants", "noticed", "proved", "argued", "open"]
    lines = [[f"{family}: `{name}`", *(str(found[column]) for column in columns)] for family, name, found in modules]
    sums = [sum(found[column] for _, _, found in modules) for column in columns]
    share = f"{100 * sums[1] / (sums[0] - sums[2] - sums[3]):.1f}"
    return f"""
## Mutants

Modules with one other operator, constant or condition each. {share} % of those that are another circuit are noticed.

| a mutant is | |
|---|---|
| noticed | the comparison of the circuit with its model finds a difference, or an assertion or a proof fails |
| proved | the same circuit: yosys proves that outputs, next values of registers and inputs of memories are equal |
| argued | the same circuit, for the reason that the list gives |
| open | another circuit in cases that the stimuli do not have |

The lists with reasons are in [crates/rnic-rtl/tests](../crates/rnic-rtl/tests), in the file `mutants.rs` of each folder
or beside it; all others count as noticed. `make rtl-test` runs all mutants and all proofs, and fails where that is not
so.

""" + table(["module", *columns], [*lines, ["all", *map(str, sums)]])


def covered(coverage):
    """Lines of modules written by hand, and how many the tests reach."""
    if not coverage:
        return ""
    run, modules = coverage["run"], coverage["modules"]
    columns = ["lines", "reached", "unreachable"]
    lines = [[f"`{name}`", *(str(found[column]) for column in columns), share(found)]
             for name, found in modules.items()]
    sums = {column: sum(found[column] for found in modules.values()) for column in columns}
    lines.append(["all", *(str(sums[column]) for column in columns), share(sums)])
    return f"""
## Line coverage

`make rtl-coverage` counts which lines the comparisons with the models reach, and fails where they are less than 95 % of
those of a module. Measured in the tests that `make test` has, with {number(run["RNIC_LOCKSTEP_EVENTS"])} events for each
comparison of a module and {number(run["RNIC_TONIC_CYCLES"])} cycles of Tonic's NIC for each program and kind of traffic.
Lines are those of blocks and functions; a condition is reached when it was both true and false. Lines that no input can
reach are listed with reasons in [uncovered.toml](../tools/rtl/uncovered.toml), and not counted as lines here. Modules
that have assignments only have no lines.

""" + table(["module", "lines", "reached", "cannot be reached", "%"], lines)


def share(found):
    """The percentage of lines that are reached."""
    return f"{100 * found['reached'] / max(found['lines'], 1):.1f}"


def text(report, random, mutants, coverage):
    """The page."""
    page = HEAD
    for name in GROUPS:
        members = [row for row in rows() if row.group == name and row.name in report.get("modules", {})]
        if members:
            page += group(report, name, members)
        if members and name == "programs":
            page += programs(report)
        if members and name == "tonic":
            page += template(report)
    page += sweeps(report) + depth(random) + faults(mutants) + covered(coverage)
    versions = [[name, version] for name, version in report.get("tools", {}).items()]
    return page + "\n## Tools\n\n" + table(["tool", "version"], versions)
