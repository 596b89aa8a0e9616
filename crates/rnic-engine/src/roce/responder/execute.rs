//! Execution of packets that are next in order: messages are counted, receives completed, reads and atomics started.

use rnic_base::Seq;
use rnic_wire::{Headers, NakCode, Packet};

use super::Responder;
use crate::core::Core;
use crate::dma::Dma;
use crate::roce::requester::Requester;
use crate::verbs::Verbs;
use crate::window::LaneId;

impl Responder {
    /// Executes the expected packet, which has just been accepted, and moves the expected number to the next one.
    #[inline]
    pub(crate) fn execute<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        seq: Seq,
        dma: &mut D,
    ) -> Result<(), NakCode> {
        match packet.headers {
            Headers::Send { position, .. } => {
                if position.ends() {
                    verbs.recv.end_message(&verbs.head, core, seq, true)?;
                }
                self.window.advance();
                Ok(())
            }
            Headers::Write { position, immediate, .. } => {
                if position.ends() {
                    verbs.recv.end_message(&verbs.head, core, seq, immediate.is_some())?;
                }
                self.window.advance();
                Ok(())
            }
            Headers::ReadResponse { position, .. } => {
                if position.ends() {
                    requester.end_response(verbs, core, seq)?;
                }
                self.window.advance();
                Ok(())
            }
            Headers::AtomicResponse { .. } => {
                requester.end_response(verbs, core, seq)?;
                self.window.advance();
                Ok(())
            }
            _ => {
                let packets = self.begin_fetch(requester, verbs, core, seq, dma)?;
                if verbs.head.transport.split {
                    self.window.advance();
                } else {
                    self.window.advance_by(u64::from(packets));
                }
                Ok(())
            }
        }
    }

    /// Executes the packets that arrived out of order and are now next in order.
    #[cold]
    pub(super) fn drain_out_of_order<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        dma: &mut D,
    ) -> Result<(), NakCode> {
        // Completing a response may fail the queue pair; the packets after it are then not executed.
        while verbs.head.state.receives() {
            let mut bits = core.pools.bits(verbs.head.transport.pool, &mut requester.shared.pool, LaneId::RequestsIn);
            let run_length = self.window.run_without_action(&mut bits);
            if run_length > 0 {
                self.window.advance_out_of_order(run_length, &mut bits);
            }
            let Some(has_action) = self.window.out_of_order_at_head(&bits) else { return Ok(()) };
            assert!(has_action, "a packet without an action is at the head");
            let seq = self.window.expected;
            if self.fetch_waits_at(requester, verbs, seq) {
                self.begin_fetch(requester, verbs, core, seq, dma)?;
            } else if requester.response_ends_at(seq) {
                requester.end_response(verbs, core, seq)?;
            } else {
                let consumes_receive = verbs.recv.receive_waits_at(seq);
                verbs.recv.end_message(&verbs.head, core, seq, consumes_receive)?;
            }
            let mut bits = core.pools.bits(verbs.head.transport.pool, &mut requester.shared.pool, LaneId::RequestsIn);
            self.window.advance_out_of_order(1, &mut bits);
        }
        Ok(())
    }
}
