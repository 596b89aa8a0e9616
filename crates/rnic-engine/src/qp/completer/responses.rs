//! Responses to our reads and atomics.

use std::collections::VecDeque;

use rnic_base::{Seq, Time};
use rnic_wire::{Headers, NakCode, Packet, WqeSn};

use crate::completion::WcStatus;
use crate::core::{AckKind, Control, ControlPacket, Core};
use crate::dma::{Dma, Segment};
use crate::error::{DropReason, RxOutcome};
use crate::mr::Access;
use crate::qp::Qp;
use crate::qp::fetch::gone;
use crate::qp::gather::for_each_segment;
use crate::timer::Deadline;
use crate::window::{Arrival, Bits, ReceiveWindow};
use crate::wq::{SendQueue, WqeState};

/// The receiving end of the response space (IRN's rPSN), and which request each stretch of it answers.
#[derive(Debug)]
pub(crate) struct ResponseWindow {
    pub(crate) window: ReceiveWindow,
    /// Reads and atomics under way, in the order in which they are answered. At most `max_rd_atomic`.
    expected: VecDeque<Expected>,
    /// First number of the next request's answer.
    next: Seq,
    /// An acknowledgement did not fit into the control queue.
    pub(crate) owes_ack: bool,
    /// When to wonder whether the responder is still there: it runs the timers of this space (IRN section 5.2), so if
    /// it is gone nothing else would tell.
    pub(crate) watch: Deadline,
    /// Times in a row that the watch has run out.
    pub(crate) silent_periods: u32,
    /// The packet expected from the responder, and the times that it was told to pause, when the watch last ran out:
    /// where answers are packets of its own, any packet is a sign of life.
    pub(crate) heard: (Seq, u32),
    /// The packet that is expected was refused, with this code, and its Read has failed.
    pub(crate) refused: Option<NakCode>,
}

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct Expected {
    pub(in crate::qp) counter: u32,
    first: Seq,
    pub(in crate::qp) packets: u32,
    /// The packet that ends it, once that is here, where answers have numbers of the responder's requests.
    pub(in crate::qp) last: Option<Seq>,
}

impl ResponseWindow {
    pub(crate) fn new(start: Seq) -> Self {
        Self {
            window: ReceiveWindow::new(start),
            expected: VecDeque::new(),
            next: start,
            owes_ack: false,
            watch: Deadline::NEVER,
            silent_periods: 0,
            heard: (Seq::UNSET, 0),
            refused: None,
        }
    }

    /// Whether an answer is still to come.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// The entry whose answer is to come first.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.expected.front().map(|expected| expected.counter)
    }

    /// The answer to the fetch that `read_sn` names.
    pub(in crate::qp) fn named(&mut self, queue: &SendQueue, read_sn: WqeSn) -> Option<&mut Expected> {
        self.expected.iter_mut().find(|expected| WqeSn::new(queue.get(expected.counter).sn) == read_sn)
    }

    /// The entry whose answer is to come first and the packets of that, if it ends at `seq`.
    pub(in crate::qp) fn front_ends_at(&self, seq: Seq) -> Option<(u32, u32)> {
        let front = self.expected.front().filter(|expected| expected.last == Some(seq))?;
        Some((front.counter, front.packets))
    }

    /// The answer that was to come first is here.
    pub(in crate::qp) fn finish_front(&mut self) {
        self.expected.pop_front();
    }

    fn find(&self, seq: Seq) -> Option<Expected> {
        let holds =
            |expected: &&Expected| expected.first <= seq && seq.since(expected.first) < u64::from(expected.packets);
        self.expected.iter().find(holds).copied()
    }
}

impl Qp {
    /// A read or atomic is about to be sent in split spaces: its answer takes the next numbers of the response space.
    pub(crate) fn expect_responses(&mut self, core: &mut Core, now: Time, counter: u32) {
        let length = self.requester.queue.get(counter).length;
        let packets = length.div_ceil(self.mtu()).max(1);
        // Requests and responses of one direction start with the same number (IRN leaves the choice open).
        let start = self.requester.start;
        let responses = self.responses.get_or_insert_with(|| Box::new(ResponseWindow::new(start)));
        if responses.expected.is_empty() {
            responses.silent_periods = 0;
            responses.watch = Deadline::after(now, self.transport.response_patience);
            core.timers.arm(self.slot, responses.watch, &mut self.armed);
        }
        responses.expected.push_back(Expected { counter, first: responses.next, packets, last: None });
        responses.next += u64::from(packets);
    }

    /// A response of either kind of space.
    pub(crate) fn receive_response<D: Dma>(
        &mut self,
        core: &mut Core,
        now: Time,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        if self.transport.scheduled {
            self.receive_request(core, packet, dma)
        } else if self.transport.split {
            self.receive_split_response(core, now, packet, dma)
        } else {
            self.receive_shared_response(core, now, packet, dma)
        }
    }

    fn receive_shared_response<D: Dma>(
        &mut self,
        core: &mut Core,
        now: Time,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let una = self.requester.window.una;
        let seq = packet.psn.extend(una);
        if seq < una {
            return RxOutcome::Duplicate;
        }
        let found = self.requester.queue.find(seq).filter(|_| seq < self.requester.window.next);
        let Some(counter) = found.filter(|counter| self.requester.queue.get(*counter).op.is_fetch()) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        // Whatever was asked before is answered: it is acknowledged, or its own responses are lost.
        self.acknowledge_requests(core, now, seq);
        if !self.state.sends() {
            return RxOutcome::Dropped(core.drop_packet(DropReason::State));
        }
        if self.requester.window.una != seq {
            return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfOrder));
        }
        let index = seq.since(self.requester.queue.get(counter).first) as u32;
        match self.place_response(core, counter, index, packet, dma) {
            Ok(()) => {
                if let Headers::ReadResponse { aeth: Some(aeth), .. } | Headers::AtomicResponse { aeth, .. } =
                    packet.headers
                {
                    // The right is checked below, when the request is acknowledged.
                    self.heed_credits(aeth);
                }
                self.advance_requests(core, now, seq + 1);
                RxOutcome::Accepted
            }
            Err(status) => {
                self.fail_request(core, counter, status);
                RxOutcome::Dropped(core.drop_packet(DropReason::Refused))
            }
        }
    }

    fn receive_split_response<D: Dma>(
        &mut self,
        core: &mut Core,
        now: Time,
        packet: &Packet,
        dma: &mut D,
    ) -> RxOutcome {
        let Some(responses) = &mut self.responses else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        let seq = packet.psn.extend(responses.window.expected);
        let window_bits = self.transport.early_reach;
        let arrival = responses.window.classify(seq, window_bits);
        match arrival {
            Arrival::Duplicate => {
                core.stats.packets_duplicate += 1;
                self.acknowledge_responses(core, AckKind::Ack);
                return RxOutcome::Duplicate;
            }
            Arrival::Outside => {
                let reports = self.transport.reports_gaps;
                if reports && (self.transport.places_early || responses.window.gap_is_news(seq)) {
                    self.acknowledge_responses(core, AckKind::Gap);
                }
                return RxOutcome::Dropped(core.drop_packet(DropReason::OutOfWindow));
            }
            Arrival::InOrder | Arrival::Early => {}
        }
        let Some(expected) = self.responses.as_ref().and_then(|responses| responses.find(seq)) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        let index = seq.since(expected.first) as u32;
        if let Err(status) = self.place_response(core, expected.counter, index, packet, dma) {
            // Early packets are judged when their turn has come: what is before them comes first.
            if arrival == Arrival::InOrder {
                if let Some(code) = gone::refusal_in(packet)
                    && let Some(responses) = &mut self.responses
                {
                    responses.refused = Some(code);
                    self.acknowledge_responses(core, AckKind::Refused(code));
                }
                self.fail_request(core, expected.counter, status);
            }
            return RxOutcome::Dropped(core.drop_packet(DropReason::Refused));
        }
        let responses = self.responses.as_mut().expect("just seen");
        responses.silent_periods = 0;
        responses.watch = Deadline::after(now, self.transport.response_patience);
        if arrival == Arrival::Early {
            core.stats.packets_early += 1;
            responses.window.keep(seq, false, window_bits, &mut Bits::in_rings(&mut self.responder.sr));
            if self.transport.reports_gaps {
                self.acknowledge_responses(core, AckKind::Nack(seq.wire()));
            }
            return RxOutcome::Early;
        }
        let repairs = !responses.window.is_in_order();
        responses.window.advance();
        let kind = if repairs { self.take_early_responses() } else { AckKind::Ack };
        self.acknowledge_responses(core, kind);
        // The responder lives, and answers in order: what is behind must wait.
        self.requester.retries = 0;
        self.requester.window.note_heard();
        self.finish_fetches(core);
        RxOutcome::Accepted
    }

    /// The response that was missing is here: takes those behind it that came early. Answers what to say.
    fn take_early_responses(&mut self) -> AckKind {
        let responses = self.responses.as_mut().expect("responses have come in");
        let mut bits = Bits::in_rings(&mut self.responder.sr);
        let run = responses.window.quiet_run(&mut bits);
        if run > 0 {
            responses.window.take_early(run, &mut bits);
        }
        if self.transport.places_writes_only {
            let responses = self.responses.as_ref().expect("responses have come in");
            return self.answer_to_repair(&responses.window);
        }
        AckKind::Ack
    }

    /// Marks requests whose answers are complete, and completes what that allows.
    fn finish_fetches(&mut self, core: &mut Core) {
        let responses = self.responses.as_mut().expect("responses have come in");
        let arrived = responses.window.expected;
        while let Some(expected) = responses.expected.front() {
            if expected.first + u64::from(expected.packets) > arrived {
                break;
            }
            self.requester.queue.get_mut(expected.counter).state = WqeState::Fetched;
            responses.expected.pop_front();
        }
        self.complete_finished(core);
        self.wake_requester(core);
    }

    /// Puts response packet `index` of the answer to entry `counter` where it belongs.
    pub(crate) fn place_response<D: Dma>(
        &self,
        core: &Core,
        counter: u32,
        index: u32,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), WcStatus> {
        let wqe = self.requester.queue.get(counter);
        let sges = self.requester.queue.sges(counter);
        let offset = u64::from(index) * u64::from(self.mtu());
        let left = u64::from(wqe.length).checked_sub(offset).ok_or(WcStatus::BadResponse)?;
        let due = left.min(u64::from(self.mtu())) as u32;
        let (mrs, access) = (&core.mrs, Access::LOCAL_WRITE);
        let protection = |_| WcStatus::LocalProtection;
        match packet.headers {
            Headers::ReadResponse { .. } if wqe.op.is_read_like() && packet.payload_len == due => {
                let place = |at, segment| dma.place(at, segment);
                for_each_segment(mrs, self.pd, sges, offset as u32, due, access, place).map_err(protection)
            }
            Headers::AtomicResponse { original, .. } if wqe.op.is_atomic() => {
                let mut found: Option<Segment> = None;
                for_each_segment(mrs, self.pd, sges, 0, 8, access, |_, segment| {
                    found.get_or_insert(segment);
                    Ok(())
                })
                .map_err(protection)?;
                // An atomic's result may not be scattered: eight bytes in one piece, or nothing.
                let whole = found.filter(|segment| segment.len == 8).ok_or(WcStatus::LocalProtection)?;
                dma.store(whole.local, original).map_err(|_| WcStatus::LocalProtection)
            }
            _ => Err(gone::status_of(packet)),
        }
    }

    /// Acknowledges responses (IRN section 5.2: one for every response packet).
    pub(crate) fn acknowledge_responses(&mut self, core: &mut Core, kind: AckKind) {
        let Some(responses) = &mut self.responses else { return };
        let (expected, says) = (responses.window.expected, Control::ReadAck { kind, echo: core.echo });
        let control = ControlPacket { slot: self.slot, from: self.number, expected, msn: 0, says };
        if !core.push_control(control) {
            responses.owes_ack = true;
            self.owe_echo(core.echo);
            self.wake_responder(core);
        }
    }
}
