//! The layers below the transport: Ethernet, IP and UDP, their lengths, and the headers that OpenRNIC hosts send.
//!
//! An OpenRNIC packet is one UDP datagram to port 4791 (RoCEv2, InfiniBand Architecture annex A17), never fragmented:
//! IPv4 identification 0 with "don't fragment" set (RFC 6864 calls that an atomic datagram), no IP options.

use core::net::{IpAddr, SocketAddr};

use crate::bytes::put;

/// Destination UDP port of RoCEv2 packets.
pub const UDP_PORT: u16 = 4791;

/// Length of preamble and start-of-frame delimiter in bytes.
pub const PREAMBLE_LEN: u32 = 8;
/// Smallest gap between two frames, in byte times.
pub const INTERFRAME_GAP_LEN: u32 = 12;
/// Length of the Ethernet header without a VLAN tag, in bytes.
pub const ETHERNET_LEN: u32 = 14;
/// Length of the Ethernet frame check sequence in bytes.
pub const FCS_LEN: u32 = 4;
/// Length of the shortest Ethernet frame in bytes, header to frame check sequence; shorter ones are padded.
pub const FRAME_MIN_LEN: u32 = 64;
/// Length of the IPv4 header without options, in bytes.
pub const IPV4_LEN: u32 = 20;
/// Length of the IPv6 header without extensions, in bytes.
pub const IPV6_LEN: u32 = 40;
/// Length of the UDP header in bytes.
pub const UDP_LEN: u32 = 8;
/// Largest UDP payload that both IP versions can carry in one packet, in bytes.
pub const UDP_PAYLOAD_MAX: u32 = 65_535 - IPV4_LEN - UDP_LEN;

/// The version of the internet protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpVersion {
    /// IP version 4.
    V4,
    /// IP version 6.
    V6,
}

impl IpVersion {
    /// Returns the length of the IP header in bytes.
    #[inline]
    pub const fn header_len(self) -> u32 {
        match self {
            Self::V4 => IPV4_LEN,
            Self::V6 => IPV6_LEN,
        }
    }
}

/// Returns the length of the Ethernet frame around a UDP payload in bytes, header to frame check sequence, padded to
/// the minimum: the space it occupies in a switch buffer.
#[inline]
pub const fn frame_len(ip: IpVersion, udp_payload_len: u32) -> u32 {
    let len = ETHERNET_LEN + ip.header_len() + UDP_LEN + udp_payload_len + FCS_LEN;
    if len < FRAME_MIN_LEN { FRAME_MIN_LEN } else { len }
}

/// Returns the number of byte times for which the frame around a UDP payload occupies a link: [`frame_len`], preamble
/// and gap.
#[inline]
pub const fn link_len(ip: IpVersion, udp_payload_len: u32) -> u32 {
    PREAMBLE_LEN + frame_len(ip, udp_payload_len) + INTERFRAME_GAP_LEN
}

/// Source and destination address of a datagram, both of the same IP version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Addresses {
    src: SocketAddr,
    dst: SocketAddr,
}

/// Reason why two socket addresses do not form an [`Addresses`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// One address is IPv4, the other IPv6.
    #[error("{src} and {dst} have different IP versions; use two IPv4 or two IPv6 addresses")]
    MixedVersions {
        /// Source address given.
        src: SocketAddr,
        /// Destination address given.
        dst: SocketAddr,
    },
}

impl Addresses {
    /// Returns the addresses of datagrams from `src` to `dst`. An IPv4-mapped IPv6 address (`::ffff:a.b.c.d`, as
    /// reported by dual-stack sockets) is converted to the IPv4 address that is sent.
    ///
    /// # Errors
    /// [`AddressError::MixedVersions`] when one address is IPv4 and the other IPv6.
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Result<Self, AddressError> {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let addresses = Self { src: canonical(src), dst: canonical(dst) };
        if addresses.src.is_ipv4() != addresses.dst.is_ipv4() {
            return Err(AddressError::MixedVersions { src, dst });
        }
        Ok(addresses)
    }

    /// Returns the source address.
    #[inline]
    pub const fn src(&self) -> SocketAddr {
        self.src
    }

    /// Returns the destination address.
    #[inline]
    pub const fn dst(&self) -> SocketAddr {
        self.dst
    }

    /// Returns the addresses of the opposite direction.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self { src: self.dst, dst: self.src }
    }

    /// Returns the IP version of both addresses.
    #[inline]
    pub const fn ip_version(&self) -> IpVersion {
        if self.src.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }
}

/// Fields of an IP header set by the sender or the network; of these, the ICRC covers only the identification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpFields {
    /// Differentiated services code point and, in the two low bits, ECN.
    pub traffic_class: u8,
    /// Time to live (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// IPv4 identification. 0, except in packets created by segmentation offload, which the kernel numbers
    /// consecutively from 0.
    pub identification: u16,
    /// IPv6 flow label, 20 bits, which switches hash together with the addresses.
    pub flow_label: u32,
}

impl Default for IpFields {
    fn default() -> Self {
        Self { traffic_class: 0, hop_limit: 64, identification: 0, flow_label: 0 }
    }
}

/// Maximum number of bytes that [`write_ip_udp`] writes.
pub(crate) const IP_UDP_MAX: usize = (IPV6_LEN + UDP_LEN) as usize;

/// Writes the IP and UDP headers for a payload of `udp_payload_len` bytes, both checksums zero; returns their length in
/// bytes.
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
/// Offset of the checksum in an IPv4 header.
pub(crate) const IPV4_CHECKSUM_AT: usize = 10;
/// Offset of the checksum in a UDP header.
pub(crate) const UDP_CHECKSUM_AT: usize = 6;
const IPV4_DONT_FRAGMENT: u16 = 0x4000;
/// Largest IPv6 flow label, 20 bits.
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
        let error = addresses("[fd00::1]:5", "10.0.0.2:4791").expect_err("mixed IP versions are refused");
        assert_eq!(
            error.to_string(),
            "[fd00::1]:5 and 10.0.0.2:4791 have different IP versions; use two IPv4 or two IPv6 addresses"
        );
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
