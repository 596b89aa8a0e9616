//! The bus between a NIC and its host's memory.
//!
//! Reads complete in order, a latency after the request, at the rate of the bus; a limited number may be in flight at
//! the same time. Writes are posted: a write waits only for the bytes written before it. Both are divided into
//! transactions of at most 256 bytes, the usual maximum of hosts, each with a header of six double words: framing,
//! sequence number, transaction header of 12 or 16 bytes, checksum (PCI Express 3.0; 5 to 7 double words). Flow control
//! packets are not modelled.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use crate::plan::{BusPlan, SlowHostPlan};

/// One bus, with both directions.
#[derive(Debug)]
pub(crate) struct Bus {
    plan: BusPlan,
    /// Completion times of the reads in flight, in order.
    reads: VecDeque<Time>,
    answered: Time,
    written: Time,
    /// Intervals in which memory accepts writes at a lower rate than that of the bus.
    pub(super) slow: Option<SlowHostPlan>,
}

impl Bus {
    pub(crate) fn new(plan: &BusPlan) -> Self {
        Self { plan: *plan, reads: VecDeque::new(), answered: Time::ZERO, written: Time::ZERO, slow: None }
    }

    /// Requests `bytes` at `now`; returns the time at which all of them have been read. Calls must be in order of time.
    pub(crate) fn read(&mut self, now: Time, bytes: u64) -> Time {
        while self.reads.front().is_some_and(|answered| *answered <= now) {
            self.reads.pop_front();
        }
        // When the largest number of reads is in flight, this read is requested when the read that many positions
        // before it has completed.
        let before = self.reads.len().checked_sub(self.plan.reads as usize);
        let asked = before.map_or(now, |index| self.reads[index]);
        self.answered = self.answered.max(asked + self.plan.latency) + self.time_of(bytes);
        self.reads.push_back(self.answered);
        self.answered
    }

    /// Sends `bytes` to memory, after the bytes that are being written.
    pub(crate) fn write(&mut self, now: Time, bytes: u64) {
        let slow = self.slow.as_ref().and_then(|slow| slow.rate(now));
        let time = self.time_of(bytes).max(slow.map_or(Duration::ZERO, |rate| rate.serialize(bytes)));
        self.written = self.written.max(now) + time;
    }

    /// Returns the time at which all bytes are written.
    pub(crate) fn written(&self) -> Time {
        self.written
    }

    fn time_of(&self, bytes: u64) -> Duration {
        self.plan.rate.serialize(bytes + bytes.div_ceil(TRANSACTION_BYTES) * HEADER_BYTES)
    }
}

const TRANSACTION_BYTES: u64 = 256;
const HEADER_BYTES: u64 = 24;
