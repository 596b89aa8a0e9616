//! Equal records give equal decisions inline, in the modelled pool and in pools of one and two threads.
#![expect(clippy::disallowed_methods, reason = "threads are one of the places")]

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rnic_base::{BitRate, Duration, RandomStreams, Time};
use rnic_scr::thread::{Decision, Handler, Threads, Work, spawn};
use rnic_scr::tools::keyed_hash;
use rnic_scr::{Kind, Pool, PoolConfig, Pushed, Rates, Scope, Signal, Strategy};

const LINE: BitRate = BitRate::gbps(100);
const FLOWS: u64 = 20;

/// Decides by all that its flow has seen: a lost, repeated or reordered record changes every later decision.
#[derive(Default)]
struct Law {
    seen: BTreeMap<(u32, Option<Kind>), u64>,
    /// `true` if each kind has a state of its own, as its order relative to other kinds depends on the place.
    by_kind: bool,
}

impl Law {
    fn by_kind() -> Self {
        Self { by_kind: true, ..Self::default() }
    }
}

impl Handler for Law {
    type Answer = u64;
    type Flow = ();

    fn join(&mut self, _: u32, (): ()) {}

    fn handle(&mut self, record: &Signal) -> u64 {
        let node_or_kind = (self.by_kind || record.kind.scope() == Scope::Node).then_some(record.kind);
        let seen = self.seen.entry((record.subject, node_or_kind)).or_insert(0);
        for word in [record.bytes, record.value, record.first.as_ps(), record.last.as_ps(), record.count.into()] {
            *seen = keyed_hash(*seen, word);
        }
        *seen
    }

    fn rate(_: &u64) -> u32 {
        1_000
    }

    fn forget(&mut self, flow: u32) {
        self.seen.retain(|(subject, kind), _| *subject != flow || kind.is_some_and(|kind| kind.scope() == Scope::Node));
    }
}

/// Decisions of each subject and kind, in order.
type Decisions = BTreeMap<(u32, Kind), Vec<(Signal, u64)>>;

fn note(decisions: &mut Decisions, record: Signal, answer: u64) {
    decisions.entry((record.subject, record.kind)).or_default().push((record, answer));
}

fn random_records(seed: u64, count: usize) -> Vec<Signal> {
    let mut random = RandomStreams::new(seed).stream("places");
    let mut at = Time::ZERO;
    (0..count)
        .map(|_| {
            at += Duration::from_ns(1 + random.below(400));
            let kind = Kind::ALL[random.below(12) as usize];
            Signal::new(kind, random.below(FLOWS) as u32, at)
                .with_bytes(random.below(5_000))
                .with_value(random.bits(), 3)
        })
        .collect()
}

fn threads(count: usize, law: fn() -> Law, strategies: [Strategy; Kind::COUNT]) -> Threads<Law> {
    let handlers = (0..count).map(|_| law()).collect();
    let mut threads = Threads::start(handlers, strategies, LINE, spawn).expect("threads start");
    (0..FLOWS).for_each(|identity| assert_eq!(threads.join(identity, ()), Some(identity as u32)));
    threads
}

fn pool(strategies: [Strategy; Kind::COUNT]) -> Pool {
    let mut pool = Pool::new(&PoolConfig { strategies, ..PoolConfig::figures(LINE) }).expect("it is valid");
    (0..FLOWS).for_each(|identity| assert_eq!(pool.join(identity), Some(identity as u32)));
    pool
}

fn next_decision<H: Handler<Answer = u64>>(threads: &mut Threads<H>) -> Decision<u64> {
    loop {
        if let Some(decision) = threads.poll() {
            return decision;
        }
        std::thread::yield_now();
    }
}

/// Runs `law` on `records` in the modelled pool without coalescing: at most 41 records wait, so none is folded.
fn modelled(records: &[Signal], mut law: Law) -> Decisions {
    let mut pool = pool([Strategy::None; Kind::COUNT]);
    let mut decisions = Decisions::new();
    let mut advance = |pool: &mut Pool, at: Time| {
        while let Some(dispatch) = pool.poll(at) {
            note(&mut decisions, dispatch.record, law.handle(&dispatch.record));
        }
    };
    for record in records {
        while let Some(at) = pool.next_at().filter(|at| *at <= record.last || pool.waiting() > 40) {
            advance(&mut pool, at);
        }
        assert_eq!(pool.push(record.last, record), Ok(Pushed::Appended));
    }
    while let Some(at) = pool.next_at() {
        advance(&mut pool, at);
    }
    decisions
}

/// Runs `law` on `records` in `count` threads without coalescing: at most 60 records of a queue are outstanding, so
/// none is folded.
fn threaded(records: &[Signal], count: usize) -> Decisions {
    let mut threads = threads(count, Law::by_kind, [Strategy::None; Kind::COUNT]);
    let mut decisions = Decisions::new();
    let mut receive = |threads: &mut Threads<Law>| {
        let decision = next_decision(threads);
        note(&mut decisions, decision.record, decision.answer);
        (decision.record.subject, decision.record.kind)
    };
    let mut outstanding = BTreeMap::new();
    for record in records {
        while outstanding.get(&(record.subject, record.kind)).is_some_and(|count| *count == 60) {
            let of = receive(&mut threads);
            outstanding.entry(of).and_modify(|count| *count -= 1);
        }
        assert_eq!(threads.push(record), Ok(Pushed::Appended));
        *outstanding.entry((record.subject, record.kind)).or_insert(0) += 1;
    }
    (0..outstanding.into_values().sum()).for_each(|_| {
        receive(&mut threads);
    });
    assert_eq!((threads.poll(), threads.refused()), (None, 0));
    decisions
}

#[test]
fn s13_equal_records_give_equal_decisions_in_every_place() {
    for seed in 1..=5 {
        let records = random_records(seed, 100_000);
        let mut inline = Decisions::new();
        let mut law = Law::by_kind();
        for record in &records {
            note(&mut inline, *record, law.handle(record));
        }
        assert_eq!(inline.len(), 12 * FLOWS as usize);
        assert!(modelled(&records, Law::by_kind()) == inline, "modelled, seed {seed}");
        assert!(threaded(&records, 1) == inline, "one thread, seed {seed}");
        assert!(threaded(&records, 2) == inline, "two threads, seed {seed}");
    }
}

#[test]
fn s13_replayed_records_of_threads_that_coalesce_give_the_same_decisions_inline() {
    for (seed, count) in [(6, 1), (7, 2), (8, 2)] {
        let records = random_records(seed, 100_000);
        let mut threads = threads(count, Law::default, Kind::ALL.map(Strategy::of));
        let mut decisions = Vec::new();
        for record in &records {
            threads.push(record).expect("the flow has joined");
            decisions.extend(threads.poll());
        }
        let signals =
            |decisions: &[Decision<u64>]| decisions.iter().map(|one| u64::from(one.record.count)).sum::<u64>();
        while signals(&decisions) < 100_000 {
            decisions.push(next_decision(&mut threads));
        }
        let bytes = |records: &mut dyn Iterator<Item = Signal>| records.map(|record| record.bytes).sum::<u64>();
        let decided = || decisions.iter().map(|one| one.record);
        assert_eq!((signals(&decisions), bytes(&mut decided())), (100_000, bytes(&mut records.iter().copied())));
        assert!(decisions.len() < 100_000, "some records were coalesced");
        let mut law = Law::default();
        assert!(decisions.iter().all(|one| law.handle(&one.record) == one.answer), "inline, seed {seed}");
        // In the modelled pool one after the other, as kinds of a flow have several threads there.
        let (mut pool, mut law, mut now) = (pool([Strategy::None; Kind::COUNT]), Law::default(), Time::ZERO);
        for decision in &decisions {
            pool.push(now, &decision.record).expect("the flow has joined");
            let dispatch = loop {
                now = pool.next_at().expect("a record is queued");
                if let Some(dispatch) = pool.poll(now) {
                    break dispatch;
                }
            };
            assert_eq!((dispatch.record, law.handle(&dispatch.record)), (decision.record, decision.answer));
        }
    }
}

#[test]
fn s11_threads_wait_while_rates_are_stable() {
    let mut threads = threads(1, Law::default, [Strategy::WhileStable; Kind::COUNT]);
    let mut decisions = Vec::new();
    for number in 0..400u64 {
        let at = Time::from_ns(100 * number);
        threads.push(&Signal::new(Kind::Tx, 0, at).with_bytes(1_000)).expect("the flow has joined");
        // One record at a time, or the queue would coalesce them.
        while threads.events() == number {
            std::thread::yield_now();
        }
        decisions.extend(threads.poll());
        if number == 200 {
            threads.restart();
        }
    }
    while decisions.len() < 38 {
        decisions.push(next_decision(&mut threads));
    }
    let counts: Vec<u32> = decisions.iter().map(|decision| decision.record.count).collect();
    // Eight rates, then one record of sixteen; the record after the restart, eight rates, and so on.
    let stable = [16; 12];
    assert_eq!(counts, [&[1; 8][..], &stable, &[2], &[1; 7], &[16; 11]].concat());
}

static STARTED: AtomicUsize = AtomicUsize::new(0);

fn counted(work: Work) -> io::Result<JoinHandle<()>> {
    STARTED.fetch_add(1, Ordering::Relaxed);
    spawn(work)
}

#[test]
fn s12_threads_start_with_their_pool_and_the_owner_alone_writes_rates() {
    let handlers = vec![Law::default(), Law::default()];
    let mut threads = Threads::start(handlers, Kind::ALL.map(Strategy::of), LINE, counted).expect("threads start");
    assert_eq!((STARTED.load(Ordering::Relaxed), threads.threads()), (2, 2));
    let mut rates = Rates::default();
    for flow in 0..5_000 {
        assert_eq!(threads.join(flow, ()), Some(flow as u32));
        threads.push(&Signal::new(Kind::Tx, flow as u32, Time::from_us(flow))).expect("the flow has joined");
    }
    for _ in 0..5_000 {
        let decision = next_decision(&mut threads);
        assert!(rates.set(decision.record.subject, Some(Law::rate(&decision.answer))));
    }
    assert!((0..5_000).all(|flow| rates.get(flow) == Some(1_000)));
    assert_eq!(STARTED.load(Ordering::Relaxed), 2, "threads start never later");
    drop(threads);
}

#[test]
fn s10_a_flow_that_left_is_decided_no_more_and_another_begins_without_its_state() {
    let mut threads = threads(2, Law::default, [Strategy::None; Kind::COUNT]);
    let record = |bytes| Signal::new(Kind::Tx, 3, Time::ZERO).with_bytes(bytes);
    for round in 1..2_000 {
        (0..round % 90).for_each(|_| {
            threads.push(&record(7)).expect("the flow has joined");
        });
        threads.forget(3);
        assert!(threads.push(&record(7)).is_err(), "no flow has the number");
        assert_eq!(threads.join(99, ()), Some(3));
        threads.push(&record(round)).expect("the flow has joined");
        let decision = next_decision(&mut threads);
        assert_eq!((decision.record, decision.answer), (record(round), Law::default().handle(&record(round))));
        threads.forget(3);
        assert_eq!(threads.join(100, ()), Some(3));
    }
    assert_eq!(threads.refused(), 1_999);
}

#[test]
fn s10_an_owner_that_does_not_poll_loses_nothing() {
    let mut threads = threads(1, Law::default, [Strategy::Accumulate; Kind::COUNT]);
    for number in 0..200_000u64 {
        threads.push(&Signal::new(Kind::Ack, (number % FLOWS) as u32, Time::from_ns(number))).expect("it has joined");
    }
    let mut signals = 0;
    while signals < 200_000 {
        signals += next_decision(&mut threads).record.count;
    }
    assert_eq!((signals, threads.poll()), (200_000, None));
}

struct Faulty;

impl Handler for Faulty {
    type Answer = u64;
    type Flow = ();

    fn join(&mut self, _: u32, (): ()) {}

    fn handle(&mut self, record: &Signal) -> u64 {
        assert!(record.bytes < 5, "a fault of the program");
        0
    }

    fn rate(_: &u64) -> u32 {
        0
    }

    fn forget(&mut self, _: u32) {}
}

#[test]
#[should_panic(expected = "a thread of SCR's pool has failed")]
fn s13_a_program_that_fails_fails_at_its_owner() {
    let strategies = Kind::ALL.map(Strategy::of);
    let mut threads = Threads::start(vec![Faulty], strategies, LINE, spawn).expect("a thread starts");
    threads.push(&Signal::new(Kind::Bus, 0, Time::ZERO).with_bytes(5)).expect("a node needs not join");
    next_decision(&mut threads);
}
