//! Two NICs that exchange messages, without engines around them.

mod paths;

use proptest::prelude::*;
use rnic_wire::scr::{Answer, Body, Grant, GrantKind, Message, Type};

use super::*;
use crate::messages::cadence::Modes;
use crate::messages::peer::{DropCause, PEERS_MAX};

/// The default of [`ExchangeConfig::host_delay_max`].
const HOST_DELAY_MAX: Duration = Duration::from_ms(1);

const LINE: BitRate = BitRate::gbps(100);
const LEFT: NicId = NicId::of(PeerId(0));
const RIGHT: NicId = NicId::of(PeerId(1));
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

/// Length of the UDP datagram of a packet of RoCEv2 with a payload of 1024 bytes in the middle of a Write, and of its
/// payload.
const DATA: [u32; 2] = [12 + 1_024 + 4, 1_024];

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
    let (sent, next) = greetings_in_100_s(ExchangeConfig::default());
    assert_eq!((sent, next), (12, None));
}

/// One that has agreed to messages is greeted again: the network may have lost all greetings.
#[test]
fn s6_a_peer_that_has_agreed_is_greeted_again() {
    let greeting_interval = Some(Duration::from_secs(10));
    let (sent, next) = greetings_in_100_s(ExchangeConfig { greeting_interval, ..ExchangeConfig::default() });
    assert!((18..=22).contains(&sent) && next.is_some(), "{sent}, {next:?}");
}

/// Returns the number of greetings that a peer gets in 100 s that does not answer, and the next timeout then.
fn greetings_in_100_s(config: ExchangeConfig) -> (u32, Option<Time>) {
    let mut left = Exchange::new(config, LINE, Time::ZERO);
    left.connect(LEFT_QPN, RIGHT, RIGHT_QPN, Time::ZERO);
    let mut sent = 0;
    for second in 0..100 {
        let now = Time::ZERO + Duration::from_secs(second);
        left.on_timeout(now);
        while left.build_next(now) {
            sent += 1;
        }
    }
    (sent, left.next_timeout())
}

/// On a shared link, a peer lowers rates from that of the link, and to 1 % of it.
#[test]
fn s25_s26_limits_by_messages_are_those_of_the_shared_link() {
    let shared_line = Some(BitRate::gbps(2));
    let config = ExchangeConfig { pressure_bytes: Some(32_768), shared_line, ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
    pair.right.report_backlog(40_000, 0, pair.now);
    pair.carry();
    assert_eq!(effects(&mut pair.left), [Effect::Limit(LEFT_QPN, Some(BitRate::gbps(1)))]);
}

/// Until the driver has reported that the peer exchanges messages, it is sent none, its messages are dropped, and
/// probes that policies ask for wait: a probe that cannot be answered says nothing of the path.
#[test]
fn s6_nothing_is_exchanged_before_both_ends_have_agreed() {
    let mut pair = Pair::new(ExchangeConfig { waits_for_agreement: true, ..ExchangeConfig::default() });
    let path = ProbePath { index: CONTROL_PATH, label: 7 };
    pair.left.ask(LEFT_QPN, path, Duration::from_us(50), pair.now);
    for _ in 0..100 {
        pair.advance(Duration::from_ms(1));
        assert_eq!(pair.carry(), [], "a message was sent");
    }
    assert_eq!((pair.left.take_effect(), pair.left.next_timeout()), (None, None), "the probe was lost unsent");
    pair.right.agree(RIGHT_QPN, pair.now);
    assert_eq!(pair.carry().len(), 1, "the greeting of the end that agrees first");
    assert_eq!(pair.left.stats().dropped(DropCause::UnknownPeer), 1);
    pair.left.agree(LEFT_QPN, pair.now);
    pair.left.agree(LEFT_QPN, pair.now);
    assert_eq!(pair.left.partners[&RIGHT].flows, 1, "one queue pair was counted twice");
    pair.carry();
    let measured = |effect: &Effect| matches!(effect, Effect::Measured { path: measured, .. } if *measured == path);
    assert!(effects(&mut pair.left).iter().any(measured), "the probe that waited was not sent");
    pair.left.disconnect(LEFT_QPN);
    assert!(pair.left.partners.is_empty());
}

/// A process that receives nothing is not woken for grants that nobody needs; the first packet starts them again.
#[test]
fn s25_no_period_runs_while_nothing_arrives() {
    let config = ExchangeConfig { credits: GrantScope::All, rests_when_idle: true, ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    let granted = |pair: &mut Pair, now: Time| {
        pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, now);
        (0..4).for_each(|_| pair.advance(config.period));
        let before = pair.right.stats().grants_sent;
        (0..100).for_each(|_| pair.advance(config.period));
        assert_eq!(pair.right.alarms.pop_due(pair.now + config.period * 2), None, "a period runs");
        before
    };
    for nth in 1..3 {
        let (now, before) = (pair.now, pair.right.stats().grants_sent);
        assert!(granted(&mut pair, now) > before, "no grant in burst {nth}");
    }
}

/// NICs at one address have cookies and sequence numbers of their own.
#[test]
fn s6_nics_at_one_address_are_told_apart_by_their_queue_pairs() {
    let nic_of = |qpn: Qpn| (qpn.get() >> 12) as u16;
    let mut left = Exchange::new(ExchangeConfig { nic_of, ..ExchangeConfig::default() }, LINE, Time::ZERO);
    let qpns = [Qpn::new(0x1_001), Qpn::new(0x1_002), Qpn::new(0x2_001)];
    for (number, dest_qpn) in (1..).zip(qpns) {
        let nic = left.nic_of(PeerId(1), dest_qpn);
        left.connect(Qpn::new(number), nic, dest_qpn, Time::ZERO);
    }
    let greeted: Vec<NicId> = std::iter::from_fn(|| left.build_next(Time::ZERO).then(|| left.out().nic)).collect();
    assert_eq!(greeted, [1, 2].map(|number| NicId { peer: PeerId(1), number }));
    left.disconnect(Qpn::new(1));
    left.disconnect(Qpn::new(3));
    assert_eq!(left.partners.keys().map(|nic| nic.number).collect::<Vec<_>>(), [1]);
}

/// The timeout of a greeting is that of the known round trip, however long the configured one is, and doubles.
#[test]
fn s6_the_timeout_of_greetings_follows_the_round_trip() {
    let configured = Duration::from_ms(10);
    let mut pair = Pair::new(ExchangeConfig { round_trip: configured, ..ExchangeConfig::default() });
    let first = pair.left.next_timeout().expect("a greeting is outstanding");
    assert_eq!(first, Time::ZERO + configured * 4);
    pair.carry();
    assert_eq!(pair.left.partners[&RIGHT].round_trip, Some(DELAY * 2));
    // The next greeting is due after 64 periods; all are lost.
    let mut at = pair.left.next_timeout().expect("the next greeting is due");
    for doubled in 0..4 {
        pair.left.on_timeout(at);
        assert!(pair.left.build_next(at), "greeting {doubled}");
        let next = pair.left.next_timeout().expect("a greeting is outstanding");
        assert_eq!(next.since(at), DELAY * 2 * (4 << doubled));
        at = next;
    }
}

/// A greeting that cannot be sent, because too many messages wait, is repeated.
#[test]
fn s6_a_greeting_that_is_not_sent_is_repeated() {
    let mut left = Exchange::new(ExchangeConfig::default(), LINE, Time::ZERO);
    while left.stats.overflows == 0 {
        left.push(Pending::Report(RIGHT));
    }
    left.connect(LEFT_QPN, RIGHT, RIGHT_QPN, Time::ZERO);
    assert!(!left.build_next(Time::ZERO), "reports to a peer whose cookie is not known");
    let at = left.next_timeout().expect("the greeting is repeated");
    left.on_timeout(at);
    assert!(left.build_next(at));
}

/// With periods of zero, the timeouts of one instant would never end.
#[test]
fn s7_times_of_zero_are_replaced() {
    let config = ExchangeConfig {
        modes: crate::messages::cadence::Modes { periodic: true, ..Default::default() },
        period: Duration::ZERO,
        round_trip: Duration::ZERO,
        credits: GrantScope::All,
        probe_interval: Some(Duration::ZERO),
        probe_timeout: Duration::ZERO,
        ..ExchangeConfig::default()
    };
    let mut pair = Pair::new(config);
    pair.carry();
    pair.left.count_sent(LEFT_QPN, PathLabel(5), 1_024, pair.now);
    for _ in 0..10 {
        pair.advance(Duration::from_us(1));
        assert!(pair.left.next_timeout().is_some_and(|at| at > pair.now));
        pair.carry();
    }
}

/// The peer may be gone: a queue pair that sends nothing is not probed, neither by the driver nor by its path policy.
#[test]
fn s8_an_idle_queue_pair_is_not_probed_for_ever() {
    let config = ExchangeConfig { probe_interval: Some(Duration::from_ms(1)), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    for _ in 0..2 {
        let start = pair.now;
        pair.left.count_sent(LEFT_QPN, PathLabel(5), 1_024, pair.now);
        while let Some(at) = pair.left.next_timeout() {
            pair.now = at;
            pair.left.on_timeout(at);
            while pair.left.build_next(at) {}
            for effect in effects(&mut pair.left) {
                if effect == Effect::PathTick(LEFT_QPN) {
                    pair.left.set_path_tick(LEFT_QPN, Duration::from_ms(1), at);
                }
            }
            assert!(at.since(start) < Duration::from_secs(12), "probed for ever");
        }
        assert!(pair.now.since(start) > Duration::from_secs(9), "the probes end too early");
    }
}

#[test]
fn s6_messages_of_nics_without_a_connection_change_nothing() {
    let mut pair = Pair::new(ExchangeConfig::default());
    let carried = pair.carry();
    let probe = *carried.last().expect("messages were carried");
    let unconnected = NicId::of(PeerId(7));
    assert!(!pair.left.receive(unconnected, PathLabel(1), &probe, pair.now, |_| None));
    assert_eq!(pair.left.stats().dropped(DropCause::UnknownPeer), 1);
    // The queue pair exists, but is connected to another one.
    let other = Message { dest_qpn: LEFT_QPN, source_qpn: Qpn::new(21), ..probe };
    assert!(!pair.left.receive(RIGHT, PathLabel(1), &other, pair.now, |_| None));
    assert_eq!(pair.left.stats().dropped(DropCause::NotConnected), 1);
    assert!(!pair.left.has_messages(), "an answer to a message that is dropped");
    // A grant of a peer for a queue pair that is connected to another peer.
    pair.left.connect(Qpn::new(11), unconnected, Qpn::new(30), pair.now);
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
    // The greetings are not answered.
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
        left.connect(Qpn::new(1_000 + peer), NicId::of(PeerId(peer)), RIGHT_QPN, Time::ZERO);
    }
    left.connect(LEFT_QPN, NicId::of(PeerId(PEERS_MAX as u32)), RIGHT_QPN, Time::ZERO);
    left.ask(LEFT_QPN, path, timeout, Time::ZERO);
    left.on_timeout(Time::ZERO + timeout);
    assert_eq!(effects(&mut left), lost, "one peer too many");
    left.disconnect(LEFT_QPN);
}

proptest! {
    /// With any losses, and requests at any time, each request ends in one event, which ends all of its path that
    /// were made until then, and no event comes without a request.
    #[test]
    fn s8_each_request_ends_once(
        steps in prop::collection::vec((0..6u8, 0..8u8, 0..3u16, 0..60u64), 1..200)
    ) {
        let mut pair = Pair::new(ExchangeConfig::default());
        let mut requested = [false; 8];
        let check = |pair: &mut Pair, requested: &mut [bool; 8]| {
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
    let config =
        ExchangeConfig { credits: GrantScope::All, floor: Some(BitRate::gbps(1)), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    // Half of the link is taken by others.
    for _ in 0..40 {
        for _ in 0..114 {
            pair.right.count_received(Qpn::new(99), LEFT.peer, DATA, pair.now);
        }
        pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
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

/// Packets of another peer to a granted queue pair are those of others: they cause no grants.
type Hostile = (Body, u32, bool, u32, u64);

fn hostile() -> impl Strategy<Value = Vec<Hostile>> {
    let grant =
        (any::<u32>(), any::<bool>(), any::<u32>(), any::<u16>()).prop_map(|(other, lifts, rate_kbps, valid_us)| {
            let qpn = if other % 8 == 0 { Qpn::new(other >> 8) } else { LEFT_QPN };
            let kind = if lifts { GrantKind::Lift } else { GrantKind::Limit };
            let rate_kbps = if other % 2 == 0 { rate_kbps } else { rate_kbps % 200_000_000 };
            Body::Grants(Records::new(&[Grant { qpn, kind, rate_kbps, valid_us, reason: 0 }]).expect("one record"))
        });
    let notice = any::<(u8, u32, u32)>().prop_map(|(severity, waiting_bytes, count)| {
        let notice = BackPressure { qpn: LEFT_QPN, severity, waiting_bytes, count };
        Body::BackPressure(Records::new(&[notice]).expect("one record"))
    });
    let report = any::<(u32, u16)>().prop_map(|(bus_latency_ns, bus_use)| {
        Body::NodeReport(rnic_wire::scr::NodeReport { bus_latency_ns, bus_use, ..Default::default() })
    });
    let answer = any::<(u8, u64, u64)>().prop_map(|(index, received, turn_around)| {
        let sent = received.saturating_add(turn_around >> 40);
        Body::Answer(Answer { path: ProbePath { index, label: 7 }, echoed: 0, received, sent })
    });
    let probe = any::<(u8, u16)>().prop_map(|(index, label)| Body::Probe(ProbePath { index, label }));
    let bodies = prop_oneof![4 => grant, 4 => notice, 1 => report, 2 => answer, 1 => probe];
    let waits = prop_oneof![Just(0), 0..100u64, 0..200_000u64];
    prop::collection::vec((bodies, 0..3u32, any::<bool>(), 0..8u32, waits), 1..100)
}

proptest! {
    /// A connected peer with the right cookie sends anything, at any time. Nearly all of it is accepted, and yet: no
    /// limit is below the floor, it is gone in time, requested probes end, what waits is bounded, and measured delays
    /// are.
    #[test]
    fn s6_s25_s26_a_hostile_peer_does_bounded_harm(attack in hostile()) {
        let mut pair = Pair::new(ExchangeConfig::default());
        pair.carry();
        let floor = BitRate::gbps(1);
        // A message of the peer has the cookie, and the number from which the attack goes on.
        pair.right.push(Pending::Report(LEFT));
        prop_assert!(pair.right.build_next(pair.now));
        let template = pair.right.out().message;
        let (mut sequence, mut accepted, all) = (template.sequence, 0, attack.len());
        for (body, ahead, answer_wanted, path, wait) in attack {
            pair.advance(Duration::from_us(wait));
            pair.left.ask(LEFT_QPN, ProbePath { index: path as u8, label: 7 }, Duration::from_us(50), pair.now);
            sequence = sequence.plus(1 + ahead);
            let is_about_path = matches!(body, Body::Answer(_) | Body::Probe(_));
            let (dest_qpn, source_qpn) = if is_about_path { (LEFT_QPN, RIGHT_QPN) } else { (Qpn::GSI, Qpn::GSI) };
            let answer_wanted = answer_wanted && !matches!(body, Body::Answer(_));
            let mut echoes = Vec::new();
            while pair.left.build_next(pair.now) {
                echoes.push(pair.left.out().message.time);
            }
            let body = match (body, echoes.last()) {
                (Body::Answer(answer), Some(echoed)) => {
                    let path = ProbePath { index: path as u8, label: 7 };
                    Body::Answer(Answer { path, echoed: *echoed, ..answer })
                }
                (body, _) => body,
            };
            let message = Message { dest_qpn, source_qpn, answer_wanted, sequence, body, announced: None, ..template };
            accepted += usize::from(pair.left.receive(RIGHT, PathLabel(7), &message, pair.now, |_| None));
            prop_assert!(pair.left.flows[&LEFT_QPN].in_force.is_none_or(|limit| limit >= floor));
            for effect in effects(&mut pair.left) {
                if let Effect::Measured { round_trip, host, .. } = effect {
                    prop_assert!(round_trip > Duration::ZERO && round_trip <= Duration::from_us(50));
                    prop_assert!(host.peer <= Duration::from_ms(1));
                }
            }
        }
        prop_assert!(accepted * 2 >= all, "{} of {}", accepted, all);
        pair.advance(Duration::from_ms(100));
        // 21 quarters from 1 to 100 Gbit/s.
        (0..30).for_each(|_| pair.advance(Duration::from_us(20)));
        prop_assert_eq!(pair.left.flows[&LEFT_QPN].in_force, None);
        prop_assert_eq!(pair.left.flows[&LEFT_QPN].prober.next_timeout(), None);
    }
}

/// Reports carry the rate of all packets that the host has counted in the last period, of whichever queue pair.
#[test]
fn s5_the_rate_received_is_that_of_the_hosts_counters() {
    let modes = crate::messages::cadence::Modes { periodic: true, ..Default::default() };
    let mut right = Exchange::new(ExchangeConfig { modes, ..ExchangeConfig::default() }, LINE, Time::ZERO);
    right.connect(RIGHT_QPN, LEFT, LEFT_QPN, Time::ZERO);
    let mut now = Time::ZERO;
    for packets in [0, 114, 57] {
        for _ in 0..packets {
            right.count_received(Qpn::new(99), PeerId(7), DATA, now);
        }
        now += Duration::from_us(20);
        right.on_timeout(now);
        let report = right.node_report();
        // 114 packets of 1,024 bytes and headers in 20 us are half of the link.
        let expected = packets * (Q20 as u32) / 228;
        assert!(report.rx_rate.abs_diff(expected) <= expected / 20, "{packets}: {report:?} instead of {expected}");
        assert_eq!(report.headroom, (1 << 20) - report.rx_rate);
    }
}

#[test]
fn s25_packets_of_another_peer_are_not_those_of_the_queue_pair() {
    let config = ExchangeConfig { credits: GrantScope::All, pressure_bytes: Some(32_768), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    pair.right.count_received(RIGHT_QPN, PeerId(7), DATA, pair.now);
    assert_eq!(pair.right.law.share(), None);
    pair.right.report_backlog(1 << 20, 0, pair.now);
    assert!(!pair.right.has_messages(), "the connected peer has sent nothing");
    pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
    assert!(pair.right.law.share().is_some());
}

/// Makes the right side grant a rate to the left one, which sends a packet each period.
fn grant(pair: &mut Pair, periods: u32) {
    for _ in 0..periods {
        pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
        pair.advance(Duration::from_us(20));
        pair.carry();
    }
}

#[test]
fn s25_a_sender_that_pauses_is_not_limited_any_more() {
    let config = ExchangeConfig { credits: GrantScope::All, ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    grant(&mut pair, 4);
    assert!(pair.left.flows[&LEFT_QPN].in_force.is_some());
    for _ in 0..8 {
        pair.advance(Duration::from_us(20));
        pair.carry();
    }
    assert_eq!((pair.left.flows[&LEFT_QPN].in_force, pair.right.law.share()), (None, None));
    assert_eq!(effects(&mut pair.left).pop(), Some(Effect::Limit(LEFT_QPN, None)));
    grant(&mut pair, 2);
    assert!(pair.left.flows[&LEFT_QPN].in_force.is_some(), "it sends again");
}

/// While another queue pair is connected to the peer, the limit of one that is gone is lifted at once.
#[test]
fn s25_the_limit_of_a_disconnected_queue_pair_is_lifted() {
    let config = ExchangeConfig { credits: GrantScope::All, ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.right.connect(Qpn::new(21), LEFT, Qpn::new(11), pair.now);
    pair.carry();
    grant(&mut pair, 4);
    pair.right.disconnect(RIGHT_QPN);
    let carried = pair.carry();
    assert!(matches!(carried[..], [Message { body: Body::Grants(_), .. }]), "{carried:?}");
    assert_eq!(pair.left.flows[&LEFT_QPN].in_force, None);
}

/// A backlog costs no more than the queue pairs that have received since the last one, however many are connected.
#[test]
fn s26_a_backlog_looks_at_a_bounded_number_of_queue_pairs() {
    let config = ExchangeConfig { pressure_bytes: Some(32_768), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    for number in 0..1_000 {
        pair.right.connect(Qpn::new(1_000 + number), LEFT, Qpn::new(5_000 + number), pair.now);
    }
    pair.carry();
    for number in 0..1_000 {
        pair.right.count_received(Qpn::new(1_000 + number), LEFT.peer, DATA, pair.now);
        assert!(pair.right.recent.len() <= RECENT_MAX);
    }
    pair.right.report_backlog(40_000, 0, pair.now);
    assert_eq!((pair.right.stats().notices_sent, pair.right.recent.len()), (RECENT_MAX as u64, 0));
    // One that was forgotten is told with its next packet.
    pair.right.count_received(Qpn::new(1_000), LEFT.peer, DATA, pair.now);
    pair.right.report_backlog(40_000, 0, pair.now);
    assert_eq!(pair.right.stats().notices_sent, RECENT_MAX as u64 + 1);
    pair.right.disconnect(Qpn::new(1_001));
    pair.right.report_backlog(40_000, 0, pair.now);
}

/// Drops shortly after the last notice are told when a round trip and the time of NICs are over, although nothing waits
/// by then.
#[test]
fn s26_drops_shortly_after_a_notice_are_told_later() {
    let mut pair = Pair::new(ExchangeConfig { pressure_bytes: Some(32_768), ..ExchangeConfig::default() });
    pair.carry();
    let mut notices_after = |us: u64, drops: u64, receives: bool| {
        let now = pair.now + Duration::from_us(us);
        if receives {
            pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, now);
        }
        pair.right.report_backlog(100, drops, now);
        pair.right.stats().notices_sent
    };
    assert_eq!(notices_after(0, 3, true), 1);
    assert_eq!(notices_after(1, 5, true), 1, "within a round trip");
    let told: Vec<u64> = (2..=12).map(|us| notices_after(us, 5, false)).collect();
    assert_eq!((told.first(), told.last()), (Some(&1), Some(&2)), "{told:?}");
    assert_eq!(notices_after(30, 5, true), 2, "told twice");
}

#[test]
fn s26_a_backlog_halves_the_rate_of_those_that_sent_lately() {
    let config = ExchangeConfig { pressure_bytes: Some(32_768), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    pair.right.report_backlog(40_000, 0, pair.now);
    assert!(!pair.right.has_messages(), "no queue pair has sent anything");
    pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
    pair.right.report_backlog(32_768, 0, pair.now);
    assert!(!pair.right.has_messages(), "not more than the threshold");
    pair.right.report_backlog(40_000, 0, pair.now);
    pair.right.report_backlog(40_000, 0, pair.now);
    let carried = pair.carry();
    assert!(matches!(carried[..], [Message { body: Body::BackPressure(_), .. }]), "{carried:?}");
    assert_eq!(effects(&mut pair.left), [Effect::Limit(LEFT_QPN, Some(BitRate::gbps(50)))]);
}

/// A second backlog is told, too, although it is not longer than the first.
#[test]
fn s26_each_backlog_is_told_once() {
    let mut pair = Pair::new(ExchangeConfig { pressure_bytes: Some(32_768), ..ExchangeConfig::default() });
    pair.carry();
    for told in 1..=3 {
        pair.now += Duration::from_us(100);
        pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
        pair.right.report_backlog(40_000, 0, pair.now);
        // It shrinks, and some packets more arrive.
        for waiting_bytes in [40_000, 32_000, 33_000, 16_385, 40_000, 16_384] {
            pair.now += Duration::from_us(30);
            pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
            pair.right.report_backlog(waiting_bytes, 0, pair.now);
        }
        assert_eq!(pair.right.stats().notices_sent, told);
    }
}

/// With the last queue pair, everything about a peer is forgotten, and no timeout remains.
#[test]
fn s6_a_connection_that_ends_leaves_nothing_behind() {
    let config = ExchangeConfig { credits: GrantScope::All, probe_interval: Some(DELAY), ..ExchangeConfig::default() };
    let mut pair = Pair::new(config);
    pair.carry();
    pair.left.count_sent(LEFT_QPN, PathLabel(5), 1_024, pair.now);
    assert!(pair.left.next_timeout().is_some());
    pair.left.disconnect(LEFT_QPN);
    assert_eq!(pair.left.next_timeout(), None);
    assert!(pair.left.partners.is_empty() && !pair.left.peers.knows(RIGHT));
}

/// Data from one end to the other at times in microseconds; returns the reports that the receiver has sent until
/// `until_us`.
fn reports(pair: &mut Pair, data_at_us: impl Fn(u64) -> bool, until_us: u64) -> u64 {
    let begin = pair.now;
    let before = pair.right.stats().sent(Type::NodeReport);
    for us in 0..until_us {
        pair.now = begin + Duration::from_us(us);
        if data_at_us(us) {
            pair.right.count_received(RIGHT_QPN, LEFT.peer, DATA, pair.now);
        }
        pair.advance(Duration::ZERO);
        let now = pair.now;
        pair.carry();
        pair.now = now;
    }
    pair.right.stats().sent(Type::NodeReport) - before
}

const PERIODIC: Modes = Modes { periodic: true, sampling_bytes: None, anomaly: false };

/// With a period of 20 us, 1 ms has 50 of them, with a jitter of an eighth each.
#[test]
fn s7_a_nic_that_rests_reports_only_to_those_from_which_data_arrive() {
    let greeting_interval = Some(Duration::from_secs(10));
    let resting =
        ExchangeConfig { modes: PERIODIC, rests_when_idle: true, greeting_interval, ..ExchangeConfig::default() };
    let mut pair = Pair::new(resting);
    pair.carry();
    assert_eq!(reports(&mut pair, |_| false, 1_000), 0);
    let sent = reports(&mut pair, |us| us % 5 == 0, 1_000);
    assert!((44..=58).contains(&sent), "{sent}");
    assert_eq!(pair.left.stats().sent(Type::NodeReport), 0, "only acknowledgements arrive there");
    let sent = reports(&mut pair, |_| false, 1_000);
    assert!(sent <= 3, "{sent} reports after the last data");
    let timers = [&pair.left, &pair.right].map(|exchange| exchange.next_timeout());
    let idle = pair.now + Duration::from_us(100);
    assert!(timers.iter().flatten().all(|at| *at > idle), "an idle process is woken: {timers:?}");
    // A packet now and then is reported each time.
    let sent = reports(&mut pair, |us| us % 500 == 0, 2_000);
    assert!((4..=12).contains(&sent), "{sent}");
    let busy = ExchangeConfig { rests_when_idle: false, ..resting };
    assert!(reports(&mut Pair::new(busy), |_| false, 1_000) >= 40);
}

/// A server with 1000 peers is not kept busy by its reports.
#[test]
fn s7_reports_to_many_peers_are_rarer() {
    let period = Duration::from_ms(4);
    let config = ExchangeConfig { modes: PERIODIC, rests_when_idle: true, period, ..ExchangeConfig::default() };
    for (peers, most) in [(1, 290), (1_000, 5_000)] {
        let mut nic = Exchange::new(config, LINE, Time::ZERO);
        for peer in 0..peers {
            nic.connect(Qpn::new(100 + peer), NicId::of(PeerId(peer)), Qpn::new(7), Time::ZERO);
        }
        let mut due = 0;
        for ms in 0..1_000 {
            let now = Time::ZERO + Duration::from_ms(ms);
            for peer in 0..peers {
                nic.count_received(Qpn::new(100 + peer), PeerId(peer), DATA, now);
            }
            let quiet = |nic: &Exchange| nic.partners.values().map(|partner| partner.cadence.next_timeout()).collect();
            let before: Vec<_> = quiet(&nic);
            nic.on_timeout(now);
            let after: Vec<_> = quiet(&nic);
            due += before.iter().zip(&after).filter(|(before, after)| before < after).count();
        }
        assert!((200..most).contains(&due), "{due} reports to {peers} peers in a second");
    }
}

/// The delay that a peer reports is bounded, and is forgotten without further reports.
#[test]
fn s23_the_reported_delay_of_a_host_is_bounded_and_expires() {
    let mut pair = Pair::new(ExchangeConfig { probes_wait_for_hosts: true, ..ExchangeConfig::default() });
    pair.carry();
    let path = ProbePath { index: CONTROL_PATH, label: 7 };
    let probed = |pair: &mut Pair| {
        pair.left.ask(LEFT_QPN, path, Duration::from_us(50), pair.now);
        pair.carry();
        let Some(Effect::Measured { host, .. }) = pair.left.take_effect() else { panic!("it was not measured") };
        host
    };
    pair.left.report_load(HostLoad { bus_latency: Duration::from_us(7), ..HostLoad::default() });
    let local = Duration::from_us(7);
    assert_eq!(probed(&mut pair), HostDelays { local, peer: Duration::ZERO, are_in_round_trip: true });
    for (reported, believed) in [(Duration::from_us(300), Duration::from_us(300)), (Duration::MAX, HOST_DELAY_MAX)] {
        pair.right.report_load(HostLoad { bus_latency: reported, ..HostLoad::default() });
        pair.right.push(Pending::Report(LEFT));
        pair.carry();
        assert_eq!(probed(&mut pair).peer, believed);
        assert_eq!(pair.left.host_delay_of_peer(LEFT_QPN, pair.now), Some(believed));
    }
    pair.now += Duration::from_ms(101);
    assert_eq!(probed(&mut pair).peer, Duration::ZERO, "it is believed for ever");
}
