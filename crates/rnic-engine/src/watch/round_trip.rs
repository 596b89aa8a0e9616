//! How long a packet and its acknowledgement take, for whoever watches: no decision depends on it.
//!
//! One packet at a time is timed, and none that was sent twice (Karn, Partridge: SIGCOMM 1987): a comparison for each
//! packet sent and each acknowledgement. What policies hear is measured by the window, when they listen.

use rnic_base::{Duration, Seq, Time};

/// The packet being timed, and what the last one took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    timed: Seq,
    /// When it was sent; [`NOBODY_TIMED`] when none is being timed.
    sent: Time,
    /// [`Duration::MAX`] before the first.
    last: Duration,
}

impl RoundTrip {
    pub(crate) const NEW: Self = Self { timed: Seq::UNSET, sent: NOBODY_TIMED, last: Duration::MAX };

    /// `seq` leaves for the first time.
    #[inline]
    pub(crate) fn sent(&mut self, seq: Seq, now: Time) {
        if self.sent == NOBODY_TIMED {
            (self.timed, self.sent) = (seq, now);
        }
    }

    /// Something leaves again: what comes back now may be about either copy.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.sent = NOBODY_TIMED;
    }

    /// Everything before `una` has arrived.
    #[inline]
    pub(crate) fn acknowledged(&mut self, una: Seq, now: Time) {
        if self.sent != NOBODY_TIMED && self.timed < una {
            self.last = now.since(self.sent);
            self.sent = NOBODY_TIMED;
        }
    }

    /// The last that was measured.
    pub(crate) fn last(&self) -> Option<Duration> {
        (self.last != Duration::MAX).then_some(self.last)
    }
}

/// Later than anything.
const NOBODY_TIMED: Time = Time::from_ps(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_that_were_sent_once_are_timed() {
        let at = |us| Time::ZERO + Duration::from_us(us);
        let first = Seq::UNSET;
        let mut round_trip = RoundTrip::NEW;
        assert_eq!(round_trip.last(), None);
        round_trip.sent(first, at(10));
        // The second is not timed while the first is.
        round_trip.sent(first + 1, at(11));
        round_trip.acknowledged(first, at(12));
        assert_eq!(round_trip.last(), None);
        round_trip.acknowledged(first + 2, at(15));
        assert_eq!(round_trip.last(), Some(Duration::from_us(5)));
        round_trip.sent(first + 2, at(20));
        round_trip.forget();
        round_trip.acknowledged(first + 3, at(90));
        assert_eq!(round_trip.last(), Some(Duration::from_us(5)));
    }
}
