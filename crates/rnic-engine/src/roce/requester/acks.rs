//! Handles acknowledgements and responses, and completes the corresponding requests.
//!
//! Requests complete strictly in the order in which they were posted. In a shared space (RoCE) one cumulative number
//! is enough: a response is the acknowledgement of its request. In split spaces (IRN section 5.4) acknowledgements
//! move the request window, responses the response window, and a read needs both.

use rnic_base::{Psn, Seq};
use rnic_policy::{ControlEvent, RecoveryActions, RecoveryEvent};
use rnic_wire::{Aeth, NakCode, RnrTimer, Syndrome};

use super::Requester;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::send::SendHalf;
use crate::window::LaneId;

impl Requester {
    /// Handles an acknowledgement of requests (IRN's `receiveAck`).
    #[inline(always)]
    pub(crate) fn on_ack(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        psn: Psn,
        aeth: Aeth,
        sack: Option<Psn>,
    ) -> RxOutcome {
        let una = self.window.una;
        let seq = psn.extend(una);
        let is_ack = matches!(aeth.syndrome, Syndrome::Ack { .. });
        let cumulative = if is_ack { seq + 1 } else { seq };
        if cumulative > self.window.next {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        }
        if is_ack {
            let has_more_credits = verbs.head.transport.credits && self.shared.on_credits(aeth);
            if cumulative <= una {
                self.window.note_response();
                if has_more_credits {
                    self.wake(verbs, core);
                }
                return RxOutcome::Duplicate;
            }
            self.acknowledge(verbs, core, cumulative);
            return RxOutcome::Accepted;
        }
        self.on_nak(verbs, core, cumulative, aeth.syndrome, sack)
    }

    #[inline(never)]
    fn on_nak(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        expected: Seq,
        syndrome: Syndrome,
        sack: Option<Psn>,
    ) -> RxOutcome {
        let sack = sack.map(|psn| psn.extend(self.window.una));
        let is_stale = expected < self.window.una;
        let advanced = expected > self.window.una;
        let mut is_new = false;
        self.window.note_response();
        if !is_stale {
            if matches!(syndrome, Syndrome::Nak(code) if code != NakCode::PsnSequenceError) {
                let bits = &mut core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
                self.window.discard_selective(bits);
            }
            self.acknowledge(verbs, core, expected);
        }
        if let Some(seq) = sack {
            is_new = self.window.acknowledge_selectively(seq, &verbs.head.transport);
            self.on_out_of_order(verbs, core, seq);
        }
        // Processing the acknowledgement may have failed the queue pair, or stopped before a missing response.
        if is_stale || !verbs.head.transmits() || self.window.una != expected {
            let bits = core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
            self.window.report_arrived(sack.filter(|_| is_new), core.now, &verbs.head.transport, &bits);
            self.shared.follow_program(&verbs.head, core, &mut self.window);
            if self.shared.window().is_some() || self.window.remaining_limit().is_some() {
                // Packets that are reported as received nevertheless free space in a congestion window.
                self.wake(verbs, core);
            }
            return RxOutcome::Duplicate;
        }
        match syndrome {
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                let event = RecoveryEvent::Nacked { sack, losses: None, is_new, advanced };
                self.on_nack(verbs, core, &event);
            }
            Syndrome::RnrNak { timer } => self.pause_for_receiver(verbs, core, RnrTimer::from_code(timer)),
            Syndrome::Nak(code) => self.on_fatal_nak(verbs, core, code),
            Syndrome::Ack { .. } => {}
        }
        RxOutcome::Accepted
    }

    /// Handles the report that packet `seq` has arrived out of order: it may yield a round-trip time sample.
    pub(super) fn on_out_of_order(&mut self, verbs: &mut Verbs, core: &mut Core, seq: Seq) {
        if !self.shared.has_flow() && !verbs.head.transport.measured {
            return;
        }
        let rtt = self.window.take_selective_rtt(seq, core.now);
        if let Some(rtt) = rtt {
            self.window.add_rtt(core.now, rtt, core.absence);
        }
        if self.shared.has_flow() {
            self.shared.on_out_of_order(&verbs.head, core, self.window.in_flight(), rtt);
        }
    }

    /// Handles the receiver's report of a gap at `una`.
    pub(super) fn on_nack(&mut self, verbs: &mut Verbs, core: &mut Core, event: &RecoveryEvent) {
        if self.window.is_empty() {
            return;
        }
        verbs.stats.nacks += 1;
        core.stats.nacks += 1;
        let actions = self.recover(verbs, core, event);
        self.shared.arm(&verbs.head, core, self.window.next_deadline());
        self.shared.on_event(
            &verbs.head,
            core,
            self.window.in_flight(),
            &ControlEvent::Nacked { lost: actions.retransmit.is_some() },
        );
        self.wake_to_retransmit(verbs, core);
    }

    /// Releases the bits of acknowledged packets in the shared pool.
    #[cold]
    fn release_pool(&mut self, verbs: &Verbs, core: &mut Core) {
        let una = self.window.una;
        core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut).acknowledged(una);
    }

    /// Passes `event` to the loss recovery of requests.
    #[inline(never)]
    fn recover(&mut self, verbs: &Verbs, core: &mut Core, event: &RecoveryEvent) -> RecoveryActions {
        let transport = &verbs.head.transport;
        let bits = core.pools.bits(transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
        let actions = self.window.recover(event, core.now, transport, &bits);
        self.shared.follow_program(&verbs.head, core, &mut self.window);
        actions
    }

    /// Infers the loss of a response in a shared space, which no packet reports (IBA 9.7.5.2.4, implied NAK). Each
    /// packet is taken as lost once; if it is lost again the timer detects it.
    fn infer_loss(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let una = self.window.una;
        if self.inferred_loss_at != una {
            self.inferred_loss_at = una;
            let event = RecoveryEvent::Nacked { sack: None, losses: None, is_new: false, advanced: true };
            self.on_nack(verbs, core, &event);
        }
    }

    /// Moves the cumulative acknowledgement of requests to `cumulative`, or, in a shared space, up to the first
    /// response that has not arrived.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, verbs: &mut Verbs, core: &mut Core, cumulative: Seq) {
        let acknowledged_end = if verbs.head.transport.split || verbs.send.fetches == 0 {
            cumulative
        } else {
            cumulative.min(self.first_missing(&verbs.send))
        };
        self.advance(verbs, core, acknowledged_end);
        if acknowledged_end < cumulative && verbs.head.state.sends() {
            self.infer_loss(verbs, core);
        }
    }

    /// Returns the sequence number of the oldest missing response, in a shared space.
    fn first_missing(&self, send: &SendHalf) -> Seq {
        let mut counter = send.queue.head;
        loop {
            let wqe = send.queue.get(counter);
            if wqe.op.is_fetch() && wqe.end() > self.window.una {
                return wqe.first.max(self.window.una);
            }
            assert!(counter != send.queue.next, "a fetch is in flight");
            counter = counter.wrapping_add(1);
        }
    }

    /// Advances the cumulative acknowledgement of requests to `una`: takes an RTT sample, releases the acknowledged
    /// packets, and completes their requests.
    #[inline(always)]
    pub(crate) fn advance(&mut self, verbs: &mut Verbs, core: &mut Core, una: Seq) {
        let (packets, rtt) = self.window.acknowledge(una, core.now);
        if packets == 0 {
            return;
        }
        core.stats.timeouts_spurious += u64::from(self.window.was_timeout_spurious());
        if let Some(rtt) = rtt {
            self.window.add_rtt(core.now, rtt, core.absence);
        }
        if self.shared.pool.is_held() {
            self.release_pool(verbs, core);
        }
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.acknowledged(self.window.una, core.now);
        }
        self.retries = 0;
        self.rnr_retries = 0;
        self.rnr_deadline = Deadline::NEVER;
        self.reclaim_credit(verbs, core, packets);
        core.settle_acknowledged(verbs.head.peer(), packets);
        if verbs.head.transport.scheduled {
            self.peer_fetches.free_acknowledged(self.window.una);
        }
        if self.window.wants_acknowledgements(&verbs.head.transport) {
            self.recover(verbs, core, &RecoveryEvent::Acked { packets, rtt });
            self.wake_to_retransmit(verbs, core);
        }
        self.shared.arm(&verbs.head, core, self.window.next_deadline());
        if self.shared.has_flow() {
            self.shared.on_acked(&verbs.head, core, self.window.in_flight(), packets, rtt);
        }
        verbs.complete_through(core, self.window.una);
        self.wake(verbs, core);
    }

    fn pause_for_receiver(&mut self, verbs: &mut Verbs, core: &mut Core, timer: RnrTimer) {
        verbs.stats.rnr_naks += 1;
        // During a pause no packet is sent that could be refused: this NAK is a duplicate.
        if self.window.is_empty() || self.rnr_deadline.is_set() {
            return;
        }
        self.rnr_retries += 1;
        self.window.pause_timer();
        if verbs.send.exceeds_rnr_retry(self.rnr_retries) {
            // The response to a read before it may still be in flight: that read has not failed.
            if let Some(counter) = verbs.send.queue.find(self.window.una) {
                verbs.fail_entry(core, self.window.una, counter, WcStatus::RnrRetryExceeded);
            }
            return;
        }
        let bits = core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
        self.window.mark_all(&verbs.head.transport, &bits);
        self.rnr_deadline = Deadline::after(core.now, timer.wait());
        self.shared.arm(&verbs.head, core, self.rnr_deadline);
        self.grant_credit(verbs, core);
    }

    /// Handles a fatal NAK: the peer has refused the packet at `una`.
    fn on_fatal_nak(&mut self, verbs: &mut Verbs, core: &mut Core, code: NakCode) {
        if let Some(counter) = verbs.send.queue.find(self.window.una) {
            verbs.fail_entry(core, self.window.una, counter, WcStatus::refused(code));
        } else if verbs.head.transport.scheduled {
            // The refused packet is a response that the peer cannot accept, or the report that its memory is no longer
            // valid.
            verbs.fail_as_responder(core, code);
        }
    }

    /// Handles the peer's report that packets of this sender met congestion.
    pub(in crate::roce) fn on_cnp(&mut self, verbs: &Verbs, core: &mut Core) {
        self.shared.on_cnp(&verbs.head, core, self.window.in_flight());
        if verbs.head.transport.profile.recovery.policy.program.is_some() {
            self.recover(verbs, core, &RecoveryEvent::Congested);
            self.shared.arm(&verbs.head, core, self.window.next_deadline());
        }
    }
}

/// Handles the report of a receiver that expects packet `psn` that packet `trimmed` arrived without its payload.
#[cold]
pub(in crate::roce) fn on_trim_nack(
    requester: &mut Requester,
    verbs: &mut Verbs,
    core: &mut Core,
    psn: Psn,
    trimmed: Psn,
) -> RxOutcome {
    let cumulative = psn.extend(requester.window.una);
    if cumulative > requester.window.next {
        return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
    }
    requester.window.note_response();
    if cumulative > requester.window.una {
        requester.acknowledge(verbs, core, cumulative);
    }
    let seq = trimmed.extend(requester.window.una);
    // Processing the acknowledgement may have failed the queue pair.
    if !verbs.head.transmits() || !requester.window.is_missing(seq) {
        return RxOutcome::Duplicate;
    }
    verbs.stats.nacks += 1;
    core.stats.nacks += 1;
    let actions = requester.recover(verbs, core, &RecoveryEvent::Trimmed { seq });
    requester.shared.arm(&verbs.head, core, requester.window.deadline);
    let event = ControlEvent::Nacked { lost: actions.retransmit.is_some() };
    requester.shared.on_event(&verbs.head, core, requester.window.in_flight(), &event);
    requester.wake_to_retransmit(verbs, core);
    RxOutcome::Accepted
}
