//! What lies under the transport: Ethernet, IP and UDP, their lengths and the headers as our hosts send them.
//!
//! A packet of ours is one UDP datagram to port 4791 (RoCEv2, InfiniBand Architecture annex A17), never fragmented:
//! IPv4 identification 0 with "don't fragment" set (RFC 6864 calls that an atomic datagram), no IP options.

use core::net::{IpAddr, SocketAddr};

use crate::bytes::put;

/// The UDP port that RoCEv2 packets go to.
pub const UDP_PORT: u16 = 4791;

/// Preamble and start-of-frame delimiter, bytes.
pub const PREAMBLE_LEN: u32 = 8;
/// Least silence between two frames, in byte times.
pub const INTERFRAME_GAP_LEN: u32 = 12;
/// Ethernet header without a VLAN tag, bytes.
pub const ETHERNET_LEN: u32 = 14;
/// Ethernet frame check sequence, bytes.
pub const FCS_LEN: u32 = 4;
/// Shortest Ethernet frame, header to frame check sequence; shorter ones are padded.
pub const FRAME_MIN_LEN: u32 = 64;
/// IPv4 header without options, bytes.
pub const IPV4_LEN: u32 = 20;
/// IPv6 header without extensions, bytes.
pub const IPV6_LEN: u32 = 40;
/// UDP header, bytes.
pub const UDP_LEN: u32 = 8;
/// Longest UDP payload that both IP versions can carry in one packet, bytes.
pub const UDP_PAYLOAD_MAX: u32 = 65_535 - IPV4_LEN - UDP_LEN;

/// The version of the internet protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpVersion {
    /// Version 4.
    V4,
    /// Version 6.
    V6,
}

impl IpVersion {
    /// Bytes of the IP header.
    #[inline]
    pub const fn header_len(self) -> u32 {
        match self {
            Self::V4 => IPV4_LEN,
            Self::V6 => IPV6_LEN,
        }
    }
}

/// Bytes of the Ethernet frame around a UDP payload, header to frame check sequence, padded to the minimum: what
/// occupies a switch buffer.
#[inline]
pub const fn frame_len(ip: IpVersion, udp_payload_len: u32) -> u32 {
    let len = ETHERNET_LEN + ip.header_len() + UDP_LEN + udp_payload_len + FCS_LEN;
    if len < FRAME_MIN_LEN { FRAME_MIN_LEN } else { len }
}

/// Byte times that the frame around a UDP payload keeps a link busy: [`frame_len`], preamble and gap.
#[inline]
pub const fn link_len(ip: IpVersion, udp_payload_len: u32) -> u32 {
    PREAMBLE_LEN + frame_len(ip, udp_payload_len) + INTERFRAME_GAP_LEN
}

/// Source and destination of a datagram, both of one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Addresses {
    src: SocketAddr,
    dst: SocketAddr,
}

/// Why two socket addresses do not make an [`Addresses`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// One is IPv4, the other IPv6.
    #[error("{src} and {dst} are not of one IP version")]
    MixedVersions {
        /// The source asked for.
        src: SocketAddr,
        /// The destination asked for.
        dst: SocketAddr,
    },
}

impl Addresses {
    /// From `src` to `dst`. An IPv4 address in IPv6 clothes (`::ffff:a.b.c.d`, as sockets for both versions report
    /// them) counts as the IPv4 address that travels.
    ///
    /// # Errors
    /// [`AddressError::MixedVersions`] when one is IPv4 and the other IPv6.
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Result<Self, AddressError> {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let addresses = Self { src: canonical(src), dst: canonical(dst) };
        if addresses.src.is_ipv4() != addresses.dst.is_ipv4() {
            return Err(AddressError::MixedVersions { src, dst });
        }
        Ok(addresses)
    }

    /// Where the datagram comes from.
    #[inline]
    pub const fn src(&self) -> SocketAddr {
        self.src
    }

    /// Where it goes.
    #[inline]
    pub const fn dst(&self) -> SocketAddr {
        self.dst
    }

    /// The same way, back.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self { src: self.dst, dst: self.src }
    }

    /// The IP version of both.
    #[inline]
    pub const fn ip_version(&self) -> IpVersion {
        if self.src.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }
}

/// The fields of an IP header that a sender or the network chooses; none is covered by the ICRC but the identification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpFields {
    /// Differentiated services and, in the two low bits, ECN.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// IPv4 identification. 0, except in what segmentation offload cuts: there the kernel counts on from 0.
    pub identification: u16,
    /// IPv6 flow label, 20 bits: what switches hash beside the addresses.
    pub flow_label: u32,
}

impl Default for IpFields {
    fn default() -> Self {
        Self { traffic_class: 0, hop_limit: 64, identification: 0, flow_label: 0 }
    }
}

/// Most bytes that [`write_ip_udp`] writes.
pub(crate) const IP_UDP_MAX: usize = (IPV6_LEN + UDP_LEN) as usize;

/// Writes the IP and UDP headers for a payload of `udp_payload_len` bytes, both checksums zero; gives their length.
///
/// # Panics
/// When the payload is longer than [`UDP_PAYLOAD_MAX`].
pub(crate) fn write_ip_udp(
    addresses: &Addresses,
    fields: IpFields,
    udp_payload_len: u32,
    out: &mut [u8; IP_UDP_MAX],
) -> usize {
    assert!(udp_payload_len <= UDP_PAYLOAD_MAX, "no datagram has {udp_payload_len} bytes of payload");
    let udp_len = (UDP_LEN + udp_payload_len) as u16;
    let udp_at = match (addresses.src.ip(), addresses.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            out[0] = 0x45; // version 4, five words of header
            out[1] = fields.traffic_class;
            put(out, 2, (IPV4_LEN as u16 + udp_len).to_be_bytes());
            put(out, 4, fields.identification.to_be_bytes());
            put(out, 6, IPV4_DONT_FRAGMENT.to_be_bytes());
            out[8] = fields.hop_limit;
            out[9] = PROTOCOL_UDP;
            put(out, IPV4_CHECKSUM_AT, [0; 2]);
            put(out, 12, src.octets());
            put(out, 16, dst.octets());
            IPV4_LEN as usize
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let label = fields.flow_label & FLOW_LABEL_MAX;
            put(out, 0, (6 << 28 | u32::from(fields.traffic_class) << 20 | label).to_be_bytes());
            put(out, 4, udp_len.to_be_bytes());
            out[6] = PROTOCOL_UDP;
            out[7] = fields.hop_limit;
            put(out, 8, src.octets());
            put(out, 24, dst.octets());
            IPV6_LEN as usize
        }
        _ => unreachable!("Addresses::new admits one IP version"),
    };
    put(out, udp_at, addresses.src.port().to_be_bytes());
    put(out, udp_at + 2, addresses.dst.port().to_be_bytes());
    put(out, udp_at + 4, udp_len.to_be_bytes());
    put(out, udp_at + UDP_CHECKSUM_AT, [0; 2]);
    udp_at + UDP_LEN as usize
}

/// Protocol number of UDP.
pub(crate) const PROTOCOL_UDP: u8 = 17;
/// Where in an IPv4 header its checksum stands.
pub(crate) const IPV4_CHECKSUM_AT: usize = 10;
/// Where in a UDP header its checksum stands.
pub(crate) const UDP_CHECKSUM_AT: usize = 6;
const IPV4_DONT_FRAGMENT: u16 = 0x4000;
/// The largest IPv6 flow label, 20 bits.
const FLOW_LABEL_MAX: u32 = 0xf_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(src: &str, dst: &str) -> Result<Addresses, AddressError> {
        Addresses::new(src.parse().expect("an address"), dst.parse().expect("an address"))
    }

    #[test]
    fn frame_lengths_add_up() {
        // An ACK: BTH 12, AETH 4, ICRC 4; headers 14 + 20 + 8, FCS 4.
        assert_eq!(frame_len(IpVersion::V4, 20), 66);
        assert_eq!(link_len(IpVersion::V4, 20), 86);
        assert_eq!(frame_len(IpVersion::V6, 20), 86);
        assert_eq!(frame_len(IpVersion::V4, 16), 64, "an empty Send is padded from 62 to the minimum");
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let mapped = addresses("[::ffff:10.0.0.1]:5", "10.0.0.2:4791").expect("both IPv4");
        assert_eq!(mapped, addresses("10.0.0.1:5", "10.0.0.2:4791").expect("both IPv4"));
        assert_eq!(mapped.ip_version(), IpVersion::V4);
        assert_eq!(mapped.reversed().src(), mapped.dst());
    }

    #[test]
    fn mixed_versions_are_refused_in_one_line() {
        let error = addresses("[fd00::1]:5", "10.0.0.2:4791").expect_err("mixed");
        assert_eq!(error.to_string(), "[fd00::1]:5 and 10.0.0.2:4791 are not of one IP version");
    }

    #[test]
    fn ipv4_headers_golden() {
        let mut out = [0xee; IP_UDP_MAX];
        let fields = IpFields { traffic_class: 0x02, hop_limit: 63, ..IpFields::default() };
        let len = write_ip_udp(&addresses("10.1.2.3:49152", "10.4.5.6:4791").expect("IPv4"), fields, 20, &mut out);
        let expected = [
            0x45, 0x02, 0, 48, 0, 0, 0x40, 0, 63, 17, 0, 0, 10, 1, 2, 3, 10, 4, 5, 6, // IPv4
            0xc0, 0, 0x12, 0xb7, 0, 28, 0, 0, // UDP
        ];
        assert_eq!(out[..len], expected);
    }

    #[test]
    fn ipv6_headers_golden() {
        let mut out = [0xee; IP_UDP_MAX];
        let fields = IpFields { traffic_class: 0xa1, hop_limit: 63, identification: 0, flow_label: 0x1b_cdef };
        let len = write_ip_udp(&addresses("[fd00::1]:49152", "[fd00::2]:4791").expect("IPv6"), fields, 20, &mut out);
        let expected = [
            0x6a, 0x1b, 0xcd, 0xef, 0, 28, 17, 63, // version, traffic class, flow label, length, UDP, hop limit
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // destination
            0xc0, 0, 0x12, 0xb7, 0, 28, 0, 0, // UDP
        ];
        assert_eq!(out[..len], expected);
    }
}
