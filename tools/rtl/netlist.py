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
        # Newer releases of yosys note scopes as cells.
        elif kind not in ("INV", "MUXF7", "MUXF8", "MUXF9", "IBUF", "OBUF", "BUFG", "$scopeinfo"):
            other[kind] += 1
    if other:
        raise ValueError(f"cells that are not counted: {dict(other)}")
    return found


def arcs(cell):
    """Groups of bits that a cell reads on a path through it, and of bits that it drives from these."""
    ports = {"input": {}, "output": {}}
    for port, bits in cell["connections"].items():
        numbers = [bit for bit in bits if isinstance(bit, int)]
        ports[cell["port_directions"][port]][port] = numbers
    if cell["type"] not in LUT_MEMORIES:
        return [(sum(ports["input"].values(), []), sum(ports["output"].values(), []))]
    # An address leads to the output of its own port. The port that writes reads too, at the same address.
    found = []
    for output, driven in ports["output"].items():
        read = [bits for port, bits in ports["input"].items() if is_address(cell["type"], port, output)]
        found.append((sum(read, []), driven))
    return found


def is_address(kind, port, output):
    """Whether an input of a memory in LUTs is an address of this output: ADDRA of DOA, DPRA of DPO, A of SPO and of O.
    Data and enables are sampled by the clock."""
    if output.startswith("DO"):
        return port.startswith(f"ADDR{output[2:]}")
    if output == "DPO":
        return port.startswith("DPRA")
    return port.startswith("A")


def depths(module):
    """For each cell through which paths lead, or port of a memory, the cost of the longest path that ends with it, in
    half levels; beside it, what drives each bit, and the bits that each reads."""
    drivers, reads, costs = {}, {}, {}
    for cell_name, cell in module["cells"].items():
        weight = cost(cell)
        if weight is None:
            continue
        for number, (inputs, outputs) in enumerate(arcs(cell)):
            name = f"{cell_name} {number}"
            reads[name] = inputs
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
    return depth, drivers, reads


def levels(module):
    """The longest path between registers, memories and ports of a flat module, in levels."""
    return max(depths(module)[0].values(), default=0) / 2


def longest(module):
    """The ends of the longest path, and what it passes: names of registers, memories and nets, without numbers of bits,
    each with the levels up to it."""
    depth, drivers, reads = depths(module)
    names = {}
    for name, net in module["netnames"].items():
        if not net.get("hide_name"):
            for bit in net["bits"]:
                # Of several names of a net, the shortest is the one that a module gave to its own signal.
                if bit not in names or len(name) < len(names[bit]):
                    names[bit] = name
    cell = max(depth, key=lambda name: depth[name])
    outputs = [bit for bit, name in drivers.items() if name == cell]
    path = [(depth[cell], ends(module, names, outputs))]
    while True:
        before = [drivers[bit] for bit in reads[cell] if bit in drivers]
        if not before:
            break
        cell, last = max(before, key=lambda name: depth[name]), cell
        passed = [names[bit] for bit in reads[last] if drivers.get(bit) == cell and bit in names]
        path += [(depth[cell], name) for name in passed[:1]]
    sources = [bit for bit in reads[cell] if bit not in drivers]
    path.append((0, next((begins(module, names, bit) for bit in sources), "a constant")))
    return [(level / 2, name) for level, name in reversed(path)]


def begins(module, names, bit):
    """The register, memory or port that drives a bit."""
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            if bit in bits and cell["port_directions"][port] == "output":
                return names.get(bit, name) if cell["type"] in FLIP_FLOPS else name
    return names.get(bit, "a port")


def ends(module, names, outputs):
    """What reads the end of a path: a register by the name of its output, a memory by its own, or a port."""
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input" and not set(outputs).isdisjoint(bits):
                if cell["type"] in FLIP_FLOPS:
                    return names.get(cell["connections"]["Q"][0], name)
                return name
    return next((names[bit] for bit in outputs if bit in names), "a port")


def top(design):
    """The only module of a flat design that has cells of its own, or the one marked as top."""
    modules = design["modules"]
    marked = [module for module in modules.values() if "top" in module.get("attributes", {})]
    if len(marked) != 1:
        raise ValueError(f"{len(marked)} modules are marked as top")
    return marked[0]
