//! Tests of the sending and the receiving side of a direction with ESP: against another implementation, over time,
//! and under attack.

use rnic_base::RandomStreams;
use rnic_wire::falcon::esp::{self, encapsulation_len};

use super::*;
use crate::key::tests::{CID, COOKIE, DERIVED, at, bytes, context, secret};

fn sealer() -> Sealer {
    Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE)
}

fn opener() -> Opener {
    Opener::new(&secret(), Cipher::Gcm128, &context(), CID)
}

fn message(len: usize) -> Vec<u8> {
    (1..=len).map(|at| at as u8).collect()
}

/// Returns a sealed datagram with a message of `len` bytes.
fn datagram(sealer: &mut Sealer, now: Time, len: usize) -> Vec<u8> {
    let mut datagram = vec![0xee; encapsulation_len(len) + len];
    datagram[LEN..LEN + len].copy_from_slice(&message(len));
    sealer.seal(now, FlowLabel::new(2), len, &mut datagram);
    datagram
}

/// Opens a datagram and returns its message.
fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut bytes = datagram.to_vec();
    let (header, layout) = esp::parse(&bytes).expect("the datagram has the ESP format");
    let opened = opener.open(&header, layout, &mut bytes)?;
    assert_eq!(opened.label, 2);
    Ok(bytes[layout.message(&bytes).expect("the trailer is valid")].to_vec())
}

/// Two packets under each cipher, the second of the next generation, with another length and a time of more than 32
/// bits, made with Python's `cryptography` (over OpenSSL) from the secret, the context and the cookie, following only
/// the documentation of this module. Wireshark 4.0 decrypts the first four as "AES-GCM [RFC4106]", given their keys.
#[test]
fn f42_golden_datagrams_of_esp() {
    let cases = [
        (
            Cipher::Gcm128,
            "c0000022 00000001 05667789 00000005 667ae75d99e7ad862f5f39d6270209af76e5f7d097c5bdedeac1c15ab32046a3a8da51\
             d7c6e916e244f789e410f9ea10b7535c90",
            "c1000022 00000001 07667789 00000006 a194ec7d6780164362ffa259e320a21fba675a19e3e7a02998cf303ed25940ad\
             d1d90d2c14b61dc22ef4bfa59f1173f8",
        ),
        (
            Cipher::Gcm256,
            "c0000022 00000001 05667789 00000005 c74cc2930a9280b3bb363cf30123a023f5dbda0d4f48155634d7025d559d5b7d8dbaa7\
             6ee3274f5afdcdf9e6022ab50091660616",
            "c1000022 00000001 07667789 00000006 4a7781840386ef7c2048cb688b83a81662ce9c5876492b166049defda6a68c05\
             ffef0e4732e3ab8fda8e711710d8b54e",
        ),
        (
            Cipher::Gmac128,
            "c0000022 00000001 05667789 00000005 0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20010202\
             fc139b7575fd19ac547419014aab689271",
            "c1000022 00000001 07667789 00000006 0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e00fc\
             add43971561164618159083fc80b907d",
        ),
        (
            Cipher::Gmac256,
            "c0000022 00000001 05667789 00000005 0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20010202\
             fc9101dfe6226429b4c0830decb64e4dd7",
            "c1000022 00000001 07667789 00000006 0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e00fc\
             35ae4025e491e9d1ff7bd5a589d27f75",
        ),
    ];
    let context_bytes = bytes("00000000000000000000ffff0a000001 00000011 00000000000000000000ffff0a000002 00000022");
    let secret = Secret::new(std::array::from_fn(|at| at as u8));
    let (context, cid) = (Context::new(&context_bytes), Cid::new(0x22));
    for (cipher, first, second) in cases {
        let mut sealer = Sealer::new(&secret, cipher, &context, cid, COOKIE).rotating_after(1);
        let mut opener = Opener::new(&secret, cipher, &context, cid);
        for (expected, units, label, len) in [(first, 5_u64, 2, 32), (second, 0x5_0000_0006, 3, 30)] {
            let mut datagram = vec![0; encapsulation_len(len) + len];
            datagram[LEN..LEN + len].copy_from_slice(&message(len));
            sealer.seal(at(units), FlowLabel::new(label), len, &mut datagram);
            assert_eq!(datagram, bytes(expected), "{cipher:?}");
            let (header, layout) = esp::parse(&datagram).expect("the datagram has the ESP format");
            assert_eq!(header.iv.timestamp, Timestamp::at(at(units)), "the timestamp is not the send time");
            let opened = opener.open(&header, layout, &mut datagram).expect("the datagram is authentic");
            assert_eq!(opened.label, label as u8);
            assert_eq!(datagram[layout.message(&datagram).expect("the trailer is valid")], message(len));
        }
    }
}

#[test]
fn f42_messages_of_any_length_are_encrypted_completely_and_decrypted() {
    let (mut sealer, mut opener) = (sealer(), opener());
    for len in [0, 1, 2, 3, 4, 5, 31, 32, 60, 1_024, 4_096] {
        let datagram = datagram(&mut sealer, at(7), len);
        assert!(
            len < 16 || datagram[LEN..LEN + len].iter().zip(message(len)).filter(|(a, b)| *a == b).count() < len / 4
        );
        assert_eq!(open(&mut opener, &datagram), Ok(message(len)));
    }
}

/// Every bit of a datagram is authenticated, and a changed datagram changes no state.
#[test]
fn f42_every_flipped_bit_of_an_esp_packet_is_detected() {
    for begun in [false, true] {
        let (mut sealer, mut opener) = (sealer(), opener());
        if begun {
            assert!(open(&mut opener, &datagram(&mut sealer, at(5), 32)).is_ok());
        }
        let good = datagram(&mut sealer, at(9), 32);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let Ok((header, layout)) = esp::parse(&bad) else { continue };
            assert!(opener.open(&header, layout, &mut bad).is_err(), "bit {bit}, begun: {begun}");
            assert_eq!(opener.has_session(), begun);
        }
        let mut cut = good[..good.len() - 4].to_vec();
        let (header, layout) = esp::parse(&cut).expect("the shortened datagram has the ESP format");
        assert!(opener.open(&header, layout, &mut cut).is_err());
        assert_eq!(open(&mut opener, &good), Ok(message(32)), "begun: {begun}");
    }
}

/// No packet is accepted twice, in order or not; a packet older than the window is never accepted; a duplicate is not
/// decrypted and changes no state.
#[test]
fn f42_duplicates_are_refused_with_esp() {
    let (mut sealer, mut opener) = (sealer(), opener());
    let sent: Vec<_> = (0..u64::from(WINDOW) + 10).map(|units| datagram(&mut sealer, at(units), 4)).collect();
    for taken in [3, 2, 1, 5] {
        assert!(open(&mut opener, &sent[taken]).is_ok());
        assert_eq!(open(&mut opener, &sent[taken]), Err(Refusal::Replay));
    }
    let newest = WINDOW as usize + 3;
    assert!(open(&mut opener, &sent[newest]).is_ok());
    for (late, expected) in [(5, Some(Refusal::Replay)), (3, Some(Refusal::Replay)), (4, None), (6, None)] {
        assert_eq!(open(&mut opener, &sent[late]).err(), expected, "{late}");
    }
    assert_eq!(open(&mut opener, &sent[0]), Err(Refusal::Replay), "a packet before the window was not refused");
    assert!(open(&mut opener, &sent[newest + 6]).is_ok());
    assert_eq!(open(&mut opener, &sent[6]), Err(Refusal::Replay));
    // A forged packet that is far ahead does not move the window.
    let mut forged = datagram(&mut sealer, at(1), 4);
    forged[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    let session = COOKIE as u32 & SESSION_MASK;
    let counter = session.wrapping_sub(1) & SESSION_MASK;
    forged[8..12].copy_from_slice(&(2 << SESSION_BITS | counter).to_be_bytes());
    assert_eq!(open(&mut opener, &forged), Err(Refusal::Forged));
    assert!(open(&mut opener, &sent[newest + 1]).is_ok());
}

#[test]
fn the_replay_window_has_its_documented_width_at_any_sequence_number() {
    let mut random = RandomStreams::new(3).stream("window");
    let (mut window, mut model) = (ReplayWindow::default(), std::collections::BTreeSet::new());
    assert!(!window.accepts(0), "sequence number 0 was accepted");
    let mut newest = 0_u32;
    for _ in 0..200_000 {
        let sequence = match random.below(1_000) {
            0 => newest.saturating_add(random.below(20_000) as u32),
            _ => (newest + 3).saturating_sub(random.below(5_000) as u32),
        };
        let is_new = sequence > 0 && sequence > newest.saturating_sub(WINDOW) && !model.contains(&sequence);
        assert_eq!(window.accepts(sequence), is_new, "{sequence} with {newest} the newest");
        if is_new {
            window.record(sequence);
            model.insert(sequence);
            newest = newest.max(sequence);
        }
    }
    assert!(window.accepts(u32::MAX));
    window.record(u32::MAX);
    assert!(!window.accepts(u32::MAX) && window.accepts(u32::MAX - 1) && !window.accepts(u32::MAX - WINDOW));
}

/// The counters restart with each key, and a key is replaced before its vectors repeat.
#[test]
fn f42_keys_rotate_before_sequence_numbers_wrap() {
    let mut sealer = Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE).rotating_after(u64::MAX);
    let mut first = [0; encapsulation_len(4) + 4];
    let header = sealer.seal(at(1), FlowLabel::new(0), 4, &mut first);
    assert_eq!((header.sequence, sealer.generation()), (1, 0));
    sealer.keys.skip_packets(PACKETS_PER_KEY - 2);
    let last = sealer.seal(at(1), FlowLabel::new(0), 4, &mut first);
    assert_eq!((last.sequence, sealer.generation()), (SESSION_MASK, 0), "not the last sequence number of the key");
    assert_ne!(last.iv, header.iv);
    let next = sealer.seal(at(1), FlowLabel::new(0), 4, &mut first);
    assert_eq!((next.sequence, sealer.generation()), (1, 1));
    assert_ne!(next.spi, last.spi);
}

#[test]
fn f42_keys_of_esp_rotate_under_traffic() {
    let (mut opener, mut sealer) = (opener(), sealer().rotating_after(10));
    let mut random = RandomStreams::new(4).stream("order");
    let mut in_flight: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut accepted = 0;
    for units in 0..20_000 {
        in_flight.push((units, datagram(&mut sealer, at(units), 48)));
        // Packets arrive out of order, across rotations too.
        if in_flight.len() > 12 {
            let (sent, bytes) = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
            match open(&mut opener, &bytes) {
                Ok(bytes) => {
                    assert_eq!(bytes, message(48));
                    accepted += 1;
                }
                // The packet is delayed by more than one key change.
                Err(refusal) => assert!(refusal == Refusal::Index && units - sent > 10, "{sent}, {units}: {refusal}"),
            }
            assert!(open(&mut opener, &bytes).is_err(), "a duplicate was accepted");
        }
    }
    assert!(accepted > 15_000, "{accepted} packets were accepted");
    assert_eq!(sealer.generation(), 1_999, "the index should have wrapped 31 times");
    assert!(opener.generation() >= 1_995);
}

#[test]
fn with_esp_the_receiver_follows_rotations_of_which_it_received_no_packet() {
    let (mut opener, mut sealer) = (opener(), sealer());
    for begun in [false, true] {
        (0..GENERATIONS_AHEAD).for_each(|_| sealer.rotate());
        assert!(open(&mut opener, &datagram(&mut sealer, at(2), 32)).is_ok(), "begun: {begun}");
    }
    assert_eq!(opener.generation(), 2 * GENERATIONS_AHEAD);
    (0..=GENERATIONS_AHEAD).for_each(|_| sealer.rotate());
    assert_eq!(open(&mut opener, &datagram(&mut sealer, at(3), 32)), Err(Refusal::Index));
}

/// Forged indices cause each key to be derived once, as with PSP.
#[test]
fn f42_forged_indices_of_esp_cause_each_key_to_be_derived_once() {
    let (mut opener, mut peer, mut forger) = (opener(), sealer(), sealer());
    assert!(open(&mut opener, &datagram(&mut peer, at(1), 32)).is_ok());
    let before = DERIVED.get();
    let forged: Vec<_> = (0..64)
        .map(|_| {
            let mut bytes = datagram(&mut forger, at(1), 32);
            *bytes.last_mut().expect("the datagram is not empty") ^= 1;
            forger.rotate();
            bytes
        })
        .collect();
    let made_by_forger = DERIVED.get() - before;
    for bytes in forged.iter().chain(forged.iter().rev()) {
        assert!(open(&mut opener, bytes).is_err());
    }
    assert_eq!(DERIVED.get() - before - made_by_forger, GENERATIONS_AHEAD);
    assert!(open(&mut opener, &datagram(&mut peer, at(2), 32)).is_ok());
}

#[test]
fn packets_sealed_with_another_key_are_refused() {
    let good = datagram(&mut sealer(), at(9), 32);
    let with = |secret: Secret, cipher, context: &[u8], cid| {
        let mut opener = Opener::new(&secret, cipher, &Context::new(context), cid);
        open(&mut opener, &good).err()
    };
    let (gcm, path) = (Cipher::Gcm128, &b"this way"[..]);
    assert_eq!(with(secret(), gcm, path, CID), None);
    assert_eq!(with(Secret::new([8; 32]), gcm, path, CID), Some(Refusal::Forged));
    assert_eq!(with(secret(), gcm, b"that way", CID), Some(Refusal::Forged), "the key of the other direction");
    assert_eq!(with(secret(), gcm, path, Cid::new(3)), Some(Refusal::Index), "another connection");
    for cipher in [Cipher::Gcm256, Cipher::Gmac128, Cipher::Gmac256] {
        assert_eq!(with(secret(), cipher, path, CID), Some(Refusal::Forged));
    }
    // Another session between the same two ends, at the same time.
    let mut opener = opener();
    assert!(open(&mut opener, &good).is_ok());
    let mut other = Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE + 1);
    assert_eq!(open(&mut opener, &datagram(&mut other, at(9), 32)), Err(Refusal::Index));
}

/// Both ends are reset and reconnected under the same numbers: the end that is ready first receives packets of the
/// other's previous connection.
#[test]
fn f42_packets_of_an_earlier_connection_do_not_start_the_next_one_with_esp() {
    let mut opener = opener();
    let mut before: Vec<Sealer> = Vec::new();
    for connection in 0..20 {
        for earlier in before.iter_mut().rev().take(EARLIER_CONNECTIONS_MAX) {
            assert_eq!(open(&mut opener, &datagram(earlier, at(100 + connection), 32)), Err(Refusal::Index));
            assert!(!opener.has_session());
        }
        let mut sealer = Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE + connection);
        assert!(open(&mut opener, &datagram(&mut sealer, at(100 + connection), 32)).is_ok());
        before.push(sealer);
        opener = self::opener().after(&opener);
    }
}

/// Arbitrary input causes no panic, no datagram is accepted, and no state is stored.
#[test]
fn random_esp_datagrams_change_no_state() {
    let mut random = RandomStreams::new(11).stream("hostile");
    let (mut opener, mut sealer) = (opener(), sealer());
    let old = datagram(&mut sealer, at(1), 32);
    assert!(open(&mut opener, &old).is_ok());
    let (mut parsed, mut seen) = (0, [0; Refusal::ALL.len()]);
    for _ in 0..100_000 {
        let len = random.below(60) as usize;
        let mut bytes = if random.below(3) == 0 { old.clone() } else { datagram(&mut sealer, at(2), len) };
        match random.below(4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = random.bits() as u8),
            1 => bytes.truncate(random.below(bytes.len() as u64) as usize),
            2 => bytes[0] = random.bits() as u8,
            _ => {}
        }
        let unchanged = bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        if bytes == unchanged {
            continue;
        }
        if let Ok((header, layout)) = esp::parse(&bytes) {
            parsed += 1;
            let refusal = opener.open(&header, layout, &mut bytes).expect_err("a changed datagram is refused");
            seen[Refusal::ALL.iter().position(|other| *other == refusal).expect("ALL lists every refusal")] += 1;
        }
    }
    let [unprotected, others @ ..] = seen;
    // An ESP header does not indicate whether a datagram is protected, so none is refused as unprotected.
    assert!(parsed > 20_000 && unprotected == 0 && others.iter().all(|count| *count > 100), "{parsed} {seen:?}");
    assert_eq!(opener.generation(), 0);
    assert!(open(&mut opener, &datagram(&mut sealer, at(3), 32)).is_ok());
}
