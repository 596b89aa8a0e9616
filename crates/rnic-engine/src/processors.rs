//! Processors: threads beside the data path on which schedulers run, in simulated time or of the operating system.
//!
//! Source: SCR (NSDI'25), section 4.3 and appendix A.11, mechanisms S-3, S-10 to S-15 and S-28. Without processors, a
//! scheduler processes each event at once. With them, packets that are sent become records in coalescing queues, and
//! the scheduler runs when a thread has processed a record:
//!
//! * [`modelled`]: any number of threads as state in simulated time ([`rnic_scr::Pool`]); the owner of the engine runs
//!   the scheduler when the modelled thread is done, and its rate applies when it has been installed;
//! * [`threads`]: one or two real threads, which run the scheduler; its rate applies when the owner finds the decision.
//!
//! The scheduler is the same, and equal records and views give equal decisions in every place.

pub(crate) mod modelled;
pub(crate) mod record;
pub(crate) mod threads;

use rnic_base::{BitRate, Duration, Time};
use rnic_policy::{Configured, PolicyState, ScheduleActions, SchedulePolicy, ScheduleView};
use rnic_scr::{Dispatch, Kind, KindCounters, PoolConfig, Signal};

use crate::timer::{Deadline, Timers};
use modelled::Modelled;
use threads::{OnThreads, SchedulerThreads};

/// Entry of the processors in the timer heap, in place of the slot of a queue pair.
pub(crate) const PROCESSORS_TIMER_SLOT: u32 = u32::MAX - 2;

/// Place where schedulers that set rates run.
#[derive(Clone, Copy, Debug)]
pub enum ProcessorConfig {
    /// Threads in simulated time.
    Modelled(PoolConfig),
    /// Threads of the operating system.
    Threads(SchedulerThreads),
}

/// The processors of an engine.
#[derive(Debug)]
pub(crate) struct Processors {
    place: Place,
    /// Deadline of the entry in the timer heap.
    armed: Deadline,
}

#[derive(Debug)]
enum Place {
    Modelled(Box<Modelled>),
    Threads(Box<OnThreads>),
}

/// The result of a thread's work for one queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Processed {
    /// A record for which the caller has to run the scheduler.
    Record(Dispatch),
    /// The decision of the scheduler, which ran on the thread.
    Decision(ScheduleActions),
}

impl Processors {
    /// Creates processors. For modelled threads, all threads are created immediately.
    ///
    /// # Panics
    /// When a number of threads is invalid; drivers check it when they read their settings.
    pub(crate) fn new(config: &ProcessorConfig, line_rate: BitRate) -> Self {
        let place = match config {
            ProcessorConfig::Modelled(pool) => Place::Modelled(Box::new(Modelled::new(pool))),
            ProcessorConfig::Threads(threads) => Place::Threads(Box::new(OnThreads::new(*threads, line_rate))),
        };
        Self { place, armed: Deadline::NEVER }
    }

    /// Returns the time from a decision until its rate applies, if the caller runs the scheduler.
    pub(crate) fn install(&self) -> Option<Duration> {
        match &self.place {
            Place::Modelled(modelled) => Some(modelled.install()),
            Place::Threads(_) => None,
        }
    }

    /// Returns the counters of sent packets, of modelled threads.
    pub(crate) fn sent_counters(&self) -> Option<KindCounters> {
        match &self.place {
            Place::Modelled(modelled) => Some(*modelled.counters().of(Kind::Tx)),
            Place::Threads(_) => None,
        }
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
        match &mut self.place {
            Place::Modelled(modelled) => modelled.join(slot),
            Place::Threads(threads) => threads.join(slot, schedule, state, is_saturated),
        }
    }

    /// Removes `flow` and its queued records.
    pub(crate) fn forget(&mut self, flow: u32) {
        match &mut self.place {
            Place::Modelled(modelled) => modelled.forget(flow),
            Place::Threads(threads) => threads.forget(flow),
        }
    }

    /// Returns whether the threads run the schedulers themselves, with a view that is queued with each record.
    pub(crate) fn run_schedulers(&self) -> bool {
        matches!(self.place, Place::Threads(_))
    }

    /// Queues `record` of a flow; `view` is the current state, used if [`Self::run_schedulers`]. Returns false if its
    /// thread has too many flows.
    pub(crate) fn push(
        &mut self,
        now: Time,
        record: &Signal,
        view: Option<&ScheduleView>,
        timers: &mut Timers,
    ) -> bool {
        let is_queued = match &mut self.place {
            Place::Modelled(modelled) => {
                modelled.push(now, record);
                true
            }
            Place::Threads(threads) => view.is_some_and(|view| threads.push(record, view)),
        };
        self.arm(now, timers);
        is_queued
    }

    /// Returns the next result that is due, and the slot of its queue pair.
    pub(crate) fn poll(&mut self, now: Time) -> Option<(u32, Processed)> {
        match &mut self.place {
            Place::Modelled(modelled) => modelled.poll(now).map(|(slot, dispatch)| (slot, Processed::Record(dispatch))),
            Place::Threads(threads) => {
                threads.poll().map(|(slot, decision)| (slot, Processed::Decision(decision.answer.actions)))
            }
        }
    }

    /// Reports the rate that applies after the scheduler has run, in 2^-20 of the line rate.
    pub(crate) fn on_decision(&mut self, processed: &Processed, rate: u32) {
        if let (Place::Modelled(modelled), Processed::Record(dispatch)) = (&mut self.place, processed) {
            modelled.on_decision(dispatch, rate);
        }
    }

    /// Marks all rates as unstable, because every flow starts anew.
    pub(crate) fn restart(&mut self) {
        match &mut self.place {
            Place::Modelled(modelled) => modelled.restart(),
            Place::Threads(threads) => threads.restart(),
        }
    }

    /// Disarms `deadline`, which has expired in the timer heap, if it is the armed one; returns whether it was.
    pub(crate) fn remove_expired(&mut self, deadline: Deadline) -> bool {
        let is_own = self.armed == deadline;
        if is_own {
            self.armed = Deadline::NEVER;
        }
        is_own
    }

    /// Schedules the next event of a modelled thread, or the next poll of a real one with outstanding decisions.
    pub(crate) fn arm(&mut self, now: Time, timers: &mut Timers) {
        let next = match &self.place {
            Place::Modelled(modelled) => modelled.next_at(),
            Place::Threads(threads) => threads.are_owed().then(|| now + POLL_INTERVAL),
        };
        if let Some(next) = next {
            timers.arm(PROCESSORS_TIMER_SLOT, Deadline::at(next), &mut self.armed);
        }
    }
}

/// Time between two polls of real threads, while any decisions are outstanding.
const POLL_INTERVAL: Duration = Duration::from_us(5);
