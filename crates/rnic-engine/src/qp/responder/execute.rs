//! What happens when a packet's turn has come: messages are counted, receives complete, reads and atomics begin.

use rnic_base::Seq;
use rnic_wire::{Headers, NakCode, Packet};

use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::core::Core;
use crate::dma::Dma;
use crate::qp::Qp;
use crate::window::LaneId;
use crate::wq::{RecvDone, RecvTail};

impl Qp {
    /// Executes the packet that was expected and has just been accepted, and expects the next one.
    #[inline]
    pub(crate) fn execute_packet<D: Dma>(
        &mut self,
        core: &mut Core,
        packet: &Packet,
        seq: Seq,
        dma: &mut D,
    ) -> Result<(), NakCode> {
        match packet.headers {
            Headers::Send { position, .. } => {
                if position.ends() {
                    self.end_message(core, seq, true)?;
                }
                self.responder.window.advance();
                Ok(())
            }
            Headers::Write { position, immediate, .. } => {
                if position.ends() {
                    self.end_message(core, seq, immediate.is_some())?;
                }
                self.responder.window.advance();
                Ok(())
            }
            Headers::ReadResponse { position, .. } => {
                if position.ends() {
                    self.end_answer(core, seq)?;
                }
                self.responder.window.advance();
                Ok(())
            }
            Headers::AtomicResponse { .. } => {
                self.end_answer(core, seq)?;
                self.responder.window.advance();
                Ok(())
            }
            _ => {
                let packets = self.begin_fetch(core, seq, dma)?;
                if self.transport.split {
                    self.responder.window.advance();
                } else {
                    self.responder.window.advance_by(u64::from(packets));
                }
                Ok(())
            }
        }
    }

    /// Executes the packets that arrived early and whose turn has come now.
    #[cold]
    pub(super) fn drain_early<D: Dma>(&mut self, core: &mut Core, dma: &mut D) -> Result<(), NakCode> {
        loop {
            let Self { responder, transport, .. } = self;
            let mut bits = core.pools.bits(transport.pool, &mut responder.sr, LaneId::RequestsIn);
            let quiet = responder.window.quiet_run(&mut bits);
            if quiet > 0 {
                responder.window.take_early(quiet, &mut bits);
            }
            let Some(acting) = responder.window.early_at_head(&bits) else { return Ok(()) };
            assert!(acting, "quiet packets have been passed");
            let seq = self.responder.window.expected;
            if self.fetch_waits_at(seq) {
                self.begin_fetch(core, seq, dma)?;
            } else if self.answer_ends_at(seq) {
                self.end_answer(core, seq)?;
            } else {
                let consumes = self.receive_waits_at(seq);
                self.end_message(core, seq, consumes)?;
            }
            let Self { responder, transport, .. } = self;
            let mut bits = core.pools.bits(transport.pool, &mut responder.sr, LaneId::RequestsIn);
            responder.window.take_early(1, &mut bits);
        }
    }

    /// Whether the oldest receive belongs to the message that ends at `seq`.
    fn receive_waits_at(&self, seq: Seq) -> bool {
        let queue = &self.responder.queue;
        queue.len() > 0 && queue.get(queue.head).done.is_some_and(|done| done.last == seq)
    }

    /// A message is complete: count it (I-17), and deliver its receive, if it uses one.
    #[inline]
    pub(crate) fn end_message(&mut self, core: &mut Core, seq: Seq, consumes: bool) -> Result<(), NakCode> {
        if consumes {
            self.complete_receive(core, seq)?;
        }
        self.responder.msn = self.responder.msn.wrapping_add(1);
        self.responder.message_start = seq + 1;
        Ok(())
    }

    fn complete_receive(&mut self, core: &mut Core, seq: Seq) -> Result<(), NakCode> {
        let mtu = self.mtu();
        let queue = &mut self.responder.queue;
        // The peer must use receives in the order of its messages.
        let done = queue.get(queue.head).done.filter(|done| done.last == seq).ok_or(NakCode::InvalidRequest)?;
        // Placed alone, each packet says for itself how long the message is; together they must make it so.
        let packets = seq.since(self.responder.message_start) + 1;
        if self.transport.places_early && u64::from(done.byte_len.div_ceil(mtu).max(1)) != packets {
            return Err(NakCode::InvalidRequest);
        }
        // A message that is refused here has not happened: its receive stays, to be flushed.
        if let RecvTail::SendInvalidate(rkey) = done.tail {
            core.mrs.invalidate(self.pd, self.number, rkey).map_err(|_| NakCode::RemoteAccessError)?;
        }
        let wr_id = queue.get(queue.head).wr_id;
        queue.head = queue.head.wrapping_add(1);
        core.complete(self.recv_cq, recv_completion(self.number, wr_id, &done));
        Ok(())
    }
}

#[inline(always)]
pub(crate) fn recv_completion(qpn: rnic_wire::Qpn, wr_id: u64, done: &RecvDone) -> Completion {
    let (opcode, word, mut flags) = match done.tail {
        RecvTail::Send => (WcOpcode::Recv, 0, WcFlags::empty()),
        RecvTail::SendImm(word) => (WcOpcode::Recv, word, WcFlags::WITH_IMM),
        RecvTail::SendInvalidate(rkey) => (WcOpcode::Recv, rkey, WcFlags::WITH_INV),
        RecvTail::WriteImm(word) => (WcOpcode::RecvRdmaWithImm, word, WcFlags::WITH_IMM),
    };
    flags.set(WcFlags::SOLICITED, done.solicited);
    let (status, source) = (WcStatus::Success, rnic_wire::Qpn::default());
    Completion { wr_id, qpn, status, opcode, byte_len: done.byte_len, word, flags, source }
}
