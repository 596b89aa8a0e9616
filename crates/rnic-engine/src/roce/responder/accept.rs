//! Checks the validity of request packets and places their payload.

use rnic_base::{Psn, Seq};
use rnic_wire::{Asked, Headers, NakCode, Packet};

use super::Responder;
use crate::core::Core;
use crate::dma::Dma;
use crate::mr::Access;
use crate::roce::fetch::FetchRequest;
use crate::roce::requester::Requester;
use crate::verbs::Verbs;
use crate::verbs::recv::{Message, Refusal};

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);

impl Responder {
    /// Checks a request packet and places its payload. After an error no state has changed.
    #[inline(always)]
    pub(super) fn accept<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        let Verbs { head, recv, .. } = verbs;
        let expected = self.window.expected;
        let (request, read_sn, asked) = match packet.headers {
            Headers::Write { .. } | Headers::Send { .. } => return recv.take(head, core, (expected, seq), packet, dma),
            Headers::ReadResponse { .. } | Headers::AtomicResponse { .. } => {
                return requester.accept_answer(verbs, core, (seq, seq == expected), packet, dma);
            }
            Headers::ReadRequest { reth, read_sn, asked } => {
                let request = FetchRequest::Read { va: reth.va, rkey: reth.rkey, length: reth.dma_len };
                (request, read_sn, asked.unwrap_or(Asked { expects: Psn::new(0), stamp: 0 }))
            }
            Headers::AtomicRequest { va, rkey, op, read_sn, expects } => {
                (FetchRequest::Atomic { va, rkey, op }, read_sn, Asked { expects: expects.into(), stamp: 0 })
            }
            Headers::PlacementRequest { va, rkey, op, read_sn, expects } => {
                (FetchRequest::Placement { va, rkey, op }, read_sn, Asked { expects: expects.into(), stamp: 0 })
            }
            _ => return Err(INVALID),
        };
        self.accept_fetch(requester, verbs, core, seq, request, (read_sn.map(|sn| sn.value()), asked))
    }

    #[inline(never)]
    fn accept_fetch(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        request: FetchRequest,
        (read_sn, asked): (Option<u32>, Asked),
    ) -> Result<(), Refusal> {
        let head = &verbs.head;
        let granted = match request {
            FetchRequest::Read { length, .. } if u64::from(length) > rnic_base::limits::MESSAGE_BYTES_MAX => {
                return Err(INVALID);
            }
            FetchRequest::Read { va, rkey, length } => head.resolve_fetch(core, va, rkey, length, Access::REMOTE_READ),
            FetchRequest::Atomic { va, rkey, .. } => head.resolve_fetch(core, va, rkey, 8, Access::REMOTE_ATOMIC),
            FetchRequest::Placement { va, rkey, op } => head.resolve_placement(core, va, rkey, op),
        };
        if verbs.recv.fetches_max == 0 {
            return Err(INVALID);
        }
        granted.map_err(Refusal::Nak)?;
        if !head.transport.places_early && verbs.recv.message != Message::None {
            return Err(INVALID);
        }
        if head.transport.scheduled {
            requester.learn_start(verbs, asked.expects);
        }
        self.admit(requester, verbs, core, seq, request, (read_sn, asked.stamp)).map_err(Refusal::Nak)
    }
}
