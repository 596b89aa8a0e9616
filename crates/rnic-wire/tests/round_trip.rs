//! Checks that decoding restores every encoded packet, and that damaged packets are detected.

mod common;

use common::strategy;
use proptest::prelude::*;

use rnic_wire::header::bth;
use rnic_wire::{Addresses, Format, Packet, codec, icrc};

fn datagram(format: Format, packet: &Packet, payload: &[u8], path: &Addresses) -> Vec<u8> {
    let mut out = Vec::new();
    codec::assemble(format, packet, &[payload], path, &mut out).expect("a legal packet");
    out
}

fn legal() -> impl Strategy<Value = (Format, Packet)> {
    strategy::format().prop_flat_map(|format| (Just(format), strategy::packet(format)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_legal_packet_round_trips((format, packet) in legal(), six in any::<bool>()) {
        let path = common::paths()[usize::from(six)];
        let payload = common::payload(packet.payload_len);
        let datagram = datagram(format, &packet, &payload, &path);
        prop_assert_eq!(datagram.len(), packet.udp_payload_len(format) as usize);
        prop_assert!(icrc::verify(&path, &datagram));

        let decoded = codec::decode(&datagram);
        let decoded = decoded.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(decoded.format, format);
        prop_assert_eq!(decoded.packet, packet);
        prop_assert_eq!(&datagram[decoded.payload], &payload[..]);
    }

    #[test]
    fn any_single_wrong_bit_is_detected(
        (format, packet) in legal(),
        six in any::<bool>(),
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let path = common::paths()[usize::from(six)];
        let mut datagram = datagram(format, &packet, &common::payload(packet.payload_len), &path);
        let at = at.index(datagram.len());
        datagram[at] ^= 1u8 << bit;
        // The variant byte is the only one that the ICRC does not cover.
        prop_assert_eq!(icrc::verify(&path, &datagram), at == bth::VARIANT_BYTE, "bit {} of byte {}", bit, at);
    }

    #[test]
    fn a_packet_with_another_destination_is_detected((format, packet) in legal(), bit in 0..32u32) {
        let [path, _] = common::paths();
        let datagram = datagram(format, &packet, &common::payload(packet.payload_len), &path);
        let wrong = std::net::Ipv4Addr::from(0x0a01_0203 ^ (1 << bit));
        let other = common::path(&format!("{wrong}:49152"), "10.4.5.6:4791");
        prop_assert!(!icrc::verify(&other, &datagram));
    }
}

/// The property above tests a sample; this test covers every bit of one packet of each kind.
#[test]
fn every_single_wrong_bit_of_every_golden_packet_is_detected() {
    for golden in common::golden::all() {
        for path in common::paths() {
            let payload = common::payload(golden.packet.payload_len);
            let mut datagram = datagram(golden.format, &golden.packet, &payload, &path);
            for at in (0..datagram.len()).filter(|at| *at != bth::VARIANT_BYTE) {
                for bit in 0..8 {
                    datagram[at] ^= 1 << bit;
                    assert!(!icrc::verify(&path, &datagram), "{}: bit {bit} of byte {at}", golden.name);
                    datagram[at] ^= 1 << bit;
                }
            }
            assert!(icrc::verify(&path, &datagram), "{}", golden.name);
        }
    }
}
