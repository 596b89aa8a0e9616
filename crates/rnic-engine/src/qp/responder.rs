//! The responder: the peer's requests, in order.
//!
//! A packet is *accepted* (checked and placed), then *executed* (message counted, receive completed, read or atomic
//! begun). In order, both happen at once. A transport that places early packets (IRN section 5.3) accepts them on
//! arrival and executes them when everything before has arrived; what fails the checks early is not kept, and is judged
//! again when its turn has come: so errors, too, come in order.

mod accept;
mod answer;
mod counted;
pub(crate) mod execute;

use rnic_base::{Seq, Time};
use rnic_wire::{Headers, NakCode, Packet};

use crate::config::QpAttributes;
use crate::core::{AckKind, Control, ControlPacket, Core, write_ack};
use crate::dma::Dma;
use crate::engine::TransmitKind;
use crate::error::{DropReason, RxOutcome};
use crate::event::AsyncEvent;
use crate::qp::fetch::FetchServer;
use crate::qp::{Qp, QpState};
use crate::ready::Half;
use crate::transport::Transport;
use crate::window::{Arrival, LaneId, ReceiveWindow, SrPointer};
use crate::wq::RecvQueue;

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) window: ReceiveWindow,
    /// The first sequence number of the peer's requests, and of our responses to them.
    pub(crate) start: Seq,
    pub(crate) queue: RecvQueue,
    /// The first packet of the message that is coming in: what has ended before is complete.
    pub(crate) message_start: Seq,
    /// Messages completed.
    pub(crate) msn: u32,
    /// `read_WQE_SN` of the read or atomic to execute next.
    pub(crate) next_read_sn: u32,
    /// The message that is coming in, where packets come in order only.
    pub(crate) message: Message,
    /// The peer's reads and atomics; made with the first one.
    pub(crate) fetches: Option<Box<FetchServer>>,
    pub(crate) fetches_max: u8,
    /// The unit of the shared pool that the whole queue pair recovers with.
    pub(crate) sr: SrPointer,
    /// What must be said to the requester when the line is free, in transports that may fold acknowledgements.
    owes: Option<AckKind>,
    /// A request was refused for good: this is the answer to whatever follows it.
    pub(crate) refused: Option<NakCode>,
    /// In the ring of those who can send.
    pub(crate) queued: bool,
    /// A packet of the peer has come in.
    established: bool,
    /// Whether it is the target of an extended reliable connection: see [`crate::qp::shared`].
    pub(crate) is_target: bool,
}

/// How far the present message has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Between messages.
    None,
    /// A Send, with so many bytes here.
    Send {
        /// Bytes so far.
        bytes: u64,
    },
    /// A Write.
    Write {
        /// Where the next byte goes.
        va: u64,
        /// By what right.
        rkey: u32,
        /// Bytes to come.
        left: u32,
        /// Bytes of the whole message.
        length: u32,
    },
}

/// Why a packet was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The request cannot be honoured.
    Nak(NakCode),
}

impl From<NakCode> for Refusal {
    fn from(code: NakCode) -> Self {
        Self::Nak(code)
    }
}

impl Responder {
    pub(crate) fn new(attributes: &QpAttributes, start: Seq, transport: &Transport) -> Self {
        // Receives claimed from a shared queue are kept here, as many as there can be messages in the window.
        let limit = if attributes.srq.is_some() { transport.window_bits.min(512) } else { attributes.max_recv_wr };
        Self {
            window: ReceiveWindow::new(start),
            start,
            queue: RecvQueue::new(limit, attributes.max_recv_sge),
            message_start: start,
            msn: 0,
            next_read_sn: 0,
            message: Message::None,
            fetches: None,
            fetches_max: 0,
            sr: SrPointer::NULL,
            owes: None,
            refused: None,
            is_target: false,
            queued: false,
            established: false,
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.owes.is_some() || self.fetches.as_ref().is_some_and(|fetches| fetches.has_work())
    }
}

impl Qp {
    /// A request packet (IRN's `receiveData`).
    #[inline]
    pub(crate) fn receive_request<D: Dma>(&mut self, core: &mut Core, packet: &Packet, dma: &mut D) -> RxOutcome {
        if self.responder.is_target {
            return self.receive_at_target(core, packet, dma);
        }
        self.receive_as_said(core, packet, dma)
    }

    /// A request packet, whatever the queue pair is.
    #[inline]
    pub(in crate::qp) fn receive_as_said<D: Dma>(
        &mut self,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let seq = packet.psn.extend(self.responder.window.expected);
        if self.responder.refused.is_some() {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        let window_bits = self.transport.early_reach;
        self.note_first_packet(core);
        match self.responder.window.classify(seq, window_bits) {
            Arrival::InOrder => self.receive_in_order(core, seq, packet, dma),
            Arrival::Early if self.transport.pool.is_some() => self.receive_early_pooled(core, seq, packet, dma),
            Arrival::Early => self.receive_early(core, seq, packet, dma),
            Arrival::Duplicate => self.receive_duplicate(core, seq, packet),
            Arrival::Outside => {
                let kept = self.transport.places_early;
                let every_time = kept && !self.transport.places_writes_only;
                if every_time || self.responder.window.gap_is_news(seq) {
                    self.report_gap(core, AckKind::Gap);
                }
                let reason = if kept { DropReason::OutOfWindow } else { DropReason::OutOfOrder };
                RxOutcome::Dropped(core.drop_packet(reason))
            }
        }
    }

    /// A packet of the peer has come in.
    #[inline]
    pub(crate) fn note_first_packet(&mut self, core: &mut Core) {
        if !self.responder.established {
            self.note_established(core);
        }
    }

    /// The first packet of the peer: a program that waits in [`QpState::ReadyToReceive`] can go on (IBA 11.6.2.2).
    #[cold]
    fn note_established(&mut self, core: &mut Core) {
        self.responder.established = true;
        if self.state == QpState::ReadyToReceive {
            core.notice(AsyncEvent::CommunicationEstablished(self.number));
        }
    }

    #[inline]
    fn receive_in_order<D: Dma>(&mut self, core: &mut Core, seq: Seq, packet: &Packet, dma: &mut D) -> RxOutcome {
        match self.accept(core, seq, packet, dma) {
            Ok(()) => {}
            Err(Refusal::NotReady) => {
                core.stats.rnr_naks_sent += 1;
                self.stats.rnr_naks_sent += 1;
                self.acknowledge(core, AckKind::NotReady(self.min_rnr_timer.code()));
                return RxOutcome::Dropped(core.drop_packet(DropReason::ReceiverNotReady));
            }
            Err(Refusal::Nak(code)) => {
                self.refuse(core, code);
                return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
            }
        }
        if let Err(code) = self.execute_packet(core, packet, seq, dma) {
            self.refuse(core, code);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        if !self.responder.window.is_in_order() {
            return self.finish_repair(core, seq, packet, dma);
        }
        self.answer_in_order(core, seq, packet, AckKind::Ack);
        RxOutcome::Accepted
    }

    /// The packet `seq`, just executed, was missing: the turn of those behind it that came early has come.
    #[inline(never)]
    fn finish_repair<D: Dma>(&mut self, core: &mut Core, seq: Seq, packet: &Packet, dma: &mut D) -> RxOutcome {
        if let Err(code) = self.drain_early(core, dma) {
            self.refuse(core, code);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        let kind = if self.transport.acks_every_packet {
            self.repaired_ack(core, seq)
        } else {
            self.answer_to_repair(&self.responder.window)
        };
        self.answer_in_order(core, seq, packet, kind);
        RxOutcome::Accepted
    }

    /// Says `kind` of a packet that was expected and has been executed, if anything is to be said.
    #[inline(always)]
    fn answer_in_order(&mut self, core: &mut Core, seq: Seq, packet: &Packet, kind: AckKind) {
        if self.transport.acks_every_packet {
            self.acknowledge(core, kind);
        } else if self.owes_for(packet) || self.has_taken_early(seq) {
            self.responder.owes = None;
            self.owe(core, kind);
        }
    }

    /// Whether packets behind `seq`, just accepted in order, were here already: whatever they asked for is due now.
    fn has_taken_early(&self, seq: Seq) -> bool {
        self.transport.places_early && self.responder.window.expected > seq + 1
    }

    /// What to say when the packet that was missing is here: where acknowledgements name no packets but the expected
    /// one, that the next hole is open, if there is one.
    pub(crate) fn answer_to_repair(&self, window: &ReceiveWindow) -> AckKind {
        let reports = self.transport.places_writes_only && self.transport.reports_gaps;
        let kept = if reports { window.latest_early() } else { None };
        kept.map_or(AckKind::Ack, |seq| AckKind::Nack(seq.wire()))
    }

    /// Tells the sender of a gap, if it listens for such news.
    #[inline(never)]
    pub(in crate::qp) fn report_gap(&mut self, core: &mut Core, kind: AckKind) {
        if self.transport.reports_gaps {
            self.acknowledge(core, kind);
        }
    }

    /// Whether this packet, just accepted in order, must be acknowledged: because it asks, or because the gap that is
    /// still to be reported is gone. Reads and atomics are answered by their responses, where those have their numbers.
    fn owes_for(&self, packet: &Packet) -> bool {
        let fetches = matches!(
            packet.headers,
            Headers::ReadRequest { .. } | Headers::AtomicRequest { .. } | Headers::PlacementRequest { .. }
        );
        let answered = fetches && !self.transport.split;
        (packet.flags.ack_request && !answered) || self.responder.owes.is_some_and(|owed| owed != AckKind::Ack)
    }

    #[inline(never)]
    fn receive_early<D: Dma>(&mut self, core: &mut Core, seq: Seq, packet: &Packet, dma: &mut D) -> RxOutcome {
        if self.transport.places_writes_only && !matches!(packet.headers, Headers::Write { immediate: None, .. }) {
            if self.responder.window.gap_is_news(seq) {
                self.report_gap(core, AckKind::Gap);
            }
            return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
        }
        if self.accept(core, seq, packet, dma).is_err() {
            self.report_gap(core, AckKind::Gap);
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        self.keep_early(core, seq, packet);
        self.report_gap(core, AckKind::Nack(seq.wire()));
        RxOutcome::Early
    }

    /// Remembers an early packet, which has been placed.
    pub(super) fn keep_early(&mut self, core: &mut Core, seq: Seq, packet: &Packet) {
        let acting = match packet.headers {
            Headers::Send { position, .. }
            | Headers::Write { position, .. }
            | Headers::ReadResponse { position, .. } => position.ends(),
            _ => true,
        };
        let Self { responder, transport, .. } = self;
        let mut bits = core.pools.bits(transport.pool, &mut responder.sr, LaneId::RequestsIn);
        responder.window.keep(seq, acting, transport.window_bits, &mut bits);
        core.stats.packets_early += 1;
    }

    /// A request seen before: its acknowledgement or response was lost, or it was sent again in vain.
    #[inline(never)]
    pub(super) fn receive_duplicate(&mut self, core: &mut Core, seq: Seq, packet: &Packet) -> RxOutcome {
        if seq < self.responder.start {
            // Of an earlier connection of this queue pair: nothing here is to be done again, least of all a read.
            return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfWindow));
        }
        core.stats.packets_duplicate += 1;
        if self.transport.split {
            // Responses have a space and a timer of their own: their loss is not the request's (I-19, R-21).
            if let Headers::ReadRequest { asked: Some(asked), .. } = packet.headers {
                self.note_resubmission(core, seq, asked.stamp);
            }
            self.acknowledge(core, AckKind::Ack);
            return RxOutcome::Duplicate;
        }
        match packet.headers {
            Headers::ReadRequest { reth, .. } => self.fetch_again(core, seq, Some(reth)),
            Headers::AtomicRequest { .. } | Headers::PlacementRequest { .. } => self.fetch_again(core, seq, None),
            _ => self.owe(core, AckKind::Ack),
        }
        RxOutcome::Duplicate
    }

    /// Sends an acknowledgement: at once where every packet gets one, else when the responses before it are out.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, core: &mut Core, kind: AckKind) {
        if !self.transport.acks_every_packet {
            return self.owe(core, kind);
        }
        let Responder { window, msn, .. } = &self.responder;
        let (expected, says) = (window.expected, Control::Ack { kind, echo: core.echo });
        let control = ControlPacket { slot: self.slot, from: self.number, expected, msn: *msn, says };
        if !core.push_control(control) {
            self.owe_echo(core.echo);
            self.owe(core, kind);
        }
    }

    /// Remembers that the requester is owed an answer, until it leaves. A pause or a refusal stands until the packet
    /// that caused it is accepted after all.
    fn owe(&mut self, core: &mut Core, kind: AckKind) {
        let stands = |kind| matches!(kind, AckKind::NotReady(_) | AckKind::Refused(_));
        // That packets were dropped is said once; that others were kept can be said again.
        let folds = self.transport.places_writes_only
            && self.responder.owes == Some(AckKind::Gap)
            && matches!(kind, AckKind::Nack(_));
        if stands(kind) || !(folds || self.responder.owes.is_some_and(stands)) {
            self.responder.owes = Some(kind);
        }
        // Responses may wait for room at the peer; what it is owed does not.
        let may_wait = self.transport.split && !self.transport.acks_every_packet && self.responder.queued;
        if may_wait && core.peers.stop_waiting(self.peer, Half::Responder, self.slot) {
            core.ready.requeue(Half::Responder, self.slot);
        }
        self.wake_responder(core);
    }

    #[inline]
    pub(crate) fn wake_responder(&mut self, core: &mut Core) {
        if !self.responder.queued {
            core.ready.push(Half::Responder, self.slot, &mut self.responder.queued);
        }
    }

    /// Makes the responder's next packet, in `core.out`. In a shared space responses come first: an acknowledgement
    /// that overtook them would tell the requester that they are lost. In split spaces it says nothing of them, and a
    /// requester that waits for it has its Reads but cannot post the next ones: there it comes first.
    pub(crate) fn transmit_response(&mut self, core: &mut Core, now: Time) -> bool {
        self.responder.queued = false;
        if let Some(responses) = self.responses.as_mut().filter(|responses| responses.owes_ack) {
            responses.owes_ack = false;
            let expected = responses.window.expected;
            write_ack(&mut core.out.packet, expected, 0, AckKind::Ack, true);
            core.out.packet.flags.becn = self.take_owed_echo();
            self.send_ack(core);
            self.wake_responder(core);
            return true;
        }
        let acks_first = self.transport.split && !self.transport.acks_every_packet;
        let made = acks_first && self.transmit_owed(core) || self.next_response(core, now) || self.transmit_owed(core);
        if made && self.responder.has_work() {
            self.wake_responder(core);
        }
        made
    }

    fn transmit_owed(&mut self, core: &mut Core) -> bool {
        let Some(kind) = self.responder.owes else { return false };
        let final_answer = matches!(kind, AckKind::Refused(_));
        let fetches = self.responder.fetches.as_ref();
        // What was asked before the refused request is answered, and known to have arrived, before the refusal goes
        // out.
        let answers = self.state.receives();
        let must_wait = fetches
            .is_some_and(|fetches| if final_answer { answers && fetches.is_busy() } else { fetches.goes_first() });
        if must_wait {
            return false;
        }
        self.responder.owes = None;
        write_ack(&mut core.out.packet, self.responder.window.expected, self.responder.msn, kind, false);
        core.out.packet.flags.becn = self.take_owed_echo();
        if let AckKind::Refused(code) = kind
            && self.state != QpState::Error
        {
            self.fail_as_responder(core, code);
        }
        self.send_ack(core);
        true
    }

    /// The request that is expected now cannot be honoured: no further one is taken.
    pub(crate) fn refuse(&mut self, core: &mut Core, code: NakCode) {
        self.responder.refused = Some(code);
        self.owe(core, AckKind::Refused(code));
    }

    /// A request for a queue pair that takes none. When it failed because it refused one, and the refusal was lost, the
    /// requester must still learn of it; otherwise silence.
    pub(crate) fn receive_late(&mut self, core: &mut Core) -> RxOutcome {
        self.repeat_refusal(core);
        RxOutcome::Dropped(core.drop_packet(DropReason::State))
    }

    /// Says once more why it has failed; answers whether it has because it refused a request.
    pub(crate) fn repeat_refusal(&mut self, core: &mut Core) -> bool {
        let code = self.responder.refused.filter(|_| self.state == QpState::Error);
        if let Some(code) = code {
            self.owe(core, AckKind::Refused(code));
        }
        code.is_some()
    }

    /// Addresses the packet in `core.out`, which carries no data.
    #[inline]
    pub(crate) fn send_ack(&self, core: &mut Core) {
        core.stats.acks_sent += 1;
        core.segments.clear();
        let out = &mut core.out;
        if self.transport.credits {
            self.advertise(&mut out.packet);
        }
        out.packet.dest_qpn = self.dest_qpn;
        out.format = self.transport.format;
        out.peer = self.peer;
        out.label = self.label;
        out.from = self.number;
        out.kind = TransmitKind::Ack;
    }
}
