//! Counts the payload that arrives at a host per time slice.
//!
//! A packet's payload arrives during the transmission time of its frame, not at the instant of its last bit: it is
//! divided among the slices in which the frame occupied the host's link. So no slice counts more than the link carries
//! in it, however short the slice is. Duplicates, and packets that the engine does not use, are not counted.

use rnic_base::{BitRate, Duration, Time};

use crate::entry::LINK_OVERHEAD;

/// Received payload bytes per time slice.
#[derive(Debug)]
pub(crate) struct Meter {
    slice: Duration,
    rate: BitRate,
    /// Time at which the last counted packet was completely received: packets that a modelled NIC passes on faster than
    /// its link received them are counted at the link's rate.
    free: Time,
    bytes: Vec<u64>,
}

impl Meter {
    /// Creates a meter for slices of length `slice`, above zero, on a link of `rate`.
    pub(crate) fn new(slice: Duration, rate: BitRate) -> Self {
        Self { slice, rate, free: Time::ZERO, bytes: Vec::new() }
    }

    /// Counts a frame of `frame_len` bytes with `payload` useful bytes, received at `now`.
    pub(crate) fn note(&mut self, now: Time, frame_len: u64, payload: u64) {
        if payload == 0 {
            return;
        }
        let lasts = self.rate.serialize(frame_len + LINK_OVERHEAD);
        let start = (now - lasts).max(self.free);
        let end = start + lasts;
        self.free = end;
        let mut left = payload;
        let mut from = start;
        loop {
            let index = from.as_ps() / self.slice.as_ps();
            let boundary = Time::from_ps((index + 1).saturating_mul(self.slice.as_ps()));
            let share = if end <= boundary {
                left
            } else {
                let part = u128::from(payload) * u128::from(boundary.since(from).as_ps()) / u128::from(lasts.as_ps());
                (part as u64).min(left)
            };
            self.add(index as usize, share);
            left -= share;
            if end <= boundary {
                return;
            }
            from = boundary;
        }
    }

    fn add(&mut self, slice: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.bytes.len() <= slice {
            self.bytes.resize(slice + 1, 0);
        }
        self.bytes[slice] += bytes;
    }

    /// Returns the number of payload bytes received in slice `index`.
    pub(crate) fn bytes_in(&self, index: usize) -> u64 {
        self.bytes.get(index).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of 1000 bytes with what the link adds, 900 of them payload, at a byte a nanosecond.
    fn note(meter: &mut Meter, at_ns: u64) {
        meter.note(Time::from_ns(at_ns), 1_000 - LINK_OVERHEAD, 900);
    }

    fn meter() -> Meter {
        Meter::new(Duration::from_ns(400), BitRate::gbps(8))
    }

    #[test]
    fn a_frame_counts_in_the_slices_it_lasts() {
        let mut meter = meter();
        note(&mut meter, 1_200);
        assert_eq!([0, 1, 2, 3].map(|index| meter.bytes_in(index)), [180, 360, 360, 0]);
    }

    #[test]
    fn what_is_handed_on_faster_than_the_link_is_counts_at_its_rate() {
        let mut meter = meter();
        (0..4).for_each(|_| note(&mut meter, 1_000));
        let slices: Vec<u64> = (0..10).map(|index| meter.bytes_in(index)).collect();
        assert_eq!(slices.iter().sum::<u64>(), 3_600);
        assert!(slices.iter().all(|bytes| *bytes <= 360), "{slices:?}");
    }
}
