//! RDMA over Falcon's headers, and the engine's own.

use rnic_base::{Psn, Serial};
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag, WriteTail};
use rnic_wire::{Headers, NakCode, Packet, PacketFlags, Reth, SendPlacement, WqeSn};

use crate::wq::{SendWqe, WqeOp};

/// The operation that `headers` of a request say; `offset` is that of its payload in the message.
pub(super) fn operation(headers: &Headers, wqe: &SendWqe, offset: u32, sink: SinkTag) -> Operation {
    let rmsn = Serial::new(wqe.sn.wrapping_add(1));
    match *headers {
        Headers::Send { position, tail, .. } => Operation::Send { position, tail, rmsn, offset },
        Headers::Write { position, reth, immediate, .. } => Operation::Write {
            position,
            reth: reth.expect("every Write packet has one"),
            tail: immediate.map(|immediate| WriteTail { rmsn, immediate }),
        },
        Headers::ReadRequest { reth, .. } => Operation::ReadRequest { reth, rmsn, sink },
        Headers::AtomicRequest { va, rkey, op, .. } => Operation::AtomicRequest { va, rkey, op, rmsn, sink },
        _ => unreachable!("requests alone are sent: {headers:?}"),
    }
}

/// A Push as the packet that a responder knows; none when it is no Push, or its offset is that of no packet.
pub(super) fn request(header: &Header, payload_len: u32, mtu: u32) -> Option<Packet> {
    let name = |rmsn: Serial<32>| WqeSn::new(rmsn.value().wrapping_sub(1));
    let headers = match header.operation {
        Operation::Send { position, tail, rmsn, offset } if offset.is_multiple_of(mtu) => {
            let placement = SendPlacement { recv_sn: name(rmsn), offset: Serial::new(offset / mtu) };
            Headers::Send { position, tail, placement: Some(placement) }
        }
        Operation::Write { position, reth, tail } => Headers::Write {
            position,
            reth: Some(reth),
            immediate: tail.map(|tail| tail.immediate),
            recv_sn: tail.map(|tail| name(tail.rmsn)),
        },
        _ => return None,
    };
    let flags = PacketFlags { solicited: header.solicited, ..PacketFlags::default() };
    Some(Packet { dest_qpn: header.dest_qpn, psn: Psn::new(0), flags, payload_len, headers })
}

/// Where the answer to `wqe` goes, as its initiator says it. Nobody relies on it coming back.
pub(super) fn sink(wqe: &SendWqe, first: Option<&crate::wr::Sge>, offset: u32) -> SinkTag {
    debug_assert!(wqe.op.is_fetch());
    first.map_or(SinkTag::default(), |sge| SinkTag { va: sge.addr.wrapping_add(u64::from(offset)), lkey: sge.lkey })
}

/// A Read asks, with each Pull, for the part that it brings.
pub(super) fn narrow(headers: &mut Headers, wqe: &SendWqe, part: u32) {
    if let (WqeOp::Read, Headers::ReadRequest { reth, .. }) = (wqe.op, headers) {
        *reth = Reth { dma_len: part, ..*reth };
    }
}

/// The upper layer's code of a refusal: that of RoCE's NAK (IBA table 46).
pub(super) const fn code_of(code: NakCode) -> u8 {
    match code {
        NakCode::PsnSequenceError => 0,
        NakCode::InvalidRequest => 1,
        NakCode::RemoteAccessError => 2,
        NakCode::RemoteOperationalError => 3,
    }
}

/// What such a code means; what is none counts as the target's own failure.
pub(super) const fn nak_of(code: u8) -> NakCode {
    match code {
        1 => NakCode::InvalidRequest,
        2 => NakCode::RemoteAccessError,
        _ => NakCode::RemoteOperationalError,
    }
}
