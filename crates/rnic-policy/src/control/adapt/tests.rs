//! The events that reports become, and the answers that flows get.

use rnic_base::{BitRate, Time};

use super::*;
use crate::control::report::InForce;
use crate::control::signals::Signals;
use crate::control::{ControlInterest, ControlPolicy};
use crate::kit;
use crate::params::ParamSpec;

/// Counts what it hears of, and asks for what its parameter says.
#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
#[repr(C)]
struct Listener {
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

/// The time between its ticks, its window in packets and its rate in Mbit/s; 0 is none.
const ASKS: [usize; 3] = [0, 1, 2];

impl Listener {
    fn ask(params: &Params) -> ControlActions {
        let [tick, window, rate] = ASKS.map(|index| params.get(index));
        ControlActions {
            window: (window > 0).then(|| Cwnd::packets(window)),
            rate: (rate > 0).then(|| BitRate::bps(rate * 1_000_000)),
            tick_after: (tick > 0).then(|| Duration::from_ps(tick)),
            flow: None,
        }
    }
}

impl Control for Listener {
    const NAME: &'static str = "listener";
    const SUMMARY: &'static str = "counts what it hears of";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::duration("tick", Duration::ZERO, "time between ticks"),
        ParamSpec::count("packets", 0, 0, 4_096, "window"),
        ParamSpec::count("mbps", 0, 0, 1 << 30, "rate"),
    ];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        (Self::zeroed(), Self::ask(params))
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
            ControlEvent::Reported(_) => unreachable!("it reads no reports"),
        }
        Self::ask(params)
    }
}

static POLICY: ControlPolicy = ControlPolicy::of::<Listener>();

const IN_FORCE: InForce = InForce {
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
    fn new(asks: [u64; 3]) -> (Self, FlowActions) {
        let params = ASKS
            .into_iter()
            .zip(asks)
            .fold(Params::defaults(Listener::PARAMS), |params, (index, value)| params.with(index, value));
        let view = ControlView { now: Time::from_us(10), line_rate: BitRate::gbps(100), mtu: 1_024, in_flight: 0 };
        let (state, first) = (POLICY.start_on_flows)(&params, &view);
        (Self { params, state, view }, first.flow.expect("it runs on flows"))
    }

    /// Reports, at `us` microseconds, what `change` makes of an acknowledgement with a round trip of 100 ticks, of
    /// which the receiver has waited for 20.
    fn tell(&mut self, us: u64, change: impl FnOnce(&mut FlowReport)) -> FlowActions {
        self.view.now = Time::from_us(us);
        let mut report = kit::report(0, Ticks::at(self.view.now), [40, 20, 40], IN_FORCE);
        change(&mut report);
        let event = ControlEvent::Reported(report);
        (POLICY.on_event)(&mut self.state, &event, &self.view, &self.params).flow.expect("every report is answered")
    }

    fn heard(&mut self) -> Listener {
        *self.state.get_mut::<Listener>()
    }
}

#[test]
fn a_report_becomes_the_events_that_it_means() {
    let (mut driver, _) = Driver::new([0, 0, 0]);
    driver.tell(20, |report| (report.acked, report.sent, report.marked) = (7, 9, 2));
    let heard = driver.heard();
    assert_eq!((heard.acked, heard.marked, heard.sent_bytes), (7, 2, 9 * 1_024));
    assert_eq!(heard.rtt_ns, Ticks::new(80).duration().as_ps() / 1_000, "less the receiver's wait");
    assert_eq!((heard.cnps, heard.nacks, heard.timeouts, heard.ticks), (1, 0, 0, 0));
    driver.tell(30, |report| report.lost = true);
    driver.tell(31, |report| report.kind = ReportKind::Nacked { code: NACK_RESOURCES });
    driver.tell(32, |report| report.kind = ReportKind::Nacked { code: 2 });
    driver.tell(33, |report| report.kind = ReportKind::Retransmitted { count: 1, early: true });
    assert_eq!(driver.heard().nacks, 3, "a receiver that is not ready is no congestion");
    driver.tell(40, |report| report.kind = ReportKind::Retransmitted { count: 1, early: false });
    assert_eq!(driver.heard().timeouts, 1);
}

#[test]
fn there_is_a_cnp_for_marks_and_one_in_an_interval() {
    let (mut driver, _) = Driver::new([0, 0, 0]);
    for us in (100..300).step_by(10) {
        driver.tell(us, |report| report.marked = 1);
    }
    assert_eq!(driver.heard().cnps, 4, "200 us, one in 50");
    driver.tell(1_000, |_| {});
    assert_eq!(driver.heard().cnps, 4, "without marks there is none");
}

#[test]
fn round_trips_come_one_after_the_other() {
    let (mut driver, _) = Driver::new([0, 0, 0]);
    let mut told = 0;
    for us in 20..120 {
        let before = driver.heard().acked;
        driver.tell(us, |_| {});
        assert_eq!(driver.heard().acked, before);
        told += u64::from(std::mem::take(&mut driver.state.get_mut::<Listener>().rtt_ns) > 0);
    }
    // 80 ticks of 131 ns: one in 11 us.
    assert_eq!(told, 10);
}

#[test]
fn ticks_come_with_reports_each_at_its_time() {
    let tick = Duration::from_us(55);
    let (mut driver, _) = Driver::new([tick.as_ps(), 0, 0]);
    // What is heard asks for the next tick anew: 65 us, then from 40 us on.
    driver.tell(40, |_| {});
    assert_eq!(driver.heard().ticks, 0);
    driver.tell(40 + 56, |_| {});
    let heard = driver.heard();
    assert_eq!(heard.ticks, 1);
    assert!(heard.tick_ps.abs_diff(Time::from_us(95).as_ps()) < 300_000, "at its time: {}", heard.tick_ps);
    // It asks again at each: what is overdue is made up for.
    let (mut driver, _) = Driver::new([tick.as_ps(), 0, 0]);
    driver.tell(10 + 55 * 10 + 1, |_| {});
    assert_eq!(driver.heard().ticks, 10);
    driver.tell(1_000_000, |_| {});
    assert_eq!(driver.heard().ticks, 10 + TICKS_MAX, "up to a bound");
}

#[test]
fn answers_become_windows_and_rates_of_flows() {
    let (mut driver, first) = Driver::new([0, 0, 0]);
    assert_eq!((first.fcwnd, first.rate), (WINDOW_UNSET, RateLimit::NONE));
    assert_eq!([first.rto, first.rack, first.tlp], [Ticks::ZERO; 3], "times are the recovery policy's");
    let said = driver.tell(20, |_| {});
    assert_eq!((said.fcwnd, said.rate, said.rto), (IN_FORCE.fcwnd, IN_FORCE.rate, IN_FORCE.rto), "nothing said");
    let (mut driver, first) = Driver::new([0, 30, 2_500]);
    assert_eq!((first.fcwnd, first.rate), (Cwnd::packets(30), RateLimit::steps(2_500)));
    let of_three = |report: &mut FlowReport| (report.flow, report.flows) = (1, 3);
    assert_eq!(driver.tell(20, of_three).fcwnd, Cwnd::packets(10), "flows share the window");
    assert_eq!(driver.tell(21, |report| report.acked = 1).rate, RateLimit::steps(2_500));
    let (_, first) = Driver::new([0, 4_096, 100_000]);
    assert_eq!(
        (first.fcwnd, first.rate),
        (FlowActions::FCWND_MAX, RateLimit::NONE),
        "as wide as a record, as fast as the line"
    );
}

#[test]
fn the_kit_drives_it_as_a_controller_of_both_kinds_of_datapath() {
    kit::check_control(&POLICY, 1, 2_000).expect("keeps the contract");
}

#[test]
fn a_rate_is_in_steps_that_a_record_holds() {
    let line = BitRate::gbps(400);
    assert_eq!(RateLimit::of(BitRate::bps(1), line), RateLimit::steps(1), "never silence");
    assert_eq!(RateLimit::of(BitRate::gbps(40), line).get(), 40_000);
    assert_eq!(RateLimit::of(line, line), RateLimit::NONE);
    assert_eq!(RateLimit::steps(40_000).time_of(4_096), BitRate::gbps(40).serialize(4_096));
    assert_eq!(RateLimit::NONE.time_of(4_096), Duration::ZERO);
}
