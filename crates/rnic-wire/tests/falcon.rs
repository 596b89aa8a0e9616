//! Falcon's packets: exact bytes, encoding and decoding, and packets that are rejected.

mod common;

use std::collections::BTreeSet;

use common::falcon::{Golden, all, around};
use common::falcon_strategy as strategy;
use proptest::prelude::*;

use rnic_base::{Duration, Psn32, Time};
use rnic_wire::falcon::rdma::Operation;
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, CompletionCode, Encapsulation, EncodeError, FlowLabel, Form, HEADERS_MAX, Nack,
    NackCode, Packet, PacketType, ResyncCode, RnrTimer, Timestamp, Ulp, UlpProtocol, Window, WireError, codec, nvme,
    psp,
};
use rnic_wire::pcap::write_frame;
use rnic_wire::{AtomicOp, IpFields, IpVersion, SendTail};

/// Returns headers, payload and padding, as PSP carries them.
fn message(golden: &Golden) -> Vec<u8> {
    let mut message = golden.bytes.clone();
    message.extend(common::payload(golden.packet.payload_len));
    message.resize(message.len() + golden.packet.pad_len() as usize, 0);
    message
}

fn decode(message: &[u8]) -> Result<Packet, WireError> {
    codec::decode(message, Timestamp::new(0)).map(|decoded| decoded.packet)
}

fn of(name: &str) -> Golden {
    all().into_iter().find(|golden| golden.name == name).unwrap_or_else(|| panic!("no packet is called {name}"))
}

/// Probe 1 of the conformance list: exact encoding and decoding of every table, with the tables' widths; reserved
/// types are rejected.
#[test]
fn probe1_every_table_byte_for_byte() {
    for golden in all() {
        let (name, packet) = (golden.name, &golden.packet);
        let mut headers = [0xee; HEADERS_MAX];
        let len = codec::encode_headers(packet, &mut headers).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(headers[..len], golden.bytes, "{name}");
        assert_eq!(packet.headers_len() as usize, len, "{name}");

        let message = message(&golden);
        assert_eq!(packet.message_len() as usize, message.len(), "{name}");
        let decoded = codec::decode(&message, packet.timestamp).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(decoded.packet, *packet, "{name}");
        assert_eq!(decoded.payload, len..len + packet.payload_len as usize, "{name}");
    }
}

/// Sizes given by the specification: 1.2 to 1.6 of our reference, sections 7.2 to 7.8 of the specification.
#[test]
fn probe1_sizes() {
    let falcon = |name| of(name).packet.body.packet_type().headers_len();
    assert_eq!(falcon("RDMA READ response only"), 24, "base header");
    assert_eq!(falcon("RDMA READ request"), 32);
    assert_eq!(falcon("SEND only"), 28);
    assert_eq!(falcon("Resync of Push Data"), 32);
    assert_eq!((of("BACK").bytes.len(), of("EACK").bytes.len()), (32, 72));
    assert_eq!(of("NACK for an xLR").bytes.len(), 40);
    assert_eq!(of("NVMe Write Data").bytes.len() - 24, 32, "NBTH");
    assert_eq!(of("NVMe Read Request").bytes.len() - 28, 64);
    let rdma = |name| of(name).packet.body.ulp().map(Ulp::headers_len);
    assert_eq!(rdma("SEND only"), Some(12 + 4 + 4));
    assert_eq!(rdma("RDMA WRITE only"), Some(12 + 16));
    assert_eq!(rdma("RDMA READ request"), Some(12 + 16 + 4 + 12));
    assert_eq!(rdma("ATOMIC compare and swap"), Some(12 + 28 + 4 + 12));
    assert_eq!(rdma("ATOMIC response"), Some(12 + 8 + 12));
    assert_eq!(rdma("UD SEND only with immediate"), Some(12 + 8 + 4));
}

#[test]
fn probe1_reserved_types_are_refused() {
    let mut seen = BTreeSet::new();
    for code in 0..16u8 {
        let reserved = matches!(code, 1 | 2 | 4 | 7 | 11..=15);
        assert_eq!(PacketType::from_code(code).is_none(), reserved, "type {code}");
        let mut bytes = message(&of("SEND only"));
        bytes[7] = bytes[7] & 0xe1 | code << 1;
        match decode(&bytes) {
            Err(WireError::PacketType) => assert!(reserved, "type {code}"),
            _ => assert!(!reserved && seen.insert(code), "type {code}"),
        }
    }
    assert_eq!(seen.len(), PacketType::ALL.len());
    for code in 0..8u8 {
        let mut bytes = message(&of("SEND only"));
        bytes[7] = bytes[7] & 0x1f | code << 5;
        let expected = match code {
            2 => None,
            // Too short for NVMe's base header.
            3 => Some(WireError::Short),
            _ => Some(WireError::Protocol),
        };
        assert_eq!(decode(&bytes).err(), expected, "upper layer {code}");
    }
}

#[test]
fn probe1_reserved_codes_are_refused() {
    let with = |name, at: usize, byte: u8| {
        let mut bytes = message(&of(name));
        bytes[at] = byte;
        decode(&bytes)
    };
    for code in 0..=u8::MAX {
        let nack = with("NACK for lack of resources", 36, code);
        assert_eq!(nack.err(), (!matches!(code, 1 | 2 | 4 | 6 | 7 | 8)).then_some(WireError::Code), "NACK {code}");
        let resync = with("Resync of Pull Data", 24, code);
        assert_eq!(resync.err(), (!matches!(code, 1..=7)).then_some(WireError::Code), "Resync {code}");
        // The table row of the opcode, determined by the type of Falcon packet that carries it.
        let push = matches!(code, 0x00..=0x0b | 0x16 | 0x17 | 0x64 | 0x65);
        let other = matches!(code, 0x0c..=0x10 | 0x12..=0x14);
        let expected = match (push, other) {
            (true, _) => None,
            (_, true) => Some(WireError::Transaction),
            _ => Some(WireError::Opcode),
        };
        assert_eq!(with("RDMA WRITE first", 31, code).err(), expected, "opcode {code:#x}");
    }
    for kind in 0..16u8 {
        let resync = with("Resync of Pull Data", 25, kind << 4);
        assert_eq!(resync.err(), (!matches!(kind, 0 | 3 | 5)).then_some(WireError::Original), "type {kind}");
        let storage = with("NVMe Write Completion", 28, 0x10 | kind);
        let expected = match kind {
            // 36 bytes are too few for a command, and a response may be empty.
            0 | 4 => Some(WireError::Short),
            1 | 2 => Some(WireError::Transaction),
            3 | 5 => None,
            _ => Some(WireError::Opcode),
        };
        assert_eq!(storage.err(), expected, "NVMe type {kind}");
    }
}

#[test]
fn every_opcode_has_a_golden_packet() {
    let goldens = all();
    let rdma = |golden: &Golden| match golden.packet.body.ulp() {
        Some(Ulp::Rdma(_)) => Some(golden.bytes[golden.packet.body.packet_type().headers_len() as usize + 3]),
        _ => None,
    };
    let opcodes: BTreeSet<u8> = goldens.iter().filter_map(rdma).collect();
    let expected: BTreeSet<u8> = (0x00..=0x10).chain([0x12, 0x13, 0x14, 0x16, 0x17, 0x64, 0x65]).collect();
    assert_eq!(opcodes, expected);
    let storage = |golden: &Golden| match golden.packet.body.ulp() {
        Some(Ulp::Nvme(_)) => Some(golden.bytes[golden.packet.body.packet_type().headers_len() as usize] & 0xf),
        _ => None,
    };
    assert_eq!(goldens.iter().filter_map(storage).collect::<Vec<u8>>(), [0, 1, 2, 3, 4, 5]);
    let types: BTreeSet<PacketType> = goldens.iter().map(|golden| golden.packet.body.packet_type()).collect();
    assert_eq!(types, PacketType::ALL.into_iter().collect());
}

#[test]
fn codes_are_those_of_the_tables() {
    let nack = |code: u8| NackCode::from_code(code, RnrTimer::from_code(9), 7).map(|nack| nack.code());
    assert_eq!((0..=9).filter_map(nack).collect::<Vec<u8>>(), [1, 2, 4, 6, 7, 8]);
    for (at, code) in ResyncCode::ALL.into_iter().enumerate() {
        assert_eq!((usize::from(code.code()), ResyncCode::from_code(code.code())), (at + 1, Some(code)));
    }
    let endings: Vec<u8> = (0..=u8::MAX).filter(|code| CompletionCode::from_code(*code).is_some()).collect();
    assert_eq!(endings, [0, 1, 3, 4, 8, 9, 0xa, 0xb, 0xc, 0xd, 0xf]);
    for code in CompletionCode::ALL {
        assert_eq!(CompletionCode::from_code(code.code()), Some(code));
    }
}

/// Times in hundredths of milliseconds, as in the specification's table.
#[test]
fn rnr_waits_match_the_table() {
    let table = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, // 0 to 15
        256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        49152, // 16 to 31
    ];
    for (code, hundredths) in table.into_iter().enumerate() {
        assert_eq!(RnrTimer::from_code(code as u8).wait(), Duration::from_us(hundredths * 10), "code {code}");
    }
    assert_eq!(RnrTimer::from_code(0x2a).code(), 10, "five bits");
    for (least, code) in [(0, 1), (10, 1), (11, 2), (491_520, 31), (491_521, 0), (655_361, 0)] {
        assert_eq!(RnrTimer::at_least(Duration::from_us(least)).code(), code, "{least} us");
    }
}

#[test]
fn timestamps_count_units_of_131_072_ns() {
    assert_eq!(Timestamp::UNIT, Duration::from_ps(131_072));
    assert_eq!(Timestamp::at(Time::from_ps(131_071)), Timestamp::new(0));
    assert_eq!(Timestamp::at(Time::from_ps(131_072)), Timestamp::new(1));
    // 2^32 units are 562.95 s.
    assert_eq!(Timestamp::at(Time::from_ps((1 << 49) + 131_072 * 7)), Timestamp::new(7));
    let (early, late) = (Timestamp::new(u32::MAX - 1), Timestamp::new(3));
    assert_eq!((late.units_since(early), late.since(early)), (5, Duration::from_ps(5 * 131_072)));
    assert!(early.is_before(late) && !late.is_before(early) && !late.is_before(late));
    assert_eq!(Timestamp::new(0x1234_5678).low24(), 0x34_5678);
}

/// After losses {3, 7, 9} of 0..20, the bytes of one acknowledgement report exactly these losses.
#[test]
fn f9_bitmaps_on_the_wire_report_the_missing_packets() {
    let received = (0..=20u32).filter(|psn| ![3, 7, 9].contains(psn));
    let base = 3;
    let bits = received.filter(|psn| *psn > base).fold(0, |bits, psn| bits | 1u128 << (psn - base));
    let bitmaps = Bitmaps { data_acked: bits, data_received: bits, request_received: 0 };
    let mut packet = Packet { body: Body::ExtendedAck(Acknowledgement::default(), bitmaps), ..of("EACK").packet };
    packet.bases.data = Psn32::new(base);
    let mut out = [0; HEADERS_MAX];
    let len = codec::encode_headers(&packet, &mut out).expect("a legal packet");
    // 128 bits in words 8 to 11 and 12 to 15; bit n of the big-endian number is for base + n.
    for at in [32, 48] {
        let on_the_wire = u128::from_be_bytes(out[at..at + 16].try_into().expect("sixteen bytes"));
        let missing_psns: Vec<u32> = (0..18).filter(|bit| on_the_wire >> bit & 1 == 0).map(|bit| base + bit).collect();
        assert_eq!((missing_psns, on_the_wire >> 18), (vec![3, 7, 9], 0));
    }
    assert_eq!(decode(&out[..len]).map(|packet| packet.body), Ok(packet.body));
}

/// Checks that T1 of data and T3 of acknowledgements are carried in the initialization vector and nowhere else.
#[test]
fn f42_timestamps_are_carried_in_the_vector() {
    for golden in all() {
        for header in around() {
            let mut datagram = Vec::new();
            let payload = common::payload(golden.packet.payload_len);
            codec::assemble(&header, &golden.packet, &[&payload], &mut datagram).expect("a legal packet");
            assert_eq!(datagram[12..16], golden.packet.timestamp.value().to_be_bytes(), "{}", golden.name);
            let later = Packet { timestamp: Timestamp::new(0xaabb_ccdd), ..golden.packet };
            let mut other = Vec::new();
            codec::assemble(&header, &later, &[&payload], &mut other).expect("a legal packet");
            let differ = datagram.iter().zip(&other).enumerate().filter(|(_, (one, other))| one != other);
            assert!(differ.clone().count() > 0 && differ.clone().all(|(at, _)| (12..16).contains(&at)));
            assert_eq!(codec::decode_datagram(&other).map(|(_, decoded)| decoded.packet), Ok(later));
        }
    }
}

/// The receiver finds the flow in the low bits of the label, and the acknowledgement is sent with the same flow.
#[test]
fn f27_the_flow_is_in_the_labels_low_bits() {
    let path = common::path("[fd00::3]:49153", "[fd00::6]:1000");
    for (flows, bits) in [(1u8, 0), (4, 2), (8, 3)] {
        let mut labels = BTreeSet::new();
        for flow in 0..flows {
            let label = FlowLabel::of_flow(flow, bits, 0xa_bcde);
            labels.insert(label);
            assert_eq!(label.flow(bits), flow);
            for path in [path, path.reversed()] {
                let fields = IpFields { flow_label: label.get(), ..IpFields::default() };
                let mut frame = Vec::new();
                write_frame(&path, fields, &[0; 4], &mut frame);
                let word = u32::from_be_bytes(frame[14..18].try_into().expect("four bytes"));
                assert_eq!(word >> 20, 0x600, "version and traffic class are left alone");
                assert_eq!(FlowLabel::new(word).flow(bits), flow);
            }
        }
        assert_eq!(labels.len(), usize::from(flows), "labels of one connection are distinct");
    }
    // The other bits of the label change with the path: new entropy, same flow.
    let changed = FlowLabel::of_flow(2, 2, 0x1_2345);
    assert_eq!((changed.flow(2), changed.get()), (2, 0x1_2345 << 2 | 2));
    assert_eq!(FlowLabel::of_flow(3, 2, u32::MAX), FlowLabel::MAX, "twenty bits");
}

#[test]
fn fields_that_acknowledgements_do_not_carry_are_refused() {
    let refused = |packet: Packet| codec::encode_headers(&packet, &mut [0; HEADERS_MAX]).err();
    let unexpected = |packet_type, field| Some(EncodeError::Unexpected { packet_type, field });
    let back = of("BACK").packet;
    assert_eq!(refused(Packet { function: 1, ..back }), unexpected(PacketType::Ack, "a function"));
    let asking = Packet { ack_request: true, ..of("EACK").packet };
    assert_eq!(refused(asking), unexpected(PacketType::ExtendedAck, "a request for acknowledgement"));
    let named = Packet { protocol: UlpProtocol::Rdma, ..of("NACK for an xLR").packet };
    assert_eq!(refused(named), unexpected(PacketType::Nack, "an upper layer"));
    assert_eq!(refused(Packet { payload_len: 1, ..back }), Some(EncodeError::PayloadLength { bytes: 1 }));
}

#[test]
fn values_wider_than_their_fields_are_refused() {
    let field = |packet: Packet| match codec::encode_headers(&packet, &mut [0; HEADERS_MAX]) {
        Err(EncodeError::Range { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let ack = |change: fn(&mut Acknowledgement)| {
        let mut packet = of("BACK").packet;
        let Body::Ack(ack) = &mut packet.body else { panic!("a BACK") };
        change(ack);
        packet
    };
    assert_eq!(field(ack(|ack| ack.hops = 16)), "the hop count");
    assert_eq!(field(ack(|ack| ack.rx_level = 32)), "the buffer level");
    assert_eq!(field(ack(|ack| ack.ecn = 1 << 14)), "the ECN mark count");
    assert_eq!(field(ack(|ack| ack.metadata = 1 << 22)), "the adaptive engine's metadata");
    assert_eq!(field(Packet { function: 1 << 24, ..of("SEND only").packet }), "the function number");
    let mut nack = of("NACK for an xLR").packet;
    let Body::Nack(fields) = &mut nack.body else { panic!("a NACK") };
    fields.metadata = 1 << 24;
    assert_eq!(field(nack), "the adaptive engine's metadata");
}

#[test]
fn packet_type_and_protocol_must_match_the_upper_layer() {
    let encode = |packet: Packet| codec::encode_headers(&packet, &mut [0; HEADERS_MAX]).err();
    let write = of("RDMA WRITE only").packet;
    let bare = |protocol| {
        let Body::PushData { psn, rsn, length, .. } = write.body else { panic!("a push") };
        Packet { protocol, body: Body::PushData { psn, rsn, length, ulp: Ulp::None }, ..write }
    };
    let missing = |field| Some(EncodeError::Missing { packet_type: PacketType::PushData, field });
    assert_eq!(encode(bare(UlpProtocol::Rdma)), missing("headers of its own upper layer"));
    assert_eq!(encode(bare(UlpProtocol::None)), missing("an upper layer"));
    assert_eq!(encode(Packet { protocol: UlpProtocol::Nvme, ..write }), missing("headers of its own upper layer"),);
    let Body::PushData { psn, rsn, ulp, .. } = write.body else { panic!("a push") };
    let field = "this operation of the upper layer";
    assert_eq!(
        encode(Packet { body: Body::PullData { psn, rsn, ulp }, ..write }),
        Some(EncodeError::Unexpected { packet_type: PacketType::PullData, field }),
    );
    let wrong_length = Packet { body: Body::PushData { psn, rsn, length: 33, ulp }, ..write };
    assert_eq!(encode(wrong_length), Some(EncodeError::RequestLength { length: 33, payload: 32 }));
    let request = Packet { payload_len: 4, ..of("RDMA READ request").packet };
    assert_eq!(encode(request), Some(EncodeError::PayloadLength { bytes: 4 }));
    let field = "a Resync for a packet type without a sequence number";
    let mut resync = of("Resync of Pull Data").packet;
    let Body::Resync { of: original, .. } = &mut resync.body else { panic!("a Resync") };
    *original = PacketType::Nack;
    assert_eq!(encode(resync), Some(EncodeError::Unexpected { packet_type: PacketType::Resync, field }));
    assert_eq!(of("Resync of a Pull Request").packet.body.window(), Some(Window::Request));
    assert_eq!(of("Resync of Push Data").packet.body.window(), Some(Window::Data));
}

#[test]
fn probe1_wrong_lengths_are_refused() {
    for golden in all() {
        let message = message(&golden);
        for len in 0..golden.bytes.len() {
            assert!(decode(&message[..len]).is_err(), "{}: {len} bytes", golden.name);
        }
        let mut longer = message.clone();
        longer.push(0);
        let expected = match golden.packet.body {
            Body::PushData { .. } => Some(WireError::RequestLength),
            Body::PullRequest { ulp: Ulp::Rdma(_), .. } | Body::PullData { ulp: Ulp::Rdma(_), .. } => {
                Some(WireError::Padding)
            }
            // Data of a storage unit has no padding, and any length up to the maximum.
            Body::PullData { .. } => None,
            _ => Some(WireError::PayloadLength),
        };
        assert_eq!(decode(&longer).err(), expected, "{}", golden.name);
    }
    let mut most = message(&of("NVMe Write Data"));
    most.resize(24 + 32 + 4224, 0);
    assert!(decode(&most).is_ok());
    most.push(0);
    assert_eq!(decode(&most), Err(WireError::PayloadLength));
}

#[test]
fn versions_are_checked() {
    for (name, at, expected) in [
        ("SEND only", 0, WireError::Version),
        ("EACK", 0, WireError::Version),
        ("SEND only", 28, WireError::UlpVersion),
        ("NVMe Read Response", 28, WireError::UlpVersion),
    ] {
        let mut bytes = message(&of(name));
        bytes[at] ^= 0x20;
        assert_eq!(decode(&bytes), Err(expected), "{name}");
    }
}

/// Ethernet 14, IPv6 40, UDP 8, PSP 24 with a cookie, Falcon 28, RDMA 28, check value 16, frame check sequence 4
/// bytes; preamble and gap 20.
#[test]
fn lengths_add_up_to_frames() {
    let write = of("RDMA WRITE first").packet;
    let tunnel = Encapsulation { ip: IpVersion::V6, form: Form::PspCookie };
    assert_eq!(write.frame_len(tunnel), 14 + 40 + 8 + 24 + 28 + 28 + 4096 + 16 + 4);
    assert_eq!(write.link_len(tunnel), write.frame_len(tunnel) + 20);
    assert_eq!(write.frame_len(Encapsulation::IPV6), write.frame_len(tunnel) - 8);
    // ESP: 16, and a trailer that pads to a multiple of 4 bytes.
    let esp = Encapsulation { ip: IpVersion::V6, form: Form::Esp };
    assert_eq!(write.frame_len(esp), 14 + 40 + 8 + 16 + 28 + 28 + 4096 + 4 + 16 + 4);
    let back = of("BACK").packet;
    assert_eq!(back.udp_payload_len(Encapsulation::IPV6), 16 + 32 + 16);
    for golden in all() {
        for header in around() {
            let encapsulation = Encapsulation { ip: IpVersion::V6, form: Form::psp(header.cookie.is_some()) };
            let (mut datagram, mut frame) = (Vec::new(), Vec::new());
            let payload = common::payload(golden.packet.payload_len);
            let layout = codec::assemble(&header, &golden.packet, &[&payload], &mut datagram).expect("legal");
            assert_eq!(golden.packet.udp_payload_len(encapsulation) as usize, datagram.len(), "{}", golden.name);
            assert_eq!(datagram[layout.message()], message(&golden), "{}", golden.name);
            assert_eq!(datagram[layout.icv()], [0; 16]);
            write_frame(&common::paths()[1], IpFields::default(), &datagram, &mut frame);
            assert_eq!(golden.packet.frame_len(encapsulation) as usize, frame.len() + 4, "{}", golden.name);
        }
    }
}

/// Returns the mask of a packet's reserved header bits according to the tables.
fn reserved(packet: &Packet) -> Vec<u8> {
    const START: &str = "0f000000 00000000 00000000 00000000";
    // In the second word, acknowledgements have only the type; T1, T2, levels and marks follow the fourth word.
    const ACK: &str = "0f000000 ffffffe1 00000000 00000000  00000000 00000000 000001ff ff000000";
    let bitmaps = "00000000".repeat(10);
    let own = match packet.body {
        Body::PullRequest { .. } => [START, "00000000 00000000", "ffff0000 ffffffff"],
        Body::PushData { .. } => [START, "00000000 00000000", "ffff0000"],
        Body::PullData { .. } => [START, "00000000 00000000", ""],
        Body::Resync { .. } => [START, "00000000 00000000", "000fffff 00000000"],
        Body::Ack(_) => [ACK, "", ""],
        Body::ExtendedAck(..) => [ACK, &bitmaps, ""],
        // The wait and the upper layer's reason are defined only for some codes.
        Body::Nack(Nack { code: NackCode::NotReady { .. }, .. }) => [ACK, "00000000", "00e07fff"],
        Body::Nack(Nack { code: NackCode::CompleteInError { .. } | NackCode::NonRecoverable { .. }, .. }) => {
            [ACK, "00000000", "00ff7f00"]
        }
        Body::Nack(_) => [ACK, "00000000", "00ff7fff"],
    };
    let upper = packet.body.ulp().map(reserved_above).unwrap_or_default().concat();
    let digits: Vec<u8> = (own.concat() + &upper).bytes().filter(|digit| *digit != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

/// Returns the same for the headers of the upper layer.
fn reserved_above(ulp: &Ulp) -> [&str; 3] {
    const RBTH: &str = "0fffe200 000000ff 00000000";
    const NBTH: &str = "00000000 c7000000 00000000 00000000 ffffffff ffffffff ffffffff ffffffff";
    match ulp {
        Ulp::None => [""; 3],
        Ulp::Rdma(header) => match header.operation {
            Operation::Send { tail: SendTail::Plain, .. } => [RBTH, "00000000 00000000", ""],
            Operation::Send { .. } => [RBTH, "00000000 00000000", "00000000"],
            Operation::Write { tail: None, .. } => [RBTH, "00000000 00000000 00000000 00000000", ""],
            Operation::Write { .. } => [RBTH, "00000000 00000000 00000000 00000000", "00000000 00000000"],
            Operation::ReadRequest { .. } => {
                [RBTH, "00000000 00000000 00000000 00000000 00000000", "00000000 00000000 00000000"]
            }
            Operation::ReadResponse { .. } => [RBTH, "00000000 00000000 00000000", ""],
            Operation::AtomicRequest { op, .. } => [
                RBTH,
                match op {
                    AtomicOp::CompareSwap { .. } => "00000000 00000000 00000000 00000000 00000000 00000000 00000000",
                    AtomicOp::FetchAdd { .. } => "00000000 00000000 00000000 00000000 00000000 ffffffff ffffffff",
                },
                "00000000 00000000 00000000 00000000",
            ],
            Operation::AtomicResponse { .. } => [RBTH, "00000000 00000000", "00000000 00000000 00000000"],
            Operation::Datagram { immediate: None, .. } => [RBTH, "00000000 ff000000", ""],
            Operation::Datagram { .. } => [RBTH, "00000000 ff000000", "00000000"],
        },
        Ulp::Nvme(header) => match header.operation {
            nvme::Operation::WriteDataRequest | nvme::Operation::WriteData => [NBTH, "", ""],
            nvme::Operation::WriteCompletion { .. } | nvme::Operation::ReadResponse { .. } => [NBTH, "ffff8000", ""],
            nvme::Operation::WriteRequest { .. } => {
                [NBTH, "00000000 00000000 00000000 0000f0c0 00ff0000", "00000000 00000000 ffffff00"]
            }
            nvme::Operation::ReadRequest { .. } => {
                [NBTH, "00000000 00000000 00000000 0000ffc0 00ffffff", "00000000 00000000 ffffff00"]
            }
        },
    }
}

/// Checks that a decoded packet does not depend on reserved bits, and does depend on every other bit.
#[test]
fn only_reserved_bits_are_ignored() {
    for golden in all() {
        let (name, whole, mask) = (golden.name, message(&golden), reserved(&golden.packet));
        assert_eq!(mask.len(), golden.bytes.len(), "{name}");
        let expected = decode(&whole);
        for at in 0..mask.len() * 8 {
            let (at, bit) = (at / 8, 1 << (at % 8));
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            assert_eq!(decode(&bytes) == expected, mask[at] & bit != 0, "{name}, byte {at}, bit {bit:#x}");
        }
        let mut bytes = whole;
        bytes.iter_mut().zip(&mask).for_each(|(byte, reserved)| *byte |= reserved);
        assert_eq!(decode(&bytes), expected, "{name}, all of them");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn every_legal_packet_round_trips(packet in strategy::packet(), header in strategy::around()) {
        let payload = common::payload(packet.payload_len);
        let mut datagram = Vec::new();
        codec::assemble(&header, &packet, &[&payload], &mut datagram).expect("a legal packet");
        let encapsulation = Encapsulation { ip: IpVersion::V6, form: Form::psp(header.cookie.is_some()) };
        prop_assert_eq!(datagram.len(), packet.udp_payload_len(encapsulation) as usize);
        let decoded = codec::decode_datagram(&datagram);
        let (around, decoded) = decoded.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(decoded.packet, packet);
        prop_assert_eq!(&datagram[decoded.payload], &payload[..]);
        prop_assert_eq!(around.iv.timestamp, packet.timestamp);
        prop_assert_eq!(psp::Header { iv: header.iv, ..around }, header);
        prop_assert_eq!(around.iv.salt, header.iv.salt);
    }

    #[test]
    fn labels_keep_their_flow(entropy in any::<u32>(), bits in 0..=FlowLabel::INDEX_BITS_MAX, flow in 0..8u8) {
        let flow = flow & ((1 << bits) - 1) as u8;
        let label = FlowLabel::of_flow(flow, bits, entropy);
        prop_assert_eq!(label.flow(bits), flow);
        prop_assert_eq!(label.get() >> bits, entropy & (FlowLabel::MAX.get() >> bits));
    }
}
