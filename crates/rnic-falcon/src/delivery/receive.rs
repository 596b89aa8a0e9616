//! What has come, and where it falls.
//!
//! Source: specification Rev 0.9, sections 9.2.2 (acceptance), 9.2.5 and 11 (what is answered); Falcon (SIGCOMM'25)
//! section 4.1. Integrity, replay and keys are checked before (the encryption's business).
//!
//! | place | what happens |
//! |---|---|
//! | acknowledged | dropped, and acknowledged again: the answer was lost |
//! | received, not acknowledged | the transaction layer hears of it: it may repeat a NACK; a Resync is offered |
//! | new | offered |
//! | beyond the window | dropped with a notification: the paper, where there is no room; the specification, always |
//!
//! In each case bases that came with it are taken first (section 11: "piggybacked acknowledgement processed"), and
//! T1 and T2 are noted for the flow. Pull Data acknowledges its Pull Request. Contradiction 17 (a NACK for packets
//! beyond the window): the notification it is; there is no code for such a NACK.

use rnic_base::{Seq, Time};
use rnic_wire::falcon::{Body, FlowLabel, NackCode, Packet, Timestamp};

use crate::delivery::Delivery;
use crate::delivery::rx_window::{Arrived, Place};
use crate::seam::{Received, Upper, Verdict};

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// As it was decoded; its payload is the transaction layer's business.
    pub packet: &'a Packet,
    /// From the IPv6 header.
    pub label: FlowLabel,
    /// It met congestion.
    pub marked: bool,
    /// Switches on its way.
    pub hops: u8,
}

/// What became of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reception {
    /// The transaction layer has it.
    Kept,
    /// It was here before.
    Duplicate,
    /// Dropped beyond the window; the sender hears of it.
    OutOfWindow,
    /// There was no room; the sender hears of it.
    NoResources,
    /// An acknowledgement or NACK, taken in.
    Answer,
    /// An acknowledgement or NACK with a base that is behind: dropped.
    Stale,
    /// It makes no sense (the peer's mistake), or the connection is dead: dropped in silence.
    Dropped,
}

impl Delivery {
    /// Takes in a packet that arrives now.
    #[inline]
    pub fn receive(&mut self, now: Time, arrival: &Arrival<'_>, upper: &mut impl Upper) -> Reception {
        if self.dead {
            return Reception::Dropped;
        }
        let packet = arrival.packet;
        let flow = self.flows.of_label(arrival.label);
        match &packet.body {
            Body::Ack(answer) => self.take_ack(now, flow, packet, answer, None, upper),
            Body::ExtendedAck(answer, bitmaps) => self.take_ack(now, flow, packet, answer, Some(bitmaps), upper),
            Body::Nack(nack) => self.take_nack(now, flow, packet, nack, upper),
            Body::PullRequest { .. } | Body::PullData { .. } | Body::PushData { .. } | Body::Resync { .. } => {
                self.take_bases(now, &packet.bases, upper);
                let (hops, marked) = (arrival.hops, arrival.marked);
                let came = Timestamp::at(now - self.backlog(now));
                self.echo.note(flow, packet.timestamp, came, hops, arrival.label, marked);
                self.take_packet(now, flow, packet, upper)
            }
        }
    }

    #[inline]
    fn take_packet(&mut self, now: Time, flow: u8, packet: &Packet, upper: &mut impl Upper) -> Reception {
        let (Some(window), Some(psn)) = (packet.body.window(), packet.body.psn()) else {
            self.counters.peer_errors += 1;
            return Reception::Dropped;
        };
        let received = Received { window, psn };
        let (seq, place) = self.rx[window].place(psn);
        match place {
            Place::New => self.offer(now, flow, packet, received, seq, upper),
            Place::Acknowledged => {
                self.counters.duplicates += 1;
                self.repeat(now, flow, packet);
                Reception::Duplicate
            }
            Place::Received => self.take_duplicate(now, flow, packet, received, upper),
            Place::Beyond => match self.offer(now, flow, packet, received, seq, upper) {
                Reception::NoResources => self.drop_beyond(now, flow, received),
                kept => kept,
            },
            Place::Outside => self.drop_beyond(now, flow, received),
        }
    }

    #[inline]
    fn offer(
        &mut self,
        now: Time,
        flow: u8,
        packet: &Packet,
        received: Received,
        seq: Seq,
        upper: &mut impl Upper,
    ) -> Reception {
        let arrived = Arrived { flow, asks: packet.ack_request };
        let rx = &mut self.rx[received.window];
        match upper.offer(now, packet) {
            Verdict::Accepted { acknowledged } => {
                let fills_gap = rx.fills_gap(seq, flow);
                rx.receive(seq, arrived, acknowledged);
                self.owe(now, flow, 1 + u32::from(acknowledged));
                if fills_gap || (acknowledged && packet.ack_request) {
                    self.echo.hurry(now, flow);
                }
                if let Body::PullData { rsn, .. } = packet.body {
                    self.acknowledge_request(now, rsn, upper);
                }
                Reception::Kept
            }
            Verdict::Refused(code) => {
                rx.receive(seq, arrived, false);
                self.owe(now, flow, 1);
                self.nacks.push(flow, received, code);
                Reception::Kept
            }
            Verdict::NoResources => {
                let beyond = rx.place(received.psn).1 == Place::Beyond;
                if !beyond {
                    self.nacks.push(flow, received, NackCode::Resource);
                }
                Reception::NoResources
            }
            Verdict::Dropped => Reception::Dropped,
        }
    }

    /// A packet that is here and not acknowledged came again.
    fn take_duplicate(
        &mut self,
        now: Time,
        flow: u8,
        packet: &Packet,
        received: Received,
        upper: &mut impl Upper,
    ) -> Reception {
        if matches!(packet.body, Body::Resync { .. }) {
            if let Verdict::Accepted { acknowledged: true } = upper.offer(now, packet) {
                self.acknowledge(now, received);
                self.repeat(now, flow, packet);
            }
            return Reception::Kept;
        }
        self.counters.duplicates += 1;
        match upper.duplicate(now, packet) {
            Some(code) => self.nacks.push(flow, received, code),
            None => self.repeat(now, flow, packet),
        }
        Reception::Duplicate
    }

    /// Says again what was said: at once when asked.
    fn repeat(&mut self, now: Time, flow: u8, packet: &Packet) {
        self.owe(now, flow, 2);
        if packet.ack_request {
            self.echo.hurry(now, flow);
        }
    }

    fn drop_beyond(&mut self, now: Time, flow: u8, received: Received) -> Reception {
        self.counters.out_of_window += 1;
        self.rx[received.window].out_of_window = true;
        // The AR bit of what is dropped is ignored (specification 9.2.2.4).
        self.owe(now, flow, 2);
        Reception::OutOfWindow
    }
}
