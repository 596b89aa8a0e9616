//! The requester: from send queue entries to request packets.
//!
//! One call builds one packet. Retransmissions are sent first, lowest number first; a new packet is sent when every
//! part of the gate is open: queue pair state, fence, read limit, cap, congestion window, rate, credit at the peer.
//! When one is closed, the wait is counted under its reason.
//!
//! ```text
//!   requester/build.rs    one request packet
//!   requester/acks.rs     acknowledgements of requests, and what they finish
//!   requester/losses.rs   acknowledgements that report on losses (FaSR)
//!   requester/responses.rs  responses to our Reads, where they are not packets of the responder's requests
//!   requester/timers.rs   pause, timeout, watch over a responder that owes data
//!   requester/answered.rs answers to our Reads that are packets of the responder's requests (FaSR)
//!   requester/answers.rs  the peer's Reads, answered by packets of this requester (FaSR)
//! ```

mod acks;
mod answered;
pub(crate) mod answers;
mod build;
mod losses;
pub(super) mod responses;
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

use answers::Answers;
pub(crate) use build::write_headers;
use responses::ResponseWindow;

/// The sending half of a connection: the window of its requests, and the responses expected.
#[derive(Debug)]
pub(crate) struct Requester {
    /// State that the responder uses too; responder functions take the requester as an argument.
    pub(super) shared: ConnShared,
    window: SendWindow,
    /// State of the responses to local reads, where they do not have the requests' numbers; allocated with the first
    /// read.
    pub(super) responses: Option<Box<ResponseWindow>>,
    /// The peer's reads and atomics, where the responses are packets of this requester (FaSR).
    pub(super) answers: Answers,
    /// End of the pause that a receiver that was not ready has requested.
    pause: Deadline,
    /// Packet whose loss was last inferred from a response, so that each loss is inferred once.
    inferred_loss_at: Seq,
    /// Number of packets sent since an acknowledgement was last requested.
    unasked: u32,
    /// Number of consecutive timeouts.
    retries: u32,
    /// Number of consecutive receiver-not-ready NAKs.
    rnr_retries: u32,
    /// True while other QPs may use the credit of the packets in flight: during a pause, because the receiver has
    /// dropped them, or while answers are not acknowledged.
    has_lent: bool,
}

impl Requester {
    pub(crate) fn new(transport: &Transport) -> Self {
        Self {
            shared: ConnShared::new(),
            window: SendWindow::new(Seq::UNSET, transport),
            responses: None,
            answers: Answers::default(),
            pause: Deadline::NEVER,
            inferred_loss_at: Seq::UNSET,
            unasked: 0,
            retries: 0,
            rnr_retries: 0,
            has_lent: false,
        }
    }

    /// Sets the sequence number of the first request to `start`.
    pub(crate) fn start_at(&mut self, send: &mut SendHalf, start: Seq, transport: &Transport) {
        send.start = start;
        self.window = SendWindow::new(start, transport);
    }

    /// Sets the first sequence number of a queue pair that was not configured with one, from the number that the peer
    /// expects.
    pub(super) fn learn_start(&mut self, verbs: &mut Verbs, expects: Psn) {
        let Verbs { head, send, .. } = verbs;
        if head.state == QpState::ReadyToReceive && send.start == Seq::UNSET {
            self.start_at(send, Seq::start(expects), &head.transport);
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

    /// Returns whether there is something to send, regardless of gates.
    #[inline]
    pub(crate) fn has_work(&self, send: &SendHalf) -> bool {
        send.queue.has_unsent() || self.window.first_to_repeat().is_some() || self.window.serves
    }

    /// Releases the NIC resources that the requester holds: credit at the peer, and its entry among the active flows.
    pub(super) fn stop(&mut self, verbs: &mut Verbs, core: &mut Core) {
        self.shared.deactivate(core);
        self.reclaim_credit(verbs, core, 0);
        core.settle(verbs.head.peer(), self.window.in_flight());
        self.pause = Deadline::NEVER;
    }

    /// Puts the requester into the ring of senders that are ready, if it has something to send.
    #[inline(always)]
    pub(crate) fn wake(&mut self, verbs: &mut Verbs, core: &mut Core) {
        if !self.shared.requests_queued && self.has_work(&verbs.send) {
            self.shared.enlist_requester(&verbs.head, core);
        }
    }

    /// Does the same as [`Requester::wake`], when something may have to be retransmitted: a retransmission takes no new
    /// credit at the peer, and so does not wait for any.
    #[cold]
    pub(crate) fn wake_to_retransmit(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let queued = self.shared.requests_queued && self.window.first_to_repeat().is_some();
        if queued && core.peers.stop_waiting(verbs.head.peer(), Half::Requester, verbs.head.slot) {
            core.ready.requeue(Half::Requester, verbs.head.slot);
        }
        self.wake(verbs, core);
    }

    /// Grants the credit of the packets in flight to other QPs, because a receiver that is not ready has dropped them.
    /// They use the space until the pause is over: one of them may carry what the receiver waits for.
    #[cold]
    fn grant_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        self.has_lent = true;
        core.settle(verbs.head.peer(), self.window.in_flight());
    }

    /// Reclaims granted credit at the end of the pause: what was in flight counts again, even if other QPs use the
    /// space by now. That is what is in flight, and `settled` packets that have just been acknowledged.
    #[inline(always)]
    fn reclaim_credit(&mut self, verbs: &Verbs, core: &mut Core, settled: u64) {
        if self.has_lent {
            self.has_lent = false;
            let lent = self.answers.take_lent().unwrap_or(self.window.in_flight() + settled);
            core.peers.sent(verbs.head.peer(), lent);
        }
    }

    /// Ends a transmission after a packet was sent: continues the scheduling turn, or moves the requester to the end of
    /// the ring.
    #[inline(always)]
    fn end_of_turn(&mut self, verbs: &mut Verbs, core: &mut Core) {
        if self.shared.has_flow() {
            self.shared.on_served(&verbs.head, core, self.has_work(&verbs.send));
        }
        if self.shared.goes_on(self.has_work(&verbs.send)) {
            self.shared.requests_queued = true;
            core.ready.push_front(Half::Requester, verbs.head.slot);
        } else {
            self.wake(verbs, core);
        }
    }

    /// Builds the next request packet, in `core.out`, if one may be sent now. The ring has already removed this queue
    /// pair.
    #[inline]
    pub(super) fn transmit(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        self.shared.requests_queued = false;
        if !verbs.head.transmits() {
            return false;
        }
        if self.pause.is_set() {
            core.count_wait(WaitReason::ReceiverNotReady);
            return false;
        }
        let repeat = match self.window.first_to_repeat() {
            Some(seq) if self.is_being_fetched(verbs, core, seq) => None,
            repeat => repeat,
        };
        if repeat.is_none() {
            if verbs.send.local_is_next() && !self.do_local_work(verbs, core) {
                return false;
            }
            if !verbs.send.queue.has_unsent() && !self.window.serves {
                return false;
            }
        }
        if let Some(at) = self.shared.pacing_allows_at(core.now) {
            self.shared.arm_pacing(&verbs.head, core, at);
            return false;
        }
        let made = match repeat {
            Some(seq) => self.retransmit(verbs, core, seq),
            None if self.window.serves => self.transmit_serving(verbs, core),
            None => self.transmit_new(verbs, core),
        };
        if made {
            self.end_of_turn(verbs, core);
        }
        made
    }

    /// Returns whether packet `seq`, which is to be retransmitted, is still being fetched from memory (I-26). New
    /// packets do not wait for it.
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
        if self.shared.holds_retransmission(&self.window, seq) {
            core.count_wait(WaitReason::Window);
            return false;
        }
        let send = &verbs.send;
        let Some(counter) = send.queue.find(seq) else { return self.retransmit_answer(verbs, core, seq) };
        let wqe = send.queue.get(counter);
        let index = seq.since(wqe.first) as u32;
        let sent = if counter == send.queue.next { send.queue.sent_of_next } else { wqe.packets };
        let takes = if wqe.op == WqeOp::Read && !verbs.head.transport.split { sent - index } else { 1 };
        let end = seq + u64::from(takes);
        // When the last packet fills the window, no other packet is sent before it is acknowledged, so it requests an
        // acknowledgement.
        let fills = self.window.room_on_path().is_some_and(|room| room <= u64::from(takes));
        let asks = fills || end == self.window.next;
        let made = self.build(verbs, core, counter, Piece { index, takes, asks, again: true });
        // A request whose memory is no longer valid is not retransmitted; its entry fails instead, and the others
        // continue.
        let drawn = made && core.out.packet.flags.ack_request;
        self.window.repeated(seq, end, drawn, core.now, &verbs.head.transport);
        if verbs.head.transport.times_last_sent {
            self.window.restart_timer(core.now);
        }
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.forget();
        }
        if !made && verbs.head.state.sends() {
            self.wake(verbs, core);
        }
        made
    }

    #[inline]
    fn transmit_new(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let (takes, room) = match self.packets_allowed(verbs, core) {
            Ok(allowed) => allowed,
            Err(reason) => {
                if let Some(reason) = reason {
                    self.hold_back(verbs, core, reason);
                }
                return false;
            }
        };
        let counter = verbs.send.queue.next;
        if verbs.send.queue.sent_of_next == 0 {
            self.start_entry(verbs, core, counter);
        }
        let index = verbs.send.queue.sent_of_next;
        let is_beyond = verbs.head.transport.credits && self.shared.count_message(&verbs.send);
        let asks = is_beyond || room == u64::from(takes);
        if !self.build(verbs, core, counter, Piece { index, takes, asks, again: false }) {
            return false;
        }
        let transport = &verbs.head.transport;
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.sent(self.window.next, core.now);
        }
        self.window.sent(u64::from(takes), core.out.packet.flags.ack_request, core.now, transport);
        self.shared.arm(&verbs.head, core, self.window.deadline);
        core.peers.sent(verbs.head.peer(), u64::from(takes));
        verbs.send.advance(takes);
        true
    }

    #[cold]
    fn hold_back(&mut self, verbs: &mut Verbs, core: &mut Core, reason: WaitReason) {
        core.count_wait(reason);
        if reason == WaitReason::PeerWindow {
            self.shared.requests_queued = true;
            core.peers.wait(verbs.head.peer(), Half::Requester, verbs.head.slot);
        } else if reason == WaitReason::ReadLimit && verbs.send.fetches_max == 0 {
            // With a limit of zero the entry could never be sent.
            verbs.fail_entry(core, self.window.una, verbs.send.queue.next, WcStatus::LocalQpOperation);
        }
    }

    /// Returns the number of sequence numbers the next new packet may take and the number for which there is space,
    /// both at least one. The error is the reason for none (`None` inside when nothing new is to be sent at all).
    #[inline]
    fn packets_allowed(&self, verbs: &Verbs, core: &Core) -> Result<(u32, u64), Option<WaitReason>> {
        let Verbs { head, send, .. } = verbs;
        let starts = send.queue.sent_of_next == 0;
        if send.known_failure.is_some() {
            return Err(None);
        }
        if starts {
            send.may_begin(head, self.window.una)?;
        }
        if head.transport.credits && !self.shared.has_credit(send, &self.window) {
            return Err(Some(WaitReason::Credits));
        }
        let wqe = send.queue.get(send.queue.next);
        let (room, reason) = self.gate(verbs, core);
        if !wqe.op.is_fetch() {
            return if room > 0 { Ok((1, room)) } else { Err(Some(reason)) };
        }
        if room == 0 {
            return Err(Some(reason));
        }
        // A shared-space read takes a sequence number for every response. When the window is smaller than the response,
        // the data is requested in pieces, the next one when the previous one has arrived: the responder has no window
        // of its own to limit responses with.
        if !starts && !self.window.is_empty() {
            return Err(Some(WaitReason::ReadLimit));
        }
        let left = wqe.packets - send.queue.sent_of_next;
        Ok((u64::from(left).min(room) as u32, room))
    }

    /// Returns the number of packets that may be sent, and the limit that allows no more.
    #[inline]
    fn gate(&self, verbs: &Verbs, core: &Core) -> (u64, WaitReason) {
        let in_flight = self.window.in_flight();
        let mut least = (verbs.head.transport.in_flight_max.saturating_sub(in_flight), WaitReason::Cap);
        if let Some(window) = self.shared.window() {
            let room = window.whole_packets().saturating_sub(self.window.pipe());
            if room < least.0 {
                least = (room, WaitReason::Window);
            }
        }
        if let Some(room) = self.window.room_on_path().filter(|room| *room < least.0) {
            least = (room, WaitReason::Window);
        }
        let room = core.peers.room(verbs.head.peer());
        if room < least.0 {
            least = (room, WaitReason::PeerWindow);
        }
        least
    }

    /// Assigns the entry its sequence numbers, just before its first packet is built.
    #[inline]
    fn start_entry(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        verbs.send.begin(counter, self.window.next, 1);
        if verbs.head.transport.split && verbs.send.queue.get(counter).op.is_fetch() {
            self.expect_responses(verbs, core, counter);
        }
    }

    /// Executes local work at the head of the queue until the next entry needs a packet; returns false when nothing
    /// more may start.
    #[cold]
    fn do_local_work(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        while verbs.send.local_is_next() {
            let Verbs { head, send, .. } = verbs;
            if send.known_failure.is_some() {
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

/// Packet of an entry to build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Index of the packet's first sequence number among the entry's.
    pub(crate) index: u32,
    /// Number of sequence numbers it takes: one, except for reads in a shared space.
    pub(crate) takes: u32,
    /// True when the window requires that the packet requests an acknowledgement.
    pub(crate) asks: bool,
    /// True for a retransmission.
    pub(crate) again: bool,
}
