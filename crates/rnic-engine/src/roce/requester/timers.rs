//! The requester's deadlines: the pause of a receiver that was not ready, the timeout of requests, and the watch timer
//! for a responder that owes data.
//!
//! Each wake-up checks all of them; most are not due, because a deadline that moves later keeps its earlier entry in
//! the timer heap (see `timer`).

use rnic_base::{Duration, Seq};

use super::Requester;
use super::peer_fetches::only_responses_in_flight;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::roce::shared::timeout_conditions;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::window::{LaneId, TimeoutVerdict};

impl Requester {
    /// Handles the timers that are due; the responder expects packet `expected`.
    pub(in crate::roce) fn on_timeout(&mut self, verbs: &mut Verbs, core: &mut Core, expected: Seq) {
        self.end_pause(verbs, core);
        let bits = core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
        if self.window.tick(core.now, &verbs.head.transport, &bits) {
            self.shared.follow_program(&verbs.head, core, &mut self.window);
            self.wake_to_retransmit(verbs, core);
        }
        self.time_out(verbs, core);
        self.watch_responder(verbs, core, expected);
    }

    /// Returns the earliest deadline, except for the pacing deadline, which is armed when a packet is held back.
    pub(in crate::roce) fn next_timeout(&self) -> Deadline {
        let next = self.window.next_deadline().min(self.rnr_deadline);
        match self.responses.as_ref().filter(|responses| responses.is_waiting()) {
            Some(responses) => next.min(responses.watch),
            None => next,
        }
    }

    /// Ends the pause that a receiver which was not ready has requested, if its time is over.
    fn end_pause(&mut self, verbs: &mut Verbs, core: &mut Core) {
        if self.rnr_deadline.is_due(core.now) {
            self.rnr_deadline = Deadline::NEVER;
            self.reclaim_credit(verbs, core, 0);
            self.window.restart_timer(core.now);
            self.wake_to_retransmit(verbs, core);
        }
    }

    fn time_out(&mut self, verbs: &mut Verbs, core: &mut Core) {
        // The packet whose acknowledgement is missing waits for the dequeue rate: it has not been retransmitted yet.
        let sends_at = self.shared.rate_blocks_until(core.now);
        if sends_at.is_set() && self.window.first_to_retransmit() == Some(self.window.una) {
            return self.window.restart_timer(sends_at.time().unwrap_or(core.now));
        }
        let only_responses = only_responses_in_flight(verbs);
        // In a shared space a retransmitted Read requests the complete response, which is more than a probe.
        let may_probe = verbs.head.transport.split || verbs.send.fetches == 0;
        let mut timeout_conditions = timeout_conditions(verbs, core, may_probe);
        if only_responses {
            timeout_conditions.silence_max = Duration::MAX;
        }
        let bits = core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
        let verdict = self.window.check_timeout(core.now, &verbs.head.transport, &bits, &timeout_conditions);
        self.shared.follow_program(&verbs.head, core, &mut self.window);
        match verdict {
            TimeoutVerdict::NotDue | TimeoutVerdict::Extended => return,
            TimeoutVerdict::Probe => {
                core.stats.probes += 1;
                self.shared.grant_for_probe();
                return self.wake_to_retransmit(verbs, core);
            }
            TimeoutVerdict::Acted => self.retries += 1,
            TimeoutVerdict::PeerUnresponsive => return verbs.complete_failed_head(core, WcStatus::RetryExceeded),
        }
        if self.retries > verbs.send.retry_count()
            && !self.back_off_responses(verbs, core)
            && !verbs.head.transport.measured
        {
            return verbs.complete_failed_head(core, WcStatus::RetryExceeded);
        }
        // A packet whose loss was inferred may be lost again.
        self.inferred_loss_at = Seq::UNSET;
        self.shared.grant_for_timeout(&verbs.head, self.window.marked());
        self.shared.count_timeout(verbs, core, self.window.in_flight());
        self.wake_to_retransmit(verbs, core);
    }

    /// Checks a responder that still has to send data and has been silent for a long time.
    fn watch_responder(&mut self, verbs: &mut Verbs, core: &mut Core, expected: Seq) {
        let Some(responses) = self.responses.as_mut().filter(|responses| responses.is_waiting()) else { return };
        if !responses.watch.is_due(core.now) {
            return;
        }
        // As long as the request itself is not acknowledged, the request timer, or the pause that the receiver has
        // requested, applies instead.
        let is_acked = responses.oldest().is_some_and(|counter| verbs.send.queue.get(counter).first < self.window.una);
        let last_watch = (expected, verbs.stats.rnr_naks_sent);
        let is_alive =
            verbs.head.transport.scheduled && std::mem::replace(&mut responses.last_watch, last_watch) != last_watch;
        responses.silent_periods = if is_acked && !is_alive { responses.silent_periods + 1 } else { 0 };
        responses.watch =
            Deadline::after(core.now, verbs.head.transport.response_timeout_after(responses.silent_periods));
        if responses.silent_periods > verbs.send.retry_count() {
            verbs.complete_failed_head(core, WcStatus::RetryExceeded);
        }
    }
}
