//! Execution of packets that are next in order: messages are counted, receives complete, reads and atomics start.

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
                    requester.end_answer(verbs, core, seq)?;
                }
                self.window.advance();
                Ok(())
            }
            Headers::AtomicResponse { .. } => {
                requester.end_answer(verbs, core, seq)?;
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
    pub(super) fn drain_early<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        dma: &mut D,
    ) -> Result<(), NakCode> {
        // A response that completes may fail the queue pair: nothing behind it is executed.
        while verbs.head.state.receives() {
            let mut bits = core.pools.bits(verbs.head.transport.pool, &mut requester.shared.pool, LaneId::RequestsIn);
            let quiet = self.window.quiet_run(&mut bits);
            if quiet > 0 {
                self.window.take_early(quiet, &mut bits);
            }
            let Some(acting) = self.window.early_at_head(&bits) else { return Ok(()) };
            assert!(acting, "quiet packets have been passed");
            let seq = self.window.expected;
            if self.fetch_waits_at(requester, verbs, seq) {
                self.begin_fetch(requester, verbs, core, seq, dma)?;
            } else if requester.answer_ends_at(seq) {
                requester.end_answer(verbs, core, seq)?;
            } else {
                let consumes = verbs.recv.receive_waits_at(seq);
                verbs.recv.end_message(&verbs.head, core, seq, consumes)?;
            }
            let mut bits = core.pools.bits(verbs.head.transport.pool, &mut requester.shared.pool, LaneId::RequestsIn);
            self.window.take_early(1, &mut bits);
        }
        Ok(())
    }
}
