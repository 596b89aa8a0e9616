//! The limit of packets in flight to a peer, for all queue pairs together.

use rnic_base::{Duration, RandomStreams, Time};
use rnic_engine::*;

use crate::common::{BASE, DELAY, DELIVERED, INBOX, LOST, MTU, Pair, Sent, Setup, bad};

const ORDERS: [&[(&str, &str)]; 3] =
    [&[], &[("ordering", "weak")], &[("ordering", "unordered"), ("errors", "complete-in-error")]];

fn pair(options: &[(&'static str, &'static str)]) -> (Setup, Pair) {
    let setup = Setup::new(options);
    let pair = Pair::new(&setup, |_| DELIVERED);
    (setup, pair)
}

/// Returns the largest number of packets in flight from `end`: packets that were sent for the first time and that a
/// wire with delay [`DELAY`] has not yet delivered.
fn in_flight_max(pair: &Pair, end: usize) -> usize {
    let counts = |sent: &&Sent| sent.from == end && matches!(sent.kind, TransmitKind::Request | TransmitKind::Response);
    let left: Vec<Time> = pair.log.iter().filter(counts).map(|sent| sent.at).collect();
    let at = |now: &Time| left.iter().filter(|at| **at <= *now && **at + DELAY > *now).count();
    left.iter().map(at).max().unwrap_or(0)
}

fn waits(pair: &Pair, end: usize) -> u64 {
    pair.ends[end].engine.stats().waits[WaitReason::PeerWindow as usize]
}

/// Checks that no packet counts as in flight to the peer of either end: with a limit of one packet, a message can
/// still be sent.
fn check_none_counts(pair: &mut Pair, name: &str) {
    for end in [0, 1] {
        pair.ends[end].engine.set_peer_limit(PeerId(1 - end as u32), Some(1));
        let remote = pair.remote(end, BASE);
        pair.ends[end].post(99, SendOp::Write { remote, immediate: None }, BASE, 1);
    }
    pair.run_for(Duration::from_ms(20));
    assert_eq!([0, 1].map(|end| pair.ends[end].take()), [[(99, WcStatus::Success)]; 2], "{name}");
}

#[test]
fn packets_in_flight_never_exceed_the_peer_limit() {
    for options in ORDERS {
        for room in [1, 3, 10] {
            let (_, mut pair) = pair(options);
            pair.ends[0].engine.set_peer_limit(PeerId(1), Some(room));
            pair.ends[1].engine.set_peer_limit(PeerId(0), Some(room));
            let remote = pair.remote(0, INBOX);
            pair.ends[0].post(1, SendOp::Write { remote, immediate: None }, BASE, 40 * MTU);
            pair.run_for(Duration::from_ms(20));
            assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)], "{options:?}");
            assert_eq!(in_flight_max(&pair, 0), room as usize, "{options:?}: the limit is not used exactly");
            pair.log.clear();
            let remote = pair.remote(0, BASE);
            pair.ends[0].post(2, SendOp::Read { remote }, INBOX, 40 * MTU);
            pair.run_for(Duration::from_ms(20));
            assert_eq!(pair.ends[0].take(), [(2, WcStatus::Success)], "{options:?}");
            assert_eq!(in_flight_max(&pair, 1), room as usize, "{options:?}: responses do not count");
            assert!(waits(&pair, 0) > 0 && waits(&pair, 1) > 0);
            check_none_counts(&mut pair, "at rest");
        }
    }
}

/// Checks that queue pairs take turns and that all of them complete.
#[test]
fn queue_pairs_share_the_peer_limit() {
    let (setup, mut pair) = pair(&[]);
    let mut from = vec![pair.ends[0].qpn];
    from.extend((0..9).map(|_| pair.connect_another(&setup)[0]));
    pair.ends[0].engine.set_peer_limit(PeerId(1), Some(4));
    let remote = pair.remote(0, INBOX);
    for (index, qpn) in from.iter().enumerate() {
        pair.ends[0].post_on(*qpn, index as u64, SendOp::Write { remote, immediate: None }, BASE, 20 * MTU);
    }
    pair.run_for(Duration::from_ms(20));
    assert_eq!(in_flight_max(&pair, 0), 4);
    let mut done = pair.ends[0].take();
    done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
    assert!(done.into_iter().eq((0..10).map(|wr_id| (wr_id, WcStatus::Success))));
}

#[test]
fn lost_packets_release_their_credit_once() {
    for options in ORDERS {
        for seed in 0..6 {
            let name = format!("{options:?}, seed {seed}");
            let (_, mut pair) = pair(options);
            pair.set_fate(bad(RandomStreams::new(seed).stream("wire"), 150, 100, 200));
            for end in [0, 1] {
                pair.ends[end].engine.set_peer_limit(PeerId(1 - end as u32), Some(1 + seed));
                let remote = pair.remote(end, INBOX);
                pair.ends[end].post(1, SendOp::Write { remote, immediate: None }, BASE, 60 * MTU);
                pair.ends[end].post(2, SendOp::Read { remote }, BASE + 100 * u64::from(MTU), 60 * MTU);
            }
            pair.run_for(Duration::from_ms(2_000));
            for end in [0, 1] {
                let mut done = pair.ends[end].take();
                done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
                assert_eq!(done, [(1, WcStatus::Success), (2, WcStatus::Success)], "{name}");
            }
            pair.set_fate(|_| DELIVERED);
            check_none_counts(&mut pair, &name);
        }
    }
}

/// The receive that the first queue pair waits for is posted only after the message of the second one has arrived:
/// the first one's packets, which the receiver has refused, must not use up the limit.
#[test]
fn a_queue_pair_that_waits_for_a_receive_releases_its_credit() {
    for options in ORDERS {
        let (setup, mut pair) = pair(options);
        let [other, _] = pair.connect_another(&setup);
        pair.ends[0].engine.set_peer_limit(PeerId(1), Some(1));
        pair.ends[0].post(1, SendOp::Send { immediate: None }, BASE, 100);
        pair.run_for(Duration::from_us(30));
        let remote = pair.remote(0, INBOX);
        pair.ends[0].post_on(other, 2, SendOp::Write { remote, immediate: None }, BASE, 3 * MTU);
        pair.run_for(Duration::from_ms(10));
        assert_eq!(pair.ends[0].take(), [(2, WcStatus::Success)], "{options:?}");
        pair.ends[1].post_recv(3, INBOX, 100);
        pair.run_for(Duration::from_ms(10));
        assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)], "{options:?}");
        assert_eq!(pair.ends[1].take(), [(3, WcStatus::Success)], "{options:?}");
        check_none_counts(&mut pair, "a receiver that was not ready");
    }
}

/// Checks that a queue pair that ends in any way releases its share of the limit, and its position in the queue if it
/// was waiting.
#[test]
fn a_queue_pair_that_ends_releases_its_credit() {
    for way in 0..3 {
        let (setup, mut pair) = pair(&[]);
        let [second, _] = pair.connect_another(&setup);
        let [third, _] = pair.connect_another(&setup);
        pair.set_fate(|_| LOST);
        pair.ends[0].engine.set_peer_limit(PeerId(1), Some(2));
        let remote = pair.remote(0, INBOX);
        let write = SendOp::Write { remote, immediate: None };
        let first = pair.ends[0].qpn;
        for (wr_id, qpn) in [(1, first), (2, second), (3, third)] {
            pair.ends[0].post_on(qpn, wr_id, write, BASE, 4 * MTU);
            pair.run_for(Duration::from_us(1));
        }
        assert!(pair.log.iter().all(|sent| sent.from == 0) && pair.log.len() == 2, "not two of the first QP");
        pair.set_fate(|_| DELIVERED);
        let engine = &mut pair.ends[0].engine;
        // The second one, which waits, ends first; then the one whose packets use up the limit.
        for qpn in [second, first] {
            match way {
                0 => engine.modify_to_error(qpn).expect("legal in every state"),
                1 => engine.modify_to_reset(qpn).expect("legal in every state"),
                _ => engine.destroy_qp(qpn).expect("it exists"),
            }
        }
        pair.run_for(Duration::from_us(500));
        let done: Vec<_> = pair.ends[0].take().into_iter().filter(|(_, status)| *status == WcStatus::Success).collect();
        assert_eq!(done, [(3, WcStatus::Success)], "way {way}");
    }
}

/// Sets a limit while packets are in flight, and removes it again.
#[test]
fn the_peer_limit_may_be_set_and_removed_with_packets_in_flight() {
    let (_, mut pair) = pair(&[]);
    let remote = pair.remote(0, INBOX);
    let write = SendOp::Write { remote, immediate: None };
    pair.ends[0].post(1, write, BASE, 200 * MTU);
    pair.run_for(Duration::from_us(2));
    assert!(pair.log.len() > 8, "{}", pair.log.len());
    pair.ends[0].engine.set_peer_limit(PeerId(1), Some(2));
    pair.log.clear();
    pair.run_for(Duration::from_us(60));
    assert!(pair.log.iter().filter(|sent| sent.from == 0).count() > 2 && waits(&pair, 0) > 0);
    pair.ends[0].engine.set_peer_limit(PeerId(1), None);
    pair.run_for(Duration::from_ms(10));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)]);
    check_none_counts(&mut pair, "a bound that went");
}
