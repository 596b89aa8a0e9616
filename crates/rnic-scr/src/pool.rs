//! Pools of threads in simulated time: state without threads, which time passed in moves on.
//!
//! Source: SCR (NSDI'25), section 4.3 and appendix A.11 (latencies). Times that the paper does not give are OpenRNIC's.
//!
//! ```text
//!   push --> queue of (subject, kind) --> its thread: take the next record in cyclic order
//!                                            | folded: `fold`, next record          (waiting while the rate is stable)
//!                                            | else:   `work`, decision             (the program runs to completion)
//!            an idle thread starts `trigger` after the record; a busy one takes it at once when it has completed
//!   poll <-- decision; what it decided applies `install` later
//! ```
//!
//! The driver runs the program for each [`Dispatch`] that [`Pool::poll`] returns at the time of the decision, and calls
//! [`Pool::decided`]. A thread takes its next record after its dispatch was polled.
//!
//! Restrictions: threads share nothing but their queues' memory; events at the same time happen in the order of their
//! threads, a thread's own before records that are pushed at that time. Equal calls give equal results.

mod counters;
mod queues;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rnic_base::{BitRate, Duration, Time};
use rnic_policy::{MeterScale, MeterWeight};

use crate::queue::{Pushed, Strategy};
use crate::signal::{Kind, Scope, Signal};
use crate::steering::{PoolError, PoolSizes, Steering, SteeringMode};
use crate::turns::Turns;

pub use counters::{KindCounters, PoolCounters};
use queues::Queues;

/// Latencies of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolTimes {
    /// Latency from a record to the start of an idle thread.
    pub trigger: Duration,
    /// Time to process a record with the program.
    pub work: Duration,
    /// Time to merge a record that is not processed because the rate is stable.
    pub fold: Duration,
    /// Latency from a decision until the new rate applies.
    pub install: Duration,
}

impl PoolTimes {
    /// The published latencies: up to 7 us until the handler runs, 4 us in the handler (Swift's), up to 6 us to install
    /// a rate. The time to merge a record is derived: 51 % more events on four threads, with 15 of 16 records folded.
    pub const PUBLISHED: Self = Self {
        trigger: Duration::from_us(7),
        work: Duration::from_us(4),
        fold: Duration::from_ns(2_500),
        install: Duration::from_us(6),
    };
}

/// Settings of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Numbers of threads.
    pub sizes: PoolSizes,
    /// Distribution of flows over threads.
    pub steering: SteeringMode,
    /// Latencies of every thread.
    pub times: PoolTimes,
    /// Strategy of each kind, by [`Kind::index`].
    pub strategies: [Strategy; Kind::COUNT],
    /// Rate of the line, of which [`Strategy::WhileStable`] measures shares.
    pub line_rate: BitRate,
}

impl PoolConfig {
    /// Returns the settings with which figures are reproduced, on a line of `line_rate`.
    pub fn figures(line_rate: BitRate) -> Self {
        Self {
            sizes: PoolSizes::FIGURES,
            steering: SteeringMode::Software,
            times: PoolTimes::PUBLISHED,
            strategies: Kind::ALL.map(Strategy::of),
            line_rate,
        }
    }

    /// Returns the settings with `strategy` for `kind`.
    #[must_use]
    pub const fn with_strategy(mut self, kind: Kind, strategy: Strategy) -> Self {
        self.strategies[kind.index()] = strategy;
        self
    }
}

/// A record to be processed by the program, with the times of its processing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// The record; its kind and subject identify the queue.
    pub record: Signal,
    /// Thread that processes it.
    pub thread: usize,
    /// Time at which the thread took the record from its queue.
    pub started_at: Time,
    /// Time of the decision.
    pub decided_at: Time,
    /// Time from which the decision applies.
    pub installs_at: Time,
}

/// Reason why a record was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// There is no flow with this index, or the number of the NIC is too large.
    #[error("no flow or node has number {subject} (signal `{kind}`): join it, or number nodes below {max}",
        max = crate::steering::NODES_MAX)]
    UnknownSubject {
        /// Kind of the record.
        kind: Kind,
        /// Subject of the record.
        subject: u32,
    },
    /// A thread of the pool has reached its maximum number of queues.
    #[error("a thread has no queue for number {subject} (signal `{kind}`): use fewer flows, or more threads")]
    TooManyQueues {
        /// Kind of the record.
        kind: Kind,
        /// Subject of the record.
        subject: u32,
    },
}

/// Activity of a thread.
#[derive(Clone, Copy, Debug)]
enum Activity {
    /// The thread waits for a record.
    Idle,
    /// The thread takes a record at its next event.
    Starting,
    /// The thread is busy until its next event. `record` is the record for the program, unless it was merged or its
    /// flow was removed.
    Running { started_at: Time, record: Option<Signal> },
    /// The decision has been made, and its dispatch waits to be polled.
    Decided,
}

#[derive(Debug)]
struct Thread {
    activity: Activity,
    turns: Turns,
    busy: Duration,
}

/// Threads, their queues, and the flows that are steered to them.
#[derive(Debug)]
pub struct Pool {
    steering: Steering,
    times: PoolTimes,
    scale: MeterScale,
    threads: Vec<Thread>,
    /// The next event of each thread that starts or runs.
    events: BinaryHeap<Reverse<(Time, usize)>>,
    queues: Queues,
    /// Dispatches whose decisions are due, oldest first: at most one per thread.
    decided: VecDeque<Dispatch>,
    epoch: u32,
    now: Time,
    counters: PoolCounters,
}

impl Pool {
    /// Creates a pool whose threads all exist from now on.
    ///
    /// # Errors
    /// Returns an error if a number of threads is invalid.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let steering = Steering::new(config.sizes, config.steering)?;
        let threads = steering.threads();
        let thread = || Thread { activity: Activity::Idle, turns: Turns::default(), busy: Duration::ZERO };
        Ok(Self {
            steering,
            times: config.times,
            scale: MeterScale::new(config.line_rate, MeterWeight::Event),
            threads: (0..threads).map(|_| thread()).collect(),
            events: BinaryHeap::with_capacity(threads),
            queues: Queues::new(config.strategies, threads),
            decided: VecDeque::with_capacity(threads),
            epoch: 0,
            now: Time::ZERO,
            counters: PoolCounters::default(),
        })
    }

    /// See [`Steering::join`].
    pub fn join(&mut self, identity: u64) -> Option<u32> {
        self.steering.join(identity)
    }

    /// Removes a flow: its index becomes free, its queues are removed immediately together with their records, and no
    /// more dispatches for it are returned. A thread that was processing one of its records stays busy until it would
    /// have finished.
    pub fn forget(&mut self, flow: u32) {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.scope() == Scope::Flow) {
            let Some(thread) = self.steering.thread(flow, kind) else { continue };
            if let Some(removed) = self.queues.remove(flow, kind) {
                self.threads[thread].turns.remove(removed.position);
                self.counters.of_mut(kind).forgotten += u64::from(removed.signals);
            }
            self.forget_running(thread, flow, kind);
        }
        self.steering.leave(flow);
    }

    fn forget_running(&mut self, thread: usize, flow: u32, kind: Kind) {
        let is_of_flow = |record: &Signal| (record.subject, record.kind) == (flow, kind);
        let counters = self.counters.of_mut(kind);
        if let Activity::Running { record, .. } = &mut self.threads[thread].activity
            && let Some(running) = record.take_if(|record| is_of_flow(record))
        {
            counters.forgotten += u64::from(running.count);
        }
        if let Some(index) = self.decided.iter().position(|dispatch| is_of_flow(&dispatch.record)) {
            counters.forgotten += u64::from(self.decided[index].record.count);
            self.decided.remove(index);
            self.resume(thread, self.now);
        }
    }

    /// Queues `record` at time `now`, which must not decrease between calls.
    ///
    /// # Errors
    /// Returns an error if the record's subject is unknown.
    pub fn push(&mut self, now: Time, record: &Signal) -> Result<Pushed, Refused> {
        self.advance(now);
        let (kind, subject) = (record.kind, record.subject);
        let Some(thread) = self.steering.thread(subject, kind) else {
            self.counters.refused += 1;
            return Err(Refused::UnknownSubject { kind, subject });
        };
        let (position, pushed) = self.queues.push(thread, record);
        let counters = self.counters.of_mut(kind);
        counters.pushed += u64::from(record.count);
        counters.pushed_bytes += record.bytes;
        self.threads[thread].turns.insert(position);
        if matches!(self.threads[thread].activity, Activity::Idle) {
            self.threads[thread].activity = Activity::Starting;
            self.events.push(Reverse((self.now + self.times.trigger, thread)));
        }
        Ok(pushed)
    }

    /// Returns the time at which [`Pool::poll`] must be called next.
    pub fn next_at(&self) -> Option<Time> {
        let decided = self.decided.front().map(|dispatch| dispatch.decided_at);
        decided.or_else(|| self.events.peek().map(|Reverse((time, _))| *time))
    }

    /// Returns the next record whose decision is due by `now`. The driver runs the program on it, calls
    /// [`Pool::on_decision`], and applies the decision at [`Dispatch::installs_at`].
    pub fn poll(&mut self, now: Time) -> Option<Dispatch> {
        self.now = self.now.max(now);
        while self.decided.is_empty() && self.step() {}
        let dispatch = self.decided.pop_front()?;
        self.resume(dispatch.thread, self.now);
        Some(dispatch)
    }

    /// Records the rate that applies after the program has processed `dispatch`: [`Strategy::WhileStable`] merges
    /// records while rates are equal.
    pub fn on_decision(&mut self, dispatch: &Dispatch, rate: u32) {
        if let Some(convergence) = self.queues.convergence_mut(dispatch.record.subject, dispatch.record.kind) {
            convergence.on_decision(rate);
        }
    }

    /// Marks all rates as unstable, because every flow starts anew (SCR's "restart" when a flow arrives).
    pub const fn restart(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns the flows and their threads.
    pub const fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &PoolCounters {
        &self.counters
    }

    /// Returns the time during which each thread was busy, with the whole of the work in progress.
    pub fn busy(&self) -> impl Iterator<Item = Duration> + '_ {
        self.threads.iter().map(|thread| thread.busy)
    }

    /// Returns the number of records in queues.
    pub const fn waiting(&self) -> u32 {
        self.queues.waiting()
    }

    /// Returns the memory used by all queues and their records in bytes.
    pub fn memory(&self) -> usize {
        self.queues.memory()
    }

    /// Processes all events of threads up to `now`.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while self.step() {}
    }

    /// Processes the next event of a thread; returns `false` if none is due.
    fn step(&mut self) -> bool {
        let Some(Reverse((at, thread))) = self.events.peek().copied().filter(|Reverse((at, _))| *at <= self.now) else {
            return false;
        };
        self.events.pop();
        match self.threads[thread].activity {
            Activity::Running { started_at, record: Some(record) } => {
                self.threads[thread].activity = Activity::Decided;
                let installs_at = at + self.times.install;
                self.decided.push_back(Dispatch { record, thread, started_at, decided_at: at, installs_at });
            }
            Activity::Idle | Activity::Starting | Activity::Running { .. } | Activity::Decided => {
                self.start(thread, at);
            }
        }
        true
    }

    /// Continues a thread whose dispatch was polled at time `now`.
    fn resume(&mut self, thread: usize, now: Time) {
        let idle = self.threads[thread].turns.is_empty();
        self.threads[thread].activity = if idle { Activity::Idle } else { Activity::Starting };
        if !idle {
            self.events.push(Reverse((now, thread)));
        }
    }

    /// Takes the next record for a thread at time `at`.
    fn start(&mut self, thread: usize, at: Time) {
        let turns = &mut self.threads[thread].turns;
        let Some(taken) = turns.serve().and_then(|position| self.queues.take(thread, position)) else {
            self.threads[thread].activity = Activity::Idle;
            return;
        };
        if taken.is_empty {
            turns.remove(taken.position);
        }
        let taken_signals = taken.record;
        let counters = self.counters.of_mut(taken_signals.kind);
        counters.events += 1;
        counters.bytes = counters.bytes.saturating_add(taken_signals.bytes);
        let record = match self.queues.convergence_mut(taken_signals.subject, taken_signals.kind) {
            Some(convergence) => convergence.offer(&taken_signals, self.epoch, &self.scale),
            None => Some(taken_signals),
        };
        counters.folded += u64::from(record.is_none());
        let busy = if record.is_some() { self.times.work } else { self.times.fold };
        self.threads[thread].busy += busy;
        self.threads[thread].activity = Activity::Running { started_at: at, record };
        self.events.push(Reverse((at + busy, thread)));
    }
}

#[cfg(test)]
mod tests;
