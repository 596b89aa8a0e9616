//! A window controlled by the delay of the most congested hop, which switches write into packets (CSIG).
//!
//! Source: the signal is that of "Congestion Signaling (CSIG)", draft-ravi-ippm-csig-01, max(PD); Falcon (SIGCOMM'25)
//! table 3 lists it among the inputs of its adaptive engine, but the paper gives no control law for it. The law here
//! is therefore Swift's (SIGCOMM'20, section 3.1), applied to another delay: up to the target a window grows by
//! `increase` packets a round trip; above it, at most once a round trip, it is cut by 0.8 times the fraction of the
//! delay that exceeds the target, and by half at most. This file is also a worked example of a controller for a new
//! signal.
//!
//! Effect of the signal: a round trip is the sum of all hops in both directions, of the processing at both ends, and
//! of propagation, so that Swift's target needs a base, an addition for each hop and a margin for delays that cannot
//! be separated. Here the input is the queue of one hop, independent of the path: a low target keeps that queue short
//! and does not starve flows with a long path, and queues on the reverse path have no effect.
//!
//! Deviations and choices:
//!
//! * there is no separate window towards the receiving NIC: a receiver whose buffers are full rejects packets (Falcon
//!   mechanism F-34);
//! * the windows of all flows of a connection add up to at least one packet, so no connection needs pacing;
//! * losses that are detected before a timeout do not cut the window: the delay is the signal. Timeouts cut the
//!   window, as Swift's do;
//! * an acknowledgement without a tag, or with a tag that carries no delay, changes no window;
//! * timeouts are computed as in Swift (`timeouts`), and so is the rate at which acknowledgements are requested.

use bytemuck::{Pod, Zeroable};
use rnic_base::{Csig, Duration};
use rnic_policy::control::ControlInterest;
use rnic_policy::control::report::{FlowActions, FlowReport, Gap, ReportKind, Ticks};
use rnic_policy::paths::FLOWS_MAX;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, Cwnd, ParamSpec, Params, Signals};

use super::swift::ack_rate;
use super::timeouts::{self, SHARED, Timeouts};

/// State of each flow, in ticks. Windows are stored in the datapath, and each report contains the window of its flow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Bottleneck {
    /// Smoothed round-trip times.
    srtt: [u32; FLOWS_MAX],
    /// Time of the last reduction of each flow's window.
    marker: [u32; FLOWS_MAX],
}

const HOP_TARGET_INDEX: usize = 0;
const INCREASE_INDEX: usize = 1;
const INITIAL_WINDOW_INDEX: usize = 2;
const WINDOW_MAX_INDEX: usize = 3;
const RTO_MIN_INDEX: usize = 4;
/// Index of the first parameter that is [`SHARED`] with recovery.
const SHARED_FIRST_INDEX: usize = 5;

/// One packet in the unit of the windows in this file: 1/1024 of a packet, as in Falcon's records.
const PACKET: u64 = 1 << 10;
/// Shift from the unit of the windows in this file to that of a [`Cwnd`].
const STEP_LOG2: u32 = 6;
/// Factor applied to the excess share of the delay to compute the cut: 0.8, in 1/1024.
const DECREASE: u64 = 819;
/// Number of retransmissions of a packet at which the window of its flow is set to the minimum.
const RETRANSMIT_LIMIT: u8 = 3;
impl Control for Bottleneck {
    const NAME: &'static str = "bottleneck";
    const SUMMARY: &'static str = "a window by the delay of the most congested hop (CSIG, draft-ravi-ippm-csig)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_ns(132).as_ps(),
            max: Csig::DELAY_MAX.as_ps() - 1,
            ..ParamSpec::duration("hop_target", Duration::from_us(3), "target delay of the most congested hop")
        },
        ParamSpec::count("increase", 1_000, 1, 16_000, "additive increase a round trip, in thousandths of a packet"),
        ParamSpec::count("initial_window", 32, 1, 1_024, "initial window in packets, all flows together"),
        ParamSpec::count("window_max", 256, 1, 1_024, "window of a flow at most, in packets"),
        timeouts::RTO_MIN,
        SHARED[0],
        SHARED[1],
        SHARED[2],
        SHARED[3],
        SHARED[4],
    ];

    fn start(params: &Params, _: &ControlView) -> (Self, ControlActions) {
        let window_max = params.get(WINDOW_MAX_INDEX);
        let window = params.get(INITIAL_WINDOW_INDEX).min(window_max);
        let flow = timeouts::first(window, window_max, ack_rate::of_packets(window as u32));
        let actions = ControlActions { window: Some(flow.fcwnd), flow: Some(flow), ..ControlActions::default() };
        (Self::zeroed(), actions)
    }

    fn interest(_: &Params) -> ControlInterest {
        let needs = Signals::ACKS | Signals::ROUND_TRIP | Signals::TIMEOUTS | Signals::CSIG;
        ControlInterest { needs, acked: true, reports: true, ..ControlInterest::default() }
    }

    /// Returns no actions: only reports carry the delay of hops, so events of a transport without reports have no
    /// effect.
    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let ControlEvent::Reported(report) = event else { return ControlActions::default() };
        let first = Self::start(params, view).1;
        let flow = first.flow.map(|first| self.respond(report, first, params));
        ControlActions { flow, ..ControlActions::default() }
    }
}

impl Bottleneck {
    fn respond(&mut self, report: &FlowReport, first: FlowActions, params: &Params) -> FlowActions {
        let index = usize::from(report.flow) % FLOWS_MAX;
        let mut srtt = Ticks::new(self.srtt[index]);
        let is_sample = !matches!(report.kind, ReportKind::Retransmitted { .. });
        let newest = if is_sample { report.rtt() } else { srtt };
        if is_sample {
            srtt = timeouts::smooth(srtt, newest);
            self.srtt[index] = srtt.get();
        }
        let window = self.window(index, report, params);
        let longest = Ticks::new(self.srtt.into_iter().max().unwrap_or(0));
        let whole = window.saturating_mul(report.flows.max(1).into()) / PACKET;
        let (timeouts, before) =
            (Timeouts::of(params, RTO_MIN_INDEX, SHARED_FIRST_INDEX), timeouts::before(&report.in_force));
        FlowActions {
            fcwnd: Cwnd::from_fixed(window << STEP_LOG2),
            rto: timeouts.rto(longest, Gap::NONE, before),
            rack: timeouts.rack(newest, srtt, before),
            tlp: timeouts.tlp(longest, before),
            ack_rate: ack_rate::of_packets(whole as u32),
            ..first
        }
    }

    /// Returns the new window of flow `index` after `report`; records the time if the window is reduced.
    fn window(&mut self, index: usize, report: &FlowReport, params: &Params) -> u64 {
        let least = PACKET.div_ceil(report.flows.max(1).into());
        let largest = params.get(WINDOW_MAX_INDEX) * PACKET;
        let window = (report.in_force.fcwnd.fixed() >> STEP_LOG2).clamp(least, largest);
        let next = match report.kind {
            ReportKind::Retransmitted { early: true, .. } => window,
            ReportKind::Retransmitted { count: RETRANSMIT_LIMIT.., .. } => least,
            ReportKind::Retransmitted { .. } => window / 2,
            ReportKind::Acked | ReportKind::Nacked { .. } => match report.csig.and_then(Csig::hop_delay) {
                Some(delay) => steer(window, delay, report.acked.into(), params),
                None => window,
            },
        };
        let next = next.clamp(least, largest);
        if next >= window || self.may_cut(index, report.t4) { next } else { window }
    }

    /// Returns `true` if the last reduction for flow `index` was at least a round trip ago, and then records one at
    /// `now`.
    fn may_cut(&mut self, index: usize, now: Ticks) -> bool {
        let srtt = self.srtt[index];
        let passed = now.since(Ticks::new(self.marker[index])).get();
        let is_allowed = srtt == 0 || passed >= srtt;
        if is_allowed {
            self.marker[index] = now.get();
        }
        is_allowed
    }
}

/// Returns the new value of `window` after `acked` packets, when `delay` is the delay at the most congested hop.
fn steer(window: u64, delay: Duration, acked: u64, params: &Params) -> u64 {
    let target = Duration::from_ps(params.get(HOP_TARGET_INDEX));
    if delay <= target {
        // No overflow: fewer than 2^10 packets, in units of 1/2^10, times 16 and 2^10.
        return window + acked * params.get(INCREASE_INDEX) * PACKET / 1_000 * PACKET / window.max(PACKET);
    }
    // No overflow: below 2^26 ps times 2^20 times 2^10.
    let excess = (delay - target).as_ps();
    let cut = window * DECREASE / PACKET * excess / delay.as_ps();
    window - cut.min(window / 2)
}

#[cfg(test)]
mod tests {
    use rnic_base::{BitRate, Time};
    use rnic_policy::control::report::CurrentSettings;
    use rnic_policy::kit::report;

    use super::*;

    const VIEW: ControlView = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(100), mtu: 4_096, in_flight: 0 };

    /// One flow whose reports are a round trip of 80 ticks apart.
    struct Run {
        state: Bottleneck,
        in_force: CurrentSettings,
        params: Params,
        now: u32,
    }

    impl Run {
        fn new() -> Self {
            let params = Params::defaults(Bottleneck::PARAMS);
            let (state, first) = Bottleneck::start(&params, &VIEW);
            Self { state, in_force: first.flow.expect("the start sets flow actions").in_force(), params, now: 1_000 }
        }

        /// Advances the time by `after` ticks and reports an acknowledgement, modified by `change`; returns the
        /// window in packets.
        fn on_report(&mut self, after: u32, change: impl FnOnce(&mut FlowReport)) -> f64 {
            self.now += after;
            let mut report = report(0, Ticks::new(self.now), [40, 0, 40], self.in_force);
            change(&mut report);
            let actions = self.state.on_event(&ControlEvent::Reported(report), &VIEW, &self.params);
            self.in_force = actions.flow.expect("a report has a response").in_force();
            self.in_force.fcwnd.as_packets_f64()
        }
    }

    fn delayed(delay: Duration) -> Option<Csig> {
        Some(Csig::NO_DELAY.after_hop(delay, 7))
    }

    #[test]
    fn a_window_grows_by_a_packet_a_round_trip_up_to_the_target() {
        let mut run = Run::new();
        let window = run.on_report(80, |report| (report.acked, report.csig) = (32, delayed(Duration::from_us(2))));
        assert_eq!(window, 33.0);
        let window = run.on_report(80, |report| (report.acked, report.csig) = (33, delayed(Duration::ZERO)));
        assert_eq!(window, 34.0);
    }

    #[test]
    fn above_the_target_the_window_is_cut_by_the_excess_once_a_round_trip() {
        let mut run = Run::new();
        let long = |report: &mut FlowReport| (report.acked, report.csig) = (8, delayed(Duration::from_us(6)));
        let delay =
            delayed(Duration::from_us(6)).and_then(Csig::hop_delay).expect("the tag has a delay").as_ps() as f64;
        let expected = 32.0 * (1.0 - 0.8 * (delay - 3e6) / delay);
        let window = run.on_report(80, long);
        assert!((window - expected).abs() < 0.1, "{window} instead of {expected}");
        assert_eq!(run.on_report(20, long), window, "cut twice in a round trip");
        assert!(run.on_report(80, long) < window);
        let (longest, before) = (delayed(Duration::from_secs(1)), run.on_report(80, |report| report.acked = 1));
        assert!(run.on_report(80, |report| report.csig = longest) >= before / 2.0, "cut by more than half");
    }

    /// The cases are an acknowledgement or a path that is lost, a switch that writes no tags, and a peer that writes
    /// invalid tags.
    #[test]
    fn reports_without_delay_change_nothing_and_any_tag_keeps_the_window_in_bounds() {
        let mut run = Run::new();
        assert_eq!(run.on_report(80, |report| report.acked = 9), 32.0);
        assert_eq!(run.on_report(80, |report| (report.acked, report.csig) = (9, Csig::from_bits(0xffff))), 32.0);
        for bits in 0..=u16::MAX {
            let window = run.on_report(80, |report| (report.acked, report.csig) = (1_023, Csig::from_bits(bits)));
            assert!((1.0..=256.0).contains(&window), "{bits:#x}: {window}");
        }
    }

    #[test]
    fn timeouts_halve_then_minimise_the_window_and_early_losses_change_nothing() {
        let mut run = Run::new();
        let retransmitted =
            |count, early| move |report: &mut FlowReport| report.kind = ReportKind::Retransmitted { count, early };
        run.on_report(80, |report| report.acked = 1);
        assert_eq!(run.on_report(80, retransmitted(1, true)), 32.0);
        assert_eq!(run.on_report(80, retransmitted(1, false)), 16.0);
        assert_eq!(run.on_report(10, retransmitted(1, false)), 16.0, "cut twice in a round trip");
        assert_eq!(run.on_report(80, retransmitted(3, false)), 1.0);
    }
}
