//! Responses in a separate sequence space: IRN's rPSN.
//!
//! Requests wait in the *Read WQE buffer*, in the slot that their `read_WQE_SN` selects, until everything before them
//! has arrived (IRN mechanism I-16). Then their responses get sequence numbers and are handled like any other data:
//! limited by a window and a cap, acknowledged packet by packet, and recovered by the responder's timer (IRN mechanism
//! I-11). A slot is free again when its responses are acknowledged.

use rnic_base::{Duration, Psn, Seq};
use rnic_policy::{ControlEvent, RecoveryEvent};
use rnic_wire::{Aeth, NakCode, Syndrome};

use super::buffer::ReadBuffer;
use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::ready::Half;
use crate::roce::shared::{ConnShared, timeout_conditions};
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::transport::Transport;
use crate::verbs::Verbs;
use crate::window::{Bits, SendWindow, TimeoutVerdict};

/// The Read WQE buffer and the sending side of the response space.
#[derive(Debug)]
pub(crate) struct SplitSpaceServer {
    buffer: ReadBuffer,
    window: SendWindow,
    /// First response number of the next fetch.
    next: Seq,
    /// Number of consecutive timeouts.
    retries: u32,
    /// Number of packets in flight whose credit at the peer is granted to other QPs, because they have not been
    /// acknowledged for a long time.
    granted: u64,
}

impl SplitSpaceServer {
    pub(in crate::roce) fn new(limit: u32, start: Seq, transport: &Transport) -> Self {
        Self {
            buffer: ReadBuffer::new(limit),
            window: SendWindow::new(start, transport),
            next: start,
            retries: 0,
            granted: 0,
        }
    }

    pub(in crate::roce) fn has_work(&self) -> bool {
        self.window.next < self.next || self.window.first_to_retransmit().is_some()
    }

    pub(in crate::roce) fn is_busy(&self) -> bool {
        self.window.una < self.next
    }

    pub(in crate::roce) fn begin(&mut self) {
        let fetch = self.buffer.begin();
        fetch.first = self.next;
        self.next = fetch.end();
    }
}

impl SplitSpaceServer {
    /// Returns the Read WQE buffer.
    pub(in crate::roce) fn buffer(&mut self) -> &mut ReadBuffer {
        &mut self.buffer
    }

    /// Returns the number of the next response that has never been sent.
    pub(in crate::roce) fn next(&self) -> Seq {
        self.window.next
    }

    /// Returns the number of responses in flight.
    pub(in crate::roce) fn in_flight(&self) -> u64 {
        self.window.in_flight()
    }

    /// Returns the number of timeouts of responses that acknowledgements have shown to be spurious.
    pub(in crate::roce) fn spurious_timeouts(&self) -> u32 {
        self.window.spurious_timeouts()
    }

    /// Returns the deadline of the response timer.
    pub(in crate::roce) fn next_timeout(&self) -> Deadline {
        self.window.next_deadline()
    }

    /// Returns whether a response is to be retransmitted.
    pub(in crate::roce) fn has_retransmission(&self) -> bool {
        self.window.first_to_retransmit().is_some()
    }

    /// Releases the credit at the peer that responses hold.
    pub(in crate::roce) fn stop(&self, verbs: &Verbs, core: &mut Core) {
        core.settle(verbs.head.peer(), self.window.in_flight() - self.granted);
    }

    /// Handles an acknowledgement of responses. `in_flight` is the number of requests in flight.
    #[inline(always)]
    pub(in crate::roce) fn on_ack(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (psn, aeth, sack): (Psn, Aeth, Option<Psn>),
    ) -> RxOutcome {
        let una = self.window.una;
        let is_ack = matches!(aeth.syndrome, Syndrome::Ack { .. });
        let seq = psn.extend(una);
        let cumulative = if is_ack { seq + 1 } else { seq };
        if cumulative > self.window.next {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        }
        let stale = cumulative < una || (is_ack && cumulative == una);
        self.window.note_response();
        if !stale {
            self.acknowledge(shared, verbs, core, in_flight, cumulative);
        }
        if let Syndrome::Nak(code) = aeth.syndrome
            && code != NakCode::PsnSequenceError
            && !stale
        {
            // The peer has refused response data with a fatal NAK: its request has failed, so this queue pair fails
            // too.
            verbs.fail_as_responder(core, code);
            return RxOutcome::Accepted;
        }
        if !is_ack {
            self.on_nack(shared, verbs, core, in_flight, (sack, stale, cumulative > una));
        }
        if stale { RxOutcome::Duplicate } else { RxOutcome::Accepted }
    }

    #[inline(never)]
    fn on_nack(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (sack, stale, advanced): (Option<Psn>, bool, bool),
    ) {
        let transport = &verbs.head.transport;
        let sack = sack.map(|psn| psn.extend(self.window.una));
        let mut is_new = false;
        if let Some(seq) = sack {
            is_new = self.window.acknowledge_selectively(seq, transport);
            if shared.has_flow() || transport.measured {
                let rtt = self.window.take_selective_rtt(seq, core.now);
                if let Some(rtt) = rtt {
                    self.window.add_rtt(core.now, rtt, core.absence);
                }
                shared.on_out_of_order(&verbs.head, core, in_flight, rtt);
            }
        }
        if stale {
            let bits = Bits::in_rings(&mut shared.pool);
            self.window.report_arrived(sack.filter(|_| is_new), core.now, transport, &bits);
            core.stats.programs_replaced += self.window.take_replaced();
        } else {
            let event = RecoveryEvent::Nacked { sack, losses: None, is_new, advanced };
            self.recover(shared, verbs, core, in_flight, &event);
        }
    }

    /// Handles the report of a requester that expects response `psn` that response `trimmed` arrived without its
    /// payload.
    #[cold]
    pub(in crate::roce) fn on_trim_nack(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (psn, trimmed): (Psn, Psn),
    ) -> RxOutcome {
        let cumulative = psn.extend(self.window.una);
        if cumulative > self.window.next {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        }
        self.window.note_response();
        if cumulative > self.window.una {
            self.acknowledge(shared, verbs, core, in_flight, cumulative);
        }
        let seq = trimmed.extend(self.window.una);
        if !self.window.is_missing(seq) {
            return RxOutcome::Duplicate;
        }
        self.report_loss(shared, verbs, core, in_flight, &RecoveryEvent::Trimmed { seq });
        RxOutcome::Accepted
    }

    /// Handles the receiver's report of a gap at `una`.
    fn recover(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        event: &RecoveryEvent,
    ) {
        if self.window.is_empty() {
            return;
        }
        self.report_loss(shared, verbs, core, in_flight, event);
    }

    /// Passes the receiver's report of a loss to the policies.
    fn report_loss(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        event: &RecoveryEvent,
    ) {
        let Verbs { head, stats, .. } = verbs;
        stats.nacks += 1;
        core.stats.nacks += 1;
        let bits = Bits::in_rings(&mut shared.pool);
        let actions = self.window.recover(event, core.now, &head.transport, &bits);
        core.stats.programs_replaced += self.window.take_replaced();
        shared.arm(head, core, self.window.next_deadline());
        shared.on_event(head, core, in_flight, &ControlEvent::Nacked { lost: actions.retransmit.is_some() });
    }

    /// Handles an acknowledgement of the responses up to `una`.
    fn acknowledge(&mut self, shared: &mut ConnShared, verbs: &mut Verbs, core: &mut Core, in_flight: u64, una: Seq) {
        let (packets, rtt) = self.window.acknowledge(una, core.now);
        if packets == 0 {
            return;
        }
        core.stats.timeouts_spurious += u64::from(self.window.was_timeout_spurious());
        let head = &verbs.head;
        shared.note_served(self.window.in_flight());
        if let Some(rtt) = rtt {
            self.window.add_rtt(core.now, rtt, core.absence);
        }
        self.retries = 0;
        if self.granted > 0 {
            core.peers.sent(head.peer(), std::mem::take(&mut self.granted));
        }
        self.buffer.free_acknowledged(self.window.una);
        if self.window.wants_acknowledgements(&head.transport) {
            let bits = Bits::in_rings(&mut shared.pool);
            self.window.recover(&RecoveryEvent::Acked { packets, rtt }, core.now, &head.transport, &bits);
            core.stats.programs_replaced += self.window.take_replaced();
        }
        shared.arm(head, core, self.window.next_deadline());
        core.settle_acknowledged(head.peer(), packets);
        if shared.has_flow() {
            shared.on_acked(head, core, in_flight, packets, rtt);
        }
    }

    /// Handles the acknowledgement of responses up to `una` that the peer's next request implies.
    pub(in crate::roce) fn advance(&mut self, shared: &mut ConnShared, verbs: &Verbs, core: &mut Core, una: Seq) {
        if una > self.window.una {
            let packets = self.window.acknowledge_untimed(una, &verbs.head.transport);
            shared.note_served(self.window.in_flight());
            core.peers.sent(verbs.head.peer(), std::mem::take(&mut self.granted));
            core.settle(verbs.head.peer(), packets);
        }
        self.buffer.free_acknowledged(self.window.una);
    }

    /// Builds the next response, if one may be sent now; returns whether it did. `in_flight` is the number of requests
    /// in flight.
    pub(in crate::roce) fn transmit(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
    ) -> bool {
        let head = &verbs.head;
        let mut retransmit_seq = self.window.first_to_retransmit();
        if retransmit_seq.is_some()
            && head.transport.retransmit_fetch != Duration::ZERO
            && let Some(at) = retransmit_seq.and_then(|seq| self.window.fetched_at(seq, core.now))
        {
            shared.arm(head, core, Deadline::at(at));
            retransmit_seq = None;
        }
        if retransmit_seq.is_some_and(|seq| shared.blocks_retransmission(&self.window, seq)) {
            core.count_wait(WaitReason::Window);
            return false;
        }
        let seq = retransmit_seq.unwrap_or(self.window.next);
        if retransmit_seq.is_none() {
            if self.window.next == self.next {
                return false;
            }
            if let Some(reason) = self.blocked_on(shared, verbs, core) {
                core.count_wait(reason);
                if reason == WaitReason::PeerWindow {
                    shared.responses_queued = true;
                    core.peers.wait(head.peer(), Half::Responder, head.slot);
                }
                return false;
            }
        }
        let fetch = self.buffer.find(seq).expect("an unacknowledged response belongs to a fetch");
        let index = seq.since(fetch.first) as u32;
        fetch.respond_or_refuse(shared, verbs, core, in_flight, (index, retransmit_seq.is_some()));
        let head = &verbs.head;
        if retransmit_seq.is_some() {
            self.window.mark_retransmitted(seq, seq + 1, true, core.now, &head.transport);
        } else {
            self.window.sent(1, true, core.now, &head.transport);
            shared.note_served(self.window.in_flight());
            core.peers.sent(head.peer(), 1);
            shared.arm(head, core, self.window.next_deadline());
        }
        true
    }

    /// Returns the reason that blocks a new response, if any.
    #[inline]
    fn blocked_on(&self, shared: &ConnShared, verbs: &Verbs, core: &Core) -> Option<WaitReason> {
        let transport = &verbs.head.transport;
        if self.window.in_flight() >= transport.in_flight_max {
            return Some(WaitReason::Cap);
        }
        let is_closed = shared.window().is_some_and(|window| self.window.pipe() >= window.whole_packets());
        if is_closed || self.window.remaining_limit() == Some(0) {
            return Some(WaitReason::Window);
        }
        (core.peers.available(verbs.head.peer()) == 0).then_some(WaitReason::PeerWindow)
    }

    /// Handles the response timer if it is due; returns whether responses may now have to be sent. `in_flight` is the
    /// number of requests in flight.
    ///
    /// A timeout means that responses are not acknowledged. Their requester may have received them and destroyed its
    /// queue pair, or it may be unreachable: detecting that is the requester's task, as in RoCE, whose responders
    /// have no timers, and the program at this end is not at fault. The responses are retransmitted at growing
    /// intervals, and other QPs use their credit at the peer meanwhile.
    pub(in crate::roce) fn on_timeout(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
    ) -> bool {
        self.window.tick(core.now, &verbs.head.transport, &Bits::in_rings(&mut shared.pool));
        let bits = Bits::in_rings(&mut shared.pool);
        let mut timeout_conditions = timeout_conditions(verbs, core, true);
        timeout_conditions.silence_max = Duration::MAX;
        let verdict = self.window.check_timeout(core.now, &verbs.head.transport, &bits, &timeout_conditions);
        core.stats.programs_replaced += self.window.take_replaced();
        match verdict {
            TimeoutVerdict::NotDue | TimeoutVerdict::Extended | TimeoutVerdict::PeerUnresponsive => return false,
            TimeoutVerdict::Probe => {
                core.stats.probes += 1;
                shared.grant_for_probe();
                return true;
            }
            TimeoutVerdict::Acted => self.retries += 1,
        }
        let excess_retries = self.retries.saturating_sub(verbs.send.retry_count());
        if excess_retries > 0 {
            // The NAK of a refused request is delayed until the responses before it are acknowledged. The wait ends
            // here, after more timeouts than the retry count permits: the queue pair fails, and a failed one sends the
            // NAK without waiting.
            if let Some(code) = verbs.recv.refused {
                verbs.fail_as_responder(core, code);
                return false;
            }
            // Timeouts computed from measured round-trip times already include a backoff.
            if !verbs.head.transport.measured {
                self.window.back_off(core.now, excess_retries);
            }
            core.settle(verbs.head.peer(), self.window.in_flight() - self.granted);
            self.granted = self.window.in_flight();
        }
        shared.grant_for_timeout(&verbs.head, self.window.marked());
        shared.count_timeout(verbs, core, in_flight);
        true
    }
}
