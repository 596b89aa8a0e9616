//! Every opcode of every format, byte for byte.

mod common;

use std::collections::BTreeSet;

use common::golden;
use rnic_wire::{Format, HEADERS_MAX, ICRC_LEN, Opcode, codec};

#[test]
fn encoded_headers_match_the_layouts_of_the_specification() {
    for golden in golden::all() {
        let mut headers = [0xee; HEADERS_MAX];
        let len = codec::encode_headers(golden.format, &golden.packet, &mut headers)
            .unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        assert_eq!(headers[..len], golden.bytes, "{}", golden.name);
        assert_eq!(golden.packet.headers_len(golden.format) as usize, len, "{}", golden.name);
    }
}

#[test]
fn decoded_headers_match_the_layouts_of_the_specification() {
    for golden in golden::all() {
        let mut datagram = golden.bytes.clone();
        let start = datagram.len();
        datagram.extend(common::payload(golden.packet.payload_len));
        let end = datagram.len();
        datagram.resize(end + golden.packet.pad_len() as usize + ICRC_LEN, 0);
        assert_eq!(datagram.len(), golden.packet.udp_payload_len(golden.format) as usize, "{}", golden.name);

        let decoded = codec::decode(&datagram).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        assert_eq!(decoded.format, golden.format, "{}", golden.name);
        assert_eq!(decoded.packet, golden.packet, "{}", golden.name);
        assert_eq!(decoded.payload, start..end, "{}", golden.name);
    }
}

#[test]
fn every_opcode_has_a_golden_packet() {
    for format in Format::ALL {
        let all = golden::all();
        let seen: BTreeSet<u8> =
            all.iter().filter(|golden| golden.format == format).map(|golden| golden.bytes[0]).collect();
        let expected: BTreeSet<u8> = (0..=u8::MAX).filter(|byte| Opcode::from_byte(format, *byte).is_some()).collect();
        assert_eq!(seen, expected, "{format:?}");
    }
}
