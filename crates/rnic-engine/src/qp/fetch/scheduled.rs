//! Responses as Writes that the responder schedules: FaSR.
//!
//! Source: FaSR (2025) section IV-D ("R-READ, similar to the WRITE operation, is scheduled on the responder") and IV-B
//! (who times what); mechanisms. The paper has these two sentences; what follows from them is ours:
//!
//! * *Where*: an answer takes numbers of the request space of the responder's own requester, when its first packet
//!   leaves, and all of them at a stretch. From there on its packets are like those of any Write: one window, cap,
//!   congestion control, room at the peer, timer, recovery and unit of the pool for both. What is in the send queue and
//!   what is asked for take turns, a message each; a message that must wait for a fence or for Reads lets answers
//!   pass. The queue pair state "send queue drained" stops the send queue only.
//! * *State and bound*: the request waits in the Read WQE buffer ([`super::buffer`]) from its arrival until its answer
//!   is acknowledged: as many as the peer may have outstanding (`max_dest_rd_atomic`), never more. The buffer says
//!   where the data of a packet that must be sent again lies; nothing else is kept.
//! * *At the far end*: each packet names its Read and its place in it, so that it goes to its place whenever it comes
//!   (`qp/responder/answer.rs`). The Read is complete when its last packet's turn has come: then all of it is here, and
//!   everything that the responder sent before.
//! * *Requests* are packets of the requester's, acknowledged like others. Until one is acknowledged its timeout submits
//!   it again, with a later timestamp. The copy has the number of the first one, so that it is not served twice: it is
//!   acknowledged again, and what is under way of the answer is left alone, because the responder has its own timer for
//!   that. The timestamp tells what the requester has repeated from what the network has, for the statistics.
//! * *Errors*: a Read that may not be done is refused with a NAK when the answers before it are acknowledged. Of memory
//!   that goes away later the requester is told, and knows whether it matters ([`super::gone`]). A requester that
//!   cannot place an answer fails its Read, and says so with a NAK. To one that never acknowledges, answers are
//!   repeated less and less often.
//! * *Atomics* are not in the paper: they are done when their turn has come, once, and answered like a Read of 8 bytes.
//!
//! Two things that one space brings with it:
//!
//! * answers wait behind a Send for which the requester of the Read has posted no receive: its pause is the pause of
//!   both. A program that posts a receive only when its Read is complete, while the far end sends, waits for ever. With
//!   RoCE and IRN it would not;
//! * a responder that has never been made ready to send does not know its numbers yet: requests say which one is
//!   expected.

use rnic_base::{Psn, Seq, Time};

use super::buffer::ReadBuffer;
use super::{Fetch, FetchServer};
use crate::core::Core;
use crate::qp::{Qp, QpState};
use crate::stats::WaitReason;
use crate::window::SendWindow;

/// What the peer has asked for, and how far its answers have left.
#[derive(Debug)]
pub(crate) struct ScheduledServer {
    pub(super) buffer: ReadBuffer,
    /// `read_WQE_SN` of the fetch whose packets leave next.
    sending: u32,
    /// Of them, so many have left.
    sent: u32,
    /// An answer was the last message to leave: the send queue is next.
    own_turn: bool,
    /// Packets in flight whose room at the peer others may use: nobody has acknowledged them for long.
    lent: u64,
}

impl ScheduledServer {
    pub(super) fn new(limit: u32) -> Self {
        Self { buffer: ReadBuffer::new(limit), sending: 0, sent: 0, own_turn: false, lent: 0 }
    }

    fn has_unsent(&self) -> bool {
        self.sending != self.buffer.begun()
    }
}

impl Qp {
    fn scheduled_server(&mut self) -> Option<&mut ScheduledServer> {
        match self.responder.fetches.as_deref_mut() {
            Some(FetchServer::Scheduled(server)) => Some(server),
            _ => None,
        }
    }

    /// Whether packets with numbers of the request space may leave, or be under way: own requests, or answers that are
    /// scheduled like them.
    #[inline]
    pub(in crate::qp) fn transmits(&self) -> bool {
        self.state.sends() || (self.transport.scheduled && self.state.receives())
    }

    /// A queue pair that was never told where its numbers start learns it from who waits for them.
    pub(in crate::qp) fn learn_start(&mut self, expects: Psn) {
        if self.state == QpState::ReadyToReceive && self.requester.start == Seq::UNSET {
            let start = Seq::start(expects);
            self.requester.start = start;
            self.requester.window = SendWindow::new(start, &self.transport);
        }
    }

    /// The turn of the fetch named `sn` has come.
    pub(super) fn schedule_answer(&mut self, core: &mut Core, sn: u32) {
        self.scheduled_server().expect("admitted").buffer.begin(sn);
        self.requester.window.serves = true;
        self.wake_requester(core);
    }

    /// Makes the next new packet while answers wait: of one of them, or of the send queue. Messages are sent whole.
    #[inline(never)]
    pub(in crate::qp) fn new_packet_serving(&mut self, core: &mut Core, now: Time) -> bool {
        if self.requester.sent_of_next > 0 {
            return self.new_request(core, now);
        }
        let server = self.scheduled_server().expect("it serves");
        let own_turn = server.own_turn && server.sent == 0;
        if own_turn
            && self.requester.queue.has_unsent()
            && let Some(made) = self.take_own_turn(core, now)
        {
            return made;
        }
        self.transmits() && self.new_answer_packet(core, now)
    }

    /// A message of the send queue's own; `None` when there is none that may leave for a reason of its own.
    fn take_own_turn(&mut self, core: &mut Core, now: Time) -> Option<bool> {
        match self.takes_now(core) {
            Ok(_) => {
                let made = self.new_request(core, now);
                if made && let Some(server) = self.scheduled_server() {
                    server.own_turn = false;
                }
                if !made {
                    self.wake_requester(core);
                }
                Some(made)
            }
            Err(None) => None,
            Err(Some(reason)) => {
                self.hold_back(core, reason);
                (!matches!(reason, WaitReason::Fence | WaitReason::ReadLimit)).then_some(false)
            }
        }
    }

    fn new_answer_packet(&mut self, core: &mut Core, now: Time) -> bool {
        let (room, reason) = self.gate_room(core);
        if room == 0 {
            self.hold_back(core, reason);
            return false;
        }
        let next = self.requester.window.next;
        let server = self.scheduled_server().expect("it serves");
        let (sn, index) = (server.sending, server.sent);
        let fetch = server.buffer.at(sn).expect("what has begun stays until it is acknowledged");
        if index == 0 {
            fetch.first = next;
        }
        let fetch = *fetch;
        if let Err(code) = self.build_response(core, now, &fetch, index, false) {
            self.build_refusal(core, now, &fetch, index, false, code);
        }
        let server = self.scheduled_server().expect("it serves");
        server.sent += 1;
        if server.sent == fetch.packets {
            (server.sending, server.sent, server.own_turn) = (sn.wrapping_add(1), 0, true);
        }
        self.requester.window.serves = server.has_unsent();
        if let Some(watched) = core.watch.of(self.slot) {
            watched.round_trip.sent(next, now);
        }
        let Self { requester, transport, slot, armed, peer, .. } = self;
        requester.window.sent(1, true, now, transport);
        core.timers.arm(*slot, requester.window.deadline, armed);
        core.peers.sent(*peer, 1);
        true
    }

    /// Makes packet `seq` of an answer again.
    #[cold]
    pub(in crate::qp) fn repeat_answer_packet(&mut self, core: &mut Core, now: Time, seq: Seq) -> bool {
        let found: Option<Fetch> = self.scheduled_server().and_then(|server| server.buffer.find(seq));
        let fetch = found.expect("an outstanding packet belongs to an entry or to an answer");
        let index = seq.since(fetch.first) as u32;
        if let Err(code) = self.build_response(core, now, &fetch, index, true) {
            self.build_refusal(core, now, &fetch, index, true, code);
        }
        self.requester.window.repeated(seq, seq + 1, true, now, &self.transport);
        if self.transport.times_last_sent {
            self.requester.window.restart_timer(now);
        }
        if let Some(watched) = core.watch.of(self.slot) {
            watched.round_trip.forget();
        }
        true
    }

    /// Answers may have been acknowledged: their slots are free, and a refusal that has waited for them can leave.
    #[inline(never)]
    pub(in crate::qp) fn free_answered(&mut self, core: &mut Core) {
        let una = self.requester.window.una;
        let Some(server) = self.scheduled_server() else { return };
        server.buffer.free_acknowledged(una);
        if self.responder.has_work() {
            self.wake_responder(core);
        }
    }

    /// Request `seq`, which was here before, has come with `stamp`.
    #[cold]
    pub(in crate::qp) fn note_resubmission(&mut self, core: &mut Core, seq: Seq, stamp: u32) {
        let Some(server) = self.scheduled_server() else { return };
        // What the network has copied has a stamp that was seen before; clocks wrap.
        if let Some(fetch) = server.buffer.asked_by(seq)
            && stamp.wrapping_sub(fetch.stamp).cast_signed() > 0
        {
            fetch.stamp = stamp;
            core.stats.reads_resubmitted += 1;
        }
    }

    /// Returns whether all that this queue pair has in flight is answers to the peer's Reads and atomics.
    pub(in crate::qp) fn owes_answers_alone(&self) -> bool {
        let queue = &self.requester.queue;
        self.transport.scheduled && queue.head == queue.next && self.requester.sent_of_next == 0
    }

    /// Nobody acknowledges what this queue pair sends. When that is answers alone, it does not fail for that: they are
    /// sent again less and less often, like IRN's responses (`qp/clock.rs`). Answers whether that is so.
    #[cold]
    pub(in crate::qp) fn repeats_slowly(&mut self, core: &mut Core, now: Time) -> bool {
        if !self.owes_answers_alone() {
            return false;
        }
        // A refusal waits for the answers before it, but not for ever.
        if let Some(code) = self.responder.refused {
            self.fail_as_responder(core, code);
            return true;
        }
        // Measured timeouts back off by themselves.
        if !self.transport.measured {
            self.requester.window.back_off(now, self.requester.retries - self.requester.retry_count);
        }
        self.requester.has_lent = true;
        let in_flight = self.requester.window.in_flight();
        let Some(server) = self.scheduled_server() else { return false };
        let more = in_flight - std::mem::replace(&mut server.lent, in_flight);
        core.settle(self.peer, more);
        true
    }

    /// How many packets' room at the peer others were given because nobody acknowledged answers, if it was for that.
    #[cold]
    pub(in crate::qp) fn take_answers_back(&mut self) -> Option<u64> {
        self.scheduled_server().map(|server| std::mem::take(&mut server.lent)).filter(|lent| *lent > 0)
    }
}

/// A timestamp: units of 2^20 ps, about a microsecond; it wraps after 75 minutes.
pub(in crate::qp) fn stamp(now: Time) -> u32 {
    (now.as_ps() >> 20) as u32
}
