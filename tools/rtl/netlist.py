"""Counts of cells, and levels of logic, of a netlist that yosys has written as JSON.

A level is a LUT, as in Vivado's reports (Tonic, section 6.1.2): MUXF7, MUXF8, MUXF9 and CARRY4 are half a level, CARRY8
is one (a carry chain costs half a level for four bits). An asynchronous read of a memory in LUTs is one level. A DSP
without registers is four. Inverters are absorbed by what follows and cost nothing.
"""

from collections import defaultdict

# Number of LUTs that each cell with memory in LUTs takes (UltraScale Architecture CLB, UG574).
LUT_MEMORIES = {
    "RAM16X1D": 2, "RAM32M": 4, "RAM32M16": 8, "RAM32X1D": 2, "RAM32X1S": 1, "RAM64M": 4, "RAM64M8": 8, "RAM64X1D": 2,
    "RAM64X1S": 1, "RAM128X1D": 4, "RAM128X1S": 2, "RAM256X1D": 8, "RAM256X1S": 4, "RAM512X1S": 8, "SRL16E": 1,
    "SRLC16E": 1, "SRLC32E": 1,
}
FLIP_FLOPS = {"FDRE", "FDSE", "FDCE", "FDPE", "FDRE_1", "FDSE_1", "FDCE_1", "FDPE_1", "LDCE", "LDPE"}
HALF_LEVELS = {"CARRY4": 1, "CARRY8": 2, "MUXF7": 1, "MUXF8": 1, "MUXF9": 1, "INV": 0, "DSP48E2": 8, "DSP48E1": 8}
DSP_REGISTERS = ("AREG", "BREG", "MREG", "PREG", "ADREG", "CREG")
# Inputs of memories in LUTs that are sampled by the clock: the read address is what reaches the output.
SAMPLED = ("D", "WE", "WCLK", "CLK", "CE")


class Loop(Exception):
    """The netlist has a combinational loop."""


def half_levels(kind):
    """The cost of a cell in half levels; None when it is the end and the start of paths."""
    if kind.startswith("LUT") or kind in LUT_MEMORIES:
        return 2
    return HALF_LEVELS.get(kind)


def is_registered(cell):
    """Whether a DSP has a register in it, so that no path leads through it."""
    values = (cell.get("parameters", {}).get(name, 0) for name in DSP_REGISTERS)
    return any(int(str(value), 2) != 0 for value in values)


def cost(cell):
    """The cost of a cell in half levels; None when no path leads through it."""
    if cell["type"].startswith("DSP48") and is_registered(cell):
        return None
    return half_levels(cell["type"])


def counts(module):
    """LUT, flip-flops, block memories in 36 Kbit, carry cells and DSPs of a flat module."""
    found = {"lut": 0, "ff": 0, "ramb36": 0.0, "carry": 0, "dsp": 0, "lut_memory": 0}
    other = defaultdict(int)
    for cell in module["cells"].values():
        kind = cell["type"]
        if kind.startswith("LUT"):
            found["lut"] += 1
        elif kind in LUT_MEMORIES:
            found["lut"] += LUT_MEMORIES[kind]
            found["lut_memory"] += LUT_MEMORIES[kind]
        elif kind in FLIP_FLOPS:
            found["ff"] += 1
        elif kind.startswith("RAMB36"):
            found["ramb36"] += 1
        elif kind.startswith("RAMB18"):
            found["ramb36"] += 0.5
        elif kind.startswith("CARRY"):
            found["carry"] += 1
        elif kind.startswith("DSP48"):
            found["dsp"] += 1
        elif kind not in ("INV", "MUXF7", "MUXF8", "MUXF9", "IBUF", "OBUF", "BUFG"):
            other[kind] += 1
    if other:
        raise ValueError(f"cells that are not counted: {dict(other)}")
    return found


def arcs(cell):
    """Bits that a cell reads on a path through it, and bits that it drives."""
    inputs, outputs = [], []
    for port, bits in cell["connections"].items():
        numbers = [bit for bit in bits if isinstance(bit, int)]
        if cell["port_directions"][port] == "output":
            outputs += numbers
        elif cell["type"] not in LUT_MEMORIES or not is_sampled(cell["type"], port):
            inputs += numbers
    return inputs, outputs


def is_sampled(kind, port):
    """Whether a port of a memory in LUTs is read at the edge of the clock only."""
    if port.startswith(SAMPLED):
        # DPRA is a read address, D, DI and DIA are data.
        return not port.startswith("DPRA")
    # The address of the port that writes reads too, so it counts; ADDRD of RAM64M and the like writes.
    return False


def levels(module):
    """The longest path between registers, memories and ports of a flat module, in levels."""
    drivers, reads, costs = {}, {}, {}
    for name, cell in module["cells"].items():
        weight = cost(cell)
        if weight is None:
            continue
        reads[name], outputs = arcs(cell)
        costs[name] = weight
        for bit in outputs:
            drivers[bit] = name
    depth = {}
    for start in reads:
        stack = [(start, iter(reads[start]))]
        on_path = {start}
        while stack and start not in depth:
            name, waiting = stack[-1]
            for bit in waiting:
                before = drivers.get(bit)
                if before is None or before in depth:
                    continue
                if before in on_path:
                    raise Loop(f"{name} and {before} are in a loop")
                on_path.add(before)
                stack.append((before, iter(reads[before])))
                break
            else:
                above = (depth[drivers[bit]] for bit in reads[name] if bit in drivers)
                depth[name] = costs[name] + max(above, default=0)
                on_path.discard(name)
                stack.pop()
    return max(depth.values(), default=0) / 2


def top(design):
    """The only module of a flat design that has cells of its own, or the one marked as top."""
    modules = design["modules"]
    marked = [module for module in modules.values() if "top" in module.get("attributes", {})]
    if len(marked) != 1:
        raise ValueError(f"{len(marked)} modules are marked as top")
    return marked[0]
