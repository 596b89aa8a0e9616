//! A transaction layer that sends what a test submits, keeps the packets it is offered, and counts.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::Delivery;
use rnic_falcon::interface::{Context, Exhausted, Gates, Outgoing, Received, Upper, Verdict, Window};
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, ResyncCode, Rsn, Ulp, UlpProtocol};

/// When received Push Data is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Acknowledging {
    /// At once.
    #[default]
    AtOnce,
    /// When the test does so.
    Never,
    /// This long after its arrival.
    After(Duration),
}

/// The counting transaction layer.
#[derive(Debug, Default)]
pub struct Counting {
    requests: VecDeque<Context>,
    data: VecDeque<Context>,
    outgoing: Vec<Outgoing>,
    next_rsn: u32,
    /// How often each context was acknowledged.
    pub acked: Vec<u32>,
    /// How often each packet was kept, by type and RSN.
    pub kept: BTreeMap<(PacketType, u32), u32>,
    /// The order in which packets were kept.
    pub order: Vec<(PacketType, u32)>,
    /// Received Push Data to be acknowledged, with the time for it.
    waiting: VecDeque<(Time, Received)>,
    pub acknowledging: Acknowledging,
    /// `true` if Pull Requests are answered.
    pub answers: bool,
    /// Number of packets that can still be kept; `None` for no limit.
    pub room: Option<u32>,
    /// Codes of the NACKs for Push Data, by RSN.
    pub refusals: BTreeMap<u32, NackCode>,
    pub nacked: Vec<(Context, NackCode)>,
    /// Number of NACKs that said that the receiver was not ready.
    pub not_ready: u32,
    pub exhausted: Vec<Context>,
    pub give_up: bool,
    pub duplicates: u32,
    pub rx_level: u8,
}

impl Counting {
    /// Returns a layer that answers Pull Requests.
    pub fn new() -> Self {
        Self { answers: true, ..Self::default() }
    }

    fn add(&mut self, body: Body, payload_len: u32) -> Context {
        let context = Context(self.outgoing.len() as u32);
        self.outgoing.push(Outgoing { context, protocol: UlpProtocol::Rdma, payload_len, body });
        self.acked.push(0);
        context
    }

    fn take_rsn(&mut self) -> Rsn {
        self.next_rsn += 1;
        Rsn::new(self.next_rsn - 1)
    }

    pub fn push(&mut self) -> Context {
        let rsn = self.take_rsn();
        let context = self.add(Body::PushData { psn: Rsn::new(0), rsn, length: 4_096, ulp: Ulp::None }, 4_096);
        self.requests.push_back(context);
        context
    }

    pub fn pushes(&mut self, count: u32) {
        (0..count).for_each(|_| {
            self.push();
        });
    }

    pub fn pull(&mut self) -> Context {
        let rsn = self.take_rsn();
        let context = self.add(Body::PullRequest { psn: Rsn::new(0), rsn, length: 4_096, ulp: Ulp::None }, 0);
        self.requests.push_back(context);
        context
    }

    pub fn pull_data(&mut self, rsn: Rsn) -> Context {
        let context = self.add(Body::PullData { psn: Rsn::new(0), rsn, ulp: Ulp::None }, 4_096);
        self.data.push_back(context);
        context
    }

    /// Packets that have not left.
    pub fn queued(&self) -> usize {
        self.requests.len() + self.data.len()
    }

    /// Returns `true` if every packet was acknowledged exactly once.
    pub fn all_acked(&self) -> bool {
        self.acked.iter().all(|count| *count == 1)
    }

    pub fn acked_count(&self) -> usize {
        self.acked.iter().filter(|count| **count > 0).count()
    }

    pub fn kept_once(&self) -> bool {
        self.kept.values().all(|count| *count == 1)
    }

    pub fn body(&self, context: Context) -> Body {
        self.outgoing[context.0 as usize].body
    }

    fn becomes_resync(&mut self, context: Context, code: ResyncCode) {
        let outgoing = &mut self.outgoing[context.0 as usize];
        let (of, rsn) = (outgoing.body.packet_type(), outgoing.body.rsn().expect("it has an RSN"));
        outgoing.payload_len = 0;
        outgoing.body = Body::Resync { psn: Rsn::new(0), rsn, code, of, vendor: 0 };
    }

    /// Returns the head of the first queue whose head may be sent through an open gate.
    fn pick(&mut self, open: Gates) -> Option<Context> {
        let outgoing = &self.outgoing;
        let goes = |context: &Context| open.admits(&outgoing[context.0 as usize].body);
        if self.data.front().is_some_and(goes) {
            return self.data.pop_front();
        }
        if self.requests.front().is_some_and(goes) { self.requests.pop_front() } else { None }
    }
}

impl Upper for Counting {
    fn next(&mut self, _: Time, open: Gates) -> Option<Outgoing> {
        self.pick(open).map(|context| self.outgoing[context.0 as usize])
    }

    fn retransmission(&mut self, _: Time, context: Context) -> Outgoing {
        self.outgoing[context.0 as usize]
    }

    fn acked(&mut self, _: Time, context: Context) {
        self.acked[context.0 as usize] += 1;
    }

    fn nacked(&mut self, _: Time, context: Context, code: NackCode) {
        self.nacked.push((context, code));
        self.becomes_resync(context, ResyncCode::TargetCompleteInError);
    }

    fn not_ready(&mut self, _: Time, _: Context) {
        self.not_ready += 1;
    }

    fn exhausted(&mut self, _: Time, context: Context) -> Exhausted {
        self.exhausted.push(context);
        if self.give_up {
            return Exhausted::Terminated;
        }
        self.becomes_resync(context, ResyncCode::RetransmissionExhausted);
        Exhausted::Resync
    }

    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        if self.room == Some(0) {
            return Verdict::NoResources;
        }
        self.room = self.room.map(|room| room - 1);
        let (kind, rsn) = (packet.body.packet_type(), packet.body.rsn().expect("it has an RSN"));
        *self.kept.entry((kind, rsn.value())).or_default() += 1;
        self.order.push((kind, rsn.value()));
        match packet.body {
            Body::PullRequest { rsn, .. } if self.answers => {
                self.pull_data(rsn);
            }
            Body::PushData { psn, rsn, .. } => {
                if let Some(code) = self.refusals.get(&rsn.value()) {
                    return Verdict::Refused(*code);
                }
                if let Acknowledging::After(delay) = self.acknowledging {
                    self.waiting.push_back((now + delay, Received { window: Window::Data, psn }));
                }
                if self.acknowledging != Acknowledging::AtOnce {
                    return Verdict::Accepted { acknowledged: false };
                }
            }
            _ => {}
        }
        Verdict::Accepted { acknowledged: true }
    }

    fn duplicate(&mut self, _: Time, packet: &Packet) -> Option<NackCode> {
        self.duplicates += 1;
        let rsn = packet.body.rsn().expect("it has an RSN");
        self.refusals.get(&rsn.value()).copied()
    }

    fn rx_level(&self) -> u8 {
        self.rx_level
    }
}

impl super::link::Above for Counting {
    fn work(&mut self, now: Time, delivery: &mut Delivery) {
        while let Some((due, received)) = self.waiting.front().copied()
            && due <= now
        {
            delivery.acknowledge(now, received);
            self.waiting.pop_front();
        }
    }

    fn wake(&self) -> Option<Time> {
        self.waiting.front().map(|(due, _)| *due)
    }
}
