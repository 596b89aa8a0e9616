//! RDMA headers: the table of opcodes (OCP RDMA over Falcon Transport, Rev 0.9, section 8.1.3), which are InfiniBand's.

use super::Decoded;
use super::frame::{Frame, Tail};
use super::writer::Writer;
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

/// Reads headers and payload.
#[inline]
pub(super) fn read(frame: &Frame<'_>, bytes: &[u8]) -> Result<Decoded, WireError> {
    use Position::{First, Last, Middle, Only};
    let (base, rest) = RbthView::split(bytes)?;
    if base.version() != rbth::VERSION {
        return Err(WireError::UlpVersion);
    }
    let reader = Reader { frame, base };
    let Some(opcode) = Opcode::from_byte(Format::RoceV2, base.opcode()) else {
        return reader.datagram(rest);
    };
    match opcode {
        Opcode::SendFirst => reader.send(First, rest),
        Opcode::SendMiddle => reader.send(Middle, rest),
        Opcode::SendLast => reader.send(Last, rest),
        Opcode::SendOnly => reader.send(Only, rest),
        Opcode::SendLastImmediate => reader.send_immediate(Last, rest),
        Opcode::SendOnlyImmediate => reader.send_immediate(Only, rest),
        Opcode::SendLastInvalidate => reader.send_invalidate(Last, rest),
        Opcode::SendOnlyInvalidate => reader.send_invalidate(Only, rest),
        Opcode::WriteFirst => reader.write(First, rest),
        Opcode::WriteMiddle => reader.write(Middle, rest),
        Opcode::WriteLast => reader.write(Last, rest),
        Opcode::WriteOnly => reader.write(Only, rest),
        Opcode::WriteLastImmediate => reader.write_immediate(Last, rest),
        Opcode::WriteOnlyImmediate => reader.write_immediate(Only, rest),
        Opcode::ReadRequest => reader.read_request(rest),
        Opcode::ReadResponseFirst => reader.read_response(First, rest),
        Opcode::ReadResponseMiddle => reader.read_response(Middle, rest),
        Opcode::ReadResponseLast => reader.read_response(Last, rest),
        Opcode::ReadResponseOnly => reader.read_response(Only, rest),
        Opcode::CompareSwap => reader.atomic_request(AtomicEthView::compare_swap, rest),
        Opcode::FetchAdd => reader.atomic_request(AtomicEthView::fetch_add, rest),
        Opcode::AtomicAcknowledge => reader.atomic_response(rest),
        // Falcon's own layers provide the function of these opcodes, or RDMA over Falcon does not have it.
        Opcode::Acknowledge | Opcode::ReadAck | Opcode::Pull | Opcode::Cnp | Opcode::Flush | Opcode::AtomicWrite => {
            Err(WireError::Opcode)
        }
    }
}

/// A packet of which the base transport header has been read.
#[derive(Clone, Copy)]
struct Reader<'a> {
    frame: &'a Frame<'a>,
    base: RbthView<'a>,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    fn ulp(&self, operation: Operation) -> Ulp {
        Ulp::Rdma(Header {
            dest_qpn: self.base.dest_qpn(),
            sn: self.base.sn(),
            solicited: self.base.solicited(),
            complete_in_error: self.base.complete_in_error(),
            operation,
        })
    }

    /// Returns the sizes of payload and padding, when both together are a multiple of four bytes.
    #[inline(always)]
    fn tail(&self, rest: &[u8]) -> Result<Tail, WireError> {
        let (pad, rest_len) = (usize::from(self.base.pad()), self.frame.bytes_from(rest));
        if !rest_len.is_multiple_of(4) || pad > rest_len {
            return Err(WireError::Padding);
        }
        Ok(Tail { rest_len, payload_len: rest_len - pad })
    }

    #[inline(always)]
    fn push(&self, operation: Operation, rest: &[u8]) -> Result<Decoded, WireError> {
        self.frame.push_data(self.ulp(operation), self.tail(rest)?)
    }

    #[inline]
    fn send(&self, position: Position, rest: &[u8]) -> Result<Decoded, WireError> {
        let ((rmsn, offset), rest) = placement(rest)?;
        self.push(Operation::Send { position, tail: SendTail::Plain, rmsn, offset }, rest)
    }

    fn send_immediate(&self, position: Position, rest: &[u8]) -> Result<Decoded, WireError> {
        let ((rmsn, offset), rest) = placement(rest)?;
        let (immediate, rest) = short_on_error(ImmDtView::split(rest))?;
        self.push(Operation::Send { position, tail: SendTail::Immediate(immediate.value()), rmsn, offset }, rest)
    }

    fn send_invalidate(&self, position: Position, rest: &[u8]) -> Result<Decoded, WireError> {
        let ((rmsn, offset), rest) = placement(rest)?;
        let (key, rest) = short_on_error(IethView::split(rest))?;
        self.push(Operation::Send { position, tail: SendTail::Invalidate(key.rkey()), rmsn, offset }, rest)
    }

    #[inline]
    fn write(&self, position: Position, rest: &[u8]) -> Result<Decoded, WireError> {
        let (reth, rest) = short_on_error(RethView::split(rest))?;
        self.push(Operation::Write { position, reth: reth.to_repr(), tail: None }, rest)
    }

    fn write_immediate(&self, position: Position, rest: &[u8]) -> Result<Decoded, WireError> {
        let (reth, rest) = short_on_error(RethView::split(rest))?;
        let (rmsn, rest) = sink_tag::split_word(rest)?;
        let (immediate, rest) = short_on_error(ImmDtView::split(rest))?;
        let tail = WriteTail { rmsn: Rmsn::new(rmsn), immediate: immediate.value() };
        self.push(Operation::Write { position, reth: reth.to_repr(), tail: Some(tail) }, rest)
    }

    #[inline]
    fn read_request(&self, rest: &[u8]) -> Result<Decoded, WireError> {
        let (reth, rest) = short_on_error(RethView::split(rest))?;
        let (rmsn, rest) = sink_tag::split_word(rest)?;
        let (sink, rest) = sink_tag::split_tag(rest)?;
        let operation = Operation::ReadRequest { reth: reth.to_repr(), rmsn: Rmsn::new(rmsn), sink };
        self.frame.pull_request(self.ulp(operation), self.tail(rest)?)
    }

    #[inline]
    fn read_response(&self, position: Position, rest: &[u8]) -> Result<Decoded, WireError> {
        let (sink, rest) = sink_tag::split_tag(rest)?;
        self.frame.pull_data(self.ulp(Operation::ReadResponse { position, sink }), self.tail(rest)?)
    }

    fn atomic_request(&self, op: fn(AtomicEthView<'a>) -> AtomicOp, rest: &'a [u8]) -> Result<Decoded, WireError> {
        let (view, rest) = short_on_error(AtomicEthView::split(rest))?;
        let (rmsn, rest) = sink_tag::split_word(rest)?;
        let (sink, rest) = sink_tag::split_tag(rest)?;
        let (va, rkey, op, rmsn) = (view.va(), view.rkey(), op(view), Rmsn::new(rmsn));
        self.frame.pull_request(self.ulp(Operation::AtomicRequest { va, rkey, op, rmsn, sink }), self.tail(rest)?)
    }

    fn atomic_response(&self, rest: &[u8]) -> Result<Decoded, WireError> {
        let (value, rest) = short_on_error(AtomicAckEthView::split(rest))?;
        let (sink, rest) = sink_tag::split_tag(rest)?;
        let operation = Operation::AtomicResponse { original: value.original(), sink };
        self.frame.pull_data(self.ulp(operation), self.tail(rest)?)
    }

    /// Reads the opcodes of unreliable datagrams: one packet, with and without immediate.
    fn datagram(&self, rest: &[u8]) -> Result<Decoded, WireError> {
        let has_immediate = match Opcode::from_byte(Format::UnreliableDatagram, self.base.opcode()) {
            Some(Opcode::SendOnly) => false,
            Some(Opcode::SendOnlyImmediate) => true,
            _ => return Err(WireError::Opcode),
        };
        let (view, rest) = short_on_error(DethView::split(rest))?;
        let (queue_key, source_qpn) = (view.queue_key(), view.source_qpn());
        if !has_immediate {
            return self.push(Operation::Datagram { queue_key, source_qpn, immediate: None }, rest);
        }
        let (immediate, rest) = short_on_error(ImmDtView::split(rest))?;
        let immediate = Some(immediate.value());
        self.push(Operation::Datagram { queue_key, source_qpn, immediate }, rest)
    }
}

/// Converts the error of a header that RoCEv2 uses too: its view fails only when the header is too short.
#[inline]
fn short_on_error<T>(read: Result<T, crate::WireError>) -> Result<T, WireError> {
    read.map_err(|_| WireError::Short)
}

#[inline]
fn placement(rest: &[u8]) -> Result<((Rmsn, u32), &[u8]), WireError> {
    let (rmsn, rest) = sink_tag::split_word(rest)?;
    let (offset, rest) = sink_tag::split_word(rest)?;
    Ok(((Rmsn::new(rmsn), offset), rest))
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

/// Returns the opcode on the wire.
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
