//! Out-of-order requests, where the receiver counts lost packets: FaSR's fast and slow path.
//!
//! Source: FaSR (2025) sections III-B.1 and III-D; mechanisms. The shared pool determines how
//! packets are recorded ([`crate::window`]).
//!
//! Choices: a duplicate of a packet that was kept is dropped and acknowledged; a receiver that finds no space stops
//! placing and reports the gap, once for each time that the sender repeats its packets.

use rnic_base::Seq;
use rnic_wire::{LossCause, Packet};

use super::Responder;
use crate::core::{AckKind, Core};
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::roce::requester::Requester;
use crate::verbs::Verbs;
use crate::window::{LaneId, Lost, RxClass};

/// Action for an out-of-order packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Place and keep it.
    Keep,
    /// Duplicate of a packet that was kept: acknowledge the packet again.
    Copy,
    /// Drop and report it: it belongs between the gap and the highest packet.
    Misplaced,
    /// Drop it, as go-back-N does.
    FallBack,
}

impl Responder {
    #[inline(never)]
    pub(super) fn on_out_of_order_pooled<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        match self.judge(requester, verbs, core, seq) {
            Verdict::Keep => {}
            Verdict::Copy => return self.on_duplicate(requester, verbs, core, seq, packet),
            Verdict::Misplaced => {
                let kind = AckKind::Loss(LossCause::Misplaced, seq.wire(), lost(requester, verbs, core));
                self.acknowledge(requester, verbs, core, kind);
                return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
            }
            Verdict::FallBack => {
                if self.window.is_new_gap(seq) {
                    self.acknowledge(requester, verbs, core, AckKind::Gap);
                }
                return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
            }
        }
        if self.accept(requester, verbs, core, seq, packet, dma).is_err() {
            self.acknowledge(requester, verbs, core, AckKind::Gap);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        self.keep_out_of_order(requester, verbs, core, seq, packet);
        let kind = self.out_of_order_ack(requester, verbs, core, seq);
        self.acknowledge(requester, verbs, core, kind);
        RxOutcome::OutOfOrder
    }

    fn judge(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core, seq: Seq) -> Verdict {
        let (transport, window) = (&verbs.head.transport, &mut self.window);
        let mut bits = core.pools.bits(transport.pool, &mut requester.shared.pool, LaneId::RequestsIn);
        match window.class_of(seq, &bits) {
            RxClass::Kept => Verdict::Copy,
            RxClass::Refused => Verdict::FallBack,
            RxClass::Between => {
                bits.count_misplaced();
                Verdict::Misplaced
            }
            RxClass::New if bits.has_room(window.expected, seq) => Verdict::Keep,
            RxClass::New => {
                window.fall_back(seq, transport.window_bits, &mut bits);
                Verdict::FallBack
            }
        }
    }

    /// Returns the acknowledgement for an out-of-order packet that was kept.
    pub(super) fn out_of_order_ack(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
    ) -> AckKind {
        match verbs.head.transport.pool {
            Some(_) => AckKind::Loss(LossCause::OutOfOrder, seq.wire(), lost(requester, verbs, core)),
            None => AckKind::Nack(seq.wire()),
        }
    }

    /// Returns the acknowledgement for the missing packet, which has arrived.
    #[cold]
    pub(super) fn repaired_ack(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
    ) -> AckKind {
        match verbs.head.transport.pool {
            Some(_) => AckKind::Loss(LossCause::Repaired, seq.wire(), lost(requester, verbs, core)),
            None => AckKind::Ack,
        }
    }
}

/// Returns the number of packets that the receiver misses, and whether its counter has overflowed.
fn lost(requester: &mut Requester, verbs: &Verbs, core: &mut Core) -> Lost {
    core.pools.bits(verbs.head.transport.pool, &mut requester.shared.pool, LaneId::RequestsIn).lost()
}
