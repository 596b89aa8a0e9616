"""A smoke test of `tonic_nic` by cocotb and cocotbext-axi: a NIC sends, and repairs a gap that RoCEv2 packets report.

`python3 rtl/cocotb/run.py` builds and runs it, around the program `new-reno`. It shows how a board's project connects
the NIC; crates/rnic-rtl/tests/tonic/wire.rs compares it with the model in every cycle.
"""

import cocotb
from cocotb.triggers import RisingEdge, with_timeout
from test_header_shell import PEER, WRITE_ONLY, acknowledgement, bth, start

# Parameters of `new-reno`, lowest first: duplicate acknowledgements of a loss, segments of the first window, and the
# least and the greatest timeout in ticks of 160 ns.
CONFIG = 3 | 10 << 8 | 2000 << 16 | 6_250_000 << 40
# 100 Gbit/s in bytes per cycle of 10 ns, with 16 bits after the point.
LINK_RATE = 8_192_000
ADD, LIMIT = 0, 2
FLOW, FIRST, SEGMENTS = 5, 0xFFFFFE, 6


async def command(dut, kind, segment, octets=0):
    """Gives the driver's command."""
    dut.command_flow_i.value = FLOW
    dut.command_i.value = kind | segment << 2 | octets << 26
    dut.command_valid_i.value = 1
    await RisingEdge(dut.clk)
    dut.command_valid_i.value = 0


async def receive(sink, count):
    """The segments of the next headers, relative to the first one of the flow."""
    numbers = []
    for _ in range(count):
        header = bytes((await with_timeout(sink.recv(), 20, "us")).tdata)
        psn = int.from_bytes(header[9:12], "big")
        assert header == bth(WRITE_ONLY, PEER, psn, ack_request=True)
        numbers.append(psn - FIRST & 0xFFFFFF)
    return numbers


@cocotb.test()
async def repairs_a_gap(dut):
    """Six segments leave. Segment 2 is lost: three duplicates of the acknowledgement of segment 1 bring it again."""
    for port in (dut.command_valid_i, dut.peer_valid_i):
        port.value = 0
    dut.config_i.value = CONFIG
    dut.link_rate_i.value = LINK_RATE
    source, sink = await start(dut)
    dut.peer_flow_i.value = FLOW
    dut.peer_qpn_i.value = PEER
    dut.peer_opcode_i.value = WRITE_ONLY
    dut.peer_valid_i.value = 1
    await RisingEdge(dut.clk)
    dut.peer_valid_i.value = 0
    await command(dut, ADD, FIRST, 1024)
    await command(dut, LIMIT, FIRST + SEGMENTS & 0xFFFFFF)
    assert await receive(sink, SEGMENTS) == list(range(SEGMENTS))

    # A sink that waits loses nothing.
    sink.pause = True
    for number in (0, 1, 1, 1, 1):
        await source.send(acknowledgement(FLOW, FIRST + number & 0xFFFFFF))
    for _ in range(60):
        await RisingEdge(dut.clk)
    sink.pause = False
    assert await receive(sink, 1) == [2]
    await source.send(acknowledgement(FLOW, FIRST + SEGMENTS - 1 & 0xFFFFFF))
    for _ in range(60):
        await RisingEdge(dut.clk)
    assert sink.empty()
