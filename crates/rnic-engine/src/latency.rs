//! Times of send requests from their post to their completion, for traces and monitoring only: no decision depends on
//! them.
//!
//! Source: Falcon (SIGCOMM'25), D1: "Multiple HW/SW timestamps decompose latency across the host, NIC, and network
//! fabric". A request is *posted* by its program, *admitted* when only the window or the pacing of its queue pair holds
//! it back (before that: requests before it, credit, fences, with Falcon the resources of the NIC), *sent* with its
//! first packet, and *completed*. When its last packet arrives at the remote NIC, and when that answers, only a driver
//! with access to both ends knows.
//!
//! The times are beside the send queues, in rings of the same size, and exist only while the driver collects them
//! ([`crate::Latencies`]); each call here is behind one test.

use rnic_base::{Duration, Seq, Time};
use rnic_wire::Qpn;

use crate::PeerId;
use crate::completion::{WcOpcode, WcStatus};

/// Times of a completed send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationTimes {
    /// Number of the request, chosen by the program.
    pub wr_id: u64,
    /// Queue pair of the request.
    pub qpn: Qpn,
    /// Peer of the queue pair; [`PeerId::NONE`] for services without a fixed peer.
    pub peer: PeerId,
    /// Number of the remote queue pair.
    pub dest_qpn: Qpn,
    /// Type of the operation.
    pub opcode: WcOpcode,
    /// Result.
    pub status: WcStatus,
    /// Bytes of the message.
    pub bytes: u32,
    /// Sequence number of its first packet, and that after its last; with Falcon, of its transactions.
    pub numbers: [Seq; 2],
    /// Time at which the program posted it.
    pub posted: Time,
    /// Time from which only the window or the pacing of the queue pair held it back.
    pub admitted: Time,
    /// Time at which its first packet was passed on for sending; that of its completion if none was.
    pub sent: Time,
    /// Time of its completion.
    pub completed: Time,
}

/// Sums over the completed requests of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LatencyTotals {
    /// Requests that have completed successfully.
    pub operations: u64,
    /// Time from post to admission, in nanoseconds.
    pub admission_ns: u64,
    /// Time from admission to the first packet, in nanoseconds.
    pub window_ns: u64,
    /// Time from the first packet to completion, in nanoseconds: wire, remote NIC and acknowledgement.
    pub network_ns: u64,
}

impl LatencyTotals {
    /// Returns the sums with those of another queue pair.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            admission_ns: self.admission_ns + other.admission_ns,
            window_ns: self.window_ns + other.window_ns,
            network_ns: self.network_ns + other.network_ns,
        }
    }

    fn add(&mut self, times: &OperationTimes) {
        let ns = |from: Time, until: Time| until.since(from).as_ps() / Duration::from_ns(1).as_ps();
        self.operations += 1;
        self.admission_ns += ns(times.posted, times.admitted);
        self.window_ns += ns(times.admitted, times.sent);
        self.network_ns += ns(times.sent, times.completed);
    }
}

/// The completed requests of an engine, those of destroyed queue pairs included, by their time from post to completion.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LatencyHistogram {
    /// Requests by [`LatencyHistogram::bound`]: above the one before and at most this one; the last entry has those
    /// above all bounds.
    pub counts: [u64; Self::BOUNDS + 1],
    /// Sum of all times, in nanoseconds.
    pub sum_ns: u64,
}

impl LatencyHistogram {
    /// Number of bounds: from a microsecond to 4.2 s.
    pub const BOUNDS: usize = 23;

    /// Returns a bound: 2^`index` microseconds.
    pub const fn bound(index: usize) -> Duration {
        Duration::from_us(1 << index)
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let index = (0..Self::BOUNDS).find(|index| time <= Self::bound(*index)).unwrap_or(Self::BOUNDS);
        self.counts[index] += 1;
        self.sum_ns = self.sum_ns.saturating_add(time.as_ps() / Duration::from_ns(1).as_ps());
    }
}

/// Times of a request that has not completed.
#[derive(Clone, Copy, Debug)]
struct Marks {
    posted: Time,
    /// [`NOT_YET`] before.
    admitted: Time,
    /// [`NOT_YET`] before.
    sent: Time,
    first: Seq,
}

impl Marks {
    const NONE: Self = Self { posted: NOT_YET, admitted: NOT_YET, sent: NOT_YET, first: Seq::UNSET };
}

/// Later than any real time.
const NOT_YET: Time = Time::from_ps(u64::MAX);

/// Times of the requests of one queue pair.
#[derive(Debug, Default)]
struct OfQueuePair {
    /// By position in the send queue; their number is a power of two.
    ring: Box<[Marks]>,
    totals: LatencyTotals,
}

/// Times of the requests of all queue pairs.
#[derive(Debug)]
pub(crate) struct OperationTimers {
    /// Time of posts, as the driver has announced it.
    pub(crate) clock: Time,
    /// By slot of the queue pair.
    slots: Vec<OfQueuePair>,
    /// All requests that have completed successfully.
    pub(crate) histogram: LatencyHistogram,
    /// Completed requests that the driver has not taken.
    pub(crate) done: Vec<OperationTimes>,
    /// Most that are kept.
    records_max: usize,
    /// Requests that were not kept, because there were too many.
    pub(crate) lost: u64,
}

impl OperationTimers {
    pub(crate) fn new(records_max: usize) -> Self {
        let (slots, histogram) = (Vec::new(), LatencyHistogram::default());
        Self { clock: Time::ZERO, slots, histogram, done: Vec::new(), records_max, lost: 0 }
    }

    /// Forgets the times of `slot`, where a queue pair is created or restarted.
    pub(crate) fn start(&mut self, slot: u32) {
        if let Some(of) = self.slots.get_mut(slot as usize) {
            *of = OfQueuePair::default();
        }
    }

    /// Returns the sums of the queue pair in `slot`.
    pub(crate) fn totals(&self, slot: u32) -> LatencyTotals {
        self.slots.get(slot as usize).map_or_else(LatencyTotals::default, |of| of.totals)
    }

    /// Records that entry `counter` of a send queue of `capacity` entries is posted.
    pub(crate) fn posted(&mut self, slot: u32, counter: u32, capacity: u32, now: Time) {
        let slot = slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, OfQueuePair::default);
        }
        let of = &mut self.slots[slot];
        if of.ring.is_empty() {
            of.ring = vec![Marks::NONE; capacity.next_power_of_two() as usize].into_boxed_slice();
        }
        let posted = self.clock.max(now);
        *of.at(counter) = Marks { posted, ..Marks::NONE };
    }

    fn marks(&mut self, slot: u32, counter: u32) -> Option<&mut Marks> {
        let of = self.slots.get_mut(slot as usize).filter(|of| !of.ring.is_empty())?;
        Some(of.at(counter)).filter(|marks| marks.posted != NOT_YET)
    }

    /// Records that only the window or the pacing holds entry `counter` back, or that it was submitted to the
    /// transaction layer.
    #[cold]
    pub(crate) fn admitted(&mut self, slot: u32, counter: u32, now: Time) {
        if let Some(marks) = self.marks(slot, counter)
            && marks.admitted == NOT_YET
        {
            marks.admitted = now.max(marks.posted);
        }
    }

    /// Records the sequence number of the first packet of entry `counter`.
    #[cold]
    pub(crate) fn numbered(&mut self, slot: u32, counter: u32, first: Seq) {
        if let Some(marks) = self.marks(slot, counter) {
            marks.first = first;
        }
    }

    /// Records that a packet of entry `counter` is sent.
    #[cold]
    pub(crate) fn sent(&mut self, slot: u32, counter: u32, now: Time) {
        if let Some(marks) = self.marks(slot, counter)
            && marks.sent == NOT_YET
        {
            marks.sent = now.max(marks.posted);
            marks.admitted = marks.admitted.min(marks.sent);
        }
    }

    /// Records that entry `counter`, of `packets` sequence numbers, has completed at `now`; the times of `of` are not
    /// known yet.
    #[cold]
    pub(crate) fn completed(&mut self, slot: u32, counter: u32, packets: u32, of: &OperationTimes, now: Time) {
        let Some(marks) = self.marks(slot, counter) else { return };
        let Marks { posted, admitted, sent, first } = core::mem::replace(marks, Marks::NONE);
        // A program may post at a later time than that of the last input, by which a request is flushed.
        let completed = now.max(posted);
        let sent = sent.min(completed);
        let (numbers, admitted) = ([first, first + u64::from(packets)], admitted.min(sent));
        let times = OperationTimes { numbers, posted, admitted, sent, completed, ..*of };
        if times.status == WcStatus::Success {
            self.slots[slot as usize].totals.add(&times);
            self.histogram.add(times.completed.since(times.posted));
        }
        if self.done.len() < self.records_max {
            self.done.push(times);
        } else {
            self.lost += u64::from(self.records_max > 0);
        }
    }
}

impl OfQueuePair {
    fn at(&mut self, counter: u32) -> &mut Marks {
        let index = counter as usize & (self.ring.len() - 1);
        &mut self.ring[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_below_the_next_power_of_two() {
        let mut histogram = LatencyHistogram::default();
        let us = Duration::from_us;
        for time in
            [Duration::ZERO, us(1), Duration::from_ns(1_001), us(2), us(4_194_304), us(4_194_305), Duration::MAX]
        {
            histogram.add(time);
        }
        let mut expected = [0; LatencyHistogram::BOUNDS + 1];
        (expected[0], expected[1], expected[22], expected[23]) = (2, 2, 1, 2);
        assert_eq!(histogram.counts, expected);
    }
}
