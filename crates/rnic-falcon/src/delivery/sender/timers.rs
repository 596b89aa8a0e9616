//! Timeouts of packets, and the next time at which a packet is due.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2 (F-14: each packet has a timeout of its own; a thread scans contexts);
//! specification Rev 0.9, sections 9.1.4 and 11.
//!
//! One lower bound per window replaces the timers of all its packets: when it is reached, the contexts are scanned and
//! it is set again. A packet is due, by the first condition that applies: at the end of its wait for a receiver that
//! was not ready; if it has arrived and waits for the upper layer, `upper_timeout` after it was last sent, or the
//! timeout if its receiver was not ready for it before, because the copy that has arrived may be the refused one;
//! otherwise the timeout after it was last sent. Only the last one counts as a timeout: in the other cases the peer is
//! known to be alive.
//!
//! For packets further from the base than the bitmaps reach, it is unknown whether they have arrived. While a packet
//! within the bitmaps' range is not acknowledged, they wait as packets that have arrived do: the timer of that packet
//! recovers the missing packet and detects a dead peer. Otherwise a receiver that is not ready for the base, or a
//! recovery of the base, would make them time out unnecessarily, and terminate a connection whose peer is alive. They
//! come within range when the base moves; to avoid scanning all of them on each move, the contexts are scanned at most
//! one timeout later.

use rnic_base::{Duration, Seq, Time};
use rnic_policy::control::report::ReportKind;

use rnic_wire::falcon::Window;

use crate::delivery::config::NEVER;
use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::seam::{Exhausted, Upper};

use super::DeliverySender;
use super::report::Path;
use super::tx_window::Sent;

/// Reason for a packet to be due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    NotReadyOver,
    UpperLayerSilent,
    TimedOut,
}

impl DeliverySender {
    /// See [`Delivery::expiry`](crate::delivery::Delivery::expiry).
    #[inline]
    pub(crate) fn expiry(&self, flows: &Flows) -> Option<Time> {
        if self.dead {
            return None;
        }
        let mut due = self.probe_due(flows);
        for tx in self.tx.iter().filter(|tx| !tx.is_idle()) {
            due = due.min(tx.timer).min(tx.loss_check_at);
        }
        (due < NEVER).then_some(due)
    }

    /// Performs the actions that are due. Resulting packets are sent by [`DeliverySender::transmit`].
    pub(crate) fn expire(&mut self, shared: &mut Shared, now: Time, upper: &mut impl Upper) {
        if self.dead {
            return;
        }
        for window in Window::ALL {
            if self.tx[window].is_idle() {
                continue;
            }
            if self.tx[window].loss_check_at <= now {
                self.judge(shared, now, window);
            }
            if self.tx[window].timer <= now {
                self.scan(shared, now, window, upper);
            }
        }
        if !self.dead && self.probe_due(&shared.flows) <= now {
            self.probe(shared, now);
        }
    }

    /// Scans all contexts of a window for packets that are due.
    fn scan(&mut self, shared: &mut Shared, now: Time, window: Window, upper: &mut impl Upper) {
        let mut next = NEVER;
        let (base, span) = (self.tx[window].base, self.tx[window].span());
        let mut worst = [0u16; rnic_policy::paths::FLOWS_MAX];
        let mut follows_told = false;
        for seq in (0..span).map(|offset| base + offset) {
            let tx = &self.tx[window];
            let sent = *tx.sent(seq);
            if sent.acknowledged {
                continue;
            }
            let is_told = tx.is_told(seq);
            follows_told |= is_told;
            if tx.is_marked(seq) {
                continue;
            }
            let waits_for_base = follows_told && !is_told;
            let (due, why) = self.due(&sent, tx.has_arrived(seq) || waits_for_base);
            if due > now {
                next = next.min(if waits_for_base { due.min(now + self.waits.rto()) } else { due });
                continue;
            }
            if why == Due::TimedOut && !self.time_out(shared, now, window, seq, upper) {
                return;
            }
            let tx = &mut self.tx[window];
            if why == Due::UpperLayerSilent {
                // A live peer will report its arrival again; a dead peer is given up by the usual timeout.
                tx.clear_arrived(seq);
            }
            tx.mark(seq);
            tx.sent_mut(seq).not_before = Time::ZERO;
            if why == Due::TimedOut {
                let worst = &mut worst[usize::from(sent.flow)];
                *worst = (*worst).max(sent.timeouts.saturating_add(1));
            }
        }
        self.tx[window].timer = next;
        if worst.iter().any(|count| *count > 0) {
            self.change_timeout(|waits, attempts| waits.back_off(now, attempts));
        }
        for flow in 0..shared.flows.count() {
            if worst[usize::from(flow)] > 0 {
                // The record has 3 bits for the count.
                let count = worst[usize::from(flow)].min(7) as u8;
                self.report(shared, now, flow, ReportKind::Retransmitted { count, early: false }, &Path::default());
            }
        }
    }

    /// Returns when and why a packet is due, given whether it has arrived or must be assumed to have arrived.
    fn due(&self, sent: &Sent, has_arrived: bool) -> (Time, Due) {
        if sent.not_before > Time::ZERO {
            (sent.not_before, Due::NotReadyOver)
        } else if has_arrived {
            let patience = if sent.refused { Duration::ZERO } else { self.config.upper_timeout };
            (sent.last + patience.max(self.waits.rto()), Due::UpperLayerSilent)
        } else {
            (self.waits.end_of_wait(sent.last, self.waits.rto()), Due::TimedOut)
        }
    }

    /// Counts one more timeout of packet `seq`; returns `false` when the connection is dead.
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
            Exhausted::Dead => {
                self.dead = true;
                false
            }
        }
    }
}
