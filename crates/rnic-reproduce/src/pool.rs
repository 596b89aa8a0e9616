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
    order.sort_by_key(|spec| (spec.needs_idle_machine(), std::cmp::Reverse(spec.task.cost)));
    let queue = RunQueue {
        state: Mutex::new(State { waiting: order.into(), memory: limits.memory, running: 0, is_measuring: false }),
        freed: Condvar::new(),
    };
    let (samples, results) = mpsc::sync_channel(limits.jobs.get());
    thread::scope(|scope| {
        for _ in 0..limits.jobs.get().min(specs.len()) {
            let samples = samples.clone();
            let queue = &queue;
            scope.spawn(move || work(queue, &samples));
        }
        drop(samples);
        collect(&queue, &results, done)
    })
}

fn work(queue: &RunQueue<'_>, samples: &SyncSender<Sample>) {
    while let Some(spec) = queue.next_run() {
        let sample = spec.run();
        queue.finish(spec);
        if samples.send(sample).is_err() {
            return;
        }
    }
}

fn collect<E>(
    queue: &RunQueue<'_>,
    results: &Receiver<Sample>,
    mut done: impl FnMut(Sample) -> Result<(), E>,
) -> Result<(), E> {
    let mut outcome = Ok(());
    for sample in results {
        if outcome.is_ok() {
            outcome = done(sample);
            if outcome.is_err() {
                queue.clear();
            }
        }
    }
    outcome
}

/// Queue from which workers fetch runs.
struct RunQueue<'s> {
    state: Mutex<State<'s>>,
    freed: Condvar,
}

struct State<'s> {
    waiting: std::collections::VecDeque<&'s RunSpec>,
    memory: u64,
    running: usize,
    /// `true` while a measured run is executed; no other run may start then.
    is_measuring: bool,
}

impl<'s> State<'s> {
    /// Removes and returns the next run that may start now.
    fn next(&mut self) -> Option<&'s RunSpec> {
        let fits = |spec: &&RunSpec| match self.running {
            0 => true,
            _ => !self.is_measuring && !spec.needs_idle_machine() && spec.task.memory <= self.memory,
        };
        let index = self.waiting.iter().position(fits)?;
        let spec = self.waiting.remove(index)?;
        self.memory = self.memory.saturating_sub(spec.task.memory);
        self.running += 1;
        self.is_measuring = spec.needs_idle_machine();
        Some(spec)
    }

    fn finish(&mut self, spec: &RunSpec) {
        self.memory += spec.task.memory;
        self.running -= 1;
        self.is_measuring = false;
    }
}

impl<'s> RunQueue<'s> {
    /// Removes and returns the next run that may start, and blocks until there is one; returns `None` when no run is
    /// left.
    fn next_run(&self) -> Option<&'s RunSpec> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            if let Some(spec) = state.next() {
                return Some(spec);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish(&self, spec: &RunSpec) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).finish(spec);
        self.freed.notify_all();
    }

    fn clear(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.clear();
        self.freed.notify_all();
    }
}

/// Returns four fifths of the available memory in bytes, or an assumed amount when the system does not report it.
pub fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(ASSUMED_MEMORY_BYTES, |kib| kib * 1_024 / 5 * 4)
}

const ASSUMED_MEMORY_BYTES: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Task;

    fn spec(seed: u64, needs_idle_machine: bool, memory: u64) -> RunSpec {
        let measured_on = needs_idle_machine.then(|| "a processor".to_owned());
        RunSpec::new(Task { measured_on, memory, ..Task::default() }, seed)
    }

    #[test]
    fn a_measured_run_is_executed_alone() {
        let specs = [spec(0, true, 1), spec(1, false, 1), spec(2, false, 1), spec(3, true, 1), spec(4, false, 1)];
        let left = |order: &[usize]| order.iter().map(|index| &specs[*index]).collect();
        let mut state = State { waiting: left(&[1, 0, 2, 3]), memory: 10, running: 0, is_measuring: false };
        let seeds = |state: &mut State<'_>| state.next().map(|spec| spec.seed);
        assert_eq!(
            (seeds(&mut state), seeds(&mut state)),
            (Some(1), Some(2)),
            "runs that may be parallel are not first"
        );
        assert_eq!(seeds(&mut state), None, "a measured run started beside two others");
        state.finish(&specs[1]);
        assert_eq!(seeds(&mut state), None, "a measured run started beside another one");
        state.finish(&specs[2]);
        assert_eq!(seeds(&mut state), Some(0));
        state.waiting.push_back(&specs[4]);
        assert_eq!(seeds(&mut state), None, "a run started beside a measured one");
        state.finish(&specs[0]);
        assert_eq!((seeds(&mut state), seeds(&mut state)), (Some(3), None));
        state.finish(&specs[3]);
        assert_eq!((seeds(&mut state), state.memory, state.is_measuring), (Some(4), 9, false));
    }

    #[test]
    fn a_run_larger_than_the_memory_waits_for_all_others() {
        let specs = [spec(0, false, 5), spec(1, false, 50)];
        let mut state = State { waiting: specs.iter().collect(), memory: 10, running: 0, is_measuring: false };
        assert_eq!((state.next().map(|spec| spec.seed), state.next()), (Some(0), None));
        state.finish(&specs[0]);
        assert_eq!(state.next().map(|spec| spec.seed), Some(1));
    }
}
