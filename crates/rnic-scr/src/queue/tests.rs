//! Every strategy against a list of records.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use rnic_base::Time;

use super::*;
// The name of proptest's trait is that of ours.
use super::Strategy;

const STRATEGIES: [Strategy; 5] =
    [Strategy::None, Strategy::Accumulate, Strategy::Latest, Strategy::Oldest, Strategy::WhileStable];

/// A queue as lists of the signals in each record.
struct Model {
    records: VecDeque<Vec<Signal>>,
    strategy: Strategy,
}

impl Model {
    fn push(&mut self, signal: Signal) {
        let is_full = self.records.len() == 64;
        if let Some(newest) = self.records.back_mut() {
            let bytes: u64 = newest.iter().map(|part| part.bytes).sum();
            let fits = signal.kind != Kind::Tx || bytes + signal.bytes <= 65_536;
            if is_full || (self.strategy != Strategy::None && fits) {
                newest.push(signal);
                return;
            }
        }
        self.records.push_back(vec![signal]);
    }

    fn take(&mut self) -> Option<Signal> {
        let parts = self.records.pop_front()?;
        let (oldest, latest) = (parts[0], parts[parts.len() - 1]);
        let kept = if self.strategy == Strategy::Oldest { oldest } else { latest };
        Some(Signal {
            count: parts.iter().map(|part| part.count).sum(),
            bytes: parts.iter().map(|part| part.bytes).sum(),
            value: kept.value,
            level: kept.level,
            first: oldest.first,
            last: latest.last,
            ..oldest
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { queue: usize, bytes: u64, value: u64 },
    Take { queue: usize },
    Clear { queue: usize },
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        600 => (0..3usize, 0..30_000u64, any::<u64>())
            .prop_map(|(queue, bytes, value)| Step::Push { queue, bytes, value }),
        200 => (0..3usize).prop_map(|queue| Step::Take { queue }),
        1 => (0..3usize).prop_map(|queue| Step::Clear { queue }),
    ];
    proptest::collection::vec(step, 0..600)
}

/// Runs `steps` on a queue of TX, one of RTT and one of ACK in the same backlog.
fn agrees_with_model(strategy: Strategy, steps: &[Step]) -> Result<(), TestCaseError> {
    const KINDS: [Kind; 3] = [Kind::Tx, Kind::Rtt, Kind::Ack];
    let mut backlog = Backlog::default();
    let mut queues = KINDS.map(|_| Queue::new(strategy));
    let mut models = KINDS.map(|_| Model { records: VecDeque::new(), strategy });
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Push { queue, bytes, value } => {
                let at = Time::from_ns(number as u64);
                let signal = Signal::new(KINDS[queue], 9, at).with_bytes(bytes).with_value(value, value as u32 / 2);
                queues[queue].push(&mut backlog, &signal);
                models[queue].push(signal);
            }
            Step::Take { queue } => prop_assert_eq!(queues[queue].take(&mut backlog), models[queue].take()),
            Step::Clear { queue } => {
                prop_assert_eq!(queues[queue].clear(&mut backlog) as usize, models[queue].records.len());
                models[queue].records.clear();
            }
        }
        for (queue, model) in queues.iter().zip(&models) {
            prop_assert_eq!(queue.len() as usize, model.records.len());
        }
        prop_assert_eq!(backlog.waiting(), queues.iter().map(Queue::len).sum::<u32>());
    }
    for (queue, model) in queues.iter_mut().zip(&mut models) {
        while let Some(record) = queue.take(&mut backlog) {
            prop_assert_eq!(Some(record), model.take());
        }
        prop_assert_eq!(model.take(), None);
    }
    prop_assert_eq!(backlog.waiting(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn s11_every_strategy_is_that_of_a_list(steps in steps()) {
        for strategy in STRATEGIES {
            agrees_with_model(strategy, &steps)?;
        }
    }
}

fn tx(bytes: u64, ns: u64) -> Signal {
    Signal::new(Kind::Tx, 1, Time::from_ns(ns)).with_bytes(bytes).with_value(ns, 0)
}

#[test]
fn s11_each_strategy_gives_its_record_for_the_same_three_signals() {
    let expected = [
        (Strategy::Accumulate, 30, 3_000),
        (Strategy::Latest, 30, 3_000),
        (Strategy::Oldest, 10, 3_000),
        (Strategy::WhileStable, 30, 3_000),
        (Strategy::None, 10, 1_000),
    ];
    for (strategy, value, bytes) in expected {
        let (mut backlog, mut queue) = (Backlog::default(), Queue::new(strategy));
        for ns in [10, 20, 30] {
            queue.push(&mut backlog, &tx(1_000, ns));
        }
        let record = queue.take(&mut backlog).expect("there is one");
        assert_eq!((record.value, record.bytes, record.first), (value, bytes, Time::from_ns(10)), "{strategy:?}");
        assert_eq!(queue.len(), if strategy == Strategy::None { 2 } else { 0 });
    }
}

#[test]
fn s11_folded_bytes_of_tx_end_at_the_bound_and_those_of_acknowledgements_do_not() {
    let (mut backlog, mut queue) = (Backlog::default(), Queue::new(Strategy::Accumulate));
    for ns in 0..100 {
        queue.push(&mut backlog, &tx(1_102, ns));
    }
    // 59 packets of 1102 bytes are 65,018 bytes, one more would exceed 65,536.
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.take(&mut backlog).map(|record| (record.count, record.bytes)), Some((59, 65_018)));
    assert_eq!(queue.take(&mut backlog).map(|record| record.count), Some(41));
    // A single signal above the bound is a record of its own.
    queue.push(&mut backlog, &tx(100_000, 0));
    queue.push(&mut backlog, &tx(1, 0));
    assert_eq!(queue.take(&mut backlog).map(|record| record.bytes), Some(100_000));
    assert_eq!(queue.take(&mut backlog).map(|record| record.bytes), Some(1));
    for _ in 0..3 {
        queue.push(&mut backlog, &Signal::new(Kind::Ack, 1, Time::ZERO).with_bytes(60_000));
    }
    assert_eq!(queue.take(&mut backlog).map(|record| record.bytes), Some(180_000));
}

#[test]
fn s10_a_full_queue_folds_into_its_newest_record_and_loses_nothing() {
    let (mut backlog, mut queue) = (Backlog::default(), Queue::new(Strategy::None));
    for ns in 0..1_000 {
        queue.push(&mut backlog, &tx(1_000, ns));
    }
    assert_eq!(queue.len(), QUEUE_DEPTH);
    let records: Vec<Signal> = core::iter::from_fn(|| queue.take(&mut backlog)).collect();
    assert!(records[..63].iter().enumerate().all(|(number, record)| *record == tx(1_000, number as u64)));
    let newest = records[63];
    assert_eq!((newest.count, newest.bytes, newest.value), (937, 937_000, 999));
    assert_eq!((newest.first, newest.last), (Time::from_ns(63), Time::from_ns(999)));
}

#[test]
fn s10_queues_without_records_use_no_memory_of_records() {
    let mut backlog = Backlog::default();
    let mut queues: Vec<Queue> = (0..5 * 1_024).map(|_| Queue::new(Strategy::None)).collect();
    // Flows that are active one after the other use the same memory.
    for queue in &mut queues {
        for ns in 0..64 {
            queue.push(&mut backlog, &tx(1, ns));
        }
        queue.clear(&mut backlog);
    }
    assert!(backlog.memory() <= 64 * size_of::<Node>(), "{} bytes", backlog.memory());
    assert!(size_of::<Queue>() <= 16);
}
