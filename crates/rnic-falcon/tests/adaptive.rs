//! The loop closed: the delivery layer under Swift, PLB and PRR, over a link with a queue (F-17, F-18, F-26, F-30).

mod two_ends;

use std::cell::Cell;

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{DeliveryConfig, Departure};
use rnic_falcon::seam::Window;
use rnic_policy::control::ControlInterest;
use rnic_policy::control::report::{Carried, ReportKind};
use rnic_policy::{Control, ControlActions, ControlEvent, ControlPolicy, ControlView, Cwnd};
use rnic_policy::{FlowActions, FlowReport, ParamSpec, Params};
use rnic_wire::falcon::{FlowLabel, PacketType};
use two_ends::link::{Inline, LOST, Link, after};
use two_ends::{config_of, micros};

const DELAY: Duration = Duration::from_us(5);

/// Puts Swift above end 0.
fn with_swift(link: &mut Link<'_>, flows: u8, options: &[(&str, &str)]) {
    let (swift, first) = Inline::new("swift", options);
    link.ends[0].control = Some(swift);
    for flow in 0..flows {
        let share = Cwnd::from_fixed(first.fcwnd.fixed() / u64::from(flows));
        link.ends[0].delivery.obey(flow, &FlowActions { fcwnd: share, ..first });
    }
}

fn is_data(departure: &Departure) -> bool {
    departure.packet.body.packet_type() == PacketType::PushData
}

/// A queue that serves a packet in `service`, without end.
struct Queue {
    free_at: Cell<Time>,
    service: Duration,
    longest: Cell<Duration>,
}

impl Queue {
    fn new(service: Duration) -> Self {
        Self { free_at: Cell::new(Time::ZERO), service, longest: Cell::new(Duration::ZERO) }
    }

    /// How long a packet that comes now is under way.
    fn pass(&self, now: Time) -> Duration {
        let waits = self.free_at.get().since(now);
        self.free_at.set(now + waits + self.service);
        // The beginning, when nobody knows the path yet, does not count.
        if now > Time::from_us(11_000) {
            self.longest.set(self.longest.get().max(waits));
        }
        DELAY + waits + self.service
    }
}

/// Another program for the same datapath: a window of 16 packets, whatever happens.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Fixed(u64);

impl Control for Fixed {
    const NAME: &'static str = "fixed";
    const SUMMARY: &'static str = "a window of 16 packets";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
        let (_, first) = Inline::new("swift", &[]);
        let flow = Some(FlowActions { fcwnd: Cwnd::packets(16), ..first });
        (Self(0), ControlActions { flow, ..ControlActions::default() })
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { reports: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, _: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        Self::start(params, view).1
    }

    fn carry(&self) -> Option<Carried> {
        None
    }

    fn restore(_: &Carried, _: &FlowReport, _: &Params) -> Option<Self> {
        None
    }
}

#[test]
fn f1_another_program_steers_the_same_delivery_layer() {
    let most = |program: (Inline, FlowActions)| {
        let mut link = Link::new(config_of("rack-tlp", "ecmp"), Box::new(|_, _, _: &_| after(DELAY)));
        let (control, first) = program;
        link.ends[0].control = Some(control);
        link.ends[0].delivery.obey(0, &first);
        link.ends[0].upper.pushes(4_000);
        let mut most = 0;
        for _ in 0..2_000 {
            link.run_for(Duration::from_ns(500));
            most = most.max(link.ends[0].delivery.span(Window::Data));
        }
        most
    };
    let (fixed, swift) = (most(Inline::of(ControlPolicy::of::<Fixed>(), &[])), most(Inline::new("swift", &[])));
    assert_eq!(fixed, 16);
    assert!(swift > 60, "Swift opens up to what the path holds: {swift}");
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
    assert!(throughput > 71_000, "{throughput} of 75000 packets that the bottleneck could pass");
    // Target 25 us + 3 hops + what flow scaling adds for a window of about 70 packets, less what the wire takes.
    assert!(queue.longest.get() < micros(40), "the queue held packets for {}", queue.longest.get());
    let counters = link.ends[0].delivery.counters();
    assert_eq!((counters.timeouts, counters.sent_again_early, counters.signals_refused), (0, 0, 0), "{counters:?}");
}

#[test]
fn f18_a_full_receiver_makes_ncwnd_smaller() {
    let mut link = Link::new(config_of("rack-tlp", "ecmp"), Box::new(|_, _, _: &_| after(DELAY)));
    with_swift(&mut link, 1, &[]);
    link.ends[0].keeps_log = false;
    link.ends[0].upper.pushes(60_000);
    link.run_for(Duration::from_ms(2));
    let ncwnd = |link: &Link<'_>| link.ends[0].signals.last().expect("reports come").in_force.ncwnd;
    let roomy = ncwnd(&link);
    link.ends[1].upper.rx_level = 31;
    link.run_for(Duration::from_ms(2));
    let full = ncwnd(&link);
    assert!(full < roomy / 8, "{roomy} packets, then {full}");
    link.ends[1].upper.rx_level = 0;
    link.run_for(Duration::from_ms(2));
    assert!(ncwnd(&link) > 2 * full, "and it grows again");
}

fn four_paths() -> DeliveryConfig {
    let mut config = config_of("rack-tlp", "largest-window");
    (config.flows, config.accept_stale) = (4, true);
    config
}

#[test]
fn f26_a_congested_path_draws_less_within_a_few_round_trips() {
    // Path 3 passes a tenth of what the others do.
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
    assert!(slow * 8 < flows.len(), "{slow} of {} packets on the slow path, which would have a quarter", flows.len());
    assert_eq!(link.ends[0].delivery.counters().timeouts, 0);
}

#[test]
fn f30_a_path_that_is_cut_is_left_and_nothing_is_lost() {
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
    assert_ne!(link.ends[0].delivery.label(2), label, "it was moved");
    assert_eq!(link.ends[0].delivery.label(2).flow(2), 2);
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
    // It was moved for the second timeout of a packet, and not before.
    let counts = link.ends[0].signals.iter().filter(|signal| signal.flow == 2).filter_map(|signal| match signal.kind {
        ReportKind::Retransmitted { count, .. } => Some((count, signal.label)),
        _ => None,
    });
    let before: Vec<u8> = counts.take_while(|(_, old)| *old == label.get()).map(|(count, _)| count).collect();
    assert_eq!((before.first(), before.iter().max()), (Some(&1), Some(&2)), "{before:?}");
    // Recovery within a few timeouts: the last packet that waited for the cut path.
    let last = link.ends[0].log.iter().rfind(|(_, departure)| departure.again).expect("something was repeated").0;
    let rto = micros(250);
    assert!(last < Time::from_us(1_200) + rto.saturating_mul(8), "the last repair at {last:?}");
}
