//! When nobody drove what keeps deadlines: what did not happen then says nothing about the network.

use crate::time::{Duration, Time};

/// The last time that nobody drove an engine; the default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Absence {
    /// When it was over.
    ended: Time,
    length: Duration,
}

impl Absence {
    /// An absence of `length` that ends at `now`.
    pub fn until(now: Time, length: Duration) -> Self {
        Self { ended: now, length }
    }

    /// When it was over.
    pub fn ended(self) -> Time {
        self.ended
    }

    /// Returns the part of a wait since `start` that it may have taken; zero when it was over before.
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
}
