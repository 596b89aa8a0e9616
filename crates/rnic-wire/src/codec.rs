//! Encoding and decoding of packets, in every format.
//!
//! A datagram is a UDP payload: base transport header, extended headers, payload, padding, ICRC. [`encode_headers`]
//! writes the part before the payload and [`decode`] reads it; neither accesses payload or ICRC ([`crate::icrc`]),
//! because a driver has its payload in registered memory. [`assemble`] writes the complete datagram into one buffer.
//!
//! Scope: reliable and unreliable connections, unreliable datagrams, CNPs. Datagrams for queue pairs 0 and 1 are
//! management datagrams and are handled by [`crate::gsi`].
//!
//! The layouts are in [`crate::header`], one file each; the IRN extensions and their reasons are in
//! [`crate::header::irn`], those of FaSR in [`crate::header::fasr`].

use core::ops::Range;

use crate::error::{EncodeError, WireError};
use crate::header::{bth, fasr, irn, xrceth};
use crate::icrc::IcrcPrefix;
use crate::length::ICRC_LEN;
use crate::net::Addresses;
use crate::opcode::{Opcode, service_of};
use crate::packet::{Format, Packet};

pub use crate::length::HEADERS_MAX;

mod read;
mod write;

/// A decoded datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Format indicated by its headers.
    pub format: Format,
    /// Headers of the datagram.
    pub packet: Packet,
    /// Byte range of the payload in the datagram, without padding.
    pub payload: Range<usize>,
}

/// Writes the base and extended transport headers of `packet`; returns their length in bytes.
///
/// # Errors
/// [`EncodeError`] when `format` cannot represent a field of `packet`, or `packet` lacks a field that `format`
/// requires. The content of `out` is then undefined.
#[inline]
pub fn encode_headers(format: Format, packet: &Packet, out: &mut [u8; HEADERS_MAX]) -> Result<usize, EncodeError> {
    let (opcode, len) = write::extended(format, &packet.headers, out)?;
    let (rule, bytes) = (opcode.payload(), packet.payload_len);
    if !rule.allows(bytes) && !rule.allows_trimmed(format, packet.flags, bytes) {
        return Err(EncodeError::PayloadLength { bytes: packet.payload_len });
    }
    write::base(format, opcode, packet, out);
    Ok(len)
}

/// Reads the headers of a datagram, base transport header to ICRC, and checks that its length fits them. The ICRC is
/// not checked, because that requires the addresses too: see [`crate::icrc::verify`].
///
/// # Errors
/// [`WireError`] when the datagram is not a valid packet of a supported format. No input causes a panic.
#[inline]
pub fn decode(datagram: &[u8]) -> Result<Decoded, WireError> {
    decode_front(datagram, datagram.len())
}

/// Like [`decode`], for a datagram of `len` bytes of which only the front is given: at least [`HEADERS_MAX`] bytes, or
/// all of it.
///
/// # Errors
/// As [`decode`].
///
/// # Panics
/// When the front is longer than the datagram.
#[inline]
pub fn decode_front(front: &[u8], len: usize) -> Result<Decoded, WireError> {
    assert!(front.len() <= len, "{} bytes are not the front of {len}", front.len());
    let (header, rest) = bth::BthView::split(front)?;
    let format = match header.version() {
        irn::VERSION_ROCE => service_of(header.opcode()),
        irn::VERSION_IRN => Format::Irn,
        fasr::VERSION => Format::Fasr,
        _ => return Err(WireError::Version),
    };
    if header.partition_key() != bth::DEFAULT_PARTITION_KEY {
        return Err(WireError::PartitionKey);
    }
    let is_shared = xrceth::is_shared(header.opcode());
    let byte = if is_shared { header.opcode() & !xrceth::SERVICE } else { header.opcode() };
    let opcode = Opcode::from_byte(format, byte).ok_or(WireError::Opcode)?;
    let start = read::Start { datagram_len: len, beyond: len - front.len(), format, opcode, base: header, rest };
    if is_shared { read::shared(&start) } else { read::extended(&start) }
}

/// Replaces the content of `out` by the complete datagram: headers, the gathered `payload`, padding, ICRC. For
/// captures, checkers and tests; a driver with scatter/gather I/O sends the parts without copying them.
///
/// # Errors
/// [`EncodeError`] as [`encode_headers`], or when the parts of `payload` do not add up to the packet's payload length.
pub fn assemble(
    format: Format,
    packet: &Packet,
    payload: &[&[u8]],
    addresses: &Addresses,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut headers = [0; HEADERS_MAX];
    let headers_len = encode_headers(format, packet, &mut headers)?;
    let bytes = payload.iter().map(|part| part.len()).sum::<usize>();
    if bytes != packet.payload_len as usize {
        return Err(EncodeError::PayloadLength { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
    }
    out.clear();
    out.extend_from_slice(&headers[..headers_len]);
    payload.iter().for_each(|part| out.extend_from_slice(part));
    out.resize(out.len() + packet.pad_len() as usize, 0);
    let mut icrc = IcrcPrefix::new(addresses, (out.len() + ICRC_LEN) as u32).start(&out[..headers_len]);
    icrc.update(&out[headers_len..]);
    out.extend_from_slice(&icrc.finish());
    Ok(())
}

#[cfg(test)]
#[path = "codec/tests.rs"]
mod tests;
