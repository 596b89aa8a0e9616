"""A smoke test of `header_shell` by cocotb and cocotbext-axi: an acknowledgement in, a header out.

`python3 rtl/cocotb/run.py` builds and runs it. It shows how the shell is connected; crates/rnic-rtl/tests/shell.rs
compares it with rnic-wire over many packets.
"""

import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

FIRST_QPN = 0x100
ACKNOWLEDGE = 0x11
WRITE_ONLY = 0x0A
PEER = 0xABCDEF


def bth(opcode, qpn, psn, ack_request=False):
    """A base transport header."""
    return struct.pack(">BBHII", opcode, 0x40, 0xFFFF, qpn, int(ack_request) << 31 | psn)


def acknowledgement(flow, psn):
    """An acknowledgement of RoCEv2, with its ICRC."""
    return bth(ACKNOWLEDGE, FIRST_QPN + flow, psn) + struct.pack(">BBH", 31, 0, 0) + b"\xaa\xbb\xcc\xdd"


async def start(dut):
    """Resets a circuit with two streams, and connects a source and a sink."""
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.rst_n.value = 0
    # Resets of cocotbext-axi are active high by default.
    source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.clk, dut.rst_n, reset_active_level=False)
    sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.clk, dut.rst_n, reset_active_level=False)
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst_n.value = 1
    await RisingEdge(dut.clk)
    return source, sink


async def start_shell(dut):
    """Does that for the shell."""
    for port in (dut.cfg_valid_i, dut.addr_valid_i):
        port.value = 0
    return await start(dut)


@cocotb.test()
async def reports_an_acknowledgement(dut):
    """The sender of flow 5 learns that segment 7 has arrived."""
    source, _ = await start_shell(dut)
    await source.send(AxiStreamFrame(acknowledgement(5, 7)))
    for _ in range(20):
        await RisingEdge(dut.clk)
        if dut.report_valid_o.value == 1:
            break
    else:
        raise AssertionError("no report in 20 cycles")
    report = int(dut.report_o.value)
    assert int(dut.report_flow_o.value) == 5
    # report_t: six flags, of which `ack` is the highest, then cum, sack and granted with 24 bits each.
    assert report >> 72 == 0b100000
    assert report >> 48 & 0xFFFFFF == 8


@cocotb.test()
async def sends_the_header_of_an_address(dut):
    """Segment 9 of flow 3 leaves with the number of the peer's queue pair."""
    _, sink = await start_shell(dut)
    dut.cfg_flow_i.value = 3
    dut.cfg_dest_qpn_i.value = PEER
    dut.cfg_opcode_i.value = WRITE_ONLY
    dut.cfg_valid_i.value = 1
    await RisingEdge(dut.clk)
    dut.cfg_valid_i.value = 0
    dut.addr_flow_i.value = 3
    dut.addr_segment_i.value = 9
    dut.addr_valid_i.value = 1
    await RisingEdge(dut.clk)
    while dut.addr_ready_o.value != 1:
        await RisingEdge(dut.clk)
    dut.addr_valid_i.value = 0
    frame = await sink.recv()
    assert bytes(frame.tdata) == bth(WRITE_ONLY, PEER, 9, ack_request=True)
