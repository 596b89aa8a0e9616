//! Packets that a test makes itself, for one delivery layer without a link.

use rnic_base::{Psn32, Time};
use rnic_falcon::delivery::{Arrival, Delivery, Departure, Reception};
use rnic_wire::falcon::{Acknowledgement, Body, FlowLabel, Nack, NackCode, Packet, Timestamp, UlpProtocol, Window};

use super::upper::Counting;

/// Gives one packet to `delivery`.
pub fn give(delivery: &mut Delivery, upper: &mut Counting, now: Time, packet: Packet) -> Reception {
    give_on(delivery, upper, now, packet, FlowLabel::new(0))
}

/// Delivers one packet to `delivery` on the path of `label`.
pub fn give_on(
    delivery: &mut Delivery,
    upper: &mut Counting,
    now: Time,
    packet: Packet,
    label: FlowLabel,
) -> Reception {
    delivery.receive(now, &Arrival { packet: &packet, label, marked: false, hops: 1, csig: None }, upper)
}

pub fn push_packet(number: u32) -> Packet {
    let mut upper = Counting::new();
    let context = upper.push();
    let mut body = upper.body(context);
    if let Body::PushData { psn, rsn, .. } = &mut body {
        (*psn, *rsn) = (Psn32::new(number), Psn32::new(number));
    }
    Packet {
        cid: Default::default(),
        function: 0,
        protocol: UlpProtocol::Rdma,
        ack_request: false,
        bases: Default::default(),
        timestamp: Timestamp::at(Time::from_us(990)),
        payload_len: 4_096,
        body,
    }
}

pub fn pull_packet(number: u32) -> Packet {
    let mut upper = Counting::new();
    let context = upper.pull();
    let mut body = upper.body(context);
    if let Body::PullRequest { psn, rsn, .. } = &mut body {
        (*psn, *rsn) = (Psn32::new(number), Psn32::new(number));
    }
    Packet { body, payload_len: 0, ..push_packet(0) }
}

pub fn next_response(delivery: &mut Delivery, upper: &mut Counting, now: Time) -> Option<Departure> {
    let answer = delivery.transmit(now, upper);
    answer.filter(|answer| answer.context.is_none())
}

/// An acknowledgement with these bases.
pub fn ack(request: u32, data: u32, t1: Time, t3: Time) -> Packet {
    let answer = Acknowledgement { t1: Timestamp::at(t1), t2: Timestamp::at(t1), ..Acknowledgement::default() };
    let mut packet = push_packet(0);
    (packet.bases.request, packet.bases.data) = (Psn32::new(request), Psn32::new(data));
    (packet.body, packet.timestamp) = (Body::Ack(answer), Timestamp::at(t3));
    packet
}

/// Returns the NACK for Push Data `number`; it echoes the packet sent at `echoed`.
pub fn refusal(number: u32, code: NackCode, echoed: Time) -> Body {
    let (t1, psn, window) = (Timestamp::at(echoed), Psn32::new(number), Window::Data);
    Body::Nack(Nack { t1, t2: t1, hops: 1, rx_level: 0, ecn: 0, metadata: 0, psn, window, code })
}
