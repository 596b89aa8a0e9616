//! Wait time requested by a receiver-not-ready NAK, for InfiniBand, RoCE and Falcon.

use rnic_base::Duration;

/// A 5-bit code for a wait time (InfiniBand Architecture volume 1, table 45; OCP Falcon Transport Protocol, Rev 0.9,
/// section 7.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RnrTimer(u8);

/// Wait time of each code, in units of 10 microseconds.
const WAIT_TIMES_10_US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072,
    4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

impl RnrTimer {
    /// Largest code; the longest wait is that of code 0.
    pub const CODE_MAX: u8 = 31;

    /// Returns the timer of `code`, of which only the low five bits are used.
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        Self(code & Self::CODE_MAX)
    }

    /// Returns the shortest timer that waits at least `wait`, or the longest timer when none does.
    pub fn at_least(wait: Duration) -> Self {
        let fitting = (1..32u8).find(|code| Self(*code).wait() >= wait);
        Self(fitting.unwrap_or(0))
    }

    /// Returns the code as transmitted.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time that the sender waits before it retransmits.
    pub const fn wait(self) -> Duration {
        Duration::from_us(WAIT_TIMES_10_US[self.0 as usize] as u64 * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_the_specification() {
        assert_eq!(RnrTimer::from_code(0).wait(), Duration::from_us(655_360));
        assert_eq!(RnrTimer::from_code(1).wait(), Duration::from_us(10));
        assert_eq!(RnrTimer::from_code(12).wait(), Duration::from_us(640));
        assert_eq!(RnrTimer::from_code(31).wait(), Duration::from_us(491_520));
        assert_eq!(RnrTimer::at_least(Duration::from_us(50)), RnrTimer::from_code(5));
        assert_eq!(RnrTimer::at_least(Duration::from_secs(9)), RnrTimer::from_code(0));
    }
}
