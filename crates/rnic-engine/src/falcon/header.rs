//! Conversion between the headers of RDMA over Falcon and the engine's own representation of headers.

use rnic_base::{Psn, Serial};
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag, WriteTail};
use rnic_wire::{AtomicOp, Headers, NakCode, Packet, PacketFlags, Position, Reth, SendPlacement, SendTail, WqeSn};

use crate::wq::{SendWqe, WqeOp};
use crate::wr::Sge;

/// Position of a transaction in its message.
pub(super) struct MessagePosition {
    /// Number of transactions of the message before this one.
    pub(super) index: u32,
    pub(super) position: Position,
    /// Offset in bytes of this transaction's data in the message.
    pub(super) offset: u32,
    /// Number of bytes of the message in this transaction.
    pub(super) part: u32,
}

/// Returns the operation of the part of `wqe` at `location`; `sges` describe its local memory.
#[inline(always)]
pub(super) fn operation(wqe: &SendWqe, sges: &[Sge], location: &MessagePosition) -> Operation {
    let &MessagePosition { index, position, offset, part } = location;
    let (rmsn, rkey) = (Serial::new(wqe.sn.wrapping_add(1)), wqe.rkey);
    let va = wqe.remote.wrapping_add(u64::from(offset));
    let send = |tail: SendTail| {
        let tail = if position.ends() { tail } else { SendTail::Plain };
        Operation::Send { position, tail, rmsn, offset }
    };
    let write = |immediate: Option<u32>| Operation::Write {
        position,
        reth: Reth { va, rkey, dma_len: wqe.length },
        tail: immediate.filter(|_| position.ends()).map(|immediate| WriteTail { rmsn, immediate }),
    };
    let atomic = |op| Operation::AtomicRequest { va, rkey, op, rmsn, sink: sink(sges, location) };
    match wqe.op {
        WqeOp::Write => write(None),
        WqeOp::WriteImm => write(Some(wqe.word)),
        WqeOp::Send => send(SendTail::Plain),
        WqeOp::SendImm => send(SendTail::Immediate(wqe.word)),
        WqeOp::SendInvalidate => send(SendTail::Invalidate(wqe.word)),
        // Each Pull of a Read requests only its own part.
        WqeOp::Read => {
            let rmsn = Serial::new(rmsn.value().wrapping_add(index));
            Operation::ReadRequest { reth: Reth { va, rkey, dma_len: part }, rmsn, sink: sink(sges, location) }
        }
        WqeOp::CompareSwap => atomic(AtomicOp::CompareSwap { compare: wqe.operand, swap: wqe.swap }),
        WqeOp::FetchAdd => atomic(AtomicOp::FetchAdd { add: wqe.operand }),
        WqeOp::BindWindow | WqeOp::LocalInvalidate => unreachable!("local operations have no packets"),
        WqeOp::WriteOnFlow | WqeOp::ReadOnFlow => unreachable!("Falcon's flows are paths of one connection"),
        WqeOp::AtomicWrite | WqeOp::Flush => unreachable!("refused when it was posted"),
        WqeOp::Datagram | WqeOp::DatagramImm => unreachable!("reliable connections have no datagrams"),
    }
}

/// Converts a Push to the packet format of the responder; `None` when the operation is not a Push, or when its offset
/// is not a multiple of the MTU.
#[inline(always)]
pub(super) fn request(header: &Header, payload_len: u32, mtu: u32) -> Option<Packet> {
    let sn_of = |rmsn: Serial<32>| WqeSn::new(rmsn.value().wrapping_sub(1));
    let headers = match header.operation {
        Operation::Send { position, tail, rmsn, offset } if offset.is_multiple_of(mtu) => {
            let placement = SendPlacement { recv_sn: sn_of(rmsn), offset: Serial::new(offset / mtu) };
            Headers::Send { position, tail, placement: Some(placement) }
        }
        Operation::Write { position, reth, tail } => Headers::Write {
            position,
            reth: Some(reth),
            immediate: tail.map(|tail| tail.immediate),
            recv_sn: tail.map(|tail| sn_of(tail.rmsn)),
        },
        _ => return None,
    };
    let flags = PacketFlags { solicited: header.solicited, ..PacketFlags::default() };
    Some(Packet { dest_qpn: header.dest_qpn, psn: Psn::new(0), flags, payload_len, headers })
}

/// Returns whether the Push with `header` is the last one of its message, and whether the message consumes a receive;
/// independent of the other fields.
pub(super) fn ends_and_consumes_receive(header: &Header) -> (bool, bool) {
    match header.operation {
        Operation::Send { position, .. } => (position.ends(), true),
        Operation::Write { position, tail, .. } => (position.ends(), tail.is_some()),
        _ => (true, false),
    }
}

/// Returns the destination of the response to the part at `location`, as its initiator announces it; zeros when the
/// part covers several scatter/gather entries, because the tag holds only one address. The initiator does not rely on
/// the returned tag.
fn sink(sges: &[Sge], location: &MessagePosition) -> SinkTag {
    let mut into = location.offset;
    for sge in sges {
        match sge.len.checked_sub(into) {
            Some(left) if left >= location.part => {
                return SinkTag { va: sge.addr.wrapping_add(into.into()), lkey: sge.lkey };
            }
            // The part starts in this entry and ends after it.
            Some(1..) => break,
            _ => into -= sge.len,
        }
    }
    SinkTag::default()
}

/// Returns the code by which the upper layer reports a refusal: the code of RoCE's NAK (IBA table 46).
pub(super) const fn code_of(code: NakCode) -> u8 {
    match code {
        NakCode::PsnSequenceError => 0,
        NakCode::InvalidRequest => 1,
        NakCode::RemoteAccessError => 2,
        NakCode::RemoteOperationalError => 3,
    }
}

/// Returns the NAK for a code of [`code_of`]; an unknown code is treated as a failure of the target itself.
pub(super) const fn nak_of(code: u8) -> NakCode {
    match code {
        1 => NakCode::InvalidRequest,
        2 => NakCode::RemoteAccessError,
        _ => NakCode::RemoteOperationalError,
    }
}
