//! The SR module: events of many queue pairs in every order, with the cycles that each takes.

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::spec::fasr::sr::Sr;
use rnic_rtl::spec::fasr::{CAP, Context, Event, Kind, Lane, Say, Timer, distance, gbn, plus};
use rnic_rtl::verilated::Model;

use super::bench::{Bench, Job, Pair};
use super::decisions::{lost, start};
use super::{events, verilated};

/// Queue pairs: more than twice as many as there are units.
const QPS: u64 = 48;

/// Draws an event of a queue pair that can be in any state: legal ones, and those of peers that do not keep the rules.
fn draw(random: &mut RandomStream, qp: u16, pair: &Pair, lanes: (Lane, Lane)) -> Event {
    let kind = match random.below(64) {
        0 => Kind::Release,
        1 => Kind::Arm,
        2 => Kind::Extend,
        3 | 4 => Kind::Timeout,
        5..40 => Kind::Data,
        40..50 => Kind::Sack,
        50..56 => Kind::Ack,
        56..59 => Kind::Aack,
        59..62 => Kind::Fnack,
        _ => Kind::Nak,
    };
    let (rx, tx) = lanes;
    let Context { rcv_nxt, una, .. } = pair.context;
    let in_flight = u64::from(distance(una, pair.next));
    let below = |random: &mut RandomStream, bound: u64| random.below(bound.max(1)) as u32;
    let high = if rx.open { rx.high } else { rcv_nxt.wrapping_sub(1) };
    let cumulative = match (kind, random.below(32)) {
        (_, 0) => start(random),
        (Kind::Data, 1..20) => plus(high, 1),
        (Kind::Data, 20..23) => plus(high, 2 + below(random, 3)),
        (Kind::Data, 23) => plus(high, 1 + below(random, 60)),
        (Kind::Data, 24) => plus(rcv_nxt, below(random, 500)),
        (Kind::Data, 25) => plus(rcv_nxt, below(random, 40).wrapping_sub(20)),
        (Kind::Data, _) => rcv_nxt,
        (Kind::Sack, 1..28) => una,
        (_, 1..5) => plus(una, below(random, in_flight + 1)),
        (_, 5..10) if tx.open => plus(tx.high, 1),
        (_, 10..20) => plus(una, below(random, in_flight.min(4) + 1)),
        (_, 20) => plus(una, below(random, 8).wrapping_sub(4)),
        _ => una,
    };
    let psn = match random.below(16) {
        0 => start(random),
        1 => plus(una, below(random, in_flight + 2)),
        2..4 if tx.open => plus(tx.high, below(random, 60).wrapping_sub(50)),
        _ if tx.open => plus(tx.high, 1 + below(random, 3) * below(random, 3)),
        _ => plus(una, 1 + below(random, 4)),
    };
    Event { qp, kind, cumulative, psn, lost: lost(random) }
}

fn started(random: &mut RandomStream) -> Pair {
    let una = start(random);
    let context = Context { rcv_nxt: start(random), una, ..Context::default() };
    Pair { context, next: una, timer: Timer::default() }
}

/// Draws a queue pair: some at a time, so that an event often follows one of the same queue pair.
fn some_pair(random: &mut RandomStream) -> u64 {
    let qp = random.below(4).min(random.below(2) * 4) + random.below(QPS / 4) * 4;
    qp.min(QPS - 1)
}

/// Sends new packets now and then.
fn send(random: &mut RandomStream, pair: &mut Pair) {
    if random.below(4) == 0 && distance(pair.context.una, pair.next) < CAP - 20 {
        pair.next = plus(pair.next, random.below(20) as u32);
    }
}

/// Numbers of events of the SR module.
#[derive(Debug)]
pub struct SrSeen {
    naks: u64,
    /// Retransmissions that a bitmap says.
    maps: u64,
    /// Events that take more than three cycles.
    long: u64,
    /// Events while no unit and while no block is free.
    full: [u64; 2],
}

/// Checks the SR module in so many events of 48 queue pairs.
pub fn check_sr(model: Model, events: u64) -> SrSeen {
    let seed = 15;
    let mut bench = Bench::new(model, seed);
    let mut random = RandomStreams::new(seed).stream("events");
    let mut sr = Sr::default();
    let mut pairs: Vec<Pair> = (0..QPS).map(|_| started(&mut random)).collect();
    let (mut naks, mut maps, mut long, mut full, mut last) = (0, 0, 0, [0, 0], 0);
    for _ in 0..events {
        let qp = some_pair(&mut random);
        let pair = &mut pairs[qp as usize];
        if qp != last && pair.context.unit.is_none() && random.below(200) == 0 {
            *pair = started(&mut random);
        }
        send(&mut random, pair);
        bench.clock.now = plus(bench.clock.now, random.below(3) as u32);
        let before = *pair;
        let lanes = [true, false].map(|of_receiver| sr.lane(&before.context, of_receiver));
        let event = draw(&mut random, qp as u16, &before, (lanes[0], lanes[1]));
        let (free, units) = (sr.free_blocks(), sr.units_taken());
        let outcome = sr.step(&event, &mut pair.context, pair.next, pair.timer, bench.clock);
        pair.timer = outcome.timer.unwrap_or(pair.timer);
        naks += u64::from(outcome.ack.is_some_and(|ack| ack.say == Say::Nak));
        maps += outcome.retransmissions.iter().filter(|sent| sent.is_map).count() as u64;
        long += u64::from(outcome.cycles > 3);
        full[0] += u64::from(units == (1 << 20) - 1);
        full[1] += u64::from(free == 0);
        let after = pair.context;
        let lane = Some(sr.lane(&after, event.kind == Kind::Data));
        bench.pass(Job { event, before, after, outcome, lane, free, units });
        last = qp;
    }
    println!("{} events in {} cycles", bench.events, bench.cycles);
    bench.finish();
    // Destroyed queue pairs return all units and blocks.
    for (qp, pair) in (0..).zip(&mut pairs) {
        let event = Event { qp, kind: Kind::Release, ..draw(&mut random, qp, pair, Default::default()) };
        sr.step(&event, &mut pair.context, pair.next, pair.timer, rnic_rtl::spec::fasr::sr::Clock::default());
    }
    assert_eq!((sr.free_blocks(), sr.units_taken()), (70, 0));
    SrSeen { naks, maps, long, full }
}

/// the circuit with both pools, from reset, over events of 48 queue pairs: all outputs, the state after
/// every event and its cycles are those specified. Units and blocks are exhausted on the way, and none is lost.
#[test]
fn r9_r10_r11_r13_r14_r24_events_of_many_queue_pairs_are_processed_as_specified() {
    let Some(verilated) = verilated() else { return };
    let seen = check_sr(verilated.start("fasr_sr", 4).expect("the model starts"), events());
    let least = events() / 2_000;
    assert!(seen.naks > least && seen.maps > least && seen.long > least, "{seen:?}");
    assert!(seen.full.iter().all(|count| *count > events() / 100), "the pools are not exhausted: {seen:?}");
}

/// Numbers of acknowledgements by what they say, and of retransmissions and changes of timers by kind of the event.
#[derive(Debug)]
pub struct GbnSeen {
    answers: [u64; 6],
    ranges: [u64; 10],
    timers: [u64; 10],
}

/// Checks the module for go-back-N in so many events.
pub fn check_gbn(model: Model, events: u64) -> GbnSeen {
    let seed = 16;
    let mut bench = Bench::new(model, seed);
    let mut random = RandomStreams::new(seed).stream("events");
    let mut pairs: Vec<Pair> = (0..QPS).map(|_| started(&mut random)).collect();
    let (mut answers, mut ranges, mut timers, mut last) = ([0; 6], [0; 10], [0; 10], 0);
    for _ in 0..events {
        let qp = some_pair(&mut random);
        let pair = &mut pairs[qp as usize];
        // Only a queue pair without a timer arms one.
        if qp != last && random.below(50) == 0 {
            *pair = started(&mut random);
        }
        send(&mut random, pair);
        bench.clock.now = plus(bench.clock.now, random.below(3) as u32);
        let before = *pair;
        let event = draw(&mut random, qp as u16, &before, Default::default());
        let outcome = gbn::step(&event, &mut pair.context, pair.next, pair.timer, bench.clock);
        pair.timer = outcome.timer.unwrap_or(pair.timer);
        if let Some(ack) = outcome.ack {
            answers[ack.say as usize] += 1;
        }
        ranges[event.kind as usize] += outcome.retransmissions.len() as u64;
        timers[event.kind as usize] += u64::from(outcome.timer.is_some());
        let after = pair.context;
        bench.pass(Job { event, before, after, outcome, lane: None, free: 0, units: 0 });
        last = qp;
    }
    bench.finish();
    GbnSeen { answers, ranges, timers }
}

/// R-R18: the go-back-N of the comparison, over events of the same kinds: answers, retransmissions, contexts and timers
/// are those specified.
#[test]
fn r17_go_back_n_processes_events_of_many_queue_pairs_as_specified() {
    let Some(verilated) = verilated() else { return };
    let count = events() / 5;
    let GbnSeen { answers, ranges, timers } =
        check_gbn(verilated.start("fasr_gbn", 4).expect("the model starts"), count);
    let least = count / 2_000;
    println!("acknowledgements {answers:?}, retransmissions {ranges:?}, timers {timers:?}, by kind");
    let has = |counts: &[u64], kinds: &[Kind]| kinds.iter().all(|kind| counts[*kind as usize] > least);
    assert!(answers[Say::Ack as usize] > least && answers[Say::Nak as usize] > least, "{answers:?}");
    assert!(has(&ranges, &[Kind::Nak, Kind::Timeout]), "{ranges:?}");
    assert!(has(&timers, &[Kind::Ack, Kind::Nak, Kind::Timeout, Kind::Extend, Kind::Arm]), "{timers:?}");
}
