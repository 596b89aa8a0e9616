//! The bus between a NIC and its host's memory.
//!
//! Reads complete in order, one latency after the request, at the rate of the bus; their number in flight is limited.
//! Writes are posted: a write waits only for the bytes written before it. Both are divided into transactions of at
//! most 256 bytes, the usual maximum on hosts, each with a header of six double words: framing, sequence number,
//! transaction header of 12 or 16 bytes, checksum (PCI Express 3.0; 5 to 7 double words). Flow control packets are
//! not modelled.

use core::ops::Range;
use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use crate::plan::{BusPlan, SlowHostPlan};

/// One bus, with both directions.
#[derive(Debug)]
pub(crate) struct Bus {
    plan: BusPlan,
    /// Completion times of the reads in flight, in order.
    reads: VecDeque<Time>,
    last_read_end: Time,
    written: Time,
    /// Intervals in which memory accepts writes at a lower rate than that of the bus.
    pub(super) slow: Option<SlowHostPlan>,
    /// Bytes read and written since the utilisation was last measured.
    carried: [u64; 2],
    utilisation: Utilisation,
    /// Time in which `counts` are counted; empty by default.
    pub(super) measured: Range<Time>,
    counts: BusCounts,
}

/// Traffic of a bus in the measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BusCounts {
    /// Bytes read from the host's memory, with the headers of transactions.
    pub(crate) read: u64,
    /// Bytes written to it, with the same headers.
    pub(crate) written: u64,
    /// Payload bytes of packets read from it.
    pub(crate) payload_read: u64,
    /// Reads of the payload of a packet.
    pub(crate) payload_reads: u64,
}

impl Bus {
    pub(crate) fn new(plan: &BusPlan) -> Self {
        Self {
            plan: *plan,
            reads: VecDeque::new(),
            last_read_end: Time::ZERO,
            written: Time::ZERO,
            slow: None,
            carried: [0; 2],
            utilisation: Utilisation::default(),
            measured: Time::ZERO..Time::ZERO,
            counts: BusCounts::default(),
        }
    }

    /// Requests the payload of a packet, as [`Self::read`] does.
    pub(crate) fn read_payload(&mut self, now: Time, bytes: u64) -> Time {
        if self.measured.contains(&now) {
            self.counts.payload_read += bytes;
            self.counts.payload_reads += 1;
        }
        self.read(now, bytes)
    }

    /// Returns the traffic in the measured time.
    pub(crate) fn counts(&self) -> BusCounts {
        self.counts
    }

    /// Requests `bytes` at `now`; returns the time at which all these bytes have been read. Calls must be in order of
    /// time.
    pub(crate) fn read(&mut self, now: Time, bytes: u64) -> Time {
        while self.reads.front().is_some_and(|read_end| *read_end <= now) {
            self.reads.pop_front();
        }
        if self.measured.contains(&now) {
            self.counts.read += carried(bytes);
        }
        self.carried[0] += carried(bytes);
        // When the maximum number of reads, n, is in flight, this read is requested when the n-th read before it has
        // completed.
        let nth_before = self.reads.len().checked_sub(self.plan.reads as usize);
        let requested = nth_before.map_or(now, |index| self.reads[index]);
        self.last_read_end = self.last_read_end.max(requested + self.plan.latency) + self.transfer_time(bytes);
        self.reads.push_back(self.last_read_end);
        self.last_read_end
    }

    /// Writes `bytes` to memory, after the bytes that are already being written.
    pub(crate) fn write(&mut self, now: Time, bytes: u64) {
        if self.measured.contains(&now) {
            self.counts.written += carried(bytes);
        }
        self.carried[1] += carried(bytes);
        let slow = self.slow.as_ref().and_then(|slow| slow.rate(now));
        let time = self.transfer_time(bytes).max(slow.map_or(Duration::ZERO, |rate| rate.serialize(bytes)));
        self.written = self.written.max(now) + time;
    }

    /// Returns the latency of a read from memory that is requested now.
    pub(crate) fn latency(&self, now: Time) -> Duration {
        self.last_read_end.max(now + self.plan.latency).since(now)
    }

    /// Returns the share of the bus's rate that the busier direction uses ([`Utilisation::share`]).
    pub(crate) fn utilisation(&mut self, now: Time) -> u16 {
        if self.utilisation.is_due(now) {
            let [read, written] = std::mem::take(&mut self.carried);
            self.utilisation.add(self.plan.rate.serialize(read.max(written)));
        }
        self.utilisation.share(now)
    }

    /// Returns the time at which all bytes are written.
    pub(crate) fn written(&self) -> Time {
        self.written
    }

    fn transfer_time(&self, bytes: u64) -> Duration {
        self.plan.rate.serialize(carried(bytes))
    }
}

/// Utilisation of a part of the NIC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utilisation {
    /// Start of the interval that is measured, and the busy time in it.
    since: Time,
    busy: Duration,
    /// Share in the interval before.
    share: u16,
}

impl Utilisation {
    /// Adds a time in which the part is busy.
    #[inline]
    pub(crate) fn add(&mut self, busy: Duration) {
        self.busy += busy;
    }

    /// Returns whether the interval is over.
    fn is_due(&self, now: Time) -> bool {
        now.since(self.since) >= UTILISATION_INTERVAL
    }

    /// Returns the share in the last interval of at least [`UTILISATION_INTERVAL`], as a fraction of 2^16.
    pub(crate) fn share(&mut self, now: Time) -> u16 {
        if self.is_due(now) {
            let elapsed = now.since(self.since);
            let share = (u128::from(self.busy.as_ps()) << 16) / u128::from(elapsed.as_ps());
            *self = Self { since: now, busy: Duration::ZERO, share: u16::try_from(share).unwrap_or(u16::MAX) };
        }
        self.share
    }
}

/// Returns the number of bytes that `bytes` take on the bus, with the headers of their transactions.
fn carried(bytes: u64) -> u64 {
    bytes + bytes.div_ceil(TRANSACTION_BYTES) * HEADER_BYTES
}

/// Shortest interval in which the utilisation is measured.
const UTILISATION_INTERVAL: Duration = Duration::from_us(10);

const TRANSACTION_BYTES: u64 = 256;
const HEADER_BYTES: u64 = 24;
