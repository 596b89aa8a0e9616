//! The deadlines of a queue pair.
//!
//! A wake-up asks every clock whether it is due; most are not, because deadlines only ever move back while the entry in
//! the heap stays (see `timer`).

use rnic_base::{Duration, Time};
use rnic_policy::{ControlEvent, PathEvent};

use crate::completion::WcStatus;
use crate::core::Core;
use crate::qp::Qp;
use crate::qp::fetch::FetchServer;
use crate::timer::Deadline;
use crate::window::{Bits, LaneId, TimeoutVerdict};

impl Qp {
    /// Something may be due.
    pub(crate) fn wake_up(&mut self, core: &mut Core, now: Time) {
        if self.transmits() {
            self.end_pause(core, now);
            self.time_out_requests(core, now);
            self.watch_responder(core, now);
        }
        if self.state.receives() {
            self.time_out_responses(core, now);
            self.tick_regulator(core, now);
            // Whoever was held back by pacing tries again; the gate decides.
            self.wake_requester(core);
            if self.responder.has_work() {
                self.wake_responder(core);
            }
        }
        let next = self.next_deadline();
        core.timers.arm(self.slot, next, &mut self.armed);
    }

    /// The earliest deadline there is, pacing aside: that is asked for when a packet is held back.
    fn next_deadline(&self) -> Deadline {
        if !self.state.receives() {
            return Deadline::NEVER;
        }
        let requester = &self.requester;
        let mut next = requester.window.deadline.min(requester.pause);
        if let Some(responses) = self.responses.as_ref().filter(|responses| responses.is_waiting()) {
            next = next.min(responses.watch);
        }
        if let Some(FetchServer::Split(server)) = self.responder.fetches.as_deref() {
            next = next.min(server.window.deadline);
        }
        if let Some(regulator) = &self.regulator {
            next = next.min(regulator.tick).min(regulator.schedule_tick);
        }
        next
    }

    /// The time that a receiver which was not ready has asked for is over.
    fn end_pause(&mut self, core: &mut Core, now: Time) {
        if self.requester.pause.is_due(now) {
            self.requester.pause = Deadline::NEVER;
            self.take_room_back(core, 0);
            self.requester.window.restart_timer(now);
            self.wake_to_repeat(core);
        }
    }

    fn time_out_requests(&mut self, core: &mut Core, now: Time) {
        let owes_answers_alone = self.owes_answers_alone();
        // A Read in a shared space is asked for as a whole: that is no probe.
        let may_probe = self.transport.split || self.requester.fetches == 0;
        let mut circumstances = self.requester.circumstances(&self.transport, core, self.peer, may_probe);
        if owes_answers_alone {
            circumstances.patience = Duration::MAX;
        }
        let bits = core.pools.bits(self.transport.pool, &mut self.responder.sr, LaneId::RequestsOut);
        match self.requester.window.check_timeout(now, &self.transport, &bits, &circumstances) {
            TimeoutVerdict::NotDue | TimeoutVerdict::Extended => return,
            TimeoutVerdict::Probe => {
                core.stats.probes += 1;
                return self.wake_to_repeat(core);
            }
            TimeoutVerdict::Acted => self.requester.retries += 1,
            TimeoutVerdict::GaveUp => return self.fail_head(core, WcStatus::RetryExceeded),
        }
        if self.requester.retries > self.requester.retry_count
            && !self.repeats_slowly(core, now)
            && !self.transport.measured
        {
            return self.fail_head(core, WcStatus::RetryExceeded);
        }
        // What was inferred to be lost may be lost again.
        self.requester.inferred_loss_at = rnic_base::Seq::UNSET;
        self.count_timeout(core, now);
        self.wake_to_repeat(core);
    }

    /// Nobody acknowledges responses. Perhaps their requester has them, and has ended its queue pair, or it is out of
    /// reach: that is for it to find out, as in RoCE, whose responders have no timers, and the program at this end has
    /// done nothing wrong. They are sent again less and less often, and others use their room at the peer meanwhile.
    fn time_out_responses(&mut self, core: &mut Core, now: Time) {
        // A refusal waits for the answers before it, but not for ever.
        let responder_refused = self.responder.refused;
        let Some(FetchServer::Split(server)) = self.responder.fetches.as_deref_mut() else { return };
        let bits = Bits::in_rings(&mut self.responder.sr);
        let mut circumstances = self.requester.circumstances(&self.transport, core, self.peer, true);
        circumstances.patience = Duration::MAX;
        match server.window.check_timeout(now, &self.transport, &bits, &circumstances) {
            TimeoutVerdict::NotDue | TimeoutVerdict::Extended | TimeoutVerdict::GaveUp => return,
            TimeoutVerdict::Probe => {
                core.stats.probes += 1;
                return self.wake_serving(core);
            }
            TimeoutVerdict::Acted => server.retries += 1,
        }
        let in_vain = server.retries.saturating_sub(self.requester.retry_count);
        if in_vain > 0 {
            if let Some(code) = responder_refused {
                return self.fail_as_responder(core, code);
            }
            // Measured timeouts back off by themselves.
            if !self.transport.measured {
                server.window.back_off(now, in_vain);
            }
            core.settle(self.peer, server.window.in_flight() - server.lent);
            server.lent = server.window.in_flight();
        }
        self.count_timeout(core, now);
        self.wake_serving(core);
    }

    fn count_timeout(&mut self, core: &mut Core, now: Time) {
        self.stats.timeouts += 1;
        core.stats.timeouts += 1;
        self.regulate(core, now, &ControlEvent::TimedOut);
        self.ask_path(now, &PathEvent::TimedOut);
    }

    /// A responder owes us data and has been silent for long.
    fn watch_responder(&mut self, core: &mut Core, now: Time) {
        let Some(responses) = self.responses.as_mut().filter(|responses| responses.is_waiting()) else { return };
        if !responses.watch.is_due(now) {
            return;
        }
        // As long as the request itself is not acknowledged, its own timer, or the pause that the receiver has asked
        // for, decides.
        let asked = responses
            .oldest()
            .is_some_and(|counter| self.requester.queue.get(counter).first < self.requester.window.una);
        let heard = (self.responder.window.expected, self.stats.rnr_naks_sent);
        let lives = self.transport.scheduled && std::mem::replace(&mut responses.heard, heard) != heard;
        responses.silent_periods = if asked && !lives { responses.silent_periods + 1 } else { 0 };
        responses.watch = Deadline::after(now, self.transport.response_patience_after(responses.silent_periods));
        if responses.silent_periods > self.requester.retry_count {
            self.fail_head(core, WcStatus::RetryExceeded);
        }
    }
}
