//! Schedulers on one or two threads of the operating system, beside the one that drives the engine.
//!
//! Source: SCR (NSDI'25) sections 4.3.2 and 4.3.3, mechanisms S-12 to S-14. The thread of a queue pair has the state of
//! its scheduler and processes records of what the queue pair has sent; its decisions come back through a mailbox, and
//! only the owner of the engine puts rates into force.
//!
//! A scheduler decides by the record and by sums over all queue pairs ([`ScheduleView`]). The owner publishes the sums
//! with each record, and the thread reads the latest ones when it processes the record; the same
//! decisions can be made again from records and views alone, as tests do.
//!
//! A thread is started when the first queue pair joins whose scheduler sets rates. If the system provides none,
//! schedulers run at once, on the thread that drives the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rnic_base::BitRate;
use rnic_policy::{Configured, PolicyState, ScheduleActions, SchedulePolicy, ScheduleView};
use rnic_scr::thread::{Decision, Handler, Spawn, Threads};
use rnic_scr::{Kind, Pushed, Signal, Strategy};

use super::record::event_of;

/// Threads on which schedulers run.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerThreads {
    /// Number of threads: 1 or 2 ([`rnic_scr::thread::HOST_THREADS_MAX`]).
    pub count: usize,
    /// Function that starts a thread.
    pub spawn: Spawn,
}

/// Totals over all queue pairs, written by the engine's thread and read by the threads of the processors: a seqlock.
#[derive(Debug, Default)]
struct Sums {
    /// Odd while the values are being written.
    sequence: AtomicU32,
    words: [AtomicU64; SUMS],
}

/// Number of words of [`Sums`].
const SUMS: usize = 7;

impl Sums {
    fn publish(&self, view: &ScheduleView) {
        let sequence = self.sequence.load(Ordering::Relaxed).wrapping_add(1);
        self.sequence.store(sequence, Ordering::Relaxed);
        // The odd number must be visible before the words that it protects.
        fence(Ordering::Release);
        let words = [
            view.line_rate.as_bps(),
            view.capacity.as_bps(),
            u64::from(view.members) | u64::from(view.epoch) << 32,
            view.weights,
            view.allocated.as_bps(),
            view.saturated_weights,
            view.saturated_rates.as_bps(),
        ];
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(1), Ordering::Release);
    }

    fn read(&self) -> [u64; SUMS] {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let words = core::array::from_fn(|word| self.words[word].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return words;
            }
            core::hint::spin_loop();
        }
    }
}

/// Values of one queue pair, written by the engine's thread and read by the thread that runs its scheduler.
#[derive(Debug)]
struct Own {
    weight: AtomicU32,
    /// Time in picoseconds, at least 1, of the last record before which the queue pair has had to wait for its rate; 0
    /// for none. A thread that is late finds several records, and each of them needs to know.
    held_at: AtomicU64,
    /// Rate of congestion control in bits per second; [`NO_RATE`] for none.
    control_rate: AtomicU64,
    /// Number of the scheduler's rates that the engine has taken, modulo 2^32.
    taken: AtomicU32,
}

/// Value that means that congestion control sets no rate.
const NO_RATE: u64 = u64::MAX;

impl Own {
    fn publish(&self, view: &ScheduleView) {
        self.weight.store(view.weight, Ordering::Relaxed);
        self.control_rate.store(view.control_rate.map_or(NO_RATE, BitRate::as_bps), Ordering::Relaxed);
        if view.is_held {
            self.held_at.store(view.now.as_ps().max(1), Ordering::Relaxed);
        }
    }

    /// Returns whether the queue pair has had to wait for its rate at or after the begin of `record`.
    fn was_held(&self, record: &Signal) -> bool {
        let held_at = self.held_at.load(Ordering::Relaxed);
        held_at != 0 && held_at >= record.first.as_ps()
    }
}

/// A queue pair's scheduler, as passed to the thread that runs it.
#[derive(Debug)]
pub(crate) struct Program {
    schedule: Configured<SchedulePolicy>,
    state: PolicyState,
    own: Arc<Own>,
    is_saturated: bool,
    /// Number of rates that the scheduler has set, modulo 2^32.
    set: u32,
    /// Packets sent while the last rate was not in force yet.
    deferred: Option<Signal>,
}

/// A decision made by a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) actions: ScheduleActions,
    /// Record and view on which the decision was based, if it may have to be made again; `None` if none was made.
    #[cfg(test)]
    basis: Option<(Signal, ScheduleView)>,
}

/// The schedulers that one thread runs.
#[derive(Debug)]
struct Schedulers {
    sums: Arc<Sums>,
    programs: Vec<Option<Program>>,
}

impl Program {
    /// Returns `record` together with the packets that were sent while the last rate was not in force yet. A scheduler
    /// that judged them by the new rate would find that they use little of it, and several records that wait for a late
    /// thread would be several steps at once.
    fn with_deferred(&mut self, record: &Signal) -> Signal {
        match self.deferred.take() {
            Some(mut deferred) => {
                deferred.fold(record, Strategy::of(Kind::Tx).kept_value());
                deferred
            }
            None => *record,
        }
    }

    /// Returns the view for `record`.
    fn view(&self, sums: &Sums, record: &Signal) -> ScheduleView {
        let [line, capacity, counts, weights, allocated, saturated_weights, saturated_rates] = sums.read();
        let own = &self.own;
        let control_rate = own.control_rate.load(Ordering::Relaxed);
        ScheduleView {
            now: record.last,
            line_rate: BitRate::bps(line),
            capacity: BitRate::bps(capacity),
            members: counts as u32,
            weight: own.weight.load(Ordering::Relaxed),
            weights,
            allocated: BitRate::bps(allocated),
            saturated_weights,
            saturated_rates: BitRate::bps(saturated_rates),
            is_saturated: self.is_saturated,
            epoch: (counts >> 32) as u32,
            is_held: own.was_held(record),
            control_rate: (control_rate != NO_RATE).then(|| BitRate::bps(control_rate)),
        }
    }
}

impl Handler for Schedulers {
    type Answer = Answer;
    type Flow = Program;

    fn join(&mut self, flow: u32, program: Program) {
        let index = flow as usize;
        if self.programs.len() <= index {
            self.programs.resize_with(index + 1, || None);
        }
        self.programs[index] = Some(program);
    }

    fn handle(&mut self, record: &Signal) -> Answer {
        let index = record.subject as usize;
        let program = self.programs.get_mut(index).and_then(Option::as_mut).expect("a flow joins before its records");
        let record = program.with_deferred(record);
        if program.own.taken.load(Ordering::Acquire) != program.set {
            program.deferred = Some(record);
            return Answer {
                actions: ScheduleActions::default(),
                #[cfg(test)]
                basis: None,
            };
        }
        let view = program.view(&self.sums, &record);
        let schedule = &program.schedule;
        let actions = (schedule.policy.on_event)(&mut program.state, &event_of(&record), &view, &schedule.params);
        program.is_saturated = actions.is_saturated.unwrap_or(program.is_saturated);
        program.set = program.set.wrapping_add(u32::from(actions.dequeue_rate.is_some()));
        Answer {
            actions,
            #[cfg(test)]
            basis: Some((record, view)),
        }
    }

    fn rate(_: &Answer) -> u32 {
        // Records are accumulated, whether the rate is stable or not.
        0
    }

    fn forget(&mut self, flow: u32) {
        if let Some(program) = self.programs.get_mut(flow as usize) {
            *program = None;
        }
    }
}

/// State of a queue pair at the thread that runs its engine.
#[derive(Debug)]
struct Joined {
    slot: u32,
    own: Arc<Own>,
    /// Number of records without a decision yet.
    owed: u64,
}

/// The engine's side of the threads.
#[derive(Debug)]
pub(crate) struct OnThreads {
    config: SchedulerThreads,
    line_rate: BitRate,
    /// None before the first queue pair joins, and when the system provides no threads.
    threads: Option<Threads<Schedulers>>,
    has_failed: bool,
    sums: Arc<Sums>,
    flows: Vec<Option<Joined>>,
    /// Number of records without a decision yet, of all queue pairs.
    owed: u64,
}

impl OnThreads {
    /// Prepares threads for a link of `line_rate`.
    pub(crate) fn new(config: SchedulerThreads, line_rate: BitRate) -> Self {
        let (threads, sums) = (None, Arc::default());
        Self { config, line_rate, threads, has_failed: false, sums, flows: Vec::new(), owed: 0 }
    }

    /// Returns whether decisions are expected.
    pub(crate) fn are_owed(&self) -> bool {
        self.owed > 0
    }

    /// Adds the queue pair in `slot`, whose scheduler has the state `state`; returns its flow number, or `None` if its
    /// scheduler must be run immediately.
    pub(crate) fn join(
        &mut self,
        slot: u32,
        schedule: &Configured<SchedulePolicy>,
        state: PolicyState,
        is_saturated: bool,
    ) -> Option<u32> {
        self.ensure_started();
        let threads = self.threads.as_mut()?;
        let own = Arc::new(Own {
            weight: AtomicU32::new(1),
            held_at: AtomicU64::new(0),
            taken: AtomicU32::new(0),
            control_rate: AtomicU64::new(NO_RATE),
        });
        let program =
            Program { schedule: *schedule, state, own: Arc::clone(&own), is_saturated, set: 0, deferred: None };
        let flow = threads.join(u64::from(slot), program)?;
        let index = flow as usize;
        if self.flows.len() <= index {
            self.flows.resize_with(index + 1, || None);
        }
        self.flows[index] = Some(Joined { slot, own, owed: 0 });
        Some(flow)
    }

    fn ensure_started(&mut self) {
        if self.threads.is_some() || self.has_failed {
            return;
        }
        let schedulers = || Schedulers { sums: Arc::clone(&self.sums), programs: Vec::new() };
        let handlers = (0..self.config.count).map(|_| schedulers()).collect();
        let started = Threads::start(handlers, Kind::ALL.map(Strategy::of), self.line_rate, self.config.spawn);
        // The driver's function for starting threads has reported the failure.
        self.has_failed = started.is_err();
        self.threads = started.ok();
    }

    /// Removes `flow` and its queued records.
    pub(crate) fn forget(&mut self, flow: u32) {
        let joined = self.flows.get_mut(flow as usize).and_then(Option::take);
        self.owed -= joined.map_or(0, |joined| joined.owed);
        if let Some(threads) = &mut self.threads {
            threads.forget(flow);
        }
    }

    /// Queues `record` of a flow; `view` is the current state. Returns false if its thread has too many flows.
    pub(crate) fn push(&mut self, record: &Signal, view: &ScheduleView) -> bool {
        let joined = self.flows.get_mut(record.subject as usize).and_then(Option::as_mut);
        let (Some(joined), Some(threads)) = (joined, &mut self.threads) else { return false };
        self.sums.publish(view);
        joined.own.publish(view);
        let Ok(pushed) = threads.push(record) else { return false };
        let is_new = u64::from(pushed == Pushed::Appended);
        joined.owed += is_new;
        self.owed += is_new;
        true
    }

    /// Returns the next decision made by a thread, and the slot of its queue pair.
    pub(crate) fn poll(&mut self) -> Option<(u32, Decision<Answer>)> {
        let decision = self.threads.as_mut()?.poll()?;
        let joined = self.flows.get_mut(decision.record.subject as usize).and_then(Option::as_mut)?;
        joined.owed -= 1;
        self.owed -= 1;
        if decision.answer.actions.dequeue_rate.is_some() {
            joined.own.taken.fetch_add(1, Ordering::Release);
        }
        Some((joined.slot, decision))
    }

    /// See [`Threads::restart`].
    pub(crate) fn restart(&mut self) {
        if let Some(threads) = &mut self.threads {
            threads.restart();
        }
    }
}

#[cfg(test)]
mod tests;
