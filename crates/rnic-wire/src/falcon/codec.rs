//! Encoding and decoding of Falcon packets.
//!
//! A *message* is the content of a PSP packet: Falcon's headers, the upper layer's, payload, padding. A *datagram* is a
//! UDP payload: PSP header, message, check value. [`encode_headers`] writes the part before the payload and [`decode`]
//! reads it; neither accesses the payload, because a driver has it in registered memory, and neither encrypts: a driver
//! that protects its packets does that with the offsets of [`psp::Layout`]. [`assemble`] and [`decode_datagram`]
//! process the complete datagram in one cleartext buffer: for captures, checkers, tests, and drivers without
//! protection.
//!
//! The layouts are in [`crate::falcon::header`], one file each.

use core::ops::Range;

use crate::falcon::header::base;
use crate::falcon::{EncodeError, HEADERS_MAX, Packet, PacketType, Timestamp, WireError, psp};

mod frame;
mod nvme;
mod rdma;
mod read;
mod write;
mod writer;

/// A decoded message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Headers of the message.
    pub packet: Packet,
    /// Byte range of the payload in the given bytes, without padding.
    pub payload: Range<usize>,
}

/// Writes the headers of `packet`, Falcon's and the upper layer's; returns their length in bytes. The timestamp is not
/// among them: it is carried in the PSP header.
///
/// # Errors
/// [`EncodeError`] when the packet has a field that its type cannot carry, or a value exceeds the width of its field.
/// The content of `out` is then undefined.
#[inline]
pub fn encode_headers(packet: &Packet, out: &mut [u8; HEADERS_MAX]) -> Result<usize, EncodeError> {
    write::message(packet, out)
}

/// Reads the headers of a message and checks that its length fits them. `timestamp` is the one from the PSP header.
///
/// # Errors
/// [`WireError`] when the message is not a valid packet. No input causes a panic.
#[inline]
pub fn decode(message: &[u8], timestamp: Timestamp) -> Result<Decoded, WireError> {
    decode_front(message, message.len(), timestamp)
}

/// Like [`decode`], for a message of `len` bytes of which only the `front` is given: all of it, or at least
/// [`HEADERS_MAX`] bytes. This lets a driver read headers when the payload must not be accessed.
///
/// # Errors
/// As [`decode`]; also when the front is longer than the message.
#[inline]
pub fn decode_front(front: &[u8], len: usize, timestamp: Timestamp) -> Result<Decoded, WireError> {
    let missing = len.checked_sub(front.len()).ok_or(WireError::Short)?;
    let (start, rest) = base::StartView::split(front)?;
    if start.version() != base::VERSION {
        return Err(WireError::Version);
    }
    let packet_type = PacketType::from_code(start.packet_type()).ok_or(WireError::PacketType)?;
    read::message(&frame::Start { message_len: len, missing, packet_type, start, timestamp }, rest)
}

/// Reads a complete cleartext datagram: the PSP header, then the message as in [`decode`]. The payload range is
/// relative to the datagram. The check value is not checked.
///
/// # Errors
/// [`WireError`] when the datagram is not a valid packet. No input causes a panic.
pub fn decode_datagram(datagram: &[u8]) -> Result<(psp::Header, Decoded), WireError> {
    let (header, layout) = psp::parse(datagram)?;
    let message = layout.message();
    let mut decoded = decode(&datagram[message.clone()], header.iv.timestamp)?;
    decoded.payload = decoded.payload.start + message.start..decoded.payload.end + message.start;
    Ok((header, decoded))
}

/// Replaces the content of `out` by the complete cleartext datagram: PSP header with the packet's timestamp, headers,
/// the gathered `payload`, padding, and a check value of zeros. Returns the offsets of its parts, for a caller that
/// encrypts it.
///
/// # Errors
/// [`EncodeError`] as [`encode_headers`], or when the parts of `payload` do not add up to the packet's payload length.
pub fn assemble(
    header: &psp::Header,
    packet: &Packet,
    payload: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<psp::Layout, EncodeError> {
    let mut headers = [0; HEADERS_MAX];
    let headers_len = encode_headers(packet, &mut headers)?;
    let bytes = payload.iter().map(|part| part.len()).sum::<usize>();
    if bytes != packet.payload_len as usize {
        return Err(EncodeError::PayloadLength { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
    }
    let mut around = [0; psp::LEN_MAX];
    let header = psp::Header { iv: psp::Iv { timestamp: packet.timestamp, ..header.iv }, ..*header };
    let encapsulation_len = header.emit(&mut around);
    out.clear();
    out.extend_from_slice(&around[..encapsulation_len]);
    out.extend_from_slice(&headers[..headers_len]);
    payload.iter().for_each(|part| out.extend_from_slice(part));
    out.resize(out.len() + packet.pad_len() as usize + psp::ICV_LEN, 0);
    Ok(psp::Layout::new(header.cookie.is_some(), out.len()))
}
