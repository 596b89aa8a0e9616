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
//! * *State and bound*: the request waits in the Read WQE buffer (`fetch/buffer.rs`) from its arrival until its answer
//!   is acknowledged: as many as the peer may have outstanding (`max_dest_rd_atomic`), never more. The buffer says
//!   where the data of a packet that must be sent again lies; nothing else is kept.
//! * *At the far end*: each packet names its Read and its place in it, so that it goes to its place whenever it comes
//!   (`responder/answer.rs`). The Read is complete when its last packet's turn has come: then all of it is here, and
//!   everything that the responder sent before.
//! * *Requests* are packets of the requester's, acknowledged like others. Until one is acknowledged its timeout submits
//!   it again, with a later timestamp. The copy has the number of the first one, so that it is not served twice: it is
//!   acknowledged again, and what is under way of the answer is left alone, because the responder has its own timer for
//!   that. The timestamp tells what the requester has repeated from what the network has, for the statistics.
//! * *Errors*: a Read that may not be done is refused with a NAK when the answers before it are acknowledged. Of memory
//!   that goes away later the requester is told, and knows whether it matters (`fetch/gone.rs`). A requester that
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

use rnic_base::Seq;
use rnic_wire::NakCode;

use super::Requester;
use crate::core::Core;
use crate::roce::fetch::Fetch;
use crate::roce::fetch::buffer::ReadBuffer;
use crate::stats::WaitReason;
use crate::verbs::Verbs;

/// What the peer has asked for, and how far its answers have left.
#[derive(Debug)]
pub(crate) struct ScheduledServer {
    buffer: ReadBuffer,
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
    fn new(limit: u32) -> Self {
        Self { buffer: ReadBuffer::new(limit), sending: 0, sent: 0, own_turn: false, lent: 0 }
    }

    fn has_unsent(&self) -> bool {
        self.sending != self.buffer.begun()
    }
}

/// The peer's reads and atomics, where their answers are packets of the requester; nothing before the first.
#[derive(Debug, Default)]
pub(in crate::roce) struct Answers(Option<Box<ScheduledServer>>);

impl Answers {
    /// Returns the buffer of what the peer may ask for, `limit` fetches at a time; makes it with the first.
    pub(in crate::roce) fn buffer(&mut self, limit: u32) -> &mut ReadBuffer {
        &mut self.0.get_or_insert_with(|| Box::new(ScheduledServer::new(limit))).buffer
    }

    /// Returns the fetch whose turn it is, if the peer has asked for it.
    pub(in crate::roce) fn next_asked(&mut self) -> Option<&mut Fetch> {
        self.0.as_deref_mut()?.buffer.next()
    }

    /// Returns whether there has been any.
    #[inline]
    pub(in crate::roce) fn were_asked_for(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether the peer may still be waiting for one.
    pub(in crate::roce) fn are_owed(&self) -> bool {
        self.0.as_ref().is_some_and(|server| server.buffer.is_busy())
    }

    fn server(&mut self) -> &mut ScheduledServer {
        self.0.as_deref_mut().expect("it serves")
    }

    /// Frees the slots of those that the peer has acknowledged, which are those before `una`.
    #[inline(never)]
    pub(super) fn free_acknowledged(&mut self, una: Seq) {
        if let Some(server) = self.0.as_deref_mut() {
            server.buffer.free_acknowledged(una);
        }
    }

    /// Request `seq`, which was here before, has come with `stamp`.
    #[cold]
    pub(in crate::roce) fn note_resubmission(&mut self, core: &mut Core, seq: Seq, stamp: u32) {
        let Some(server) = self.0.as_deref_mut() else { return };
        // What the network has copied has a stamp that was seen before; clocks wrap.
        if let Some(fetch) = server.buffer.asked_by(seq)
            && stamp.wrapping_sub(fetch.stamp).cast_signed() > 0
        {
            fetch.stamp = stamp;
            core.stats.reads_resubmitted += 1;
        }
    }

    /// Takes back the credit at the peer that others were given because nobody acknowledged answers, if they were:
    /// returns how many packets.
    #[cold]
    pub(super) fn take_lent(&mut self) -> Option<u64> {
        self.0.as_deref_mut().map(|server| std::mem::take(&mut server.lent)).filter(|lent| *lent > 0)
    }
}

/// Returns whether all that this queue pair has in flight is answers to the peer's Reads and atomics.
pub(super) fn owes_answers_alone(verbs: &Verbs) -> bool {
    let queue = &verbs.send.queue;
    verbs.head.transport.scheduled && queue.head == queue.next && queue.sent_of_next == 0
}

impl Requester {
    /// The turn of the next fetch has come.
    pub(in crate::roce) fn schedule_answer(&mut self, verbs: &mut Verbs, core: &mut Core) {
        self.answers.server().buffer.begin();
        self.window.serves = true;
        self.wake(verbs, core);
    }

    /// Makes the next new packet while answers wait: of one of them, or of the send queue. Messages are sent whole.
    #[inline(never)]
    pub(super) fn transmit_serving(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        if verbs.send.queue.sent_of_next > 0 {
            return self.transmit_new(verbs, core);
        }
        let server = self.answers.server();
        let own_turn = server.own_turn && server.sent == 0;
        if own_turn
            && verbs.send.queue.has_unsent()
            && let Some(made) = self.take_own_turn(verbs, core)
        {
            return made;
        }
        verbs.head.transmits() && self.transmit_answer(verbs, core)
    }

    /// A message of the send queue's own; `None` when there is none that may leave for a reason of its own.
    fn take_own_turn(&mut self, verbs: &mut Verbs, core: &mut Core) -> Option<bool> {
        match self.packets_allowed(verbs, core) {
            Ok(_) => {
                let made = self.transmit_new(verbs, core);
                if made {
                    self.answers.server().own_turn = false;
                }
                if !made {
                    self.wake(verbs, core);
                }
                Some(made)
            }
            Err(None) => None,
            Err(Some(reason)) => {
                self.hold_back(verbs, core, reason);
                (!matches!(reason, WaitReason::Fence | WaitReason::ReadLimit)).then_some(false)
            }
        }
    }

    fn transmit_answer(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let (room, reason) = self.gate(verbs, core);
        if room == 0 {
            self.hold_back(verbs, core, reason);
            return false;
        }
        let next = self.window.next;
        let server = self.answers.server();
        let (sn, index) = (server.sending, server.sent);
        let fetch = server.buffer.at(sn).expect("what has begun stays until it is acknowledged");
        if index == 0 {
            fetch.first = next;
        }
        let fetch = *fetch;
        fetch.respond_or_refuse(&mut self.shared, verbs, core, self.window.in_flight(), (index, false));
        let server = self.answers.server();
        server.sent += 1;
        if server.sent == fetch.packets {
            (server.sending, server.sent, server.own_turn) = (sn.wrapping_add(1), 0, true);
        }
        self.window.serves = server.has_unsent();
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.sent(next, core.now);
        }
        self.window.sent(1, true, core.now, &verbs.head.transport);
        self.shared.arm(&verbs.head, core, self.window.deadline);
        core.peers.sent(verbs.head.peer(), 1);
        true
    }

    /// Makes packet `seq` of an answer again.
    #[cold]
    pub(super) fn retransmit_answer(&mut self, verbs: &mut Verbs, core: &mut Core, seq: Seq) -> bool {
        let found: Option<Fetch> = self.answers.0.as_deref_mut().and_then(|server| server.buffer.find(seq));
        let fetch = found.expect("an outstanding packet belongs to an entry or to an answer");
        let index = seq.since(fetch.first) as u32;
        fetch.respond_or_refuse(&mut self.shared, verbs, core, self.window.in_flight(), (index, true));
        self.window.repeated(seq, seq + 1, true, core.now, &verbs.head.transport);
        if verbs.head.transport.times_last_sent {
            self.window.restart_timer(core.now);
        }
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.forget();
        }
        true
    }

    /// Answers up to `una` have arrived, says the peer's next request.
    ///
    /// # Errors
    /// When an entry of the send queue that had to wait for this has failed.
    pub(in crate::roce) fn advance_answers(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        una: Seq,
    ) -> Result<(), NakCode> {
        self.advance(verbs, core, una);
        self.answers.free_acknowledged(self.window.una);
        if verbs.head.state.receives() { Ok(()) } else { Err(NakCode::RemoteOperationalError) }
    }

    /// Nobody acknowledges what this queue pair sends. When that is answers alone, it does not fail for that: they are
    /// sent again less and less often, like IRN's responses (`fetch/split.rs`). Answers whether that is so.
    #[cold]
    pub(super) fn repeats_slowly(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        if !owes_answers_alone(verbs) {
            return false;
        }
        // A refusal waits for the answers before it, but not for ever.
        if let Some(code) = verbs.recv.refused {
            verbs.fail_as_responder(core, code);
            return true;
        }
        // Measured timeouts back off by themselves.
        if !verbs.head.transport.measured {
            self.window.back_off(core.now, self.retries - verbs.send.retry_count());
        }
        self.has_lent = true;
        let in_flight = self.window.in_flight();
        let Some(server) = self.answers.0.as_deref_mut() else { return false };
        let more = in_flight - std::mem::replace(&mut server.lent, in_flight);
        core.settle(verbs.head.peer(), more);
        true
    }
}
