//! Early requests where the receiver counts its losses: FaSR's fast and slow path.
//!
//! Source: FaSR (2025) sections III-B.1 and III-D; mechanisms. What is remembered where is the
//! pool's business ([`crate::window`]).
//!
//! Choices: a copy of what is here is dropped and acknowledged; a receiver that finds no room stops
//! placing and reports the gap, once for each pass of the sender.

use rnic_base::Seq;
use rnic_wire::{LossCause, Packet};

use crate::core::{AckKind, Core};
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::qp::Qp;
use crate::window::{LaneId, Standing};

/// What is to be done with an early packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Place and keep it.
    Keep,
    /// It is here already.
    Copy,
    /// It belongs between the hole and the highest packet: drop it and say so.
    Misplaced,
    /// Drop it, as go-back-N does.
    FallBack,
}

impl Qp {
    #[inline(never)]
    pub(super) fn receive_early_pooled<D: Dma>(
        &mut self,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        match self.judge_early(core, seq) {
            Verdict::Keep => {}
            Verdict::Copy => return self.receive_duplicate(core, seq, packet),
            Verdict::Misplaced => {
                let kind = AckKind::Loss(LossCause::Misplaced, seq.wire(), self.lost(core));
                self.acknowledge(core, kind);
                return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
            }
            Verdict::FallBack => {
                if self.responder.window.gap_is_news(seq) {
                    self.acknowledge(core, AckKind::Gap);
                }
                return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
            }
        }
        if self.accept(core, seq, packet, dma).is_err() {
            self.acknowledge(core, AckKind::Gap);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        self.keep_early(core, seq, packet);
        let kind = self.early_ack(core, seq);
        self.acknowledge(core, kind);
        RxOutcome::Early
    }

    fn judge_early(&mut self, core: &mut Core, seq: Seq) -> Verdict {
        let Self { responder, transport, .. } = self;
        let window = &mut responder.window;
        let mut bits = core.pools.bits(transport.pool, &mut responder.sr, LaneId::RequestsIn);
        match window.standing(seq, &bits) {
            Standing::Kept => Verdict::Copy,
            Standing::Refused => Verdict::FallBack,
            Standing::Between => {
                bits.count_misplaced();
                Verdict::Misplaced
            }
            Standing::New if bits.has_room(window.expected, seq) => Verdict::Keep,
            Standing::New => {
                window.fall_back(seq, transport.window_bits, &mut bits);
                Verdict::FallBack
            }
        }
    }

    fn lost(&mut self, core: &mut Core) -> crate::window::Lost {
        core.pools.bits(self.transport.pool, &mut self.responder.sr, LaneId::RequestsIn).lost()
    }

    /// What an early packet that was kept is answered with.
    pub(in crate::qp) fn early_ack(&mut self, core: &mut Core, seq: Seq) -> AckKind {
        match self.transport.pool {
            Some(_) => AckKind::Loss(LossCause::Early, seq.wire(), self.lost(core)),
            None => AckKind::Nack(seq.wire()),
        }
    }

    /// What the packet that was missing is answered with.
    #[cold]
    pub(in crate::qp) fn repaired_ack(&mut self, core: &mut Core, seq: Seq) -> AckKind {
        match self.transport.pool {
            Some(_) => AckKind::Loss(LossCause::Repaired, seq.wire(), self.lost(core)),
            None => AckKind::Ack,
        }
    }
}
