//! Round-trip time estimation, and the timeouts derived from it.
//!
//! Source: RFC 6298, section 2 (SRTT, RTTVAR and the timeout); RFC 9002, section 6.1.2 (the granularity of a timer in
//! software); RFC 8985, section 7.2 (a probe after two round trips).
//!
//! The caller must apply Karn's rule (RFC 6298, section 3): a retransmitted packet gives no sample.
//!
//! Addition: the longest sample is stored, and decays with each further sample by a thirty-second of its excess over
//! the smoothed time. A process that is descheduled for a tick causes an occasional long sample; RTTVAR loses three
//! quarters of it within five samples, and the next tick would then be taken for a loss.

use crate::time::Duration;

/// An estimator of round-trip times. It uses integers only: the same samples give the same timeouts on every machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RttEstimator {
    /// Smoothed round-trip time in ps; 0 before the first sample.
    srtt_ps: u64,
    /// Mean deviation of the round-trip time in ps.
    rttvar_ps: u64,
    /// Longest sample, decaying, in ps.
    longest_ps: u64,
}

impl RttEstimator {
    /// Estimator before the first sample.
    pub const NEW: Self = Self { srtt_ps: 0, rttvar_ps: 0, longest_ps: 0 };

    /// Adds a sample: the time from sending a packet that was sent only once to receiving its acknowledgement.
    pub fn add_sample(&mut self, sample: Duration) {
        let sample = sample.as_ps().clamp(1, SAMPLE_MAX.as_ps());
        if self.srtt_ps == 0 {
            (self.srtt_ps, self.rttvar_ps, self.longest_ps) = (sample, sample / 2, sample);
            return;
        }
        self.rttvar_ps = (3 * self.rttvar_ps + self.srtt_ps.abs_diff(sample)) / 4;
        self.srtt_ps = ((7 * self.srtt_ps + sample) / 8).max(1);
        let excess = self.longest_ps.saturating_sub(self.srtt_ps);
        self.longest_ps = sample.max(self.longest_ps - excess.div_ceil(LONGEST_DECAY));
    }

    /// Returns the smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub fn smoothed(&self) -> Option<Duration> {
        (self.srtt_ps != 0).then_some(Duration::from_ps(self.srtt_ps))
    }

    /// Returns the time to wait for an acknowledgement before a packet counts as lost: SRTT + max(4 RTTVAR, G), and
    /// at least a quarter more than the stored longest round-trip time. `None` before the first sample.
    pub fn timeout(&self) -> Option<Duration> {
        let by_variance = self.srtt_ps + (4 * self.rttvar_ps).max(GRANULARITY.as_ps());
        let by_longest = self.longest_ps + self.longest_ps / 4;
        self.smoothed().map(|_| Duration::from_ps(by_variance.max(by_longest)))
    }

    /// Returns the time to wait before a probe is sent to the peer: 2 SRTT, or SRTT + 4 RTTVAR when that is more.
    /// `None` before the first sample.
    pub fn probe_timeout(&self) -> Option<Duration> {
        self.smoothed().map(|_| Duration::from_ps(self.srtt_ps + (4 * self.rttvar_ps).max(self.srtt_ps)))
    }
}

/// Maximum value of a sample: longer ones are limited to it, so that no sum overflows.
const SAMPLE_MAX: Duration = Duration::from_secs(60);

/// Divisor of the longest sample's excess over the smoothed round-trip time: the quotient is removed with each
/// sample.
const LONGEST_DECAY: u64 = 32;

/// G of RFC 6298: the precision with which a process is woken at a requested time (kGranularity of RFC 9002).
const GRANULARITY: Duration = Duration::from_ms(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::RandomStreams;

    fn us(us: u64) -> Duration {
        Duration::from_us(us)
    }

    #[test]
    fn first_samples_give_the_values_of_rfc_6298() {
        let mut rtt = RttEstimator::NEW;
        assert_eq!((rtt.smoothed(), rtt.timeout(), rtt.probe_timeout()), (None, None, None));
        rtt.add_sample(us(8_000));
        // R, R + 4 R/2.
        assert_eq!((rtt.smoothed(), rtt.timeout()), (Some(us(8_000)), Some(us(24_000))));
        rtt.add_sample(us(16_000));
        // RTTVAR = (3 * 4 + 8) / 4 = 5 ms, SRTT = (7 * 8 + 16) / 8 = 9 ms.
        assert_eq!((rtt.smoothed(), rtt.timeout()), (Some(us(9_000)), Some(us(29_000))));
        assert_eq!(rtt.probe_timeout(), Some(us(29_000)));
    }

    #[test]
    fn with_a_constant_rtt_the_timeout_is_rtt_plus_one_ms_and_the_probe_timeout_two_rtts() {
        let mut rtt = RttEstimator::NEW;
        (0..200).for_each(|_| rtt.add_sample(us(100)));
        assert_eq!(rtt.smoothed(), Some(us(100)));
        assert_eq!((rtt.timeout(), rtt.probe_timeout()), (Some(us(1_100)), Some(us(200))));
    }

    /// One in fifty samples is a tick of 8 ms. After the first such sample, no tick causes a timeout.
    #[test]
    fn the_timeout_covers_a_peer_that_is_descheduled_from_time_to_time() {
        let mut rtt = RttEstimator::NEW;
        for round in 0..500u64 {
            let is_late = round % 50 == 49;
            if is_late && round > 50 {
                assert!(rtt.timeout() > Some(us(2_000)), "round {round}: {rtt:?}");
            }
            rtt.add_sample(if is_late { us(8_000) } else { us(100) });
        }
        (0..400).for_each(|_| rtt.add_sample(us(100)));
        assert!(rtt.timeout() < Some(us(1_200)), "the longest sample does not decay: {rtt:?}");
    }

    /// For any samples, the timeout exceeds the last one, and the smoothed round-trip time is between the smallest
    /// and the largest.
    #[test]
    fn timeouts_cover_the_last_sample() {
        for seed in 0..50 {
            let mut random = RandomStreams::new(seed).stream("rtt");
            let mut rtt = RttEstimator::NEW;
            let (mut smallest, mut largest) = (u64::MAX, 0);
            for step in 0..200 {
                let sample = 1 << (random.bits() % 46);
                let sample = sample + random.bits() % sample;
                (smallest, largest) = (smallest.min(sample), largest.max(sample.min(SAMPLE_MAX.as_ps())));
                rtt.add_sample(Duration::from_ps(sample));
                let (smoothed, timeout) = (rtt.smoothed().expect("a sample"), rtt.timeout().expect("a sample"));
                let context = format!("seed {seed}, step {step}: {rtt:?}");
                assert!(smallest - smallest / 8 <= smoothed.as_ps() + 8 && smoothed.as_ps() <= largest, "{context}");
                assert!(timeout.as_ps() >= sample.min(SAMPLE_MAX.as_ps()), "{context}");
                assert!(timeout.as_ps() >= smoothed.as_ps() + GRANULARITY.as_ps(), "{context}");
                assert!(rtt.probe_timeout() >= Some(smoothed.saturating_mul(2)), "{context}");
            }
        }
    }
}
