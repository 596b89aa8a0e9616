//! Adapter for event-driven controllers on a datapath that reports on flows (Falcon).
//!
//! For a controller that does not read reports itself ([`super::ControlInterest::reports`]), each report is translated
//! into events, and the actions the controller returns are translated into settings of the datapath:
//!
//! | report | event |
//! |---|---|
//! | `sent` | `Sent`, counting each as a full packet |
//! | `marked`, where the controller requests CNPs | `Cnp`, at most one per CNP interval |
//! | `lost`, or a NACK for shortage of resources | `Nacked { lost: true }` |
//! | `acked`, the round trip minus the receiver's delay, `marked` | `Acked`; `in_flight` is in the view |
//! | a retransmission after a timeout | `TimedOut` |
//!
//! | action | setting of the datapath |
//! |---|---|
//! | `window` | `fcwnd` of the flow: its share of the window |
//! | `rate` | the connection's `rate` |
//! | `tick_after` | see below |
//! | none | the settings in force are unchanged |
//!
//! Round-trip samples do not overlap, as on the RoCE family: at most one per round trip. The timeouts (RTO, RACK, TLP)
//! are left to the recovery policy. One state serves all flows of a connection.
//!
//! Deviation: an adaptive engine receives only reports, so a tick that is due is delivered with the next report, before
//! the report's own events, and with the time for which it was requested. When more than [`TICKS_MAX`] ticks are
//! overdue, the rest are skipped: nothing was acknowledged in that time.

use bytemuck::{Pod, Zeroable};
use rnic_base::Duration;

use super::report::{AckRate, Alpha, FlowActions, FlowReport, Gap, NACK_RESOURCES, RateLimit, ReportKind, Ticks};
use super::{Control, ControlActions, ControlEvent, ControlView, Cwnd};
use crate::params::Params;
use crate::state::{PolicyState, STATE_WORDS};

/// Largest state, in bytes, of a controller that can be adapted: the rest of the block holds the adapter's own state.
pub const ADAPTED_STATE_MAX: usize = (STATE_WORDS - 1) * size_of::<u64>();

/// Maximum number of overdue ticks that are delivered with one report.
const TICKS_MAX: u32 = 64;

/// Window for a controller that sets none: equal to the datapath's largest window, so that only the datapath limits
/// the flow.
const WINDOW_UNSET: Cwnd = Cwnd::packets(1_024);

/// Code for an alpha of 1: a connection that meets no congestion may hold as much as all free resources.
const ALPHA_CODE: u32 = 3;

/// Code of the lowest ACK request rate: requests an acknowledgement for at least one packet in 8.5.
const ACK_RATE_MIN: u32 = 4;

/// The adapter's state, in the last word of the state block. From the low bits: the time of the next tick (24 bits,
/// in ticks), whether one is set (1 bit), the time of the last CNP (20 bits, in [`CNP_STEP_TICKS`] ticks), and the time
/// of the last round-trip sample (19 bits, in ticks). The last two wrap after 0.5 s and 69 ms; if such a time appears
/// recent because it has wrapped, one CNP or sample is skipped.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct AdapterState(u64);

const CNP_STEP_TICKS: u32 = 4;
const CNP_BITS: u32 = 20;
const ROUND_TRIP_BITS: u32 = 19;
const TICK_SET_BIT: u64 = 1 << Ticks::BITS;
const CNP_SHIFT: u32 = Ticks::BITS + 1;
const ROUND_TRIP_SHIFT: u32 = CNP_SHIFT + CNP_BITS;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl AdapterState {
    /// Returns the state of a connection that starts at `now`, with the last CNP and round-trip sample far in the past.
    fn new(now: Ticks, tick: Option<Ticks>) -> Self {
        let cnp = u64::from(now.get() / CNP_STEP_TICKS).wrapping_sub(1 << (CNP_BITS - 1)) & mask(CNP_BITS);
        let round_trip = u64::from(now.get()).wrapping_sub(1 << (ROUND_TRIP_BITS - 1)) & mask(ROUND_TRIP_BITS);
        let mut adapter = Self(cnp << CNP_SHIFT | round_trip << ROUND_TRIP_SHIFT);
        adapter.set_tick(tick);
        adapter
    }

    fn tick(self) -> Option<Ticks> {
        (self.0 & TICK_SET_BIT != 0).then(|| Ticks::new(self.0 as u32))
    }

    fn set_tick(&mut self, due: Option<Ticks>) {
        self.0 &= !mask(CNP_SHIFT);
        self.0 |= due.map_or(0, |due| u64::from(due.get()) | TICK_SET_BIT);
    }

    /// Returns whether the last CNP was at least `interval` ago; if so, records one at `now`.
    fn accept_cnp(&mut self, now: Ticks, interval: Duration) -> bool {
        let steps = u64::from(now.get() / CNP_STEP_TICKS) & mask(CNP_BITS);
        let passed = steps.wrapping_sub(self.0 >> CNP_SHIFT) & mask(CNP_BITS);
        let is_due = passed >= u64::from(Ticks::of(interval).get() / CNP_STEP_TICKS);
        if is_due {
            self.0 = self.0 & !(mask(CNP_BITS) << CNP_SHIFT) | steps << CNP_SHIFT;
        }
        is_due
    }

    /// Returns whether the last round-trip sample was at least `rtt` ago; if so, records one at `now`.
    fn accept_round_trip(&mut self, now: Ticks, rtt: Ticks) -> bool {
        let ticks = u64::from(now.get()) & mask(ROUND_TRIP_BITS);
        let passed = ticks.wrapping_sub(self.0 >> ROUND_TRIP_SHIFT) & mask(ROUND_TRIP_BITS);
        let is_due = passed >= u64::from(rtt.get()).min(mask(ROUND_TRIP_BITS) / 2);
        if is_due {
            self.0 = self.0 & mask(ROUND_TRIP_SHIFT) | ticks << ROUND_TRIP_SHIFT;
        }
        is_due
    }
}

/// A controller's state, followed by the adapter's.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Block {
    words: [u64; STATE_WORDS - 1],
    own: AdapterState,
}

/// Returns the state of a new connection, and its first actions with the settings of the flows.
pub(super) fn start<T: Control>(params: &Params, view: &ControlView) -> (PolicyState, ControlActions) {
    let (state, actions) = T::start(params, view);
    let mut state = PolicyState::of(state);
    if T::interest(params).reports || size_of::<T>() > ADAPTED_STATE_MAX {
        return (state, actions);
    }
    let tick = actions.tick_after.map(|after| after_ticks(Ticks::at(view.now), after));
    state.get_mut::<Block>().own = AdapterState::new(Ticks::at(view.now), tick);
    let window = actions.window.unwrap_or(WINDOW_UNSET);
    let flow = FlowActions {
        fcwnd: to_record(window),
        ncwnd: FlowActions::NCWND_MAX,
        gap: Gap::NONE,
        rate: actions.rate.map_or(RateLimit::NONE, |rate| RateLimit::of(rate, view.line_rate)),
        rto: Ticks::ZERO,
        rack: Ticks::ZERO,
        tlp: Ticks::ZERO,
        repath: false,
        alpha_requests: Alpha::code(ALPHA_CODE),
        alpha_responses: Alpha::code(ALPHA_CODE),
        ack_rate: ack_rate(window),
    };
    (state, ControlActions { flow: Some(flow), ..actions })
}

/// Delivers the events that `report` translates to, to the controller with `state`, and returns the settings of the
/// report's flow.
pub(super) fn on_report<T: Control>(
    state: &mut PolicyState,
    report: &FlowReport,
    view: &ControlView,
    params: &Params,
) -> ControlActions {
    let in_force = report.in_force;
    let flows = u64::from(report.flows.max(1));
    let in_flight = u64::from(report.in_flight) * flows;
    let mut adapted = AdaptedController::<T> {
        state,
        params,
        view: ControlView { in_flight, ..*view },
        now: report.t4,
        actions: ControlActions::default(),
        of: core::marker::PhantomData,
    };
    adapted.tick();
    adapted.process_report(report);
    let ControlActions { window, rate, .. } = adapted.actions;
    let fcwnd = window.map_or(in_force.fcwnd, |window| to_record(window).share(report.flow, report.flows.max(1)));
    let total_window = window.unwrap_or(Cwnd::from_fixed(in_force.fcwnd.fixed().saturating_mul(flows)));
    let flow = FlowActions {
        fcwnd,
        ncwnd: FlowActions::NCWND_MAX,
        gap: Gap::NONE,
        rate: rate.map_or(in_force.rate, |rate| RateLimit::of(rate, view.line_rate)),
        rto: in_force.rto,
        rack: Ticks::ZERO,
        tlp: Ticks::ZERO,
        repath: false,
        alpha_requests: Alpha::code(ALPHA_CODE),
        alpha_responses: Alpha::code(ALPHA_CODE),
        ack_rate: ack_rate(total_window),
    };
    ControlActions { flow: Some(flow), ..ControlActions::default() }
}

/// A controller and its context while one report is processed.
struct AdaptedController<'a, T> {
    state: &'a mut PolicyState,
    params: &'a Params,
    view: ControlView,
    now: Ticks,
    /// The controller's actions during this report; for each action the last one counts.
    actions: ControlActions,
    of: core::marker::PhantomData<fn() -> T>,
}

impl<T: Control> AdaptedController<'_, T> {
    fn adapter(&mut self) -> &mut AdapterState {
        &mut self.state.get_mut::<Block>().own
    }

    /// Delivers `event`, which happened `ago` before the report.
    fn deliver(&mut self, event: ControlEvent, ago: Ticks) {
        let now = self.view.now.as_ps().saturating_sub(ago.duration().as_ps());
        let view = ControlView { now: rnic_base::Time::from_ps(now), ..self.view };
        let actions = self.state.get_mut::<T>().on_event(&event, &view, self.params);
        self.actions.window = actions.window.or(self.actions.window);
        self.actions.rate = actions.rate.or(self.actions.rate);
        if let Some(after) = actions.tick_after {
            let event_time = Ticks::new(self.now.get().wrapping_sub(ago.get()));
            self.adapter().set_tick(Some(after_ticks(event_time, after)));
        }
    }

    /// Delivers the ticks that are due, each with the time at which it was due.
    fn tick(&mut self) {
        for _ in 0..TICKS_MAX {
            let Some(due) = self.adapter().tick().filter(|due| !is_before(self.now, *due)) else { return };
            self.adapter().set_tick(None);
            self.deliver(ControlEvent::Tick, self.now.since(due));
        }
        // The remaining overdue ticks are skipped: the next is due now.
        if self.adapter().tick().is_some() {
            let now = self.now;
            self.adapter().set_tick(Some(now));
        }
    }

    fn process_report(&mut self, report: &FlowReport) {
        let interest = T::interest(self.params);
        if interest.sent && report.sent > 0 {
            self.deliver(ControlEvent::Sent { bytes: u64::from(report.sent) * u64::from(self.view.mtu) }, Ticks::ZERO);
        }
        if let Some(interval) = interest.cnp_interval
            && report.marked > 0
            && self.adapter().accept_cnp(report.t4, interval)
        {
            self.deliver(ControlEvent::Cnp, Ticks::ZERO);
        }
        if report.lost || report.kind == (ReportKind::Nacked { code: NACK_RESOURCES }) {
            self.deliver(ControlEvent::Nacked { lost: true }, Ticks::ZERO);
        }
        let is_response = !matches!(report.kind, ReportKind::Retransmitted { .. });
        let rtt = (is_response && interest.acked).then(|| report.fabric_delay()).filter(|rtt| *rtt > Ticks::ZERO);
        // Samples do not overlap, as on the RoCE family, which times one packet after the other.
        let rtt = rtt.filter(|rtt| self.adapter().accept_round_trip(report.t4, *rtt));
        if interest.acked && (report.acked > 0 || rtt.is_some()) {
            let marked = if interest.echo { report.marked.min(report.acked) } else { 0 };
            let (packets, rtt) = (u64::from(report.acked), rtt.map(Ticks::duration));
            self.deliver(ControlEvent::Acked { packets, rtt, marked: marked.into() }, Ticks::ZERO);
        }
        match report.kind {
            ReportKind::Retransmitted { early: true, .. } => {
                self.deliver(ControlEvent::Nacked { lost: true }, Ticks::ZERO);
            }
            ReportKind::Retransmitted { early: false, .. } => self.deliver(ControlEvent::TimedOut, Ticks::ZERO),
            ReportKind::Acked | ReportKind::Nacked { .. } => {}
        }
    }
}

/// Returns the time `after` later than `from`, in ticks; at most half of the wrap period later.
fn after_ticks(from: Ticks, after: Duration) -> Ticks {
    let interval = Ticks::of(after).get().clamp(1, Ticks::MAX.get() / 2);
    Ticks::new(from.get().wrapping_add(interval))
}

fn is_before(earlier: Ticks, later: Ticks) -> bool {
    let span = later.since(earlier).get();
    0 < span && span <= Ticks::MAX.get() / 2
}

/// Returns `window` limited to the values that a record can hold.
fn to_record(window: Cwnd) -> Cwnd {
    let steps = (window.min(FlowActions::FCWND_MAX).fixed() >> 6).max(1);
    Cwnd::from_fixed(steps << 6)
}

/// Returns the rate at which to request acknowledgements: four times per window, but at least the lowest rate.
fn ack_rate(window: Cwnd) -> AckRate {
    let code = (window.whole_packets() / 2).saturating_sub(1).checked_ilog2().unwrap_or(0);
    AckRate::code(code.min(ACK_RATE_MIN))
}

#[cfg(test)]
#[path = "adapt/tests.rs"]
mod tests;
