//! Vectors from real adapters, an implementation that shares no code with the one under test, and the essential
//! guarantee: every single bit error is detected.

use super::*;
use proptest::prelude::*;

fn addresses(src: &str, dst: &str) -> Addresses {
    Addresses::new(src.parse().expect("an address"), dst.parse().expect("an address")).expect("one IP version")
}

/// Returns the CRC computed bit by bit over the masked packet, as the specification's shift register does.
fn bitwise_crc(bytes: impl IntoIterator<Item = u8>) -> [u8; 4] {
    let mut register = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let carry = (register ^ u32::from(byte >> bit)) & 1;
            register = (register >> 1) ^ if carry == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    (!register).to_le_bytes()
}

/// A congestion notification packet as a ConnectX-4 Lx sent it (IP packet). It is the capture in the RoCE unit tests of
/// the Scapy project, there with Ethernet header.
const CNP_CONNECTX4: [u8; 60] = [
    0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, // IPv4, identification 0x718c, DF
    10, 0, 17, 1, 10, 0, 18, 1, // addresses
    0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, // UDP from port 0 to 4791
    0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, // BTH with BECN
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved
    0x82, 0xfd, 0x00, 0x2a, // ICRC
];

/// A Send over an unreliable connection with two bytes of padding, from the same source.
const UC_SEND: [u8; 64] = [
    0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, // IPv4, identification 1144, DF
    192, 168, 0, 7, 192, 168, 0, 7, // addresses
    0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, // UDP from port 49152 to 4791
    0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, // BTH
    b'F', b'0', 0x81, 0x8b, 0xe2, 0x89, b'5', 0xd9, 0x0e, 0x9a, 0x95, b'P', b'T', 0x01, 0xbe, 0x88, b'^', b'P', 0, 0,
    0x78, 0xf3, 0x53, 0xf3, // ICRC
];

#[test]
fn packets_of_real_adapters_verify() {
    assert!(verify_ip_packet(&CNP_CONNECTX4));
    assert!(verify_ip_packet(&UC_SEND));
    let mut padded = UC_SEND.to_vec();
    padded.extend_from_slice(&[0; 6]);
    assert!(verify_ip_packet(&padded), "Ethernet padding is not part of the packet");
}

#[test]
fn incremental_computation_matches_an_adapters_icrc() {
    let (headers, rest) = CNP_CONNECTX4[28..56].split_at(12);
    let path = addresses("10.0.17.1:0", "10.0.18.1:4791");
    let mut icrc = IcrcPrefix::with_identification(&path, 32, 0x718c).start(headers);
    icrc.update(rest);
    assert_eq!(icrc.finish(), [0x82, 0xfd, 0x00, 0x2a]);
    assert!(!verify(&path, &CNP_CONNECTX4[28..]), "verified with another identification");
}

#[test]
fn fields_that_switches_change_are_not_covered() {
    // Type of service, time to live, header checksum, UDP checksum, and the BTH's variant byte.
    for at in [1, 8, 10, 11, 26, 27, 32] {
        let mut packet = CNP_CONNECTX4;
        packet[at] ^= 0x5a;
        assert!(verify_ip_packet(&packet), "byte {at}");
    }
}

#[test]
fn every_other_bit_is_covered() {
    for at in (0..CNP_CONNECTX4.len()).filter(|at| ![1, 8, 10, 11, 26, 27, 32].contains(at)) {
        for bit in 0..8 {
            let mut packet = CNP_CONNECTX4;
            packet[at] ^= 1 << bit;
            assert!(!verify_ip_packet(&packet), "bit {bit} of byte {at}");
        }
    }
}

/// A datagram over IPv6. No public capture was available, so the expected ICRC is the one that the bitwise
/// implementation above computes over the masked bytes.
#[test]
fn ipv6_masks_class_label_and_hop_limit() {
    let path = addresses("[fd00::1]:49152", "[fd00::2]:4791");
    let mut masked = vec![0xff; 8];
    masked.extend_from_slice(&[0x6f, 0xff, 0xff, 0xff, 0, 28, 17, 0xff]);
    masked.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    masked.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    masked.extend_from_slice(&[0xc0, 0, 0x12, 0xb7, 0, 28, 0xff, 0xff]);
    masked.extend_from_slice(&[0x11, 0x40, 0xff, 0xff, 0xff, 0, 0, 9, 0, 0, 0, 5, 0x1f, 0, 0, 1]);
    let expected = bitwise_crc(masked);

    let mut datagram = vec![0x11, 0x40, 0xff, 0xff, 0x00, 0, 0, 9, 0, 0, 0, 5, 0x1f, 0, 0, 1];
    assert_eq!(Icrc::new(&path, 20, &datagram).finish(), expected);
    datagram.extend_from_slice(&expected);
    assert!(verify(&path, &datagram));
    assert!(!verify(&path.reversed(), &datagram), "addresses are covered");
}

#[test]
fn invalid_datagrams_do_not_verify() {
    let path = addresses("10.0.0.1:1", "10.0.0.2:2");
    assert!(!verify(&path, &[]));
    assert!(!verify(&path, &[0; 15]));
    assert!(!verify(&path, &vec![0; 70_000]));
    assert!(!verify_ip_packet(&[]));
    assert!(!verify_ip_packet(&CNP_CONNECTX4[..27]), "cut inside UDP");
    assert!(!verify_ip_packet(&CNP_CONNECTX4[..59]), "shorter than its UDP length");
    let mut tcp = CNP_CONNECTX4;
    tcp[9] = 6;
    assert!(!verify_ip_packet(&tcp));
    let mut tiny = CNP_CONNECTX4;
    tiny[25] = 7;
    assert!(!verify_ip_packet(&tiny), "a UDP length below its own header");
}

proptest! {
    #[test]
    fn any_cut_into_slices_gives_the_bitwise_value(
        bytes in prop::collection::vec(any::<u8>(), 12..600),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ports in any::<(u16, u16)>(),
    ) {
        let path = addresses(&format!("10.1.2.3:{}", ports.0), &format!("10.4.5.6:{}", ports.1));
        let udp_payload_len = bytes.len() as u32 + 4;
        let (udp_len, ip_len) = (udp_payload_len as u16 + 8, udp_payload_len as u16 + 28);
        let mut masked = vec![0xff; 8];
        masked.extend_from_slice(&[0x45, 0xff]);
        masked.extend_from_slice(&ip_len.to_be_bytes());
        masked.extend_from_slice(&[0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff, 10, 1, 2, 3, 10, 4, 5, 6]);
        masked.extend_from_slice(&ports.0.to_be_bytes());
        masked.extend_from_slice(&ports.1.to_be_bytes());
        masked.extend_from_slice(&udp_len.to_be_bytes());
        masked.extend_from_slice(&[0xff, 0xff]);
        masked.extend(bytes.iter().enumerate().map(|(at, byte)| if at == 4 { 0xff } else { *byte }));
        let expected = bitwise_crc(masked);

        let mut cuts: Vec<usize> = cuts.iter().map(|cut| 12 + cut.index(bytes.len() - 11)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut icrc = Icrc::new(&path, udp_payload_len, &bytes[..cuts[0]]);
        cuts.windows(2).for_each(|pair| icrc.update(&bytes[pair[0]..pair[1]]));
        prop_assert_eq!(icrc.finish(), expected);
        prop_assert!(verify(&path, &[&bytes[..], &expected].concat()));
    }
}

#[test]
fn renumbering_gives_the_icrc_of_the_new_identification() {
    let addresses = addresses("10.1.2.3:49152", "10.4.5.6:4791");
    for len in [16, 20, 24, 280, 4_132] {
        let prefix = IcrcPrefix::new(&addresses, len);
        for identification in (0..=u16::MAX).step_by(251).chain([1, 63, 255, 256, u16::MAX]) {
            let expected = IcrcPrefix::with_identification(&addresses, len, identification);
            assert_eq!(prefix.renumbered(identification), expected, "{identification} {len}");
        }
    }
}

#[test]
fn the_identification_of_a_packet_is_found() {
    let addresses = addresses("10.1.2.3:49152", "10.4.5.6:4791");
    for len in [16u32, 20, 24, 61, 280, 1_068, 4_132, net::UDP_PAYLOAD_MAX] {
        let covered: Vec<u8> = (0..len as usize - ICRC_LEN).map(|at| (at * 7 + at / 256) as u8).collect();
        let icrc = |prefix: IcrcPrefix| u32::from_le_bytes(prefix.start(&covered).finish());
        let computed = icrc(IcrcPrefix::new(&addresses, len));
        let finder = IdentificationFinder::new(len);
        assert_eq!(finder.find(0), Some(0));
        for identification in (0..=u16::MAX).step_by(641).chain([1, 2, 255, 256, u16::MAX]) {
            let sent = icrc(IcrcPrefix::with_identification(&addresses, len, identification));
            assert_eq!(finder.find(computed ^ sent), Some(identification), "{len}");
        }
    }
}

/// 65,536 differences of the ICRC are taken as caused by an identification. No single bit error may cause one of
/// these, and two bit errors may do so only rarely.
#[test]
fn bit_errors_rarely_match_an_identification() {
    let len = 1_068u32;
    let finder = IdentificationFinder::new(len);
    let one_bit = |bit: usize| {
        let mut covered = vec![0u8; len as usize - ICRC_LEN];
        covered[bit / 8] ^= 1 << (bit % 8);
        // The CRC is linear: the exclusive or with the CRC of zeros leaves the contribution of the bit.
        crc32fast::hash(&covered) ^ crc32fast::hash(&vec![0u8; covered.len()])
    };
    let bits = (len as usize - ICRC_LEN) * 8;
    let differences: Vec<u32> = (0..bits).map(one_bit).chain((0..32).map(|bit| 1 << bit)).collect();
    assert_eq!(differences.iter().filter(|difference| finder.find(**difference).is_some()).count(), 0);
    let pairs = || differences.iter().step_by(17).flat_map(|a| differences.iter().step_by(23).map(move |b| a ^ b));
    let (all, found) = (pairs().count(), pairs().filter(|pair| *pair != 0 && finder.find(*pair).is_some()).count());
    assert!(found * 65_536 <= all * 4, "{found} of {all}");
}
