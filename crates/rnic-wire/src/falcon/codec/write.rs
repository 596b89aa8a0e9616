//! Encoding of messages, and the rules about which fields are allowed.

use super::writer::Writer;
use super::{nvme, rdma};
use crate::falcon::header::{base, bitmaps, request_length, resync};
use crate::falcon::{Body, EncodeError, HEADERS_MAX, Packet, Ulp};

/// Writes all headers; returns their length in bytes.
#[inline]
pub(super) fn message(packet: &Packet, out: &mut [u8; HEADERS_MAX]) -> Result<usize, EncodeError> {
    let packet_type = packet.body.packet_type();
    let mut writer = Writer { packet_type, out, len: 0 };
    writer.start(packet)?;
    match &packet.body {
        Body::PullRequest { psn, rsn, length, ulp } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            request_length::emit::<{ request_length::PULL_LEN }>(*length, writer.next());
            upper(&mut writer, ulp, packet)?;
        }
        Body::PullData { psn, rsn, ulp } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            upper(&mut writer, ulp, packet)?;
        }
        Body::PushData { psn, rsn, length, ulp } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            request_length::emit::<{ request_length::PUSH_LEN }>(*length, writer.next());
            upper(&mut writer, ulp, packet)?;
            let payload = ulp.request_len(packet.payload_len);
            if u32::from(*length) != payload {
                return Err(EncodeError::RequestLength { length: *length, payload });
            }
        }
        Body::Resync { psn, rsn, code, of, vendor } => {
            base::emit_numbers(*psn, *rsn, writer.next());
            if of.window().is_none() {
                return Err(writer.unexpected("a Resync for a packet type without a sequence number"));
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

/// Writes the upper layer's headers.
#[inline]
fn upper(writer: &mut Writer<'_>, ulp: &Ulp, packet: &Packet) -> Result<(), EncodeError> {
    if ulp.protocol() != packet.protocol {
        return Err(writer.missing("headers of its own upper layer"));
    }
    if !ulp.may_be(writer.packet_type) {
        return Err(writer.unexpected("this operation of the upper layer"));
    }
    match ulp {
        Ulp::None => Err(writer.missing("an upper layer's headers")),
        Ulp::Rdma(header) => rdma::write(writer, header, ulp.pad_len(packet.payload_len) as u8),
        Ulp::Nvme(header) => nvme::write(writer, header),
    }
}
