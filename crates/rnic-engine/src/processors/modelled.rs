//! Threads in simulated time, as state.

use rnic_base::{Duration, Time};
use rnic_scr::{Dispatch, Pool, PoolConfig, PoolCounters, Signal};

/// Modelled threads, and the queue pairs of their flows.
#[derive(Debug)]
pub(crate) struct Modelled {
    pool: Pool,
    /// Slot of the queue pair of each flow.
    slots: Vec<u32>,
    install: Duration,
}

impl Modelled {
    /// Creates all threads.
    ///
    /// # Panics
    /// When a number of threads is invalid; drivers check it when they read their settings.
    pub(crate) fn new(config: &PoolConfig) -> Self {
        let pool = Pool::new(config).expect("the driver has checked the numbers of threads");
        Self { pool, slots: Vec::new(), install: config.times.install }
    }

    /// Returns the time from a decision until its rate applies.
    pub(crate) fn install(&self) -> Duration {
        self.install
    }

    /// Returns the counters of the threads.
    pub(crate) fn counters(&self) -> &PoolCounters {
        self.pool.counters()
    }

    /// Adds the queue pair in `slot` to the modelled processors; returns its flow number, or `None` if there are too
    /// many flows.
    pub(crate) fn join(&mut self, slot: u32) -> Option<u32> {
        let flow = self.pool.join(u64::from(slot))?;
        if self.slots.len() <= flow as usize {
            self.slots.resize(flow as usize + 1, 0);
        }
        self.slots[flow as usize] = slot;
        Some(flow)
    }

    /// Removes `flow` and its queued records.
    pub(crate) fn forget(&mut self, flow: u32) {
        self.pool.forget(flow);
    }

    /// Queues `record` of a flow.
    pub(crate) fn push(&mut self, now: Time, record: &Signal) {
        self.pool.push(now, record).expect("the flow has joined");
    }

    /// Returns the next record whose decision is due, and the slot of its queue pair.
    pub(crate) fn poll(&mut self, now: Time) -> Option<(u32, Dispatch)> {
        let dispatch = self.pool.poll(now)?;
        Some((self.slots[dispatch.record.subject as usize], dispatch))
    }

    /// Reports the rate that applies after the scheduler has processed `dispatch`, in 2^-20 of the line rate.
    pub(crate) fn on_decision(&mut self, dispatch: &Dispatch, rate: u32) {
        self.pool.on_decision(dispatch, rate);
    }

    /// Marks all rates as unstable, because every flow starts anew.
    pub(crate) fn restart(&mut self) {
        self.pool.restart();
    }

    /// Returns the time of the next event of a thread.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.pool.next_at()
    }
}
