//! Messages of one tenant that a host posted.

use core::ops::Range;

use rnic_base::{Duration, Time};

/// Counts messages in the measured time of a tenant.
#[derive(Debug)]
pub(crate) struct TenantTally {
    measured: Range<Time>,
    /// Messages that completed in the measured time.
    completions: u64,
    /// Durations from post, or arrival at the sender, to completion of the messages posted in the measured time.
    latencies: Vec<Duration>,
}

impl TenantTally {
    pub(crate) fn new(measured: Range<Time>) -> Self {
        Self { measured, completions: 0, latencies: Vec::new() }
    }

    /// Counts a message that was posted, or had arrived, at `posted`, and is complete at `now`.
    pub(crate) fn completed(&mut self, posted: Time, now: Time) {
        self.completions += u64::from(self.measured.contains(&now));
        if self.measured.contains(&posted) {
            self.latencies.push(now.since(posted));
        }
    }

    pub(crate) fn completions(&self) -> u64 {
        self.completions
    }

    pub(crate) fn latencies(&self) -> &[Duration] {
        &self.latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_before_and_after_the_measured_time_are_not_counted() {
        let mut tally = TenantTally::new(Time::from_us(10)..Time::from_us(20));
        for (posted, done) in [(1, 9), (8, 12), (13, 15), (18, 21), (20, 25)] {
            tally.completed(Time::from_us(posted), Time::from_us(done));
        }
        assert_eq!(tally.completions(), 2);
        assert_eq!(tally.latencies(), [Duration::from_us(2), Duration::from_us(3)]);
    }
}
