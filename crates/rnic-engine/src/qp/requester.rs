//! The requester: from send queue entries to request packets.
//!
//! One call makes one packet. Packets that must be sent again go first, lowest number first; a new packet leaves when
//! every part of the gate is open: queue pair state, fence, read limit, cap, congestion
//! window, rate, room at the peer. When one is closed, it says which.

mod build;
mod entry;

use rnic_base::{Duration, Seq, Time};

use crate::PeerId;
use crate::completion::WcStatus;
use crate::config::QpAttributes;
use crate::core::Core;
use crate::error::PostError;
use crate::qp::Qp;
use crate::qp::local::bind_entry;
use crate::qp::placement::placement_entry;
use crate::ready::Half;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::transport::Transport;
use crate::window::{Circumstances, SendWindow};
use crate::wq::{SendQueue, SendWqe, WqeOp};
use crate::wr::{SendFlags, SendOp, SendRequest};

/// The sending half of a queue pair.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    pub(crate) window: SendWindow,
    /// The first sequence number this queue pair has used, in the request space and in that of the responses.
    pub(crate) start: Seq,
    /// The entry that has failed and how, while earlier ones are still under way. Nothing new is sent.
    pub(crate) doom: Option<(u32, WcStatus)>,
    /// Packets (of a shared-space read: responses asked for) of the entry at `queue.next` that have been sent.
    pub(crate) sent_of_next: u32,
    /// `recv_WQE_SN` of the next request that consumes a receive.
    next_recv_sn: u32,
    /// `read_WQE_SN` of the next read or atomic.
    next_read_sn: u32,
    /// Reads and atomics under way.
    pub(crate) fetches: u8,
    pub(crate) fetches_max: u8,
    /// Packets since an acknowledgement was last asked for.
    unasked: u32,
    /// Timeouts in a row.
    pub(crate) retries: u32,
    pub(crate) retry_count: u32,
    /// Receiver-not-ready answers in a row.
    pub(crate) rnr_retries: u32,
    pub(crate) rnr_retry: Option<u32>,
    /// Until then the receiver does not want to hear from us.
    pub(crate) pause: Deadline,
    /// Others may use the room of what is in flight, during the pause: the receiver has dropped it.
    pub(in crate::qp) has_lent: bool,
    /// The packet whose loss was last inferred from a response, so that each loss is inferred once.
    pub(crate) inferred_loss_at: Seq,
    /// In the ring of those who can send, or waiting for room at the peer.
    pub(crate) queued: bool,
}

impl Requester {
    pub(crate) fn new(attributes: &QpAttributes, start: Seq, transport: &Transport) -> Self {
        Self {
            queue: SendQueue::new(attributes.max_send_wr, attributes.max_send_sge),
            window: SendWindow::new(start, transport),
            start,
            doom: None,
            sent_of_next: 0,
            next_recv_sn: 0,
            next_read_sn: 0,
            fetches: 0,
            fetches_max: 0,
            unasked: 0,
            retries: 0,
            retry_count: RETRY_COUNT_UNSET,
            rnr_retries: 0,
            rnr_retry: None,
            pause: Deadline::NEVER,
            has_lent: false,
            inferred_loss_at: Seq::UNSET,
            queued: false,
        }
    }

    /// Returns what counts for a timer of this queue pair, whose peer is `peer`, that has run out.
    pub(crate) fn circumstances(
        &self,
        transport: &Transport,
        core: &Core,
        peer: PeerId,
        may_probe: bool,
    ) -> Circumstances {
        let credit = core.peers.room(peer);
        Circumstances {
            absence: core.absence,
            patience: transport.patience(self.retry_count),
            may_probe: may_probe && credit > 0,
            is_crowded: credit == 0,
            answers: core.peers.answers(peer),
        }
    }

    /// Whether there is something to send, gates aside.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.queue.has_unsent() || self.window.first_to_repeat().is_some() || self.window.serves
    }
}

/// Checks `request` against the limits of verbs and puts it into its compact form.
#[inline]
fn compact(request: &SendRequest<'_>, mtu: u32) -> Result<SendWqe, PostError> {
    let length = match request.sges {
        [only] => u64::from(only.len),
        sges => sges.iter().map(|sge| u64::from(sge.len)).sum(),
    };
    if length > rnic_base::limits::MESSAGE_BYTES_MAX {
        return Err(PostError::MessageTooLong(length));
    }
    let mut wqe = SendWqe {
        wr_id: request.wr_id,
        length: length as u32,
        // Most messages are shorter than a packet: spare them the division.
        packets: if length <= u64::from(mtu) { 1 } else { (length as u32).div_ceil(mtu) },
        flags: request.flags,
        sge_count: request.sges.len() as u8,
        ..SendWqe::BLANK
    };
    match request.op {
        SendOp::Write { remote, immediate } => {
            (wqe.remote, wqe.rkey) = (remote.addr, remote.rkey);
            (wqe.op, wqe.word) = immediate.map_or((WqeOp::Write, 0), |word| (WqeOp::WriteImm, word));
        }
        SendOp::Send { immediate } => {
            (wqe.op, wqe.word) = immediate.map_or((WqeOp::Send, 0), |word| (WqeOp::SendImm, word));
        }
        SendOp::SendInvalidate { rkey } => (wqe.op, wqe.word) = (WqeOp::SendInvalidate, rkey),
        SendOp::Read { remote } => (wqe.op, wqe.remote, wqe.rkey) = (WqeOp::Read, remote.addr, remote.rkey),
        SendOp::CompareSwap { remote, compare, swap } => {
            (wqe.op, wqe.remote, wqe.rkey) = (WqeOp::CompareSwap, remote.addr, remote.rkey);
            (wqe.operand, wqe.swap) = (compare, swap);
        }
        SendOp::FetchAdd { remote, add } => {
            (wqe.op, wqe.remote, wqe.rkey) = (WqeOp::FetchAdd, remote.addr, remote.rkey);
            wqe.operand = add;
        }
        SendOp::Bind(binding) => bind_entry(&mut wqe, &binding),
        SendOp::AtomicWrite { remote, value } => {
            placement_entry(&mut wqe, WqeOp::AtomicWrite, remote, u64::from_ne_bytes(value));
        }
        SendOp::Flush { remote, len, placement, selectivity } => {
            placement_entry(&mut wqe, WqeOp::Flush, remote, u64::from(len));
            wqe.word = u32::from(placement) | u32::from(selectivity) << 8;
        }
        SendOp::LocalInvalidate { rkey } => {
            (wqe.op, wqe.rkey) = (WqeOp::LocalInvalidate, rkey);
            (wqe.length, wqe.packets) = (0, 0);
        }
        SendOp::Datagram { to, immediate } => {
            if length > u64::from(mtu) {
                return Err(PostError::DatagramTooLong { bytes: length, mtu });
            }
            if to.qpn.is_management() {
                return Err(PostError::Destination(to.qpn));
            }
            (wqe.remote, wqe.sn, wqe.rkey) = (u64::from(to.peer.0), to.qpn.get(), to.qkey);
            wqe.swap = to.mark;
            (wqe.op, wqe.word) = immediate.map_or((WqeOp::Datagram, 0), |word| (WqeOp::DatagramImm, word));
        }
    }
    if wqe.op.is_atomic() && length != 8 {
        return Err(PostError::AtomicLength(length));
    }
    Ok(wqe)
}

impl Qp {
    /// Queues a request.
    #[inline]
    pub(crate) fn post_send(&mut self, core: &mut Core, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post(core, request, 0)
    }

    /// Queues a request whose receive, if it takes one, is of the shared receive queue `srqn`.
    #[cold]
    pub(crate) fn post_send_shared(
        &mut self,
        core: &mut Core,
        request: &SendRequest<'_>,
        srqn: u32,
    ) -> Result<(), PostError> {
        if self.transport.falcon().is_some() {
            return Err(PostError::Unsupported(self.transport.service));
        }
        self.post(core, request, srqn)
    }

    #[inline(always)]
    fn post(&mut self, core: &mut Core, request: &SendRequest<'_>, srqn: u32) -> Result<(), PostError> {
        let mut wqe = self.prepare_send(request)?;
        if wqe.op.consumes_receive() && srqn != 0 {
            // Nothing else uses it there.
            wqe.operand = u64::from(srqn);
        }
        self.requester.queue.push(wqe, request.sges);
        if !self.state.sends() {
            self.flush_sends(core);
        } else if self.transport.operations & wqe.op.bit() != 0 {
            self.wake_requester(core);
        } else {
            self.wake_falcon(core);
        }
        Ok(())
    }

    /// The entry that `request` makes in the send queue, or why it cannot be posted. Nothing is changed.
    #[inline(always)]
    pub(crate) fn prepare_send(&self, request: &SendRequest<'_>) -> Result<SendWqe, PostError> {
        let queue = &self.requester.queue;
        if !self.state.takes_sends() {
            return Err(PostError::State(self.state));
        }
        if queue.is_full() {
            return Err(PostError::QueueFull);
        }
        if request.sges.len() > queue.sge_limit() {
            return Err(PostError::TooManySges { asked: request.sges.len(), limit: queue.sge_limit() });
        }
        let mut wqe = compact(request, self.mtu())?;
        if self.signal_all {
            wqe.flags |= SendFlags::SIGNALED;
        }
        if self.transport.operations & wqe.op.bit() == 0 {
            self.check_elsewhere(&wqe)?;
        } else if self.transport.split && wqe.op == WqeOp::Read {
            // The answer has numbers of its own.
            wqe.packets = 1;
        }
        Ok(wqe)
    }

    /// Puts the requester into the ring of those who can send, if it has something to send.
    #[inline]
    pub(crate) fn wake_requester(&mut self, core: &mut Core) {
        if !self.requester.queued && self.requester.has_work() {
            core.ready.push(Half::Requester, self.slot, &mut self.requester.queued);
            if self.regulator.is_some() {
                self.activate(core);
            }
        }
    }

    /// As [`Qp::wake_requester`], when something may have to be sent again: that takes no new room at the peer, and so
    /// does not wait for any.
    #[cold]
    pub(crate) fn wake_to_repeat(&mut self, core: &mut Core) {
        let queued = self.requester.queued && self.requester.window.first_to_repeat().is_some();
        if queued && core.peers.stop_waiting(self.peer, Half::Requester, self.slot) {
            core.ready.requeue(Half::Requester, self.slot);
        }
        self.wake_requester(core);
    }

    /// A receiver that is not ready has dropped what is in flight. Others use the room until the pause is over: one of
    /// them may bring what the receiver waits for.
    #[cold]
    pub(crate) fn lend_room(&mut self, core: &mut Core) {
        self.requester.has_lent = true;
        core.settle(self.peer, self.requester.window.in_flight());
    }

    /// The pause is over: what was in flight counts again, even where others fill the room by now. That is what is in
    /// flight, and `settled` packets that have just been acknowledged.
    #[inline]
    pub(crate) fn take_room_back(&mut self, core: &mut Core, settled: u64) {
        if self.requester.has_lent {
            self.requester.has_lent = false;
            let lent = self.take_answers_back().unwrap_or(self.requester.window.in_flight() + settled);
            core.peers.sent(self.peer, lent);
        }
    }

    /// A packet has left: go on with the turn, or go to the end of the ring.
    #[inline(always)]
    pub(super) fn end_packet_of_turn(&mut self, core: &mut Core, now: Time) {
        if self.regulator.is_some() {
            self.count_served(core, now, core.out.packet.payload_len);
        }
        if self.turn_left > 1 && self.requester.has_work() && !self.requester.queued {
            self.turn_left -= 1;
            self.requester.queued = true;
            core.ready.push_front(Half::Requester, self.slot);
        } else {
            self.turn_left = self.turn_packets;
            self.wake_requester(core);
        }
    }

    /// Makes the next request packet, in `core.out`, if one may leave now. The ring has let go of this queue pair.
    #[inline]
    pub(crate) fn transmit_request(&mut self, core: &mut Core, now: Time) -> bool {
        self.requester.queued = false;
        if self.peer == PeerId::NOBODY {
            return self.transmit_unreliable(core, now);
        }
        if !self.transmits() {
            return false;
        }
        if self.requester.pause.is_set() {
            core.count_wait(WaitReason::ReceiverNotReady);
            return false;
        }
        let repeat = match self.requester.window.first_to_repeat() {
            Some(seq) if self.is_being_fetched(core, now, seq) => None,
            repeat => repeat,
        };
        if repeat.is_none() {
            if self.local_is_next() && !self.do_local_work(core) {
                return false;
            }
            if !self.requester.queue.has_unsent() && !self.requester.window.serves {
                return false;
            }
        }
        if let Some(at) = self.pacing_allows_at(now) {
            self.arm_pacing(core, at);
            return false;
        }
        let made = match repeat {
            Some(seq) => self.repeat_request(core, now, seq),
            None if self.requester.window.serves => self.new_packet_serving(core, now),
            None => self.new_request(core, now),
        };
        if made {
            self.end_packet_of_turn(core, now);
        }
        made
    }

    /// Whether packet `seq`, which is to be sent again, is not here yet (I-26). New packets do not wait for it.
    #[cold]
    fn is_being_fetched(&mut self, core: &mut Core, now: Time, seq: Seq) -> bool {
        if self.transport.retransmit_fetch == Duration::ZERO {
            return false;
        }
        let Some(at) = self.requester.window.fetched_at(seq, now) else { return false };
        core.timers.arm(self.slot, Deadline::at(at), &mut self.armed);
        true
    }

    #[cold]
    fn repeat_request(&mut self, core: &mut Core, now: Time, seq: Seq) -> bool {
        if self.window_holds_repeat(&self.requester.window, seq) {
            core.count_wait(WaitReason::Window);
            return false;
        }
        let requester = &mut self.requester;
        let Some(counter) = requester.queue.find(seq) else { return self.repeat_answer_packet(core, now, seq) };
        let wqe = requester.queue.get(counter);
        let index = seq.since(wqe.first) as u32;
        let sent = if counter == requester.queue.next { requester.sent_of_next } else { wqe.packets };
        let takes = if wqe.op == WqeOp::Read && !self.transport.split { sent - index } else { 1 };
        let end = seq + u64::from(takes);
        // Nothing else leaves before an acknowledgement of the last one.
        let fills = requester.window.room_on_path().is_some_and(|room| room <= u64::from(takes));
        let asks = fills || end == requester.window.next;
        let made = self.build_request(core, now, counter, Piece { index, takes, asks, again: true });
        // A request whose memory is gone is not sent again; its entry fails instead, and the others go on.
        let drawn = made && core.out.packet.flags.ack_request;
        self.requester.window.repeated(seq, end, drawn, now, &self.transport);
        if self.transport.times_last_sent {
            self.requester.window.restart_timer(now);
        }
        if let Some(watched) = core.watch.of(self.slot) {
            watched.round_trip.forget();
        }
        if !made && self.state.sends() {
            self.wake_requester(core);
        }
        made
    }

    #[inline]
    pub(in crate::qp) fn new_request(&mut self, core: &mut Core, now: Time) -> bool {
        let (takes, room) = match self.takes_now(core) {
            Ok(allowed) => allowed,
            Err(reason) => {
                if let Some(reason) = reason {
                    self.hold_back(core, reason);
                }
                return false;
            }
        };
        let counter = self.requester.queue.next;
        if self.requester.sent_of_next == 0 {
            self.start_entry(core, now, counter);
        }
        let index = self.requester.sent_of_next;
        let is_beyond = self.transport.credits && self.count_message();
        let asks = is_beyond || room == u64::from(takes);
        if !self.build_request(core, now, counter, Piece { index, takes, asks, again: false }) {
            return false;
        }
        let transport = &self.transport;
        let requester = &mut self.requester;
        if let Some(watched) = core.watch.of(self.slot) {
            watched.round_trip.sent(requester.window.next, now);
        }
        requester.window.sent(u64::from(takes), core.out.packet.flags.ack_request, now, transport);
        core.timers.arm(self.slot, requester.window.deadline, &mut self.armed);
        core.peers.sent(self.peer, u64::from(takes));
        requester.advance(takes);
        true
    }

    #[cold]
    pub(in crate::qp) fn hold_back(&mut self, core: &mut Core, reason: WaitReason) {
        core.count_wait(reason);
        if reason == WaitReason::PeerWindow {
            self.requester.queued = true;
            core.peers.wait(self.peer, Half::Requester, self.slot);
        } else if reason == WaitReason::ReadLimit && self.requester.fetches_max == 0 {
            // Its turn would never come.
            self.fail_request(core, self.requester.queue.next, WcStatus::LocalQpOperation);
        }
    }

    /// How many sequence numbers the next new packet may take, and how many there is room for: at least one, or why
    /// none (no reason when nothing new is to be sent at all).
    #[inline]
    pub(in crate::qp) fn takes_now(&self, core: &Core) -> Result<(u32, u64), Option<WaitReason>> {
        let requester = &self.requester;
        let starts = requester.sent_of_next == 0;
        if requester.doom.is_some() {
            return Err(None);
        }
        if starts {
            self.may_begin()?;
        }
        if self.transport.credits && !self.has_credit() {
            return Err(Some(WaitReason::Credits));
        }
        let wqe = requester.queue.get(requester.queue.next);
        let (room, reason) = self.gate_room(core);
        if !wqe.op.is_fetch() {
            return if room > 0 { Ok((1, room)) } else { Err(Some(reason)) };
        }
        if room == 0 {
            return Err(Some(reason));
        }
        // A shared-space read takes a number for every response. When the window is smaller than the answer, it is
        // asked for in pieces, the next one when the last has come in: the responder has no window of its own to hold
        // back with.
        if !starts && !requester.window.is_empty() {
            return Err(Some(WaitReason::ReadLimit));
        }
        let left = wqe.packets - requester.sent_of_next;
        Ok((u64::from(left).min(room) as u32, room))
    }

    /// How many packets may leave, and what forbids more.
    #[inline]
    pub(in crate::qp) fn gate_room(&self, core: &Core) -> (u64, WaitReason) {
        let in_flight = self.requester.window.in_flight();
        let mut least = (self.transport.in_flight_max.saturating_sub(in_flight), WaitReason::Cap);
        if let Some(window) = self.regulator.as_ref().and_then(|regulator| regulator.window) {
            let room = window.whole_packets().saturating_sub(self.requester.window.pipe());
            if room < least.0 {
                least = (room, WaitReason::Window);
            }
        }
        if let Some(room) = self.requester.window.room_on_path().filter(|room| *room < least.0) {
            least = (room, WaitReason::Window);
        }
        let room = core.peers.room(self.peer);
        if room < least.0 {
            least = (room, WaitReason::PeerWindow);
        }
        least
    }

    /// Gives the entry its sequence numbers: its first packet is about to be made.
    #[inline]
    fn start_entry(&mut self, core: &mut Core, now: Time, counter: u32) {
        let requester = &mut self.requester;
        requester.begin(counter, requester.window.next, 1);
        if self.transport.split && requester.queue.get(counter).op.is_fetch() {
            self.expect_responses(core, now, counter);
        }
    }
}

/// Which packet of an entry to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Its place among the entry's sequence numbers.
    pub(crate) index: u32,
    /// How many of them it takes: one, but for reads in a shared space.
    pub(crate) takes: u32,
    /// It should ask for an acknowledgement, for a reason of the window's.
    pub(crate) asks: bool,
    /// It was sent before.
    pub(crate) again: bool,
}

/// Until the step to `ReadyToSend` sets it. A queue pair that only serves Reads never takes that step, and its peer,
/// who wants the data, is the one to lose patience: after a minute, with timeouts of a millisecond, nobody is there.
const RETRY_COUNT_UNSET: u32 = 1 << 16;
