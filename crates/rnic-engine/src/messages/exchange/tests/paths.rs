//! Ports that peers announce, and the pace of the probes of path policies.

use rnic_base::Psn32;
use rnic_wire::scr::Cookie;

use super::*;
use crate::messages::peer::LABELS_MAX;

const SPACING: Duration = Duration::from_us(100);

fn ports() -> ExchangeConfig {
    ExchangeConfig { takes_labels: true, ..ExchangeConfig::default() }
}

/// Lets the left end send a probe of a path with `label`; returns it as it arrives at the right end.
fn probe_of(pair: &mut Pair, label: u16) -> Message {
    pair.left.ask(LEFT_QPN, ProbePath { index: 0, label }, DELAY, pair.now);
    assert!(pair.left.build_next(pair.now), "no probe of {label}");
    pair.left.out().message
}

fn takes(pair: &Pair, label: u16) -> bool {
    pair.right.sender_from(RIGHT_QPN, PathLabel(label)) == Some(LEFT)
}

#[test]
fn s24_a_probe_with_our_cookie_announces_the_port_that_it_names_and_comes_from() {
    let mut pair = Pair::new(ports());
    pair.carry();
    let probe = probe_of(&mut pair, 5_000);
    let label = PathLabel(5_000);
    let announcer = |message: Message| pair.right.announcer(&message, label);
    assert_eq!(announcer(probe), Some(LEFT));
    for wrong in [
        Message { cookie: None, ..probe },
        Message { cookie: Cookie::new(1), ..probe },
        Message { source_qpn: RIGHT_QPN, ..probe },
        Message { dest_qpn: LEFT_QPN, ..probe },
        Message { body: Body::Answer(Answer::default()), ..probe },
        Message { body: Body::Probe(ProbePath { index: 0, label: 5_001 }), ..probe },
    ] {
        assert_eq!(announcer(wrong), None, "{wrong:?}");
    }
    assert!(!takes(&pair, 5_000), "before it is accepted");
    assert!(!pair.right.receive(LEFT, label, &Message { cookie: Cookie::new(1), ..probe }, pair.now, |_| None));
    assert!(pair.right.receive(LEFT, PathLabel(5_001), &probe, pair.now, |_| None));
    assert!(!takes(&pair, 5_000) && !takes(&pair, 5_001), "a probe from another port than it names");
    assert!(pair.right.receive(LEFT, label, &probe, pair.now, |_| None));
    assert!(takes(&pair, 5_000) && !takes(&pair, 5_001));
    assert_eq!(pair.right.sender_from(LEFT_QPN, label), None, "another queue pair");
}

#[test]
fn s24_a_nic_announces_a_bounded_number_of_ports() {
    let mut pair = Pair::new(ports());
    pair.carry();
    for label in 1..=LABELS_MAX as u16 + 2 {
        pair.advance(DELAY);
        let probe = probe_of(&mut pair, label);
        assert_eq!(pair.right.announcer(&probe, PathLabel(label)).is_some(), usize::from(label) <= LABELS_MAX);
        pair.right.receive(LEFT, PathLabel(label), &probe, pair.now, |_| None);
        assert_eq!(takes(&pair, label), usize::from(label) <= LABELS_MAX);
    }
    let known = Message { body: Body::Probe(ProbePath { index: 0, label: 3 }), ..probe_of(&mut pair, 7) };
    assert_eq!(pair.right.announcer(&known, PathLabel(3)), Some(LEFT), "a port that is known may be announced again");
}

/// Ports are forgotten with the last queue pair to the NIC, and when the NIC announces another cookie, because it has
/// started anew.
#[test]
fn s24_announced_ports_are_forgotten_with_the_connection_or_the_cookie() {
    let announced = || {
        let mut pair = Pair::new(ports());
        pair.carry();
        let probe = probe_of(&mut pair, 5_000);
        pair.right.receive(LEFT, PathLabel(5_000), &probe, pair.now, |_| None);
        assert!(takes(&pair, 5_000));
        (pair, probe)
    };
    let (mut pair, probe) = announced();
    pair.right.disconnect(RIGHT_QPN);
    pair.right.connect(RIGHT_QPN, LEFT, LEFT_QPN, pair.now);
    assert!(!takes(&pair, 5_000), "the last queue pair was disconnected");
    assert_eq!(pair.right.announcer(&probe, PathLabel(5_000)), None, "a replay of what announced the port before");

    let (mut pair, probe) = announced();
    let anew = Message {
        announced: Cookie::new(9),
        sequence: Psn32::new(7),
        body: Body::Probe(ProbePath { index: 1, label: 6_000 }),
        ..probe
    };
    assert!(pair.right.receive(LEFT, PathLabel(6_000), &anew, pair.now, |_| None));
    assert!(takes(&pair, 6_000) && !takes(&pair, 5_000), "a port of the time before is taken");
}

#[test]
fn s24_where_labels_are_no_ports_none_is_recorded() {
    let mut pair = Pair::new(ExchangeConfig::default());
    pair.carry();
    let probe = probe_of(&mut pair, 5_000);
    assert_eq!(pair.right.announcer(&probe, PathLabel(5_000)), None);
    assert!(pair.right.receive(LEFT, PathLabel(5_000), &probe, pair.now, |_| None));
    assert!(!takes(&pair, 5_000));
}

/// Returns the ticks of path policies in `span`, each of which asks for the next one 10 us later.
fn ticks(pair: &mut Pair, span: Duration) -> usize {
    let (end, mut ticks) = (pair.now + span, 0);
    while let Some(at) = pair.left.next_timeout().filter(|at| *at < end) {
        pair.now = at;
        pair.left.on_timeout(at);
        while pair.left.build_next(at) {}
        for effect in effects(&mut pair.left) {
            if let Effect::PathTick(qpn) = effect {
                ticks += 1;
                pair.left.set_path_tick(qpn, Duration::from_us(10), at);
            }
        }
    }
    pair.now = end;
    ticks
}

/// The policies of all queue pairs to one NIC together are called no more often than one may be alone. One that remains
/// has the part of those that are disconnected.
#[test]
fn s24_path_policies_share_the_probes_that_a_peer_answers() {
    for (spacing, most) in [(Some(SPACING), 100), (None, 40_000)] {
        let mut pair = Pair::new(ExchangeConfig { path_probe_spacing: spacing, ..ExchangeConfig::default() });
        pair.carry();
        for number in 1..40 {
            pair.left.connect(Qpn::new(100 + number), RIGHT, Qpn::new(200 + number), pair.now);
        }
        let all = || (1..40).map(|number| Qpn::new(100 + number)).chain([LEFT_QPN]);
        all().for_each(|qpn| pair.left.count_sent(qpn, PathLabel(1), 1_024, pair.now));
        ticks(&mut pair, Duration::from_ms(10));
        let ticked = ticks(&mut pair, Duration::from_ms(10));
        assert!(ticked <= most && ticked * 10 >= most * 9, "{ticked}");

        all().skip(1).for_each(|qpn| pair.left.disconnect(qpn));
        pair.left.count_sent(Qpn::new(101), PathLabel(1), 1_024, pair.now);
        ticks(&mut pair, Duration::from_ms(10));
        let ticked = ticks(&mut pair, Duration::from_ms(10));
        assert!(ticked <= most && (most > 100 || ticked >= 90), "{ticked} of the one that remains");
    }
}

/// The driver does not probe what a policy probes already.
#[test]
fn s24_queue_pairs_whose_paths_are_probed_are_not_probed_by_the_driver() {
    for (spacing, probes) in [(None, true), (Some(SPACING), false)] {
        let config =
            ExchangeConfig { probe_interval: Some(SPACING), path_probe_spacing: spacing, ..ExchangeConfig::default() };
        let mut pair = Pair::new(config);
        pair.carry();
        pair.left.count_sent(LEFT_QPN, PathLabel(1), 1_024, pair.now);
        let asked = |pair: &Pair| pair.left.flows[&LEFT_QPN].prober.is_outstanding(DRIVER_PATH);
        pair.advance(Duration::ZERO);
        assert_eq!((effects(&mut pair.left), asked(&pair)), (vec![Effect::PathTick(LEFT_QPN)], probes));
        pair.left.set_path_tick(LEFT_QPN, SPACING * 9, pair.now);
        pair.advance(SPACING);
        assert_eq!(asked(&pair), probes);
    }
    let mut pair =
        Pair::new(ExchangeConfig { probe_interval: Some(SPACING), path_probe_spacing: Some(SPACING), ..ports() });
    pair.carry();
    pair.left.count_sent(LEFT_QPN, PathLabel(1), 1_024, pair.now);
    pair.advance(Duration::ZERO);
    pair.advance(SPACING);
    assert!(pair.left.flows[&LEFT_QPN].prober.is_outstanding(DRIVER_PATH), "the policy has chosen no time");
}

/// The timeout of a probe grows with the round trip.
#[test]
fn s24_the_timeout_of_a_probe_is_that_of_the_policy_or_some_round_trips_and_more() {
    let config = ExchangeConfig {
        probe_timeout_min: Duration::from_us(50),
        probe_timeout_round_trips: 3,
        ..ExchangeConfig::default()
    };
    let mut pair = Pair::new(config);
    pair.carry();
    let timeout = |pair: &mut Pair, requested_us| {
        pair.advance(Duration::from_ms(1));
        pair.left.ask(LEFT_QPN, ProbePath { index: 0, label: 1 }, Duration::from_us(requested_us), pair.now);
        let ends_at = pair.left.flows[&LEFT_QPN].prober.next_timeout().expect("it is outstanding");
        pair.carry();
        ends_at.since(pair.now - DELAY * 2)
    };
    let least = Duration::from_us(50) + DELAY * 6;
    assert_eq!(timeout(&mut pair, 1), least, "three round trips between the NICs");
    assert_eq!(timeout(&mut pair, 1), least, "three round trips of the queue pair");
    assert_eq!(timeout(&mut pair, 500), Duration::from_us(500));
}
