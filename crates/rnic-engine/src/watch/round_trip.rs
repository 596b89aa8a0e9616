//! Round-trip time from a packet to its acknowledgement, for monitoring only: no decision depends on it.
//!
//! One packet at a time is timed, and never a retransmitted one (Karn, Partridge: SIGCOMM 1987); the cost is one
//! comparison for each packet sent and each acknowledgement. The round-trip times that policies receive are measured
//! separately by the window, when policies request them.

use rnic_base::{Duration, Seq, Time};

/// The packet being timed, and the last measured round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    timed_seq: Seq,
    /// Time at which the packet was sent; [`NONE_TIMED`] when none is being timed.
    sent_at: Time,
    /// Last measured round-trip time; [`Duration::MAX`] before the first.
    last_rtt: Duration,
}

impl RoundTrip {
    pub(crate) const NEW: Self = Self { timed_seq: Seq::UNSET, sent_at: NONE_TIMED, last_rtt: Duration::MAX };

    /// Records that `seq` is sent for the first time.
    #[inline]
    pub(crate) fn sent(&mut self, seq: Seq, now: Time) {
        if self.sent_at == NONE_TIMED {
            (self.timed_seq, self.sent_at) = (seq, now);
        }
    }

    /// Stops timing, because packets are retransmitted: an acknowledgement received now may be for either copy.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.sent_at = NONE_TIMED;
    }

    /// Records that everything before `una` has arrived.
    #[inline]
    pub(crate) fn acknowledged(&mut self, una: Seq, now: Time) {
        if self.sent_at != NONE_TIMED && self.timed_seq < una {
            let rtt = now.since(self.sent_at);
            // A driver sends and receives trains, and has one time for both: no time between them is no measurement.
            if rtt > Duration::ZERO {
                self.last_rtt = rtt;
            }
            self.sent_at = NONE_TIMED;
        }
    }

    /// Returns the last measured round-trip time.
    pub(crate) fn last(&self) -> Option<Duration> {
        (self.last_rtt != Duration::MAX).then_some(self.last_rtt)
    }
}

/// Value that means that no packet is being timed: later than any real time.
const NONE_TIMED: Time = Time::from_ps(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_sent_once_are_timed() {
        let at = |us| Time::ZERO + Duration::from_us(us);
        let first = Seq::UNSET;
        let mut round_trip = RoundTrip::NEW;
        assert_eq!(round_trip.last(), None);
        round_trip.sent(first, at(10));
        // The second packet is not timed while the first one is being timed.
        round_trip.sent(first + 1, at(11));
        round_trip.acknowledged(first, at(12));
        assert_eq!(round_trip.last(), None);
        round_trip.acknowledged(first + 2, at(15));
        assert_eq!(round_trip.last(), Some(Duration::from_us(5)));
        round_trip.sent(first + 2, at(20));
        round_trip.forget();
        round_trip.acknowledged(first + 3, at(90));
        assert_eq!(round_trip.last(), Some(Duration::from_us(5)));
        round_trip.sent(first + 3, at(95));
        round_trip.acknowledged(first + 4, at(95));
        assert_eq!(round_trip.last(), Some(Duration::from_us(5)), "no time has passed: nothing was measured");
    }
}
