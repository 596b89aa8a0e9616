//! Messages between NICs: byte for byte, there and back, and each reason to refuse one.

mod common;

use common::scr::{self, COVERED_LEN};
use proptest::prelude::*;

use rnic_base::Psn32;
use rnic_wire::scr::{
    Body, Cookie, Grant, Hint, MESSAGE_LEN, Message, MessageError, OPCODE, ProbePath, RECORDS_MAX, Records, Type,
    is_message,
};
use rnic_wire::{WireError, codec, falcon, gsi, icrc};

fn golden(name: &str) -> Message {
    scr::all().into_iter().find(|golden| golden.name == name).expect("a golden message").message
}

#[test]
fn s6_messages_match_their_layout_byte_for_byte() {
    for path in common::paths() {
        for golden in scr::all() {
            let datagram = golden.message.encode(&path).expect(golden.name);
            assert_eq!(datagram.len(), 128, "{}", golden.name);
            assert_eq!(datagram[..COVERED_LEN], golden.bytes, "{}", golden.name);
            assert!(icrc::verify(&path, &datagram), "{}", golden.name);
            assert_eq!(Message::parse_verified(&datagram, &path), Ok(golden.message), "{}", golden.name);
        }
    }
}

#[test]
fn s6_every_type_has_a_golden_message() {
    let all = scr::all();
    for byte in 0..=u8::MAX {
        let seen = all.iter().any(|golden| golden.bytes[13] == byte);
        assert_eq!(Type::from_byte(byte).is_some(), seen, "type {byte}");
        assert_eq!(Type::from_byte(byte).is_some(), (1..=6).contains(&byte), "type {byte}");
    }
}

/// Name of a golden message, bytes that are changed in it, and the reason to refuse it then.
type Row = (&'static str, &'static [(usize, u8)], MessageError);

#[test]
fn s6_each_check_has_its_reason() {
    let rows: [Row; 23] = [
        ("probe", &[(0, 0xc1)], MessageError::Opcode),
        ("probe", &[(0, 0x64)], MessageError::Opcode),
        ("probe", &[(2, 0x7f)], MessageError::PartitionKey),
        ("probe", &[(1, 0x01)], MessageError::Reserved),
        ("probe", &[(1, 0x80)], MessageError::Reserved),
        ("probe", &[(8, 0x80)], MessageError::Reserved),
        ("probe", &[(39, 1)], MessageError::Reserved),
        ("probe", &[(51, 1)], MessageError::Reserved),
        ("probe", &[(123, 1)], MessageError::Reserved),
        ("node report", &[(72, 1)], MessageError::Reserved),
        ("grants", &[(48 + 24, 1)], MessageError::Reserved),
        ("probe", &[(11, 0xee)], MessageError::Psn),
        ("probe", &[(12, 2)], MessageError::Version),
        ("probe", &[(13, 0)], MessageError::Type),
        ("probe", &[(13, 7)], MessageError::Type),
        ("probe", &[(14, 0x0a)], MessageError::Flags),
        ("probe answer", &[(14, 0x03)], MessageError::Flags),
        ("grants", &[(14, 0x01), (31, 1)], MessageError::Flags),
        ("probe", &[(14, 0x03)], MessageError::Cookie),
        ("probe answer", &[(14, 0x00)], MessageError::Cookie),
        ("probe", &[(15, 1)], MessageError::RecordCount),
        ("grants", &[(15, 7)], MessageError::RecordCount),
        ("grants", &[(51, 2)], MessageError::GrantKind),
    ];
    let [path, _] = common::paths();
    for (name, changes, reason) in rows {
        let mut datagram = golden(name).encode(&path).expect(name);
        for (at, value) in changes {
            datagram[*at] = *value;
        }
        assert_eq!(Message::parse(&datagram), Err(reason), "{name} {changes:?}");
        assert_eq!(Message::parse_verified(&datagram, &path), Err(reason), "{name} {changes:?}");
        assert!(reason.to_string().is_ascii() && reason.to_string().lines().count() == 1);
    }
    let mut datagram = golden("grants").encode(&path).expect("a message");
    datagram[16..24].fill(0);
    assert_eq!(Message::parse(&datagram), Err(MessageError::Cookie), "only a first probe has no cookie");
}

#[test]
fn s6_any_other_length_is_refused() {
    let [path, _] = common::paths();
    let datagram = golden("probe").encode(&path).expect("a message");
    for len in 0..MESSAGE_LEN {
        assert_eq!(Message::parse(&datagram[..len]), Err(MessageError::Length));
        assert!(!is_message(&datagram[..len]));
    }
    assert_eq!(Message::parse(&[&datagram[..], &[0]].concat()), Err(MessageError::Length));
}

#[test]
fn s6_a_wrong_icrc_is_refused_and_routers_may_mark_the_packet() {
    let [path, other] = common::paths();
    let message = golden("grants");
    let sent = message.encode(&path).expect("a message");
    assert_eq!(Message::parse_verified(&sent, &other), Err(MessageError::Icrc), "from another address");
    let mut datagram = sent;
    datagram[127] ^= 1;
    assert_eq!(Message::parse(&datagram), Ok(message), "the format alone");
    assert_eq!(Message::parse_verified(&datagram, &path), Err(MessageError::Icrc));
    let mut marked = sent;
    marked[4] = 0xff;
    assert_eq!(Message::parse_verified(&marked, &path), Ok(message));
}

#[test]
fn s6_a_message_that_its_type_cannot_have_is_not_encoded() {
    let [path, _] = common::paths();
    let own = Cookie::new(5);
    let probe = golden("probe");
    let rows = [
        (Message { cookie: None, ..probe }, MessageError::Cookie),
        (Message { cookie: None, ..golden("probe answer") }, MessageError::Cookie),
        (Message { announced: own, ..golden("hint") }, MessageError::Flags),
        (Message { answer_wanted: true, ..golden("probe answer") }, MessageError::Flags),
    ];
    for (message, reason) in rows {
        assert_eq!(message.encode(&path), Err(reason), "{message:?}");
    }
    assert!(Records::new(&[Grant::default(); RECORDS_MAX + 1]).is_none());
    assert_eq!(Cookie::new(0), None);
    assert!(!format!("{probe:?}").contains("a1a2"), "a cookie is printed");
}

/// A receiver tells messages from other packets by their first bytes: no RoCE packet, management datagram or PSP packet
/// starts like a message.
#[test]
fn s6_the_opcode_belongs_to_messages_alone() {
    let [path, _] = common::paths();
    let datagram = golden("probe").encode(&path).expect("a message");
    assert!(is_message(&datagram) && !gsi::is_gsi(&datagram));
    for version in 0..16 {
        let mut other = datagram;
        other[1] = version;
        assert!(matches!(codec::decode(&other), Err(WireError::Opcode | WireError::Version)), "{version}");
    }
    assert!(falcon::psp::parse(&datagram).is_err());
    for packet in common::golden::all() {
        assert_ne!(packet.bytes[0], OPCODE, "{}", packet.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn s6_every_message_round_trips(message in scr::message(), six in any::<bool>()) {
        let path = common::paths()[usize::from(six)];
        let datagram = message.encode(&path).expect("a message");
        prop_assert!(is_message(&datagram));
        prop_assert_eq!(Message::parse_verified(&datagram, &path), Ok(message));
    }

    #[test]
    fn s6_any_single_wrong_bit_is_detected(message in scr::message(), bit in 0..MESSAGE_LEN * 8) {
        let [path, _] = common::paths();
        let mut datagram = message.encode(&path).expect("a message");
        datagram[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(Message::parse_verified(&datagram, &path).is_ok(), bit / 8 == 4);
    }
}

#[test]
fn s6_the_sequence_number_is_serial_and_its_low_bits_are_the_psn() {
    let [path, _] = common::paths();
    let body = Body::Hint(Hint::default());
    let message = Message { sequence: Psn32::new(0x0200_0001), body, ..golden("hint") };
    let datagram = message.encode(&path).expect("a message");
    assert_eq!((&datagram[9..12], &datagram[32..36]), (&[0, 0, 1][..], &[2, 0, 0, 1][..]));
    assert_eq!(Message { body: Body::Probe(ProbePath::default()), ..message }.body.kind(), Type::Probe);
}
