//! Checks that schedulers decide on threads as they do elsewhere, and that queue pairs may leave them at any time.

use std::collections::BTreeMap;
use std::io;

use rnic_base::{Duration, RandomStream, RandomStreams, Time};
use rnic_policy::ScheduleEvent;
use rnic_scr::thread::spawn;
use rnic_scr::{Pool, PoolConfig};

use super::*;
use crate::processors::record::event_of;

const LINE: BitRate = BitRate::gbps(100);
const FLOWS: u32 = 8;

/// The schedulers of the registry that process events, each of the strategies for arrivals included.
fn laws() -> Vec<Configured<SchedulePolicy>> {
    let options: [&[(&str, &str)]; 4] = [
        &[("schedule", "static")],
        &[("schedule", "water-filling")],
        &[("schedule", "water-filling"), ("share_arrival", "restart"), ("share_meter", "event")],
        &[("schedule", "water-filling"), ("share_arrival", "keep"), ("max_min", "false")],
    ];
    let select = |options: &&[(&str, &str)]| {
        rnic_transports::select("irn", options.iter().copied()).expect("the transport exists").schedule
    };
    options.iter().map(select).collect()
}

fn on_threads(count: usize) -> OnThreads {
    OnThreads::new(SchedulerThreads { count, spawn }, LINE)
}

/// The state of a scheduler whose queue pair has joined.
fn joined(law: &Configured<SchedulePolicy>) -> PolicyState {
    let view = ScheduleView { members: FLOWS, weights: FLOWS.into(), ..ScheduleView::alone(Time::ZERO, LINE) };
    let (mut state, _) = (law.policy.start)(&law.params, &view);
    (law.policy.on_event)(&mut state, &ScheduleEvent::Joined, &view, &law.params);
    state
}

fn random_view(random: &mut RandomStream, now: Time) -> ScheduleView {
    let rate = |random: &mut RandomStream| BitRate::bps(random.below(LINE.as_bps()));
    ScheduleView {
        capacity: rate(random),
        members: 1 + random.below(9) as u32,
        weight: 1 + random.below(4) as u32,
        weights: 4 + random.below(20),
        allocated: rate(random),
        saturated_weights: random.below(20),
        saturated_rates: rate(random),
        epoch: random.below(3) as u32,
        is_held: random.below(2) == 0,
        control_rate: (random.below(2) == 0).then(|| rate(random)),
        ..ScheduleView::alone(now, LINE)
    }
}

type Decisions = Vec<Decision<Answer>>;

/// Records for which decisions are owed: with a few, some records are coalesced and most are not.
const OWED_MAX: u64 = 3;

#[expect(clippy::disallowed_methods, reason = "threads are one of the places")]
/// Receives decisions until at most `owed` records have none.
fn receive(threads: &mut OnThreads, owed: u64, decisions: &mut Decisions) {
    while threads.owed > owed {
        match threads.poll() {
            Some((slot, decision)) => {
                assert_eq!(slot, decision.record.subject);
                decisions.push(decision);
            }
            None => std::thread::yield_now(),
        }
    }
}

/// Runs `law` on `count` threads, on `records` random records.
fn run(law: &Configured<SchedulePolicy>, count: usize, seed: u64, records: u64) -> Decisions {
    let mut threads = on_threads(count);
    for slot in 0..FLOWS {
        assert_eq!(threads.join(slot, law, joined(law), false), Some(slot));
    }
    let mut random = RandomStreams::new(seed).stream("laws");
    let (mut now, mut decisions) = (Time::ZERO, Decisions::new());
    for _ in 0..records {
        now += Duration::from_ns(1 + random.below(2_000));
        let flow = random.below(FLOWS.into()) as u32;
        let record = match random.below(20) {
            0 => Signal::wake_up(Kind::Tx, flow, now),
            _ => Signal::new(Kind::Tx, flow, now).with_bytes(78 + random.below(4_096)),
        };
        threads.push(&record, &random_view(&mut random, now));
        receive(&mut threads, OWED_MAX, &mut decisions);
    }
    receive(&mut threads, 0, &mut decisions);
    decisions
}

/// Decisions that threads have made are made again from their records and views, inline and on modelled threads, bit
/// for bit: 10^6 records of each scheduler with the release profile, fewer without optimization.
#[test]
fn s13_registered_schedulers_decide_on_threads_as_they_do_inline_and_in_the_model() {
    let records = if cfg!(debug_assertions) { 400 } else { 25_000 };
    for (number, law) in laws().iter().enumerate() {
        for (seed, count) in (1..=20).flat_map(|seed| [(seed, 1), (seed, 2)]) {
            let decisions = run(law, count, seed, records);
            let mut pool = Pool::new(&PoolConfig::figures(LINE)).expect("it is valid");
            let mut states = BTreeMap::new();
            for slot in 0..FLOWS {
                pool.join(slot.into()).expect("a flow");
                states.insert(slot, [joined(law), joined(law)]);
            }
            let mut now = Time::ZERO;
            let mut made = 0;
            for Decision { answer, .. } in &decisions {
                let Some((record, view)) = &answer.basis else { continue };
                made += 1;
                let mut decide = |place: usize, record: &Signal| {
                    let state = &mut states.get_mut(&record.subject).expect("it has joined")[place];
                    (law.policy.on_event)(state, &event_of(record), view, &law.params)
                };
                assert_eq!(decide(0, record), answer.actions, "law {number}, seed {seed}, {count} threads, inline");
                pool.push(now, record).expect("the flow has joined");
                let dispatch = loop {
                    now = pool.next_at().expect("a record is queued");
                    if let Some(dispatch) = pool.poll(now) {
                        break dispatch;
                    }
                };
                assert_eq!(decide(1, &dispatch.record), answer.actions, "law {number}, seed {seed}, modelled");
            }
            assert!(decisions.len() as u64 > records / 4, "{} decisions", decisions.len());
            assert!(made * 4 > decisions.len(), "{made} of {} decisions were made", decisions.len());
        }
    }
}

#[test]
fn s12_the_thread_reads_the_sums_and_the_values_of_the_record_it_processes() {
    let [_, law, ..] = &laws()[..] else { panic!("four laws") };
    let mut threads = on_threads(1);
    threads.join(5, law, joined(law), true);
    let view = ScheduleView {
        weight: 7,
        is_held: true,
        is_saturated: true,
        control_rate: Some(BitRate::gbps(3)),
        epoch: 9,
        ..random_view(&mut RandomStreams::new(3).stream("view"), Time::from_us(4))
    };
    threads.push(&Signal::new(Kind::Tx, 0, Time::from_us(4)).with_bytes(1_102), &view);
    let decision = loop {
        if let Some((slot, decision)) = threads.poll() {
            assert_eq!(slot, 5);
            break decision;
        }
    };
    let (_, read) = decision.answer.basis.expect("no rate is outstanding");
    assert_eq!(format!("{read:?}"), format!("{view:?}"));
    assert!(!threads.are_owed());
}

/// A tick is a record of its own, for which a decision is owed as for packets.
#[test]
fn s12_the_decision_of_a_tick_is_owed() {
    let [_, law, ..] = &laws()[..] else { panic!("four laws") };
    let mut threads = on_threads(1);
    threads.join(0, law, joined(law), false);
    let now = Time::from_us(4);
    let view = ScheduleView { is_held: true, members: 1, weights: 1, ..ScheduleView::alone(now, LINE) };
    assert!(threads.push(&Signal::wake_up(Kind::Tx, 0, now), &view) && threads.are_owed());
    let mut decisions = Decisions::new();
    receive(&mut threads, 0, &mut decisions);
    let [Decision { record, answer }] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(record.count, 0);
    assert!(answer.actions.dequeue_rate.is_some(), "a queue pair that is held takes a step");
}

#[test]
fn s12_a_queue_pair_that_leaves_owes_nothing() {
    let [_, law, ..] = &laws()[..] else { panic!("four laws") };
    let mut threads = on_threads(2);
    threads.join(0, law, joined(law), false);
    threads.join(1, law, joined(law), false);
    let view = ScheduleView::alone(Time::ZERO, LINE);
    for _ in 0..100 {
        threads.push(&Signal::new(Kind::Tx, 0, Time::ZERO).with_bytes(1_102), &view);
        threads.push(&Signal::new(Kind::Tx, 1, Time::ZERO).with_bytes(1_102), &view);
    }
    threads.forget(0);
    threads.push(&Signal::new(Kind::Tx, 0, Time::ZERO).with_bytes(1_102), &view);
    while threads.are_owed() {
        if let Some((slot, _)) = threads.poll() {
            assert_eq!(slot, 1, "a decision for a queue pair that has left");
        }
    }
}

#[test]
fn s12_without_threads_schedulers_run_at_once() {
    let [_, law, ..] = &laws()[..] else { panic!("four laws") };
    let refuse: Spawn = |_| Err(io::ErrorKind::WouldBlock.into());
    let mut threads = OnThreads::new(SchedulerThreads { count: 1, spawn: refuse }, LINE);
    assert_eq!([0, 1].map(|slot| threads.join(slot, law, joined(law), false)), [None, None]);
    threads.forget(0);
    assert!(threads.poll().is_none() && !threads.are_owed());
}
