//! No allocation per packet.
//!
//! Two engines back to back in memory, on a thread whose allocations are counted. After a warm-up, in which queues
//! grow to the size that the load needs, 100,000 packets of each kind of load, and not one allocation. With loss the
//! same holds once every queue pair has been through a recovery, because bitmaps are made when they are first needed.

#[path = "common/heap.rs"]
mod heap;

use std::sync::Arc;

use rnic_base::{Duration, Probability, Psn, RandomStream, RandomStreams, Time};
use rnic_engine::*;
use rnic_wire::Qpn;

/// Packets that must pass without an allocation.
const PACKETS: u64 = 100_000;
/// Queue pairs on each side.
const QUEUE_PAIRS: usize = 4;
/// Requests under way on each.
const DEPTH: u64 = 16;
const MTU: u32 = 1_024;
/// Packets that meet congestion, for transports that heed it.
const MARKED: Probability = Probability::ratio(1, 500);

/// What is sent.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Writes of so many bytes.
    Write(u32),
    /// Sends of so many bytes.
    Send(u32),
    /// Reads of so many bytes.
    Read(u32),
    /// Fetch-and-add.
    Atomic,
    /// All of them in turn.
    Mixed,
}

const LOADS: [Load; 6] =
    [Load::Write(8), Load::Write(65_536), Load::Send(3_000), Load::Read(20_000), Load::Atomic, Load::Mixed];

struct Side {
    engine: Engine,
    cq: CqId,
    numbers: Vec<Qpn>,
    /// What each queue pair has posted and not completed.
    under_way: Vec<u64>,
    key: u32,
}

impl Side {
    fn new(transport: &Arc<Transport>, secret: u64) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
        let pd = engine.create_pd();
        let cq = engine.create_cq(4_096).expect("a legal size");
        let numbers = (0..QUEUE_PAIRS).map(|_| {
            let attributes = QpAttributes {
                pd,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                signal_all: true,
                transport: Arc::clone(transport),
                number: None,
            };
            engine.create_qp(&attributes).expect("legal attributes")
        });
        let numbers = numbers.collect();
        let region = MemoryRegion { pd, addr: 0, len: 1 << 20, local: 0, access: Access::all() };
        let key = engine.register(region).expect("a legal region").0;
        Self { engine, cq, numbers, under_way: vec![0; QUEUE_PAIRS], key }
    }

    fn connect(&mut self, other: &[Qpn]) {
        let psn = Psn::new(0xff_0000);
        for (qpn, dest_qpn) in self.numbers.iter().zip(other) {
            let connection = QpConnection {
                peer: PeerId(1),
                dest_qpn: *dest_qpn,
                rq_psn: psn,
                mtu: MTU,
                min_rnr_timer: RnrTimer::from_code(1),
                max_dest_rd_atomic: 8,
            };
            let timing = QpTiming { sq_psn: psn, retry_count: 1_000, rnr_retry: None, max_rd_atomic: 8 };
            self.engine.modify_to_init(*qpn).expect("from reset");
            self.engine.modify_to_rtr(*qpn, &connection).expect("from init");
            self.engine.modify_to_rts(Time::ZERO, *qpn, &timing).expect("from ready to receive");
        }
    }

    /// Takes completions; successful sends make room for new ones, receives are posted again.
    fn collect(&mut self) {
        let mut completions = [BLANK; 32];
        loop {
            let count = self.engine.poll_cq(self.cq, &mut completions);
            for completion in &completions[..count] {
                assert_eq!(completion.status, WcStatus::Success);
                if matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) {
                    self.post_recv(completion.qpn);
                } else {
                    self.under_way[completion.wr_id as usize] -= 1;
                }
            }
            if count < completions.len() {
                return;
            }
        }
    }

    fn post_recv(&mut self, qpn: Qpn) {
        let sge = Sge { addr: 0, len: 1 << 16, lkey: self.key };
        self.engine.post_recv(qpn, &RecvRequest { wr_id: 0, sges: &[sge] }).expect("room");
    }
}

const BLANK: Completion = Completion {
    wr_id: 0,
    qpn: Qpn::new(0),
    status: WcStatus::Success,
    opcode: WcOpcode::Send,
    byte_len: 0,
    word: 0,
    flags: WcFlags::empty(),
};

/// Both sides and what the wire does.
struct BackToBack {
    left: Side,
    right: Side,
    load: Load,
    turn: u64,
    now: Time,
    packets: u64,
    loss: Probability,
    random: RandomStream,
}

impl BackToBack {
    fn new(transport: &str, options: &[(&str, &str)], load: Load, loss: Probability) -> Self {
        let profile = rnic_transports::select(transport, options.iter().copied()).expect("a transport that exists");
        let transport = Arc::new(Transport::new(profile).expect("a sound transport"));
        let (mut left, mut right) = (Side::new(&transport, 1), Side::new(&transport, 2));
        let numbers = (left.numbers.clone(), right.numbers.clone());
        left.connect(&numbers.1);
        right.connect(&numbers.0);
        for qpn in &numbers.1 {
            (0..2 * DEPTH).for_each(|_| right.post_recv(*qpn));
        }
        let random = RandomStreams::new(1).stream("no_alloc/loss");
        Self { left, right, load, turn: 0, now: Time::ZERO, packets: 0, loss, random }
    }

    fn post(&mut self, index: usize) {
        self.turn += 1;
        let load = match self.load {
            Load::Mixed => LOADS[self.turn as usize % 5],
            load => load,
        };
        let remote = RemoteMemory { addr: 1 << 18, rkey: self.right.key };
        let (op, len) = match load {
            Load::Write(len) => (SendOp::Write { remote, immediate: None }, len),
            Load::Send(len) => (SendOp::Send { immediate: None }, len),
            Load::Read(len) => (SendOp::Read { remote }, len),
            Load::Atomic | Load::Mixed => (SendOp::FetchAdd { remote, add: 1 }, 8),
        };
        let sges = [Sge { addr: 1 << 17, len, lkey: self.left.key }];
        let request = SendRequest { wr_id: index as u64, op, sges: &sges, flags: SendFlags::SIGNALED };
        self.left.engine.post_send(self.left.numbers[index], &request).expect("room");
        self.left.under_way[index] += 1;
    }

    /// Fills the queues, then moves packets until neither side has any; if that was none, lets a timer run out.
    fn round(&mut self) {
        for index in 0..QUEUE_PAIRS {
            while self.left.under_way[index] < DEPTH {
                self.post(index);
            }
        }
        let before = self.packets;
        while self.carry(true) | self.carry(false) {}
        self.left.collect();
        self.right.collect();
        if self.packets == before {
            let timers = [self.left.engine.next_timeout(), self.right.engine.next_timeout()];
            let next = timers.into_iter().flatten().min().expect("somebody waits for something");
            self.now = self.now.max(next);
            self.left.engine.tick(self.now);
            self.right.engine.tick(self.now);
        }
    }

    /// Carries up to 32 packets one way; answers whether there were any.
    fn carry(&mut self, from_left: bool) -> bool {
        let Self { left, right, now, packets, loss, random, .. } = self;
        let (from, to) = if from_left { (left, right) } else { (right, left) };
        for nth in 0..32 {
            *now += Duration::from_ns(10);
            let Some(transmit) = from.engine.transmit(*now) else { return nth > 0 };
            *packets += 1;
            if !random.chance(*loss) {
                let meta = RxMeta { peer: PeerId(1), congested: random.chance(MARKED) };
                to.engine.receive(*now, transmit.format, &transmit.packet, meta, &mut NoDma);
            }
        }
        true
    }

    fn run(&mut self, packets: u64) {
        let goal = self.packets + packets;
        while self.packets < goal {
            self.round();
        }
    }
}

fn allocations_of(transport: &str, options: &[(&str, &str)], load: Load, lossy: bool) -> u64 {
    // Without loss all queues are as full as they get. With much loss, every window of every queue pair has its first
    // recovery.
    let loss = |percent| if lossy { Probability::ratio(percent, 100) } else { Probability::NEVER };
    let mut pair = BackToBack::new(transport, options, load, Probability::NEVER);
    for percent in [0, 10, 1] {
        pair.loss = loss(percent);
        pair.run(PACKETS / 4);
    }
    let before = heap::allocations();
    pair.run(PACKETS);
    heap::allocations() - before
}

/// The counter counts: making a queue pair allocates.
#[test]
fn the_counter_sees_what_is_allocated() {
    let before = heap::allocations();
    let pair = BackToBack::new("irn", &[], Load::Mixed, Probability::NEVER);
    assert!(heap::allocations() - before > 10);
    assert!(heap::live_bytes() > 1_000);
    drop(pair);
}

#[test]
fn nothing_is_allocated_without_loss() {
    for transport in ["roce-gbn", "irn"] {
        for load in LOADS {
            assert_eq!(allocations_of(transport, &[], load, false), 0, "{transport}, {load:?}");
        }
    }
}

#[test]
fn nothing_is_allocated_with_loss() {
    for transport in ["roce-gbn", "irn"] {
        for load in LOADS {
            let allocations = allocations_of(transport, &[], load, true);
            assert_eq!(allocations, 0, "{transport}, {load:?}");
        }
    }
}

/// Policies with more to remember: pacing and its timers, round-trip times, other bitmaps.
#[test]
fn nothing_is_allocated_by_other_policies() {
    type Variant = (&'static str, &'static [(&'static str, &'static str)]);
    let variants: [Variant; 6] = [
        ("irn", &[("recovery", "go-back-n")]),
        ("irn", &[("dynamic_rto", "true"), ("sack_bitmap", "false")]),
        ("irn", &[("cap_packets", "0")]),
        ("irn", &[("paths", "spray"), ("nack_threshold", "4")]),
        ("irn", &[("control", "dcqcn")]),
        ("roce-gbn", &[("control", "dcqcn"), ("cap_packets", "20")]),
    ];
    for (transport, options) in variants {
        let allocations = allocations_of(transport, options, Load::Mixed, true);
        assert_eq!(allocations, 0, "{transport}, {options:?}");
    }
}
