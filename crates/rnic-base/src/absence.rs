//! The last interval in which the engine was not driven. The engine checks its deadlines only when it is driven, so
//! inactivity during such an interval is no evidence about the network.

use crate::time::{Duration, Time};

/// The last interval in which an engine was not driven; by default there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Absence {
    /// Time at which the absence ended.
    ended: Time,
    length: Duration,
    /// True while packets that arrived during the absence are still being processed.
    is_behind: bool,
}

impl Absence {
    /// Returns an absence of `length` that ends at `now`.
    pub fn until(now: Time, length: Duration) -> Self {
        Self { ended: now, length, is_behind: true }
    }

    /// Returns this absence marked as finished: all packets that arrived during it have been processed.
    #[must_use]
    pub fn caught_up(self) -> Self {
        Self { is_behind: false, ..self }
    }

    /// Returns the maximum age of a packet that is processed at `now`: the length of the absence while its backlog is
    /// being processed, which takes no longer than the absence did; zero otherwise.
    #[inline]
    pub fn backlog(self, now: Time) -> Duration {
        if self.is_behind && now.since(self.ended) <= self.length { self.length } else { Duration::ZERO }
    }

    /// Returns the time at which the absence ended.
    pub fn ended(self) -> Time {
        self.ended
    }

    /// Returns how much of the time waited since `start` may have fallen into the absence; zero when the absence
    /// ended before `start`.
    pub fn overlap_since(self, start: Time) -> Duration {
        if self.ended <= start { Duration::ZERO } else { self.length.min(self.ended.since(start)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_part_of_the_wait_within_the_absence() {
        let (at, us) = (Time::from_us, Duration::from_us);
        let absence = Absence::until(at(100), us(30));
        assert_eq!([90, 50, 100, 200].map(|start| absence.overlap_since(at(start))), [us(10), us(30), us(0), us(0)]);
        assert_eq!(Absence::default().overlap_since(Time::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_backlog_lasts_as_long_as_the_absence_that_caused_it() {
        let (at, us) = (Time::from_us, Duration::from_us);
        let absence = Absence::until(at(100), us(30));
        assert_eq!([100, 130, 131].map(|now| absence.backlog(at(now))), [us(30), us(30), us(0)]);
        assert_eq!(absence.caught_up().backlog(at(100)), us(0));
        assert_eq!(Absence::default().backlog(at(0)), us(0));
    }
}
