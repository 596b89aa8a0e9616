//! The completer: what comes back for our requests, and what it finishes.
//!
//! Requests are finished strictly in the order in which they were posted. In a shared space (RoCE) one number says it
//! all: a response is the acknowledgement of its request. In split spaces (IRN section 5.4) acknowledgements move the
//! request window, responses the response window, and a read needs both.

mod counted;
mod responses;

use rnic_base::{Psn, Seq, Time};
use rnic_policy::{ControlEvent, LossReport, RecoveryActions, RecoveryEvent};
use rnic_wire::{Aeth, NakCode, RnrTimer, Syndrome};

use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::event::AsyncEvent;
use crate::qp::{Qp, QpState};
use crate::timer::Deadline;
use crate::window::LaneId;
use crate::wq::{SendWqe, WqeOp, WqeState};
use crate::wr::SendFlags;

pub(crate) use responses::ResponseWindow;

impl WqeOp {
    pub(crate) fn wc_opcode(self) -> WcOpcode {
        match self {
            Self::Write | Self::WriteImm => WcOpcode::RdmaWrite,
            Self::Send | Self::SendImm | Self::SendInvalidate | Self::Datagram | Self::DatagramImm => WcOpcode::Send,
            Self::Read => WcOpcode::RdmaRead,
            Self::CompareSwap => WcOpcode::CompareSwap,
            Self::FetchAdd => WcOpcode::FetchAdd,
            Self::BindWindow => WcOpcode::BindWindow,
            Self::LocalInvalidate => WcOpcode::LocalInvalidate,
            Self::AtomicWrite => WcOpcode::AtomicWrite,
            Self::Flush => WcOpcode::Flush,
        }
    }
}

impl Qp {
    /// An acknowledgement of requests (IRN's `receiveAck`).
    #[inline]
    pub(crate) fn receive_ack(
        &mut self,
        core: &mut Core,
        now: Time,
        psn: Psn,
        aeth: Aeth,
        sack: Option<Psn>,
    ) -> RxOutcome {
        let una = self.requester.window.una;
        let seq = psn.extend(una);
        let is_ack = matches!(aeth.syndrome, Syndrome::Ack { .. });
        let cumulative = if is_ack { seq + 1 } else { seq };
        if cumulative > self.requester.window.next {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        }
        if is_ack {
            let is_freer = self.transport.credits && self.heed_credits(aeth);
            if cumulative <= una {
                self.requester.window.note_heard();
                if is_freer {
                    self.wake_requester(core);
                }
                return RxOutcome::Duplicate;
            }
            self.acknowledge_requests(core, now, cumulative);
            return RxOutcome::Accepted;
        }
        self.receive_nak(core, now, cumulative, aeth.syndrome, sack)
    }

    #[inline(never)]
    fn receive_nak(
        &mut self,
        core: &mut Core,
        now: Time,
        expected: Seq,
        syndrome: Syndrome,
        sack: Option<Psn>,
    ) -> RxOutcome {
        let sack = sack.map(|psn| psn.extend(self.requester.window.una));
        let stale = expected < self.requester.window.una;
        self.requester.window.note_heard();
        if !stale {
            if matches!(syndrome, Syndrome::Nak(code) if code != NakCode::PsnSequenceError) {
                let bits = &mut core.pools.bits(self.transport.pool, &mut self.responder.sr, LaneId::RequestsOut);
                self.requester.window.forget_early(bits);
            }
            self.acknowledge_requests(core, now, expected);
        }
        if let Some(seq) = sack {
            self.requester.window.acknowledge_early(seq, &self.transport);
            self.heed_early_rtt(core, now, seq);
        }
        // Acknowledging may have failed the queue pair, or stopped short at a response that is missing.
        if stale || !self.transmits() || self.requester.window.una != expected {
            let is_windowed = self.regulator.as_ref().is_some_and(|regulator| regulator.window.is_some());
            if is_windowed || self.requester.window.room_on_path().is_some() {
                // What was kept makes room in a congestion window even so.
                self.wake_requester(core);
            }
            return RxOutcome::Duplicate;
        }
        match syndrome {
            Syndrome::Nak(NakCode::PsnSequenceError) => self.heed_nack(core, now, sack, None),
            Syndrome::RnrNak { timer } => self.pause_for_receiver(core, now, RnrTimer::from_code(timer)),
            Syndrome::Nak(code) => self.fail_refused(core, code),
            Syndrome::Ack { .. } => {}
        }
        RxOutcome::Accepted
    }

    /// Packet `seq` has arrived early: it may tell the round-trip time.
    pub(in crate::qp) fn heed_early_rtt(&mut self, core: &mut Core, now: Time, seq: Seq) {
        if self.regulator.is_none() && !self.transport.measured {
            return;
        }
        let rtt = self.requester.window.take_early_rtt(seq, now);
        if let Some(rtt) = rtt {
            self.requester.window.learn(now, rtt, core.absence);
        }
        if self.regulator.is_some() {
            self.regulate_early(core, now, rtt);
        }
    }

    /// The receiver reports a gap at `una`.
    fn heed_nack(&mut self, core: &mut Core, now: Time, sack: Option<Seq>, losses: Option<LossReport>) {
        if self.requester.window.is_empty() {
            return;
        }
        self.stats.nacks += 1;
        core.stats.nacks += 1;
        let event = RecoveryEvent::Nacked { sack, losses };
        let actions = self.recover_requests(core, now, &event);
        core.timers.arm(self.slot, self.requester.window.deadline, &mut self.armed);
        self.regulate(core, now, &ControlEvent::Nacked { lost: actions.retransmit.is_some() });
        self.wake_to_repeat(core);
    }

    /// What is acknowledged needs no bits in the pool.
    #[cold]
    fn release_acknowledged(&mut self, core: &mut Core) {
        let una = self.requester.window.una;
        core.pools.bits(self.transport.pool, &mut self.responder.sr, LaneId::RequestsOut).acknowledged(una);
    }

    /// Tells the recovery of requests what happened.
    #[inline(never)]
    fn recover_requests(&mut self, core: &mut Core, now: Time, event: &RecoveryEvent) -> RecoveryActions {
        let Self { requester, responder, transport, .. } = self;
        let bits = core.pools.bits(transport.pool, &mut responder.sr, LaneId::RequestsOut);
        requester.window.recover(event, now, transport, &bits)
    }

    /// A response went missing in a shared space: nobody else will tell us (IBA 9.7.5.2.4, implied NAK). Each packet is
    /// taken for lost once; if it is lost again the timer finds out.
    fn infer_loss(&mut self, core: &mut Core, now: Time) {
        let una = self.requester.window.una;
        if self.requester.inferred_loss_at != una {
            self.requester.inferred_loss_at = una;
            self.heed_nack(core, now, None, None);
        }
    }

    /// Moves the cumulative acknowledgement of requests to `cumulative`, or, in a shared space, up to the first
    /// response that has not come in.
    #[inline(always)]
    pub(crate) fn acknowledge_requests(&mut self, core: &mut Core, now: Time, cumulative: Seq) {
        let reached = if self.transport.split || self.requester.fetches == 0 {
            cumulative
        } else {
            cumulative.min(self.first_missing_response())
        };
        self.advance_requests(core, now, reached);
        if reached < cumulative && self.state.sends() {
            self.infer_loss(core, now);
        }
    }

    /// In a shared space: the sequence number of the oldest response still to come.
    fn first_missing_response(&self) -> Seq {
        let requester = &self.requester;
        let mut counter = requester.queue.head;
        loop {
            let wqe = requester.queue.get(counter);
            if wqe.op.is_fetch() && wqe.end() > requester.window.una {
                return wqe.first.max(requester.window.una);
            }
            assert!(counter != requester.queue.next, "a fetch is under way");
            counter = counter.wrapping_add(1);
        }
    }

    /// Moves the cumulative acknowledgement of requests and does everything that follows from it.
    #[inline(always)]
    pub(crate) fn advance_requests(&mut self, core: &mut Core, now: Time, una: Seq) {
        let (packets, rtt) = self.requester.window.acknowledge(una, now);
        if packets == 0 {
            return;
        }
        if let Some(rtt) = rtt {
            self.requester.window.learn(now, rtt, core.absence);
        }
        if self.responder.sr.is_held() {
            self.release_acknowledged(core);
        }
        if let Some(watched) = core.watch.of(self.slot) {
            watched.round_trip.acknowledged(self.requester.window.una, now);
        }
        self.requester.retries = 0;
        self.requester.rnr_retries = 0;
        self.requester.pause = Deadline::NEVER;
        self.take_room_back(core, packets);
        core.settle_acknowledged(self.peer, packets);
        if self.transport.scheduled {
            self.free_answered(core);
        }
        if self.requester.window.wants_acknowledgements(&self.transport) {
            self.recover_requests(core, now, &RecoveryEvent::Acked { packets, rtt });
            self.wake_to_repeat(core);
        }
        core.timers.arm(self.slot, self.requester.window.deadline, &mut self.armed);
        if self.regulator.is_some() {
            self.regulate_acked(core, now, packets, rtt);
        }
        self.complete_acknowledged(core);
        self.wake_requester(core);
    }

    fn pause_for_receiver(&mut self, core: &mut Core, now: Time, timer: RnrTimer) {
        self.stats.rnr_naks += 1;
        let requester = &mut self.requester;
        // While it pauses it sends nothing that could be refused again: this is a copy.
        if requester.window.is_empty() || requester.pause.is_set() {
            return;
        }
        requester.rnr_retries += 1;
        requester.window.pause_timer();
        if requester.rnr_retry.is_some_and(|limit| requester.rnr_retries > limit) {
            // A read before it may still be on its way: that one has not failed.
            if let Some(counter) = requester.queue.find(requester.window.una) {
                self.fail_request(core, counter, WcStatus::RnrRetryExceeded);
            }
            return;
        }
        let bits = core.pools.bits(self.transport.pool, &mut self.responder.sr, LaneId::RequestsOut);
        requester.window.repeat_all(&self.transport, &bits);
        requester.pause = Deadline::after(now, timer.wait());
        core.timers.arm(self.slot, requester.pause, &mut self.armed);
        self.lend_room(core);
    }

    /// The responder refused the request at `una`.
    fn fail_refused(&mut self, core: &mut Core, code: NakCode) {
        if let Some(counter) = self.requester.queue.find(self.requester.window.una) {
            self.fail_request(core, counter, WcStatus::refused(code));
        } else if self.transport.scheduled {
            // It is an answer that the peer cannot take, or the news that its memory is gone.
            self.fail_as_responder(core, code);
        }
    }

    /// Completes requests from the head of the queue for as long as they are finished.
    pub(crate) fn complete_finished(&mut self, core: &mut Core) {
        self.complete_acknowledged(core);
    }

    /// [`Qp::complete_finished`], for the one caller on the packet path.
    #[inline(always)]
    fn complete_acknowledged(&mut self, core: &mut Core) {
        let Self { requester, transport, send_cq, number, .. } = self;
        let una = requester.window.una;
        let head = requester.queue.head;
        let mut failed = None;
        while requester.queue.head != requester.queue.tail {
            let counter = requester.queue.head;
            if let Some((doomed, status)) = requester.doom
                && doomed == counter
            {
                failed = Some(status);
                break;
            }
            let wqe = requester.queue.get(counter);
            if counter == requester.queue.next || wqe.end() > una {
                break;
            }
            if wqe.op.is_fetch() {
                if transport.split && wqe.state != WqeState::Fetched {
                    break;
                }
                requester.fetches -= 1;
            }
            if wqe.flags.contains(SendFlags::SIGNALED) {
                core.complete(*send_cq, send_completion(*number, wqe, WcStatus::Success));
            }
            requester.queue.head = counter.wrapping_add(1);
        }
        if let Some(status) = failed {
            self.fail_head(core, status);
        } else if self.state == QpState::SendQueueDrained && self.requester.queue.head != head {
            self.notice_drained(core);
        }
    }

    pub(crate) fn notice_drained(&mut self, core: &mut Core) {
        let queue = &self.requester.queue;
        if queue.head == queue.next && self.requester.sent_of_next == 0 {
            core.notice(AsyncEvent::SendQueueDrained(self.number));
        }
    }
}

/// The completion of `wqe` with `status`.
#[inline]
pub(crate) fn send_completion(qpn: rnic_wire::Qpn, wqe: &SendWqe, status: WcStatus) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        qpn,
        status,
        opcode: wqe.op.wc_opcode(),
        byte_len: if wqe.op.is_fetch() { wqe.length } else { 0 },
        word: 0,
        flags: WcFlags::empty(),
        source: rnic_wire::Qpn::default(),
    }
}
