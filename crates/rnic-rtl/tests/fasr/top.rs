//! The transport layer: queue pairs of one circuit send to each other over a network that loses packets.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::spec::fasr::sr::{Clock, Outcome, Sr};
use rnic_rtl::spec::fasr::{Ack, CAP, Context, Event, Kind, Lost, Pack, Say, Timer, distance, gbn, plus};
use rnic_rtl::verilated::Model;

use super::{events, verilated};

/// Time units of the circuit: timeout and extension.
const RTO: u32 = 400;
const EXTENSION: u32 = 800;

/// Cycles of a unit of time.
const TICK: u64 = 16;

pub const SAYS: [Say; 6] = [Say::Ack, Say::Sack, Say::Aack, Say::Fnack, Say::Nak, Say::Nothing];

/// The decisions of an SR module.
type Step = Box<dyn FnMut(&Event, &mut Context, u32, Timer, Clock) -> Outcome>;

/// A queue pair of the test.
#[derive(Clone, Copy, Default)]
struct Qp {
    context: Context,
    first: u32,
    /// The next packet that is expected to be sent for the first time.
    next: u32,
    total: u32,
}

/// A packet on the wire or at the circuit's input.
#[derive(Clone, Copy)]
struct Received {
    qp: u16,
    kind: Kind,
    cumulative: u32,
    psn: u32,
    lost: Lost,
}

impl Received {
    fn words(&self) -> Vec<u64> {
        Pack::default()
            .field(tag(self.qp), 14)
            .field(self.qp.into(), 10)
            .field(self.kind as u64, 4)
            .field(self.cumulative.into(), 24)
            .field(self.psn.into(), 24)
            .field(u64::from(self.lost.overflow) << 3 | u64::from(self.lost.count), 4)
            .words()
    }
}

fn tag(qp: u16) -> u64 {
    (u64::from(qp) * 77 + 5) & 0x3fff
}

/// Fields of a word pair, from bit `at` on.
fn bits(words: &[u64], at: u32, width: u32) -> u64 {
    let all = u128::from(words[0]) | u128::from(words[1]) << 64;
    (all >> at) as u64 & ((1 << width) - 1)
}

fn lost(bits: u64) -> Lost {
    Lost { count: (bits & 7) as u8, overflow: bits & 8 != 0 }
}

/// An event that a packet causes: cycle of its acceptance, queue pair, kind and cumulative number.
type Due = (u64, u16, Kind, u32);

/// The circuit, its specification and the network.
struct World {
    model: Model,
    random: RandomStream,
    step: Step,
    qps: Vec<Qp>,
    /// Packets on the wire, by the cycle of their arrival.
    wire: BTreeMap<u64, Vec<Received>>,
    data: VecDeque<Received>,
    acks: VecDeque<Received>,
    requests: VecDeque<(u16, u32)>,
    /// Queue pairs that exist.
    exists: Vec<bool>,
    /// Events of packets that were accepted, of data and of others, whose queue pairs exist.
    due_data: VecDeque<Due>,
    due_acks: VecDeque<Due>,
    /// The path of the last event of a packet, true for data, and its cycle.
    last: Option<(bool, u64)>,
    owed_acks: VecDeque<Ack>,
    owed_retransmissions: VecDeque<(u16, u32)>,
    /// Packets sent for the event that is being processed: an event is known when its last cycle ends.
    sent_acks: VecDeque<Ack>,
    sent_retransmissions: VecDeque<(u16, u32)>,
    /// Queue pairs whose packets in flight exceed the cap unless the next event advances UNACK.
    over_cap: Vec<u16>,
    /// Time between a deadline and its timeout, at most.
    latest: u32,
    cycle: u64,
    /// Cycles in which all packets have to arrive.
    limit: u64,
    delay: u64,
    losses: u64,
    /// Classes of packets are held at random.
    holds: bool,
    events: u64,
    /// Packets sent by class, and events by kind.
    sent: [u64; 4],
    kinds: [u64; 10],
}

impl World {
    fn new(model: Model, step: Step, seed: u64, qps: usize, total: u32) -> Self {
        let mut random = RandomStreams::new(seed).stream("network");
        let mut all: Vec<Qp> = Vec::new();
        for _ in 0..qps {
            let first = plus(0xff_ff00, random.below(256) as u32);
            let context = Context { una: first, ..Context::default() };
            all.push(Qp { context, first, next: first, total });
        }
        for at in 0..qps {
            all[at].context.rcv_nxt = all[at ^ 1].first;
        }
        Self {
            model,
            random,
            step,
            qps: all,
            wire: BTreeMap::new(),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            requests: VecDeque::new(),
            exists: vec![false; qps],
            due_data: VecDeque::new(),
            due_acks: VecDeque::new(),
            last: None,
            owed_acks: VecDeque::new(),
            owed_retransmissions: VecDeque::new(),
            sent_acks: VecDeque::new(),
            sent_retransmissions: VecDeque::new(),
            over_cap: Vec::new(),
            latest: 0,
            cycle: 0,
            limit: LIMIT,
            delay: 2_000,
            losses: 0,
            holds: true,
            events: 0,
            sent: [0; 4],
            kinds: [0; 10],
        }
    }

    /// One cycle; with a command or a work request, returns whether it was accepted.
    fn cycle(&mut self, command: Option<(u16, bool)>, hold: u64) -> bool {
        self.cycle += 1;
        assert!(self.cycle < self.limit, "not all packets arrive: {:?}", self.kinds);
        while let Some(entry) = self.wire.first_entry().filter(|entry| *entry.key() <= self.cycle) {
            for packet in entry.remove() {
                if packet.kind == Kind::Data { &mut self.data } else { &mut self.acks }.push_back(packet);
            }
        }
        let request = self.requests.front().copied().filter(|_| command.is_none());
        let pack = |packet: Option<&Received>| packet.map_or(vec![0, 0], Received::words);
        let (command_qp, creates) = command.unwrap_or_default();
        let command_words = self.qps.get(usize::from(command_qp)).map(|qp| {
            Pack::default()
                .field(creates.into(), 1)
                .field(command_qp.into(), 10)
                .field(tag(command_qp), 14)
                .field(qp.context.rcv_nxt.into(), 24)
                .field(qp.context.una.into(), 24)
                .words()
        });
        let (request_qp, packets) = request.unwrap_or_default();
        let record = [
            vec![RTO.into(), EXTENSION.into(), command.is_some().into()],
            command_words.expect("the queue pair exists"),
            vec![(!self.data.is_empty()).into()],
            pack(self.data.front()),
            vec![(!self.acks.is_empty()).into()],
            pack(self.acks.front()),
            vec![request.is_some().into(), u64::from(request_qp) << 16 | u64::from(packets)],
            vec![0, 0, 0, hold],
        ]
        .concat();
        let words = self.model.run(&record).expect("no assertion of the circuit fails");
        let exists = |packet: &Received| self.exists[usize::from(packet.qp)];
        if words[1] == 1 {
            let accepted = self.data.pop_front().filter(exists);
            self.due_data.extend(accepted.map(|packet| (self.cycle, packet.qp, Kind::Data, packet.cumulative)));
        }
        if words[2] == 1 {
            // Of a packet from outside, all other kinds are acknowledgements.
            let is_own = |kind| (Kind::Ack as u8..=Kind::Nak as u8).contains(&(kind as u8));
            let accepted = self.acks.pop_front().filter(exists);
            let kind = |packet: &Received| if is_own(packet.kind) { packet.kind } else { Kind::Ack };
            self.due_acks.extend(accepted.map(|packet| (self.cycle, packet.qp, kind(&packet), packet.cumulative)));
        }
        if let Some((qp, creates)) = command.filter(|_| words[0] == 1) {
            self.exists[usize::from(qp)] = creates;
            if !creates {
                self.due_acks.push_back((self.cycle, qp, Kind::Release, 0));
            }
        }
        assert_eq!(words[13], ((self.cycle - 1) / TICK) & 0xff_ffff, "the time in cycle {}", self.cycle);
        if words[3] == 1 && request.is_some() {
            self.requests.pop_front();
        }
        if words[8] == 1 {
            self.decided(&words);
        }
        if words[5] == 1 {
            self.sent(&words[6..8]);
        }
        self.compare();
        words[0] == 1 && command.is_some()
    }

    fn decided(&mut self, words: &[u64]) {
        let event = &words[9..11];
        let event = Event {
            qp: bits(event, 56, 10) as u16,
            kind: Kind::ALL[bits(event, 52, 4) as usize],
            cumulative: bits(event, 28, 24) as u32,
            psn: bits(event, 4, 24) as u32,
            lost: lost(bits(event, 0, 4)),
        };
        let timer = Timer {
            on: words[12] >> 25 & 1 != 0,
            extended: words[12] >> 24 & 1 != 0,
            deadline: words[12] as u32 & 0xff_ffff,
        };
        let (next, clock) = (words[11] as u32, Clock { now: words[13] as u32, rto: RTO, extension: EXTENSION });
        self.check_order(&event);
        let qp = &mut self.qps[usize::from(event.qp)];
        assert!(distance(next, qp.next) <= 100, "{event:?}: {next} is not the next packet {}", qp.next);
        if event.kind == Kind::Timeout && timer.is_due(clock.now) && self.owed_retransmissions.len() < 40 {
            self.latest = self.latest.max(distance(timer.deadline, clock.now));
        }
        let outcome = (self.step)(&event, &mut qp.context, next, timer, clock);
        for at in self.over_cap.drain(..) {
            let Qp { context, next, .. } = self.qps[usize::from(at)];
            assert!(distance(context.una, next) <= CAP, "queue pair {at} exceeds the cap");
        }
        self.owed_acks.extend(outcome.ack);
        let packets = outcome.retransmissions.iter().flat_map(|sent| sent.packets().map(|psn| (sent.qp, psn)));
        self.owed_retransmissions.extend(packets);
        self.events += 1;
        self.kinds[event.kind as usize] += 1;
    }

    /// Checks that each packet that was accepted is one event, that those of a path are in order, and that the paths
    /// take turns while both wait and there is space for answers.
    fn check_order(&mut self, event: &Event) {
        let is_data = event.kind == Kind::Data;
        let due = match event.kind {
            Kind::Timeout | Kind::Extend | Kind::Arm => return,
            Kind::Data => self.due_data.pop_front(),
            _ => self.due_acks.pop_front(),
        };
        let (_, qp, kind, cumulative) = due.unwrap_or_else(|| panic!("{event:?} has no packet"));
        let cumulative = if kind == Kind::Release { event.cumulative } else { cumulative };
        assert_eq!((event.qp, event.kind, event.cumulative), (qp, kind, cumulative), "cycle {}", self.cycle);
        // A packet of the other path that was accepted this long before the last event was in its queue then.
        const CHECKED: u64 = 12;
        let other = if is_data { &self.due_acks } else { &self.due_data };
        let has_space = if is_data { self.owed_retransmissions.len() < 40 } else { self.owed_acks.len() < 8 };
        if let (Some((accepted, ..)), Some((true, ended))) =
            (other.front(), self.last.map(|(of, at)| (of == is_data, at)))
        {
            assert!(!has_space || accepted + CHECKED > ended, "cycle {}: {event:?} has no turn", self.cycle);
        }
        self.last = Some((is_data, self.cycle));
    }

    /// Compares what was sent with what the events cause.
    fn compare(&mut self) {
        while let (Some(sent), Some(owed)) = (self.sent_acks.front(), self.owed_acks.front()) {
            let is_equal = Pack::from(owed).is_equal(&Pack::from(sent).words());
            assert!(is_equal, "cycle {}: {sent:?} is not {owed:?}", self.cycle);
            self.sent_acks.pop_front();
            self.owed_acks.pop_front();
        }
        while let (Some(sent), Some(owed)) = (self.sent_retransmissions.front(), self.owed_retransmissions.front()) {
            assert_eq!(sent, owed, "cycle {}", self.cycle);
            self.sent_retransmissions.pop_front();
            self.owed_retransmissions.pop_front();
        }
        assert!(self.sent_acks.len() <= 1 && self.sent_retransmissions.len() <= 100, "no event has caused them");
    }

    fn sent(&mut self, words: &[u64]) {
        let class = bits(words, 66, 2) as usize;
        self.sent[class] += 1;
        let (at, psn) = (bits(words, 56, 10) as u16, bits(words, 4, 24) as u32);
        let peer = at ^ 1;
        let packet = match class {
            0 => {
                let ack = Ack {
                    qp: at,
                    say: SAYS[bits(words, 53, 3) as usize],
                    placed: bits(words, 52, 1) != 0,
                    cumulative: bits(words, 28, 24) as u32,
                    psn,
                    lost: lost(bits(words, 0, 4)),
                };
                self.sent_acks.push_back(ack);
                let kind = match ack.say {
                    Say::Ack => Kind::Ack,
                    Say::Sack => Kind::Sack,
                    Say::Aack => Kind::Aack,
                    Say::Fnack => Kind::Fnack,
                    Say::Nak | Say::Nothing => Kind::Nak,
                };
                Received { qp: peer, kind, cumulative: ack.cumulative, psn, lost: ack.lost }
            }
            2 => {
                self.sent_retransmissions.push_back((at, psn));
                Received { qp: peer, kind: Kind::Data, cumulative: psn, psn: 0, lost: Lost::default() }
            }
            3 => {
                let qp = &mut self.qps[usize::from(at)];
                assert_eq!(psn, qp.next, "cycle {} of queue pair {at}", self.cycle);
                qp.next = plus(psn, 1);
                // The event that is being processed may already have advanced UNACK.
                if distance(qp.context.una, qp.next) > CAP {
                    self.over_cap.push(at);
                }
                Received { qp: peer, kind: Kind::Data, cumulative: psn, psn: 0, lost: Lost::default() }
            }
            _ => panic!("no Read request was made"),
        };
        if self.random.below(10_000) >= self.losses {
            self.wire.entry(self.cycle + self.delay).or_default().push(packet);
        }
    }

    /// Creates the queue pairs.
    fn create(&mut self) {
        while !self.cycle(Some((0, true)), 0) {}
        for qp in 1..self.qps.len() as u16 {
            while !self.cycle(Some((qp, true)), 0) {}
        }
    }

    /// Runs until all packets are acknowledged.
    fn run(&mut self) {
        self.create();
        self.request();
        self.finish();
    }

    /// Has each queue pair send all its packets.
    fn request(&mut self) {
        for qp in 0..self.qps.len() as u16 {
            let total = self.qps[usize::from(qp)].total;
            self.requests.push_back((qp, total));
        }
    }

    /// Runs until all packets that are requested are acknowledged.
    fn finish(&mut self) {
        let is_done = |qp: &Qp| distance(qp.first, qp.context.una) == qp.total;
        while !self.qps.iter().all(is_done) {
            let hold = if self.holds && self.random.below(4) == 0 { self.random.below(16) } else { 0 };
            self.cycle(None, hold);
        }
        for qp in &self.qps {
            assert_eq!(distance(qp.first, qp.next), qp.total);
        }
    }

    /// Runs until no packet is on its way, and no event is left of those that were.
    fn settle(&mut self) {
        while !(self.wire.is_empty() && self.data.is_empty() && self.acks.is_empty()) {
            self.cycle(None, 0);
        }
        for _ in 0..200 {
            self.cycle(None, 0);
        }
    }

    /// Passes packets on the path of acknowledgements whose kinds only the circuit's own events have, and then packets
    /// to queue pairs that are destroyed: the former are acknowledgements, the latter are dropped.
    fn end(&mut self) {
        self.settle();
        let mut expected = self.kinds;
        let packet = |qp: u16, kind: Kind, psn: u32| Received { qp, kind, cumulative: psn, psn, lost: Lost::default() };
        let una = self.qps[1].context.una;
        let own = [Kind::Data, Kind::Timeout, Kind::Extend, Kind::Arm, Kind::Release];
        self.acks.extend(own.map(|kind| packet(1, kind, una)));
        expected[Kind::Ack as usize] += own.len() as u64;
        self.settle();
        assert_eq!(self.kinds, expected, "each is an acknowledgement");
        for qp in 0..self.qps.len() as u16 {
            while !self.cycle(Some((qp, false)), 0) {}
        }
        expected[Kind::Release as usize] += self.qps.len() as u64;
        self.settle();
        assert_eq!(self.kinds, expected, "each queue pair is released");
        self.data.push_back(packet(0, Kind::Data, self.qps[0].context.rcv_nxt));
        self.acks.push_back(packet(1, Kind::Ack, una));
        self.settle();
        assert_eq!(self.kinds, expected, "no queue pair receives a packet");
        assert!(self.due_data.is_empty() && self.due_acks.is_empty(), "packets without an event");
    }
}

/// The transport layer after its packets have arrived.
pub struct Layer {
    events: u64,
    sent: [u64; 4],
    kinds: [u64; 10],
    /// Events while no unit is free.
    full: u64,
}

impl Layer {
    fn of(mut world: World, full: &Cell<u64>) -> Self {
        world.run();
        world.end();
        let World { events, cycle, sent, kinds, latest, .. } = world;
        println!("{events} events in {cycle} cycles, sent {sent:?}, kinds {kinds:?}, late {latest}");
        // All queue pairs are visited in 1,024 cycles, and an event waits for few others.
        assert!(u64::from(latest) <= 1_024 / TICK + 2, "a timeout is {latest} units of time late");
        Self { events, sent, kinds, full: full.get() }
    }
}

/// Checks the transport layer: 64 queue pairs send so many packets each, at most in so many cycles.
pub fn check_layer(model: Model, packets: u32, limit: u64) -> Layer {
    let mut sr = Sr::default();
    let full = Rc::new(Cell::new(0));
    let seen = Rc::clone(&full);
    let step: Step = Box::new(move |event, context, next, timer, clock| {
        seen.set(seen.get() + u64::from(sr.units_taken() == (1 << 20) - 1));
        sr.step(event, context, next, timer, clock)
    });
    let mut world = World::new(model, step, 31, 64, packets);
    (world.losses, world.limit) = (100, limit);
    Layer::of(world, &full)
}

/// Does the same for 16 queue pairs with go-back-N.
pub fn check_gbn_layer(model: Model, packets: u32, limit: u64) -> Layer {
    let mut world = World::new(model, Box::new(gbn::step), 32, 16, packets);
    (world.losses, world.limit) = (20, limit);
    Layer::of(world, &Cell::new(0))
}

/// Checks that an event waits while the queue of its answer may be full, which has 16 entries for acknowledgements and
/// 128 for retransmissions, and that the first turn is that of acknowledgements. `start` starts the model.
pub fn check_waits(start: impl Fn() -> Model) {
    let world = |total| {
        let mut sr = Sr::default();
        let step: Step = Box::new(move |event, context, next, timer, now| sr.step(event, context, next, timer, now));
        let mut world = World::new(start(), step, 33, 64, total);
        world.holds = false;
        world.create();
        world
    };
    let pass = |world: &mut World, cycles: u64, hold: u64| (0..cycles).for_each(|_| _ = world.cycle(None, hold));

    let mut acks = world(8);
    acks.request();
    pass(&mut acks, 5_000, 1);
    // Two entries are left when an event waits, for one in SR, which has come.
    assert_eq!(acks.kinds[Kind::Data as usize], 15, "events of packets while acknowledgements are held");
    acks.finish();

    let mut timeouts = world(1);
    timeouts.losses = 10_000;
    timeouts.request();
    pass(&mut timeouts, 10_000, 4);
    // An entry has left the queue, 75 are free when an event waits, and one was in SR.
    assert_eq!(timeouts.kinds[Kind::Timeout as usize], 1 + 128 - 75 + 1, "timeouts while retransmissions are held");
    timeouts.losses = 0;
    // The walker has waited at the queue pair whose event did not fit into its own queue.
    pass(&mut timeouts, 40, 0);
    assert_eq!(timeouts.kinds[Kind::Timeout as usize], 64, "timeouts in the cycles after that");
    timeouts.finish();

    let mut turns = world(1);
    let packet = |kind, psn| Received { qp: 0, kind, cumulative: psn, psn, lost: Lost::default() };
    let Context { rcv_nxt, una, .. } = turns.qps[0].context;
    turns.data.push_back(packet(Kind::Data, rcv_nxt));
    turns.acks.push_back(packet(Kind::Ack, una));
    while turns.kinds[Kind::Data as usize] == 0 {
        turns.cycle(None, 0);
    }
    assert_eq!(turns.kinds[Kind::Ack as usize], 1, "the acknowledgement comes first");
}

/// no answer is lost when its queue is full.
#[test]
fn r17_events_wait_while_the_queues_of_their_answers_may_be_full() {
    let Some(verilated) = verilated() else { return };
    check_waits(|| verilated.start("fasr_top", 9).expect("the model starts"));
}

/// Cycles in which all packets have to arrive.
const LIMIT: u64 = 40_000_000;

/// seven modules around the memory of contexts. Every event that SR processes, every acknowledgement, every
/// retransmission and every new packet is the specified one, while queue pairs lose one packet in a hundred and the
/// pool is exhausted; and all packets arrive. At the end, the queue pairs are destroyed.
#[test]
fn r17_r19_the_transport_layer_sends_as_specified() {
    let Some(verilated) = verilated() else { return };
    // In fewer, not all kinds of events occur.
    let wanted = events().max(100_000);
    let model = verilated.start("fasr_top", 9).expect("the model starts");
    let Layer { events, kinds, full, .. } = check_layer(model, (wanted / 130) as u32, LIMIT);
    assert!(full > events / 1_000, "the pool is not exhausted");
    assert!(events > wanted, "{events}");
    let all = kinds[..9].iter().enumerate().all(|(kind, count)| *count > 0 || kind == Kind::Arm as usize);
    assert!(all, "not all kinds of events occur: {kinds:?}");
}

/// R-R18: the go-back-N of the comparison works in the same modules.
#[test]
fn r17_the_transport_layer_with_go_back_n_sends_as_specified() {
    let Some(verilated) = verilated() else { return };
    let model = verilated.start("fasr_gbn_top", 9).expect("the model starts");
    let Layer { sent, .. } = check_gbn_layer(model, (events() / 2_000) as u32, LIMIT);
    assert!(sent[2] > 0);
}

/// Cycles of the SR module.
#[derive(Default, Debug)]
struct Cycles {
    events: u64,
    cycles: u64,
    /// Packets that close a gap, by the number of cycles until RCV-NXT is known.
    updates: BTreeMap<u32, u64>,
    /// SACKs and out-of-order packets, by cycles.
    others: BTreeMap<u32, u64>,
}

/// with one packet in a hundred lost, and as many packets in flight as in the paper (500): a packet or
/// acknowledgement takes a cycle, after the cycle in which its context is read, and the few that visit blocks one more
/// for each.
#[test]
fn r24_r25_a_packet_takes_two_cycles_and_one_more_for_each_block() {
    let Some(verilated) = verilated() else { return };
    for (seed, losses, qps) in [(41, 100, 16), (42, 100, 64), (43, 20, 64), (44, 100, 256)] {
        let mut sr = Sr::default();
        let counted = Rc::new(RefCell::new(Cycles::default()));
        let counts = Rc::clone(&counted);
        let step: Step = Box::new(move |event, context, next, timer, clock| {
            let outcome = sr.step(event, context, next, timer, clock);
            let mut counts = counts.borrow_mut();
            counts.events += 1;
            counts.cycles += u64::from(outcome.cycles);
            if let Some(cycles) = outcome.update_cycles {
                *counts.updates.entry(cycles).or_default() += 1;
            } else if event.kind == Kind::Sack || outcome.ack.is_some_and(|ack| ack.say == Say::Sack) {
                *counts.others.entry(outcome.cycles).or_default() += 1;
            }
            outcome
        });
        let total = (events() / 10 / qps as u64) as u32;
        let mut world = World::new(verilated.start("fasr_top", 9).expect("the model starts"), step, seed, qps, total);
        (world.losses, world.delay, world.holds) = (losses, 500, false);
        world.run();
        let Cycles { events, cycles, updates, others } = &*counted.borrow();
        let all: u64 = updates.values().sum();
        let mean = updates.iter().map(|(cycles, count)| f64::from(*cycles) * *count as f64).sum::<f64>() / all as f64;
        let slow: u64 = updates.iter().filter(|(cycles, _)| **cycles > 1).map(|(_, count)| count).sum();
        let slow_mean = updates.iter().filter(|(cycles, _)| **cycles > 1).map(|(c, n)| u64::from(*c) * n).sum::<u64>()
            as f64
            / slow.max(1) as f64;
        let rate = *events as f64 / *cycles as f64;
        println!(
            "{qps} queue pairs, losses of {losses} in 10,000: {rate:.3} events a cycle; RCV-NXT after {updates:?}, \
             mean {mean:.2}, slow path {slow_mean:.2}; SACK and out of order {others:?}"
        );
        assert!(rate >= 0.9, "{rate}");
        assert!(updates[&1] * 2 > all && mean <= 1.6 && slow_mean <= 3.0, "{updates:?}");
        let quick = others.get(&1).copied().unwrap_or(0);
        assert!(quick * 10 >= others.values().sum::<u64>() * 9, "{others:?}");
    }
}

/// Checks the rate of the Send Queue with each class held; `start` starts its model.
pub fn check_held(start: impl Fn() -> Model) {
    for held in [None, Some(0), Some(1), Some(2), Some(3)] {
        let mut model = start();
        let mut sent = [0u64; 4];
        let mut space = [true; 3];
        let mut offered = [0u64; 4];
        for cycle in 0..10_000u64 {
            // A quarter of the rate for each class; new packets use what is left.
            let offers = [0, 1, 2].map(|class| cycle % 4 == class && space[class as usize]);
            for (offered, offers) in offered.iter_mut().zip(offers) {
                *offered += u64::from(offers);
            }
            let hold = held.map_or(0, |class| 1 << class);
            let retransmission = Pack::default().field(3, 10).field(cycle, 24).field(0, 1).field(1, 10).words();
            let ack = Pack::default().field(1, 10).field(0, 56).words();
            let record = [
                vec![hold, offers[0].into()],
                ack,
                vec![offers[1].into(), 2, cycle, offers[2].into()],
                retransmission,
                vec![1, 4, cycle],
            ];
            let words = model.run(&record.concat()).expect("no assertion of the circuit fails");
            space = [words[0] > 2, words[1] == 1, words[2] > 2];
            if words[4] == 1 {
                sent[bits(&words[5..7], 66, 2) as usize] += 1;
            }
        }
        let others: u64 = (0..4).filter(|class| Some(*class) != held).map(|class| sent[class]).sum();
        let is_new_held = held == Some(3);
        // Held, new packets leave a quarter of the cycles unused.
        assert!(others + 4 >= if is_new_held { 7_500 } else { 10_000 }, "{held:?} {sent:?}");
        for class in (0..3).filter(|class| Some(*class) != held) {
            assert!(sent[class] + 4 >= 2_500, "{held:?} {sent:?} of {offered:?}");
        }
        assert!(held.is_none_or(|held| sent[held] == 0), "{held:?} {sent:?}");
    }
}

/// with one class of packets held for 10,000 cycles, its queue fills, the others are sent at line rate: a packet
/// in every cycle, and all that were offered.
#[test]
fn r18_a_held_class_delays_no_other() {
    let Some(verilated) = verilated() else { return };
    check_held(|| verilated.start("fasr_send", 5).expect("the model starts"));
}
