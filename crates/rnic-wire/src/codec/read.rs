//! Extended headers from bytes: one row for each opcode.

use crate::error::WireError;
use crate::header::aeth::AethView;
use crate::header::atomic_ack_eth::AtomicAckEthView;
use crate::header::atomic_eth::AtomicEthView;
use crate::header::cnp;
use crate::header::ieth::IethView;
use crate::header::immdt::ImmDtView;
use crate::header::irn::{PlacementView, SackView, WqeSnView};
use crate::header::reth::RethView;
use crate::opcode::Opcode;
use crate::packet::{AtomicOp, Format, Headers, Position, SendTail, WqeSn};

/// What was read, and the bytes that follow it.
type Read<'a, T> = Result<(T, &'a [u8]), WireError>;

/// Which header the end of a Send brings.
#[derive(Clone, Copy)]
enum Tail {
    Plain,
    Immediate,
    Invalidate,
}

/// Reads the extended headers that `opcode` has in `format`.
#[inline]
pub(super) fn extended(format: Format, opcode: Opcode, rest: &[u8]) -> Read<'_, Headers> {
    use Position::{First, Last, Middle, Only};
    match opcode {
        Opcode::SendFirst => send(format, First, Tail::Plain, rest),
        Opcode::SendMiddle => send(format, Middle, Tail::Plain, rest),
        Opcode::SendLast => send(format, Last, Tail::Plain, rest),
        Opcode::SendLastImmediate => send(format, Last, Tail::Immediate, rest),
        Opcode::SendLastInvalidate => send(format, Last, Tail::Invalidate, rest),
        Opcode::SendOnly => send(format, Only, Tail::Plain, rest),
        Opcode::SendOnlyImmediate => send(format, Only, Tail::Immediate, rest),
        Opcode::SendOnlyInvalidate => send(format, Only, Tail::Invalidate, rest),
        Opcode::WriteFirst => write(format, First, false, rest),
        Opcode::WriteMiddle => write(format, Middle, false, rest),
        Opcode::WriteLast => write(format, Last, false, rest),
        Opcode::WriteLastImmediate => write(format, Last, true, rest),
        Opcode::WriteOnly => write(format, Only, false, rest),
        Opcode::WriteOnlyImmediate => write(format, Only, true, rest),
        Opcode::ReadRequest => read_request(format, rest),
        Opcode::ReadResponseFirst => read_response(First, rest),
        Opcode::ReadResponseMiddle => read_response(Middle, rest),
        Opcode::ReadResponseLast => read_response(Last, rest),
        Opcode::ReadResponseOnly => read_response(Only, rest),
        Opcode::CompareSwap => atomic_request(format, AtomicEthView::compare_swap, rest),
        Opcode::FetchAdd => atomic_request(format, AtomicEthView::fetch_add, rest),
        Opcode::AtomicAcknowledge => atomic_response(rest),
        Opcode::Acknowledge | Opcode::ReadAck => acknowledgement(format, opcode, rest),
        Opcode::Cnp => Ok((Headers::Cnp, cnp::split_reserved(rest)?)),
    }
}

#[inline]
fn send(format: Format, position: Position, tail: Tail, rest: &[u8]) -> Read<'_, Headers> {
    let (tail, rest) = match tail {
        Tail::Plain => (SendTail::Plain, rest),
        Tail::Immediate => {
            let (view, rest) = ImmDtView::split(rest)?;
            (SendTail::Immediate(view.value()), rest)
        }
        Tail::Invalidate => {
            let (view, rest) = IethView::split(rest)?;
            (SendTail::Invalidate(view.rkey()), rest)
        }
    };
    let (placement, rest) = match format {
        Format::RoceV2 => (None, rest),
        Format::Irn => {
            let (view, rest) = PlacementView::split(rest)?;
            (Some(view.to_repr()), rest)
        }
    };
    Ok((Headers::Send { position, tail, placement }, rest))
}

#[inline]
fn write(format: Format, position: Position, has_immediate: bool, rest: &[u8]) -> Read<'_, Headers> {
    let (reth, rest) = if format == Format::Irn || position.starts() {
        let (view, rest) = RethView::split(rest)?;
        (Some(view.to_repr()), rest)
    } else {
        (None, rest)
    };
    if !has_immediate {
        return Ok((Headers::Write { position, reth, immediate: None, recv_sn: None }, rest));
    }
    let (view, rest) = ImmDtView::split(rest)?;
    let (recv_sn, rest) = wqe_sn(format, rest)?;
    Ok((Headers::Write { position, reth, immediate: Some(view.value()), recv_sn }, rest))
}

#[inline]
fn read_request(format: Format, rest: &[u8]) -> Read<'_, Headers> {
    let (view, rest) = RethView::split(rest)?;
    let (read_sn, rest) = wqe_sn(format, rest)?;
    Ok((Headers::ReadRequest { reth: view.to_repr(), read_sn }, rest))
}

#[inline]
fn read_response(position: Position, rest: &[u8]) -> Read<'_, Headers> {
    if position == Position::Middle {
        return Ok((Headers::ReadResponse { position, aeth: None }, rest));
    }
    let (view, rest) = AethView::split(rest)?;
    Ok((Headers::ReadResponse { position, aeth: Some(view.to_repr()?) }, rest))
}

#[inline]
fn atomic_request<'a>(
    format: Format,
    operation: fn(AtomicEthView<'a>) -> AtomicOp,
    rest: &'a [u8],
) -> Read<'a, Headers> {
    let (view, rest) = AtomicEthView::split(rest)?;
    let (read_sn, rest) = wqe_sn(format, rest)?;
    Ok((Headers::AtomicRequest { va: view.va(), rkey: view.rkey(), op: operation(view), read_sn }, rest))
}

#[inline]
fn atomic_response(rest: &[u8]) -> Read<'_, Headers> {
    let (aeth, rest) = AethView::split(rest)?;
    let (value, rest) = AtomicAckEthView::split(rest)?;
    Ok((Headers::AtomicResponse { aeth: aeth.to_repr()?, original: value.original() }, rest))
}

#[inline]
fn acknowledgement(format: Format, opcode: Opcode, rest: &[u8]) -> Read<'_, Headers> {
    let (view, rest) = AethView::split(rest)?;
    let aeth = view.to_repr()?;
    let (sack, rest) = match format {
        Format::RoceV2 => (None, rest),
        Format::Irn => {
            let (view, rest) = SackView::split(rest)?;
            (view.sack(), rest)
        }
    };
    match opcode {
        Opcode::ReadAck => Ok((Headers::ReadAck { aeth, sack }, rest)),
        _ => Ok((Headers::Ack { aeth, sack }, rest)),
    }
}

#[inline]
fn wqe_sn(format: Format, rest: &[u8]) -> Read<'_, Option<WqeSn>> {
    match format {
        Format::RoceV2 => Ok((None, rest)),
        Format::Irn => {
            let (view, rest) = WqeSnView::split(rest)?;
            Ok((Some(view.wqe_sn()), rest))
        }
    }
}
