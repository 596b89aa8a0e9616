//! Encoding of extended headers: selects the opcode for the headers of a packet, and checks which fields are allowed.

use crate::error::EncodeError;
use crate::header::{atomic_ack_eth, atomic_eth, bth, cnp, deth, fasr, ieth, immdt, irn, placement, xrceth};
use crate::length::HEADERS_MAX;
use crate::opcode::Opcode;
use crate::packet::{
    Aeth, AtomicOp, FasrReadFields, Format, Headers, LossReportFields, NakCode, PackedPsn, Packet, PlacementOp,
    Position, Reth, SendPlacement, SendTail, Sink, Syndrome, WqeSn,
};
use rnic_base::{Psn, Serial};

/// Writes the extended headers after the space for the base header; returns the opcode and the length of both.
#[inline]
pub(super) fn extended(
    format: Format,
    headers: &Headers,
    out: &mut [u8; HEADERS_MAX],
) -> Result<(Opcode, usize), EncodeError> {
    let mut writer = Writer { format, out, len: bth::LEN };
    if matches!(format, Format::UnreliableConnection | Format::UnreliableDatagram) {
        writer.check_service(headers)?;
    }
    if let Some(srqn) = headers.srqn() {
        xrceth::emit(srqn, writer.next());
    }
    let opcode = match headers.unshared() {
        Headers::Send { position, tail, placement } => writer.send(position, tail, placement),
        Headers::Write { position, reth, immediate, recv_sn } => writer.write(position, reth, immediate, recv_sn),
        Headers::ReadRequest { reth, read_sn, fasr } => {
            reth.emit(writer.next());
            writer.read_sn(read_sn)?;
            writer.fasr(fasr)?;
            Ok(Opcode::ReadRequest)
        }
        Headers::ReadResponse { position, aeth, sink } => writer.read_response(position, aeth, sink),
        Headers::AtomicRequest { va, rkey, op, read_sn, expected_psn } => {
            atomic_eth::emit(va, rkey, &op, writer.next());
            writer.read_sn(read_sn)?;
            writer.expected_psn(expected_psn)?;
            Ok(match op {
                AtomicOp::CompareSwap { .. } => Opcode::CompareSwap,
                AtomicOp::FetchAdd { .. } => Opcode::FetchAdd,
            })
        }
        Headers::PlacementRequest { va, rkey, op, read_sn, expected_psn } => {
            writer.placement(va, rkey, &op);
            writer.read_sn(read_sn)?;
            writer.expected_psn(expected_psn)?;
            Ok(match op {
                PlacementOp::AtomicWrite { .. } => Opcode::AtomicWrite,
                PlacementOp::Flush { .. } => Opcode::Flush,
            })
        }
        Headers::AtomicResponse { aeth, original, sink } => {
            aeth.emit(writer.next())?;
            atomic_ack_eth::emit(original, writer.next());
            writer.sink(sink)?;
            Ok(Opcode::AtomicAcknowledge)
        }
        Headers::Ack { aeth, sack } => writer.acknowledgement(Opcode::Acknowledge, aeth, sack),
        Headers::TrimNack { aeth, trimmed, of_response } => writer.trim_nack(aeth, trimmed, of_response),
        Headers::Pull { granted } => writer.pull(granted),
        Headers::Datagram { .. } if format != Format::UnreliableDatagram => {
            Err(EncodeError::Unexpected { format, field: "a DETH" })
        }
        Headers::Datagram { queue_key, source_qpn, immediate } => {
            deth::emit(queue_key, source_qpn, writer.next());
            if let Some(value) = immediate {
                immdt::emit(value, writer.next());
            }
            Ok(if immediate.is_some() { Opcode::SendOnlyImmediate } else { Opcode::SendOnly })
        }
        Headers::ReadAck { aeth, sack } => writer.read_ack(aeth, sack),
        Headers::LossAck { aeth, report } => writer.loss_ack(aeth, &report),
        Headers::Cnp => {
            cnp::emit(writer.next());
            Ok(Opcode::Cnp)
        }
        Headers::SharedSend { .. } | Headers::SharedWrite { .. } => unreachable!("`unshared` removed this variant"),
    }?;
    Ok((opcode, writer.len))
}

/// Writes the base transport header into the space before the extended headers.
#[inline]
pub(super) fn base(format: Format, opcode: Opcode, packet: &Packet, out: &mut [u8; HEADERS_MAX]) {
    let header = bth::Bth {
        opcode: opcode.byte(format) | if packet.headers.srqn().is_some() { xrceth::SERVICE } else { 0 },
        // A connection without path migration is permanently in state "migrated"; hardware sets the bit too. A CNP
        // belongs to no connection.
        migrated: !matches!(opcode, Opcode::Cnp) && format != Format::UnreliableDatagram,
        pad: packet.pad_len() as u8,
        version: match format {
            Format::Irn => irn::VERSION_IRN,
            Format::Fasr => fasr::VERSION,
            Format::RoceV2 | Format::UnreliableConnection | Format::UnreliableDatagram => irn::VERSION_ROCE,
        },
        dest_qpn: packet.dest_qpn,
        psn: packet.psn,
        flags: packet.flags,
    };
    header.emit(out.first_chunk_mut().expect("HEADERS_MAX holds a BTH"));
}

/// Writes headers one after another from the start of a buffer that is large enough for any packet's headers.
struct Writer<'a> {
    format: Format,
    out: &'a mut [u8; HEADERS_MAX],
    len: usize,
}

impl Writer<'_> {
    /// Returns space for the next header of `N` bytes.
    #[inline]
    fn next<const N: usize>(&mut self) -> &mut [u8; N] {
        let start = self.len;
        self.len += N;
        self.out[start..].first_chunk_mut().expect("HEADERS_MAX holds every packet's headers")
    }

    /// Returns an error when the presence of a field does not match the format.
    #[inline]
    fn check(&self, present: bool, wanted: bool, field: &'static str) -> Result<(), EncodeError> {
        let format = self.format;
        match (present, wanted) {
            (true, false) => Err(EncodeError::Unexpected { format, field }),
            (false, true) => Err(EncodeError::Missing { format, field }),
            _ => Ok(()),
        }
    }

    /// Returns an error when the headers need a feature that an unreliable service does not have.
    #[cold]
    fn check_service(&self, headers: &Headers) -> Result<(), EncodeError> {
        let field = match (self.format, headers) {
            (Format::UnreliableDatagram, Headers::Datagram { .. }) => return Ok(()),
            (Format::UnreliableDatagram, _) => "an operation other than a datagram",
            (_, Headers::Send { tail: SendTail::Invalidate(_), .. }) => "a key to invalidate",
            (_, Headers::Send { .. } | Headers::Write { .. }) => return Ok(()),
            (_, Headers::Datagram { .. }) => "a DETH",
            _ => "an operation other than a Send or a Write",
        };
        Err(EncodeError::Unexpected { format: self.format, field })
    }

    /// Writes the headers of an operation of annex A19 (memory placement extensions).
    fn placement(&mut self, va: u64, rkey: u32, op: &PlacementOp) {
        match *op {
            PlacementOp::AtomicWrite { value } => {
                Reth { va, rkey, dma_len: value.len() as u32 }.emit(self.next());
                *self.next() = value;
            }
            PlacementOp::Flush { len, placement: level, selectivity } => {
                *self.next() = placement::feth(level, selectivity);
                Reth { va, rkey, dma_len: len }.emit(self.next());
            }
        }
    }

    #[inline]
    fn send(
        &mut self,
        position: Position,
        tail: SendTail,
        placement: Option<SendPlacement>,
    ) -> Result<Opcode, EncodeError> {
        self.check(placement.is_some(), self.format.allows_independent_placement(), "a Send placement")?;
        match tail {
            SendTail::Plain => {}
            SendTail::Immediate(value) => immdt::emit(value, self.next()),
            SendTail::Invalidate(rkey) => ieth::emit(rkey, self.next()),
        }
        if let Some(placement) = placement {
            placement.emit(self.next());
        }
        match (position, tail) {
            (Position::First, SendTail::Plain) => Ok(Opcode::SendFirst),
            (Position::Middle, SendTail::Plain) => Ok(Opcode::SendMiddle),
            (Position::Last, SendTail::Plain) => Ok(Opcode::SendLast),
            (Position::Last, SendTail::Immediate(_)) => Ok(Opcode::SendLastImmediate),
            (Position::Last, SendTail::Invalidate(_)) => Ok(Opcode::SendLastInvalidate),
            (Position::Only, SendTail::Plain) => Ok(Opcode::SendOnly),
            (Position::Only, SendTail::Immediate(_)) => Ok(Opcode::SendOnlyImmediate),
            (Position::Only, SendTail::Invalidate(_)) => Ok(Opcode::SendOnlyInvalidate),
            (Position::First | Position::Middle, SendTail::Immediate(_)) => {
                Err(EncodeError::Unexpected { format: self.format, field: IMMEDIATE_FIELD })
            }
            (Position::First | Position::Middle, SendTail::Invalidate(_)) => {
                Err(EncodeError::Unexpected { format: self.format, field: "a key to invalidate" })
            }
        }
    }

    #[inline]
    fn write(
        &mut self,
        position: Position,
        reth: Option<Reth>,
        immediate: Option<u32>,
        recv_sn: Option<WqeSn>,
    ) -> Result<Opcode, EncodeError> {
        let has_placement = self.format.allows_independent_placement();
        self.check(reth.is_some(), has_placement || position.starts(), "a RETH")?;
        self.check(recv_sn.is_some(), has_placement && immediate.is_some(), "a receive WQE sequence number")?;
        match reth {
            Some(reth) if self.format == Format::Fasr && fasr::is_short(position, immediate.is_some()) => {
                self.check(reth.dma_len > 0, false, "a length")?;
                fasr::emit_address(&reth, self.next());
            }
            Some(reth) => reth.emit(self.next()),
            None => {}
        }
        if let Some(value) = immediate {
            immdt::emit(value, self.next());
        }
        if let Some(recv_sn) = recv_sn {
            irn::emit_wqe_sn(recv_sn, self.next());
        }
        match (position, immediate) {
            (Position::First, None) => Ok(Opcode::WriteFirst),
            (Position::Middle, None) => Ok(Opcode::WriteMiddle),
            (Position::Last, None) => Ok(Opcode::WriteLast),
            (Position::Last, Some(_)) => Ok(Opcode::WriteLastImmediate),
            (Position::Only, None) => Ok(Opcode::WriteOnly),
            (Position::Only, Some(_)) => Ok(Opcode::WriteOnlyImmediate),
            (Position::First | Position::Middle, Some(_)) => {
                Err(EncodeError::Unexpected { format: self.format, field: IMMEDIATE_FIELD })
            }
        }
    }

    #[inline]
    fn read_response(
        &mut self,
        position: Position,
        aeth: Option<Aeth>,
        sink: Option<Sink>,
    ) -> Result<Opcode, EncodeError> {
        self.check(aeth.is_some(), position != Position::Middle, "an AETH")?;
        if let Some(aeth) = aeth {
            aeth.emit(self.next())?;
        }
        self.sink(sink)?;
        Ok(match position {
            Position::First => Opcode::ReadResponseFirst,
            Position::Middle => Opcode::ReadResponseMiddle,
            Position::Last => Opcode::ReadResponseLast,
            Position::Only => Opcode::ReadResponseOnly,
        })
    }

    #[inline]
    fn acknowledgement(&mut self, opcode: Opcode, aeth: Aeth, sack: Option<Psn>) -> Result<Opcode, EncodeError> {
        aeth.emit(self.next())?;
        if self.format == Format::Irn {
            irn::emit_sack(sack, self.next());
            return Ok(opcode);
        }
        // A selective acknowledgement that selects no packet is encoded without the field.
        self.check(sack.is_some(), false, "a selective acknowledgement")?;
        if self.format == Format::Fasr {
            fasr::emit_loss_report(None, self.next());
        }
        Ok(opcode)
    }

    #[inline]
    fn read_ack(&mut self, aeth: Aeth, sack: Option<Psn>) -> Result<Opcode, EncodeError> {
        self.check(true, self.format == Format::Irn, "a read acknowledgement")?;
        self.acknowledgement(Opcode::ReadAck, aeth, sack)
    }

    #[cold]
    fn trim_nack(&mut self, aeth: Aeth, trimmed: Psn, of_response: bool) -> Result<Opcode, EncodeError> {
        self.check(true, self.format == Format::Irn, "the number of a trimmed packet")?;
        let is_nak = aeth.syndrome == Syndrome::Nak(NakCode::PsnSequenceError);
        self.check(is_nak, true, "a NAK of the trimmed packet")?;
        aeth.emit(self.next())?;
        irn::emit_trimmed(trimmed, self.next());
        Ok(if of_response { Opcode::ReadAck } else { Opcode::Acknowledge })
    }

    #[cold]
    fn pull(&mut self, granted: Serial<24>) -> Result<Opcode, EncodeError> {
        self.check(true, self.format == Format::Irn, "a pull")?;
        irn::emit_pull(granted, self.next());
        Ok(Opcode::Pull)
    }

    #[cold]
    fn loss_ack(&mut self, aeth: Aeth, report: &LossReportFields) -> Result<Opcode, EncodeError> {
        self.check(true, self.format == Format::Fasr, "a loss report")?;
        self.check(fasr::fits(aeth.syndrome, report), true, "a syndrome and a count that its loss report allows")?;
        aeth.emit(self.next())?;
        fasr::emit_loss_report(Some(report), self.next());
        Ok(Opcode::Acknowledge)
    }

    #[inline]
    fn read_sn(&mut self, read_sn: Option<WqeSn>) -> Result<(), EncodeError> {
        self.check(read_sn.is_some(), self.format.allows_independent_placement(), "a Read WQE sequence number")?;
        if let Some(read_sn) = read_sn {
            irn::emit_wqe_sn(read_sn, self.next());
        }
        Ok(())
    }

    #[inline]
    fn fasr(&mut self, fasr: Option<FasrReadFields>) -> Result<(), EncodeError> {
        self.check(fasr.is_some(), self.format == Format::Fasr, "a request time")?;
        if let Some(fasr) = fasr {
            fasr::emit_read_fields(&fasr, self.next());
        }
        Ok(())
    }

    #[inline]
    fn expected_psn(&mut self, expected_psn: PackedPsn) -> Result<(), EncodeError> {
        if self.format == Format::Fasr {
            fasr::emit_expected_psn(expected_psn.into(), self.next());
            return Ok(());
        }
        self.check(expected_psn != PackedPsn::default(), false, "the expected sequence number")
    }

    #[inline]
    fn sink(&mut self, sink: Option<Sink>) -> Result<(), EncodeError> {
        self.check(sink.is_some(), self.format == Format::Fasr, "a response address")?;
        if let Some(Sink { read_sn, offset }) = sink {
            fasr::emit_address(&Reth { va: offset, rkey: read_sn.value(), dma_len: 0 }, self.next());
        }
        Ok(())
    }
}

const IMMEDIATE_FIELD: &str = "immediate data";
