//! Executes runs on the processors of this machine: one run per processor, as many in parallel as memory allows;
//! measured runs are executed alone.

use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::run::{RunSpec, Sample};

/// Limits of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of runs in parallel.
    pub jobs: NonZeroUsize,
    /// Memory in bytes for all parallel runs; a run that needs more than this is executed alone.
    pub memory: u64,
}

/// Executes all of `specs`, longest first, and passes each sample to `done` as it arrives, on the caller's thread. When
/// `done` fails, no further runs are started and those in progress are completed.
///
/// # Errors
/// The error of `done`.
pub fn run_all<E>(specs: &[&RunSpec], limits: Limits, done: impl FnMut(Sample) -> Result<(), E>) -> Result<(), E> {
    let mut order = specs.to_vec();
    // Measured runs are executed last, so that other runs do not wait for them.
    order.sort_by_key(|spec| (spec.is_alone(), std::cmp::Reverse(spec.task.cost)));
    let desk = Desk {
        state: Mutex::new(State { left: order.into(), memory: limits.memory, under_way: 0, is_quiet: false }),
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

/// Queue from which workers fetch runs.
struct Desk<'s> {
    state: Mutex<State<'s>>,
    freed: Condvar,
}

struct State<'s> {
    left: std::collections::VecDeque<&'s RunSpec>,
    memory: u64,
    under_way: usize,
    /// True while a run is being measured: no other run may start.
    is_quiet: bool,
}

impl<'s> State<'s> {
    /// Removes and returns the next run that may start now.
    fn next(&mut self) -> Option<&'s RunSpec> {
        let fits = |spec: &&RunSpec| match self.under_way {
            0 => true,
            _ => !self.is_quiet && !spec.is_alone() && spec.task.memory <= self.memory,
        };
        let index = self.left.iter().position(fits)?;
        let spec = self.left.remove(index)?;
        self.memory = self.memory.saturating_sub(spec.task.memory);
        self.under_way += 1;
        self.is_quiet = spec.is_alone();
        Some(spec)
    }

    fn give_back(&mut self, spec: &RunSpec) {
        self.memory += spec.task.memory;
        self.under_way -= 1;
        self.is_quiet = false;
    }
}

impl<'s> Desk<'s> {
    /// Removes and returns the next run that may start, and blocks until there is one; returns `None` when no run is
    /// left.
    fn take(&self) -> Option<&'s RunSpec> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.left.is_empty() {
                return None;
            }
            if let Some(spec) = state.next() {
                return Some(spec);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, spec: &RunSpec) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).give_back(spec);
        self.freed.notify_all();
    }

    fn clear(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).left.clear();
        self.freed.notify_all();
    }
}

/// Returns four fifths of the available memory in bytes, or a guess when the system does not report it.
pub fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(MEMORY_GUESS, |kib| kib * 1_024 / 5 * 4)
}

const MEMORY_GUESS: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Task;

    fn spec(seed: u64, is_alone: bool, memory: u64) -> RunSpec {
        let measured_on = is_alone.then(|| "a processor".to_owned());
        RunSpec::new(Task { measured_on, memory, ..Task::default() }, seed)
    }

    #[test]
    fn what_is_measured_runs_by_itself() {
        let specs = [spec(0, true, 1), spec(1, false, 1), spec(2, false, 1), spec(3, true, 1), spec(4, false, 1)];
        let left = |order: &[usize]| order.iter().map(|index| &specs[*index]).collect();
        let mut state = State { left: left(&[1, 0, 2, 3]), memory: 10, under_way: 0, is_quiet: false };
        let seeds = |state: &mut State<'_>| state.next().map(|spec| spec.seed);
        assert_eq!((seeds(&mut state), seeds(&mut state)), (Some(1), Some(2)), "those that may run beside others");
        assert_eq!(seeds(&mut state), None, "two are under way");
        state.give_back(&specs[1]);
        assert_eq!(seeds(&mut state), None, "one is");
        state.give_back(&specs[2]);
        assert_eq!(seeds(&mut state), Some(0));
        state.left.push_back(&specs[4]);
        assert_eq!(seeds(&mut state), None, "neither the next measurement nor anything else");
        state.give_back(&specs[0]);
        assert_eq!((seeds(&mut state), seeds(&mut state)), (Some(3), None));
        state.give_back(&specs[3]);
        assert_eq!((seeds(&mut state), state.memory, state.is_quiet), (Some(4), 9, false));
    }

    #[test]
    fn what_needs_more_memory_than_there_is_waits_for_all_others() {
        let specs = [spec(0, false, 5), spec(1, false, 50)];
        let mut state = State { left: specs.iter().collect(), memory: 10, under_way: 0, is_quiet: false };
        assert_eq!((state.next().map(|spec| spec.seed), state.next()), (Some(0), None));
        state.give_back(&specs[0]);
        assert_eq!(state.next().map(|spec| spec.seed), Some(1));
    }
}
