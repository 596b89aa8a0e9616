//! Properties of all laws.

use rnic_base::{BitRate, Duration, Time};
use rnic_policy::schedule::RATE_MIN;
use rnic_policy::{
    ControlEvent, ControlView, Params, PathActions, PathEvent, PathPolicy, PathView, PolicyState, ScheduleEvent,
    ScheduleView, Served, Signals,
};
use rnic_program::{Law, LoadedLaw, Lowering, lockstep};

use super::*;

const EVENTS: u64 = 40_000;

#[test]
fn t28_a_law_decides_equally_in_all_forms() {
    for (seed, (name, law)) in all().enumerate() {
        let seed = 40 + seed as u64;
        let joins = LoadedLaw::of(law).expect(name);
        let predicated = law.graph(Lowering::Predicated).expect(name);
        let predicated = LoadedLaw::new(law.description(), predicated).expect(name);
        let from_file = file::read_law(to_file(law).expect(name).as_bytes()).expect(name);
        for other in [&joins as &dyn Law, &predicated, &from_file] {
            lockstep::compare_laws(law, other, seed, EVENTS).expect(name);
        }
    }
}

#[test]
fn t28_every_law_keeps_the_contract_native_and_loaded() {
    let events = 20_000;
    for (name, law) in all() {
        // A comment makes it another file than that of other tests.
        let text = format!("# {name}\n{}", to_file(law).expect(name));
        let loaded = load(text.as_bytes()).expect(name);
        assert!(rnic_policy::law::is_loaded(loaded.name()) && !rnic_policy::law::is_loaded(name));
        assert_eq!(loaded.name(), law.description().name);
        assert_eq!(load(text.as_bytes()).expect(name).name().as_ptr(), loaded.name().as_ptr(), "loaded twice");
    }
    for policy in crate::control::all().filter(|policy| policy.name.starts_with("law-")) {
        check_control(&policy, 5, events).expect(policy.name);
    }
    for policy in crate::schedule::all().filter(|policy| policy.name.starts_with("law-")) {
        check_schedule(&policy, 5, events).expect(policy.name);
    }
    for policy in crate::paths::all().filter(|policy| policy.name.starts_with("law-")) {
        check_paths(&policy, 5, events).expect(policy.name);
    }
}

#[test]
fn t28_the_signals_that_a_law_needs_follow_from_its_graph() {
    let aimd = crate::control::find("law-aimd").expect("it is registered");
    let interest = (aimd.interest)(&Params::defaults(aimd.params));
    assert_eq!(interest.needs, Signals::ACKS | Signals::NACKS | Signals::TIMEOUTS);
    assert!(interest.acked && !interest.sent && !interest.echo && interest.cnp_interval.is_none());
    let probed = crate::paths::find("law-probed").expect("it is registered");
    assert!(probed.probes && !probed.reorders && !(probed.per_packet)(&Params::defaults(probed.params)));
}

/// The window of the law and that of the hand-written controller stay within a packet and a half.
#[test]
fn t28_the_law_aimd_follows_the_controller_written_by_hand() {
    let (law, by_hand) = ("law-aimd", "aimd");
    let find = |name| crate::control::find(name).expect("it is registered");
    let params = |name| Params::defaults(find(name).params).with(0, 64);
    let mut view = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(40), mtu: 1_024, in_flight: 64 };
    let mut states = [law, by_hand].map(|name| ((find(name).start)(&params(name), &view).0, 64.0));
    let mut random = rnic_base::RandomStreams::new(3).stream("aimd");
    let (mut largest, mut cuts) = (0.0_f64, 0);
    for _ in 0..200_000 {
        // Both are asked about the same sender, whose window is always full.
        view.in_flight = states[1].1 as u64;
        let event = match random.below(4_000) {
            0 => ControlEvent::Nacked { lost: true },
            1 => ControlEvent::TimedOut,
            _ => ControlEvent::Acked { packets: 1, rtt: None, marked: 0 },
        };
        cuts += u64::from(!matches!(event, ControlEvent::Acked { .. }));
        for (name, (state, window)) in [law, by_hand].into_iter().zip(&mut states) {
            let actions = (find(name).on_event)(state, &event, &view, &params(name));
            *window = actions.window.map_or(*window, |window| window.as_packets_f64());
        }
        largest = largest.max((states[0].1 - states[1].1).abs());
    }
    assert!(cuts > 50 && largest < 1.5, "{cuts} cuts; the windows differ by {largest} packets");
}

/// Queue pairs of a model of a link: each wants `demand` bit/s, and sends at the lower of that and its rate.
fn shares(demands: &[u64]) -> Vec<f64> {
    let policy = crate::schedule::find("law-water-filling").expect("it is registered");
    let params = Params::defaults(policy.params);
    let line = BitRate::gbps(100);
    let mut now = Time::ZERO;
    let mut rates = vec![BitRate::ZERO; demands.len()];
    let mut saturated = vec![false; demands.len()];
    let view = |now, at: usize, rates: &[BitRate], saturated: &[bool]| {
        let rate_of = |wanted: bool| {
            let chosen = rates.iter().zip(saturated).filter(|(_, is)| !wanted || **is);
            BitRate::bps(chosen.map(|(rate, _)| rate.as_bps()).sum())
        };
        ScheduleView {
            members: rates.len() as u32,
            weights: rates.len() as u64,
            allocated: rate_of(false),
            saturated_weights: saturated.iter().filter(|is| **is).count() as u64,
            saturated_rates: rate_of(true),
            is_saturated: saturated[at],
            ..ScheduleView::alone(now, line)
        }
    };
    let start = |at| (policy.start)(&params, &view(now, at, &rates, &saturated)).0;
    let mut states: Vec<PolicyState> = (0..demands.len()).map(start).collect();
    for round in 0..2_000 {
        now += Duration::from_us(5);
        for at in 0..demands.len() {
            let mut view = view(now, at, &rates, &saturated);
            let sent = demands[at].min(rates[at].as_bps());
            view.is_held = demands[at] > rates[at].as_bps();
            let bytes = sent / 8 / 200_000;
            let served = Served { bytes, wire_bytes: bytes, packets: 1, last_at: now };
            let event = if round == 0 { ScheduleEvent::Joined } else { ScheduleEvent::Served(served) };
            let actions = (policy.on_event)(&mut states[at], &event, &view, &params);
            if let Some(rate) = actions.dequeue_rate {
                rates[at] = rate.expect("a law lifts no rate");
                assert!((RATE_MIN..=line).contains(&rates[at]));
            }
            saturated[at] = actions.is_saturated.unwrap_or(saturated[at]);
        }
    }
    let used = |(demand, rate): (&u64, &BitRate)| *demand.min(&rate.as_bps()) as f64 / 1e9;
    demands.iter().zip(&rates).map(used).collect()
}

#[test]
fn s18_the_law_water_filling_gives_what_some_leave_to_the_others() {
    const GBPS: u64 = 1_000_000_000;
    for (demands, expected) in [
        (vec![200 * GBPS; 4], vec![25.0; 4]),
        (vec![10 * GBPS, 200 * GBPS, 200 * GBPS], vec![10.0, 45.0, 45.0]),
        (vec![5 * GBPS, 30 * GBPS, 200 * GBPS, 200 * GBPS], vec![5.0, 30.0, 32.5, 32.5]),
    ] {
        let found = shares(&demands);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found / expected - 1.0).abs() < 0.15, "{found} instead of {expected} Gbit/s of {demands:?}");
        }
    }
}

/// The path policy, whose probes are answered after the given times.
struct Prober {
    policy: PathPolicy,
    params: Params,
    state: PolicyState,
    label: u16,
}

impl Prober {
    fn new() -> Self {
        let policy = crate::paths::find("law-probed").expect("it is registered");
        let params = Params::defaults(policy.params);
        let view = PathView { now: Time::ZERO, flow_hash: 0x1234_5678 };
        let (state, label) = (policy.start)(&params, &view);
        Self { policy, params, state, label: label.0 }
    }

    fn event(&mut self, event: PathEvent) -> PathActions {
        let view = PathView { now: Time::ZERO, flow_hash: 0x1234_5678 };
        let actions = (self.policy.on_event)(&mut self.state, &event, &view, &self.params);
        self.label = actions.label.map_or(self.label, |label| label.0);
        actions
    }

    /// Probes each path once; returns the labels of the probes, and whether the policy drains.
    fn round(&mut self, rtts_us: [Option<u64>; 2]) -> ([u16; 2], bool) {
        let mut drains = false;
        let labels = rtts_us.map(|rtt| {
            let actions = self.event(PathEvent::Tick);
            let probe = actions.probe.expect("a probe in each tick");
            drains |= actions.drain;
            let (path, event) = (probe.path, rtt.map(Duration::from_us));
            self.event(event.map_or(PathEvent::ProbeLost { path }, |rtt| PathEvent::Probed { path, rtt }));
            probe.label.0
        });
        (labels, drains)
    }
}

#[test]
fn s24_the_law_probed_uses_a_better_path_after_a_drain_and_leaves_a_failed_one() {
    let mut prober = Prober::new();
    let ([first, second], _) = prober.round([Some(20), Some(15)]);
    assert!(first != second && first >= 49_152 && second >= 49_152, "{first} and {second}");
    let drains: Vec<bool> = (0..3).map(|_| prober.round([Some(20), Some(15)]).1).collect();
    assert_eq!((drains, prober.label), (vec![false, false, true], first), "no drain after three better rounds");
    prober.event(PathEvent::Drained);
    assert_eq!(prober.label, second);
    assert!(!(0..10).any(|_| prober.round([Some(20), Some(15)]).1), "a switch without reason");
    prober.round([Some(20), None]);
    assert_eq!(prober.label, second, "one lost probe is no failure");
    prober.round([Some(20), None]);
    assert_eq!(prober.label, first, "a failed path is used");
}

#[test]
fn t28_files_of_other_kinds_are_refused_with_the_reason() {
    let aimd = to_file(find("law-aimd").expect("it is registered")).expect("it has a graph");
    let wrong = file::check_law_kind(LawKind::Schedule, aimd.as_bytes()).expect_err("it is a controller");
    assert!(wrong.to_string().contains("control=FILE"), "{wrong}");
    let as_transport = crate::programs::load(aimd.as_bytes()).expect_err("it is a law").to_string();
    assert!(as_transport.contains("a law for control"), "{as_transport}");
    let reno =
        crate::programs::to_file(crate::programs::find("reno").expect("it is registered")).expect("it has graphs");
    let as_law = file::check_law_kind(LawKind::Control, reno.as_bytes()).expect_err("it is a program").to_string();
    assert!(as_law.contains("name it as the transport"), "{as_law}");
    for broken in [aimd.replace("bits = 24", "bits = 25"), aimd.replace("\"control\"", "\"paths\""), aimd[..900].into()]
    {
        let error = load(broken.as_bytes()).expect_err("it is broken").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
