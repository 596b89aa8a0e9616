//! Both halves of a direction within ESP: against another implementation, over time, and under attack.

use rnic_base::RandomStreams;
use rnic_wire::falcon::esp::{self, around_len};

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

/// A sealed datagram with a message of `len` bytes.
fn datagram(sealer: &mut Sealer, now: Time, len: usize) -> Vec<u8> {
    let mut datagram = vec![0xee; around_len(len) + len];
    datagram[LEN..LEN + len].copy_from_slice(&message(len));
    sealer.seal(now, FlowLabel::new(2), len, &mut datagram);
    datagram
}

/// Opens a datagram and returns its message.
fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut bytes = datagram.to_vec();
    let (header, layout) = esp::parse(&bytes).expect("a datagram of ours");
    let opened = opener.open(&header, layout, &mut bytes)?;
    assert_eq!(opened.label, 2);
    Ok(bytes[layout.message(&bytes).expect("our trailer")].to_vec())
}

/// Two packets under each cipher, the second of the next generation, with another length and a time of more than 32
/// bits, made with Python's `cryptography` (over OpenSSL) from secret, context and cookie by this module's
/// documentation alone. Wireshark 4.0 decrypts the first four as "AES-GCM [RFC4106]", given their keys.
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
    let names = bytes("00000000000000000000ffff0a000001 00000011 00000000000000000000ffff0a000002 00000022");
    let secret = Secret::new(std::array::from_fn(|at| at as u8));
    let (context, cid) = (Context::new(&names), Cid::new(0x22));
    for (cipher, first, second) in cases {
        let mut sealer = Sealer::new(&secret, cipher, &context, cid, COOKIE).rotating_after(1);
        let mut opener = Opener::new(&secret, cipher, &context, cid);
        for (expected, units, label, len) in [(first, 5_u64, 2, 32), (second, 0x5_0000_0006, 3, 30)] {
            let mut datagram = vec![0; around_len(len) + len];
            datagram[LEN..LEN + len].copy_from_slice(&message(len));
            sealer.seal(at(units), FlowLabel::new(label), len, &mut datagram);
            assert_eq!(datagram, bytes(expected), "{cipher:?}");
            let (header, layout) = esp::parse(&datagram).expect("a datagram of ours");
            assert_eq!(header.iv.timestamp, Timestamp::at(at(units)), "when it left");
            let opened = opener.open(&header, layout, &mut datagram).expect("authentic");
            assert_eq!(opened.label, label as u8);
            assert_eq!(datagram[layout.message(&datagram).expect("our trailer")], message(len));
        }
    }
}

#[test]
fn f42_messages_of_any_length_come_back_and_are_encrypted_whole() {
    let (mut sealer, mut opener) = (sealer(), opener());
    for len in [0, 1, 2, 3, 4, 5, 31, 32, 60, 1_024, 4_096] {
        let datagram = datagram(&mut sealer, at(7), len);
        assert!(
            len < 16 || datagram[LEN..LEN + len].iter().zip(message(len)).filter(|(a, b)| *a == b).count() < len / 4
        );
        assert_eq!(open(&mut opener, &datagram), Ok(message(len)));
    }
}

/// Every bit of a datagram counts, and a changed one changes nothing here.
#[test]
fn f42_every_flipped_bit_of_esp_is_found() {
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
            assert_eq!(opener.is_begun(), begun);
        }
        let mut cut = good[..good.len() - 4].to_vec();
        let (header, layout) = esp::parse(&cut).expect("still long enough");
        assert!(opener.open(&header, layout, &mut cut).is_err());
        assert_eq!(open(&mut opener, &good), Ok(message(32)), "begun: {begun}");
    }
}

/// Nothing comes twice, in order or not; what is behind the window does not come at all; a copy costs no decryption and
/// moves nothing.
#[test]
fn f42_what_comes_twice_within_esp_is_refused() {
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
    assert_eq!(open(&mut opener, &sent[0]), Err(Refusal::Replay), "too old to know");
    assert!(open(&mut opener, &sent[newest + 6]).is_ok());
    assert_eq!(open(&mut opener, &sent[6]), Err(Refusal::Replay));
    // A forged one that is far ahead moves no window.
    let mut forged = datagram(&mut sealer, at(1), 4);
    forged[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    let session = COOKIE as u32 & SESSION_MASK;
    let counter = session.wrapping_sub(1) & SESSION_MASK;
    forged[8..12].copy_from_slice(&(2 << SESSION_BITS | counter).to_be_bytes());
    assert_eq!(open(&mut opener, &forged), Err(Refusal::Forged));
    assert!(open(&mut opener, &sent[newest + 1]).is_ok());
}

#[test]
fn windows_are_as_wide_as_they_say_and_survive_any_number() {
    let mut random = RandomStreams::new(3).stream("window");
    let (mut seen, mut model) = (Seen::default(), std::collections::BTreeSet::new());
    assert!(!seen.accepts(0), "nobody's number");
    let mut top = 0_u32;
    for _ in 0..200_000 {
        let sequence = match random.below(1_000) {
            0 => top.saturating_add(random.below(20_000) as u32),
            _ => (top + 3).saturating_sub(random.below(5_000) as u32),
        };
        let is_new = sequence > 0 && sequence > top.saturating_sub(WINDOW) && !model.contains(&sequence);
        assert_eq!(seen.accepts(sequence), is_new, "{sequence} with {top} the newest");
        if is_new {
            seen.note(sequence);
            model.insert(sequence);
            top = top.max(sequence);
        }
    }
    assert!(seen.accepts(u32::MAX));
    seen.note(u32::MAX);
    assert!(!seen.accepts(u32::MAX) && seen.accepts(u32::MAX - 1) && !seen.accepts(u32::MAX - WINDOW));
}

/// The counters begin anew with each key, and a key is replaced before its vectors repeat.
#[test]
fn f42_keys_rotate_before_sequence_numbers_wrap() {
    let mut sealer = Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE).rotating_after(u64::MAX);
    let mut first = [0; around_len(4) + 4];
    let header = sealer.seal(at(1), FlowLabel::new(0), 4, &mut first);
    assert_eq!((header.sequence, sealer.generation()), (1, 0));
    sealer.keys.use_up(PACKETS_PER_KEY - 2);
    let last = sealer.seal(at(1), FlowLabel::new(0), 4, &mut first);
    assert_eq!((last.sequence, sealer.generation()), (SESSION_MASK, 0), "the last of its key");
    assert_ne!(last.iv, header.iv);
    let next = sealer.seal(at(1), FlowLabel::new(0), 4, &mut first);
    assert_eq!((next.sequence, sealer.generation()), (1, 1));
    assert_ne!(next.spi, last.spi);
}

#[test]
fn f42_keys_of_esp_rotate_under_traffic() {
    let (mut opener, mut sealer) = (opener(), sealer().rotating_after(10));
    let mut random = RandomStreams::new(4).stream("order");
    let mut under_way: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut came = 0;
    for units in 0..20_000 {
        under_way.push((units, datagram(&mut sealer, at(units), 48)));
        // Packets overtake each other, across rotations too.
        if under_way.len() > 12 {
            let (sent, bytes) = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
            match open(&mut opener, &bytes) {
                Ok(bytes) => {
                    assert_eq!(bytes, message(48));
                    came += 1;
                }
                // Overtaken by more than one rotation.
                Err(refusal) => assert!(refusal == Refusal::Index && units - sent > 10, "{sent}, {units}: {refusal}"),
            }
            assert!(open(&mut opener, &bytes).is_err(), "twice");
        }
    }
    assert!(came > 15_000, "{came} came");
    assert_eq!(sealer.generation(), 1_999, "the index has turned over 31 times");
    assert!(opener.generation() >= 1_995);
}

#[test]
fn rotations_of_esp_that_nobody_heard_of_are_caught_up_with() {
    let (mut opener, mut sealer) = (opener(), sealer());
    for begun in [false, true] {
        (0..GENERATIONS_AHEAD).for_each(|_| sealer.rotate());
        assert!(open(&mut opener, &datagram(&mut sealer, at(2), 32)).is_ok(), "begun: {begun}");
    }
    assert_eq!(opener.generation(), 2 * GENERATIONS_AHEAD);
    (0..=GENERATIONS_AHEAD).for_each(|_| sealer.rotate());
    assert_eq!(open(&mut opener, &datagram(&mut sealer, at(3), 32)), Err(Refusal::Index));
}

/// Forged indices have each key derived once, as with PSP.
#[test]
fn f42_a_flood_of_forged_indices_of_esp_has_each_key_derived_once() {
    let (mut opener, mut peer, mut forger) = (opener(), sealer(), sealer());
    assert!(open(&mut opener, &datagram(&mut peer, at(1), 32)).is_ok());
    let before = DERIVED.get();
    let forged: Vec<_> = (0..64)
        .map(|_| {
            let mut bytes = datagram(&mut forger, at(1), 32);
            *bytes.last_mut().expect("not empty") ^= 1;
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
fn what_another_key_has_sealed_is_refused() {
    let good = datagram(&mut sealer(), at(9), 32);
    let with = |secret: Secret, cipher, context: &[u8], cid| {
        let mut opener = Opener::new(&secret, cipher, &Context::new(context), cid);
        open(&mut opener, &good).err()
    };
    let (gcm, way) = (Cipher::Gcm128, &b"this way"[..]);
    assert_eq!(with(secret(), gcm, way, CID), None);
    assert_eq!(with(Secret::new([8; 32]), gcm, way, CID), Some(Refusal::Forged));
    assert_eq!(with(secret(), gcm, b"that way", CID), Some(Refusal::Forged), "the other direction");
    assert_eq!(with(secret(), gcm, way, Cid::new(3)), Some(Refusal::Index), "another connection");
    for cipher in [Cipher::Gcm256, Cipher::Gmac128, Cipher::Gmac256] {
        assert_eq!(with(secret(), cipher, way, CID), Some(Refusal::Forged));
    }
    // Another session of the same two, at the same time.
    let mut opener = opener();
    assert!(open(&mut opener, &good).is_ok());
    let mut other = Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE + 1);
    assert_eq!(open(&mut opener, &datagram(&mut other, at(9), 32)), Err(Refusal::Index));
}

/// Both ends are reset and connected anew under the same numbers: who is ready first hears the other as it was.
#[test]
fn f42_what_was_heard_before_does_not_begin_the_next_connection_of_esp() {
    let mut opener = opener();
    let mut before: Vec<Sealer> = Vec::new();
    for connection in 0..20 {
        for earlier in before.iter_mut().rev().take(PAST) {
            assert_eq!(open(&mut opener, &datagram(earlier, at(100 + connection), 32)), Err(Refusal::Index));
            assert!(!opener.is_begun());
        }
        let mut sealer = Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE + connection);
        assert!(open(&mut opener, &datagram(&mut sealer, at(100 + connection), 32)).is_ok());
        before.push(sealer);
        opener = self::opener().after(&opener);
    }
}

/// Whatever comes: nothing panics, nothing opens, nothing is kept.
#[test]
fn hostile_datagrams_within_esp_change_nothing() {
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
        let kept = bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        if bytes == kept {
            continue;
        }
        if let Ok((header, layout)) = esp::parse(&bytes) {
            parsed += 1;
            let refusal = opener.open(&header, layout, &mut bytes).expect_err("bits were changed");
            seen[Refusal::ALL.iter().position(|other| *other == refusal).expect("listed")] += 1;
        }
    }
    let [unprotected, others @ ..] = seen;
    // With ESP nothing says that it is without a key.
    assert!(parsed > 20_000 && unprotected == 0 && others.iter().all(|count| *count > 100), "{parsed} {seen:?}");
    assert_eq!(opener.generation(), 0);
    assert!(open(&mut opener, &datagram(&mut sealer, at(3), 32)).is_ok());
}
