//! Tests with datagrams of two connected NICs, without engines.

use std::path::Path;
use std::sync::Arc;

use rnic_base::{Psn, Psn32, RandomStreams, Serial};
use rnic_engine::{RnrTimer, TransmitKind};
use rnic_psp::Secret;
use rnic_wire::falcon::psp::Cipher;
use rnic_wire::falcon::rdma::{self, Operation};
use rnic_wire::falcon::{Body, Cid, Ulp, UlpProtocol, WindowBases};
use rnic_wire::scr::{self, Cookie, MESSAGE_LEN, Message, ProbePath};
use rnic_wire::{Position, Reth};

use super::*;
use crate::protection::{SECRET_TEXT_MAX, exposure_warning, secret_of};
use crate::sys::unix::own_uid;

const LEFT: (&str, u32) = ("10.0.0.1:4791", 0x11);
const RIGHT: (&str, u32) = ("10.0.0.2:4791", 0x22);

fn protection(cipher: Cipher) -> Option<Protection> {
    Some(Protection::new(Secret::new([3; 32]), cipher))
}

/// Returns a protection with ESP instead of PSP.
fn esp(cipher: Cipher) -> Option<Protection> {
    protection(cipher).map(|protection| protection.within(SecurityFormat::Esp))
}

/// Creates the Falcon endpoint of one end, connected to the other.
fn end(protection: Option<Protection>, here: (&str, u32), there: (&str, u32)) -> Falcon {
    let mut falcon = Falcon::new(protection);
    let profile = rnic_transports::select("falcon", [("flows", "4")]).expect("a transport");
    let transport = Arc::new(Transport::new(profile).expect("a complete profile"));
    falcon.add(Qpn::new(here.1), &transport);
    connect(&mut falcon, here, there);
    falcon
}

/// Connects `here` to `there`; may be called again for a new connection.
fn connect(falcon: &mut Falcon, here: (&str, u32), there: (&str, u32)) {
    let addresses = Addresses::new(here.0.parse().expect("an address"), there.0.parse().expect("an address"));
    let connection = QpConnection {
        peer: PeerId(7),
        dest_qpn: Qpn::new(there.1),
        rq_psn: Psn::new(5),
        mtu: 1_024,
        min_rnr_timer: RnrTimer::from_code(1),
        max_dest_rd_atomic: 1,
    };
    falcon.connect(Qpn::new(here.1), &connection, &addresses.expect("both IPv4"));
}

fn ends(protection: Option<Protection>) -> (Falcon, Falcon) {
    (end(protection.clone(), LEFT, RIGHT), end(protection, RIGHT, LEFT))
}

/// Creates a Write of `payload_len` bytes from the left end to the right.
fn write(payload_len: u32) -> FalconTransmit {
    let reth = Reth { va: 0x1000, rkey: 5, dma_len: payload_len };
    let operation = Operation::Write { position: Position::Only, reth, tail: None };
    let (dest_qpn, sn) = (Qpn::new(RIGHT.1), rdma::Sn::new(9));
    let ulp = Ulp::Rdma(rdma::Header { dest_qpn, sn, solicited: false, complete_in_error: false, operation });
    let length = ulp.request_len(payload_len) as u16;
    let body = Body::PushData { psn: Psn32::new(3), rsn: Serial::new(4), length, ulp };
    let packet = Packet {
        cid: Cid::new(RIGHT.1),
        function: 0,
        protocol: UlpProtocol::Rdma,
        ack_request: true,
        bases: WindowBases::default(),
        timestamp: rnic_wire::falcon::Timestamp::default(),
        payload_len,
        body,
    };
    let (from, kind) = (Qpn::new(LEFT.1), TransmitKind::Request);
    FalconTransmit { packet, peer: PeerId(7), label: FlowLabel::new(0xa_bcd6), from, kind }
}

/// Creates a Write whose payload bytes count upward, in two segments; returns it with the segments and their memory.
fn write_of(payload_len: usize) -> (FalconTransmit, [Segment; 2], Memory) {
    let mut memory = Memory::default();
    let slot = memory.allocate(payload_len.max(1)).expect("a few bytes");
    memory.bytes_mut(slot).iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    let cut = (payload_len / 3) as u32;
    let local = Memory::local(slot);
    let rest = Segment { local: local + u64::from(cut), len: payload_len as u32 - cut };
    (write(payload_len as u32), [Segment { local, len: cut }, rest], memory)
}

/// Returns the datagram of such a Write.
fn datagram(falcon: &mut Falcon, now: Time, payload_len: usize) -> Vec<u8> {
    let (transmit, segments, memory) = write_of(payload_len);
    let mut out = vec![0xee; falcon.datagram_len(&transmit.packet, IpVersion::V4) as usize];
    assert!(falcon.can_write(&transmit));
    falcon.write(now, &transmit, &segments, &memory, &mut out).expect("the memory is mapped");
    out
}

/// Returns the record that shared memory carries instead of that datagram.
fn record(falcon: &mut Falcon, now: Time, payload_len: usize) -> Vec<u8> {
    let (transmit, segments, memory) = write_of(payload_len);
    let mut out = Vec::new();
    falcon.write_cleartext(now, &transmit, &segments, &memory, &mut out).expect("the memory is mapped");
    assert_eq!(out.len(), falcon.datagram_len(&transmit.packet, IpVersion::V4) as usize - psp::ICV_LEN);
    out
}

fn source() -> IpAddr {
    "10.0.0.1".parse().expect("an address")
}

const NOW: Time = Time::from_ps(77_000_000_000);

#[test]
fn f42_written_packets_are_admitted_in_clear_and_with_every_cipher() {
    let protections = [None].into_iter().chain(Cipher::ALL.map(protection)).chain(Cipher::ALL.map(esp));
    for protection in protections {
        let (mut left, mut right) = ends(protection.clone());
        for len in [0, 1, 5, 64, 1_024, 4_096] {
            let mut bytes = datagram(&mut left, NOW, len);
            assert!(is_falcon(&bytes));
            let admitted = right.admit(source(), &mut bytes).expect("the packet is from its peer");
            let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert_eq!(bytes[admitted.payload], payload, "{protection:?}");
            assert_eq!(admitted.packet.timestamp, rnic_wire::falcon::Timestamp::at(NOW), "not the time of sending");
            assert_eq!((admitted.peer, admitted.packet.body), (PeerId(7), write(len as u32).packet.body));
            assert_eq!(admitted.label.flow(2), write(1).label.flow(2));
        }
    }
}

/// Packets that the left end sends under its previous connection are not accepted as packets of the new one.
#[test]
fn f42_reconnected_ends_accept_only_packets_of_the_new_connection() {
    for protection in [None, protection(Cipher::Gcm128), esp(Cipher::Gcm128)] {
        let (mut left, mut right) = ends(protection.clone());
        for _ in 0..10 {
            assert!(right.admit(source(), &mut datagram(&mut left, NOW, 40)).is_ok());
            connect(&mut right, RIGHT, LEFT);
            let late = right.admit(source(), &mut datagram(&mut left, NOW, 40));
            // Without a key, only the connection ids distinguish the packets, and the transport checks those.
            assert_eq!(late.is_err(), protection.is_some());
            connect(&mut left, LEFT, RIGHT);
        }
    }
}

/// When the system provides no random bits for the keys of a connection, its packets are neither encrypted nor
/// decrypted, and packets received earlier do not affect the next connection.
#[test]
fn f42_a_connection_without_random_bits_accepts_nothing_and_keeps_replay_state() {
    let (mut left, mut right) = ends(protection(Cipher::Gcm128));
    let mut recorded = datagram(&mut left, NOW, 40);
    assert!(right.admit(source(), &mut recorded.clone()).is_ok());
    let path = Addresses::new(RIGHT.0.parse().expect("an address"), LEFT.0.parse().expect("an address"));
    let numbers = (Qpn::new(RIGHT.1), Qpn::new(LEFT.1));
    let secret = protection(Cipher::Gcm128).expect("it is protected");
    let guard = right.guards.get_mut(&numbers.0).expect("it was added");
    guard.protect(&secret, &path.expect("both IPv4"), numbers, None);
    assert!(!guard.has_keys());
    assert!(right.admit(source(), &mut datagram(&mut left, NOW, 40)).is_err());
    connect(&mut right, RIGHT, LEFT);
    assert!(right.admit(source(), &mut recorded).is_err());
    connect(&mut left, LEFT, RIGHT);
    assert!(right.admit(source(), &mut datagram(&mut left, NOW, 40)).is_ok());
}

/// Two connections have the same secret, addresses, connection ids and time. If their cookies were equal too, their
/// keys and initialization vectors would be equal, and AES-GCM reveals both packets if two are encrypted with one
/// vector.
#[test]
fn f42_cookies_never_repeat() {
    let mut cookies = Vec::new();
    for _ in 0..20 {
        let (mut left, _) = ends(protection(Cipher::Gcm128));
        for _ in 0..3 {
            let bytes = datagram(&mut left, NOW, 40);
            let (header, _) = psp::parse(&bytes).expect("a datagram of ours");
            cookies.push(header.cookie.expect("encrypted packets have a cookie"));
            connect(&mut left, LEFT, RIGHT);
        }
    }
    let count = cookies.len();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), count);
}

#[test]
fn every_flipped_bit_is_found() {
    for protection in [None, protection(Cipher::Gcm128), esp(Cipher::Gcm128)] {
        let (mut left, mut right) = ends(protection);
        let valid_datagram = datagram(&mut left, NOW, 40);
        for bit in 0..valid_datagram.len() * 8 {
            let mut bad = valid_datagram.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(right.admit(source(), &mut bad).is_err(), "bit {bit}");
        }
        assert!(right.admit(source(), &mut valid_datagram.clone()).is_ok());
    }
}

#[test]
fn packets_of_other_sources_or_without_the_key_are_refused() {
    let secret = protection(Cipher::Gcm128);
    let other = Some(Protection::new(Secret::new([4; 32]), Cipher::Gcm128));
    let refusal = |sender: &Option<Protection>, receiver: &Option<Protection>| {
        let (mut left, mut right) = (ends(sender.clone()).0, ends(receiver.clone()).1);
        right.admit(source(), &mut datagram(&mut left, NOW, 40)).err()
    };
    assert_eq!(refusal(&None, &secret), Some(RxDrop::Protection));
    assert_eq!(refusal(&secret, &None), Some(RxDrop::Protection));
    assert_eq!(refusal(&secret, &protection(Cipher::Gmac128)), Some(RxDrop::Protection));
    assert_eq!(refusal(&other, &secret), Some(RxDrop::Forged));
    assert_eq!(refusal(&secret, &secret), None);
    let esp_protection = esp(Cipher::Gcm128);
    assert_eq!(refusal(&secret, &esp_protection), Some(RxDrop::UnknownPeer), "a PSP packet was accepted as ESP");
    assert_eq!(refusal(&esp_protection, &secret), Some(RxDrop::Malformed));
    assert_eq!(refusal(&None, &esp_protection), Some(RxDrop::UnknownPeer));
    assert_eq!(refusal(&esp_protection, &esp(Cipher::Gcm256)), Some(RxDrop::Forged));
    assert_eq!(refusal(&esp_protection, &esp_protection), None);
    let (mut left, mut right) = ends(secret);
    let mut valid_datagram = datagram(&mut left, NOW, 40);
    let other_source = "10.0.0.3".parse().expect("an address");
    assert_eq!(right.admit(other_source, &mut valid_datagram.clone()).err(), Some(RxDrop::UnknownPeer));
    right.remove(Qpn::new(RIGHT.1));
    assert_eq!(right.admit(source(), &mut valid_datagram).err(), Some(RxDrop::UnknownPeer));
}

#[test]
fn a_queue_pair_without_a_key_sends_nothing() {
    let transmit = write(0);
    let mut left = Falcon::new(protection(Cipher::Gcm128));
    assert!(!left.can_write(&transmit));
    left.guards.insert(transmit.from, Guard::new(false));
    assert!(!left.can_write(&transmit), "an unconnected queue pair can send");
    assert!(Falcon::new(None).can_write(&transmit));
}

#[test]
fn flows_use_separate_paths() {
    let (left, _) = ends(None);
    let path =
        |index, entropy| left.path_of(&FalconTransmit { label: FlowLabel::of_flow(index, 2, entropy), ..write(0) });
    let mut paths: Vec<u8> = (0..4).map(|flow| path(flow, 9)).collect();
    assert!(paths.iter().all(|path| (1..=PATHS_MAX as u8).contains(path)));
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 4);
    assert_ne!(path(1, 9), path(1, 10), "a moved flow keeps its path");
    let mut single = end(None, LEFT, RIGHT);
    single.guards.insert(Qpn::new(LEFT.1), Guard::new(false));
    assert_eq!(single.path_of(&write(0)), 0);
}

/// Arbitrary input causes no panic, and a datagram that is accepted is one that was sent.
#[test]
fn hostile_datagrams_are_refused() {
    let mut random = RandomStreams::new(5).stream("hostile");
    for protection in [None, protection(Cipher::Gcm128), esp(Cipher::Gcm128)] {
        let (mut left, mut right) = ends(protection);
        for _ in 0..50_000 {
            let valid_datagram = datagram(&mut left, NOW, random.below(50) as usize);
            let mut bytes = valid_datagram.clone();
            match random.below(3) {
                0 => bytes[1..].iter_mut().for_each(|byte| *byte = random.bits() as u8),
                1 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                _ => {}
            }
            if let Some(byte) = bytes.get_mut(random.below(valid_datagram.len() as u64) as usize) {
                *byte = random.bits() as u8;
            }
            let same = bytes == valid_datagram;
            assert_eq!(right.admit(source(), &mut bytes).is_ok(), same);
        }
    }
}

/// Without a secret, any sender at the peer's address can compute a valid CRC: then only the codec protects the
/// engine. The codec must return a packet or an error for any input.
#[test]
fn random_contents_with_a_valid_crc_are_decoded_or_refused() {
    let mut random = RandomStreams::new(6).stream("hostile");
    let (mut left, mut right) = ends(None);
    let mut admitted = 0;
    for _ in 0..100_000 {
        let mut bytes = datagram(&mut left, NOW, random.below(50) as usize);
        for _ in 0..=random.below(3) {
            // Changes one bit or byte before the payload, and sometimes truncates the datagram.
            let at = random.below(bytes.len().min(psp::LEN_MAX + 60) as u64) as usize;
            bytes[at] = if random.below(2) == 0 { bytes[at] ^ 1 << random.below(8) } else { random.bits() as u8 };
        }
        if random.below(8) == 0 {
            bytes.truncate(psp::ICV_LEN + random.below((bytes.len() - psp::ICV_LEN) as u64) as usize);
        }
        let (covered, icv) = bytes.split_last_chunk_mut::<{ psp::ICV_LEN }>().expect("room for an ICV");
        *icv = [0; psp::ICV_LEN];
        icv[CRC_AT..].copy_from_slice(&copy_crc::checksum(covered).to_le_bytes());
        let Ok(Admitted { packet, payload, .. }) = right.admit(source(), &mut bytes) else { continue };
        admitted += 1;
        assert_eq!(bytes[payload].len(), packet.payload_len as usize);
        codec::encode_headers(&packet, &mut [0; HEADERS_MAX]).expect("what was read can be written");
    }
    assert!(admitted > 10_000, "{admitted} admitted");
}

#[test]
fn secrets_are_read_as_bytes_or_hex_digits() {
    let digits = "00ff".repeat(16);
    let expected = [0, 0xff].repeat(16);
    assert_eq!(secret_of(digits.as_bytes()).map(|secret| secret.to_vec()), Some(expected.clone()));
    assert_eq!(secret_of(format!("{digits}\n").as_bytes()).map(|secret| secret.to_vec()), Some(expected));
    assert_eq!(secret_of(&[7; 32]), Some([7; 32]));
    for wrong in [&b""[..], &[7; 31], &[7; 64], &digits.as_bytes()[1..], "+f".repeat(32).as_bytes()] {
        assert_eq!(secret_of(wrong), None);
    }
}

#[test]
fn a_secret_file_that_other_users_can_access_causes_a_warning() {
    let (own, other) = (own_uid(), own_uid() + 1);
    let warning = |mode: u32| exposure_warning(Path::new("/etc/secret"), 0o100_000 | mode, own);
    assert_eq!(exposure_warning(Path::new("/etc/secret"), 0o100_600, 0), None, "a secret of root causes a warning");
    let text = exposure_warning(Path::new("/etc/secret"), 0o100_600, other).unwrap_or_default();
    assert!(text.contains(&format!("belongs to user {other}")), "{text}");
    assert_eq!([warning(0o600), warning(0o400), warning(0o700)], [None, None, None]);
    for mode in [0o644, 0o640, 0o660, 0o602] {
        let text = warning(mode).unwrap_or_default();
        assert!(text.starts_with("/etc/secret: ") && text.contains("chmod 600 /etc/secret"), "{text}");
        assert!(text.contains(&format!("{mode:03o}")) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn an_endless_file_is_refused_as_a_secret() {
    let error = Protection::from_option(Path::new("/dev/zero")).expect_err("it is longer than any secret");
    assert!(error.contains("64 hexadecimal digits"), "{error}");
    let long = format!("{}{}", "00ff".repeat(16), " ".repeat(SECRET_TEXT_MAX));
    assert_eq!(secret_of(long.as_bytes()), None);
}

#[test]
fn a_record_is_the_datagram_without_its_check_value() {
    for len in [0, 1, 5, 64, 1_024, 4_096] {
        let (mut left, mut right) = ends(None);
        let mut bytes = record(&mut left, NOW, len);
        let by_memory = right.admit_in_clear(source(), (&*bytes).into()).expect("the packet is from its peer");
        check(&mut bytes);
        let by_socket = right.admit(source(), &mut bytes).expect("the datagram with its check value is valid");
        assert_eq!((by_memory.packet, by_memory.peer), (by_socket.packet, by_socket.peer));
        assert_eq!((by_memory.payload.clone(), by_memory.label), (by_socket.payload, by_socket.label));
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        assert_eq!(bytes[by_memory.payload], payload);
    }
}

/// The process that writes a shared-memory ring may write arbitrary bytes, and change them while they are read.
#[test]
fn invalid_records_are_refused() {
    let (mut left, mut right) = ends(None);
    let record_bytes = record(&mut left, NOW, 64);
    let other_source = "10.0.0.9".parse().expect("an address");
    assert_eq!(right.admit_in_clear(other_source, (&*record_bytes).into()).err(), Some(RxDrop::UnknownPeer));
    let (mut sealing, mut opening) = ends(protection(Cipher::Gcm128));
    assert_eq!(opening.admit_in_clear(source(), (&*record_bytes).into()).err(), Some(RxDrop::Protection), "no key");
    let sealed = datagram(&mut sealing, NOW, 64);
    assert_eq!(right.admit_in_clear(source(), (&*sealed).into()).err(), Some(RxDrop::Protection), "the key is unknown");
    for len in 0..record_bytes.len() {
        assert!(right.admit_in_clear(source(), record_bytes[..len].into()).is_err(), "{len} bytes were accepted");
    }
    let mut random = RandomStreams::new(5).stream("hostile records");
    let mut admitted = 0;
    for _ in 0..20_000 {
        let mut bytes = record_bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        bytes.truncate(bytes.len() - 4 * random.below(3) as usize);
        if let Ok(found) = right.admit_in_clear(source(), (&*bytes).into()) {
            assert!(found.payload.end <= bytes.len(), "{found:?} of {} bytes", bytes.len());
            admitted += 1;
        }
    }
    assert!(admitted > 1_000, "only {admitted} damaged records were admitted");
}

fn message() -> (Message, [u8; MESSAGE_LEN]) {
    let message = Message {
        dest_qpn: Qpn::new(RIGHT.1),
        source_qpn: Qpn::new(LEFT.1),
        cookie: Cookie::new(0x0102_0304_0506_0708),
        announced: Cookie::new(0x1112_1314_1516_1718),
        answer_wanted: true,
        is_last: false,
        sequence: Psn32::new(7),
        time: 0x2122_2324_2526_2728,
        body: scr::Body::Probe(ProbePath { index: 1, label: 2 }),
    };
    let addresses = Addresses::new(LEFT.0.parse().expect("an address"), RIGHT.0.parse().expect("an address"));
    (message, message.encode(&addresses.expect("both IPv4")).expect("it can be encoded"))
}

#[test]
fn s6_messages_are_sealed_within_a_connection_to_their_nic() {
    let (sent, bytes) = message();
    for (protection, len) in [(protection(Cipher::Gcm128), 168), (esp(Cipher::Gcm256), 164)] {
        let (mut left, mut right) = ends(protection);
        let to_nic = |port| Within::Nic(PeerId(7), port);
        for within in [Within::QueuePair(Qpn::new(LEFT.1)), to_nic(None), to_nic(Some(0)), to_nic(None)] {
            let sealed = left.seal_message(Time::from_us(9), within, &bytes).expect("there is a connection");
            assert_eq!(sealed.len(), len);
            assert!(!sealed.windows(8).any(|seen| seen == &bytes[16..24]), "a cookie is visible");
            for bit in 0..sealed.len() * 8 {
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(right.open(source(), &mut changed).is_err(), "bit {bit} may be changed");
            }
            let mut opened = sealed.clone();
            let content = right.open(source(), &mut opened).expect("it is authentic");
            assert!(content.is_message(&opened));
            assert_eq!((content.read_message(&opened), content.dest_qpn), (Ok(sent), Qpn::new(LEFT.1)));
        }
        let sealed = left.seal_message(Time::from_us(9), to_nic(None), &bytes).expect("there is a connection");
        assert_eq!(right.admit(source(), &mut sealed.clone()).err(), Some(RxDrop::Malformed), "it is no packet");
        let mut packet = datagram(&mut left, Time::from_us(10), 64);
        let opened = right.open(source(), &mut packet).expect("it is authentic");
        assert!(!opened.is_message(&packet), "a packet is no message");
    }
}

#[test]
fn s6_without_a_connection_that_has_a_key_no_message_is_sent() {
    let (_, bytes) = message();
    let sealed = |falcon: &mut Falcon, within| falcon.seal_message(Time::from_us(9), within, &bytes).is_some();
    let (mut left, _) = ends(protection(Cipher::Gcm128));
    let nic = Within::Nic(PeerId(7), None);
    assert!(sealed(&mut left, nic));
    for within in [
        Within::QueuePair(Qpn::new(99)),
        Within::Nic(PeerId(8), None),
        Within::Nic(PeerId(7), Some(crate::ports::port_of(Qpn::MAX))),
    ] {
        assert!(!sealed(&mut left, within), "{within:?}");
    }
    left.remove(Qpn::new(LEFT.1));
    assert!(!sealed(&mut left, nic), "the connection is gone");
    let (mut left, _) = ends(None);
    assert!(!sealed(&mut left, nic) && !sealed(&mut left, Within::QueuePair(Qpn::new(LEFT.1))), "there is no key");
}
