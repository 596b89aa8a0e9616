//! The closed control loop: the delivery layer with Swift, PLB and PRR, over a link with a queue (F-17, F-18, F-26,
//! F-30).

mod two_ends;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{DeliveryConfig, Departure};
use rnic_falcon::interface::Window;
use rnic_policy::FlowActions;
use rnic_policy::control::report::ReportKind;
use rnic_wire::falcon::{FlowLabel, PacketType};
use two_ends::link::{Inline, LOST, Link, after, with_swift};
use two_ends::{config_of, micros};

const DELAY: Duration = Duration::from_us(5);

fn is_data(departure: &Departure) -> bool {
    departure.packet.body.packet_type() == PacketType::PushData
}

/// A queue of unlimited length that sends one packet per `service`.
struct Queue {
    free_at: Cell<Time>,
    service: Duration,
    longest: Cell<Duration>,
}

impl Queue {
    fn new(service: Duration) -> Self {
        Self { free_at: Cell::new(Time::ZERO), service, longest: Cell::new(Duration::ZERO) }
    }

    /// Returns the time that a packet which arrives at `now` spends in the queue and on the link.
    fn pass(&self, now: Time) -> Duration {
        let waits = self.free_at.get().since(now);
        self.free_at.set(now + waits + self.service);
        // The start, before Swift has measured the path, does not count.
        if now > Time::from_us(11_000) {
            self.longest.set(self.longest.get().max(waits));
        }
        DELAY + waits + self.service
    }
}

#[test]
fn f1_another_program_controls_the_same_delivery_layer() {
    let most = |program: (Inline, FlowActions)| {
        let mut link = Link::new(config_of("rack-tlp", "ecmp"), Box::new(|_, _, _: &_| after(DELAY)));
        let (control, first) = program;
        link.ends[0].control = Some(control);
        link.ends[0].delivery.apply_response(0, &first);
        link.ends[0].upper.pushes(4_000);
        let mut most = 0;
        for _ in 0..2_000 {
            link.run_for(Duration::from_ns(500));
            most = most.max(link.ends[0].delivery.span(Window::Data));
        }
        most
    };
    let (fixed, swift) = (most(Inline::new("fixed-window", &[("window", "16")])), most(Inline::new("swift", &[])));
    assert_eq!(fixed, 16);
    assert!(swift > 60, "Swift does not fill the path: {swift}");
}

#[test]
fn f17_swift_keeps_a_bottleneck_busy_and_its_queue_short() {
    // The bottleneck is four times slower than the sender.
    let queue = Queue::new(Duration::from_ns(400));
    let rule =
        |now, from, departure: &Departure| after(if from == 0 && is_data(departure) { queue.pass(now) } else { DELAY });
    let mut link = Link::new(config_of("rack-tlp", "ecmp"), Box::new(rule));
    with_swift(&mut link, 1, &[]);
    link.ends[0].upper.pushes(120_000);
    link.ends[0].keeps_log = false;
    link.run_until(Time::from_us(11_000));
    let before = link.ends[1].upper.kept.len();
    link.run_for(Duration::from_ms(30));
    let throughput = link.ends[1].upper.kept.len() - before;
    assert!(throughput > 71_000, "{throughput} of 75000 packets that the bottleneck could transmit");
    // The target of 25 us, 3 hops, and what flow scaling adds for a window of about 70 packets, minus the wire's
    // delay.
    assert!(queue.longest.get() < micros(40), "the queue held packets for {}", queue.longest.get());
    let counters = link.ends[0].delivery.counters();
    assert_eq!((counters.timeouts, counters.retransmitted_early, counters.signals_refused), (0, 0, 0), "{counters:?}");
}

#[test]
fn f18_a_full_receiver_reduces_ncwnd() {
    let mut link = Link::new(config_of("rack-tlp", "ecmp"), Box::new(|_, _, _: &_| after(DELAY)));
    with_swift(&mut link, 1, &[]);
    link.ends[0].keeps_log = false;
    link.ends[0].upper.pushes(60_000);
    link.run_for(Duration::from_ms(2));
    let ncwnd = |link: &Link<'_>| link.ends[0].signals.last().expect("a report was sent").in_force.ncwnd;
    let roomy = ncwnd(&link);
    link.ends[1].upper.rx_level = 31;
    link.run_for(Duration::from_ms(2));
    let full = ncwnd(&link);
    assert!(full < roomy / 8, "{roomy} packets, then {full} with full buffers");
    link.ends[1].upper.rx_level = 0;
    link.run_for(Duration::from_ms(2));
    assert!(ncwnd(&link) > 2 * full, "ncwnd does not grow again");
}

fn four_paths() -> DeliveryConfig {
    let mut config = config_of("rack-tlp", "largest-window");
    (config.flows, config.accept_stale) = (4, true);
    config
}

#[test]
fn f26_a_congested_path_gets_fewer_packets_within_a_few_round_trips() {
    // Path 3 has a tenth of the rate of the others.
    let queues = [100, 100, 100, 1_000].map(|ns| Queue::new(Duration::from_ns(ns)));
    let rule = |now, from, departure: &Departure| {
        let flow = usize::from(departure.label.flow(2));
        after(if from == 0 && is_data(departure) { queues[flow].pass(now) } else { DELAY })
    };
    let mut link = Link::new(four_paths(), Box::new(rule));
    with_swift(&mut link, 4, &[("plb_rounds", "0")]);
    link.ends[0].upper.pushes(60_000);
    link.run_for(Duration::from_ms(4));
    let late = link.ends[0].log.iter().filter(|(at, departure)| *at > Time::from_us(2_000) && is_data(departure));
    let flows: Vec<u8> = late.map(|(_, departure)| departure.label.flow(2)).collect();
    let slow = flows.iter().filter(|flow| **flow == 3).count();
    assert!(slow * 8 < flows.len(), "{slow} of {} packets on the slow path, not below an eighth", flows.len());
    assert_eq!(link.ends[0].delivery.counters().timeouts, 0);
}

/// Four equal paths, until one drops to a tenth of the rate of the others.
#[test]
fn f26_a_path_that_becomes_congested_gets_fewer_packets_within_a_few_round_trips() {
    let slow = Cell::new(false);
    let queues = [100, 100, 100, 100, 1_000].map(|ns| Queue::new(Duration::from_ns(ns)));
    let rule = |now, from, departure: &Departure| {
        let flow = usize::from(departure.label.flow(2));
        let queue = if slow.get() && flow == 3 { 4 } else { flow };
        after(if from == 0 && is_data(departure) { queues[queue].pass(now) } else { DELAY })
    };
    let mut link = Link::new(four_paths(), Box::new(rule));
    with_swift(&mut link, 4, &[("plb_rounds", "0")]);
    link.ends[0].upper.pushes(60_000);
    link.run_for(Duration::from_ms(1));
    slow.set(true);
    let congested = link.now;
    link.run_for(Duration::from_ms(1));
    // Share of the packets sent in these round trips of 10 us since then that took this path.
    let share = |from: u64, to: u64| {
        let round = |at: Time| at.since(congested).as_ps() / micros(10).as_ps();
        let log = link.ends[0].log.iter().filter(|(at, departure)| *at >= congested && is_data(departure));
        let those: Vec<u8> = log
            .filter(|(at, _)| (from..to).contains(&round(*at)))
            .map(|(_, departure)| departure.label.flow(2))
            .collect();
        those.iter().filter(|flow| **flow == 3).count() as f64 / those.len() as f64
    };
    let [at_once, soon, later] = [share(0, 1), share(2, 6), share(10, 20)];
    assert!(at_once > 0.2 && soon < 0.17 && later < 0.1, "shares {at_once} {soon} {later}, a quarter before");
}

#[test]
fn f30_a_flow_leaves_a_failed_path_and_all_packets_arrive() {
    let cut = Cell::new(None::<FlowLabel>);
    let rule = |_, from, departure: &Departure| {
        if from == 0 && Some(departure.label) == cut.get() { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(four_paths(), Box::new(rule));
    with_swift(&mut link, 4, &[]);
    link.ends[0].upper.pushes(4_000);
    link.run_for(micros(200));
    let label = link.ends[0].delivery.label(2);
    cut.set(Some(label));
    link.run_for(Duration::from_ms(20));
    assert_ne!(link.ends[0].delivery.label(2), label, "the flow kept its path");
    assert_eq!(link.ends[0].delivery.label(2).flow(2), 2);
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
    // The flow changed its path at the second timeout of a packet, not earlier.
    let counts = link.ends[0].signals.iter().filter(|signal| signal.flow == 2).filter_map(|signal| match signal.kind {
        ReportKind::Retransmitted { count, .. } => Some((count, signal.label)),
        _ => None,
    });
    let before: Vec<u8> = counts.take_while(|(_, old)| *old == label.get()).map(|(count, _)| count).collect();
    assert_eq!((before.first(), before.iter().max()), (Some(&1), Some(&2)), "{before:?}");
    // Recovery takes a few timeouts at most: the time of the last retransmission.
    let last =
        link.ends[0].log.iter().rfind(|(_, departure)| departure.is_retransmission).expect("it was retransmitted").0;
    let rto = micros(250);
    assert!(last < Time::from_us(1_200) + rto.saturating_mul(8), "the last retransmission was at {last:?}");
}

/// Constant window of each flow of [`moved_after`], in packets: Swift is configured for it.
const WINDOW: u64 = 16;

/// Runs with one of four paths delayed from some time on. Returns how many packets took it before its flow had
/// another label; `None` if it never changed.
fn moved_after(plb_rounds: &str) -> Option<u64> {
    let (late, delay) = (Cell::new(None::<FlowLabel>), micros(2));
    let rule = |_, from, departure: &Departure| {
        let is_late = from == 0 && late.get() == Some(departure.label);
        after(if is_late { delay + micros(30) } else { delay })
    };
    let config = DeliveryConfig { coalesce_count: 1, ..four_paths() };
    let mut link = Link::new(config, Box::new(rule));
    let (all, least) = ((4 * WINDOW).to_string(), (WINDOW * 1_024).to_string());
    let window = [("initial_window", &*all), ("window_min", &least), ("increase", "1"), ("base_target", "10us")];
    let paths = [("scaling_range", "0us"), ("prr_timeouts", "0"), ("plb_rounds", plb_rounds)];
    with_swift(&mut link, 4, &[&window[..], &paths].concat());
    link.ends[0].upper.pushes(60_000);
    link.run_for(Duration::from_ms(1));
    let first = link.ends[0].delivery.label(2);
    late.set(Some(first));
    link.run_for(Duration::from_ms(2));
    // For each flow the labels seen on the wire, with the number of packets that had taken the late path before each.
    let mut seen: [BTreeMap<FlowLabel, u64>; 4] = Default::default();
    let (mut sent_late, begin) = (0, link.ends[0].log[0].0 + Duration::from_ms(1));
    for (at, departure) in link.ends[0].log.iter().filter(|(_, departure)| is_data(departure)) {
        seen[usize::from(departure.label.flow(2))].entry(departure.label).or_insert(sent_late);
        sent_late += u64::from(*at >= begin && departure.label == first);
    }
    let labels: BTreeSet<FlowLabel> = seen.iter().filter_map(|flow| flow.keys().next()).copied().collect();
    assert_eq!(labels.len(), 4, "each flow has one label of its own");
    assert_eq!([0, 1, 3].map(|flow| seen[flow].len()), [1; 3], "flows on other paths stay there");
    let mut moves = seen[2].iter().filter(|(label, _)| **label != first).map(|(_, sent)| *sent);
    let moved = moves.next();
    assert_eq!(moves.next(), None, "the new path is not late, so the flow stays there");
    moved
}

#[test]
fn f30_a_flow_on_a_congested_path_changes_its_path_after_the_configured_rounds() {
    for rounds in [2, 5, 12] {
        let sent = moved_after(&rounds.to_string()).expect("the flow changed its path");
        // A round is one window of acknowledgements, at least half of them late. Up to half of the first one may have
        // been sent before the delay began; if more was, that round does not count. And a window is in flight when
        // the last round ends.
        let (least, most) = (rounds * WINDOW - WINDOW / 2, (rounds + 2) * WINDOW);
        assert!((least..=most).contains(&sent), "{rounds} rounds: after {sent} late packets, not {least} to {most}");
    }
}

#[test]
fn f30_without_rounds_a_flow_stays_on_its_congested_path() {
    assert_eq!(moved_after("0"), None);
}
