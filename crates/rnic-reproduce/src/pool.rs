//! Runs on the processors of this machine: one each, as many at once as memory allows.

use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::run::{RunSpec, Sample};

/// What limits a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Runs at once.
    pub jobs: NonZeroUsize,
    /// Bytes that all of them may take; a run that needs more than all of it runs alone.
    pub memory: u64,
}

/// Runs all of `specs`, longest first, and hands each sample to `done` as it comes, on the caller's thread. Ends early,
/// after the runs that are under way, when `done` fails.
///
/// # Errors
/// That of `done`.
pub fn run_all<E>(specs: &[&RunSpec], limits: Limits, done: impl FnMut(Sample) -> Result<(), E>) -> Result<(), E> {
    let mut order = specs.to_vec();
    order.sort_by_key(|spec| std::cmp::Reverse(spec.cost));
    let desk = Desk {
        state: Mutex::new(State { left: order.into(), memory: limits.memory, under_way: 0 }),
        freed: Condvar::new(),
    };
    let (samples, results) = mpsc::sync_channel(limits.jobs.get());
    thread::scope(|scope| {
        for _ in 0..limits.jobs.get().min(specs.len()) {
            let samples = samples.clone();
            let desk = &desk;
            scope.spawn(move || work(desk, &samples));
        }
        drop(samples);
        collect(&desk, &results, done)
    })
}

fn work(desk: &Desk<'_>, samples: &SyncSender<Sample>) {
    while let Some(spec) = desk.take() {
        let sample = spec.run();
        desk.give_back(spec);
        if samples.send(sample).is_err() {
            return;
        }
    }
}

fn collect<E>(
    desk: &Desk<'_>,
    results: &Receiver<Sample>,
    mut done: impl FnMut(Sample) -> Result<(), E>,
) -> Result<(), E> {
    let mut outcome = Ok(());
    for sample in results {
        if outcome.is_ok() {
            outcome = done(sample);
            if outcome.is_err() {
                desk.clear();
            }
        }
    }
    outcome
}

/// Where workers fetch runs.
struct Desk<'s> {
    state: Mutex<State<'s>>,
    freed: Condvar,
}

struct State<'s> {
    left: std::collections::VecDeque<&'s RunSpec>,
    memory: u64,
    under_way: usize,
}

impl<'s> Desk<'s> {
    /// The next run whose memory is free; waits for one; none when nothing is left.
    fn take(&self) -> Option<&'s RunSpec> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.left.is_empty() {
                return None;
            }
            let fits = |spec: &&RunSpec| spec.memory <= state.memory || state.under_way == 0;
            if let Some(index) = state.left.iter().position(fits) {
                let spec = state.left.remove(index).expect("the position was found in this list");
                state.memory = state.memory.saturating_sub(spec.memory);
                state.under_way += 1;
                return Some(spec);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, spec: &RunSpec) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.memory += spec.memory;
        state.under_way -= 1;
        drop(state);
        self.freed.notify_all();
    }

    fn clear(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).left.clear();
        self.freed.notify_all();
    }
}

/// Four fifths of the memory that is free, or a guess where the system does not tell.
pub fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(MEMORY_GUESS, |kib| kib * 1_024 / 5 * 4)
}

const MEMORY_GUESS: u64 = 2 << 30;
