//! Two engines back to back in memory, for millions of packets: a wire without delay, and packets without contents.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use rnic_base::{Duration, Probability, Psn, RandomStream, RandomStreams, Time};
use rnic_engine::*;
use rnic_wire::Qpn;

/// Parameters of both sides.
#[derive(Clone)]
pub struct Shape {
    pub service: Service,
    pub transport: Arc<Transport>,
    pub queue_pairs: usize,
    pub mtu: u32,
    pub psn: Psn,
    /// Bytes of the only memory region, which begins at address 0.
    pub memory: u64,
    /// Probability that a packet is marked as congested.
    pub marked: Probability,
}

impl Shape {
    pub fn new(transport: &str, options: &[(&str, &str)]) -> Self {
        let profile = rnic_transports::select(transport, options.iter().copied()).expect("the transport is registered");
        let transport = Arc::new(Transport::new(profile).expect("the profile is valid"));
        let psn = Psn::new(0xff_0000);
        let service = Service::ReliableConnection;
        Self { service, transport, queue_pairs: 1, mtu: 1_024, psn, memory: 1 << 20, marked: Probability::NEVER }
    }
}

/// One side; data that arrives is placed through `dma`.
pub struct Side<D> {
    pub engine: Engine,
    pub cq: CqId,
    pub numbers: Vec<Qpn>,
    pub key: u32,
    pub dma: D,
}

impl<D> Side<D> {
    fn new(shape: &Shape, secret: u64, dma: D) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
        let pd = engine.objects_mut().create_pd().expect("a protection domain");
        let cq = engine.objects_mut().create_cq(4_096).expect("a legal size");
        let numbers = (0..shape.queue_pairs).map(|_| {
            let attributes = QpAttributes {
                pd,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                max_send_wr: 256,
                max_recv_wr: 256,
                max_send_sge: 1,
                max_recv_sge: 1,
                signal_all: true,
                service: shape.service,
                transport: Arc::clone(&shape.transport),
                number: None,
                nvme: None,
            };
            engine.create_qp(&attributes).expect("legal attributes")
        });
        let numbers = numbers.collect();
        let region = MemoryRegion { pd, addr: 0, len: shape.memory, local: 0, access: Access::all() };
        let key = engine.objects_mut().register(region).expect("a legal region").0;
        Self { engine, cq, numbers, key, dma }
    }

    fn connect(&mut self, shape: &Shape, other: &[Qpn]) {
        for (qpn, dest_qpn) in self.numbers.iter().zip(other) {
            let connection = QpConnection {
                peer: PeerId(1),
                dest_qpn: *dest_qpn,
                rq_psn: shape.psn,
                mtu: shape.mtu,
                min_rnr_timer: RnrTimer::from_code(1),
                max_dest_rd_atomic: 8,
            };
            let timing = QpTiming { sq_psn: shape.psn, retry_count: 1_000, rnr_retry: None, max_rd_atomic: 8 };
            self.engine.modify_to_init(*qpn).expect("from reset");
            if shape.service == Service::UnreliableDatagram {
                self.engine.modify_to_rtr_unconnected(*qpn, shape.mtu).expect("from init");
            } else {
                self.engine.modify_to_rtr(*qpn, &connection).expect("from init");
            }
            self.engine.modify_to_rts(Time::ZERO, *qpn, &timing).expect("from ready to receive");
        }
    }

    pub fn sge(&self, addr: u64, len: u32) -> Sge {
        Sge { addr, len, lkey: self.key }
    }

    pub fn remote(&self, addr: u64) -> RemoteMemory {
        RemoteMemory { addr, rkey: self.key }
    }

    pub fn post(&mut self, qp: usize, wr_id: u64, op: SendOp, len: u32) {
        let request = SendRequest { wr_id, op, sges: &[self.sge(0, len)], flags: SendFlags::SIGNALED };
        self.engine.post_send(self.numbers[qp], &request).expect("the queue is not full");
    }

    pub fn post_recv(&mut self, qpn: Qpn, wr_id: u64, len: u32) {
        let request = RecvRequest { wr_id, sges: &[self.sge(0, len)] };
        self.engine.post_recv(qpn, &request).expect("the queue is not full");
    }

    /// Returns the next completion, which must be successful.
    pub fn completion(&mut self) -> Option<Completion> {
        let completion = self.engine.objects_mut().poll_cq_one(self.cq)?;
        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        Some(completion)
    }
}

/// Both sides and the packets between them.
pub struct BackToBack<D> {
    pub left: Side<D>,
    pub right: Side<D>,
    pub now: Time,
    /// Packets carried.
    pub packets: u64,
    pub loss: Probability,
    marked: Probability,
    random: RandomStream,
}

impl<D: Dma + Clone> BackToBack<D> {
    pub fn new(shape: &Shape, dma: D) -> Self {
        let (mut left, mut right) = (Side::new(shape, 1, dma.clone()), Side::new(shape, 2, dma));
        let numbers = (left.numbers.clone(), right.numbers.clone());
        left.connect(shape, &numbers.1);
        right.connect(shape, &numbers.0);
        let random = RandomStreams::new(1).stream("back-to-back");
        Self { left, right, now: Time::ZERO, packets: 0, loss: Probability::NEVER, marked: shape.marked, random }
    }

    /// Moves packets both ways until neither side has any; if there were none at all, lets the next timer expire.
    pub fn round(&mut self) {
        let before = self.packets;
        while self.carry(true) | self.carry(false) {}
        if self.packets == before {
            let timers = [self.left.engine.next_timeout(), self.right.engine.next_timeout()];
            let next = timers.into_iter().flatten().min().expect("a timer is armed");
            self.now = self.now.max(next);
            self.left.engine.tick(self.now);
            self.right.engine.tick(self.now);
        }
    }

    /// Carries up to 32 packets one way; returns `true` if there were any.
    fn carry(&mut self, from_left: bool) -> bool {
        let Self { left, right, now, packets, loss, marked, random } = self;
        let (from, to) = if from_left { (left, right) } else { (right, left) };
        for nth in 0..32 {
            *now += Duration::from_ns(10);
            let Some(departure) = from.engine.transmit(*now) else { return nth > 0 };
            *packets += 1;
            if random.chance(*loss) {
                continue;
            }
            let (peer, congested) = (PeerId(1), random.chance(*marked));
            let arrival = match departure {
                Departure::Roce(Transmit { packet, format, .. }) => {
                    Arrival::Roce(*format, packet, RxMeta { peer, congested })
                }
                Departure::Falcon(FalconTransmit { packet, label, .. }) => {
                    Arrival::Falcon(FalconArrival { packet, peer, label: *label, congested, hops: 1, csig: None })
                }
                Departure::Message(MessageTransmit { message, label, .. }) => {
                    Arrival::Message(MessageArrival { message, nic: NicId::of(peer), label: *label })
                }
            };
            to.engine.receive(*now, arrival, &mut to.dma);
        }
        true
    }
}
