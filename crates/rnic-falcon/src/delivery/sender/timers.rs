//! Timeouts of packets, and the next time at which a packet is due.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2 (Falcon mechanism F-14: each packet has its own timeout; a thread scans the
//! contexts); specification Rev 0.9, sections 9.1.4 and 11.
//!
//! One lower bound per window replaces the timers of all its packets: when that time is reached, the contexts are
//! scanned and the bound is set again. The first of these conditions that applies determines when a packet is due. If
//! its receiver was not ready: at the end of the resulting wait. If it has arrived and waits for the upper layer:
//! `upper_timeout` after it was last sent (or the normal timeout after that, if its receiver was not ready for it
//! before, because the copy that has arrived may be the refused one). Otherwise: the timeout after it was last sent.
//! Only the last case counts as a timeout: in the other cases the peer is known to be alive.
//!
//! For packets further from the base than the bitmaps reach, it is unknown whether they have arrived. While a packet
//! within the bitmaps' range is not acknowledged, they are treated like packets that have arrived: the timer of that
//! packet recovers the missing packet and detects a dead peer. Otherwise a receiver that is not ready for the base,
//! or a recovery of the base, would make them time out unnecessarily, and terminate a connection whose peer is alive.
//! They come within range when the base moves; to avoid scanning all of them on each move, the contexts are scanned
//! at most one timeout later.

use rnic_base::{Duration, Seq, Time};
use rnic_policy::control::report::ReportKind;

use rnic_wire::falcon::Window;

use crate::delivery::config::NEVER;
use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::interface::{Exhausted, Upper};

use super::DeliverySender;
use super::report::Path;
use super::tx_window::Sent;

/// Reason for which a packet is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DueReason {
    NotReadyOver,
    UpperLayerSilent,
    TimedOut,
}

impl DeliverySender {
    /// See [`Delivery::expiry`](crate::delivery::Delivery::expiry).
    #[inline]
    pub(crate) fn expiry(&self, flows: &Flows) -> Option<Time> {
        if self.terminated {
            return None;
        }
        let mut due = self.probe_due(flows);
        for tx in self.tx.iter().filter(|tx| !tx.is_idle()) {
            due = due.min(tx.timer).min(tx.loss_check_at);
        }
        (due < NEVER).then_some(due)
    }

    /// Performs the actions that are due. [`DeliverySender::transmit`] sends the resulting packets.
    pub(crate) fn expire(&mut self, shared: &mut Shared, now: Time, upper: &mut impl Upper) {
        if self.terminated {
            return;
        }
        for window in Window::ALL {
            if self.tx[window].is_idle() {
                continue;
            }
            if self.tx[window].loss_check_at <= now {
                self.mark_lost(shared, now, window);
            }
            if self.tx[window].timer <= now {
                self.scan(shared, now, window, upper);
            }
        }
        if !self.terminated && self.probe_due(&shared.flows) <= now {
            self.probe(shared, now);
        }
    }

    /// Scans all contexts of a window for packets that are due.
    fn scan(&mut self, shared: &mut Shared, now: Time, window: Window, upper: &mut impl Upper) {
        let mut next = NEVER;
        let (base, span) = (self.tx[window].base, self.tx[window].span());
        let mut timeouts_max = [0u16; rnic_policy::paths::FLOWS_MAX];
        let mut follows_reported = false;
        for seq in (0..span).map(|offset| base + offset) {
            let tx = &self.tx[window];
            let sent = *tx.sent(seq);
            if sent.acknowledged {
                continue;
            }
            let is_in_bitmaps = tx.is_in_bitmaps(seq);
            follows_reported |= is_in_bitmaps;
            if tx.is_marked(seq) {
                continue;
            }
            let waits_for_base = follows_reported && !is_in_bitmaps;
            let (due, reason) = self.due(&sent, tx.has_arrived(seq) || waits_for_base);
            if due > now {
                next = next.min(if waits_for_base { due.min(now + self.waits.rto()) } else { due });
                continue;
            }
            if reason == DueReason::TimedOut && !self.time_out(shared, now, window, seq, upper) {
                return;
            }
            let tx = &mut self.tx[window];
            if reason == DueReason::UpperLayerSilent {
                // If the peer is alive, it will report the packet's arrival again; otherwise, normal timeouts
                // terminate the connection.
                tx.clear_arrived(seq);
            }
            tx.mark(seq);
            tx.sent_mut(seq).not_before = Time::ZERO;
            if reason == DueReason::TimedOut {
                let timeouts_max = &mut timeouts_max[usize::from(sent.flow)];
                *timeouts_max = (*timeouts_max).max(sent.timeouts.saturating_add(1));
            }
        }
        self.tx[window].timer = next;
        if timeouts_max.iter().any(|count| *count > 0) {
            self.change_timeout(|waits, attempts| waits.back_off(now, attempts));
        }
        for flow in 0..shared.flows.count() {
            if timeouts_max[usize::from(flow)] > 0 {
                // The count has 3 bits in the event record.
                let count = timeouts_max[usize::from(flow)].min(7) as u8;
                self.report(shared, now, flow, ReportKind::Retransmitted { count, early: false }, &Path::default());
            }
        }
    }

    /// Returns when and why a packet is due; the second argument is true if it has arrived or is to be treated as
    /// arrived.
    fn due(&self, sent: &Sent, has_arrived: bool) -> (Time, DueReason) {
        if sent.not_before > Time::ZERO {
            (sent.not_before, DueReason::NotReadyOver)
        } else if has_arrived {
            let wait = if sent.refused { Duration::ZERO } else { self.config.upper_timeout };
            (sent.last + wait.max(self.waits.rto()), DueReason::UpperLayerSilent)
        } else {
            (self.waits.end_of_wait(sent.last, self.waits.rto()), DueReason::TimedOut)
        }
    }

    /// Counts another timeout of packet `seq`; returns `false` if the connection has failed.
    fn time_out(&mut self, shared: &mut Shared, now: Time, window: Window, seq: Seq, upper: &mut impl Upper) -> bool {
        shared.counters.timeouts += 1;
        let sent = self.tx[window].sent_mut(seq);
        sent.timeouts = sent.timeouts.saturating_add(1);
        let timeouts = sent.timeouts;
        if !self.waits.is_exhausted(now, timeouts, self.config.attempts_max) {
            return true;
        }
        let sent = self.tx[window].sent_mut(seq);
        let context = sent.context;
        match upper.exhausted(now, context) {
            Exhausted::Resync => {
                (sent.timeouts, sent.early, sent.replaced) = (0, 0, true);
                true
            }
            Exhausted::Terminated => {
                self.terminated = true;
                false
            }
        }
    }
}
