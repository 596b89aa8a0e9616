//! How fast one queue pair is.

use rnic_base::{Duration, Time};

/// What a sender completes from one completion to another, so that messages under way at either end of the time that
/// counts do not blur it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pace {
    /// The first completion, and the last one.
    span: Option<(Time, Time)>,
    /// Payload of those after the first.
    bytes: u64,
}

impl Pace {
    /// A message of `bytes` is done.
    #[inline]
    pub(crate) fn completed(&mut self, now: Time, bytes: u64) {
        match &mut self.span {
            Some((_, last)) => {
                *last = now;
                self.bytes += bytes;
            }
            span => *span = Some((now, now)),
        }
    }

    /// Whether there is time between two completions.
    pub(crate) fn is_known(&self) -> bool {
        self.span.is_some_and(|(first, last)| first < last)
    }

    /// Payload, and how long that took.
    pub(crate) fn get(&self) -> (u64, Duration) {
        (self.bytes, self.span.map_or(Duration::ZERO, |(first, last)| last.since(first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_completion_to_completion() {
        let mut pace = Pace::default();
        assert!(!pace.is_known());
        pace.completed(Time::from_us(7), 1_000);
        assert!(!pace.is_known(), "one says nothing");
        pace.completed(Time::from_us(9), 2_000);
        pace.completed(Time::from_us(10), 4_000);
        assert!(pace.is_known());
        assert_eq!(pace.get(), (6_000, Duration::from_us(3)));
    }
}
