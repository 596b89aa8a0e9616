//! Counts the payload that arrives at a host: per time slice, and per queue pair of a tenant.
//!
//! A packet's payload arrives during the transmission time of its frame, not at the instant of its last bit: it is
//! divided among the slices in which the frame occupied the host's link. So no slice counts more bytes than the link
//! carries in that time, however short the slice is. Duplicates, and packets that the engine discards, are not
//! counted.

use core::ops::Range;

use rnic_base::{BitRate, Duration, Time};
use rnic_wire::Qpn;

use crate::entry::LINK_OVERHEAD;

/// Counts received payload bytes.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Length of a slice, when the plan has slices; above zero.
    slice: Option<Duration>,
    rate: BitRate,
    /// Time at which the last counted packet was completely received. If a modelled NIC passes packets on faster than
    /// the link delivered them, they are counted at the link's rate.
    received_until: Time,
    /// Bytes of all queue pairs.
    slices: SliceBytes,
    /// Counters of queue pairs, in the order in which the queue pairs were opened. Counters remain when a queue pair is
    /// destroyed.
    counters: Vec<QueuePairCounter>,
    /// By queue pair number: index of its counter, plus 1; 0 for a queue pair that is not counted.
    counter_of: Vec<u32>,
    /// Number of bits of a flow's number that identify its queue pair.
    number_bits: u32,
    /// Payload bytes of all queue pairs, in the complete run.
    total: u64,
    /// Payload bytes by queue pair number, of all queue pairs that have had the number; when a recording needs them.
    totals: Option<Vec<u64>>,
    /// Queue pairs that have received useful packets since they were last taken; when a trace needs them.
    served: Option<Vec<Qpn>>,
}

/// Received bytes of one queue pair.
#[derive(Debug)]
pub(crate) struct QueuePairCounter {
    /// Time in which `payload` and `wire` are counted.
    measured: Range<Time>,
    /// Payload bytes received.
    pub(crate) payload: u64,
    /// Bytes of the frames with payload, with preamble and gap.
    pub(crate) wire: u64,
    slices: SliceBytes,
}

/// Number of bytes in each time slice.
#[derive(Debug, Default)]
struct SliceBytes(Vec<u64>);

impl SliceBytes {
    fn add(&mut self, slice: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.0.len() <= slice {
            self.0.resize(slice + 1, 0);
        }
        self.0[slice] += bytes;
    }

    fn get(&self, slice: usize) -> u64 {
        self.0.get(slice).copied().unwrap_or(0)
    }
}

impl QueuePairCounter {
    /// Returns the number of payload bytes received in slice `index`.
    pub(crate) fn bytes_in(&self, index: usize) -> u64 {
        self.slices.get(index)
    }
}

impl Meter {
    /// Creates a meter for slices of length `slice`, if there are any, on a link of `rate`.
    pub(crate) fn new(slice: Option<Duration>, rate: BitRate) -> Self {
        Self {
            slice,
            rate,
            received_until: Time::ZERO,
            slices: SliceBytes::default(),
            counters: Vec::new(),
            counter_of: Vec::new(),
            number_bits: u32::MAX,
            total: 0,
            totals: None,
            served: None,
        }
    }

    /// Counts what arrives for the flows of a queue pair as its own from now on; the numbers of queue pairs are
    /// multiples of `spacing`, a power of two.
    pub(crate) fn join_flows(&mut self, spacing: u32) {
        self.number_bits = !(spacing - 1);
    }

    /// Starts to count what arrives for queue pair `qpn`; totals include what arrives in `measured`. Returns the index
    /// of the counter.
    pub(crate) fn open(&mut self, qpn: Qpn, measured: Range<Time>) -> usize {
        let number = qpn.get() as usize;
        if self.counter_of.len() <= number {
            self.counter_of.resize(number + 1, 0);
        }
        self.counters.push(QueuePairCounter { measured, payload: 0, wire: 0, slices: SliceBytes::default() });
        self.counter_of[number] = self.counters.len() as u32;
        self.counters.len() - 1
    }

    /// Stops counting for a queue pair that is destroyed.
    pub(crate) fn close(&mut self, qpn: Qpn) {
        if let Some(counter) = self.counter_of.get_mut(qpn.get() as usize) {
            *counter = 0;
        }
    }

    /// Returns the counter with the index that [`Self::open`] returned.
    pub(crate) fn counter(&self, index: usize) -> &QueuePairCounter {
        &self.counters[index]
    }

    /// Starts to count the total of every queue pair, for [`Self::total_of`].
    pub(crate) fn count_queue_pairs(&mut self) {
        self.totals = Some(Vec::new());
    }

    /// Starts to list the queue pairs that receive useful packets, for [`Self::take_served`].
    pub(crate) fn list_served(&mut self) {
        self.served = Some(Vec::new());
    }

    /// Returns one of the queue pairs that have received useful packets since the last calls.
    pub(crate) fn take_served(&mut self) -> Option<Qpn> {
        self.served.as_mut()?.pop()
    }

    /// Returns the payload bytes that have arrived.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the payload bytes that have arrived for the queue pairs that have had the number `qpn`.
    pub(crate) fn total_of(&self, qpn: Qpn) -> u64 {
        self.totals.as_ref().and_then(|totals| totals.get(qpn.get() as usize)).copied().unwrap_or(0)
    }

    /// Counts a frame of `frame_len` bytes with `payload` useful bytes, received for queue pair `qpn` at `now`.
    pub(crate) fn note(&mut self, now: Time, frame_len: u64, payload: u64, qpn: Qpn) {
        if let Some(served) = &mut self.served {
            served.push(qpn);
        }
        if payload == 0 {
            return;
        }
        let number = (qpn.get() & self.number_bits) as usize;
        self.total += payload;
        if let Some(totals) = &mut self.totals {
            if totals.len() <= number {
                totals.resize(number + 1, 0);
            }
            totals[number] += payload;
        }
        let counter = self.counter_of.get(number).and_then(|index| (*index as usize).checked_sub(1));
        let mut counter = counter.map(|index| &mut self.counters[index]);
        let link_len = frame_len + LINK_OVERHEAD;
        if let Some(counter) = counter.as_mut().filter(|counter| counter.measured.contains(&now)) {
            counter.payload += payload;
            counter.wire += link_len;
        }
        let Some(slice) = self.slice else { return };
        let frame_time = self.rate.serialize(link_len);
        let start = (now - frame_time).max(self.received_until);
        let end = start + frame_time;
        self.received_until = end;
        let mut remaining = payload;
        let mut from = start;
        loop {
            let index = from.as_ps() / slice.as_ps();
            let boundary = Time::from_ps((index + 1).saturating_mul(slice.as_ps()));
            let share = if end <= boundary {
                remaining
            } else {
                let part =
                    u128::from(payload) * u128::from(boundary.since(from).as_ps()) / u128::from(frame_time.as_ps());
                (part as u64).min(remaining)
            };
            self.slices.add(index as usize, share);
            if let Some(counter) = &mut counter {
                counter.slices.add(index as usize, share);
            }
            remaining -= share;
            if end <= boundary {
                return;
            }
            from = boundary;
        }
    }

    /// Returns the number of payload bytes received in slice `index`.
    pub(crate) fn bytes_in(&self, index: usize) -> u64 {
        self.slices.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of 1000 bytes including link overhead, 900 of them payload, at one byte per nanosecond.
    fn note(meter: &mut Meter, at_ns: u64, qpn: u32) {
        meter.note(Time::from_ns(at_ns), 1_000 - LINK_OVERHEAD, 900, Qpn::new(qpn));
    }

    fn meter() -> Meter {
        Meter::new(Some(Duration::from_ns(400)), BitRate::gbps(8))
    }

    #[test]
    fn a_frame_is_counted_in_every_slice_that_it_occupies() {
        let mut meter = meter();
        note(&mut meter, 1_200, 2);
        assert_eq!([0, 1, 2, 3].map(|index| meter.bytes_in(index)), [180, 360, 360, 0]);
    }

    #[test]
    fn packets_passed_on_faster_than_the_link_are_counted_at_its_rate() {
        let mut meter = meter();
        (0..4).for_each(|_| note(&mut meter, 1_000, 2));
        let slices: Vec<u64> = (0..10).map(|index| meter.bytes_in(index)).collect();
        assert_eq!(slices.iter().sum::<u64>(), 3_600);
        assert!(slices.iter().all(|bytes| *bytes <= 360), "{slices:?}");
    }

    /// The totals of a queue pair include bytes that arrive in the measured time, its slices bytes that arrive at any
    /// time; and bytes for a reused queue pair number count only for the new queue pair.
    #[test]
    fn queue_pairs_are_counted_separately() {
        let mut meter = meter();
        let measured = Time::from_ns(1_500)..Time::from_ns(4_500);
        let [first, second] = [2, 3].map(|qpn| meter.open(Qpn::new(qpn), measured.clone()));
        note(&mut meter, 1_000, 2);
        note(&mut meter, 2_000, 2);
        note(&mut meter, 3_000, 3);
        note(&mut meter, 4_000, 9);
        meter.close(Qpn::new(2));
        note(&mut meter, 5_000, 2);
        let third = meter.open(Qpn::new(2), measured);
        note(&mut meter, 4_400, 2);
        let totals = [first, second, third].map(|index| (meter.counter(index).payload, meter.counter(index).wire));
        assert_eq!(totals, [(900, 1_000); 3]);
        let slices = |index: usize| (0..16).map(|slice| meter.counter(index).bytes_in(slice)).sum::<u64>();
        assert_eq!([first, second, third].map(slices), [1_800, 900, 900]);
        assert_eq!((0..16).map(|slice| meter.bytes_in(slice)).sum::<u64>(), 6 * 900);
    }
}
