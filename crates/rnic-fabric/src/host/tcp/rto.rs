//! Retransmission timeout (RFC 6298).

use rnic_base::Duration;

/// Bounds of the timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtoLimits {
    /// Before the first measurement: 1 s (RFC 6298, 2.1).
    pub initial: Duration,
    /// Minimum timeout: 1 s in RFC 6298 (2.4), 200 ms in Linux.
    pub min: Duration,
    /// Maximum timeout, at least 60 s (2.5).
    pub max: Duration,
}

impl Default for RtoLimits {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), min: Duration::from_ms(200), max: Duration::from_secs(60) }
    }
}

/// Estimate of the round trip, and the timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rto {
    limits: RtoLimits,
    /// Smoothed round trip and its variation, in picoseconds; `None` before the first measurement.
    estimate: Option<(u64, u64)>,
    current: Duration,
}

impl Rto {
    pub(super) fn new(limits: RtoLimits) -> Self {
        Self { limits, estimate: None, current: limits.initial }
    }

    /// Returns the timeout, backed off as it is.
    pub(super) fn current(&self) -> Duration {
        self.current
    }

    /// Processes a round-trip measurement (2.2, 2.3), which ends a back-off (5.7 and Karn's algorithm).
    pub(super) fn measure(&mut self, round_trip: Duration) {
        let sample = round_trip.as_ps();
        let (smoothed, variation) = match self.estimate {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                (smoothed - smoothed / 8 + sample / 8, variation - variation / 4 + smoothed.abs_diff(sample) / 4)
            }
        };
        self.estimate = Some((smoothed, variation));
        // The clock's granularity is a picosecond.
        let timeout = Duration::from_ps(smoothed.saturating_add(variation.saturating_mul(4).max(1)));
        self.current = timeout.max(self.limits.min).min(self.limits.max);
    }

    /// Backs off after an expiry (5.5).
    pub(super) fn back_off(&mut self) {
        self.current = self.current.saturating_mul(2).min(self.limits.max);
    }
}
