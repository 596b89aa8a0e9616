//! Tests of sealer and opener together: which datagrams are accepted, which are rejected, and the effects of time.

use super::*;
use crate::key::Key;
use crate::key::tests::{CID, COOKIE, DERIVED, at, context, secret};
use crate::seal::Sealer;
use rnic_base::{RandomStreams, Time};
use rnic_wire::falcon::psp::{self, ICV_LEN, LEN_MAX};
use rnic_wire::falcon::{FlowLabel, Timestamp};

fn sealer() -> Sealer {
    Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE)
}

fn opener() -> Opener {
    Opener::new(&secret(), Cipher::Gcm128, &context(), CID)
}

/// Returns a sealed datagram with a message of `len` bytes.
fn datagram(sealer: &mut Sealer, now: Time, len: usize) -> Vec<u8> {
    let mut datagram = vec![0; LEN_MAX + len + ICV_LEN];
    datagram[LEN_MAX..LEN_MAX + len].copy_from_slice(&message(len));
    sealer.seal(now, FlowLabel::new(2), &mut datagram);
    datagram
}

/// Opens a datagram and returns its message.
fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut bytes = datagram.to_vec();
    let (header, layout) = psp::parse(&bytes).expect("the datagram has the PSP format");
    opener.open(&header, layout, &mut bytes)?;
    Ok(bytes[layout.message()].to_vec())
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

#[test]
fn f42_packets_are_encrypted_but_for_version_and_connection() {
    let (mut sealer, mut opener) = (sealer(), opener());
    for len in [4, 5, 31, 32, 60, 1_024, 4_096] {
        let datagram = datagram(&mut sealer, at(7), len);
        let front = LEN_MAX..LEN_MAX + 4;
        assert_eq!(datagram[front.clone()], message(4), "version and connection are not in clear text");
        if len >= 31 {
            let rest = &datagram[front.end..LEN_MAX + len];
            assert_ne!(rest, &message(len)[4..]);
        }
        assert_eq!(open(&mut opener, &datagram), Ok(message(len)));
    }
}

#[test]
fn the_vector_is_returned() {
    let (mut sealer, mut opener) = (sealer(), opener());
    let mut bytes = datagram(&mut sealer, at(0x5_0000_0003), 40);
    let (header, layout) = psp::parse(&bytes).expect("the datagram has the PSP format");
    let vector = Vector { units: 0x5_0000_0003, label: 2, serial: 0 };
    assert_eq!(opener.open(&header, layout, &mut bytes), Ok(Opened { vector, rotated: false }));
}

/// Every bit of a datagram is authenticated, and a changed datagram changes no state.
#[test]
fn every_flipped_bit_is_found() {
    for begun in [false, true] {
        let (mut sealer, mut opener) = (sealer(), opener());
        if begun {
            assert!(open(&mut opener, &datagram(&mut sealer, at(5), 32)).is_ok());
        }
        let good = datagram(&mut sealer, at(9), 32);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let Ok((header, layout)) = psp::parse(&bad) else { continue };
            assert!(opener.open(&header, layout, &mut bad).is_err(), "bit {bit}, begun: {begun}");
            assert_eq!(opener.has_session(), begun);
        }
        assert!(opener.open_cut(&good).is_err());
        assert_eq!(open(&mut opener, &good), Ok(message(32)), "begun: {begun}");
    }
}

impl Opener {
    /// Opens a datagram without its last byte.
    fn open_cut(&mut self, datagram: &[u8]) -> Result<Opened, Refusal> {
        let mut cut = datagram[..datagram.len() - 1].to_vec();
        let (header, layout) = psp::parse(&cut).expect("the shortened datagram has the PSP format");
        self.open(&header, layout, &mut cut)
    }
}

#[test]
fn packets_without_the_agreed_protection_are_refused() {
    let good = datagram(&mut sealer(), at(9), 32);
    let (header, layout) = psp::parse(&good).expect("the datagram has the PSP format");
    let refusal = |header: Header| opener().open(&header, layout, &mut good.clone()).err();
    assert_eq!(refusal(Header { spi: 0, ..header }), Some(Refusal::Unprotected));
    assert_eq!(refusal(Header { cookie: None, ..header }), Some(Refusal::Unprotected));
    for cipher in [Cipher::Gcm256, Cipher::Gmac128, Cipher::Gmac256] {
        assert_eq!(refusal(Header { cipher, ..header }), Some(Refusal::Unprotected));
    }
    assert_eq!(refusal(Header { spi: header.spi + 1, ..header }), Some(Refusal::Index), "another connection");
    assert_eq!(refusal(Header { cookie: Some(1), ..header }), Some(Refusal::Forged));
    assert_eq!(refusal(header), None);
    let with = |secret, context| Opener::new(&secret, Cipher::Gcm128, &Context::new(context), CID);
    assert_eq!(open(&mut with(Secret::new([8; 32]), b"this way"), &good), Err(Refusal::Forged));
    assert_eq!(open(&mut with(secret(), b"that way"), &good), Err(Refusal::Forged), "the key of the other direction");
}

/// A forged packet that arrives first does not lock out the peer, and later forged packets are not accepted.
#[test]
fn only_an_authentic_packet_starts_a_session() {
    let (mut opener, mut peer) = (opener(), sealer());
    let mut forger = Sealer::new(&Secret::new([3; 32]), Cipher::Gcm128, &context(), CID, 1);
    assert_eq!(open(&mut opener, &datagram(&mut forger, at(1_000), 32)), Err(Refusal::Forged));
    assert!(open(&mut opener, &datagram(&mut peer, at(9), 32)).is_ok(), "a forged packet locked out the peer");
    let mut second = Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, COOKIE + 1);
    assert_eq!(open(&mut opener, &datagram(&mut second, at(20), 32)), Err(Refusal::Index), "another cookie");
}

#[test]
fn f42_recorded_packets_are_refused_after_the_replay_margin() {
    let mut opener = opener().with_margin(Timestamp::UNIT * 100);
    let mut sealer = sealer();
    let recorded = datagram(&mut sealer, at(1_000), 32);
    assert!(open(&mut opener, &recorded).is_ok());
    assert!(open(&mut opener, &recorded).is_ok(), "packets within the margin are not replays");
    assert!(open(&mut opener, &datagram(&mut sealer, at(1_099), 32)).is_ok());
    assert!(open(&mut opener, &recorded).is_ok());
    assert!(open(&mut opener, &datagram(&mut sealer, at(1_100), 32)).is_ok());
    assert_eq!(open(&mut opener, &recorded), Err(Refusal::Replay));
    // After more than the range of a 32-bit timestamp: such packets would appear to be new.
    assert!(open(&mut opener, &datagram(&mut sealer, at(1_000 + (1 << 32)), 32)).is_ok());
    assert_eq!(open(&mut opener, &recorded), Err(Refusal::Replay));
}

/// A forged packet does not advance the greatest time, so it cannot make the peer's packets appear old.
#[test]
fn forged_packets_do_not_advance_the_replay_time() {
    let (mut opener, mut sealer) = (opener(), sealer());
    assert!(open(&mut opener, &datagram(&mut sealer, at(1_000), 32)).is_ok());
    let mut forged = datagram(&mut sealer.clone_for_test(), at(1 << 40), 32);
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert_eq!(open(&mut opener, &forged), Err(Refusal::Forged));
    assert!(open(&mut opener, &datagram(&mut sealer, at(1_001), 32)).is_ok());
}

impl Sealer {
    /// Returns an opener with the same keys, at another time.
    fn clone_for_test(&self) -> Self {
        let mut other = sealer();
        (0..self.generation()).for_each(|_| other.rotate());
        other
    }
}

#[test]
fn f42_a_replaced_key_opens_only_packets_sent_before_the_replacement() {
    let (mut opener, mut old_key_sealer, mut sealer) = (opener(), sealer(), sealer());
    let before = datagram(&mut old_key_sealer, at(99), 48);
    let first = datagram(&mut sealer, at(90), 48);
    sealer.rotate();
    let second = datagram(&mut sealer, at(100), 48);
    let after = datagram(&mut old_key_sealer, at(101), 48);
    for (bytes, expected) in [(first, None), (second, None), (before, None), (after, Some(Refusal::Index))] {
        assert_eq!(open(&mut opener, &bytes).err(), expected);
    }
    assert_eq!(opener.generation(), 1);
}

#[test]
fn f42_keys_rotate_under_traffic() {
    let mut opener = opener().with_margin(Timestamp::UNIT * 50);
    let mut sealer = sealer().rotating_after(10);
    let mut random = RandomStreams::new(4).stream("order");
    let mut in_flight: Vec<(u64, Vec<u8>)> = Vec::new();
    let (mut accepted, mut rotations) = (0, 0);
    for units in 0..20_000 {
        in_flight.push((units, datagram(&mut sealer, at(units), 48)));
        // Packets arrive out of order, across rotations too.
        if in_flight.len() > 12 {
            let index = random.below(in_flight.len() as u64) as usize;
            let (sent, bytes) = in_flight.swap_remove(index);
            let before = opener.generation();
            match open(&mut opener, &bytes) {
                Ok(bytes) => {
                    assert_eq!(bytes, message(48));
                    accepted += 1;
                }
                // Late by more than the margin, or by more than one rotation.
                Err(refusal) => {
                    assert!(matches!(refusal, Refusal::Replay | Refusal::Index), "{refusal}");
                    assert!(units - sent > 10, "sent at {sent}, refused at {units}: {refusal}");
                }
            }
            rotations += opener.generation() - before;
        }
    }
    assert!(accepted > 15_000, "{accepted} packets were accepted");
    assert!((1_990..=1_999).contains(&rotations), "{rotations} rotations");
    assert_eq!(sealer.generation(), 1_999, "the index should have wrapped seven times");
}

#[test]
fn the_receiver_follows_rotations_of_which_it_received_no_packet() {
    for begun in [false, true] {
        let (mut opener, mut sealer) = (opener(), sealer());
        if begun {
            assert!(open(&mut opener, &datagram(&mut sealer, at(1), 32)).is_ok());
        }
        (0..GENERATIONS_AHEAD).for_each(|_| sealer.rotate());
        assert!(open(&mut opener, &datagram(&mut sealer, at(2), 32)).is_ok());
        assert_eq!(opener.generation(), GENERATIONS_AHEAD);
        (0..=GENERATIONS_AHEAD).for_each(|_| sealer.rotate());
        assert_eq!(open(&mut opener, &datagram(&mut sealer, at(3), 32)), Err(Refusal::Index));
    }
}

/// Returns forged packets with the connection's number and cookie, one for each of the first `count` generations.
fn forged(count: u32) -> Vec<Vec<u8>> {
    let mut sealer = sealer();
    let mut next_forged = || {
        let mut bytes = datagram(&mut sealer, at(1), 32);
        *bytes.last_mut().expect("the datagram is not empty") ^= 1;
        sealer.rotate();
        bytes
    };
    (0..count).map(|_| next_forged()).collect()
}

/// In the worst order that a forger who knows the connection's cookie can choose, the key of each possible next
/// generation is derived once, and keys of later generations only after the peer has rotated.
#[test]
fn f42_forged_indices_cause_each_key_to_be_derived_once() {
    let (mut opener, mut peer, forged) = (opener(), sealer(), forged(400));
    let mut derived = 0;
    let mut open = |opener: &mut Opener, bytes: &[u8]| {
        let before = DERIVED.get();
        let opened = open(opener, bytes);
        derived += DERIVED.get() - before;
        (opened.is_ok(), derived)
    };
    for rotations in 0..50 {
        let good = datagram(&mut peer, at(2 + u64::from(rotations)), 32);
        let (is_open, derived_so_far) = open(&mut opener, &good);
        assert!(is_open && opener.generation() == rotations);
        // One key is derived for the first packet. Each of the other derived keys belongs to a generation that may
        // come next, or that could at an earlier step.
        assert!(
            derived_so_far <= 1 + GENERATIONS_AHEAD + rotations,
            "{derived_so_far} keys derived after {rotations} rotations"
        );
        let index = |generation: u32| generation as usize;
        let nearby = &forged[index(rotations)..index(rotations) + 256];
        for _ in 0..3 {
            for bytes in nearby.iter().chain(nearby.iter().rev()) {
                let (is_open, derived_so_far) = open(&mut opener, bytes);
                assert!(!is_open && derived_so_far <= 1 + GENERATIONS_AHEAD + rotations, "{derived_so_far} derived");
            }
        }
        peer.rotate();
    }
    assert_eq!(derived, 1 + GENERATIONS_AHEAD + 49);
}

/// Keys that were derived for forged indices are correct, whichever of them the peer uses next.
#[test]
fn f42_keys_derived_for_forged_indices_still_open_the_peers_packets() {
    let mut random = RandomStreams::new(7).stream("ahead");
    let (mut opener, mut peer, forged) = (opener(), sealer(), forged(100 * (GENERATIONS_AHEAD + 1)));
    assert!(open(&mut opener, &datagram(&mut peer, at(1), 32)).is_ok());
    let mut overtaken = None;
    for step in 1..100 {
        for _ in 0..random.below(40) {
            let generation = opener.generation() + random.below(40) as u32;
            assert!(open(&mut opener, &forged[generation as usize]).is_err());
        }
        for _ in 0..=random.below(u64::from(GENERATIONS_AHEAD)) {
            overtaken = Some(datagram(&mut peer, at(2 * step), 32));
            peer.rotate();
        }
        assert!(open(&mut opener, &datagram(&mut peer, at(2 * step + 1), 32)).is_ok());
        assert_eq!(opener.generation(), peer.generation());
        // A packet of the previous generation is accepted, even if this receiver has received none of that generation
        // before.
        assert!(open(&mut opener, &overtaken.take().expect("each step rotates at least once")).is_ok());
    }
}

/// The memory that a forger can cause a connection to allocate is as documented.
#[test]
fn keys_of_later_generations_take_the_documented_memory() {
    let bytes = size_of::<[Option<Key>; GENERATIONS_AHEAD as usize]>();
    assert!(bytes < 19_000, "{bytes} bytes");
}

#[test]
fn the_previous_key_opens_only_packets_sent_before_the_current_key() {
    let (mut opener, mut sealer) = (opener(), sealer());
    assert!(open(&mut opener, &datagram(&mut sealer, at(1), 32)).is_ok());
    let overtaken = datagram(&mut sealer, at(10), 32);
    let late = datagram(&mut sealer, at(30), 32);
    sealer.rotate();
    assert!(open(&mut opener, &datagram(&mut self::sealer_at(1), at(20), 32)).is_ok());
    assert_eq!(opener.generation(), 1);
    assert!(open(&mut opener, &overtaken).is_ok());
    assert_eq!(open(&mut opener, &late), Err(Refusal::Index), "the previous key opened a packet sent too late");
}

/// Returns a sealer after `generation` rotations.
fn sealer_at(generation: u32) -> Sealer {
    let mut sealer = sealer();
    (0..generation).for_each(|_| sealer.rotate());
    sealer
}

/// Both ends are reset and reconnected under the same numbers: the end that is ready first receives packets of the
/// other's previous connection.
#[test]
fn f42_packets_of_an_earlier_connection_do_not_start_the_next_one() {
    let sealer_with_cookie = |cookie| Sealer::new(&secret(), Cipher::Gcm128, &context(), CID, cookie);
    let mut opener = opener();
    let mut before: Vec<Sealer> = Vec::new();
    for connection in 0..20 {
        for earlier in before.iter_mut().rev().take(EARLIER_CONNECTIONS_MAX) {
            let old = datagram(earlier, at(100 + connection), 32);
            assert_eq!(open(&mut opener, &old), Err(Refusal::Index));
            assert!(!opener.has_session());
        }
        let mut sealer = sealer_with_cookie(COOKIE + connection);
        assert!(open(&mut opener, &datagram(&mut sealer, at(100 + connection), 32)).is_ok());
        before.push(sealer);
        opener = self::opener().after(&opener);
        // The cookies of earlier senders are retained by an opener that receives no packets.
        opener = self::opener().after(&opener);
    }
}

/// Arbitrary input causes no panic, is never accepted, and changes no state.
#[test]
fn random_datagrams_change_no_state() {
    let mut random = RandomStreams::new(11).stream("hostile");
    let (mut opener, mut sealer) = (opener(), sealer());
    let newest = 10_000_000;
    assert!(open(&mut opener, &datagram(&mut sealer, at(newest), 32)).is_ok());
    let mut old = self::sealer();
    let (mut parsed, mut seen) = (0, [0; Refusal::ALL.len()]);
    for _ in 0..200_000 {
        let len = (4 + random.below(60)) as usize;
        let is_old = random.below(2) == 0;
        let good = if is_old { datagram(&mut old, at(101), len) } else { datagram(&mut sealer, at(newest), len) };
        let mut bytes = good.clone();
        match random.below(4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = random.bits() as u8),
            1 => bytes.truncate(random.below(bytes.len() as u64) as usize),
            2 => bytes[4] = random.bits() as u8,
            _ => {}
        }
        for _ in 0..=random.below(3) {
            let len = bytes.len().max(1) as u64;
            let at = random.below(len) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        if let Ok((header, layout)) = psp::parse(&bytes) {
            parsed += 1;
            match opener.open(&header, layout, &mut bytes.clone()) {
                Ok(_) => assert!(!is_old && bytes == good, "a changed datagram was accepted"),
                Err(refusal) => seen[Refusal::ALL.iter().position(|other| *other == refusal).expect("in ALL")] += 1,
            }
        }
    }
    assert!(parsed > 50_000 && seen.iter().all(|count| *count > 100), "{parsed} {seen:?}");
    assert_eq!(opener.generation(), 0);
    assert!(open(&mut opener, &datagram(&mut sealer, at(newest), 32)).is_ok());
}
