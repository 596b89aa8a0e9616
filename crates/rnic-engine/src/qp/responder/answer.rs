//! Answers to our reads and atomics that come as packets of the responder's own: FaSR.
//!
//! Source: FaSR (2025) section IV-D, mechanism R-20; `qp/fetch/scheduled.rs` has the whole design. A packet says which
//! request it answers and where in the answer it belongs, so it is placed when it comes, by the scatter list of that
//! request: the name is good only while the request is under way. The request is done when the turn of its answer's
//! last packet has come.

use rnic_base::Seq;
use rnic_wire::{Headers, NakCode, Packet, Position};

use super::Refusal;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::Dma;
use crate::qp::Qp;
use crate::qp::fetch::gone;
use crate::timer::Deadline;
use crate::wq::WqeState;

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);

impl Qp {
    /// Checks a packet of an answer and places it. After an error nothing has changed, but for the entry that fails
    /// when the packet's turn has come.
    #[inline(never)]
    pub(super) fn accept_answer<D: Dma>(
        &mut self,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let (position, sink) = match packet.headers {
            Headers::ReadResponse { position, sink: Some(sink), .. } => (position, sink),
            Headers::AtomicResponse { sink: Some(sink), .. } => (Position::Only, sink),
            _ => return Err(INVALID),
        };
        let mtu = u64::from(self.mtu());
        let Self { responses, requester, .. } = self;
        let named = responses.as_deref_mut().and_then(|responses| responses.named(&requester.queue, sink.read_sn));
        let expected = named.ok_or(INVALID)?;
        let (counter, packets, index) = (expected.counter, expected.packets, sink.offset / mtu);
        let fits = sink.offset % mtu == 0 && index < u64::from(packets);
        if !fits || position != Position::of(index as u32, packets) || expected.last.is_some_and(|_| position.ends()) {
            return Err(match gone::refusal_in(packet) {
                Some(code) => self.take_refusal(core, seq, counter, code),
                None => INVALID,
            });
        }
        if let Err(status) = self.place_response(core, counter, index as u32, packet, dma) {
            if let Some(code) = gone::refusal_in(packet) {
                return Err(self.take_refusal(core, seq, counter, code));
            }
            if seq == self.responder.window.expected {
                self.fail_answered(core, counter, status);
            }
            return Err(Refusal::Nak(NakCode::RemoteOperationalError));
        }
        // The responder lives, and answers in order: what is behind must wait.
        self.requester.retries = 0;
        if position.ends()
            && let Self { responses: Some(responses), requester, .. } = self
            && let Some(expected) = responses.named(&requester.queue, sink.read_sn)
        {
            expected.last = Some(seq);
        }
        Ok(())
    }

    /// In place of packet `seq` of the answer to entry `counter` comes word that its memory is gone.
    #[cold]
    fn take_refusal(&mut self, core: &mut Core, seq: Seq, counter: u32, code: NakCode) -> Refusal {
        if seq == self.responder.window.expected {
            self.fail_answered(core, counter, WcStatus::refused(code));
        }
        Refusal::Nak(code)
    }

    /// The entry whose answer cannot be taken fails. Whatever was posted before it is done: it was answered.
    #[cold]
    fn fail_answered(&mut self, core: &mut Core, counter: u32, status: WcStatus) {
        let (end, now) = (self.requester.queue.get(counter).end(), core.now);
        if end > self.requester.window.una {
            self.advance_requests(core, now, end);
        }
        if self.state.sends() {
            self.fail_request(core, counter, status);
        }
    }

    /// Whether the answer to the oldest request ends at `seq`.
    pub(super) fn answer_ends_at(&self, seq: Seq) -> bool {
        self.responses.as_ref().is_some_and(|responses| responses.front_ends_at(seq).is_some())
    }

    /// The turn of the last packet of an answer has come.
    pub(super) fn end_answer(&mut self, core: &mut Core, seq: Seq) -> Result<(), NakCode> {
        let responses = self.responses.as_mut().ok_or(NakCode::InvalidRequest)?;
        let (counter, packets) = responses.front_ends_at(seq).ok_or(NakCode::InvalidRequest)?;
        // Placed alone, each packet says for itself where it belongs; together they must make the answer.
        if seq.since(self.responder.message_start) + 1 != u64::from(packets) {
            return Err(NakCode::InvalidRequest);
        }
        responses.finish_front();
        responses.silent_periods = 0;
        responses.watch = Deadline::after(core.now, self.transport.response_patience);
        self.responder.message_start = seq + 1;
        self.requester.queue.get_mut(counter).state = WqeState::Fetched;
        self.complete_finished(core);
        self.wake_requester(core);
        Ok(())
    }
}
