//! Intervals in which the engine, which keeps deadlines, was not driven: inactivity during such an interval is no
//! evidence about the network.

use crate::time::{Duration, Time};

/// The last interval in which an engine was not driven; the default is none.
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

    /// Returns the absence with all packets that arrived during it processed.
    #[must_use]
    pub fn caught_up(self) -> Self {
        Self { is_behind: false, ..self }
    }

    /// Returns the longest time before `now` at which a packet processed at `now` may have arrived: the length of the
    /// absence while its backlog is processed, which takes no longer than the absence did; zero otherwise.
    #[inline]
    pub fn backlog(self, now: Time) -> Duration {
        if self.is_behind && now.since(self.ended) <= self.length { self.length } else { Duration::ZERO }
    }

    /// Returns the time at which the absence ended.
    pub fn ended(self) -> Time {
        self.ended
    }

    /// Returns the part of a wait since `start` that the absence may have taken; zero when it ended before.
    pub fn part_since(self, start: Time) -> Duration {
        if self.ended <= start { Duration::ZERO } else { self.length.min(self.ended.since(start)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_within_the_wait_counts() {
        let (at, us) = (Time::from_us, Duration::from_us);
        let absence = Absence::until(at(100), us(30));
        assert_eq!([90, 50, 100, 200].map(|start| absence.part_since(at(start))), [us(10), us(30), us(0), us(0)]);
        assert_eq!(Absence::default().part_since(Time::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_backlog_is_as_old_as_the_absence_and_taken_in_as_fast() {
        let (at, us) = (Time::from_us, Duration::from_us);
        let absence = Absence::until(at(100), us(30));
        assert_eq!([100, 130, 131].map(|now| absence.backlog(at(now))), [us(30), us(30), us(0)]);
        assert_eq!(absence.caught_up().backlog(at(100)), us(0));
        assert_eq!(Absence::default().backlog(at(0)), us(0));
    }
}
