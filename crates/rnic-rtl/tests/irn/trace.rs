//! Real runs of the transport `irn`, recorded: the engine and the specification receive the same events and must send
//! the same packets, and the circuits replay what was recorded (row I-R24).
//!
//! Two engines with several queue pairs are connected by a wire that loses, delays and duplicates packets. Every event
//! that an engine is given is given to the specification as well: an opportunity to send, a packet, an expired timer.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rnic_base::rng::{RandomStream, RandomStreams};
use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;
use rnic_rtl::spec::irn::{Acknowledgement, Effect, ID_MASK, ReceiveContext, SendContext, Timer, WINDOW, later};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_wire::{Format, Packet, Qpn};

use super::modules::{Record, run_receive_ack, run_receive_data, run_timeout, run_tx_free};
use super::{events, modules};

const QUEUE_PAIRS: usize = 6;
const MTU: u32 = 256;
const DELAY: Duration = Duration::from_us(5);
/// Time between two packets of the sending engine.
const SLOT: Duration = Duration::from_ns(80);
const RTO_LOW: Duration = Duration::from_us(100);
const RTO_HIGH: Duration = Duration::from_us(320);
const PEER: PeerId = PeerId(7);
const MEMORY: u32 = 1 << 16;
const RECEIVES: u32 = 512;

/// Modules, in the order of [`modules`].
const RECEIVE_DATA: usize = 0;
const TX_FREE: usize = 1;
const RECEIVE_ACK: usize = 2;
const TIMEOUT: usize = 3;

/// Parts in a thousand of the packets that suffer a fault, and the load.
#[derive(Clone, Copy, Debug)]
struct Faults {
    data_lost: u64,
    acks_lost: u64,
    data_late: u64,
    acks_late: u64,
    twice: u64,
    /// Parts in four thousand: start of a period in which all packets are lost.
    outage: u64,
    /// Flows of few packets at a time, so that timers often expire with few in flight.
    is_sparse: bool,
    /// Queue pairs that send: one alone fills its window.
    senders: usize,
}

const NO_FAULTS: Faults = Faults {
    data_lost: 0,
    acks_lost: 0,
    data_late: 0,
    acks_late: 0,
    twice: 0,
    outage: 0,
    is_sparse: false,
    senders: QUEUE_PAIRS,
};

const SCENARIOS: [Faults; 6] = [
    Faults { data_lost: 10, senders: 1, ..NO_FAULTS },
    Faults { data_lost: 50, acks_lost: 30, senders: 2, ..NO_FAULTS },
    Faults { data_late: 30, acks_late: 30, twice: 5, ..NO_FAULTS },
    Faults { data_lost: 20, acks_lost: 200, data_late: 100, acks_late: 100, twice: 20, ..NO_FAULTS },
    Faults { data_lost: 5, acks_lost: 5, outage: 1, ..NO_FAULTS },
    Faults { data_lost: 80, acks_lost: 60, is_sparse: true, ..NO_FAULTS },
];

/// Settings that specification and engine must agree on.
#[derive(Clone, Copy, Debug)]
struct Settings {
    cap: u32,
    low_packets: u32,
    rto_high: Duration,
}

/// Those of the transport.
const SETTINGS: Settings = Settings { cap: 110, low_packets: 3, rto_high: RTO_HIGH };

/// One direction of a queue pair: the numbers of its ends, and the contexts of the specification.
struct Flow {
    from: Qpn,
    to: Qpn,
    sender: SendContext,
    receiver: ReceiveContext,
    /// First packet after the posted messages.
    end: u32,
    deadline: Option<Time>,
}

/// A packet on the wire.
#[derive(Clone)]
struct Flying {
    flow: usize,
    is_data: bool,
    format: Format,
    packet: Packet,
}

/// Counts placements of payload.
struct Placed<'a>(&'a Cell<u32>);

impl Dma for Placed<'_> {
    fn place(&mut self, _: u32, _: Segment) -> Result<(), MemoryFault> {
        self.0.set(self.0.get() + 1);
        Ok(())
    }

    fn store(&mut self, _: u64, _: u64) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn compare_swap(&mut self, _: u64, _: u64, _: u64) -> Result<u64, MemoryFault> {
        Ok(0)
    }

    fn fetch_add(&mut self, _: u64, _: u64) -> Result<u64, MemoryFault> {
        Ok(0)
    }
}

/// Replays records in the circuits, if those are built.
struct Recorder {
    models: Option<[Model; 4]>,
    waiting: [Vec<Record>; 4],
    counts: [u64; 4],
}

impl Recorder {
    fn add(&mut self, module: usize, record: Record) -> Result<(), String> {
        self.counts[module] += 1;
        self.replay(module, record)
    }

    /// Replays a record that is not counted: there are many of those in which nothing is sent.
    fn replay(&mut self, module: usize, record: Record) -> Result<(), String> {
        self.waiting[module].push(record);
        if self.waiting[module].len() == 4_096 { self.flush(module) } else { Ok(()) }
    }

    fn flush(&mut self, module: usize) -> Result<(), String> {
        let records = std::mem::take(&mut self.waiting[module]);
        let Some(models) = self.models.as_mut().filter(|_| !records.is_empty()) else { return Ok(()) };
        let inputs: Vec<u64> = records.iter().flat_map(|record| record.inputs.iter().copied()).collect();
        let answers = models[module].run(&inputs).expect("the model runs");
        let mut pairs = records.iter().zip(answers.chunks_exact(records[0].outputs.len()));
        match pairs.find(|(record, answer)| record.outputs != *answer) {
            None => Ok(()),
            Some((record, answer)) => Err(format!("circuit {module} answers {record:x?} with {answer:x?}")),
        }
    }
}

/// An engine with its objects.
struct Side {
    engine: Engine,
    cq: CqId,
    pd: PdId,
    key: u32,
}

impl Side {
    fn new(secret: u64) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
        let objects = engine.objects_mut();
        let (pd, cq) = (objects.create_pd().expect("a domain"), objects.create_cq(16_384).expect("a queue"));
        let region = MemoryRegion { pd, addr: 0, len: MEMORY.into(), local: 0, access: Access::all() };
        let key = objects.register(region).expect("a legal region").0;
        Self { engine, cq, pd, key }
    }

    fn create_qp(&mut self, transport: &Arc<Transport>) -> Qpn {
        let attributes = QpAttributes {
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            max_send_wr: 256,
            max_recv_wr: 2 * RECEIVES,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: false,
            service: Service::ReliableConnection,
            transport: Arc::clone(transport),
            number: None,
            nvme: None,
        };
        self.engine.create_qp(&attributes).expect("legal attributes")
    }

    fn connect(&mut self, qpn: Qpn, dest_qpn: Qpn, psn: Psn) {
        let connection = QpConnection {
            peer: PEER,
            dest_qpn,
            rq_psn: psn,
            mtu: MTU,
            min_rnr_timer: RnrTimer::from_code(1),
            max_dest_rd_atomic: 4,
        };
        let timing = QpTiming { sq_psn: psn, retry_count: 7, rnr_retry: None, max_rd_atomic: 4 };
        self.engine.modify_to_init(qpn).expect("from reset");
        self.engine.modify_to_rtr(qpn, &connection).expect("from init");
        self.engine.modify_to_rts(Time::ZERO, qpn, &timing).expect("from ready to receive");
    }

    fn post_receive(&mut self, qpn: Qpn) {
        let sges = [Sge { addr: 0, len: MEMORY, lkey: self.key }];
        self.engine.post_recv(qpn, &RecvRequest { wr_id: 0, sges: &sges }).expect("the receive queue is not full");
    }

    fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.engine.objects_mut().poll_cq_one(self.cq)).collect()
    }
}

/// Both engines, the wire between them, and the specification.
struct World {
    left: Side,
    right: Side,
    flows: Vec<Flow>,
    settings: Settings,
    faults: Faults,
    rng: RandomStream,
    now: Time,
    slot: Time,
    outage_until: Time,
    wire: BTreeMap<(Time, u64), Flying>,
    order: u64,
    acted: u64,
    recorder: Recorder,
}

impl World {
    fn new(seed: u64, faults: Faults, settings: Settings, recorder: Recorder) -> Self {
        let profile = rnic_transports::profile("irn").expect("the transport exists");
        let transport = Arc::new(Transport::new(profile).expect("the profile is valid"));
        let (mut left, mut right) = (Side::new(1), Side::new(2));
        let flows = (0..QUEUE_PAIRS).map(|number| {
            let (from, to) = (left.create_qp(&transport), right.create_qp(&transport));
            // The ids of each flow wrap, after more and more packets.
            let first = ID_MASK - 50 * (number * number * number) as u32;
            let psn = Psn::new(first);
            left.connect(from, to, psn);
            right.connect(to, from, psn);
            (0..RECEIVES).for_each(|_| right.post_receive(to));
            let receiver = ReceiveContext { expected: first, ..ReceiveContext::default() };
            Flow { from, to, sender: SendContext::new(first), receiver, end: first, deadline: None }
        });
        let flows = flows.collect();
        Self {
            left,
            right,
            flows,
            settings,
            faults,
            rng: RandomStreams::new(seed).stream("wire"),
            now: Time::ZERO,
            slot: Time::ZERO,
            outage_until: Time::ZERO,
            wire: BTreeMap::new(),
            order: 0,
            acted: 0,
            recorder,
        }
    }

    fn per_mille(&mut self, parts: u64) -> bool {
        self.rng.below(1_000) < parts
    }

    /// Posts messages to some flows that have few packets left to send.
    fn post(&mut self) {
        for number in 0..self.faults.senders {
            let Flow { from, sender, end, .. } = &self.flows[number];
            let left_to_send = rnic_rtl::spec::irn::distance(sender.next, *end);
            // A flow without packets pauses for a while, so that flows become idle.
            let pause = if sender.in_flight() == 0 { 40 } else { 4 };
            let is_busy = if self.faults.is_sparse { sender.in_flight() > 0 } else { left_to_send > 40 };
            if is_busy || self.rng.below(pause) != 0 {
                continue;
            }
            let packets_max = if self.faults.is_sparse { 6 } else { 30 };
            let packets = if self.rng.below(2) == 0 { 1 } else { 1 + self.rng.below(packets_max) as u32 };
            let remote = RemoteMemory { addr: 0, rkey: self.right.key };
            let op = match self.rng.below(3) {
                0 => SendOp::Send { immediate: None },
                1 => SendOp::Write { remote, immediate: Some(1) },
                _ => SendOp::Write { remote, immediate: None },
            };
            let sges = [Sge { addr: 0, len: packets * MTU, lkey: self.left.key }];
            let request = SendRequest { wr_id: 0, op, sges: &sges, flags: SendFlags::default() };
            if self.left.engine.post_send(*from, &request).is_ok() {
                self.flows[number].end = later(self.flows[number].end, packets);
            }
        }
    }

    /// Puts a packet on the wire, which may lose, delay or duplicate it.
    fn send(&mut self, flying: Flying) {
        let faults = self.faults;
        let (lost, late) =
            if flying.is_data { (faults.data_lost, faults.data_late) } else { (faults.acks_lost, faults.acks_late) };
        if self.now >= self.outage_until && self.rng.below(4_000) < faults.outage {
            self.outage_until = self.now + Duration::from_ns(self.rng.below(400_000));
        }
        let copies = 1 + u64::from(self.per_mille(faults.twice));
        for _ in 0..copies {
            if self.now < self.outage_until || self.per_mille(lost) {
                continue;
            }
            let extra = if self.per_mille(late) { self.rng.below(6_000) } else { 0 };
            self.order += 1;
            self.wire.insert((self.now + DELAY + Duration::from_ns(extra), self.order), flying.clone());
        }
    }

    /// Gives the sending engine an opportunity to send.
    fn transmit(&mut self) -> Result<(), String> {
        self.slot = self.now + SLOT;
        self.post();
        let cap = self.settings.cap;
        let transmit = self.left.engine.transmit(self.now).and_then(Departure::roce).copied();
        let Some(transmit) = transmit else {
            for flow in &mut self.flows {
                let has_new = flow.sender.next != flow.end;
                let record = run_tx_free(&mut flow.sender, true, has_new, cap);
                if record.outputs[2] != 0 {
                    return Err(format!("the engine sends nothing, the specification {:x?}", record.outputs));
                }
                self.recorder.replay(TX_FREE, record)?;
            }
            return Ok(());
        };
        let number = self.flows.iter().position(|flow| flow.from == transmit.from).ok_or("an unknown queue pair")?;
        let flow = &mut self.flows[number];
        let has_new = flow.sender.next != flow.end;
        let record = run_tx_free(&mut flow.sender, true, has_new, cap);
        let sent = [1, transmit.packet.psn.value().into(), u64::from(transmit.kind.is_retransmission())];
        if record.outputs[2..5] != sent {
            return Err(format!("the engine sends {sent:x?}, the specification {:x?}", record.outputs));
        }
        if record.outputs[5] == Timer::Restart as u64 {
            flow.deadline = Some(self.now + RTO_LOW);
        }
        self.recorder.add(TX_FREE, record)?;
        self.send(Flying { flow: number, is_data: true, format: transmit.format, packet: transmit.packet });
        Ok(())
    }

    /// Delivers a data packet; the receiving engine must send the acknowledgement of the specification.
    fn deliver_data(&mut self, flying: &Flying) -> Result<(), String> {
        let packet = &flying.packet;
        let effect = Effect::of(packet).ok_or("no data packet")?;
        let placed = Cell::new(0);
        let meta = RxMeta { peer: PEER, congested: false };
        let arrival = Arrival::Roce(flying.format, packet, meta);
        self.right.engine.receive(self.now, arrival, &mut Placed(&placed));
        let flow = &mut self.flows[flying.flow];
        let record = run_receive_data(&mut flow.receiver, packet.psn.value(), effect);
        let to = flow.to;
        let answer = self.right.engine.transmit(self.now).and_then(Departure::roce).copied();
        let answer = answer.ok_or("the engine acknowledges nothing")?;
        let completed = self.right.completions();
        completed.iter().for_each(|_| self.right.post_receive(to));
        let (ack, msn) = Acknowledgement::of(&answer.packet).ok_or("the engine's answer is no acknowledgement")?;
        let kind = u64::from(ack.is_nack) * if ack.selective.is_some() { 1 } else { 2 };
        let selective = ack.selective.unwrap_or(0);
        let of_engine = [u64::from(ack.cumulative), u64::from(msn), kind, selective.into(), completed.len() as u64];
        let of_specification = [&record.outputs[..2], &record.outputs[6..9]].concat();
        if of_engine[..] != of_specification || u64::from(placed.get() > 0) != record.outputs[9] {
            return Err(format!("the engine answers {of_engine:x?}, the specification {of_specification:x?}"));
        }
        self.recorder.add(RECEIVE_DATA, record)?;
        self.send(Flying { flow: flying.flow, is_data: false, format: answer.format, packet: answer.packet });
        Ok(())
    }

    fn deliver_ack(&mut self, flying: &Flying) -> Result<(), String> {
        let (ack, _) = Acknowledgement::of(&flying.packet).ok_or("no acknowledgement")?;
        let meta = RxMeta { peer: PEER, congested: false };
        self.left.engine.receive(self.now, Arrival::Roce(flying.format, &flying.packet, meta), &mut NoDma);
        let flow = &mut self.flows[flying.flow];
        let record = run_receive_ack(&mut flow.sender, ack);
        match record.outputs[10] {
            timer if timer == Timer::Restart as u64 => flow.deadline = Some(self.now + RTO_LOW),
            timer if timer == Timer::Stop as u64 => flow.deadline = None,
            _ => {}
        }
        self.recorder.add(RECEIVE_ACK, record)
    }

    /// Lets the timers that are due expire, in the engine and in the specification.
    fn expire(&mut self) -> Result<(), String> {
        self.left.engine.tick(self.now);
        for flow in &mut self.flows {
            if flow.deadline.is_none_or(|deadline| deadline > self.now) {
                continue;
            }
            let record = run_timeout(&mut flow.sender, self.settings.low_packets);
            self.acted += record.outputs[5];
            flow.deadline = match record.outputs[6] {
                timer if timer == Timer::Extend as u64 => Some(self.now + (self.settings.rto_high - RTO_LOW)),
                timer if timer == Timer::Restart as u64 => Some(self.now + RTO_LOW),
                _ => flow.deadline,
            };
            self.recorder.add(TIMEOUT, record)?;
        }
        let timeouts = self.left.engine.stats().timeouts;
        if timeouts == self.acted { Ok(()) } else { Err(format!("{timeouts} timeouts of the engine, {}", self.acted)) }
    }

    fn step(&mut self) -> Result<(), String> {
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let timers = [self.left.engine.next_timeout(), self.right.engine.next_timeout()];
        let deadlines = self.flows.iter().filter_map(|flow| flow.deadline);
        let others = arrival.into_iter().chain(timers.into_iter().flatten()).chain(deadlines);
        self.now = self.now.max(others.chain([self.slot]).min().unwrap_or(self.slot));
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let flying = entry.remove();
            if flying.is_data { self.deliver_data(&flying)? } else { self.deliver_ack(&flying)? }
        }
        self.expire()?;
        self.right.engine.tick(self.now);
        self.left.completions();
        if self.slot <= self.now { self.transmit() } else { Ok(()) }
    }

    /// Runs until `records` records have been made.
    fn run(&mut self, records: u64) -> Result<(), String> {
        while self.recorder.counts.iter().sum::<u64>() < records {
            let number = self.recorder.counts;
            self.step().map_err(|difference| format!("at {} after {number:?} records: {difference}", self.now))?;
        }
        (0..4).try_for_each(|module| self.recorder.flush(module))
    }
}

#[test]
fn i_r24_engine_specification_and_circuits_agree_in_a_million_recorded_events() {
    let circuits = modules::<WINDOW>().map(|(circuit, _)| circuit);
    let has_tools = are_installed(&["verilator", "g++"]);
    let verilated = has_tools.then(|| Verilated::build(&circuits).expect("the circuits compile without warnings"));
    let mut total = [0; 4];
    for (seed, faults) in (1..).zip(SCENARIOS) {
        let start = |verilated: &Verilated| {
            circuits.each_ref().map(|circuit| verilated.start(&circuit.name, 1).expect("the model starts"))
        };
        let models = verilated.as_ref().map(start);
        let recorder = Recorder { models, waiting: Default::default(), counts: [0; 4] };
        let mut world = World::new(seed, faults, SETTINGS, recorder);
        let difference = world.run(events().div_ceil(SCENARIOS.len() as u64)).err();
        assert_eq!(difference, None, "seed {seed}, {faults:?}");
        println!("{faults:?}: records of the four modules {:?}, timeouts {}", world.recorder.counts, world.acted);
        total.iter_mut().zip(world.recorder.counts).for_each(|(total, count)| *total += count);
    }
    println!("records in total: {total:?}");
    assert!(total.iter().all(|count| *count > events() / 1_000), "a module has too few records: {total:?}");
}

/// The comparison notices a specification that is set up differently.
#[test]
fn i_r24_different_settings_of_the_specification_are_noticed() {
    let different = [
        (SCENARIOS[0], Settings { cap: 111, ..SETTINGS }),
        (SCENARIOS[5], Settings { low_packets: 4, ..SETTINGS }),
        (SCENARIOS[5], Settings { rto_high: RTO_HIGH + Duration::from_us(1), ..SETTINGS }),
    ];
    for (faults, settings) in different {
        let recorder = Recorder { models: None, waiting: Default::default(), counts: [0; 4] };
        let difference = World::new(5, faults, settings, recorder).run(100_000);
        assert!(difference.is_err(), "{settings:?} is not noticed");
    }
}

/// As in `rnic rtl trace`, of a flow of a plan: the events of one connection, at both ends, in the circuit that has all
/// four modules and both contexts.
#[test]
fn i22_a_recorded_connection_is_replayed_in_one_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let profile = rnic_transports::profile("irn").expect("the transport exists");
    let transport = Transport::new(profile).expect("the profile is valid");
    let recorded = rnic_rtl::waves::Recorder::new(&transport).expect("the transport has a circuit");
    let recorder = Recorder { models: None, waiting: Default::default(), counts: [0; 4] };
    let mut world = World::new(7, SCENARIOS[5], SETTINGS, recorder);
    let Flow { from, to, .. } = world.flows[0];
    observe(&mut world.left.engine, Some(recorded.observer(0, from)));
    observe(&mut world.right.engine, Some(recorded.observer(1, to)));
    world.run(40_000).expect("engine and specification agree");
    let stimulus = recorded.take().expect("the specification of the connection agrees too");
    let few: Vec<_> = stimulus.counts.iter().filter(|count| count.events < 10).collect();
    assert!(few.is_empty(), "{few:?}");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let verilated = stimulus.build().expect("the circuit compiles without warnings");
    let answered = stimulus.replay(&verilated, &folder.path().join("irn.fst")).expect("the circuit agrees");
    assert!(answered.events > 3_000 && answered.compared > 3 * answered.events, "{answered:?}");
}
