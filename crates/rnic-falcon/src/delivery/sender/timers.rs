//! Timeouts of packets, and the next moment at which a packet is due.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2 (F-14: each packet has a timeout of its own; a thread scans contexts);
//! specification Rev 0.9, sections 9.1.4 and 11.
//!
//! One lower bound a window stands for the timers of all its packets: when it is reached, the contexts are looked
//! through and it is set anew. A packet is due at, in this order: the end of its wait for a receiver that was not
//! ready; if it has arrived and waits for the upper layer, `upper_timeout` after it was last sent, or the timeout if
//! its receiver was not ready for it before, since what has arrived may be the copy that was refused; else the timeout
//! after it was last sent. Only the last is a timeout that counts: the others are news of a peer that is alive.
//!
//! Of packets further from the base than the bitmaps reach nobody can tell whether they have arrived. While one before
//! them is not acknowledged of which acknowledgements do tell, they wait as those do that have arrived: it is that
//! one's timer that repairs what stands in the way, and finds a peer that is gone. Else a receiver that is not ready
//! for the base, or a repair of it, would make them time out in vain, and end a connection whose peer lives. They come
//! within reach when the base moves; so as not to look through all of them each time that it does, the contexts are
//! looked through a timeout later at the latest.

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

/// Why a packet is due.
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
            due = due.min(tx.timer).min(tx.of_age);
        }
        (due < NEVER).then_some(due)
    }

    /// Does what is due. What leaves because of it leaves in [`DeliverySender::transmit`].
    pub(crate) fn expire(&mut self, shared: &mut Shared, now: Time, upper: &mut impl Upper) {
        if self.dead {
            return;
        }
        for window in Window::ALL {
            if self.tx[window].is_idle() {
                continue;
            }
            if self.tx[window].of_age <= now {
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

    /// Looks through all contexts of a window.
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
                // Who is alive says again that it is there; who is not is given up like any other.
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
                // The record has 3 bits for it.
                let count = worst[usize::from(flow)].min(7) as u8;
                self.report(shared, now, flow, ReportKind::Retransmitted { count, early: false }, &Path::default());
            }
        }
    }

    /// When and why a packet is due that has arrived, for all that anybody can know, or has not.
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

    /// One timeout more for packet `seq`; `false` when the connection is dead.
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
