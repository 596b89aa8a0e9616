//! The conversion of reports into events, and the resulting actions of flows.

use rnic_base::{BitRate, Time};

use super::*;
use crate::control::report::CurrentSettings;
use crate::control::signals::Signals;
use crate::control::{ControlInterest, ControlPolicy};
use crate::kit;
use crate::params::ParamSpec;

/// Counts the events it receives, and requests what its parameters specify.
#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
#[repr(C)]
struct EventCounter {
    acked: u32,
    marked: u32,
    sent_bytes: u64,
    cnps: u32,
    nacks: u32,
    timeouts: u32,
    ticks: u32,
    rtt_ns: u64,
    tick_ps: u64,
}

/// Indices of the parameters: interval of the ticks, window in packets, rate in Mbit/s. A value of 0 requests none.
const PARAM_INDICES: [usize; 3] = [0, 1, 2];

impl EventCounter {
    fn requested_actions(params: &Params) -> ControlActions {
        let [tick, window, rate] = PARAM_INDICES.map(|index| params.get(index));
        ControlActions {
            window: (window > 0).then(|| Cwnd::packets(window)),
            rate: (rate > 0).then(|| BitRate::bps(rate * 1_000_000)),
            tick_after: (tick > 0).then(|| Duration::from_ps(tick)),
            probe: None,
            flow: None,
        }
    }
}

impl Control for EventCounter {
    const NAME: &'static str = "listener";
    const SUMMARY: &'static str = "counts its events";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::duration("tick", Duration::ZERO, "time between ticks"),
        ParamSpec::count("packets", 0, 0, 4_096, "window"),
        ParamSpec::count("mbps", 0, 0, 1 << 30, "rate"),
    ];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        (Self::zeroed(), Self::requested_actions(params))
    }

    fn interest(_: &Params) -> ControlInterest {
        let cnp_interval = Some(Duration::from_us(50));
        let needs = Signals::ACKS | Signals::MARKS | Signals::CNP | Signals::SENT | Signals::TICKS;
        ControlInterest { needs, acked: true, sent: true, echo: true, cnp_interval, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        match *event {
            ControlEvent::Acked { packets, rtt, marked } => {
                self.acked += packets as u32;
                self.marked += marked as u32;
                self.rtt_ns = rtt.map_or(self.rtt_ns, |rtt| rtt.as_ps() / 1_000);
            }
            ControlEvent::Nacked { .. } => self.nacks += 1,
            ControlEvent::TimedOut => self.timeouts += 1,
            ControlEvent::Cnp => self.cnps += 1,
            ControlEvent::Sent { bytes } => self.sent_bytes += bytes,
            ControlEvent::Tick => {
                self.ticks += 1;
                self.tick_ps = view.now.as_ps();
            }
            ControlEvent::RoundTrip { .. } | ControlEvent::ProbeLost { .. } => {}
            ControlEvent::Reported(_) => unreachable!("the controller subscribes to no reports"),
        }
        Self::requested_actions(params)
    }
}

static POLICY: ControlPolicy = ControlPolicy::of::<EventCounter>();

const IN_FORCE: CurrentSettings = CurrentSettings {
    fcwnd: Cwnd::packets(20),
    ncwnd: 64,
    gap: Gap::NONE,
    rate: RateLimit::NONE,
    rto: Ticks::new(7_629),
    ack_rate: AckRate::ALL,
};

struct Driver {
    params: Params,
    state: PolicyState,
    view: ControlView,
}

impl Driver {
    fn new(values: [u64; 3]) -> (Self, FlowActions) {
        let params = PARAM_INDICES
            .into_iter()
            .zip(values)
            .fold(Params::defaults(EventCounter::PARAMS), |params, (index, value)| params.with(index, value));
        let view = ControlView { now: Time::from_us(10), line_rate: BitRate::gbps(100), mtu: 1_024, in_flight: 0 };
        let (state, first) = (POLICY.start_on_flows)(&params, &view);
        (Self { params, state, view }, first.flow.expect("the actions are for flows"))
    }

    /// Delivers, at `us` microseconds, the report of an acknowledgement with a round trip of 100 ticks, of which 20
    /// were spent at the receiver; `change` modifies the report first.
    fn report_at(&mut self, us: u64, change: impl FnOnce(&mut FlowReport)) -> FlowActions {
        self.view.now = Time::from_us(us);
        let mut report = kit::report(0, Ticks::at(self.view.now), [40, 20, 40], IN_FORCE);
        change(&mut report);
        let event = ControlEvent::Reported(report);
        (POLICY.on_event)(&mut self.state, &event, &self.view, &self.params).flow.expect("every report has a response")
    }

    fn counts(&mut self) -> EventCounter {
        *self.state.get_mut::<EventCounter>()
    }
}

#[test]
fn a_report_is_translated_into_its_events() {
    let (mut driver, _) = Driver::new([0, 0, 0]);
    driver.report_at(20, |report| (report.acked, report.sent, report.marked) = (7, 9, 2));
    let counts = driver.counts();
    assert_eq!((counts.acked, counts.marked, counts.sent_bytes), (7, 2, 9 * 1_024));
    assert_eq!(counts.rtt_ns, Ticks::new(80).duration().as_ps() / 1_000, "the round trip includes the receiver's wait");
    assert_eq!((counts.cnps, counts.nacks, counts.timeouts, counts.ticks), (1, 0, 0, 0));
    driver.report_at(30, |report| report.lost = true);
    driver.report_at(31, |report| report.kind = ReportKind::Nacked { code: NACK_RESOURCES });
    driver.report_at(32, |report| report.kind = ReportKind::Nacked { code: 2 });
    driver.report_at(33, |report| report.kind = ReportKind::Retransmitted { count: 1, early: true });
    assert_eq!(driver.counts().nacks, 3, "an RNR NACK counts as congestion");
    driver.report_at(40, |report| report.kind = ReportKind::Retransmitted { count: 1, early: false });
    assert_eq!(driver.counts().timeouts, 1);
}

#[test]
fn marks_give_at_most_one_cnp_per_interval() {
    let (mut driver, _) = Driver::new([0, 0, 0]);
    for us in (100..300).step_by(10) {
        driver.report_at(us, |report| report.marked = 1);
    }
    assert_eq!(driver.counts().cnps, 4, "not one CNP per 50 us in 200 us");
    driver.report_at(1_000, |_| {});
    assert_eq!(driver.counts().cnps, 4, "a CNP without marks");
}

#[test]
fn round_trip_samples_are_at_least_one_round_trip_apart() {
    let (mut driver, _) = Driver::new([0, 0, 0]);
    let mut samples = 0;
    for us in 20..120 {
        let before = driver.counts().acked;
        driver.report_at(us, |_| {});
        assert_eq!(driver.counts().acked, before);
        samples += u64::from(std::mem::take(&mut driver.state.get_mut::<EventCounter>().rtt_ns) > 0);
    }
    // A sample takes 80 ticks of 131 ns without the receiver's delay, so there is one every 11 us.
    assert_eq!(samples, 10);
}

#[test]
fn ticks_are_delivered_with_reports_at_their_due_times() {
    let tick = Duration::from_us(55);
    let (mut driver, _) = Driver::new([tick.as_ps(), 0, 0]);
    // The first tick is due at 65 us; the report at 40 us restarts the timer, so the tick is due at 95 us.
    driver.report_at(40, |_| {});
    assert_eq!(driver.counts().ticks, 0);
    driver.report_at(40 + 56, |_| {});
    let counts = driver.counts();
    assert_eq!(counts.ticks, 1);
    assert!(counts.tick_ps.abs_diff(Time::from_us(95).as_ps()) < 300_000, "not at its due time: {}", counts.tick_ps);
    // The controller requests a new tick after each one; a report delivers all ticks that are overdue, up to a limit.
    let (mut driver, _) = Driver::new([tick.as_ps(), 0, 0]);
    driver.report_at(10 + 55 * 10 + 1, |_| {});
    assert_eq!(driver.counts().ticks, 10);
    driver.report_at(1_000_000, |_| {});
    assert_eq!(driver.counts().ticks, 10 + TICKS_MAX, "more ticks than the bound");
}

#[test]
fn actions_become_windows_and_rates_of_flows() {
    let (mut driver, first) = Driver::new([0, 0, 0]);
    assert_eq!((first.fcwnd, first.rate), (WINDOW_UNSET, RateLimit::NONE));
    assert_eq!([first.rto, first.rack, first.tlp], [Ticks::ZERO; 3], "sets times of recovery");
    let flow = driver.report_at(20, |_| {});
    assert_eq!((flow.fcwnd, flow.rate, flow.rto), (IN_FORCE.fcwnd, IN_FORCE.rate, IN_FORCE.rto), "settings change");
    let (mut driver, first) = Driver::new([0, 30, 2_500]);
    assert_eq!((first.fcwnd, first.rate), (Cwnd::packets(30), RateLimit::steps(2_500)));
    let of_three = |report: &mut FlowReport| (report.flow, report.flows) = (1, 3);
    assert_eq!(driver.report_at(20, of_three).fcwnd, Cwnd::packets(10), "the flows do not share the window");
    assert_eq!(driver.report_at(21, |report| report.acked = 1).rate, RateLimit::steps(2_500));
    let (_, first) = Driver::new([0, 4_096, 100_000]);
    assert_eq!(
        (first.fcwnd, first.rate),
        (FlowActions::FCWND_MAX, RateLimit::NONE),
        "not the largest window and the line rate"
    );
}

#[test]
fn an_adapted_controller_passes_the_contract_kit() {
    kit::check_control(&POLICY, 1, 2_000).expect("keeps the contract");
}

#[test]
fn rates_are_rounded_to_steps_that_fit_a_record() {
    let line = BitRate::gbps(400);
    assert_eq!(RateLimit::of(BitRate::bps(1), line), RateLimit::steps(1), "the rate is zero");
    assert_eq!(RateLimit::of(BitRate::gbps(40), line).get(), 40_000);
    assert_eq!(RateLimit::of(line, line), RateLimit::NONE);
    assert_eq!(RateLimit::steps(40_000).time_of(4_096), BitRate::gbps(40).serialize(4_096));
    assert_eq!(RateLimit::NONE.time_of(4_096), Duration::ZERO);
}
