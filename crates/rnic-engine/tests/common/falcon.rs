//! Two engines whose queue pairs use Falcon, with memory, and a wire whose behaviour each test determines.

#![allow(dead_code, reason = "each test file uses its own part of the harness")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use rnic_base::{Duration, Psn, RandomStream, Time};
use rnic_engine::*;
use rnic_wire::Qpn;
use rnic_wire::falcon::{EncodeError, FlowLabel, Packet, codec, psp};

#[path = "ram.rs"]
mod ram;
pub use ram::Ram;

pub const MTU: u32 = 1_024;
pub const MEMORY: usize = 1 << 20;
/// Address of the memory as work requests name it.
pub const BASE: u64 = 0x10_0000;
/// Address of the memory that tests receive into: the second half.
pub const INBOX: u64 = BASE + (MEMORY as u64) / 2;

/// Initial contents of the memory of each side, derived from its secret.
static CONTENTS: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [2, 1].map(|first| (0..MEMORY).map(|index| (index * 7 + index / 256 + first) as u8).collect()));

/// One side: an engine, memory, one queue pair.
pub struct Side {
    pub engine: Engine,
    pub memory: Vec<u8>,
    /// Payload that arrived out of order.
    pub kept: BTreeMap<u64, Vec<u8>>,
    pub kept_most: usize,
    pub cq: CqId,
    pub qpn: Qpn,
    /// Further queue pairs, made by [`Pair::connect_another`].
    pub others: Vec<Qpn>,
    pub key: u32,
    pub pd: PdId,
    pub srq: Option<SrqId>,
    pub done: Vec<Completion>,
}

/// A packet as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Time,
    pub from: usize,
    pub qpn: Qpn,
    pub packet: Packet,
    pub kind: TransmitKind,
}

/// Delays of up to two copies of a packet; a packet without any copy is lost.
pub type Fate = [Option<Duration>; 2];

pub const DELAY: Duration = Duration::from_us(5);
pub const LOST: Fate = [None, None];
pub const DELIVERED: Fate = [Some(DELAY), None];

struct Flying {
    to: usize,
    packet: Packet,
    label: FlowLabel,
    payload: Vec<u8>,
}

/// Parameters that differ from test to test.
#[derive(Clone)]
pub struct Setup {
    pub transport: Arc<Transport>,
    pub reads: u32,
    pub retry_count: u32,
    pub rnr_retry: Option<u32>,
    /// RNR timer: the time for which a receiver that is not ready delays its peer's next attempt.
    pub rnr_timer: RnrTimer,
    pub depth: u32,
    pub srq: Option<u32>,
    pub signal_all: bool,
    pub mtu: u32,
}

impl Setup {
    pub fn new(options: &[(&str, &str)]) -> Self {
        let profile = rnic_transports::select("falcon", options.iter().copied()).expect("legal options");
        let transport = Arc::new(Transport::new(profile).expect("the profile is valid"));
        let (retry_count, rnr_retry, rnr_timer) = (7, None, RnrTimer::from_code(1));
        let (depth, srq, signal_all) = (256, None, true);
        Self { transport, reads: 4, retry_count, rnr_retry, rnr_timer, depth, srq, signal_all, mtu: MTU }
    }
}

pub fn attributes(setup: &Setup, pd: PdId, cq: CqId, srq: Option<SrqId>) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq,
        max_send_wr: setup.depth,
        max_recv_wr: setup.depth,
        max_send_sge: 4,
        max_recv_sge: 4,
        signal_all: setup.signal_all,
        service: Service::ReliableConnection,
        transport: Arc::clone(&setup.transport),
        number: None,
        nvme: None,
    }
}

impl Side {
    fn new(setup: &Setup, secret: u64) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
        let pd = engine.objects_mut().create_pd().expect("a protection domain");
        let cq = engine.objects_mut().create_cq(8_192).expect("a legal size");
        let srq = setup.srq.map(|entries| engine.objects_mut().create_srq(pd, entries, 4).expect("a legal size"));
        let qpn = engine.create_qp(&attributes(setup, pd, cq, srq)).expect("legal attributes");
        let region = MemoryRegion { pd, addr: BASE, len: MEMORY as u64, local: 0, access: Access::all() };
        let key = engine.objects_mut().register(region).expect("a legal region").0;
        let memory = CONTENTS[secret as usize % 2].clone();
        let (kept, others, done) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { engine, memory, kept, kept_most: 0, cq, qpn, others, key, pd, srq, done }
    }

    /// First PSN of an end; different at each end.
    fn psn(end: usize) -> Psn {
        Psn::new(0xff_fffa - end as u32 * 100)
    }

    pub fn begin_receiving(&mut self, setup: &Setup, dest_qpn: Qpn, me: usize) {
        self.begin_receiving_on(self.qpn, setup, dest_qpn, me);
    }

    pub fn begin_receiving_on(&mut self, qpn: Qpn, setup: &Setup, dest_qpn: Qpn, me: usize) {
        let connection = QpConnection {
            peer: PeerId(1 - me as u32),
            dest_qpn,
            rq_psn: Self::psn(1 - me),
            mtu: setup.mtu,
            min_rnr_timer: setup.rnr_timer,
            max_dest_rd_atomic: setup.reads,
        };
        self.engine.modify_to_init(qpn).expect("from reset");
        self.engine.modify_to_rtr(qpn, &connection).expect("from init");
    }

    pub fn begin_sending(&mut self, now: Time, setup: &Setup, me: usize) {
        self.begin_sending_on(self.qpn, now, setup, me);
    }

    pub fn begin_sending_on(&mut self, qpn: Qpn, now: Time, setup: &Setup, me: usize) {
        let Setup { retry_count, rnr_retry, reads: max_rd_atomic, .. } = *setup;
        let timing = QpTiming { sq_psn: Self::psn(me), retry_count, rnr_retry, max_rd_atomic };
        self.engine.modify_to_rts(now, qpn, &timing).expect("from ready to receive");
    }

    pub fn sge(&self, addr: u64, len: u32) -> Sge {
        Sge { addr, len, lkey: self.key }
    }

    pub fn try_post(&mut self, wr_id: u64, op: SendOp, sges: &[Sge], flags: SendFlags) -> Result<(), PostError> {
        self.engine.post_send(self.qpn, &SendRequest { wr_id, op, sges, flags })
    }

    /// Posts a request to queue pair `qpn`, which need not be the first one.
    pub fn post_on(&mut self, qpn: Qpn, wr_id: u64, op: SendOp, addr: u64, len: u32) {
        let request = SendRequest { wr_id, op, sges: &[self.sge(addr, len)], flags: SendFlags::empty() };
        self.engine.post_send(qpn, &request).expect("the queue is not full");
    }

    pub fn post(&mut self, wr_id: u64, op: SendOp, addr: u64, len: u32) {
        let sge = self.sge(addr, len);
        self.try_post(wr_id, op, &[sge], SendFlags::empty()).expect("the queue is not full");
    }

    pub fn post_recv(&mut self, wr_id: u64, addr: u64, len: u32) {
        let request = RecvRequest { wr_id, sges: &[self.sge(addr, len)] };
        match self.srq {
            Some(srq) => self.engine.objects_mut().post_srq_recv(srq, &request).expect("the queue is not full"),
            None => self.engine.post_recv(self.qpn, &request).expect("the queue is not full"),
        }
    }

    /// Registers another region, of `len` bytes from `addr` on, and returns its key.
    pub fn register(&mut self, addr: u64, len: u64) -> u32 {
        let region = MemoryRegion { pd: self.pd, addr, len, local: addr - BASE, access: Access::all() };
        self.engine.objects_mut().register(region).expect("a legal region").0
    }

    pub fn bytes(&self, addr: u64, len: u32) -> &[u8] {
        &self.memory[(addr - BASE) as usize..][..len as usize]
    }

    pub fn word(&self, addr: u64) -> u64 {
        u64::from_ne_bytes(self.bytes(addr, 8).try_into().expect("eight bytes"))
    }

    pub fn state(&self) -> QpState {
        self.engine.query_qp(self.qpn).expect("it exists").state
    }

    /// Returns the completions since the last call, as (wr_id, status).
    pub fn take(&mut self) -> Vec<(u64, WcStatus)> {
        self.done.drain(..).map(|done| (done.wr_id, done.status)).collect()
    }
}

/// Two sides and the wire between them.
pub struct Pair {
    pub ends: [Side; 2],
    pub now: Time,
    wire: BTreeMap<(Time, u64), Flying>,
    order: u64,
    pub log: Vec<Sent>,
    pub keeps_log: bool,
    /// `true` if every packet is encoded and decoded on the wire.
    pub encodes: bool,
    pub sent: u64,
    fate: Box<dyn FnMut(&Sent) -> Fate>,
}

impl Pair {
    pub fn new(setup: &Setup, fate: impl FnMut(&Sent) -> Fate + 'static) -> Self {
        let mut pair = Self::unconnected(setup, fate);
        let numbers = [0, 1].map(|end| pair.ends[end].qpn);
        for end in [0, 1] {
            pair.ends[end].begin_receiving(setup, numbers[1 - end], end);
            pair.ends[end].begin_sending(pair.now, setup, end);
        }
        pair
    }

    pub fn unconnected(setup: &Setup, fate: impl FnMut(&Sent) -> Fate + 'static) -> Self {
        let ends = [Side::new(setup, 1), Side::new(setup, 2)];
        let (wire, log, fate) = (BTreeMap::new(), Vec::new(), Box::new(fate));
        Self { ends, now: Time::from_us(100), wire, order: 0, log, keeps_log: true, encodes: true, sent: 0, fate }
    }

    /// Creates another queue pair at each end, and connects the two.
    pub fn connect_another(&mut self, setup: &Setup) -> [Qpn; 2] {
        self.connect_nvme(setup, [None, None])
    }

    /// As `connect_another`, with the NVMe role of each end.
    pub fn connect_nvme(&mut self, setup: &Setup, roles: [Option<NvmeRole>; 2]) -> [Qpn; 2] {
        let numbers = [0, 1].map(|end| {
            let Side { engine, others, pd, cq, srq, .. } = &mut self.ends[end];
            let attributes = QpAttributes { nvme: roles[end], ..attributes(setup, *pd, *cq, *srq) };
            others.push(engine.create_qp(&attributes).expect("legal attributes"));
            others[others.len() - 1]
        });
        for end in [0, 1] {
            self.ends[end].begin_receiving_on(numbers[end], setup, numbers[1 - end], end);
            self.ends[end].begin_sending_on(numbers[end], self.now, setup, end);
        }
        numbers
    }

    pub fn set_fate(&mut self, fate: impl FnMut(&Sent) -> Fate + 'static) {
        self.fate = Box::new(fate);
    }

    pub fn remote(&self, end: usize, addr: u64) -> RemoteMemory {
        RemoteMemory { addr, rkey: self.ends[1 - end].key }
    }

    fn pump(&mut self) {
        for from in [0, 1] {
            loop {
                let engine = &mut self.ends[from].engine;
                let Some(FalconTransmit { packet, peer, label, from: qpn, kind }) =
                    engine.transmit(self.now).and_then(Departure::falcon).copied()
                else {
                    break;
                };
                assert_eq!(peer, PeerId(1 - from as u32));
                assert!(qpn == self.ends[from].qpn || self.ends[from].others.contains(&qpn));
                let mut payload = Vec::new();
                for segment in self.ends[from].engine.segments() {
                    let start = segment.local as usize;
                    payload.extend_from_slice(&self.ends[from].memory[start..start + segment.len as usize]);
                }
                assert_eq!(payload.len(), packet.payload_len as usize, "{packet:?}");
                if self.encodes {
                    assert_eq!(travelled(&packet), Ok(packet), "the decoded packet differs from the transmitted one");
                }
                let sent = Sent { at: self.now, from, qpn, packet, kind };
                if self.keeps_log {
                    self.log.push(sent);
                }
                self.sent += 1;
                for delay in (self.fate)(&sent).into_iter().flatten() {
                    self.order += 1;
                    let flying = Flying { to: 1 - from, packet, label, payload: payload.clone() };
                    self.wire.insert((self.now + delay, self.order), flying);
                }
            }
        }
    }

    /// Delivers a packet to end `to`, whether or not the other end sent it.
    pub fn deliver(&mut self, to: usize, packet: &Packet, label: FlowLabel, payload: &[u8]) -> RxOutcome {
        let Side { engine, memory, kept, .. } = &mut self.ends[to];
        let peer = PeerId(1 - to as u32);
        let arrival = FalconArrival { packet, peer, label, congested: false, hops: 3, csig: None };
        let outcome = engine.receive(self.now, Arrival::Falcon(arrival), &mut Ram { memory, payload, kept });
        let end = &mut self.ends[to];
        end.kept_most = end.kept_most.max(end.kept.len());
        outcome
    }

    /// Advances to the next event, if there is one until `until`.
    fn step(&mut self, until: Time) -> bool {
        self.pump();
        let packet = self.wire.first_key_value().map(|((at, _), _)| *at);
        let timers = [0, 1].map(|end| self.ends[end].engine.next_timeout().map(|at| at.max(self.now)));
        let Some(next) = [packet, timers[0], timers[1]].into_iter().flatten().min().filter(|at| *at <= until) else {
            return false;
        };
        self.now = next;
        if packet == Some(next) {
            let (_, Flying { to, packet, label, payload }) = self.wire.pop_first().expect("not empty");
            self.deliver(to, &packet, label, &payload);
        } else {
            for end in [0, 1] {
                if timers[end] == Some(next) {
                    self.ends[end].engine.tick(next);
                }
            }
        }
        for end in &mut self.ends {
            while let Some(completion) = end.engine.objects_mut().poll_cq_one(end.cq) {
                end.done.push(completion);
            }
        }
        true
    }

    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps_now = (self.now, 0);
        while self.step(until) {
            steps_now = if steps_now.0 == self.now { (self.now, steps_now.1 + 1) } else { (self.now, 0) };
            assert!(steps_now.1 < 100_000, "packets are exchanged without end at {}", self.now);
        }
        self.now = until;
        self.poll();
    }

    pub fn poll(&mut self) {
        for end in &mut self.ends {
            while let Some(completion) = end.engine.objects_mut().poll_cq_one(end.cq) {
                end.done.push(completion);
            }
        }
    }
}

/// Returns `packet` as the receiver decodes it from its encoded form with a payload of zeros, or the error when it
/// cannot be encoded.
pub fn travelled(packet: &Packet) -> Result<Packet, EncodeError> {
    let (mut datagram, payload) = (Vec::new(), vec![0; packet.payload_len as usize]);
    codec::assemble(&psp::Header::default(), packet, &[&payload], &mut datagram)?;
    let (_, decoded) = codec::decode_datagram(&datagram).expect("an encoded packet can be decoded");
    assert_eq!(decoded.payload.len(), payload.len());
    Ok(decoded.packet)
}

/// Returns a wire that loses, duplicates and delays packets, each with the given probability in thousandths.
pub fn bad(mut random: RandomStream, loss: u64, twice: u64, late: u64) -> impl FnMut(&Sent) -> Fate + 'static {
    move |_| {
        let [arrives, doubles] = [random.below(1_000) >= loss, random.below(1_000) < twice];
        [arrives, doubles].map(|copy| {
            let jitter = if random.below(1_000) < late { random.below(40_000) } else { random.below(50) };
            copy.then(|| Duration::from_ns(5_000 + jitter))
        })
    }
}
