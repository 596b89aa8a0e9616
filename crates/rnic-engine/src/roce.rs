//! Connections of the RoCE family: RoCE, IRN and FaSR, distinguished by the settings prepared in [`crate::Transport`].
//!
//! ```text
//!   roce/shared.rs     what both halves use: congestion control, scheduling, pacing, paths, the timer, the scheduling
//!                      turn (packets per scheduling round)
//!   roce/fetch.rs      reads and atomics of the peer, and responses to them
//!   roce/requester.rs  the window of requests: packets, acknowledgements, responses, timeouts
//!   roce/responder.rs  the peer's requests: order, acceptance, execution, acknowledgements
//!   roce/target.rs     targets of extended reliable connections (XRC)
//!   roce/pulls.rs      connections whose receivers pull (NDP)
//! ```
//!
//! Each file may use those above it. The verbs half is stored beside the connection and passed as an argument.

mod fetch;
mod pulls;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod shared;
mod target;

use rnic_base::{BitRate, Seq};
use rnic_policy::{ControlEvent, Cwnd, PathEvent};
use rnic_wire::{Headers, Packet};

use crate::completion::WcStatus;
use crate::core::{AckKind, Control, ControlPacket, Core};
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::limiter::Limiter;
use crate::packet::TransmitKind;
use crate::processors::Processed;
use crate::ready::Half;
use crate::state::QpState;
use crate::timer::Deadline;
use crate::transport::Transport;
use crate::verbs::Verbs;

use requester::Requester;
use responder::Responder;

/// Event of a probe, for the policy that receives it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeOutcome {
    Control(ControlEvent),
    Path(PathEvent),
}

/// A connection: requester and responder. This type only dispatches calls.
#[derive(Debug)]
pub(crate) struct RoceConnection {
    requester: Requester,
    responder: Responder,
}

impl RoceConnection {
    pub(crate) fn new(transport: &Transport) -> Self {
        Self { requester: Requester::new(transport), responder: Responder::new(Seq::UNSET) }
    }

    /// Starts to accept packets, numbered from `start`.
    pub(crate) fn begin_receiving(&mut self, verbs: &mut Verbs, start: Seq) {
        self.responder = Responder::new(start);
        self.requester.shared.start_tokens(&verbs.head);
        verbs.head.begin_accepting();
    }

    /// Starts to send, with packets numbered from `start`, unless the peer has already determined the first number.
    pub(crate) fn begin_sending(&mut self, verbs: &mut Verbs, core: &mut Core, start: Seq) {
        let Self { requester, .. } = self;
        if verbs.send.start == Seq::UNSET {
            requester.start_at(&mut verbs.send, start, &verbs.head.transport);
        }
        requester.shared.start_paths(&mut verbs.head, core.now);
        self.start_flow(verbs, core);
        if verbs.head.transport.credits {
            self.requester.shared.optional.add_credits();
        }
    }

    /// Replaces the limits of the dequeue rate.
    pub(crate) fn set_limiter(&mut self, verbs: &mut Verbs, core: &mut Core, limiter: Limiter) {
        let Self { requester, responder } = self;
        requester.shared.set_limiter(&verbs.head, core, limiter);
        if verbs.head.transmits() {
            requester.wake(verbs, core);
        }
        if responder.has_work() {
            requester.shared.wake_responder(&verbs.head, core);
        }
    }

    /// Applies a change of the weight of the queue pair.
    pub(crate) fn set_weight(&mut self, verbs: &Verbs, core: &mut Core) {
        self.requester.shared.set_weight(&verbs.head, core);
    }

    /// See [`crate::qp::Qp::on_processed`].
    pub(crate) fn on_processed(&mut self, verbs: &Verbs, core: &mut Core, processed: &Processed) -> u32 {
        self.requester.shared.on_processed(&verbs.head, core, processed)
    }

    /// Returns the limits of the dequeue rate, if it has ever been limited.
    pub(crate) fn limiter(&self) -> Option<&Limiter> {
        self.requester.shared.limiter()
    }

    /// Returns the rate set by congestion control, if any.
    pub(crate) fn control_rate(&self) -> Option<BitRate> {
        self.requester.shared.control_rate()
    }

    /// Passes the outcome of a probe, or a tick, to the policy that requested it.
    pub(crate) fn on_probe(&mut self, verbs: &mut Verbs, core: &mut Core, outcome: &ProbeOutcome) {
        let in_flight = self.requester.in_flight();
        let shared = &mut self.requester.shared;
        match *outcome {
            ProbeOutcome::Control(event) => shared.on_event(&verbs.head, core, in_flight, &event),
            ProbeOutcome::Path(event) => shared.ask_path(&mut verbs.head, core, &event),
        }
        if verbs.head.transmits() {
            self.requester.wake(verbs, core);
        }
    }

    fn start_flow(&mut self, verbs: &Verbs, core: &mut Core) {
        let (in_flight, responses_in_flight) = (self.requester.in_flight(), self.responder.responses_in_flight());
        let shared = &mut self.requester.shared;
        shared.start(&verbs.head, core, in_flight + responses_in_flight);
        shared.note_served(responses_in_flight);
    }

    /// Schedules the requester, because new work is queued.
    #[inline]
    pub(crate) fn on_work(&mut self, verbs: &mut Verbs, core: &mut Core) {
        self.requester.wake(verbs, core);
    }

    /// Processes a packet received from the peer.
    #[inline(always)]
    pub(crate) fn receive<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        congested: bool,
        dma: &mut D,
    ) -> RxOutcome {
        core.packet_was_marked = congested && self.on_mark(verbs, core);
        core.ack_echoes_mark = packet.flags.becn;
        if verbs.head.transport.pulls | u32::from(packet.flags.fecn) != 0
            && let Some(outcome) = self.receive_pulled(verbs, core, packet)
        {
            return outcome;
        }
        let Self { requester, responder } = self;
        match packet.headers {
            Headers::Send { .. }
            | Headers::Write { .. }
            | Headers::ReadRequest { .. }
            | Headers::AtomicRequest { .. }
            | Headers::PlacementRequest { .. }
            | Headers::SharedSend { .. }
            | Headers::SharedWrite { .. } => {
                if verbs.head.state.receives() {
                    responder.on_request(requester, verbs, core, packet, dma)
                } else {
                    responder.on_request_in_error(requester, verbs, core)
                }
            }
            Headers::Ack { aeth, sack } if verbs.head.transmits() => {
                let una = requester.una();
                let outcome = requester.on_ack(verbs, core, packet.psn, aeth, sack);
                if verbs.head.transport.scheduled {
                    self.after_acked_responses(verbs, core, una);
                }
                outcome
            }
            Headers::LossAck { report, .. } if verbs.head.transmits() => {
                let una = requester.una();
                let outcome = requester.on_loss_ack(verbs, core, packet.psn, &report);
                self.after_acked_responses(verbs, core, una);
                outcome
            }
            // Reads of the peer are served by the receiving half.
            Headers::ReadAck { aeth, sack } if verbs.head.state.receives() => {
                responder.on_response_ack(requester, verbs, core, (packet.psn, aeth, sack))
            }
            Headers::ReadResponse { .. } | Headers::AtomicResponse { .. } if verbs.head.state.sends() => {
                self.on_response(verbs, core, packet, dma)
            }
            Headers::Cnp if verbs.head.state.sends() => {
                requester.on_cnp(verbs, core);
                RxOutcome::Accepted
            }
            Headers::ReadResponse { .. } if verbs.head.state == QpState::Error => self.on_late_response(verbs, core),
            _ => RxOutcome::Dropped(core.drop_packet(DropReason::State)),
        }
    }

    /// Wakes the responder after an acknowledgement: packets from `una` may have been acknowledged, including responses
    /// (FaSR), and a refusal that has waited for them can be sent.
    #[inline]
    fn after_acked_responses(&mut self, verbs: &Verbs, core: &mut Core, una: Seq) {
        let Self { requester, responder } = self;
        if requester.peer_fetches.has_any() && requester.una() != una && responder.has_work() {
            requester.shared.wake_responder(&verbs.head, core);
        }
    }

    #[inline(always)]
    fn on_response<D: Dma>(&mut self, verbs: &mut Verbs, core: &mut Core, packet: &Packet, dma: &mut D) -> RxOutcome {
        let Self { requester, responder } = self;
        if verbs.head.transport.scheduled {
            responder.on_scheduled_response(requester, verbs, core, packet, dma)
        } else if verbs.head.transport.split {
            requester.on_split_response(verbs, core, packet, dma)
        } else {
            requester.on_shared_response(verbs, core, packet, dma)
        }
    }

    /// Handles a response for a queue pair that has failed. When it failed because it refused responses, their sender
    /// must still be notified of the refusal.
    #[cold]
    fn on_late_response(&mut self, verbs: &mut Verbs, core: &mut Core) -> RxOutcome {
        let Self { requester, responder } = self;
        if verbs.head.transport.scheduled {
            return responder.on_request_in_error(requester, verbs, core);
        }
        requester.repeat_refusal(verbs, core);
        RxOutcome::Dropped(core.drop_packet(DropReason::State))
    }

    /// Handles a congestion mark on a packet of the peer. Returns whether its acknowledgement must report the mark.
    #[cold]
    fn on_mark(&mut self, verbs: &Verbs, core: &mut Core) -> bool {
        if self.requester.shared.needs_flow_for_marks(&verbs.head) {
            // The queue pair only receives so far: the transition to `ReadyToSend`, which starts congestion control, is
            // made only by senders.
            self.start_flow(verbs, core);
        }
        self.requester.shared.on_mark(&verbs.head, core)
    }

    /// Builds the next packet of a half, in `core.out`, if one may be sent now; returns whether it did. The half has
    /// been removed from the ring.
    #[inline]
    pub(crate) fn transmit(&mut self, half: Half, verbs: &mut Verbs, core: &mut Core) -> bool {
        let Self { requester, responder } = self;
        let is_built = if half == Half::Responder {
            responder.transmit(requester, verbs, core)
        } else {
            let is_built = requester.transmit(verbs, core);
            if is_built && verbs.head.transport.scheduled && verbs.send.fetches > 0 {
                fetch::sign_request(&mut core.out.packet.headers, responder.expected(), core.now);
            }
            is_built
        };
        if !is_built {
            core.wake_for_credit(verbs.head.peer());
        }
        is_built
    }

    /// Completes the acknowledgement in `core.out`.
    #[inline]
    pub(crate) fn send_ack(verbs: &Verbs, core: &mut Core) {
        shared::send_ack(&verbs.head, &verbs.recv, core);
    }

    /// Processes the timeouts that are due.
    pub(crate) fn on_timeout(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let Self { requester, responder } = self;
        if verbs.head.transmits() {
            requester.on_timeout(verbs, core, responder.expected());
        }
        if verbs.head.state.receives() {
            responder.on_timeout(requester, verbs, core);
            let in_flight = requester.in_flight();
            requester.shared.tick(&verbs.head, core, in_flight);
            // A requester that was blocked by pacing tries again; the gate decides whether it may send.
            requester.wake(verbs, core);
            if responder.has_work() {
                requester.shared.wake_responder(&verbs.head, core);
            }
        }
        let next = self.next_timeout(verbs);
        self.requester.shared.arm(&verbs.head, core, next);
    }

    /// Returns whether `deadline`, which has expired in the timer heap, is this connection's current one.
    pub(crate) fn remove_expired(&mut self, deadline: Deadline) -> bool {
        self.requester.shared.remove_expired(deadline)
    }

    fn next_timeout(&self, verbs: &Verbs) -> Deadline {
        if !verbs.head.state.receives() {
            return Deadline::NEVER;
        }
        let Self { requester, responder } = self;
        requester.next_timeout().min(responder.next_timeout()).min(requester.shared.next_tick())
    }

    /// Completes finished entries of a send queue that starts to drain.
    pub(crate) fn drain(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let head = verbs.send.queue.head;
        verbs.complete_through(core, self.requester.una());
        if verbs.send.queue.head == head {
            verbs.send.report_if_drained(&verbs.head, core);
        }
    }

    /// Frees the NIC resources that the connection holds: credit at the peer, recovery state in the shared pool, and
    /// its place among the active queue pairs.
    pub(crate) fn stop(&mut self, verbs: &mut Verbs, core: &mut Core) {
        let Self { requester, responder } = self;
        core.pools.release(&mut requester.shared.pool);
        requester.stop(verbs, core);
        responder.stop(verbs, core);
    }

    /// Frees the NIC resources that the connection holds, before its queue pair is reset or destroyed.
    pub(crate) fn detach(&mut self, verbs: &mut Verbs, core: &mut Core) {
        core.pools.release(&mut self.requester.shared.pool);
        if verbs.head.state.receives() {
            self.stop(verbs, core);
        }
    }

    /// Handles unreadable payload of the packet in `core.out`, the last one that this connection has built. Returns
    /// whether a packet without payload replaces it, in `core.out`.
    ///
    /// The packet has been built and counted already, and is not sent. The send queue entry that it belongs to fails
    /// with a local protection error when it becomes the oldest one, as if its key no longer covered the memory. For
    /// a response, the memory no longer exists, and the result depends on the requester, as in
    /// [`fetch::refused_fetch`].
    pub(crate) fn fault_payload(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let (kind, psn) = (core.out.kind, core.out.packet.psn);
        let Self { requester, responder } = self;
        match kind {
            TransmitKind::Ack => false,
            TransmitKind::Request | TransmitKind::RequestRetransmission => {
                let found = verbs.send.queue.find(psn.extend(requester.una()));
                if let Some(counter) = found.filter(|_| verbs.head.state.sends()) {
                    verbs.fail_entry(core, requester.una(), counter, WcStatus::LocalProtection);
                }
                false
            }
            TransmitKind::Response | TransmitKind::ResponseRetransmission => {
                let code = rnic_wire::NakCode::RemoteAccessError;
                verbs.head.state.receives() && responder.refuse_built(requester, verbs, core, psn, code)
            }
        }
    }

    /// Retransmits the acknowledgements of all requests that this end has executed and of all responses that it has
    /// received, or the refusal when it has failed because it refused a request; returns whether there were any.
    pub(crate) fn repeat_acks(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let Self { requester, responder } = self;
        if verbs.head.state == QpState::Error {
            return responder.repeat_refusal(requester, verbs, core);
        }
        let Verbs { head, recv, .. } = verbs;
        // In a shared space an acknowledgement must not overtake responses: they would be treated as lost.
        let has_pending_responses = responder.has_pending_responses() || requester.peer_fetches.has_pending();
        let scheduled = head.transport.scheduled;
        let has_received = recv.msn > 0 || (scheduled && responder.expected() > recv.start);
        let executed = (has_received && !has_pending_responses).then_some(ControlPacket {
            slot: head.slot,
            from: head.number,
            expected: responder.expected(),
            msn: recv.msn,
            content: Control::Ack { kind: AckKind::Ack, echo: false },
        });
        let responses = requester.responses.as_ref().filter(|responses| !scheduled && !responses.is_waiting());
        let received = responses.map(|responses| {
            let content = Control::ReadAck { kind: AckKind::Ack, echo: false };
            ControlPacket { slot: head.slot, from: head.number, expected: responses.next_expected(), msn: 0, content }
        });
        let queued = [executed, received].into_iter().flatten().filter(|control| core.push_control(*control)).count();
        queued > 0
    }

    /// Returns the sequence numbers of its windows: the first request not acknowledged, the next one never sent, the
    /// request expected from the peer, the response expected.
    pub(crate) fn numbers(&self, transport: &Transport) -> [Seq; 4] {
        let Self { requester, responder } = self;
        let una = requester.una();
        let expected = match &requester.responses {
            Some(responses) if !transport.scheduled => responses.next_expected(),
            _ => una,
        };
        [una, requester.next(), responder.expected(), expected]
    }

    /// Returns the number of timeouts, of requests and responses, that acknowledgements have shown to be spurious.
    pub(crate) fn spurious_timeouts(&self) -> u32 {
        self.requester.window.spurious_timeouts().saturating_add(self.responder.spurious_timeouts())
    }

    /// Returns the number of requests in flight, and the congestion window, if there is one.
    pub(crate) fn in_flight(&self) -> (u64, Option<u64>) {
        let by_control = self.requester.shared.window().map(Cwnd::whole_packets);
        let both = [by_control, self.requester.window.program_window()];
        (self.requester.in_flight(), both.into_iter().flatten().min())
    }
}
