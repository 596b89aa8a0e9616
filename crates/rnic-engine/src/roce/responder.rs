//! The responder: processes the peer's requests, in order.
//!
//! A packet is *accepted* (checked and placed), then *executed* (message counted, receive completed, read or atomic
//! started). For a packet in order, both happen immediately. A transport that places out-of-order packets (IRN
//! section 5.3) accepts them on arrival and executes them when everything before has arrived; an out-of-order packet
//! that fails the checks is not kept, and is checked again when it is next in order, so that errors, too, are
//! reported in order.
//!
//! ```text
//!   responder/accept.rs   checks and placement, by kind of packet
//!   responder/execute.rs  execution of packets, in order
//!   responder/fetches.rs  the peer's reads and atomics, from request to response
//!   responder/out_of_order.rs  out-of-order packets, where the receiver counts losses (FaSR)
//! ```
//!
//! Responder functions take the requester as an argument, never the other way round: a response may complete a fetch,
//! and scheduled responses are sent by the requester.

mod accept;
mod execute;
mod fetches;
mod out_of_order;

use rnic_base::{Psn, Seq};
use rnic_wire::{Headers, NakCode, Packet};

use super::requester::Requester;
use super::requester::responses::ack_for_repair;
use super::shared::send_ack;
use crate::core::{AckKind, Control, ControlPacket, Core, write_ack};
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::ready::Half;
use crate::state::QpState;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::recv::Refusal;
use crate::window::{Arrival, LaneId, ReceiveWindow};

use fetches::FetchServer;

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(super) window: ReceiveWindow,
    /// The peer's reads and atomics, where the requester does not send the responses; allocated with the first one.
    fetches: Option<Box<FetchServer>>,
    /// Acknowledgement to send when the responder is next scheduled: in transports that may merge acknowledgements, or
    /// when the control queue was full.
    pending_ack: Option<AckKind>,
}

impl Responder {
    /// Creates a responder for requests that start with number `start`.
    pub(crate) fn new(start: Seq) -> Self {
        Self { window: ReceiveWindow::new(start), fetches: None, pending_ack: None }
    }

    /// Returns the request packet that is expected next.
    #[inline]
    pub(crate) fn expected(&self) -> Seq {
        self.window.expected
    }

    /// Returns whether the peer may still be waiting for a response from this responder.
    pub(super) fn has_pending_responses(&self) -> bool {
        self.fetches.as_ref().is_some_and(|fetches| fetches.is_busy())
    }

    /// Returns the number of responses in flight in a separate sequence space.
    pub(super) fn responses_in_flight(&self) -> u64 {
        match self.fetches.as_deref() {
            Some(FetchServer::Split(server)) => server.in_flight(),
            _ => 0,
        }
    }

    /// Returns the deadline of the response timer.
    pub(super) fn next_timeout(&self) -> Deadline {
        match self.fetches.as_deref() {
            Some(FetchServer::Split(server)) => server.next_timeout(),
            _ => Deadline::NEVER,
        }
    }

    /// Returns the number of timeouts of responses that acknowledgements have shown to be spurious.
    pub(super) fn spurious_timeouts(&self) -> u32 {
        match self.fetches.as_deref() {
            Some(FetchServer::Split(server)) => server.spurious_timeouts(),
            _ => 0,
        }
    }

    /// Releases the NIC resources that the responder holds: credit at the peer.
    pub(super) fn stop(&self, verbs: &Verbs, core: &mut Core) {
        if let Some(FetchServer::Split(server)) = self.fetches.as_deref() {
            server.stop(verbs, core);
        }
    }

    /// Returns whether there is a packet to send, regardless of whether it may be sent now.
    #[inline(always)]
    pub(crate) fn has_work(&self) -> bool {
        self.pending_ack.is_some() || self.fetches.as_ref().is_some_and(|fetches| fetches.has_work())
    }

    /// Handles a request packet (IRN's `receiveData`).
    #[inline(always)]
    pub(crate) fn on_request<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        if verbs.recv.is_target {
            return self.on_target_request(requester, verbs, core, packet, dma);
        }
        self.on_any_request(requester, verbs, core, packet, dma)
    }

    /// Handles a response that the peer has sent as a request packet (FaSR).
    #[inline(never)]
    pub(crate) fn on_scheduled_response<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        self.on_request(requester, verbs, core, packet, dma)
    }

    /// Handles a request packet for any type of queue pair.
    #[inline(always)]
    pub(super) fn on_any_request<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let seq = packet.psn.extend(self.window.expected);
        if verbs.recv.refused.is_some() {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        let window_bits = verbs.head.transport.out_of_order_reach;
        verbs.recv.note_first_packet(&verbs.head, core);
        match self.window.classify(seq, window_bits) {
            Arrival::InOrder => self.in_order(requester, verbs, core, seq, packet, dma),
            Arrival::OutOfOrder if verbs.head.transport.pool.is_some() => {
                self.on_out_of_order_pooled(requester, verbs, core, seq, packet, dma)
            }
            Arrival::OutOfOrder => self.on_out_of_order(requester, verbs, core, seq, packet, dma),
            Arrival::Duplicate => self.on_duplicate(requester, verbs, core, seq, packet),
            Arrival::Outside => {
                let keeps_out_of_order = verbs.head.transport.places_out_of_order;
                let reports_every_packet = keeps_out_of_order && !verbs.head.transport.places_writes_only;
                if reports_every_packet || self.window.is_new_gap(seq) {
                    self.report_gap(requester, verbs, core, AckKind::Gap);
                }
                let reason = if keeps_out_of_order { DropReason::OutOfWindow } else { DropReason::OutOfOrder };
                RxOutcome::Dropped(core.drop_packet(reason))
            }
        }
    }

    #[inline(always)]
    fn in_order<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        match self.accept(requester, verbs, core, seq, packet, dma) {
            Ok(()) => {}
            Err(Refusal::NotReady) => {
                core.stats.rnr_naks_sent += 1;
                verbs.stats.rnr_naks_sent += 1;
                self.acknowledge(requester, verbs, core, AckKind::NotReady(verbs.head.min_rnr_timer.code()));
                return RxOutcome::Dropped(core.drop_packet(DropReason::ReceiverNotReady));
            }
            Err(Refusal::Nak(code)) => {
                self.refuse(requester, verbs, core, code);
                return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
            }
        }
        if let Err(code) = self.execute(requester, verbs, core, packet, seq, dma) {
            self.refuse(requester, verbs, core, code);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        if !self.window.is_in_order() {
            return self.finish_repair(requester, verbs, core, seq, packet, dma);
        }
        self.acknowledge_in_order(requester, verbs, core, seq, packet, AckKind::Ack);
        RxOutcome::Accepted
    }

    /// Executes the out-of-order packets that follow packet `seq`, which was missing and has just been executed.
    #[inline(never)]
    fn finish_repair<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        if let Err(code) = self.drain_out_of_order(requester, verbs, core, dma) {
            self.refuse(requester, verbs, core, code);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        let kind = if verbs.head.transport.acks_every_packet {
            self.repaired_ack(requester, verbs, core, seq)
        } else {
            ack_for_repair(&verbs.head.transport, &self.window)
        };
        self.acknowledge_in_order(requester, verbs, core, seq, packet, kind);
        RxOutcome::Accepted
    }

    /// Sends an acknowledgement of type `kind` for a packet that was expected and has been executed, if one is due.
    #[inline(always)]
    fn acknowledge_in_order(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        kind: AckKind,
    ) {
        if verbs.head.transport.acks_every_packet {
            self.acknowledge(requester, verbs, core, kind);
        } else if self.must_acknowledge(&verbs.head, packet) || self.has_out_of_order_behind(&verbs.head, seq) {
            self.pending_ack = None;
            self.schedule_ack(requester, verbs, core, kind);
        }
    }

    /// Returns whether packets that follow `seq`, which was just accepted in order, had been received before. If so,
    /// the acknowledgements that they requested are due now.
    fn has_out_of_order_behind(&self, head: &Head, seq: Seq) -> bool {
        head.transport.places_out_of_order && self.window.expected > seq + 1
    }

    /// Reports a gap to the sender, if its transport processes such reports.
    #[inline(never)]
    pub(super) fn report_gap(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core, kind: AckKind) {
        if verbs.head.transport.reports_gaps {
            self.acknowledge(requester, verbs, core, kind);
        }
    }

    /// Returns whether this packet, just accepted in order, must be acknowledged: because it requests an
    /// acknowledgement, or because it has closed a gap that was still to be reported. Where responses use the
    /// requests' sequence numbers, they are the acknowledgements of Reads and atomics.
    fn must_acknowledge(&self, head: &Head, packet: &Packet) -> bool {
        let fetches = matches!(
            packet.headers,
            Headers::ReadRequest { .. } | Headers::AtomicRequest { .. } | Headers::PlacementRequest { .. }
        );
        let is_acked_by_response = fetches && !head.transport.split;
        (packet.flags.ack_request && !is_acked_by_response) || self.pending_ack.is_some_and(|ack| ack != AckKind::Ack)
    }

    #[inline(never)]
    fn on_out_of_order<D: Dma>(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        if verbs.head.transport.places_writes_only && !matches!(packet.headers, Headers::Write { immediate: None, .. })
        {
            if self.window.is_new_gap(seq) {
                self.report_gap(requester, verbs, core, AckKind::Gap);
            }
            return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
        }
        if self.accept(requester, verbs, core, seq, packet, dma).is_err() {
            self.report_gap(requester, verbs, core, AckKind::Gap);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        self.keep_out_of_order(requester, verbs, core, seq, packet);
        self.report_gap(requester, verbs, core, AckKind::Nack(seq.wire()));
        RxOutcome::OutOfOrder
    }

    /// Records an out-of-order packet, which has been placed.
    pub(super) fn keep_out_of_order(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
    ) {
        let has_action = match packet.headers {
            Headers::Send { position, .. }
            | Headers::Write { position, .. }
            | Headers::ReadResponse { position, .. } => position.ends(),
            _ => true,
        };
        let transport = &verbs.head.transport;
        let mut bits = core.pools.bits(transport.pool, &mut requester.shared.pool, LaneId::RequestsIn);
        self.window.keep(seq, has_action, transport.window_bits, &mut bits);
        core.stats.packets_out_of_order += 1;
    }

    /// Handles a request seen before: its acknowledgement or response was lost, or the retransmission was
    /// unnecessary.
    #[inline(never)]
    pub(super) fn on_duplicate(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
    ) -> RxOutcome {
        if seq < verbs.recv.start {
            // The packet belongs to an earlier connection of this queue pair: nothing must be executed again, in
            // particular no read.
            return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfWindow));
        }
        core.stats.packets_duplicate += 1;
        if verbs.head.transport.split {
            // Responses have a separate space and timer: their loss is handled independently of the request (I-19,
            // R-21).
            if let Headers::ReadRequest { fasr: Some(fasr), .. } = packet.headers {
                requester.peer_fetches.note_resubmission(core, seq, fasr.stamp);
            }
            self.acknowledge(requester, verbs, core, AckKind::Ack);
            return RxOutcome::Duplicate;
        }
        match packet.headers {
            Headers::ReadRequest { reth, .. } => self.serve_repeated(requester, verbs, core, seq, Some(reth)),
            Headers::AtomicRequest { .. } | Headers::PlacementRequest { .. } => {
                self.serve_repeated(requester, verbs, core, seq, None);
            }
            _ => self.schedule_ack(requester, verbs, core, AckKind::Ack),
        }
        RxOutcome::Duplicate
    }

    /// Answers a request that arrived without its payload.
    #[cold]
    pub(super) fn on_trimmed_request(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
        psn: Psn,
    ) {
        let seq = psn.extend(self.window.expected);
        if verbs.recv.refused.is_some() || seq < verbs.recv.start {
            return;
        }
        let kind = match self.window.classify(seq, verbs.head.transport.out_of_order_reach) {
            Arrival::Duplicate => AckKind::Ack,
            Arrival::InOrder | Arrival::OutOfOrder => AckKind::Trimmed(psn),
            Arrival::Outside => return,
        };
        self.acknowledge(requester, verbs, core, kind);
    }

    /// Sends an acknowledgement: immediately where every packet is acknowledged, otherwise when the responder is next
    /// scheduled (in a shared space after the responses before it, see [`Responder::transmit`]).
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core, kind: AckKind) {
        if !verbs.head.transport.acks_every_packet {
            return self.schedule_ack(requester, verbs, core, kind);
        }
        let (expected, content) = (self.window.expected, Control::Ack { kind, echo: core.packet_was_marked });
        let (slot, from, msn) = (verbs.head.slot, verbs.head.number, verbs.recv.msn);
        let control = ControlPacket { slot, from, expected, msn, content };
        if !core.push_control(control) {
            requester.shared.set_echo_pending(core.packet_was_marked);
            self.schedule_ack(requester, verbs, core, kind);
        }
    }

    /// Records that an acknowledgement has to be sent to the requester. A receiver-not-ready NAK or a refusal stays
    /// pending until the packet that caused it is accepted after all.
    fn schedule_ack(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core, kind: AckKind) {
        let stays_pending = |kind| matches!(kind, AckKind::NotReady(_) | AckKind::Refused(_));
        // A pending report of dropped packets, which is sent only once, is not replaced by a report of kept packets,
        // which can be repeated.
        let is_covered = verbs.head.transport.places_writes_only
            && self.pending_ack == Some(AckKind::Gap)
            && matches!(kind, AckKind::Nack(_));
        if stays_pending(kind) || !(is_covered || self.pending_ack.is_some_and(stays_pending)) {
            self.pending_ack = Some(kind);
        }
        // Responses may wait for credit at the peer; an owed acknowledgement does not.
        let may_be_waiting =
            verbs.head.transport.split && !verbs.head.transport.acks_every_packet && requester.shared.responses_queued;
        if may_be_waiting && core.peers.stop_waiting(verbs.head.peer(), Half::Responder, verbs.head.slot) {
            core.ready.requeue(Half::Responder, verbs.head.slot);
        }
        requester.shared.wake_responder(&verbs.head, core);
    }

    /// Builds the responder's next packet, in `core.out`. In a shared space responses are sent first: an
    /// acknowledgement that overtook them would indicate to the requester that they are lost. In split spaces an
    /// acknowledgement carries no information about responses, and a requester that waits for it cannot post further
    /// Reads although its Read data has arrived. There the acknowledgement is sent first.
    pub(super) fn transmit(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core) -> bool {
        requester.shared.responses_queued = false;
        if let Some(expected) = requester.responses.as_mut().and_then(|responses| responses.take_pending_ack()) {
            write_ack(&mut core.out.packet, expected, 0, AckKind::Ack, true);
            core.out.packet.flags.becn = requester.shared.take_pending_echo();
            send_ack(&verbs.head, &verbs.recv, core);
            requester.shared.wake_responder(&verbs.head, core);
            return true;
        }
        let acks_first = verbs.head.transport.split && !verbs.head.transport.acks_every_packet;
        let is_built = acks_first && self.transmit_pending_ack(requester, verbs, core)
            || self.transmit_fetched(requester, verbs, core)
            || self.transmit_pending_ack(requester, verbs, core);
        if is_built && self.has_work() {
            requester.shared.wake_responder(&verbs.head, core);
        }
        is_built
    }

    fn transmit_pending_ack(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core) -> bool {
        let Some(kind) = self.pending_ack else { return false };
        let is_refusal = matches!(kind, AckKind::Refused(_));
        // The refusal is sent only when the responses to all requests before the refused one have been sent and
        // acknowledged.
        let responds = verbs.head.state.receives();
        let must_wait = if is_refusal {
            responds && (self.has_pending_responses() || requester.peer_fetches.has_pending())
        } else {
            self.fetches.as_ref().is_some_and(|fetches| fetches.responses_first())
        };
        if must_wait {
            return false;
        }
        self.pending_ack = None;
        write_ack(&mut core.out.packet, self.window.expected, verbs.recv.msn, kind, false);
        core.out.packet.flags.becn = requester.shared.take_pending_echo();
        if let AckKind::Refused(code) = kind
            && verbs.head.state != QpState::Error
        {
            verbs.fail_as_responder(core, code);
        }
        send_ack(&verbs.head, &verbs.recv, core);
        true
    }

    /// Refuses the request that is expected now, which cannot be executed: no further requests are accepted.
    pub(crate) fn refuse(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core, code: NakCode) {
        verbs.recv.refused = Some(code);
        self.schedule_ack(requester, verbs, core, AckKind::Refused(code));
    }

    /// Handles a request that arrives at a queue pair which no longer accepts any. When the queue pair failed because
    /// it refused a request, and the refusal was lost, the refusal is repeated; otherwise nothing is sent.
    pub(crate) fn on_request_in_error(
        &mut self,
        requester: &mut Requester,
        verbs: &mut Verbs,
        core: &mut Core,
    ) -> RxOutcome {
        self.repeat_refusal(requester, verbs, core);
        RxOutcome::Dropped(core.drop_packet(DropReason::State))
    }

    /// Sends the refusal of a request again; returns whether the queue pair has failed because it refused a request.
    pub(crate) fn repeat_refusal(&mut self, requester: &mut Requester, verbs: &mut Verbs, core: &mut Core) -> bool {
        let code = verbs.recv.refused.filter(|_| verbs.head.state == QpState::Error);
        if let Some(code) = code {
            self.schedule_ack(requester, verbs, core, AckKind::Refused(code));
        }
        code.is_some()
    }
}
