//! Checks the validity of request packets and places their payload.

use rnic_base::{Psn, Seq};
use rnic_wire::{FasrReadFields, Headers, NakCode, Packet};

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
    /// Checks a request packet and places its payload. An error changes no state.
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
        let (request, read_sn, fasr) = match packet.headers {
            Headers::Write { .. } | Headers::Send { .. } => return recv.take(head, core, (expected, seq), packet, dma),
            Headers::ReadResponse { .. } | Headers::AtomicResponse { .. } => {
                return requester.accept_scheduled_response(verbs, core, (seq, seq == expected), packet, dma);
            }
            Headers::ReadRequest { reth, read_sn, fasr } => {
                let request = FetchRequest::Read { va: reth.va, rkey: reth.rkey, length: reth.dma_len };
                (request, read_sn, fasr.unwrap_or(FasrReadFields { expected_psn: Psn::new(0), stamp: 0 }))
            }
            Headers::AtomicRequest { va, rkey, op, read_sn, expected_psn } => (
                FetchRequest::Atomic { va, rkey, op },
                read_sn,
                FasrReadFields { expected_psn: expected_psn.into(), stamp: 0 },
            ),
            Headers::PlacementRequest { va, rkey, op, read_sn, expected_psn } => (
                FetchRequest::Placement { va, rkey, op },
                read_sn,
                FasrReadFields { expected_psn: expected_psn.into(), stamp: 0 },
            ),
            _ => return Err(INVALID),
        };
        self.accept_fetch(requester, verbs, core, seq, request, (read_sn.map(|sn| sn.value()), fasr))
    }

    #[inline(never)]
    fn accept_fetch(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        request: FetchRequest,
        (read_sn, fasr): (Option<u32>, FasrReadFields),
    ) -> Result<(), Refusal> {
        let head = &verbs.head;
        let access_check = match request {
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
        access_check.map_err(Refusal::Nak)?;
        if !head.transport.places_out_of_order && verbs.recv.message != Message::None {
            return Err(INVALID);
        }
        if head.transport.scheduled {
            requester.set_start_from_peer(verbs, fasr.expected_psn);
        }
        self.admit(requester, verbs, core, seq, request, (read_sn, fasr.stamp)).map_err(Refusal::Nak)
    }
}
