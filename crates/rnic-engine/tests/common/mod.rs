//! Two engines and a wire whose behaviour each test determines.
//!
//! Every packet takes `DELAY` one way. A `fate` closure is called for every packet in the order of sending and may
//! drop, delay or duplicate it. Sent packets are logged, so that a test reads like a packet trace.

#![allow(dead_code, reason = "each test file uses its own part of the harness")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;
use rnic_wire::{Format, Headers, NakCode, Packet, Qpn, Syndrome};

pub mod ndp;
mod ram;
use ram::Ram;

pub const DELAY: Duration = Duration::from_us(5);
pub const MTU: u32 = 1_024;
/// Bytes of memory of each side: tests send from the first half and receive into the second half.
pub const MEMORY: usize = 1 << 20;
/// Address of the memory as work requests name it.
pub const BASE: u64 = 0x10_0000;

/// Queue key of datagrams.
pub const QKEY: u32 = 0x1122_3344;
/// Global route header that is placed before each received datagram.
pub const GRH: [u8; GRH_LEN as usize] = [0x6f; GRH_LEN as usize];

/// Initial contents of the memory of the two sides, which differ at every address.
static CONTENTS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let fill =
        |step: usize, first: usize| (0..MEMORY).map(|index| (index * step + index / 256 + first) as u8).collect();
    [fill(7, 0), fill(13, 5)]
});

/// Side that sent a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    Left,
    Right,
}

/// Fate of a packet on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Deliver,
    Drop,
    Late(Duration),
    Twice,
    /// Delivered with a congestion mark.
    Marked,
    /// Delivered without its payload.
    Trim,
    /// Delivered twice, the copy this much later.
    TwiceLate(Duration),
}

/// One side: an engine, memory, one queue pair.
pub struct Side {
    pub engine: Engine,
    pub memory: Vec<u8>,
    pub cq: CqId,
    pub qpn: Qpn,
    pub key: u32,
    pub pd: PdId,
    pub srq: Option<SrqId>,
    pub format: Format,
}

/// A packet as recorded in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    pub at: Time,
    pub from: From,
    pub packet: Packet,
    pub kind: TransmitKind,
}

/// A packet on the wire.
#[derive(Clone)]
struct Flying {
    from: From,
    transmit: Transmit,
    payload: Vec<u8>,
    congested: bool,
}

/// Two sides and the wire between them.
pub struct Pair {
    pub left: Side,
    pub right: Side,
    pub now: Time,
    wire: BTreeMap<(Time, u64), Flying>,
    order: u64,
    pub log: Vec<Sent>,
    /// `true` if all packets that are due at the same instant are processed before anything is sent, as by a driver
    /// that receives in batches.
    pub batch: bool,
    fate: Box<dyn FnMut(&Sent) -> Fate>,
}

/// Parameters that differ from test to test.
#[derive(Clone)]
pub struct Setup {
    pub service: Service,
    pub transport: Arc<Transport>,
    pub mtu: u32,
    pub psn: Psn,
    pub reads: u32,
    pub retry_count: u32,
    pub rnr_retry: Option<u32>,
    pub depth: u32,
    pub srq: Option<u32>,
    /// Reads and atomics that each side serves at a time, where this differs from `reads`.
    pub served: Option<u32>,
    pub signal_all: bool,
    /// Number of entries of the completion queues.
    pub completions: u32,
    pub rnr_timer: RnrTimer,
    /// `true` if an observer is attached.
    pub watched: bool,
    /// Threads on which schedulers run.
    pub processors: Option<ProcessorConfig>,
}

impl Setup {
    pub fn new(transport: &str, options: &[(&str, &str)]) -> Self {
        let profile = rnic_transports::select(transport, options.iter().copied()).expect("the transport is registered");
        let transport = Arc::new(Transport::new(profile).expect("the profile is valid"));
        let psn = Psn::new(0xff_fffa);
        Self {
            service: Service::ReliableConnection,
            transport,
            mtu: MTU,
            psn,
            reads: 4,
            retry_count: 7,
            watched: false,
            processors: None,
            rnr_retry: None,
            depth: 256,
            srq: None,
            served: None,
            signal_all: true,
            completions: 4_096,
            rnr_timer: RnrTimer::from_code(1),
        }
    }
}

pub fn default_attributes(setup: &Setup, pd: PdId, cq: CqId) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: setup.depth,
        max_recv_wr: setup.depth,
        max_send_sge: 4,
        max_recv_sge: 4,
        signal_all: setup.signal_all,
        service: setup.service,
        transport: Arc::clone(&setup.transport),
        number: None,
        nvme: None,
    }
}

pub fn connection(setup: &Setup, dest_qpn: Qpn) -> QpConnection {
    QpConnection {
        peer: PeerId(7),
        dest_qpn,
        rq_psn: setup.psn,
        mtu: setup.mtu,
        min_rnr_timer: setup.rnr_timer,
        max_dest_rd_atomic: setup.served.unwrap_or(setup.reads),
    }
}

pub fn timing(setup: &Setup) -> QpTiming {
    QpTiming {
        sq_psn: setup.psn,
        retry_count: setup.retry_count,
        rnr_retry: setup.rnr_retry,
        max_rd_atomic: setup.reads,
    }
}

impl Side {
    fn new(setup: &Setup, secret: u64) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, processors: setup.processors, ..EngineConfig::default() });
        if setup.watched {
            engine.watch();
        }
        let pd = engine.objects_mut().create_pd().expect("a protection domain");
        let cq = engine.objects_mut().create_cq(setup.completions).expect("a legal size");
        let srq = setup.srq.map(|entries| engine.objects_mut().create_srq(pd, entries, 4).expect("a legal size"));
        let attributes = QpAttributes { srq, ..default_attributes(setup, pd, cq) };
        let qpn = engine.create_qp(&attributes).expect("legal attributes");
        let access = Access::all();
        let region = MemoryRegion { pd, addr: BASE, len: MEMORY as u64, local: 0, access };
        let key = engine.objects_mut().register(region).expect("a legal region").0;
        Self { engine, memory: vec![0; MEMORY], cq, qpn, key, pd, srq, format: setup.transport.format() }
    }

    fn connect(&mut self, setup: &Setup, dest_qpn: Qpn) {
        self.connect_qp(self.qpn, setup, dest_qpn);
    }

    /// Takes queue pair `qpn` from `Reset` all the way to `ReadyToSend`.
    pub fn connect_qp(&mut self, qpn: Qpn, setup: &Setup, dest_qpn: Qpn) {
        self.engine.modify_to_init(qpn).expect("from reset");
        if setup.service == Service::UnreliableDatagram {
            self.engine.set_qkey(qpn, QKEY).expect("datagrams have queue keys");
            self.engine.modify_to_rtr_unconnected(qpn, setup.mtu).expect("from init");
        } else {
            self.engine.modify_to_rtr(qpn, &connection(setup, dest_qpn)).expect("from init");
        }
        self.engine.modify_to_rts(Time::ZERO, qpn, &timing(setup)).expect("from ready to receive");
    }

    /// Returns a scatter/gather entry for local memory.
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: BASE + offset, len, lkey: self.key }
    }

    /// Returns this side's memory as the other side addresses it.
    pub fn remote(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { addr: BASE + offset, rkey: self.key }
    }

    pub fn post(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let request = SendRequest { wr_id, op, sges, flags: SendFlags::SIGNALED };
        self.engine.post_send(self.qpn, &request).expect("the send queue is not full");
    }

    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.engine.post_recv(self.qpn, &RecvRequest { wr_id, sges }).expect("the receive queue is not full");
    }

    /// Receives a packet, with the bytes that a driver places before datagrams.
    pub fn receive(&mut self, now: Time, format: Format, packet: &Packet, meta: RxMeta, payload: &[u8]) -> RxOutcome {
        let grh: &[u8] = if format == Format::UnreliableDatagram { &GRH } else { &[] };
        let kept = &mut BTreeMap::new();
        let mut ram = Ram { memory: &mut self.memory, payload: &[grh, payload].concat(), kept };
        self.engine.receive(now, Arrival::Roce(format, packet, meta), &mut ram)
    }

    pub fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.engine.objects_mut().poll_cq_one(self.cq)).collect()
    }

    /// Returns the completions as (wr_id, status).
    pub fn statuses(&mut self) -> Vec<(u64, WcStatus)> {
        self.completions().iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    pub fn info(&self) -> QpInfo {
        self.engine.query_qp(self.qpn).expect("the queue pair exists")
    }
}

impl Pair {
    pub fn new(setup: &Setup) -> Self {
        let (mut left, mut right) = (Side::new(setup, 1), Side::new(setup, 2));
        left.connect(setup, right.qpn);
        right.connect(setup, left.qpn);
        left.memory.copy_from_slice(&CONTENTS[0]);
        right.memory.copy_from_slice(&CONTENTS[1]);
        let fate = Box::new(|_: &Sent| Fate::Deliver);
        Self { left, right, now: Time::ZERO, wire: BTreeMap::new(), order: 0, log: Vec::new(), batch: false, fate }
    }

    pub fn of(transport: &str) -> Self {
        Self::new(&Setup::new(transport, &[]))
    }

    /// Creates another pair of connected queue pairs, with the completion queues of the first pair.
    pub fn another(&mut self, setup: &Setup) -> (Qpn, Qpn) {
        let [left, right] = [&mut self.left, &mut self.right].map(|side| {
            let attributes = QpAttributes { srq: side.srq, ..default_attributes(setup, side.pd, side.cq) };
            side.engine.create_qp(&attributes).expect("legal attributes")
        });
        self.left.connect_qp(left, setup, right);
        self.right.connect_qp(right, setup, left);
        (left, right)
    }

    /// Sets the closure that decides the fate of every packet from now on.
    pub fn wire(&mut self, fate: impl FnMut(&Sent) -> Fate + 'static) {
        self.fate = Box::new(fate);
    }

    /// Runs until no event is left, or until `until`. Panics after a million steps.
    pub fn run_until(&mut self, until: Time) {
        for _ in 0..1_000_000 {
            self.drain(From::Left);
            self.drain(From::Right);
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let timers = [self.left.engine.next_timeout(), self.right.engine.next_timeout()];
            let Some(next) = arrival.into_iter().chain(timers.into_iter().flatten()).min() else { return };
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            self.deliver_due();
            self.left.engine.tick(self.now);
            self.right.engine.tick(self.now);
        }
        panic!("packets or timers remain at {}", self.now);
    }

    /// Runs for ten simulated seconds, or until no event is left.
    pub fn run(&mut self) {
        self.run_until(self.now + Duration::from_secs(10));
    }

    fn drain(&mut self, from: From) {
        let side = match from {
            From::Left => &mut self.left,
            From::Right => &mut self.right,
        };
        while let Some(transmit) = side.engine.transmit(self.now).and_then(Departure::roce).copied() {
            let mut payload = Vec::new();
            for segment in side.engine.segments() {
                payload.extend(&side.memory[segment.local as usize..segment.local as usize + segment.len as usize]);
            }
            assert_eq!(payload.len(), transmit.packet.payload_len as usize, "wrong segment lengths");
            let sent = Sent { at: self.now, from, packet: transmit.packet, kind: transmit.kind };
            self.log.push(sent);
            let fate = (self.fate)(&sent);
            let (first, second) = match fate {
                Fate::Drop => (None, None),
                Fate::Deliver | Fate::Marked | Fate::Trim => (Some(DELAY), None),
                Fate::Twice => (Some(DELAY), Some(DELAY)),
                Fate::TwiceLate(extra) => (Some(DELAY), Some(DELAY + extra)),
                Fate::Late(extra) => (Some(DELAY + extra), None),
            };
            let mut flying = Flying { from, transmit, payload, congested: fate == Fate::Marked };
            if fate == Fate::Trim
                && let Some(packet) = transmit.packet.trimmed(transmit.format)
            {
                flying.transmit.packet = packet;
                flying.payload.clear();
            }
            for delay in first.into_iter().chain(second) {
                self.order += 1;
                self.wire.insert((self.now + delay, self.order), flying.clone());
            }
        }
    }

    /// Delivers the packets that are due at `now` without sending anything.
    pub fn take_in_due(&mut self) {
        let batch = std::mem::replace(&mut self.batch, true);
        self.deliver_due();
        self.batch = batch;
    }

    fn deliver_due(&mut self) {
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let Flying { from, transmit, payload, congested } = entry.remove();
            let side = match from {
                From::Left => &mut self.right,
                From::Right => &mut self.left,
            };
            assert_eq!(transmit.peer, PeerId(7));
            let meta = RxMeta { peer: PeerId(7), congested };
            side.receive(self.now, transmit.format, &transmit.packet, meta, &payload);
            if self.batch {
                continue;
            }
            // The response to a packet is sent before the next packet is delivered, as on a real link.
            self.drain(match from {
                From::Left => From::Right,
                From::Right => From::Left,
            });
        }
    }

    /// Returns the request and response packets of one side as (offset from the first PSN, `true` if it is a
    /// retransmission).
    pub fn data_of(&self, from: From, first: Psn) -> Vec<(i64, bool)> {
        let data = |sent: &&Sent| sent.from == from && sent.kind != TransmitKind::Ack;
        let entry = |sent: &Sent| (first.distance_to(sent.packet.psn), sent.kind.is_retransmission());
        self.log.iter().filter(data).map(entry).collect()
    }

    /// Returns the request and response packets of one side as (microseconds, offset from the first PSN, `true` if it
    /// is a retransmission).
    pub fn trace_of(&self, from: From, first: Psn) -> Vec<(u64, i64, bool)> {
        let data = |sent: &&Sent| sent.from == from && sent.kind != TransmitKind::Ack;
        let entry = |sent: &Sent| {
            let us = sent.at.as_ps() / Duration::from_us(1).as_ps();
            (us, first.distance_to(sent.packet.psn), sent.kind.is_retransmission())
        };
        self.log.iter().filter(data).map(entry).collect()
    }

    /// Returns the packets that one side retransmitted, as (microseconds, offset from the first PSN).
    pub fn resent_at(&self, from: From, first: Psn) -> Vec<(u64, i64)> {
        self.trace_of(from, first).into_iter().filter(|(_, _, again)| *again).map(|(us, seq, _)| (us, seq)).collect()
    }

    /// Returns the offsets of the packets that one side retransmitted.
    pub fn resent(&self, from: From, first: Psn) -> Vec<i64> {
        self.data_of(from, first).into_iter().filter(|(_, again)| *again).map(|(offset, _)| offset).collect()
    }

    /// Returns the NACKs of one side as (expected, selectively acknowledged), both as offsets from the first PSN.
    pub fn nacks_of(&self, from: From, first: Psn) -> Vec<(i64, Option<i64>)> {
        let entry = |sent: &Sent| match sent.packet.headers {
            Headers::Ack { aeth, sack } | Headers::ReadAck { aeth, sack }
                if sent.from == from && aeth.syndrome == Syndrome::Nak(NakCode::PsnSequenceError) =>
            {
                Some((first.distance_to(sent.packet.psn), sack.map(|psn| first.distance_to(psn))))
            }
            _ => None,
        };
        self.log.iter().filter_map(entry).collect()
    }

    /// Returns how many acknowledgements of any kind one side sent.
    pub fn acks_of(&self, from: From) -> usize {
        self.log.iter().filter(|sent| sent.from == from && sent.kind == TransmitKind::Ack).count()
    }
}

/// Drops the `nth` transmission (from 0) of each listed request packet of the left side.
pub fn drop_requests(first: Psn, drops: &[(i64, u32)]) -> impl FnMut(&Sent) -> Fate + 'static {
    drop_data(From::Left, first, drops)
}

/// Drops the `nth` transmission (from 0) of each listed data packet of one side.
pub fn drop_data(from: From, first: Psn, drops: &[(i64, u32)]) -> impl FnMut(&Sent) -> Fate + 'static {
    let drops = drops.to_vec();
    let mut seen: BTreeMap<i64, u32> = BTreeMap::new();
    move |sent| {
        if sent.from != from || sent.kind == TransmitKind::Ack {
            return Fate::Deliver;
        }
        let offset = first.distance_to(sent.packet.psn);
        let nth = seen.entry(offset).or_default();
        let fate = if drops.contains(&(offset, *nth)) { Fate::Drop } else { Fate::Deliver };
        *nth += 1;
        fate
    }
}
