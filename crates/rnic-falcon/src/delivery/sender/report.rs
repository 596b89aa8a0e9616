//! Reports to the adaptive engine, and settings applied from it.
//!
//! Source: Falcon (SIGCOMM'25) table 3 (Falcon mechanisms F-22, F-23); specification Rev 0.9, section 10.6.2 (field
//! lists of the event and the result). Each acknowledgement, NACK and timeout of a flow adds a report to a queue of
//! fixed length. If the queue is full, the counts of an acknowledgement are not lost: the flow's next report includes
//! them (specification
//! 10.6.1: `num_packets_acked` saturates). Packets retransmitted before their timeout are not reported (as in the
//! reference simulator), but the acknowledgement that revealed the loss is.
//!
//! The occupancy of local resources, which belong to the transaction layer, is not measured here. It is zero in
//! reports, and the component that passes the report on adds it. The congestion signal (CSIG) that a switch wrote
//! into a packet is returned in the bits of responses reserved for adaptive engines. A report on a retransmission
//! carries none, because it contains no new information on a path.

use rnic_base::{Csig, Duration, Time};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{CurrentSettings, DelaySelect, FlowReport, Gap, ReportKind, Ticks};
use rnic_wire::falcon::Timestamp;

use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::delivery::signal::ControlSettings;

use super::DeliverySender;
use super::waits::ConnectionTimes;

/// Path information of an acknowledgement or NACK.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    pub(crate) t1: Timestamp,
    pub(crate) t2: Timestamp,
    pub(crate) t3: Timestamp,
    /// True when an earlier acknowledgement on the flow echoed this packet or a later one: T3 is then the time at
    /// which another packet became ready to be acknowledged.
    pub(crate) again: bool,
    pub(crate) hops: u8,
    pub(crate) rx_level: u8,
    pub(crate) ecn: u16,
    pub(crate) csig: Option<Csig>,
    pub(crate) extended: bool,
    pub(crate) window_drop: bool,
}

impl Path {
    /// Returns T1 and T2 of a hypothetical packet that had the same network delay and arrived at the time at which
    /// the acknowledgement was sent.
    fn without_ack_delay(&self) -> (Timestamp, Timestamp) {
        let wait = self.t3.units_since(self.t2);
        (Timestamp::new(self.t1.value().wrapping_add(wait)), self.t3)
    }
}

/// Returns T1 and T2 limited to the range of 24 bits, for a response sent at `t3` and received at `t4`: a round trip
/// of more than half of the range would be misread as zero, or, beyond the full range, as the small remainder. It is
/// therefore reported as the longest representable round trip. The excess is deducted from the receiver's delay
/// first, so that this delay is never mistaken for network delay.
fn limited_to_24_bits(t1: Timestamp, t2: Timestamp, t3: Timestamp, t4: Timestamp) -> (Timestamp, Timestamp) {
    let excess = t4.units_since(t1).saturating_sub(ROUND_TRIP_MAX);
    // If T1 is in the future, the timestamps are returned unchanged.
    if excess == 0 || t4.is_before(t1) {
        return (t1, t2);
    }
    let waited = t3.units_since(t2).min(excess);
    (Timestamp::new(t1.value().wrapping_add(excess)), Timestamp::new(t2.value().wrapping_add(waited)))
}

/// Returns T1, corrected for a response that is processed at `now` after waiting for up to `backlog`: T1 is moved
/// later by that time, but never by more than the round trip minus the receiver's delay. T4 is unchanged, because the
/// adaptive engine uses it as the current time.
fn corrected_for_backlog(t1: Timestamp, t2: Timestamp, t3: Timestamp, now: Time, backlog: Duration) -> Timestamp {
    let t4 = Timestamp::at(now);
    if backlog == Duration::ZERO || t4.is_before(t1) {
        return t1;
    }
    let waited = Timestamp::at(now).units_since(Timestamp::at(now - backlog));
    let correction_max = t4.units_since(t1).saturating_sub(t3.units_since(t2));
    Timestamp::new(t1.value().wrapping_add(waited.min(correction_max)))
}

/// Longest representable round trip, in ticks: 1.1 s.
const ROUND_TRIP_MAX: u32 = Ticks::MAX.get() / 2;

impl DeliverySender {
    /// Applies individual settings to `flow` and to the connection.
    ///
    /// # Panics
    /// If the connection has no such flow.
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

    /// Calls `change`, which may change the timeout and receives the maximum number of attempts; then adjusts the
    /// timers of the windows.
    #[inline]
    pub(super) fn change_timeout(&mut self, change: impl FnOnce(&mut ConnectionTimes, u16)) {
        let before = self.waits.rto();
        change(&mut self.waits, self.config.attempts_max);
        let shortened = before.saturating_sub(self.waits.rto());
        if shortened > Duration::ZERO {
            // No packet's deadline is moved earlier by more than this difference. A timer that was computed from a
            // shorter timeout expires early and is then set again.
            self.tx.iter_mut().for_each(|window| window.advance_timer(shortened));
        }
    }

    /// Returns the windows of `flow` and of the connection, in the format used in reports.
    #[inline]
    pub(crate) fn windows(&self, flows: &Flows, flow: u8) -> (Cwnd, u16) {
        (flows.get(flow).fcwnd, self.limits.ncwnd.min(u32::from(u16::MAX)) as u16)
    }

    /// Queues a report of an event on `flow`.
    #[inline]
    pub(super) fn report(&self, shared: &mut Shared, now: Time, flow: u8, kind: ReportKind, path: &Path) {
        if !shared.signals.has_room() {
            shared.counters.signals_refused = shared.counters.signals_refused.saturating_add(1);
            return;
        }
        let (fcwnd, ncwnd) = self.windows(&shared.flows, flow);
        let backlog = self.waits.backlog(now);
        let flows = shared.flows.count();
        let flow_state = shared.flows.get_mut(flow);
        let [acked, sent] = [&mut flow_state.acknowledged, &mut flow_state.packets_since_report]
            .map(|count| core::mem::take(count).min(COUNT_MAX));
        let (lost, in_flight) =
            (core::mem::take(&mut flow_state.lost), flow_state.outstanding.min(COUNT_MAX.into()) as u16);
        let is_answer = !matches!(kind, ReportKind::Retransmitted { .. });
        // A timeout provides no new count of ECN marks, so the last count is reported again.
        let marked = if is_answer { path.ecn.wrapping_sub(flow_state.ecn) & ECN_MASK } else { 0 };
        if is_answer {
            flow_state.ecn = path.ecn;
        }
        let in_force = CurrentSettings {
            fcwnd,
            ncwnd,
            gap: Gap::slots(self.limits.packet_gap.as_ps().div_ceil(Gap::slots(1).duration().as_ps())),
            rate: self.limits.rate,
            rto: Ticks::of(self.waits.rto()),
            ack_rate: self.ack_rate,
        };
        let ticks = |timestamp: Timestamp| Ticks::new(timestamp.low24());
        let (t1, t2) = if path.again { path.without_ack_delay() } else { (path.t1, path.t2) };
        let (t1, t2) = if is_answer {
            let t1 = corrected_for_backlog(t1, t2, path.t3, now, backlog);
            limited_to_24_bits(t1, t2, path.t3, Timestamp::at(now))
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
            ecn: flow_state.ecn,
            csig: path.csig,
            occupancy: 0,
            label: flow_state.label.get(),
            extended: path.extended,
            window_drop: path.window_drop,
            delay: DelaySelect::Fabric,
            in_force,
        });
    }
}

/// Mask of the counter of ECN marks, which has 14 bits.
const ECN_MASK: u16 = (1 << 14) - 1;

/// Maximum of a packet count, which has 10 bits.
const COUNT_MAX: u16 = 1_023;

/// Maximum of the hop count, which has 4 bits.
const HOPS_MAX: u8 = 15;
