//! The peer's reads and atomics, from the request to the response.
//!
//! A request is admitted when its packet is accepted, and starts when it is next in order: an atomic is then
//! executed, after its key has been checked once more, and its result is stored.

use rnic_base::{Psn, Seq, Serial};
use rnic_wire::{Aeth, Headers, NakCode, PlacementOp, Position, Reth, Syndrome};

use super::Responder;
use crate::core::{AckKind, Core, write_ack};
use crate::dma::{self, Dma};
use crate::error::{DropReason, RxOutcome};
use crate::mr::Access;
use crate::ready::Half;
use crate::roce::fetch::shared::SharedServer;
use crate::roce::fetch::split::SplitSpaceServer;
use crate::roce::fetch::{Fetch, FetchRequest};
use crate::roce::requester::Requester;
use crate::roce::shared::send_ack;
use crate::verbs::Verbs;

/// The side that serves reads and atomics, by mode, where the requester does not send the responses.
#[derive(Debug)]
pub(super) enum FetchServer {
    /// Responses have a separate sequence space.
    Split(SplitSpaceServer),
    /// Responses use the sequence numbers of their request.
    Shared(SharedServer),
}

impl FetchServer {
    /// Returns whether there is a response to send, regardless of whether it may be sent now.
    pub(super) fn has_work(&self) -> bool {
        match self {
            Self::Split(server) => server.has_work(),
            Self::Shared(server) => server.has_work(),
        }
    }

    /// Returns whether responses must be sent before any acknowledgement.
    pub(super) fn responses_first(&self) -> bool {
        matches!(self, Self::Shared(server) if server.has_work())
    }

    /// Returns whether the peer may still be waiting for a response.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Split(server) => server.is_busy(),
            Self::Shared(server) => server.has_work(),
        }
    }
}

impl Responder {
    /// Returns the server of Read and atomic requests, for transports whose requester does not schedule responses;
    /// allocates it on first use.
    fn server(&mut self, verbs: &Verbs) -> &mut FetchServer {
        let Verbs { head, recv, .. } = verbs;
        let limit = u32::from(recv.fetches_max);
        self.fetches.get_or_insert_with(|| {
            Box::new(if head.transport.split {
                FetchServer::Split(SplitSpaceServer::new(limit, recv.start, &head.transport))
            } else {
                FetchServer::Shared(SharedServer::new(limit))
            })
        })
    }

    /// Admits a checked request, which starts when it is next in order.
    pub(super) fn admit(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        request: FetchRequest,
        (read_sn, stamp): (Option<u32>, u32),
    ) -> Result<(), NakCode> {
        let Verbs { head, recv, .. } = &*verbs;
        let fetch = Fetch { stamp, ..Fetch::new(request, seq, head.mtu(), head.pd) };
        let in_order = seq == self.window.expected;
        let requested_sn = || read_sn.ok_or(NakCode::InvalidRequest);
        if head.transport.scheduled {
            let (requested_sn, next) = (requested_sn()?, requester.next());
            let buffer = requester.peer_fetches.buffer(u32::from(recv.fetches_max));
            let sn = buffer.resolve(requested_sn, in_order)?;
            if let Some(una) = buffer.implied_acknowledgement(sn, next)? {
                requester.advance_responses(verbs, core, una)?;
                if self.has_work() {
                    requester.shared.wake_responder(&verbs.head, core);
                }
            }
            return requester.peer_fetches.buffer(u32::from(verbs.recv.fetches_max)).insert(sn, fetch);
        }
        match self.server(verbs) {
            FetchServer::Shared(server) => server.admit(fetch),
            FetchServer::Split(server) => {
                let sn = server.buffer().resolve(requested_sn()?, in_order)?;
                let next = server.next();
                if let Some(una) = server.buffer().implied_acknowledgement(sn, next)? {
                    server.advance(&mut requester.shared, verbs, core, una);
                }
                server.buffer().insert(sn, fetch)
            }
        }
    }

    /// Returns the fetch that request `seq` carries, if it is next in order.
    fn next_in_order<'a>(&'a mut self, requester: &'a mut Requester, verbs: &Verbs, seq: Seq) -> Option<&'a mut Fetch> {
        let fetch = if verbs.head.transport.scheduled {
            requester.peer_fetches.next_requested()
        } else {
            match self.fetches.as_deref_mut()? {
                FetchServer::Shared(server) => server.newest(seq),
                FetchServer::Split(server) => server.buffer().next(),
            }
        };
        fetch.filter(|fetch| fetch.seq == seq)
    }

    /// Starts the fetch that request `seq` carries; returns how many sequence numbers of a shared space it uses.
    pub(super) fn begin_fetch<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        dma: &mut D,
    ) -> Result<u32, NakCode> {
        let fetch = self.next_in_order(requester, verbs, seq).ok_or(NakCode::InvalidRequest)?;
        let packets = fetch.packets;
        if let Err(code) = execute(fetch, verbs, core, dma) {
            if let Some(FetchServer::Shared(server)) = self.fetches.as_deref_mut() {
                server.withdraw_newest();
            }
            return Err(code);
        }
        verbs.recv.msn = verbs.recv.msn.wrapping_add(1);
        verbs.recv.message_start = seq + 1;
        match self.fetches.as_deref_mut() {
            Some(FetchServer::Shared(server)) => server.begin(seq),
            Some(FetchServer::Split(server)) => server.begin(),
            None => {
                requester.schedule_response(verbs, core);
                return Ok(packets);
            }
        }
        requester.shared.wake_responder(&verbs.head, core);
        Ok(packets)
    }

    /// Returns whether the fetch that is next in order arrived with packet `seq`.
    pub(super) fn fetch_waits_at(&mut self, requester: &mut Requester, verbs: &Verbs, seq: Seq) -> bool {
        let is_shared = matches!(self.fetches.as_deref(), Some(FetchServer::Shared(_)));
        !is_shared && self.next_in_order(requester, verbs, seq).is_some()
    }

    /// Serves again a read (`reth`) or atomic whose request has been repeated (shared space only).
    pub(super) fn serve_repeated(
        &mut self,
        requester: &mut Requester,
        verbs: &Verbs,
        core: &mut Core,
        seq: Seq,
        reth: Option<Reth>,
    ) {
        let (head, expected) = (&verbs.head, self.window.expected);
        if verbs.recv.fetches_max == 0 {
            return;
        }
        if let FetchServer::Shared(server) = self.server(verbs) {
            let found = match reth {
                Some(reth) => {
                    let request = FetchRequest::Read { va: reth.va, rkey: reth.rkey, length: reth.dma_len };
                    Some(Fetch { first: seq, is_retransmission: true, ..Fetch::new(request, seq, head.mtu(), head.pd) })
                }
                None => server.stored_atomic(seq),
            };
            // A repeated request can only cover data that was requested before, so its response must end before the
            // next expected packet.
            if let Some(fetch) = found.filter(|fetch| fetch.end() <= expected) {
                server.repeat(fetch);
                requester.shared.wake_responder(head, core);
            }
        }
    }

    /// Builds the next response packet, in `core.out`, if one may be sent now.
    pub(super) fn transmit_fetched(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core) -> bool {
        let Some(server) = self.fetches.as_deref_mut().filter(|_| verbs.head.state.receives()) else { return false };
        let in_flight = requester.in_flight();
        let has_work = server.has_work();
        if has_work && requester.shared.needs_flow_for_turns(&verbs.head) {
            // The queue pair only receives so far: the transition to `ReadyToSend` starts the scheduler of senders.
            requester.shared.start(&verbs.head, core, in_flight);
        }
        let shared = &mut requester.shared;
        if has_work && shared.waits_for_dequeue_rate(&verbs.head, core, Half::Responder) {
            return false;
        }
        let needs_grant = has_work || verbs.head.transport.pulls == 0;
        if needs_grant && shared.waits_for_pacing(&verbs.head, core, in_flight) {
            return false;
        }
        let is_built = match server {
            FetchServer::Split(server) => server.transmit(shared, verbs, core, in_flight),
            FetchServer::Shared(server) => {
                let result = server.transmit(shared, verbs, core, in_flight);
                let is_retransmission = server.last_was_repeated();
                result.unwrap_or_else(|(seq, code)| {
                    self.refuse_shared(requester, verbs, core, (seq, is_retransmission), code)
                })
            }
        };
        if is_built && requester.shared.has_flow() {
            let has_work = self.fetches.as_ref().is_some_and(|server| server.has_work());
            let ends_message = ends_response(&core.out.packet.headers);
            let is_over = requester.shared.on_served(&verbs.head, core, Half::Responder, ends_message, has_work);
            if !is_over && !requester.shared.responses_queued {
                requester.shared.responses_queued = true;
                core.ready.push_front(Half::Responder, verbs.head.slot);
            }
        }
        is_built
    }

    /// Handles an acknowledgement of responses.
    #[inline(always)]
    pub(in crate::roce) fn on_response_ack(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        ack: (Psn, Aeth, Option<Psn>),
    ) -> RxOutcome {
        let in_flight = requester.in_flight();
        let Some(FetchServer::Split(server)) = self.fetches.as_deref_mut() else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        let outcome = server.on_ack(&mut requester.shared, verbs, core, in_flight, ack);
        if verbs.head.state.receives() && !matches!(outcome, RxOutcome::Dropped(_)) {
            self.wake_serving(requester, verbs, core);
        }
        outcome
    }

    /// Handles the report of a requester that expects response `psn` that response `trimmed` arrived without its
    /// payload.
    #[cold]
    pub(in crate::roce) fn on_response_trim_nack(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        (psn, trimmed): (Psn, Psn),
    ) -> RxOutcome {
        let in_flight = requester.in_flight();
        let Some(FetchServer::Split(server)) = self.fetches.as_deref_mut() else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        let outcome = server.on_trim_nack(&mut requester.shared, verbs, core, in_flight, (psn, trimmed));
        self.wake_serving(requester, verbs, core);
        outcome
    }

    /// Handles the response timer if it is due.
    pub(in crate::roce) fn on_timeout(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core) {
        let in_flight = requester.in_flight();
        if let Some(FetchServer::Split(server)) = self.fetches.as_deref_mut()
            && server.on_timeout(&mut requester.shared, verbs, core, in_flight)
        {
            self.wake_serving(requester, verbs, core);
        }
    }

    /// Keeps the responder in the ring while it has a response or an acknowledgement to send. A retransmission needs
    /// no new credit at the peer, and so does not wait for any.
    #[inline(always)]
    fn wake_serving(&mut self, requester: &mut Requester, verbs: &Verbs, core: &mut Core) {
        let (head, shared) = (&verbs.head, &mut requester.shared);
        let has_retransmission =
            matches!(self.fetches.as_deref(), Some(FetchServer::Split(server)) if server.has_retransmission());
        let queued = shared.responses_queued && has_retransmission;
        if queued && core.peers.stop_waiting(head.peer(), Half::Responder, head.slot) {
            core.ready.requeue(Half::Responder, head.slot);
        }
        if self.has_work() {
            shared.wake_responder(head, core);
        }
    }

    /// Handles the response `psn` in `core.out`, just built, whose data cannot be read: replaces it with the refusal
    /// of the response, if one must be sent; returns whether it did.
    #[cold]
    pub(in crate::roce) fn refuse_built(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        psn: Psn,
        code: NakCode,
    ) -> bool {
        core.segments.clear();
        if let Some(FetchServer::Shared(server)) = self.fetches.as_deref() {
            let refused = (psn.extend(self.window.expected), server.last_was_repeated());
            return self.refuse_shared(requester, verbs, core, refused, code);
        }
        let aeth = Aeth { syndrome: Syndrome::Nak(code), msn: Serial::new(verbs.recv.msn) };
        let packet = &mut core.out.packet;
        if let Headers::ReadResponse { sink, .. } = packet.headers {
            packet.headers = Headers::ReadResponse { position: Position::Only, aeth: Some(aeth), sink };
        }
        packet.payload_len = 0;
        true
    }

    /// Refuses response `seq` of a shared space; returns whether a packet was built. A response that was requested
    /// `is_retransmission` may have arrived before; the NAK is then older than any packet that its requester waits
    /// for. A new response cannot have arrived: its number becomes the expected one again, and the request behind it
    /// is refused.
    #[cold]
    fn refuse_shared(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        (seq, is_retransmission): (Seq, bool),
        code: NakCode,
    ) -> bool {
        let Some(FetchServer::Shared(server)) = self.fetches.as_deref_mut() else { return false };
        if is_retransmission {
            server.drop_rest(seq);
            write_ack(&mut core.out.packet, seq, verbs.recv.msn, AckKind::Refused(code), false);
            send_ack(&verbs.head, &verbs.recv, core);
            return true;
        }
        server.clear();
        self.window.expect(seq);
        self.refuse(requester, verbs, core, code);
        false
    }
}

/// Executes an atomic or a placement operation that is next in order. The key may have been revoked since the request
/// arrived out of order.
fn execute<D: Dma>(fetch: &mut Fetch, verbs: &Verbs, core: &Core, dma: &mut D) -> Result<(), NakCode> {
    let head = &verbs.head;
    match fetch.request {
        FetchRequest::Read { .. } => Ok(()),
        FetchRequest::Atomic { va, rkey, op } => {
            let resolved = core.objects.mrs.resolve_remote((fetch.pd, head.number), rkey, va, 8, Access::REMOTE_ATOMIC);
            let original = resolved.ok().and_then(|local| dma::execute(dma, op, local).ok());
            fetch.original = original.ok_or(NakCode::RemoteAccessError)?;
            Ok(())
        }
        FetchRequest::Placement { va, rkey, op } => {
            head.resolve_placement(core, va, rkey, op).and_then(|local| match op {
                PlacementOp::AtomicWrite { value } => {
                    dma.store(local, u64::from_ne_bytes(value)).map_err(|_| NakCode::RemoteAccessError)
                }
                PlacementOp::Flush { .. } => Ok(()),
            })
        }
    }
}

/// Returns whether a packet with `headers` is the last of its response.
fn ends_response(headers: &Headers) -> bool {
    match headers {
        Headers::ReadResponse { position, .. } => position.ends(),
        _ => true,
    }
}
