//! Processors: threads beside the data path on which schedulers run, in simulated time.
//!
//! Source: SCR (NSDI'25), section 4.3 and appendix A.11, mechanisms S-3, S-10 to S-15 and S-28. Without processors, a
//! scheduler processes each event at once. With them, packets that are sent become records in the coalescing queues of
//! a [`rnic_scr::Pool`]; the scheduler runs when a thread has processed a record, and its rate applies when it has been
//! installed. The scheduler is the same, and equal records give equal decisions in both places.

use rnic_base::{Duration, Time};
use rnic_policy::Served;
use rnic_scr::{Dispatch, Kind, Pool, PoolConfig, PoolCounters, Signal};

use crate::limiter::OVERHEAD_BYTES;
use crate::timer::{Deadline, Timers};

/// Entry of the processors in the timer heap, in place of the slot of a queue pair.
pub(crate) const PROCESSORS_TIMER_SLOT: u32 = u32::MAX - 2;

/// The processors of an engine.
#[derive(Debug)]
pub(crate) struct Processors {
    pool: Pool,
    /// Slot of the queue pair of each flow.
    slots: Vec<u32>,
    install: Duration,
    /// Deadline of the entry in the timer heap.
    armed: Deadline,
}

impl Processors {
    /// Creates processors whose threads all exist from now on.
    ///
    /// # Panics
    /// When a number of threads is not valid; drivers check it when they read their settings.
    pub(crate) fn new(config: &PoolConfig) -> Self {
        let pool = Pool::new(config).expect("the driver has checked the numbers of threads");
        Self { pool, slots: Vec::new(), install: config.times.install, armed: Deadline::NEVER }
    }

    /// Returns the time from a decision until its rate applies.
    pub(crate) fn install(&self) -> Duration {
        self.install
    }

    /// Returns the counters of the threads.
    pub(crate) fn counters(&self) -> &PoolCounters {
        self.pool.counters()
    }

    /// Adds the queue pair in `slot`; returns the number of its flow, or `None` when there are too many flows.
    pub(crate) fn join(&mut self, slot: u32) -> Option<u32> {
        let flow = self.pool.join(u64::from(slot))?;
        if self.slots.len() <= flow as usize {
            self.slots.resize(flow as usize + 1, 0);
        }
        self.slots[flow as usize] = slot;
        Some(flow)
    }

    /// Removes `flow` and its records.
    pub(crate) fn forget(&mut self, flow: u32) {
        self.pool.forget(flow);
    }

    /// Queues the record of a packet with `wire_bytes` that `flow` has sent.
    pub(crate) fn push_sent(&mut self, now: Time, flow: u32, wire_bytes: u64, timers: &mut Timers) {
        let pushed = self.pool.push(now, &Signal::new(Kind::Tx, flow, now).with_bytes(wire_bytes));
        pushed.expect("the flow has joined");
        self.arm(timers);
    }

    /// Returns the next record whose decision is due, and the slot of its queue pair.
    pub(crate) fn poll(&mut self, now: Time) -> Option<(u32, Dispatch)> {
        let dispatch = self.pool.poll(now)?;
        Some((self.slots[dispatch.record.subject as usize], dispatch))
    }

    /// Reports the rate, in 2^-20 of the line's, that is in force after the scheduler has processed `dispatch`.
    pub(crate) fn decided(&mut self, dispatch: &Dispatch, rate: u32) {
        self.pool.decided(dispatch, rate);
    }

    /// Declares all rates unstable, because every flow begins anew.
    pub(crate) fn restart(&mut self) {
        self.pool.restart();
    }

    /// Returns whether `deadline`, which has expired in the timer heap, is the current one.
    pub(crate) fn remove_expired(&mut self, deadline: Deadline) -> bool {
        let is_own = self.armed == deadline;
        if is_own {
            self.armed = Deadline::NEVER;
        }
        is_own
    }

    /// Schedules the next event of a thread.
    pub(crate) fn arm(&mut self, timers: &mut Timers) {
        if let Some(next) = self.pool.next_at() {
            timers.arm(PROCESSORS_TIMER_SLOT, Deadline::at(next), &mut self.armed);
        }
    }
}

/// Returns the packets of a record as a scheduler's event.
pub(crate) fn served_of(record: &Signal) -> Served {
    let packets = u64::from(record.count);
    let bytes = record.bytes.saturating_sub(packets * OVERHEAD_BYTES);
    Served { bytes, wire_bytes: record.bytes, packets, last_at: record.last }
}
