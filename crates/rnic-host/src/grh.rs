//! The global route header of a received datagram: 40 bytes in front of its payload.
//!
//! Source: InfiniBand Architecture annex A17 (RoCEv2): over IPv6 it is the IPv6 header; over IPv4 the IPv4 header is
//! in the last 20 bytes, and the first 20 are undefined. A program that creates an address handle from it
//! (`ibv_init_ah_from_wc`) distinguishes the two by version and checksum. A socket does not deliver these headers, so
//! they are reconstructed from the information that it does deliver.

use std::net::IpAddr;

use rnic_engine::GRH_LEN;
use rnic_wire::{Addresses, net};

use crate::ip_fields::PackedIpFields;

/// A global route header.
pub(crate) type Grh = [u8; GRH_LEN as usize];

/// Returns the header of a datagram of `udp_payload_len` bytes that was received with the addresses `path` and these
/// fields.
pub(crate) fn grh(path: &Addresses, ip_fields: PackedIpFields, udp_payload_len: u32) -> Grh {
    let mut bytes = [0; GRH_LEN as usize];
    let udp_len = net::UDP_LEN + udp_payload_len;
    match (path.src().ip(), path.dst().ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = &mut bytes[(GRH_LEN - net::IPV4_LEN) as usize..];
            header[0] = 0x45; // version 4, five words of header
            header[1] = ip_fields.traffic_class();
            header[2..4].copy_from_slice(&((net::IPV4_LEN + udp_len) as u16).to_be_bytes());
            header[6] = 0x40; // don't fragment
            header[8] = ip_fields.hop_limit();
            header[9] = PROTOCOL_UDP;
            header[12..16].copy_from_slice(&src.octets());
            header[16..20].copy_from_slice(&dst.octets());
            let sum = checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (src, dst) => {
            let word = 6 << 28 | u32::from(ip_fields.traffic_class()) << 20 | ip_fields.flow_label();
            bytes[..4].copy_from_slice(&word.to_be_bytes());
            bytes[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
            bytes[6] = PROTOCOL_UDP;
            bytes[7] = ip_fields.hop_limit();
            for (place, ip) in [(8, src), (24, dst)] {
                if let IpAddr::V6(ip) = ip {
                    bytes[place..place + 16].copy_from_slice(&ip.octets());
                }
            }
        }
    }
    bytes
}

/// Returns whether a header created by [`grh`] is an IPv4 header.
pub(crate) fn is_ipv4(grh: &Grh) -> bool {
    grh[0] >> 4 != 6
}

/// Returns the internet checksum (RFC 1071) of a header whose checksum field is zero.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

const PROTOCOL_UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(src: &str, dst: &str) -> Addresses {
        Addresses::new(src.parse().expect("an address"), dst.parse().expect("an address")).expect("one version")
    }

    #[test]
    fn the_ipv4_header_is_in_the_last_twenty_bytes_of_the_grh() {
        let bytes = grh(&path("10.0.0.1:4791", "10.0.0.2:1040"), PackedIpFields::NONE, 100);
        assert_eq!(bytes[..20], [0; 20]);
        assert_eq!((bytes[20], &bytes[22..24]), (0x45, &[0, 128][..]));
        assert_eq!((&bytes[32..36], &bytes[36..40]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!(checksum(&bytes[20..]), 0, "the checksum is wrong");
        // The header checksum as Wireshark computes it for this header.
        assert_eq!(bytes[30..32], [0x26, 0x6b]);
        let bytes = grh(&path("10.0.0.1:4791", "10.0.0.2:1040"), PackedIpFields::new(0xb8, 3, 0x5_4321), 100);
        assert_eq!((bytes[20], bytes[21], bytes[28], checksum(&bytes[20..])), (0x45, 0xb8, 3, 0), "no label in IPv4");
    }

    #[test]
    fn the_ipv6_header_fills_the_grh() {
        let bytes = grh(&path("[fd00::1]:4791", "[fd00::2]:1040"), PackedIpFields::new(0xb8, 3, 0x5_4321), 100);
        assert_eq!((&bytes[..4], bytes[6], &bytes[4..6]), (&[0x6b, 0x85, 0x43, 0x21][..], 17, &[0, 108][..]));
        assert_eq!(bytes[7], 3);
        assert_eq!((bytes[8], bytes[23], bytes[24], bytes[39]), (0xfd, 1, 0xfd, 2));
    }
}
