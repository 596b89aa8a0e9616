//! The invariant CRC, which protects a packet from its sender to its receiver.
//!
//! Source: InfiniBand Architecture volume 1, section 7.8.1, and annex A17 for UDP; byte order as in every RoCEv2
//! adapter and Linux. The CRC is that of Ethernet (reflected 0x04c11db7, all ones before and after), sent low byte
//! first, over all fields that the network must not change; fields that it may change are replaced by ones:
//!
//! ```text
//!  8 bytes     ff ff ff ff ff ff ff ff      instead of InfiniBand's local route header
//!  IPv4        type of service, time to live, checksum as ones; identification, flags, lengths, addresses as sent
//!  IPv6        traffic class, flow label, hop limit as ones; the rest as sent
//!  UDP         checksum as ones
//!  BTH         byte 4 (F, B, resv8a) as ones
//!  ...         the rest: extended headers, payload, padding
//! ```
//!
//! Everything before the BTH depends on addresses and length only: [`IcrcPrefix`] is the CRC up to that point, four
//! bytes stored for each peer and length.
//!
//! The CRC is computed by the `crc32fast` crate. `benches/icrc.rs` compares it with `crc-fast`: `crc32fast` is two to
//! four times faster up to 64 bytes, 1.2 to 1.4 times at 1 KiB, and equal at 4 KiB. Headers are always short.

mod identification;

use crc32fast::Hasher;

pub use identification::IdentificationFinder;

use crate::header::bth;
use crate::length::ICRC_LEN;
use crate::net::{
    self, Addresses, IPV4_CHECKSUM_AT, IPV4_LEN, IPV6_LEN, IpFields, PROTOCOL_UDP, UDP_CHECKSUM_AT, UDP_LEN,
};

/// The CRC of a datagram's masked IP and UDP headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IcrcPrefix(u32);

impl IcrcPrefix {
    /// Returns the prefix for datagrams of `udp_payload_len` bytes (base transport header through ICRC) with the IP
    /// headers that OpenRNIC hosts send.
    ///
    /// # Panics
    /// When no datagram can be that long ([`net::UDP_PAYLOAD_MAX`]).
    #[must_use]
    pub fn new(addresses: &Addresses, udp_payload_len: u32) -> Self {
        Self::with_identification(addresses, udp_payload_len, 0)
    }

    /// Like [`IcrcPrefix::new`], for IPv4 packets with an identification other than 0: segments after the first when
    /// the kernel splits a GSO buffer. IPv6 has no identification.
    ///
    /// # Panics
    /// As for [`IcrcPrefix::new`].
    #[must_use]
    pub fn with_identification(addresses: &Addresses, udp_payload_len: u32, identification: u16) -> Self {
        let mut headers = [0; net::IP_UDP_MAX];
        let fields = IpFields { identification, ..IpFields::default() };
        let len = net::write_ip_udp(addresses, fields, udp_payload_len, &mut headers);
        Self::of_headers(&mut headers[..len], len - UDP_LEN as usize)
    }

    /// Converts a prefix made for IPv4 packets with identification 0 to one for packets with `identification`.
    #[inline]
    #[must_use]
    pub fn renumbered(self, identification: u16) -> Self {
        Self(self.0 ^ identification::difference_of_prefixes(identification))
    }

    /// Masks IP and UDP headers in place and returns the prefix computed over them.
    fn of_headers(headers: &mut [u8], ip_len: usize) -> Self {
        if ip_len == IPV4_LEN as usize {
            headers[1] = 0xff; // type of service
            headers[8] = 0xff; // time to live
            headers[IPV4_CHECKSUM_AT..IPV4_CHECKSUM_AT + 2].fill(0xff);
        } else {
            headers[0] |= 0x0f; // traffic class, flow label
            headers[1..4].fill(0xff);
            headers[7] = 0xff; // hop limit
        }
        headers[ip_len + UDP_CHECKSUM_AT..ip_len + UDP_CHECKSUM_AT + 2].fill(0xff);
        let mut hasher = Hasher::new_with_initial(AFTER_ROUTE_HEADER);
        hasher.update(headers);
        Self(hasher.finalize())
    }

    /// Returns the intermediate CRC, for code that continues it with its own CRC implementation.
    #[inline]
    #[must_use]
    pub fn state(self) -> u32 {
        self.0
    }

    /// Continues with the first bytes of the datagram: at least the base transport header.
    ///
    /// # Panics
    /// When `headers` is shorter than a base transport header.
    #[inline]
    #[must_use]
    pub fn start(self, headers: &[u8]) -> Icrc {
        assert!(headers.len() >= bth::LEN, "the mask needs a whole base transport header");
        let mut hasher = Hasher::new_with_initial(self.0);
        // One block with the masked byte in it, as large as is cheap to copy, so that the hasher processes the rest in
        // one call.
        let mut block = [0; FIRST_BLOCK];
        let (first, rest) = headers.split_at(headers.len().min(FIRST_BLOCK));
        block[..first.len()].copy_from_slice(first);
        block[bth::VARIANT_BYTE] = 0xff;
        hasher.update(&block[..first.len()]);
        if !rest.is_empty() {
            hasher.update(rest);
        }
        Icrc(hasher)
    }

    /// Returns whether the last four bytes of `datagram` are its ICRC.
    #[inline]
    #[must_use]
    pub fn verify(self, datagram: &[u8]) -> bool {
        match datagram.split_last_chunk::<ICRC_LEN>() {
            Some((covered, icrc)) if covered.len() >= bth::LEN => self.start(covered).finish() == *icrc,
            _ => false,
        }
    }
}

/// An ICRC in computation: accepts a datagram slice by slice.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Starts a datagram of `udp_payload_len` bytes (base transport header through ICRC) with its `headers`.
    ///
    /// # Panics
    /// When no datagram can be that long, or `headers` is shorter than a base transport header.
    #[must_use]
    pub fn new(addresses: &Addresses, udp_payload_len: u32, headers: &[u8]) -> Self {
        IcrcPrefix::new(addresses, udp_payload_len).start(headers)
    }

    /// Continues with the next bytes: payload, padding.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the ICRC as transmitted.
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// Returns whether the last four bytes of `datagram` are its ICRC, assuming that it was received with IPv4
/// identification 0. Also returns false when the input is too short or too long to be a datagram.
#[must_use]
pub fn verify(addresses: &Addresses, datagram: &[u8]) -> bool {
    match u32::try_from(datagram.len()) {
        Ok(len) if len <= net::UDP_PAYLOAD_MAX => IcrcPrefix::new(addresses, len).verify(datagram),
        _ => false,
    }
}

/// Returns whether a captured IP packet (IPv4 without options or IPv6 without extensions, then UDP) ends with its
/// ICRC, for any identification and flags. Bytes after the IP packet's end, such as Ethernet padding, are ignored.
/// Also returns false when the input is not such a packet.
#[must_use]
pub fn verify_ip_packet(packet: &[u8]) -> bool {
    let Some((headers, ip_len, datagram)) = split_ip_packet(packet) else {
        return false;
    };
    let mut masked = [0; net::IP_UDP_MAX];
    let masked = &mut masked[..headers.len()];
    masked.copy_from_slice(headers);
    IcrcPrefix::of_headers(masked, ip_len).verify(datagram)
}

/// Splits a packet into IP and UDP headers, the length of the IP header, and the UDP payload up to the UDP length.
fn split_ip_packet(packet: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let (ip_len, protocol_at) = match packet.first()? {
        0x45 => (IPV4_LEN as usize, 9),
        byte if byte >> 4 == 6 => (IPV6_LEN as usize, 6),
        _ => return None,
    };
    let headers_len = ip_len + UDP_LEN as usize;
    let (headers, rest) = packet.split_at_checked(headers_len)?;
    let udp_len = usize::from(u16::from_be_bytes([headers[ip_len + 4], headers[ip_len + 5]]));
    let datagram = rest.get(..udp_len.checked_sub(UDP_LEN as usize)?)?;
    (headers[protocol_at] == PROTOCOL_UDP).then_some((headers, ip_len, datagram))
}

/// CRC of eight bytes of ones, InfiniBand's masked local route header.
const AFTER_ROUTE_HEADER: u32 = 0x2144_df1c;

/// Number of leading bytes of a datagram that are copied, so that one of them can be masked: four of the hasher's
/// 16-byte steps, and at least as long as all headers.
const FIRST_BLOCK: usize = 64;

const _: () = assert!(FIRST_BLOCK >= crate::length::HEADERS_MAX);

#[cfg(test)]
#[path = "icrc/tests.rs"]
mod tests;
