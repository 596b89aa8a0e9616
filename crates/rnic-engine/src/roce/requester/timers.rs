//! The requester's deadlines: the pause of a receiver that was not ready, the timeout of requests, and the watch timer
//! for a responder that owes data.
//!
//! A wake-up checks every one of them; most are not due, because deadlines are only moved later while the entry in the
//! heap stays (see `timer`).

use rnic_base::{Duration, Seq};

use super::Requester;
use super::answers::owes_answers_alone;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::roce::shared::circumstances;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::window::{LaneId, TimeoutVerdict};

impl Requester {
    /// Handles the timers that are due; the responder expects packet `expected`.
    pub(in crate::roce) fn on_timeout(&mut self, verbs: &mut Verbs, core: &mut Core, expected: Seq) {
        self.end_pause(verbs, core);
        self.time_out(verbs, core);
        self.watch_responder(verbs, core, expected);
    }

    /// Returns the earliest deadline, except for pacing: that one is armed when a packet is held back.
    pub(in crate::roce) fn next_timeout(&self) -> Deadline {
        let next = self.window.deadline.min(self.pause);
        match self.responses.as_ref().filter(|responses| responses.is_waiting()) {
            Some(responses) => next.min(responses.watch),
            None => next,
        }
    }

    /// Ends the pause that a receiver which was not ready has requested, if its time is over.
    fn end_pause(&mut self, verbs: &mut Verbs, core: &mut Core) {
        if self.pause.is_due(core.now) {
            self.pause = Deadline::NEVER;
            self.reclaim_credit(verbs, core, 0);
            self.window.restart_timer(core.now);
            self.wake_to_retransmit(verbs, core);
        }
    }

    fn time_out(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let answers_alone = owes_answers_alone(verbs);
        // A Read in a shared space is requested as a whole, which is more than a probe.
        let may_probe = verbs.head.transport.split || verbs.send.fetches == 0;
        let mut circumstances = circumstances(verbs, core, may_probe);
        if answers_alone {
            circumstances.patience = Duration::MAX;
        }
        let bits = core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
        match self.window.check_timeout(core.now, &verbs.head.transport, &bits, &circumstances) {
            TimeoutVerdict::NotDue | TimeoutVerdict::Extended => return,
            TimeoutVerdict::Probe => {
                core.stats.probes += 1;
                return self.wake_to_retransmit(verbs, core);
            }
            TimeoutVerdict::Acted => self.retries += 1,
            TimeoutVerdict::GaveUp => return verbs.complete_failed_head(core, WcStatus::RetryExceeded),
        }
        if self.retries > verbs.send.retry_count()
            && !self.repeats_slowly(verbs, core)
            && !verbs.head.transport.measured
        {
            return verbs.complete_failed_head(core, WcStatus::RetryExceeded);
        }
        // A packet whose loss was inferred may be lost again.
        self.inferred_loss_at = Seq::UNSET;
        self.shared.count_timeout(verbs, core, self.window.in_flight());
        self.wake_to_retransmit(verbs, core);
    }

    /// Checks a responder that owes data and has been silent for a long time.
    fn watch_responder(&mut self, verbs: &mut Verbs, core: &mut Core, expected: Seq) {
        let Some(responses) = self.responses.as_mut().filter(|responses| responses.is_waiting()) else { return };
        if !responses.watch.is_due(core.now) {
            return;
        }
        // As long as the request itself is not acknowledged, its own timer, or the pause that the receiver has
        // requested, decides.
        let asked = responses.oldest().is_some_and(|counter| verbs.send.queue.get(counter).first < self.window.una);
        let heard = (expected, verbs.stats.rnr_naks_sent);
        let lives = verbs.head.transport.scheduled && std::mem::replace(&mut responses.heard, heard) != heard;
        responses.silent_periods = if asked && !lives { responses.silent_periods + 1 } else { 0 };
        responses.watch =
            Deadline::after(core.now, verbs.head.transport.response_patience_after(responses.silent_periods));
        if responses.silent_periods > verbs.send.retry_count() {
            verbs.complete_failed_head(core, WcStatus::RetryExceeded);
        }
    }
}
