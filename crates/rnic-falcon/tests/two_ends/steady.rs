//! Two delivery layers that hand Push Data to each other as fast as windows allow, without a list of events: for
//! measuring. Time goes on by a fixed step for each packet; what is under way is in two rings.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{Arrival, Delivery, DeliveryConfig, Departure};
use rnic_falcon::interface::{Context, Exhausted, Gates, Outgoing, Upper, Verdict};
use rnic_wire::falcon::{Body, NackCode, Packet, Rsn, Ulp, UlpProtocol};

/// Sends Push Data endlessly, and acknowledges the Push Data it receives.
#[derive(Default)]
pub struct Endless {
    next: u32,
    pub sends: bool,
    pub acked: u64,
    pub kept: u64,
}

fn push(context: Context) -> Outgoing {
    let (psn, rsn) = (Rsn::new(0), Rsn::new(context.0));
    let body = Body::PushData { psn, rsn, length: 4_096, ulp: Ulp::None };
    Outgoing { context, protocol: UlpProtocol::Rdma, payload_len: 4_096, body }
}

impl Upper for Endless {
    fn next(&mut self, _: Time, open: Gates) -> Option<Outgoing> {
        if !self.sends || !open.push_data {
            return None;
        }
        self.next += 1;
        Some(push(Context(self.next - 1)))
    }

    fn retransmission(&mut self, _: Time, context: Context) -> Outgoing {
        push(context)
    }

    fn acked(&mut self, _: Time, _: Context) {
        self.acked += 1;
    }

    fn nacked(&mut self, _: Time, _: Context, _: NackCode) {}

    fn exhausted(&mut self, _: Time, _: Context) -> Exhausted {
        Exhausted::Terminated
    }

    fn offer(&mut self, _: Time, _: &Packet) -> Verdict {
        self.kept += 1;
        Verdict::Accepted { acknowledged: true }
    }

    fn duplicate(&mut self, _: Time, _: &Packet) -> Option<NackCode> {
        None
    }

    fn rx_level(&self) -> u8 {
        0
    }
}

/// Two delivery layers and the packets in flight between them.
pub struct Steady {
    now: Time,
    ends: [(Delivery, Endless); 2],
    /// Packets in flight to each end, with their arrival times.
    in_flight: [VecDeque<(Time, Departure)>; 2],
    lose_every: u64,
    sent: u64,
    pub lost: u64,
}

/// One-way delay; the next is the time of a packet on the link.
const DELAY: Duration = Duration::from_us(5);
const PACKET: Duration = Duration::from_ns(164);

impl Steady {
    /// End 0 sends; of its packets one in `lose_every` is lost, none when that is 0.
    pub fn new(config: DeliveryConfig, lose_every: u64) -> Self {
        let mut ends = [(); 2].map(|()| (Delivery::new(config), Endless::default()));
        ends[0].1.sends = true;
        let in_flight = [(); 2].map(|()| VecDeque::with_capacity(4_096));
        Self { now: Time::from_us(1_000), ends, in_flight, lose_every, sent: 0, lost: 0 }
    }

    /// Goes on until `packets` more are acknowledged.
    pub fn run(&mut self, packets: u64) {
        let until = self.ends[0].1.acked + packets;
        while self.ends[0].1.acked < until {
            self.now += PACKET;
            for side in [0, 1] {
                self.step(side);
            }
        }
    }

    fn step(&mut self, side: usize) {
        let now = self.now;
        let (delivery, upper) = &mut self.ends[side];
        while self.in_flight[side].front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, departure)) = self.in_flight[side].pop_front() else { break };
            let arrival =
                Arrival { packet: &departure.packet, label: departure.label, marked: false, hops: 1, csig: None };
            delivery.receive(now, &arrival, upper);
            while delivery.signal().is_some() {}
        }
        if delivery.deadline().is_some_and(|at| at <= now) {
            delivery.expire(now, upper);
        }
        if let Some(departure) = delivery.transmit(now, upper) {
            self.sent += u64::from(side == 0);
            if side == 0 && self.lose_every != 0 && self.sent.is_multiple_of(self.lose_every) {
                self.lost += 1;
            } else {
                self.in_flight[1 - side].push_back((now + DELAY, departure));
            }
        }
    }
}
