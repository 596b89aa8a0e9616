//! What is reported to the adaptive engine, and what it sets.
//!
//! Source: Falcon (SIGCOMM'25) table 3 (F-22, F-23); specification Rev 0.9, section 10.6.2 (field lists of the event
//! and the result). One report per acknowledgement, NACK and timeout of a flow, in a queue of fixed length. When it
//! is full, what an acknowledgement counted is not lost: it goes with the flow's next report (specification 10.6.1:
//! `num_packets_acked` saturates). Packets sent again before their timeout are not reported (as in the reference
//! simulator: the acknowledgement that showed the loss is).
//!
//! Not measured here, and zero in reports: occupancy of our own resources (the transaction layer's), for whoever
//! carries the report to add. What a congested switch wrote into a packet (CSIG) comes back in the bits that answers
//! have for adaptive engines. With a report on a retransmission comes none: it is no news of a path.

use rnic_base::{Csig, Duration, Time};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{DelaySelect, FlowReport, Gap, InForce, ReportKind, Ticks};
use rnic_wire::falcon::Timestamp;

use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::delivery::signal::ControlSettings;

use super::DeliverySender;
use super::waits::Waits;

/// What an answer says about the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    pub(crate) t1: Timestamp,
    pub(crate) t2: Timestamp,
    pub(crate) t3: Timestamp,
    /// An answer on the flow has echoed this packet before, or a later one: T3 is when something else became ready.
    pub(crate) again: bool,
    pub(crate) hops: u8,
    pub(crate) rx_level: u8,
    pub(crate) ecn: u16,
    pub(crate) csig: Option<Csig>,
    pub(crate) extended: bool,
    pub(crate) window_drop: bool,
}

impl Path {
    /// T1 and T2 of a packet that met the same delay on its way and came when the answer left.
    fn answered_at_once(&self) -> (Timestamp, Timestamp) {
        let wait = self.t3.units_since(self.t2);
        (Timestamp::new(self.t1.value().wrapping_add(wait)), self.t3)
    }
}

/// T1 and T2 as 24 bits can tell them, of an answer that left at `t3` and comes at `t4`: a round trip of more than half
/// their circle would look like none at all, or like the little by which it exceeds a whole one. So it is told as the
/// longest that there is. What the receiver has waited is taken off first, so that its wait is never taken for a delay.
fn within_half_a_circle(t1: Timestamp, t2: Timestamp, t3: Timestamp, t4: Timestamp) -> (Timestamp, Timestamp) {
    let excess = t4.units_since(t1).saturating_sub(ROUND_TRIP_MAX);
    // An echo from the future is left as it is.
    if excess == 0 || t4.is_before(t1) {
        return (t1, t2);
    }
    let waited = t3.units_since(t2).min(excess);
    (Timestamp::new(t1.value().wrapping_add(excess)), Timestamp::new(t2.value().wrapping_add(waited)))
}

/// T1 of an answer that is taken in at `now` and waited for that up to `backlog`: as if the packet had left later by so
/// much, but for what the receiver has waited. T4 stays, for it is the time that the adaptive engine goes by.
fn came_earlier(t1: Timestamp, t2: Timestamp, t3: Timestamp, now: Time, backlog: Duration) -> Timestamp {
    let t4 = Timestamp::at(now);
    if backlog == Duration::ZERO || t4.is_before(t1) {
        return t1;
    }
    let waited = Timestamp::at(now).units_since(Timestamp::at(now - backlog));
    let most = t4.units_since(t1).saturating_sub(t3.units_since(t2));
    Timestamp::new(t1.value().wrapping_add(waited.min(most)))
}

/// 1.1 s.
const ROUND_TRIP_MAX: u32 = Ticks::MAX.get() / 2;

impl DeliverySender {
    /// Applies single settings to `flow`, and to the connection.
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

    /// Does what may `change` the timeout of a peer that has so many attempts; the windows' timers follow.
    #[inline]
    pub(super) fn change_timeout(&mut self, change: impl FnOnce(&mut Waits, u16)) {
        let before = self.waits.rto();
        change(&mut self.waits, self.config.attempts_max);
        let shortened = before.saturating_sub(self.waits.rto());
        if shortened > Duration::ZERO {
            // No packet's timeout comes sooner by more. What was computed from a shorter one comes early, and is set
            // anew then.
            self.tx.iter_mut().for_each(|window| window.advance_timer(shortened));
        }
    }

    /// The windows of `flow` and of the connection, as reports have them.
    #[inline]
    pub(crate) fn windows(&self, flows: &Flows, flow: u8) -> (Cwnd, u16) {
        (flows.get(flow).fcwnd, self.limits.ncwnd.min(u32::from(u16::MAX)) as u16)
    }

    /// Reports what happened on `flow`.
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
        // A timeout brings no news of marks: the count is what it was.
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

/// The count of marks has 14 bits.
const ECN_MASK: u16 = (1 << 14) - 1;

/// Counts of packets have 10 bits.
const COUNT_MAX: u16 = 1_023;

/// Hops have 4 bits.
const HOPS_MAX: u8 = 15;
