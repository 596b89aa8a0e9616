//! RDMA's headers: the table of opcodes (OCP RDMA over Falcon Transport, Rev 0.9, section 8.1.3), which are
//! InfiniBand's.

use super::read::Upper;
use super::write::Writer;
use crate::falcon::header::rbth::{self, RbthView};
use crate::falcon::header::sink_tag;
use crate::falcon::rdma::{Header, Operation, Rmsn, WriteTail};
use crate::falcon::{EncodeError, Ulp, WireError};
use crate::header::atomic_ack_eth::{self, AtomicAckEthView};
use crate::header::atomic_eth::{self, AtomicEthView};
use crate::header::deth::{self, DethView};
use crate::header::ieth::{self, IethView};
use crate::header::immdt::{self, ImmDtView};
use crate::header::reth::RethView;
use crate::opcode::Opcode;
use crate::packet::{AtomicOp, Format, Position, SendTail};

/// What was read, and the bytes that follow it.
type Read<'a> = Result<(Operation, &'a [u8]), WireError>;

/// Reads headers and payload.
#[inline]
pub(super) fn read(bytes: &[u8]) -> Result<Upper, WireError> {
    let (base, rest) = RbthView::split(bytes)?;
    if base.version() != rbth::VERSION {
        return Err(WireError::UlpVersion);
    }
    let (operation, rest) = operation(base.opcode(), rest)?;
    let pad = usize::from(base.pad());
    if !rest.len().is_multiple_of(4) || pad > rest.len() {
        return Err(WireError::Padding);
    }
    let header = Header {
        dest_qpn: base.dest_qpn(),
        sn: base.sn(),
        solicited: base.solicited(),
        complete_in_error: base.complete_in_error(),
        operation,
    };
    Ok(Upper { ulp: Ulp::Rdma(header), rest_len: rest.len(), payload_len: rest.len() - pad })
}

/// Reads the extended headers that the opcode has.
#[inline]
fn operation(byte: u8, rest: &[u8]) -> Read<'_> {
    use Position::{First, Last, Middle, Only};
    let Some(opcode) = Opcode::from_byte(Format::RoceV2, byte) else {
        return datagram(byte, rest);
    };
    match opcode {
        Opcode::SendFirst => send(First, rest),
        Opcode::SendMiddle => send(Middle, rest),
        Opcode::SendLast => send(Last, rest),
        Opcode::SendOnly => send(Only, rest),
        Opcode::SendLastImmediate => send_immediate(Last, rest),
        Opcode::SendOnlyImmediate => send_immediate(Only, rest),
        Opcode::SendLastInvalidate => send_invalidate(Last, rest),
        Opcode::SendOnlyInvalidate => send_invalidate(Only, rest),
        Opcode::WriteFirst => write_data(First, rest),
        Opcode::WriteMiddle => write_data(Middle, rest),
        Opcode::WriteLast => write_data(Last, rest),
        Opcode::WriteOnly => write_data(Only, rest),
        Opcode::WriteLastImmediate => write_immediate(Last, rest),
        Opcode::WriteOnlyImmediate => write_immediate(Only, rest),
        Opcode::ReadRequest => read_request(rest),
        Opcode::ReadResponseFirst => read_response(First, rest),
        Opcode::ReadResponseMiddle => read_response(Middle, rest),
        Opcode::ReadResponseLast => read_response(Last, rest),
        Opcode::ReadResponseOnly => read_response(Only, rest),
        Opcode::CompareSwap | Opcode::FetchAdd => atomic_request(opcode, rest),
        Opcode::AtomicAcknowledge => atomic_response(rest),
        // Falcon's own layers do what these do.
        Opcode::Acknowledge | Opcode::ReadAck | Opcode::Cnp => Err(WireError::Opcode),
    }
}

/// Headers that RoCEv2 has too: theirs is the only error that their views know.
#[inline]
fn known<T>(read: Result<T, crate::WireError>) -> Result<T, WireError> {
    read.map_err(|_| WireError::Short)
}

#[inline]
fn placement(rest: &[u8]) -> Result<((Rmsn, u32), &[u8]), WireError> {
    let (rmsn, rest) = sink_tag::split_word(rest)?;
    let (offset, rest) = sink_tag::split_word(rest)?;
    Ok(((Rmsn::new(rmsn), offset), rest))
}

#[inline]
fn send(position: Position, rest: &[u8]) -> Read<'_> {
    let ((rmsn, offset), rest) = placement(rest)?;
    Ok((Operation::Send { position, tail: SendTail::Plain, rmsn, offset }, rest))
}

fn send_immediate(position: Position, rest: &[u8]) -> Read<'_> {
    let ((rmsn, offset), rest) = placement(rest)?;
    let (immediate, rest) = known(ImmDtView::split(rest))?;
    Ok((Operation::Send { position, tail: SendTail::Immediate(immediate.value()), rmsn, offset }, rest))
}

fn send_invalidate(position: Position, rest: &[u8]) -> Read<'_> {
    let ((rmsn, offset), rest) = placement(rest)?;
    let (key, rest) = known(IethView::split(rest))?;
    Ok((Operation::Send { position, tail: SendTail::Invalidate(key.rkey()), rmsn, offset }, rest))
}

#[inline]
fn write_data(position: Position, rest: &[u8]) -> Read<'_> {
    let (reth, rest) = known(RethView::split(rest))?;
    Ok((Operation::Write { position, reth: reth.to_repr(), tail: None }, rest))
}

fn write_immediate(position: Position, rest: &[u8]) -> Read<'_> {
    let (reth, rest) = known(RethView::split(rest))?;
    let (rmsn, rest) = sink_tag::split_word(rest)?;
    let (immediate, rest) = known(ImmDtView::split(rest))?;
    let tail = WriteTail { rmsn: Rmsn::new(rmsn), immediate: immediate.value() };
    Ok((Operation::Write { position, reth: reth.to_repr(), tail: Some(tail) }, rest))
}

#[inline]
fn read_request(rest: &[u8]) -> Read<'_> {
    let (reth, rest) = known(RethView::split(rest))?;
    let (rmsn, rest) = sink_tag::split_word(rest)?;
    let (sink, rest) = sink_tag::split_tag(rest)?;
    Ok((Operation::ReadRequest { reth: reth.to_repr(), rmsn: Rmsn::new(rmsn), sink }, rest))
}

#[inline]
fn read_response(position: Position, rest: &[u8]) -> Read<'_> {
    let (sink, rest) = sink_tag::split_tag(rest)?;
    Ok((Operation::ReadResponse { position, sink }, rest))
}

fn atomic_request(opcode: Opcode, rest: &[u8]) -> Read<'_> {
    let (view, rest) = known(AtomicEthView::split(rest))?;
    let (rmsn, rest) = sink_tag::split_word(rest)?;
    let (sink, rest) = sink_tag::split_tag(rest)?;
    let op = if opcode == Opcode::CompareSwap { view.compare_swap() } else { view.fetch_add() };
    Ok((Operation::AtomicRequest { va: view.va(), rkey: view.rkey(), op, rmsn: Rmsn::new(rmsn), sink }, rest))
}

fn atomic_response(rest: &[u8]) -> Read<'_> {
    let (value, rest) = known(AtomicAckEthView::split(rest))?;
    let (sink, rest) = sink_tag::split_tag(rest)?;
    Ok((Operation::AtomicResponse { original: value.original(), sink }, rest))
}

/// The opcodes of unreliable datagrams: one packet, with immediate and without.
fn datagram(byte: u8, rest: &[u8]) -> Read<'_> {
    let has_immediate = match Opcode::from_byte(Format::UnreliableDatagram, byte) {
        Some(Opcode::SendOnly) => false,
        Some(Opcode::SendOnlyImmediate) => true,
        _ => return Err(WireError::Opcode),
    };
    let (view, rest) = known(DethView::split(rest))?;
    let (queue_key, source_qpn) = (view.queue_key(), view.source_qpn());
    if !has_immediate {
        return Ok((Operation::Datagram { queue_key, source_qpn, immediate: None }, rest));
    }
    let (immediate, rest) = known(ImmDtView::split(rest))?;
    Ok((Operation::Datagram { queue_key, source_qpn, immediate: Some(immediate.value()) }, rest))
}

/// Writes the headers; `pad` bytes follow the payload.
#[inline]
pub(super) fn write(writer: &mut Writer<'_>, header: &Header, pad: u8) -> Result<(), EncodeError> {
    rbth::emit(header, opcode(writer, &header.operation)?, pad, writer.next());
    match &header.operation {
        Operation::Send { tail, rmsn, offset, .. } => {
            *writer.next() = rmsn.value().to_be_bytes();
            *writer.next() = offset.to_be_bytes();
            match tail {
                SendTail::Plain => {}
                SendTail::Immediate(value) => immdt::emit(*value, writer.next()),
                SendTail::Invalidate(rkey) => ieth::emit(*rkey, writer.next()),
            }
        }
        Operation::Write { reth, tail, .. } => {
            reth.emit(writer.next());
            if let Some(tail) = tail {
                *writer.next() = tail.rmsn.value().to_be_bytes();
                immdt::emit(tail.immediate, writer.next());
            }
        }
        Operation::ReadRequest { reth, rmsn, sink } => {
            reth.emit(writer.next());
            *writer.next() = rmsn.value().to_be_bytes();
            sink_tag::emit(sink, writer.next());
        }
        Operation::ReadResponse { sink, .. } => sink_tag::emit(sink, writer.next()),
        Operation::AtomicRequest { va, rkey, op, rmsn, sink } => {
            atomic_eth::emit(*va, *rkey, op, writer.next());
            *writer.next() = rmsn.value().to_be_bytes();
            sink_tag::emit(sink, writer.next());
        }
        Operation::AtomicResponse { original, sink } => {
            atomic_ack_eth::emit(*original, writer.next());
            sink_tag::emit(sink, writer.next());
        }
        Operation::Datagram { queue_key, source_qpn, immediate } => {
            deth::emit(*queue_key, *source_qpn, writer.next());
            if let Some(value) = immediate {
                immdt::emit(*value, writer.next());
            }
        }
    }
    Ok(())
}

/// The opcode on the wire.
#[inline]
fn opcode(writer: &Writer<'_>, operation: &Operation) -> Result<u8, EncodeError> {
    let opcode = match operation {
        Operation::Send { position, tail, .. } => match (position, tail) {
            (Position::First, SendTail::Plain) => Opcode::SendFirst,
            (Position::Middle, SendTail::Plain) => Opcode::SendMiddle,
            (Position::Last, SendTail::Plain) => Opcode::SendLast,
            (Position::Last, SendTail::Immediate(_)) => Opcode::SendLastImmediate,
            (Position::Last, SendTail::Invalidate(_)) => Opcode::SendLastInvalidate,
            (Position::Only, SendTail::Plain) => Opcode::SendOnly,
            (Position::Only, SendTail::Immediate(_)) => Opcode::SendOnlyImmediate,
            (Position::Only, SendTail::Invalidate(_)) => Opcode::SendOnlyInvalidate,
            (Position::First | Position::Middle, _) => {
                return Err(writer.unexpected("immediate data or a key before the message's end"));
            }
        },
        Operation::Write { position, tail, .. } => match (position, tail) {
            (Position::First, None) => Opcode::WriteFirst,
            (Position::Middle, None) => Opcode::WriteMiddle,
            (Position::Last, None) => Opcode::WriteLast,
            (Position::Last, Some(_)) => Opcode::WriteLastImmediate,
            (Position::Only, None) => Opcode::WriteOnly,
            (Position::Only, Some(_)) => Opcode::WriteOnlyImmediate,
            (Position::First | Position::Middle, Some(_)) => {
                return Err(writer.unexpected("immediate data before the message's end"));
            }
        },
        Operation::ReadRequest { .. } => Opcode::ReadRequest,
        Operation::ReadResponse { position, .. } => match position {
            Position::First => Opcode::ReadResponseFirst,
            Position::Middle => Opcode::ReadResponseMiddle,
            Position::Last => Opcode::ReadResponseLast,
            Position::Only => Opcode::ReadResponseOnly,
        },
        Operation::AtomicRequest { op: AtomicOp::CompareSwap { .. }, .. } => Opcode::CompareSwap,
        Operation::AtomicRequest { op: AtomicOp::FetchAdd { .. }, .. } => Opcode::FetchAdd,
        Operation::AtomicResponse { .. } => Opcode::AtomicAcknowledge,
        Operation::Datagram { immediate: None, .. } => {
            return Ok(Opcode::SendOnly.byte(Format::UnreliableDatagram));
        }
        Operation::Datagram { immediate: Some(_), .. } => {
            return Ok(Opcode::SendOnlyImmediate.byte(Format::UnreliableDatagram));
        }
    };
    Ok(opcode.byte(Format::RoceV2))
}
