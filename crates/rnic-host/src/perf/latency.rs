//! Latencies of operations.

use hdrhistogram::Histogram;
use rnic_base::Duration;

use super::report::LatencyUs;

/// A histogram of times up to a minute, with three significant digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("three digits of a minute are legal"))
    }
}

impl Latency {
    /// Adds one latency.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_ns());
    }

    /// Returns the number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency that the share `quantile` of all operations does not exceed.
    pub fn at(&self, quantile: f64) -> Duration {
        Duration::from_ns(self.0.value_at_quantile(quantile))
    }

    /// Returns the percentiles for a report.
    pub fn summary(&self) -> LatencyUs {
        let us = |ns: u64| ns as f64 / 1e3;
        LatencyUs {
            p50: us(self.0.value_at_quantile(0.5)),
            p99: us(self.0.value_at_quantile(0.99)),
            p999: us(self.0.value_at_quantile(0.999)),
            max: us(self.0.max()),
        }
    }
}

const LATENCY_NS_MAX: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_the_recorded_values() {
        let mut latency = Latency::default();
        (1..=1_000).for_each(|us| latency.record(Duration::from_us(us)));
        let summary = latency.summary();
        assert!((summary.p50 - 500.0).abs() < 1.0 && (summary.p99 - 990.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p999 - 999.0).abs() < 1.0 && (summary.max - 1_000.0).abs() < 1.0, "{summary:?}");
        latency.record(Duration::from_secs(3_600));
        assert_eq!(latency.count(), 1_001, "an out-of-range latency was not recorded");
    }
}
