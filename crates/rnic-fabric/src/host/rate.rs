//! Measured rate of one queue pair.

use rnic_base::{Duration, Time};

/// Bytes that a sender completed between its first and its last completion. Measuring between completions avoids an
/// error from messages that are in flight at either end of the measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CompletionRate {
    /// Times of the first and of the last completion.
    span: Option<(Time, Time)>,
    /// Payload bytes of all completions after the first.
    bytes: u64,
}

impl CompletionRate {
    /// Records the completion of a message of `bytes`.
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

    /// Returns whether a rate can be computed: two completions at different times are needed.
    pub(crate) fn is_known(&self) -> bool {
        self.span.is_some_and(|(first, last)| first < last)
    }

    /// Returns the number of payload bytes, and the duration in which they were completed.
    pub(crate) fn get(&self) -> (u64, Duration) {
        (self.bytes, self.span.map_or(Duration::ZERO, |(first, last)| last.since(first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_from_the_first_completion_to_the_last() {
        let mut rate = CompletionRate::default();
        assert!(!rate.is_known());
        rate.completed(Time::from_us(7), 1_000);
        assert!(!rate.is_known(), "one completion gave a rate");
        rate.completed(Time::from_us(9), 2_000);
        rate.completed(Time::from_us(10), 4_000);
        assert!(rate.is_known());
        assert_eq!(rate.get(), (6_000, Duration::from_us(3)));
    }
}
