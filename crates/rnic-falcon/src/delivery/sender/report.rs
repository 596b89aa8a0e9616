//! Reports to the adaptive engine, and settings applied from it.
//!
//! Source: Falcon (SIGCOMM'25) table 3 (F-22, F-23); specification Rev 0.9, section 10.6.2 (field lists of the event
//! and the result). One report per acknowledgement, NACK and timeout of a flow, in a queue of fixed length. When it is
//! full, the counts of an acknowledgement are not lost: they are carried by the flow's next report (specification
//! 10.6.1: `num_packets_acked` saturates). Packets retransmitted before their timeout are not reported (as in the
//! reference simulator: the acknowledgement that revealed the loss is).
//!
//! Not measured here, and zero in reports: the occupancy of local resources (which belong to the transaction layer), to
//! be added by the component that passes the report on. The congestion signal (CSIG) that a switch wrote into a packet
//! is returned in the bits of responses reserved for adaptive engines. A report on a retransmission carries none,
//! because it contains no new information on a path.

use rnic_base::{Csig, Duration, Time};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{DelaySelect, FlowReport, Gap, InForce, ReportKind, Ticks};
use rnic_wire::falcon::Timestamp;

use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::delivery::signal::ControlSettings;

use super::DeliverySender;
use super::waits::Waits;

/// Path information of an acknowledgement or NACK.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    pub(crate) t1: Timestamp,
    pub(crate) t2: Timestamp,
    pub(crate) t3: Timestamp,
    /// True when an earlier acknowledgement on the flow echoed this packet or a later one: T3 is then the time at which
    /// another packet became ready.
    pub(crate) again: bool,
    pub(crate) hops: u8,
    pub(crate) rx_level: u8,
    pub(crate) ecn: u16,
    pub(crate) csig: Option<Csig>,
    pub(crate) extended: bool,
    pub(crate) window_drop: bool,
}

impl Path {
    /// Returns T1 and T2 of a hypothetical packet with the same network delay that arrived when the acknowledgement was
    /// sent.
    fn answered_at_once(&self) -> (Timestamp, Timestamp) {
        let wait = self.t3.units_since(self.t2);
        (Timestamp::new(self.t1.value().wrapping_add(wait)), self.t3)
    }
}

/// Returns T1 and T2 limited to the range of 24 bits, for a response sent at `t3` and received at `t4`: a round trip of
/// more than half of the range would be misread as none at all, or, beyond the full range, as the small remainder. It
/// is therefore reported as the longest representable round trip. The receiver's wait is deducted first, so that it is
/// never taken for network delay.
fn within_half_a_circle(t1: Timestamp, t2: Timestamp, t3: Timestamp, t4: Timestamp) -> (Timestamp, Timestamp) {
    let excess = t4.units_since(t1).saturating_sub(ROUND_TRIP_MAX);
    // An echo of a time in the future is left as it is.
    if excess == 0 || t4.is_before(t1) {
        return (t1, t2);
    }
    let waited = t3.units_since(t2).min(excess);
    (Timestamp::new(t1.value().wrapping_add(excess)), Timestamp::new(t2.value().wrapping_add(waited)))
}

/// Returns T1 of a response that is processed at `now` and waited up to `backlog` before: T1 is moved later by that
/// time, but never by more than the round trip without the receiver's wait. T4 is unchanged, because the adaptive
/// engine uses it as the current time.
fn came_earlier(t1: Timestamp, t2: Timestamp, t3: Timestamp, now: Time, backlog: Duration) -> Timestamp {
    let t4 = Timestamp::at(now);
    if backlog == Duration::ZERO || t4.is_before(t1) {
        return t1;
    }
    let waited = Timestamp::at(now).units_since(Timestamp::at(now - backlog));
    let most = t4.units_since(t1).saturating_sub(t3.units_since(t2));
    Timestamp::new(t1.value().wrapping_add(waited.min(most)))
}

/// Longest representable round trip, in ticks: 1.1 s.
const ROUND_TRIP_MAX: u32 = Ticks::MAX.get() / 2;

impl DeliverySender {
    /// Applies individual settings to `flow` and to the connection.
    ///
    /// # Panics
    /// When the connection has no such flow.
    pub(crate) fn apply(&mut self, flows: &mut Flows, flow: u8, settings: &ControlSettings) {
        assert!(flow < flows.count(), "flow {flow} of {}", flows.count());
        if let Some(fcwnd) = settings.fcwnd {
            flows.set_fcwnd(flow, fcwnd);
        }
        if let Some(ncwnd) = settings.ncwnd {
            self.limits.ncwnd = ncwnd.max(1);
        }
        if let Some(gap) = settings.packet_gap {
            self.limits.packet_gap = gap;
        }
        if let Some(rate) = settings.rate {
            self.limits.rate = rate;
        }
        if let Some(label) = settings.label {
            flows.set_label(flow, label);
        }
        if let Some(rule) = settings.ack_request {
            self.config.ack_request = rule;
        }
        if let Some(rack_rto) = settings.rack_rto {
            flows.get_mut(flow).rack_rto = rack_rto;
        }
        self.change_timeout(|waits, attempts| waits.apply(settings, attempts));
    }

    /// Calls `change`, which may change the timeout and receives the number of attempts of the peer; then adjusts the
    /// windows' timers.
    #[inline]
    pub(super) fn change_timeout(&mut self, change: impl FnOnce(&mut Waits, u16)) {
        let before = self.waits.rto();
        change(&mut self.waits, self.config.attempts_max);
        let shortened = before.saturating_sub(self.waits.rto());
        if shortened > Duration::ZERO {
            // No packet's timeout is moved earlier by more than this. A timer that was computed from a shorter timeout
            // expires early and is then set again.
            self.tx.iter_mut().for_each(|window| window.advance_timer(shortened));
        }
    }

    /// Returns the windows of `flow` and of the connection, in the form used in reports.
    #[inline]
    pub(crate) fn windows(&self, flows: &Flows, flow: u8) -> (Cwnd, u16) {
        (flows.get(flow).fcwnd, self.limits.ncwnd.min(u32::from(u16::MAX)) as u16)
    }

    /// Queues a report of an event on `flow`.
    #[inline]
    pub(super) fn report(&self, shared: &mut Shared, now: Time, flow: u8, kind: ReportKind, path: &Path) {
        if !shared.signals.has_room() {
            shared.counters.signals_refused += 1;
            return;
        }
        let (fcwnd, ncwnd) = self.windows(&shared.flows, flow);
        let backlog = self.waits.backlog(now);
        let flows = shared.flows.count();
        let told = shared.flows.get_mut(flow);
        let [acked, sent] = [&mut told.acknowledged, &mut told.left].map(|count| core::mem::take(count).min(COUNT_MAX));
        let (lost, in_flight) = (core::mem::take(&mut told.lost), told.outstanding.min(COUNT_MAX.into()) as u16);
        let is_answer = !matches!(kind, ReportKind::Retransmitted { .. });
        // A timeout carries no new count of marks: the count stays.
        let marked = if is_answer { path.ecn.wrapping_sub(told.ecn) & ECN_MASK } else { 0 };
        if is_answer {
            told.ecn = path.ecn;
        }
        let in_force = InForce {
            fcwnd,
            ncwnd,
            gap: Gap::slots(self.limits.packet_gap.as_ps().div_ceil(Gap::slots(1).duration().as_ps())),
            rate: self.limits.rate,
            rto: Ticks::of(self.waits.rto()),
            ack_rate: self.ack_rate,
        };
        let ticks = |timestamp: Timestamp| Ticks::new(timestamp.low24());
        let (t1, t2) = if path.again { path.answered_at_once() } else { (path.t1, path.t2) };
        let (t1, t2) = if is_answer {
            let t1 = came_earlier(t1, t2, path.t3, now, backlog);
            within_half_a_circle(t1, t2, path.t3, Timestamp::at(now))
        } else {
            (t1, t2)
        };
        shared.signals.push(FlowReport {
            kind,
            flow,
            flows,
            acked,
            marked: marked.min(COUNT_MAX),
            sent,
            in_flight,
            lost,
            t1: ticks(t1),
            t2: ticks(t2),
            t3: ticks(path.t3),
            t4: Ticks::at(now),
            hops: path.hops.min(HOPS_MAX),
            rx_level: path.rx_level,
            ecn: told.ecn,
            csig: path.csig,
            occupancy: 0,
            label: told.label.get(),
            extended: path.extended,
            window_drop: path.window_drop,
            delay: DelaySelect::Fabric,
            in_force,
        });
    }
}

/// Mask of the counter of marks, which has 14 bits.
const ECN_MASK: u16 = (1 << 14) - 1;

/// Maximum of a packet count, which has 10 bits.
const COUNT_MAX: u16 = 1_023;

/// Maximum of the hop count, which has 4 bits.
const HOPS_MAX: u8 = 15;
