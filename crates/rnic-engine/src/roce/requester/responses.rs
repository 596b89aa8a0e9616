//! Responses to local reads and atomics.

use std::collections::VecDeque;

use rnic_base::{Psn, Seq, Time};
use rnic_wire::{Headers, NakCode, Packet, WqeSn};

use super::Requester;
use crate::core::{AckKind, Control, ControlPacket, Core};
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::roce::shared::ConnShared;
use crate::timer::Deadline;
use crate::transport::Transport;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::send::{SendHalf, refusal_in};
use crate::window::{Arrival, Bits, ReceiveWindow};
use crate::wq::{SendQueue, WqeState};

/// The receiving side of the response space (IRN's rPSN), and the request for each range of response numbers.
#[derive(Debug)]
pub(crate) struct ResponseWindow {
    window: ReceiveWindow,
    /// Outstanding reads and atomics, in the order of their responses. At most `max_rd_atomic`.
    expected: VecDeque<Expected>,
    /// First sequence number of the next request's response.
    next: Seq,
    /// True when an acknowledgement did not fit into the control queue.
    ack_pending: bool,
    /// Deadline of the check that the responder is still active: the responder runs the timers of this space (IRN
    /// section 5.2), so its failure would not be detected otherwise.
    pub(super) watch: Deadline,
    /// Number of consecutive times that the watch timer has expired.
    pub(super) silent_periods: u32,
    /// Packet expected from the responder, and the number of pauses requested from it, when the watch timer last
    /// expired: where responses are request packets of the responder, any packet shows that it is active.
    pub(super) last_watch: (Seq, u32),
    /// Code of the refusal that arrived in place of the expected packet; its Read has failed.
    refused: Option<NakCode>,
}

/// The response to one request.
#[derive(Clone, Copy, Debug)]
pub(in crate::roce) struct Expected {
    pub(super) counter: u32,
    first: Seq,
    pub(super) packets: u32,
    /// Last packet of the response, once it has arrived, where responses are request packets of the responder.
    pub(super) last: Option<Seq>,
}

impl ResponseWindow {
    fn new(start: Seq) -> Self {
        Self {
            window: ReceiveWindow::new(start),
            expected: VecDeque::new(),
            next: start,
            ack_pending: false,
            watch: Deadline::NEVER,
            silent_periods: 0,
            last_watch: (Seq::UNSET, 0),
            refused: None,
        }
    }

    /// Returns whether a response is still to arrive.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Returns the entry whose response is to arrive first.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.expected.front().map(|expected| expected.counter)
    }

    /// Returns the response to the fetch with the number `read_sn`.
    pub(in crate::roce) fn named(&mut self, queue: &SendQueue, read_sn: WqeSn) -> Option<&mut Expected> {
        self.expected.iter_mut().find(|expected| WqeSn::new(queue.get(expected.counter).sn) == read_sn)
    }

    /// Returns the entry whose response is to arrive first and the number of its packets, if it ends at `seq`.
    pub(in crate::roce) fn front_ends_at(&self, seq: Seq) -> Option<(u32, u32)> {
        let front = self.expected.front().filter(|expected| expected.last == Some(seq))?;
        Some((front.counter, front.packets))
    }

    /// Records that the responder is active.
    fn note_response(&mut self, now: Time, transport: &Transport) {
        self.silent_periods = 0;
        self.watch = Deadline::after(now, transport.response_timeout);
    }

    /// Marks the requests whose responses are complete.
    fn finish(&mut self, send: &mut SendHalf) {
        while let Some(expected) = self.expected.front() {
            if expected.first + u64::from(expected.packets) > self.window.expected {
                break;
            }
            send.queue.get_mut(expected.counter).state = WqeState::Fetched;
            self.expected.pop_front();
        }
    }

    /// Consumes the out-of-order responses behind the missing one, which has just arrived. Returns the type of
    /// acknowledgement to send.
    fn advance_out_of_order(&mut self, shared: &mut ConnShared, transport: &Transport) -> AckKind {
        let mut bits = Bits::in_rings(&mut shared.pool);
        let run = self.window.run_without_action(&mut bits);
        if run > 0 {
            self.window.advance_out_of_order(run, &mut bits);
        }
        if transport.places_writes_only { ack_for_repair(transport, &self.window) } else { AckKind::Ack }
    }

    /// Acknowledges responses (IRN section 5.2: one acknowledgement for every response packet).
    fn acknowledge(&mut self, shared: &mut ConnShared, head: &Head, core: &mut Core, kind: AckKind) {
        let (expected, content) = (self.window.expected, Control::ReadAck { kind, echo: core.packet_was_marked });
        let control = ControlPacket { slot: head.slot, from: head.number, expected, msn: 0, content };
        if !core.push_control(control) {
            self.ack_pending = true;
            shared.set_echo_pending(core.packet_was_marked);
            shared.wake_responder(head, core);
        }
    }

    /// Returns the response expected next, if an acknowledgement has to be sent, and clears that state.
    pub(in crate::roce) fn take_pending_ack(&mut self) -> Option<Seq> {
        std::mem::take(&mut self.ack_pending).then_some(self.window.expected)
    }

    /// Answers response `psn`, which arrived without its payload.
    #[cold]
    pub(in crate::roce) fn on_trimmed(&mut self, shared: &mut ConnShared, head: &Head, core: &mut Core, psn: Psn) {
        let seq = psn.extend(self.window.expected);
        let kind = match self.window.classify(seq, head.transport.out_of_order_reach) {
            Arrival::Duplicate => AckKind::Ack,
            Arrival::InOrder | Arrival::OutOfOrder if self.find(seq).is_some() => AckKind::Trimmed(psn),
            _ => return,
        };
        self.note_response(core.now, &head.transport);
        self.acknowledge(shared, head, core, kind);
    }

    /// Returns the response that is expected next.
    pub(in crate::roce) fn next_expected(&self) -> Seq {
        self.window.expected
    }

    /// Retransmits the reason of the queue pair's failure, if it failed because it refused responses: the sender of the
    /// responses must still be notified that they were needed.
    pub(in crate::roce) fn repeat_refusal(&mut self, shared: &mut ConnShared, head: &Head, core: &mut Core) {
        if let Some(code) = self.refused {
            self.acknowledge(shared, head, core, AckKind::Refused(code));
        }
    }

    /// Marks the request whose response ends with packet `seq` of the responder. `arrived` is the number of packets
    /// received for it, which must equal the `packets` of the response.
    ///
    /// # Errors
    /// When no response ends there, or it has another length.
    pub(in crate::roce) fn end_response(
        &mut self,
        send: &mut SendHalf,
        (seq, arrived): (Seq, u64),
        now: Time,
        transport: &Transport,
    ) -> Result<(), NakCode> {
        let (counter, packets) = self.front_ends_at(seq).ok_or(NakCode::InvalidRequest)?;
        // Each packet is placed independently, at the position that it carries; together the packets must make up the
        // complete response.
        if arrived != u64::from(packets) {
            return Err(NakCode::InvalidRequest);
        }
        self.expected.pop_front();
        self.note_response(now, transport);
        send.queue.get_mut(counter).state = WqeState::Fetched;
        Ok(())
    }

    fn find(&self, seq: Seq) -> Option<Expected> {
        let contains_seq =
            |expected: &&Expected| expected.first <= seq && seq.since(expected.first) < u64::from(expected.packets);
        self.expected.iter().find(contains_seq).copied()
    }
}

impl Requester {
    /// Reserves the next numbers of the response space for the response to a read or atomic that is about to be sent in
    /// split spaces.
    pub(in crate::roce) fn expect_responses(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        let length = verbs.send.queue.get(counter).length;
        let packets = length.div_ceil(verbs.head.mtu()).max(1);
        // Requests and responses of one direction start with the same number (IRN does not specify this).
        let start = verbs.send.start;
        let responses = self.responses.get_or_insert_with(|| Box::new(ResponseWindow::new(start)));
        if responses.expected.is_empty() {
            responses.silent_periods = 0;
            responses.watch = Deadline::after(core.now, verbs.head.transport.response_timeout);
            self.shared.arm(&verbs.head, core, responses.watch);
        }
        responses.expected.push_back(Expected { counter, first: responses.next, packets, last: None });
        responses.next += u64::from(packets);
    }

    /// Handles a response in the sequence space of its request.
    pub(in crate::roce) fn on_shared_response<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let una = self.window.una;
        let seq = packet.psn.extend(una);
        if seq < una {
            return RxOutcome::Duplicate;
        }
        let found = verbs.send.queue.find(seq).filter(|_| seq < self.window.next);
        let Some(counter) = found.filter(|counter| verbs.send.queue.get(*counter).op.is_fetch()) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        // The peer has responded to all earlier requests: they are acknowledged, or their responses are lost.
        self.acknowledge(verbs, core, seq);
        if !verbs.head.state.sends() {
            return RxOutcome::Dropped(core.drop_packet(DropReason::State));
        }
        if self.window.una != seq {
            return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
        }
        let index = seq.since(verbs.send.queue.get(counter).first) as u32;
        match verbs.send.place_response(&verbs.head, core, counter, index, packet, dma) {
            Ok(()) => {
                if let Headers::ReadResponse { aeth: Some(aeth), .. } | Headers::AtomicResponse { aeth, .. } =
                    packet.headers
                {
                    // The new limit is evaluated below, when the request is acknowledged.
                    self.shared.on_credits(aeth);
                }
                self.advance(verbs, core, seq + 1);
                RxOutcome::Accepted
            }
            Err(status) => {
                verbs.fail_entry(core, self.window.una, counter, status);
                RxOutcome::Dropped(core.drop_packet(DropReason::Refused))
            }
        }
    }

    /// Handles a response in a separate sequence space.
    pub(in crate::roce) fn on_split_response<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let Some(responses) = &mut self.responses else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        let (head, transport) = (&verbs.head, &verbs.head.transport);
        let seq = packet.psn.extend(responses.window.expected);
        let window_bits = transport.out_of_order_reach;
        let arrival = responses.window.classify(seq, window_bits);
        match arrival {
            Arrival::Duplicate => {
                core.stats.packets_duplicate += 1;
                responses.acknowledge(&mut self.shared, head, core, AckKind::Ack);
                return RxOutcome::Duplicate;
            }
            Arrival::Outside => {
                if transport.reports_gaps && (transport.places_out_of_order || responses.window.is_new_gap(seq)) {
                    responses.acknowledge(&mut self.shared, head, core, AckKind::Gap);
                }
                return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfWindow));
            }
            Arrival::InOrder | Arrival::OutOfOrder => {}
        }
        let Some(expected) = responses.find(seq) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        let index = seq.since(expected.first) as u32;
        if let Err(status) = verbs.send.place_response(head, core, expected.counter, index, packet, dma) {
            // Errors of out-of-order packets are handled when they are next in order, after the packets before them.
            if arrival == Arrival::InOrder {
                if let Some(code) = refusal_in(packet) {
                    responses.refused = Some(code);
                    responses.acknowledge(&mut self.shared, head, core, AckKind::Refused(code));
                }
                verbs.fail_entry(core, self.window.una, expected.counter, status);
            }
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        responses.note_response(core.now, transport);
        if arrival == Arrival::OutOfOrder {
            core.stats.packets_out_of_order += 1;
            responses.window.keep(seq, false, window_bits, &mut Bits::in_rings(&mut self.shared.pool));
            if transport.reports_gaps {
                responses.acknowledge(&mut self.shared, head, core, AckKind::Nack(seq.wire()));
            }
            return RxOutcome::OutOfOrder;
        }
        let fills_gap = !responses.window.is_in_order();
        responses.window.advance();
        let kind = if fills_gap { responses.advance_out_of_order(&mut self.shared, transport) } else { AckKind::Ack };
        responses.acknowledge(&mut self.shared, head, core, kind);
        responses.finish(&mut verbs.send);
        // The responder is active, and responds in order: later requests must wait for this one.
        self.retries = 0;
        self.window.note_response();
        verbs.complete_through(core, self.window.una);
        self.wake(verbs, core);
        RxOutcome::Accepted
    }

    /// Retransmits the reason of the queue pair's failure, if it failed because it refused responses.
    pub(in crate::roce) fn repeat_refusal(&mut self, verbs: &Verbs, core: &mut Core) {
        if let Some(responses) = &mut self.responses {
            responses.repeat_refusal(&mut self.shared, &verbs.head, core);
        }
    }
}

/// Returns the type of acknowledgement to send when the missing packet has arrived: where acknowledgements carry only
/// the expected packet number, a report of the next gap, if there is one.
pub(in crate::roce) fn ack_for_repair(transport: &Transport, window: &ReceiveWindow) -> AckKind {
    let reports_gaps = transport.places_writes_only && transport.reports_gaps;
    let latest_kept = if reports_gaps { window.latest_out_of_order() } else { None };
    latest_kept.map_or(AckKind::Ack, |seq| AckKind::Nack(seq.wire()))
}
