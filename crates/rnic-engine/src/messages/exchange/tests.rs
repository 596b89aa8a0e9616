//! Two NICs that exchange messages, without engines around them.

use proptest::prelude::*;
use rnic_base::Psn;
use rnic_wire::scr::{Body, Grant, GrantKind, Message, Type};
use rnic_wire::{Headers, PacketFlags, Position};

use super::*;
use crate::messages::peer::{DropCause, PEERS_MAX};

const LINE: BitRate = BitRate::gbps(100);
const LEFT: PeerId = PeerId(0);
const RIGHT: PeerId = PeerId(1);
const LEFT_QPN: Qpn = Qpn::new(10);
const RIGHT_QPN: Qpn = Qpn::new(20);
/// Time of a message on the way.
const DELAY: Duration = Duration::from_us(3);

struct Pair {
    left: Exchange,
    right: Exchange,
    now: Time,
}

impl Pair {
    fn new(config: ExchangeConfig) -> Self {
        let exchange = |seed| Exchange::new(ExchangeConfig { seed, ..config }, LINE, Time::ZERO);
        let mut pair = Self { left: exchange(1), right: exchange(2), now: Time::ZERO };
        pair.left.connect(LEFT_QPN, RIGHT, RIGHT_QPN, pair.now);
        pair.right.connect(RIGHT_QPN, LEFT, LEFT_QPN, pair.now);
        pair
    }

    /// Carries messages back and forth until none is left; each round takes [`DELAY`].
    fn carry(&mut self) -> Vec<Message> {
        let mut carried = Vec::new();
        loop {
            let sent: Vec<_> = [&mut self.left, &mut self.right]
                .map(|from| std::iter::from_fn(|| from.build_next(self.now).then(|| *from.out())).collect::<Vec<_>>())
                .into();
            if sent.iter().all(Vec::is_empty) {
                return carried;
            }
            self.now += DELAY;
            for (messages, (to, from)) in sent.iter().zip([(&mut self.right, LEFT), (&mut self.left, RIGHT)]) {
                for transmit in messages {
                    to.receive(from, transmit.label, &transmit.message, self.now, |_| None);
                    carried.push(transmit.message);
                }
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.left.on_timeout(self.now);
        self.right.on_timeout(self.now);
    }
}

fn effects(exchange: &mut Exchange) -> Vec<Effect> {
    std::iter::from_fn(|| exchange.take_effect()).collect()
}

fn data(dest_qpn: Qpn, payload_len: u32) -> Packet {
    let headers = Headers::Write { position: Position::Middle, reth: None, immediate: None, recv_sn: None };
    Packet { dest_qpn, psn: Psn::new(0), flags: PacketFlags::default(), payload_len, headers }
}

#[test]
fn s6_two_nics_learn_each_others_cookies_and_their_round_trip() {
    let mut pair = Pair::new(ExchangeConfig::default());
    let carried = pair.carry();
    assert!(pair.left.peers.knows(RIGHT) && pair.right.peers.knows(LEFT));
    assert_eq!(carried.iter().filter(|message| message.cookie.is_none()).count(), 2, "the first probe of each");
    assert!(carried.len() <= 8, "{} messages", carried.len());
    for (exchange, peer) in [(&pair.left, RIGHT), (&pair.right, LEFT)] {
        assert_eq!(exchange.partners[&peer].round_trip, Some(DELAY * 2));
        assert_eq!(exchange.stats().all_dropped(), 0);
    }
}

/// A peer that never answers is greeted a limited number of times.
#[test]
fn s6_a_peer_without_messages_is_left_alone() {
    let mut left = Exchange::new(ExchangeConfig::default(), LINE, Time::ZERO);
    left.connect(LEFT_QPN, RIGHT, RIGHT_QPN, Time::ZERO);
    let mut sent = 0;
    for second in 0..100 {
        let now = Time::ZERO + Duration::from_secs(second);
        left.on_timeout(now);
        while left.build_next(now) {
            sent += 1;
        }
    }
    assert_eq!((sent, left.next_timeout()), (12, None));
}

#[test]
fn s6_messages_of_strangers_and_about_other_queue_pairs_change_nothing() {
    let mut pair = Pair::new(ExchangeConfig::default());
    let carried = pair.carry();
    let probe = *carried.last().expect("messages were carried");
    let stranger = PeerId(7);
    assert!(!pair.left.receive(stranger, PathLabel(1), &probe, pair.now, |_| None));
    assert_eq!(pair.left.stats().dropped(DropCause::UnknownPeer), 1);
    // The queue pair exists, but is connected to another one.
    let other = Message { dest_qpn: LEFT_QPN, source_qpn: Qpn::new(21), ..probe };
    assert!(!pair.left.receive(RIGHT, PathLabel(1), &other, pair.now, |_| None));
    assert_eq!(pair.left.stats().dropped(DropCause::NotConnected), 1);
    assert!(!pair.left.has_messages(), "an answer to a message that is dropped");
    // A grant of a peer for a queue pair that is connected to another peer.
    pair.left.connect(Qpn::new(11), stranger, Qpn::new(30), pair.now);
    let grant = Grant { qpn: Qpn::new(11), kind: GrantKind::Limit, rate_kbps: 1, valid_us: 60_000, reason: 0 };
    pair.right.send_grants(&[NewGrant { peer: LEFT, grant }]);
    pair.carry();
    assert_eq!(pair.left.stats().records_ignored, 1);
    assert!(effects(&mut pair.left).is_empty());
}

#[test]
fn s8_a_probe_waits_for_the_cookie_and_is_answered_or_lost() {
    let mut pair = Pair::new(ExchangeConfig::default());
    let path = ProbePath { index: 2, label: 0xc123 };
    pair.left.ask(LEFT_QPN, path, Duration::from_us(50), pair.now);
    pair.carry();
    let host = HostDelays::default();
    let measured = Effect::Measured { qpn: LEFT_QPN, path, round_trip: DELAY * 2, host };
    assert_eq!(effects(&mut pair.left), [measured]);
    assert_eq!(pair.left.round_trip(LEFT_QPN), Some(DELAY * 2));
    pair.left.ask(LEFT_QPN, path, Duration::from_us(50), pair.now);
    assert!(pair.left.build_next(pair.now), "the probe is sent, and dropped on the way");
    pair.advance(Duration::from_us(49));
    assert!(effects(&mut pair.left).is_empty());
    pair.advance(Duration::from_us(1));
    assert_eq!(effects(&mut pair.left), [Effect::Lost(LEFT_QPN, path)]);
}

/// Returns whether an effect ends a probe of the path, and asserts that it is about it.
fn ends(effect: &Effect, path: u8) -> bool {
    match effect {
        Effect::Measured { qpn: LEFT_QPN, path: measured, .. } => measured.index == path,
        Effect::Lost(LEFT_QPN, lost) => lost.index == path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn s8_a_request_ends_when_too_many_messages_wait_or_the_peer_is_unknown_or_one_peer_too_many() {
    let path = ProbePath { index: CONTROL_PATH, label: 7 };
    let timeout = Duration::from_us(50);
    let lost = [Effect::Lost(LEFT_QPN, path)];
    // Nobody answers the greetings.
    let mut pair = Pair::new(ExchangeConfig::default());
    pair.left.ask(LEFT_QPN, path, timeout, pair.now);
    pair.advance(timeout);
    assert_eq!(effects(&mut pair.left), lost, "the peer is unknown");

    let mut pair = Pair::new(ExchangeConfig::default());
    pair.carry();
    while pair.left.stats.overflows == 0 {
        pair.left.push(Pending::Report(RIGHT));
    }
    pair.left.ask(LEFT_QPN, path, timeout, pair.now);
    assert_eq!(pair.left.stats.overflows, 2, "the probe is dropped");
    pair.advance(timeout);
    assert_eq!(effects(&mut pair.left), lost, "too many messages wait");

    let mut left = Exchange::new(ExchangeConfig::default(), LINE, Time::ZERO);
    for peer in 0..PEERS_MAX as u32 {
        left.connect(Qpn::new(1_000 + peer), PeerId(peer), RIGHT_QPN, Time::ZERO);
    }
    left.connect(LEFT_QPN, PeerId(PEERS_MAX as u32), RIGHT_QPN, Time::ZERO);
    left.ask(LEFT_QPN, path, timeout, Time::ZERO);
    left.on_timeout(Time::ZERO + timeout);
    assert_eq!(effects(&mut left), lost, "one peer too many");
    left.disconnect(LEFT_QPN);
}

proptest! {
    /// Whatever is lost, and whenever requests come: each request ends in one event, which ends all of its path that
    /// were made until then, and no event comes without a request.
    #[test]
    fn s8_each_request_ends_once(
        steps in prop::collection::vec((0..6u8, 0..8u8, 0..3u16, 0..60u64), 1..200)
    ) {
        let mut pair = Pair::new(ExchangeConfig::default());
        let mut requested = [false; 8];
        let mut check = |pair: &mut Pair, requested: &mut [bool; 8]| {
            for effect in effects(&mut pair.left) {
                let path = (0..8).find(|path| ends(&effect, *path)).expect("a path");
                assert!(std::mem::take(&mut requested[usize::from(path)]), "{effect:?} without a request");
            }
        };
        for (step, index, label, us) in steps {
            match step {
                0..2 => {
                    pair.left.ask(LEFT_QPN, ProbePath { index, label }, Duration::from_us(us), pair.now);
                    requested[usize::from(index)] = true;
                }
                // All messages are lost.
                2 => while pair.left.build_next(pair.now) || pair.right.build_next(pair.now) {},
                3 => drop(pair.carry()),
                _ => pair.advance(Duration::from_us(us)),
            }
            check(&mut pair, &mut requested);
        }
        pair.advance(Duration::from_us(60));
        check(&mut pair, &mut requested);
        prop_assert_eq!(requested, [false; 8], "requests without an end");
    }
}

#[test]
fn s25_a_receiver_grants_what_is_left_and_the_limit_fades_without_news() {
    let config = ExchangeConfig { credits: Credits::All, floor: Some(BitRate::gbps(1)), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    // Half of the link is taken by others.
    for _ in 0..40 {
        for _ in 0..114 {
            pair.right.count_received(&data(Qpn::new(99), 1_024), Format::RoceV2, pair.now);
        }
        pair.right.count_received(&data(RIGHT_QPN, 1_024), Format::RoceV2, pair.now);
        pair.advance(Duration::from_us(20));
        pair.carry();
    }
    let Some(Effect::Limit(LEFT_QPN, Some(limit))) = effects(&mut pair.left).pop() else {
        panic!("the sender is not limited");
    };
    assert!(limit.as_bps().abs_diff(48_000_000_000) < 6_000_000_000, "{limit}");
    assert!(pair.right.stats().sent(Type::Grants) > 5);
    // The receiver falls silent.
    (0..100).for_each(|_| pair.advance(Duration::from_us(20)));
    assert_eq!(effects(&mut pair.left).pop(), Some(Effect::Limit(LEFT_QPN, None)));
}

#[test]
fn s26_a_backlog_halves_the_rate_of_those_that_sent_lately() {
    let config = ExchangeConfig { pressure_bytes: Some(32_768), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    pair.right.report_backlog(40_000, 0, pair.now);
    assert!(!pair.right.has_messages(), "no queue pair has sent anything");
    pair.right.count_received(&data(RIGHT_QPN, 1_024), Format::RoceV2, pair.now);
    pair.right.report_backlog(32_768, 0, pair.now);
    assert!(!pair.right.has_messages(), "not more than the threshold");
    pair.right.report_backlog(40_000, 0, pair.now);
    pair.right.report_backlog(40_000, 0, pair.now);
    let carried = pair.carry();
    assert!(matches!(carried[..], [Message { body: Body::BackPressure(_), .. }]), "{carried:?}");
    assert_eq!(effects(&mut pair.left), [Effect::Limit(LEFT_QPN, Some(BitRate::gbps(50)))]);
}

/// With the last queue pair, everything about a peer is forgotten, and no timeout remains.
#[test]
fn s6_a_connection_that_ends_leaves_nothing_behind() {
    let config = ExchangeConfig { credits: Credits::All, probe_interval: Some(DELAY), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    pair.left.count_sent(LEFT_QPN, PathLabel(5), 1_024, pair.now);
    assert!(pair.left.next_timeout().is_some());
    pair.left.disconnect(LEFT_QPN);
    assert_eq!(pair.left.next_timeout(), None);
    assert!(pair.left.partners.is_empty() && pair.left.peers.is_empty());
}
