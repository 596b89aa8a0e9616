//! The target of an extended reliable connection (XRC): each message consumes a receive of the shared receive queue
//! whose number it carries, among those in the target's XRC domain.
//!
//! Source: InfiniBand Architecture volume 1, annex A14. A target has no protection domain and no completion queue of
//! its own: a message is placed and completed with those of its shared receive queue. Requests that consume no receive
//! may access the memory that any queue of the domain may access, which is what the annex lets a peer do by naming that
//! queue.
//!
//! Only the packet that is expected is accepted: the queue from which an out-of-order message consumes its receive is
//! not known before the preceding packets have arrived. Transports that keep out-of-order packets report a gap, and the
//! packets are retransmitted.

use rnic_base::Seq;
use rnic_wire::{Headers, NakCode, Packet, Qpn};

use crate::core::{AckKind, Core};
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::roce::requester::Requester;
use crate::roce::responder::Responder;
use crate::verbs::Verbs;
use crate::verbs::recv::Message;
use crate::{CqId, PdId, SrqId};

/// Protection domain and receive queue that apply to a packet.
#[derive(Clone, Copy)]
struct Context {
    pd: PdId,
    queue: Option<(SrqId, CqId)>,
}

impl Responder {
    /// Handles a request packet for a target.
    #[cold]
    #[inline(never)]
    pub(super) fn on_target_request<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let expected = self.window.expected;
        let seq = packet.psn.extend(expected);
        if seq > expected {
            if verbs.head.transport.places_out_of_order || self.window.is_new_gap(seq) {
                self.report_gap(requester, verbs, core, AckKind::Gap);
            }
            return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
        }
        let Some(context) = self.context_of(verbs, core, seq, &packet.headers) else {
            if seq == expected && verbs.recv.refused.is_none() {
                self.refuse(requester, verbs, core, NakCode::InvalidRequest);
            }
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        };
        let own_context = (verbs.head.pd, verbs.head.recv_cq);
        verbs.head.pd = context.pd;
        if let Some((srq, cq)) = context.queue {
            (verbs.head.srq, verbs.head.recv_cq) = (Some(srq), cq);
        }
        let unshared = Packet { headers: packet.headers.unshared(), ..*packet };
        let outcome = self.on_any_request(requester, verbs, core, &unshared, dma);
        let in_progress = verbs.recv.queue.len() > 0;
        // A duplicate of an earlier packet carries no information on the current message.
        if seq == expected
            && let Some(target) = core.targets.get_mut(&verbs.head.number.get())
        {
            target.current = context.queue.map(|(srq, _)| srq).filter(|_| in_progress);
        }
        (verbs.head.pd, verbs.head.recv_cq) = own_context;
        verbs.head.srq = None;
        outcome
    }

    /// Returns the context that permits the packet `seq`; `None` when it names a queue that it must not use.
    fn context_of(&self, verbs: &Verbs, core: &Core, seq: Seq, headers: &Headers) -> Option<Context> {
        let target = core.targets.get(&verbs.head.number.get())?;
        if let Some(srqn) = headers.srqn() {
            let srq = core.shared_queue(target.domain, srqn)?;
            let is_other_queue = target.current.is_some_and(|current| current != srq);
            if is_other_queue && seq == self.window.expected {
                return None;
            }
            let queue = core.objects.srqs[srq.index()].as_ref()?;
            let (_, cq) = queue.shared?;
            return Some(Context { pd: queue.pd, queue: Some((srq, cq)) });
        }
        let rkey = match (headers, verbs.recv.message) {
            // A packet that consumes a receive must name the shared receive queue.
            (Headers::Send { .. } | Headers::Write { immediate: Some(_), .. }, _) => return None,
            (Headers::Write { reth: Some(reth), .. } | Headers::ReadRequest { reth, .. }, _) => reth.rkey,
            (Headers::Write { .. }, Message::Write { rkey, .. }) => rkey,
            (Headers::AtomicRequest { rkey, .. } | Headers::PlacementRequest { rkey, .. }, _) => *rkey,
            _ => return Some(Context { pd: verbs.head.pd, queue: None }),
        };
        let pd = core.objects.mrs.domain_of(rkey).filter(|pd| core.shares_domain(target.domain, *pd));
        Some(Context { pd: pd.unwrap_or(verbs.head.pd), queue: None })
    }
}

impl Core {
    /// Returns the shared receive queue with the number `srqn`, when it is in the XRC domain.
    fn shared_queue(&self, domain: u32, srqn: Qpn) -> Option<SrqId> {
        let id = SrqId::numbered(srqn.get())?;
        let queue = self.objects.srqs.get(id.index())?.as_ref()?;
        queue.shared.filter(|(other_domain, _)| *other_domain == domain).map(|_| id)
    }

    /// Returns whether a shared receive queue of the XRC domain belongs to `pd`.
    fn shares_domain(&self, domain: u32, pd: PdId) -> bool {
        self.objects
            .srqs
            .iter()
            .flatten()
            .any(|srq| srq.pd == pd && srq.shared.is_some_and(|(other_domain, _)| other_domain == domain))
    }
}
