//! Responses to local reads and atomics that arrive as request packets of the responder: FaSR.
//!
//! Source: FaSR (2025) section IV-D, mechanism R-20; `requester/peer_fetches.rs` describes the complete design. A
//! packet carries the identifier of its request and its position in the response, so it is placed on arrival, by the
//! scatter list of that request. The identifier is valid only while the request is outstanding. The request is
//! complete when the last packet of its response is processed in order.

use rnic_base::Seq;
use rnic_wire::{Headers, NakCode, Packet, Position};

use super::Requester;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::Dma;
use crate::verbs::Verbs;
use crate::verbs::recv::Refusal;
use crate::verbs::send::refusal_in;

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);

impl Requester {
    /// Checks packet `seq` of a response, which is the packet expected (`is_expected`) or an out-of-order one, and
    /// places it. An error changes no state, except that the entry fails when the packet is the expected one.
    #[inline(always)]
    pub(in crate::roce) fn accept_scheduled_response<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        (seq, is_expected): (Seq, bool),
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let (position, sink) = match packet.headers {
            Headers::ReadResponse { position, sink: Some(sink), .. } => (position, sink),
            Headers::AtomicResponse { sink: Some(sink), .. } => (Position::Only, sink),
            _ => return Err(INVALID),
        };
        let mtu = u64::from(verbs.head.mtu());
        let queue = &verbs.send.queue;
        let named = self.responses.as_deref_mut().and_then(|responses| responses.named(queue, sink.read_sn));
        let expected = named.ok_or(INVALID)?;
        let (counter, packets, index) = (expected.counter, expected.packets, sink.offset / mtu);
        let fits = sink.offset % mtu == 0 && index < u64::from(packets);
        if !fits || position != Position::of(index as u32, packets) || expected.last.is_some_and(|_| position.ends()) {
            return Err(match refusal_in(packet) {
                Some(code) => self.take_refusal(verbs, core, is_expected, counter, code),
                None => INVALID,
            });
        }
        if let Err(status) = verbs.send.place_response(&verbs.head, core, counter, index as u32, packet, dma) {
            if let Some(code) = refusal_in(packet) {
                return Err(self.take_refusal(verbs, core, is_expected, counter, code));
            }
            if is_expected {
                self.fail_response(verbs, core, counter, status);
            }
            return Err(Refusal::Nak(NakCode::RemoteOperationalError));
        }
        if position.ends() {
            expected.last = Some(seq);
        }
        // The responder is active, and responds in order: later requests must wait for this one.
        self.retries = 0;
        Ok(())
    }

    /// Handles the report, in place of a packet of the response to entry `counter`, that the memory is no longer valid.
    #[cold]
    fn take_refusal(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        is_expected: bool,
        counter: u32,
        code: NakCode,
    ) -> Refusal {
        if is_expected {
            self.fail_response(verbs, core, counter, WcStatus::refused(code));
        }
        Refusal::Nak(code)
    }

    /// Fails the entry whose response cannot be accepted. Entries posted before it are complete, because their
    /// responses have arrived.
    #[cold]
    fn fail_response(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32, status: WcStatus) {
        let end = verbs.send.queue.get(counter).end();
        if end > self.window.una {
            self.advance(verbs, core, end);
        }
        if verbs.head.state.sends() {
            verbs.fail_entry(core, self.window.una, counter, status);
        }
    }

    /// Returns whether the response to the oldest request ends at `seq`.
    pub(in crate::roce) fn response_ends_at(&self, seq: Seq) -> bool {
        self.responses.as_ref().is_some_and(|responses| responses.front_ends_at(seq).is_some())
    }

    /// Completes the response whose last packet, `seq`, is next in order.
    ///
    /// # Errors
    /// When no response ends there, or the packets before it do not form a complete one.
    pub(in crate::roce) fn end_response(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
    ) -> Result<(), NakCode> {
        let responses = self.responses.as_mut().ok_or(NakCode::InvalidRequest)?;
        let arrived = seq.since(verbs.recv.message_start) + 1;
        responses.end_response(&mut verbs.send, (seq, arrived), core.now, &verbs.head.transport)?;
        verbs.recv.message_start = seq + 1;
        verbs.complete_through(core, self.window.una);
        self.wake(verbs, core);
        Ok(())
    }
}
