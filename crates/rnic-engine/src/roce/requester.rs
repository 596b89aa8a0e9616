//! The requester: from send queue entries to request packets.
//!
//! One call builds one packet. Retransmissions are sent first, lowest number first; a new packet is sent when every
//! condition of the gate is met: queue pair state, fence, read limit, cap, congestion window, rate, credit at the
//! peer. When one is not met, the wait is counted under that reason.
//!
//! ```text
//!   requester/build.rs    one request packet
//!   requester/acks.rs     acknowledgements of requests, and the completions that follow
//!   requester/losses.rs   acknowledgements that report on losses (FaSR)
//!   requester/responses.rs  responses to our Reads, when they are not sent as request packets of the responder
//!   requester/timers.rs   RNR pause, timeout, watch timer for a responder that owes data
//!   requester/scheduled_responses.rs  responses to our Reads, sent as request packets of the responder (FaSR)
//!   requester/peer_fetches.rs  responses to the peer's Reads, sent as packets of this requester (FaSR)
//! ```

pub(super) mod acks;
mod build;
mod losses;
pub(crate) mod peer_fetches;
pub(super) mod responses;
mod scheduled_responses;
mod timers;

use rnic_base::{Duration, Psn, Seq};

use super::shared::ConnShared;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::ready::Half;
use crate::state::QpState;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::transport::Transport;
use crate::verbs::Verbs;
use crate::verbs::send::SendHalf;
use crate::window::SendWindow;
use crate::wq::WqeOp;

pub(crate) use build::write_headers;
use peer_fetches::PeerFetches;
use responses::ResponseWindow;

/// The sending half of a connection: the window of its requests, and the responses expected.
#[derive(Debug)]
pub(crate) struct Requester {
    /// State that the responder uses too; responder functions take the requester as an argument.
    pub(super) shared: ConnShared,
    pub(super) window: SendWindow,
    /// State of the responses to local Reads, for transports in which responses do not use the requests' sequence
    /// numbers; allocated with the first Read.
    pub(super) responses: Option<Box<ResponseWindow>>,
    /// The peer's reads and atomics, where the responses are packets of this requester (FaSR).
    pub(super) peer_fetches: PeerFetches,
    /// End of the pause that a receiver that was not ready has requested.
    rnr_deadline: Deadline,
    /// Packet whose loss was last inferred from a response, so that each loss is inferred once.
    inferred_loss_at: Seq,
    /// Number of packets sent since an acknowledgement was last requested.
    since_ack_request: u32,
    /// Number of consecutive timeouts.
    retries: u32,
    /// Number of consecutive receiver-not-ready NAKs.
    rnr_retries: u32,
    /// True while other QPs may use the credit of the packets in flight: during a pause, because the receiver has
    /// dropped them, or while responses are not acknowledged.
    has_granted_credit: bool,
    /// Set while Read responses wait to be sent through the window, which they share with requests (FaSR).
    serves_responses: bool,
}

impl Requester {
    pub(crate) fn new(transport: &Transport) -> Self {
        Self {
            shared: ConnShared::new(),
            window: SendWindow::new(Seq::UNSET, transport),
            responses: None,
            peer_fetches: PeerFetches::default(),
            rnr_deadline: Deadline::NEVER,
            inferred_loss_at: Seq::UNSET,
            since_ack_request: 0,
            retries: 0,
            rnr_retries: 0,
            has_granted_credit: false,
            serves_responses: false,
        }
    }

    /// Sets the sequence number of the first request to `start`.
    pub(crate) fn start_at(&mut self, send: &mut SendHalf, start: Seq, transport: &Transport) {
        send.start = start;
        self.window = SendWindow::new(start, transport);
        self.serves_responses = false;
    }

    /// Sets the first sequence number of a queue pair that was not configured with one, from the number that the peer
    /// expects.
    pub(super) fn set_start_from_peer(&mut self, verbs: &mut Verbs, expected_psn: Psn) {
        let Verbs { head, send, .. } = verbs;
        if head.state == QpState::ReadyToReceive && send.start == Seq::UNSET {
            self.start_at(send, Seq::start(expected_psn), &head.transport);
        }
    }

    /// Returns the first packet that is not acknowledged.
    #[inline]
    pub(crate) fn una(&self) -> Seq {
        self.window.una
    }

    /// Returns the number of the next packet that has never been sent.
    pub(crate) fn next(&self) -> Seq {
        self.window.next
    }

    /// Returns the number of packets in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.window.in_flight()
    }

    /// Returns whether there are packets to send, regardless of whether they may be sent now.
    #[inline]
    pub(crate) fn has_work(&self, send: &SendHalf) -> bool {
        send.queue.has_unsent() || self.window.first_to_retransmit().is_some() || self.serves_responses
    }

    /// Releases the NIC resources that the requester holds: credit at the peer, and its entry among the active flows.
    pub(super) fn stop(&mut self, verbs: &mut Verbs, core: &mut Core) {
        self.shared.leave_ledger(core);
        self.reclaim_credit(verbs, core, 0);
        core.settle(verbs.head.peer(), self.window.in_flight());
        self.rnr_deadline = Deadline::NEVER;
    }

    /// Puts the requester into the ring of senders that are ready, if it has packets to send.
    #[inline(always)]
    pub(crate) fn wake(&mut self, verbs: &mut Verbs, core: &mut Core) {
        if !self.shared.requests_queued && self.has_work(&verbs.send) {
            self.shared.enlist_requester(&verbs.head, core);
        }
    }

    /// Does the same as [`Requester::wake`], when packets may have to be retransmitted: a retransmission needs no new
    /// credit at the peer, and so does not wait for any.
    #[cold]
    pub(crate) fn wake_to_retransmit(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let queued = self.shared.requests_queued && self.window.first_to_retransmit().is_some();
        if queued && core.peers.stop_waiting(verbs.head.peer(), Half::Requester, verbs.head.slot) {
            core.ready.requeue(Half::Requester, verbs.head.slot);
        }
        self.wake(verbs, core);
    }

    /// Grants the credit of the packets in flight to other QPs, because a receiver that is not ready has dropped
    /// them. They use the space until the pause is over: one of them may carry the message that the receiver is
    /// waiting for.
    #[cold]
    fn grant_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        self.has_granted_credit = true;
        core.settle(verbs.head.peer(), self.window.in_flight());
    }

    /// Reclaims granted credit at the end of the pause, even if other QPs use the space by now: the packets still in
    /// flight count again, and so do `acknowledged` packets that have just been acknowledged.
    #[inline(always)]
    fn reclaim_credit(&mut self, verbs: &Verbs, core: &mut Core, acknowledged: u64) {
        if self.has_granted_credit {
            self.has_granted_credit = false;
            let granted = self.peer_fetches.reclaim_granted().unwrap_or(self.window.in_flight() + acknowledged);
            core.peers.sent(verbs.head.peer(), granted);
        }
    }

    /// Ends a transmission after a packet was sent: continues the scheduling turn, or moves the requester to the end of
    /// the ring.
    #[inline(always)]
    fn end_of_turn(&mut self, verbs: &mut Verbs, core: &mut Core) {
        if self.shared.has_flow() {
            let ends_message = verbs.send.queue.packets_sent_of_next == 0;
            self.shared.on_request_served(&verbs.head, core, ends_message, self.has_work(&verbs.send));
        }
        if self.shared.continues_turn(self.has_work(&verbs.send)) {
            self.shared.requests_queued = true;
            core.ready.push_front(Half::Requester, verbs.head.slot);
        } else {
            self.wake(verbs, core);
        }
    }

    /// Builds the next request packet, in `core.out`, if one may be sent now. The queue pair has already been removed
    /// from the ring.
    #[inline]
    pub(super) fn transmit(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        self.shared.requests_queued = false;
        if !verbs.head.transmits() {
            return false;
        }
        if self.rnr_deadline.is_set() {
            core.count_wait(WaitReason::ReceiverNotReady);
            return false;
        }
        let retransmit_seq = match self.window.first_to_retransmit() {
            Some(seq) if self.is_being_fetched(verbs, core, seq) => None,
            retransmit_seq => retransmit_seq,
        };
        if retransmit_seq.is_none() {
            if verbs.send.local_is_next() && !self.do_local_work(verbs, core) {
                return false;
            }
            if !verbs.send.queue.has_unsent() && !self.serves_responses {
                return false;
            }
        }
        if self.shared.has_flow()
            && (self.shared.waits_for_dequeue_rate(&verbs.head, core, Half::Requester)
                || self.shared.waits_for_pacing(&verbs.head, core, self.window.in_flight()))
        {
            if core.times.is_some() && retransmit_seq.is_none() {
                note_admission(self, verbs, core);
            }
            return false;
        }
        let is_built = match retransmit_seq {
            Some(seq) => self.retransmit(verbs, core, seq),
            None if self.shared.is_draining() && self.waits_for_drain(verbs, core) => false,
            None if self.serves_responses => self.transmit_serving(verbs, core),
            None => self.transmit_new(verbs, core),
        };
        if is_built {
            self.end_of_turn(verbs, core);
        }
        is_built
    }

    /// Returns whether a new packet waits, as if the window were closed, because the path policy holds new packets
    /// until those in flight are acknowledged. If the last one has not requested an acknowledgement, one more packet is
    /// sent, which does; otherwise the peer would acknowledge it only after a timeout.
    #[cold]
    fn waits_for_drain(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        if self.window.in_flight() == 0 {
            self.shared.end_drain(&mut verbs.head, core);
            return false;
        }
        let is_asked = verbs.head.transport.acks_every_packet || self.since_ack_request == 0;
        if is_asked {
            core.count_wait(WaitReason::Window);
        }
        is_asked
    }

    /// Returns whether packet `seq`, which is to be retransmitted, is still being fetched from memory (IRN mechanism
    /// I-26). New packets do not wait for it.
    #[cold]
    fn is_being_fetched(&mut self, verbs: &mut Verbs, core: &mut Core, seq: Seq) -> bool {
        if verbs.head.transport.retransmit_fetch == Duration::ZERO {
            return false;
        }
        let Some(at) = self.window.fetched_at(seq, core.now) else { return false };
        self.shared.arm(&verbs.head, core, Deadline::at(at));
        true
    }

    #[cold]
    fn retransmit(&mut self, verbs: &mut Verbs, core: &mut Core, seq: Seq) -> bool {
        if self.shared.blocks_retransmission(&self.window, seq) {
            core.count_wait(WaitReason::Window);
            return false;
        }
        let send = &verbs.send;
        let Some(counter) = send.queue.find(seq) else { return self.retransmit_response(verbs, core, seq) };
        let wqe = send.queue.get(counter);
        let index = seq.since(wqe.first) as u32;
        let sent = if counter == send.queue.next { send.queue.packets_sent_of_next } else { wqe.packets };
        let numbers = if wqe.op == WqeOp::Read && !verbs.head.transport.split { sent - index } else { 1 };
        let end = seq + u64::from(numbers);
        // When the last packet fills the window, no other packet is sent before it is acknowledged, so it requests an
        // acknowledgement.
        let fills_window = self.window.remaining_limit().is_some_and(|capacity| capacity <= u64::from(numbers));
        let request_ack = fills_window || end == self.window.next;
        let is_built = self.build(verbs, core, counter, Piece { index, numbers, request_ack, is_retransmission: true });
        // A request whose memory is no longer valid is not retransmitted; its entry fails instead, and the others
        // continue.
        let requests_ack = is_built && core.out.packet.flags.ack_request;
        self.window.mark_retransmitted(seq, end, requests_ack, core.now, &verbs.head.transport);
        if verbs.head.transport.times_last_sent {
            self.window.restart_timer(core.now);
        }
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.forget();
        }
        if !is_built && verbs.head.state.sends() {
            self.wake(verbs, core);
        }
        is_built
    }

    #[inline]
    fn transmit_new(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let (numbers, capacity) = match self.packets_allowed(verbs, core) {
            Ok(allowed) => allowed,
            Err(reason) => {
                if let Some(reason) = reason {
                    self.register_wait(verbs, core, reason);
                }
                return false;
            }
        };
        let counter = verbs.send.queue.next;
        if verbs.send.queue.packets_sent_of_next == 0 {
            self.start_entry(verbs, core, counter);
        }
        let index = verbs.send.queue.packets_sent_of_next;
        let exceeds_credits = verbs.head.transport.credits && self.shared.count_message(&verbs.send);
        let request_ack = exceeds_credits || capacity == u64::from(numbers);
        if !self.build(verbs, core, counter, Piece { index, numbers, request_ack, is_retransmission: false }) {
            return false;
        }
        let transport = &verbs.head.transport;
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.sent(self.window.next, core.now);
        }
        self.window.sent(u64::from(numbers), core.out.packet.flags.ack_request, core.now, transport);
        self.shared.arm(&verbs.head, core, self.window.deadline);
        core.peers.sent(verbs.head.peer(), u64::from(numbers));
        verbs.send.advance(numbers);
        true
    }

    #[cold]
    fn register_wait(&mut self, verbs: &mut Verbs, core: &mut Core, reason: WaitReason) {
        core.count_wait(reason);
        if core.times.is_some() && matches!(reason, WaitReason::Window | WaitReason::Cap | WaitReason::Tokens) {
            note_admission(self, verbs, core);
        }
        if reason == WaitReason::PeerWindow {
            self.shared.requests_queued = true;
            core.peers.wait(verbs.head.peer(), Half::Requester, verbs.head.slot);
        } else if reason == WaitReason::ReadLimit && verbs.send.fetches_max == 0 {
            // With a limit of zero outstanding reads, the entry could never be sent.
            verbs.fail_entry(core, self.window.una, verbs.send.queue.next, WcStatus::LocalQpOperation);
        }
    }

    /// Returns the number of sequence numbers that the next new packet may take, and the number for which there is
    /// space; both are at least one. The error is the reason why it may take none, or `None` when there is no new
    /// packet to send.
    #[inline]
    fn packets_allowed(&self, verbs: &Verbs, core: &Core) -> Result<(u32, u64), Option<WaitReason>> {
        let Verbs { head, send, .. } = verbs;
        let starts_message = send.queue.packets_sent_of_next == 0;
        if send.known_failure.is_some() {
            return Err(None);
        }
        if starts_message {
            send.may_begin(head, self.window.una)?;
        }
        if head.transport.credits && !self.shared.has_credit(send, &self.window) {
            return Err(Some(WaitReason::Credits));
        }
        let wqe = send.queue.get(send.queue.next);
        let (capacity, reason) = self.gate(verbs, core);
        if !wqe.op.is_fetch() {
            return if capacity > 0 { Ok((1, capacity)) } else { Err(Some(reason)) };
        }
        if capacity == 0 {
            return Err(Some(reason));
        }
        // A shared-space read takes a sequence number for every response. When the window is smaller than the response,
        // the data is requested in pieces, the next one when the previous one has arrived: the responder has no window
        // of its own to limit responses with.
        if !starts_message && !self.window.is_empty() {
            return Err(Some(WaitReason::ReadLimit));
        }
        let packets_left = wqe.packets - send.queue.packets_sent_of_next;
        Ok((u64::from(packets_left).min(capacity) as u32, capacity))
    }

    /// Returns the number of packets that may be sent, and the limit that determines it.
    #[inline]
    fn gate(&self, verbs: &Verbs, core: &Core) -> (u64, WaitReason) {
        let in_flight = self.window.in_flight();
        let mut tightest = (verbs.head.transport.in_flight_max.saturating_sub(in_flight), WaitReason::Cap);
        if let Some(window) = self.shared.window() {
            let capacity = window.whole_packets().saturating_sub(self.window.pipe());
            if capacity < tightest.0 {
                tightest = (capacity, WaitReason::Window);
            }
        }
        if let Some(capacity) = self.window.remaining_limit().filter(|capacity| *capacity < tightest.0) {
            tightest = (capacity, WaitReason::Window);
        }
        let capacity = core.peers.available(verbs.head.peer());
        if capacity < tightest.0 {
            tightest = (capacity, WaitReason::PeerWindow);
        }
        tightest
    }

    /// Assigns the entry its sequence numbers, just before its first packet is built.
    #[inline]
    fn start_entry(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        verbs.send.begin(counter, self.window.next, 1);
        if let Some(times) = &mut core.times {
            times.numbered(verbs.head.slot, counter, self.window.next);
            times.sent(verbs.head.slot, counter, core.now);
        }
        if verbs.head.transport.split && verbs.send.queue.get(counter).op.is_fetch() {
            self.expect_responses(verbs, core, counter);
        }
    }

    /// Executes local work at the head of the queue until the next entry needs a packet; returns false when no
    /// further entry may start, or the next one is for another flow, to which the engine passes it.
    #[cold]
    fn do_local_work(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        while verbs.send.local_is_next() {
            let Verbs { head, send, .. } = verbs;
            if send.known_failure.is_some() {
                return false;
            }
            if send.next_is_on_flow() {
                core.note_flows(head.send_cq, head.slot);
                return false;
            }
            if let Err(reason) = send.may_begin(head, self.window.una) {
                if let Some(reason) = reason {
                    core.count_wait(reason);
                }
                return false;
            }
            let counter = send.queue.next;
            if let Err(status) = send.do_local(head, core, counter) {
                verbs.fail_entry(core, self.window.una, counter, status);
                return false;
            }
            send.begin(counter, self.window.next, 0);
            send.advance(0);
            verbs.complete_through(core, self.window.una);
        }
        verbs.head.transmits()
    }
}

/// Records that only the window or the pacing holds the next entry back, if nothing else does.
#[cold]
fn note_admission(requester: &Requester, verbs: &Verbs, core: &mut Core) {
    let Verbs { head, send, .. } = verbs;
    let is_next = send.queue.has_unsent() && send.queue.packets_sent_of_next == 0;
    let has_credit = || !head.transport.credits || requester.shared.has_credit(send, &requester.window);
    if is_next
        && send.may_begin(head, requester.window.una).is_ok()
        && has_credit()
        && let Some(times) = &mut core.times
    {
        times.admitted(head.slot, send.queue.next, core.now);
    }
}

/// The packet of a send queue entry that is to be built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Index of the packet's first sequence number among the entry's.
    pub(crate) index: u32,
    /// Number of sequence numbers that the packet uses: one, except for Reads in a shared space.
    pub(crate) numbers: u32,
    /// True when the window requires that the packet requests an acknowledgement.
    pub(crate) request_ack: bool,
    /// True for a retransmission.
    pub(crate) is_retransmission: bool,
}
