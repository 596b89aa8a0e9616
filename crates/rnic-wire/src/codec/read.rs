//! Decoding of extended headers: one match arm for each opcode.

use super::Decoded;
use crate::bytes::split;
use crate::error::WireError;
use crate::header::aeth::AethView;
use crate::header::atomic_ack_eth::AtomicAckEthView;
use crate::header::atomic_eth::AtomicEthView;
use crate::header::bth::BthView;
use crate::header::cnp;
use crate::header::deth::DethView;
use crate::header::fasr::{self, AddressView, ExpectedPsnView, FasrReadFieldsView, LossReportView};
use crate::header::ieth::IethView;
use crate::header::immdt::ImmDtView;
use crate::header::irn::{PlacementView, PullView, SackView, WqeSnView};
use crate::header::reth::RethView;
use crate::header::{placement, xrceth};
use crate::length::ICRC_LEN;
use crate::opcode::Opcode;
use crate::packet::{
    Aeth, AtomicOp, FasrReadFields, Format, Headers, NakCode, PackedPsn, Packet, PlacementOp, Position, Reth, SendTail,
    Sink, Syndrome, WqeSn,
};

/// The decoded value, and the bytes that follow it.
type Read<'a, T> = Result<(T, &'a [u8]), WireError>;

/// A packet of which the base transport header has been read.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// Length of the complete datagram in bytes.
    pub(super) datagram_len: usize,
    /// Number of bytes at the end of the datagram that are not given: the end of its payload.
    pub(super) beyond: usize,
    /// Format indicated by the base transport header.
    pub(super) format: Format,
    /// Opcode of the packet.
    pub(super) opcode: Opcode,
    /// Base transport header of the packet.
    pub(super) base: BthView<'a>,
    /// Bytes after the base transport header.
    pub(super) rest: &'a [u8],
}

impl Start<'_> {
    /// Returns the packet with `headers`, when the remaining bytes are a payload of valid length, padding and ICRC.
    ///
    /// Each packet type calls this in its own branch, so that its headers are built in their final location: one common
    /// call would copy them twice, which takes as long as all the rest.
    #[inline(always)]
    fn finish(&self, headers: Headers, rest: &[u8]) -> Result<Decoded, WireError> {
        let unread = rest.len() + self.beyond;
        let body_len = unread.checked_sub(ICRC_LEN).ok_or(WireError::Short)?;
        let pad = usize::from(self.base.pad());
        if !body_len.is_multiple_of(4) || pad > body_len {
            return Err(WireError::Padding);
        }
        let payload_len = body_len - pad;
        let payload_bytes = u32::try_from(payload_len).map_err(|_| WireError::PayloadLength)?;
        let rule = self.opcode.payload();
        if !rule.allows(payload_bytes) && !rule.allows_trimmed(self.format, self.base.flags(), payload_bytes) {
            return Err(WireError::PayloadLength);
        }
        let start = self.datagram_len - unread;
        let packet = Packet {
            dest_qpn: self.base.dest_qpn(),
            psn: self.base.psn(),
            flags: self.base.flags(),
            payload_len: payload_bytes,
            headers,
        };
        Ok(Decoded { format: self.format, packet, payload: start..start + payload_len })
    }
}

/// Header carried by the last packet of a Send.
#[derive(Clone, Copy)]
enum Tail {
    Plain,
    Immediate,
    Invalidate,
}

/// Reads the extended headers that the opcode has in the format, and the payload that follows.
#[inline]
pub(super) fn extended(start: &Start<'_>) -> Result<Decoded, WireError> {
    use Position::{First, Last, Middle, Only};
    if start.format == Format::UnreliableDatagram {
        return datagram(start);
    }
    match start.opcode {
        Opcode::SendFirst => send(start, First, Tail::Plain),
        Opcode::SendMiddle => send(start, Middle, Tail::Plain),
        Opcode::SendLast => send(start, Last, Tail::Plain),
        Opcode::SendLastImmediate => send(start, Last, Tail::Immediate),
        Opcode::SendLastInvalidate => send(start, Last, Tail::Invalidate),
        Opcode::SendOnly => send(start, Only, Tail::Plain),
        Opcode::SendOnlyImmediate => send(start, Only, Tail::Immediate),
        Opcode::SendOnlyInvalidate => send(start, Only, Tail::Invalidate),
        Opcode::WriteFirst => write(start, First, false),
        Opcode::WriteMiddle => write(start, Middle, false),
        Opcode::WriteLast => write(start, Last, false),
        Opcode::WriteLastImmediate => write(start, Last, true),
        Opcode::WriteOnly => write(start, Only, false),
        Opcode::WriteOnlyImmediate => write(start, Only, true),
        Opcode::ReadRequest => read_request(start),
        Opcode::ReadResponseFirst => read_response(start, First),
        Opcode::ReadResponseMiddle => read_response(start, Middle),
        Opcode::ReadResponseLast => read_response(start, Last),
        Opcode::ReadResponseOnly => read_response(start, Only),
        Opcode::CompareSwap => atomic_request(start, AtomicEthView::compare_swap),
        Opcode::FetchAdd => atomic_request(start, AtomicEthView::fetch_add),
        Opcode::AtomicWrite => atomic_write(start),
        Opcode::Flush => flush(start),
        Opcode::AtomicAcknowledge => atomic_response(start),
        Opcode::Acknowledge | Opcode::ReadAck => acknowledgement(start),
        Opcode::Pull => pull(start),
        Opcode::Cnp => start.finish(Headers::Cnp, cnp::split_reserved(start.rest)?),
    }
}

/// Reads a packet that carries a shared receive queue number (XRC): the rest has the same layout as without it.
#[cold]
pub(super) fn shared(start: &Start<'_>) -> Result<Decoded, WireError> {
    let (srqn, rest) = xrceth::split_off(start.rest)?;
    let mut decoded = extended(&Start { rest, ..*start })?;
    decoded.packet.headers = decoded.packet.headers.shared(srqn).ok_or(WireError::Opcode)?;
    Ok(decoded)
}

/// Reads an unreliable datagram. The opcode table allows two opcodes here: with and without immediate.
fn datagram(start: &Start<'_>) -> Result<Decoded, WireError> {
    if start.base.dest_qpn().is_management() {
        return Err(WireError::Opcode);
    }
    let (view, rest) = DethView::split(start.rest)?;
    let (immediate, rest) = match start.opcode {
        Opcode::SendOnlyImmediate => {
            let (view, rest) = ImmDtView::split(rest)?;
            (Some(view.value()), rest)
        }
        _ => (None, rest),
    };
    let (queue_key, source_qpn) = (view.queue_key(), view.source_qpn());
    start.finish(Headers::Datagram { queue_key, source_qpn, immediate }, rest)
}

#[inline]
fn send(start: &Start<'_>, position: Position, tail: Tail) -> Result<Decoded, WireError> {
    let (tail, rest) = match tail {
        Tail::Plain => (SendTail::Plain, start.rest),
        Tail::Immediate => {
            let (view, rest) = ImmDtView::split(start.rest)?;
            (SendTail::Immediate(view.value()), rest)
        }
        Tail::Invalidate => {
            let (view, rest) = IethView::split(start.rest)?;
            (SendTail::Invalidate(view.rkey()), rest)
        }
    };
    let (placement, rest) = if start.format.allows_independent_placement() {
        let (view, rest) = PlacementView::split(rest)?;
        (Some(view.to_repr()), rest)
    } else {
        (None, rest)
    };
    start.finish(Headers::Send { position, tail, placement }, rest)
}

#[inline]
fn write(start: &Start<'_>, position: Position, has_immediate: bool) -> Result<Decoded, WireError> {
    let (reth, rest) = if start.format == Format::Fasr && fasr::is_short(position, has_immediate) {
        let (view, rest) = AddressView::split(start.rest)?;
        (Some(view.to_repr()), rest)
    } else if start.format.allows_independent_placement() || position.starts() {
        let (view, rest) = RethView::split(start.rest)?;
        (Some(view.to_repr()), rest)
    } else {
        (None, start.rest)
    };
    if !has_immediate {
        return start.finish(Headers::Write { position, reth, immediate: None, recv_sn: None }, rest);
    }
    let (view, rest) = ImmDtView::split(rest)?;
    let (recv_sn, rest) = wqe_sn(start.format, rest)?;
    start.finish(Headers::Write { position, reth, immediate: Some(view.value()), recv_sn }, rest)
}

#[inline]
fn read_request(start: &Start<'_>) -> Result<Decoded, WireError> {
    let (view, rest) = RethView::split(start.rest)?;
    let (read_sn, rest) = wqe_sn(start.format, rest)?;
    let (fasr, rest) = fasr_read_fields(start.format, rest)?;
    start.finish(Headers::ReadRequest { reth: view.to_repr(), read_sn, fasr }, rest)
}

#[inline]
fn read_response(start: &Start<'_>, position: Position) -> Result<Decoded, WireError> {
    if position == Position::Middle {
        let (sink, rest) = sink(start.format, start.rest)?;
        return start.finish(Headers::ReadResponse { position, aeth: None, sink }, rest);
    }
    let (view, rest) = AethView::split(start.rest)?;
    let (sink, rest) = sink(start.format, rest)?;
    start.finish(Headers::ReadResponse { position, aeth: Some(view.to_repr()?), sink }, rest)
}

fn atomic_write(start: &Start<'_>) -> Result<Decoded, WireError> {
    let (view, rest) = RethView::split(start.rest)?;
    let (value, rest) = split::<8>(rest)?;
    let Reth { va, rkey, dma_len } = view.to_repr();
    if dma_len as usize != value.len() {
        return Err(WireError::PayloadLength);
    }
    placement_request(start, va, rkey, PlacementOp::AtomicWrite { value: *value }, rest)
}

fn flush(start: &Start<'_>) -> Result<Decoded, WireError> {
    let (feth, rest) = split::<{ placement::FETH_LEN }>(start.rest)?;
    let (view, rest) = RethView::split(rest)?;
    let Reth { va, rkey, dma_len: len } = view.to_repr();
    let (placement, selectivity) = placement::read_feth(*feth);
    placement_request(start, va, rkey, PlacementOp::Flush { len, placement, selectivity }, rest)
}

fn placement_request(
    start: &Start<'_>,
    va: u64,
    rkey: u32,
    op: PlacementOp,
    rest: &[u8],
) -> Result<Decoded, WireError> {
    let (read_sn, rest) = wqe_sn(start.format, rest)?;
    let (expected_psn, rest) = expected_psn(start.format, rest)?;
    start.finish(Headers::PlacementRequest { va, rkey, op, read_sn, expected_psn }, rest)
}

#[inline]
fn expected_psn(format: Format, rest: &[u8]) -> Read<'_, PackedPsn> {
    if format != Format::Fasr {
        return Ok((PackedPsn::default(), rest));
    }
    let (view, rest) = ExpectedPsnView::split(rest)?;
    Ok((view.psn().into(), rest))
}

#[inline]
fn atomic_request<'a>(start: &Start<'a>, op: fn(AtomicEthView<'a>) -> AtomicOp) -> Result<Decoded, WireError> {
    let (view, rest) = AtomicEthView::split(start.rest)?;
    let (read_sn, rest) = wqe_sn(start.format, rest)?;
    let (expected_psn, rest) = expected_psn(start.format, rest)?;
    start.finish(Headers::AtomicRequest { va: view.va(), rkey: view.rkey(), op: op(view), read_sn, expected_psn }, rest)
}

#[inline]
fn atomic_response(start: &Start<'_>) -> Result<Decoded, WireError> {
    let (aeth, rest) = AethView::split(start.rest)?;
    let (value, rest) = AtomicAckEthView::split(rest)?;
    let (sink, rest) = sink(start.format, rest)?;
    start.finish(Headers::AtomicResponse { aeth: aeth.to_repr()?, original: value.original(), sink }, rest)
}

#[inline]
fn acknowledgement(start: &Start<'_>) -> Result<Decoded, WireError> {
    let (view, rest) = AethView::split(start.rest)?;
    let aeth = view.to_repr()?;
    if start.format == Format::Fasr {
        return fasr_acknowledgement(start, aeth, rest);
    }
    let (sack, rest) = if start.format == Format::Irn {
        let (view, rest) = SackView::split(rest)?;
        if let Some(trimmed) = view.trimmed()
            && aeth.syndrome == Syndrome::Nak(NakCode::PsnSequenceError)
        {
            let of_response = start.opcode == Opcode::ReadAck;
            return start.finish(Headers::TrimNack { aeth, trimmed, of_response }, rest);
        }
        (view.sack(), rest)
    } else {
        (None, rest)
    };
    match start.opcode {
        Opcode::ReadAck => start.finish(Headers::ReadAck { aeth, sack }, rest),
        _ => start.finish(Headers::Ack { aeth, sack }, rest),
    }
}

#[cold]
fn pull(start: &Start<'_>) -> Result<Decoded, WireError> {
    let (view, rest) = PullView::split(start.rest)?;
    start.finish(Headers::Pull { granted: view.granted() }, rest)
}

fn fasr_acknowledgement(start: &Start<'_>, aeth: Aeth, rest: &[u8]) -> Result<Decoded, WireError> {
    let (view, rest) = LossReportView::split(rest)?;
    match view.to_repr(aeth.syndrome)? {
        Some(report) => start.finish(Headers::LossAck { aeth, report }, rest),
        None => start.finish(Headers::Ack { aeth, sack: None }, rest),
    }
}

#[inline]
fn wqe_sn(format: Format, rest: &[u8]) -> Read<'_, Option<WqeSn>> {
    if !format.allows_independent_placement() {
        return Ok((None, rest));
    }
    let (view, rest) = WqeSnView::split(rest)?;
    Ok((Some(view.wqe_sn()), rest))
}

#[inline]
fn fasr_read_fields(format: Format, rest: &[u8]) -> Read<'_, Option<FasrReadFields>> {
    if format != Format::Fasr {
        return Ok((None, rest));
    }
    let (view, rest) = FasrReadFieldsView::split(rest)?;
    Ok((Some(view.to_repr()), rest))
}

#[inline]
fn sink(format: Format, rest: &[u8]) -> Read<'_, Option<Sink>> {
    if format != Format::Fasr {
        return Ok((None, rest));
    }
    let (view, rest) = AddressView::split(rest)?;
    let address = view.to_repr();
    Ok((Some(Sink { read_sn: WqeSn::new(address.rkey), offset: address.va }), rest))
}
