//! Messages to bytes, and every rule about which field may stand where.

use super::{nvme, rdma};
use crate::falcon::header::acknowledgement::{self, Measured};
use crate::falcon::header::{base, bitmaps, refusal, request_length, resync};
use crate::falcon::{Acknowledgement, Body, EncodeError, HEADERS_MAX, Nack, Packet, PacketType, Ulp, UlpProtocol};

/// Writes all headers; gives their length.
#[inline]
pub(super) fn message(packet: &Packet, out: &mut [u8; HEADERS_MAX]) -> Result<usize, EncodeError> {
    let packet_type = packet.body.packet_type();
    let mut writer = Writer { packet_type, out, len: 0 };
    writer.start(packet)?;
    match &packet.body {
        Body::PullRequest { psn, rsn, length, ulp } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            request_length::emit::<{ request_length::PULL_LEN }>(*length, writer.next());
            writer.upper(ulp, packet)?;
        }
        Body::PullData { psn, rsn, ulp } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            writer.upper(ulp, packet)?;
        }
        Body::PushData { psn, rsn, length, ulp } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            request_length::emit::<{ request_length::PUSH_LEN }>(*length, writer.next());
            writer.upper(ulp, packet)?;
            let payload = ulp.request_len(packet.payload_len);
            if u32::from(*length) != payload {
                return Err(EncodeError::RequestLength { length: *length, payload });
            }
        }
        Body::Resync { psn, rsn, code, of, vendor } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            if of.window().is_none() {
                return Err(writer.unexpected("the type of a packet without a sequence number"));
            }
            resync::emit(*code, *of, *vendor, writer.next());
        }
        Body::Ack(ack) => writer.acknowledgement(ack)?,
        Body::ExtendedAck(ack, bits) => {
            writer.acknowledgement(ack)?;
            bitmaps::emit(bits, writer.next());
        }
        Body::Nack(nack) => writer.nack(nack)?,
    }
    if !packet.allows_payload(packet.payload_len) {
        return Err(EncodeError::PayloadLength { bytes: packet.payload_len });
    }
    Ok(writer.len)
}

/// Refuses a value that does not fit its bits.
#[inline]
pub(super) fn check_range(field: &'static str, value: u32, max: u32) -> Result<(), EncodeError> {
    if value > max { Err(EncodeError::Range { field, value, max }) } else { Ok(()) }
}

/// Appends headers to the front part of a buffer that is large enough for any packet.
pub(super) struct Writer<'a> {
    packet_type: PacketType,
    out: &'a mut [u8; HEADERS_MAX],
    len: usize,
}

impl Writer<'_> {
    /// Room for a header of `N` bytes.
    #[inline]
    pub(super) fn next<const N: usize>(&mut self) -> &mut [u8; N] {
        let start = self.len;
        self.len += N;
        self.out[start..].first_chunk_mut().expect("HEADERS_MAX holds every packet's headers")
    }

    /// Refuses a field that has no place.
    #[cold]
    pub(super) fn unexpected(&self, field: &'static str) -> EncodeError {
        EncodeError::Unexpected { packet_type: self.packet_type, field }
    }

    /// Refuses the lack of a field.
    #[cold]
    fn missing(&self, field: &'static str) -> EncodeError {
        EncodeError::Missing { packet_type: self.packet_type, field }
    }

    /// The words that every packet begins with. An acknowledgement has nothing where others have function, upper layer
    /// and request.
    #[inline]
    fn start(&mut self, packet: &Packet) -> Result<(), EncodeError> {
        if matches!(packet.body, Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_)) {
            if packet.function != 0 {
                return Err(self.unexpected("a function"));
            }
            if packet.protocol != UlpProtocol::None {
                return Err(self.unexpected("an upper layer"));
            }
            if packet.ack_request {
                return Err(self.unexpected("a request for acknowledgement"));
            }
        } else {
            check_range("function", packet.function, base::FUNCTION_MAX)?;
            if packet.protocol == UlpProtocol::None {
                return Err(self.missing("an upper layer"));
            }
        }
        base::emit_start(packet, self.packet_type, self.next());
        Ok(())
    }

    /// The upper layer's headers.
    #[inline]
    fn upper(&mut self, ulp: &Ulp, packet: &Packet) -> Result<(), EncodeError> {
        if ulp.protocol() != packet.protocol {
            return Err(self.missing("headers of its own upper layer"));
        }
        if ulp.packet_type() != Some(self.packet_type) {
            return Err(self.unexpected("this operation of the upper layer"));
        }
        match ulp {
            Ulp::None => Err(self.missing("an upper layer's headers")),
            Ulp::Rdma(header) => rdma::write(self, header, ulp.pad_len(packet.payload_len) as u8),
            Ulp::Nvme(header) => nvme::write(self, header),
        }
    }

    #[inline]
    fn measured(&mut self, measured: Measured, last: u32) -> Result<(), EncodeError> {
        check_range("hop count", measured.hops.into(), acknowledgement::HOPS_MAX.into())?;
        check_range("buffer level", measured.rx_level.into(), acknowledgement::LEVEL_MAX.into())?;
        check_range("count of marks", measured.ecn.into(), acknowledgement::ECN_MAX.into())?;
        acknowledgement::emit(measured, last, self.next());
        Ok(())
    }

    #[inline]
    fn acknowledgement(&mut self, ack: &Acknowledgement) -> Result<(), EncodeError> {
        check_range("engine's metadata", ack.metadata, acknowledgement::METADATA_MAX)?;
        let Acknowledgement { t1, t2, hops, rx_level, ecn, .. } = *ack;
        self.measured(Measured { t1, t2, hops, rx_level, ecn }, acknowledgement::last_word(ack))
    }

    fn nack(&mut self, nack: &Nack) -> Result<(), EncodeError> {
        check_range("engine's metadata", nack.metadata, acknowledgement::NACK_METADATA_MAX)?;
        let Nack { t1, t2, hops, rx_level, ecn, metadata, psn, window, code } = *nack;
        self.measured(Measured { t1, t2, hops, rx_level, ecn }, metadata)?;
        refusal::emit(psn, window, code, self.next());
        Ok(())
    }
}
