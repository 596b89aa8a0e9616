//! Quantities with their unit in the type.

use core::fmt;
use core::str::FromStr;

use crate::scaled::{UnitError, parse_scaled};
use crate::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// Creates a quantity of `bytes` bytes.
    #[inline]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
        let exact = UNITS.into_iter().find(|(scale, _)| self.0 >= *scale && self.0.is_multiple_of(*scale));
        let (scale, unit) = exact.unwrap_or((1, "B"));
        write!(f, "{} {unit}", self.0 / scale)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Parses `64KiB`, `220KB`, `1GiB`, `4096`: binary units are powers of 1024, decimal units of 1000.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, u64)] = &[
            ("", 1),
            ("B", 1),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
        ];
        parse_scaled(text, UNITS, "a size such as 4096, 64KiB or 240KB").map(Self)
    }
}

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl BitRate {
    /// A rate of zero.
    pub const ZERO: Self = Self(0);

    /// Returns a rate of `bits` bits per second.
    #[inline]
    pub const fn bps(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns a rate of `gigabits` * 10^9 bits per second.
    #[inline]
    pub const fn gbps(gigabits: u64) -> Self {
        Self(gigabits * 1_000_000_000)
    }

    /// Returns the rate in bits per second.
    #[inline]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Returns the rate in gigabits per second, for printing only.
    pub fn as_gbps_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the time that `bytes` take at this rate, rounded up to a whole picosecond.
    ///
    /// # Panics
    /// When the rate is zero.
    #[inline]
    pub const fn serialize(self, bytes: u64) -> Duration {
        assert!(self.0 > 0, "the rate is zero");
        const PS_PER_S: u64 = 1_000_000_000_000;
        // Every rate used in practice divides 8 * 10^12 ps: 80 ps per byte at 100 Gbit/s, 200 ps at 40 Gbit/s, 800 ps
        // at 10 Gbit/s.
        if (8 * PS_PER_S).is_multiple_of(self.0) {
            return Duration::from_ps(bytes * (8 * PS_PER_S / self.0));
        }
        let bits = bytes as u128 * 8 * PS_PER_S as u128;
        Duration::from_ps(bits.div_ceil(self.0 as u128) as u64)
    }

    /// Returns the number of whole bytes transferred in `span` at this rate.
    pub const fn bytes_in(self, span: Duration) -> u64 {
        (span.as_ps() as u128 * self.0 as u128 / 8_000_000_000_000) as u64
    }

    /// Returns the sum of two rates; at most [`u64::MAX`] bits per second.
    #[inline]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference of two rates; zero when `other` is the larger one.
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `numerator` / `denominator` of the rate, rounded down; at most [`u64::MAX`] bits per second.
    ///
    /// # Panics
    /// When `denominator` is zero.
    pub const fn scaled(self, numerator: u64, denominator: u64) -> Self {
        let bits = self.0 as u128 * numerator as u128 / denominator as u128;
        Self(if bits > u64::MAX as u128 { u64::MAX } else { bits as u64 })
    }

    /// Returns the rate that transfers `bytes` in `span`; zero when `span` is zero.
    pub const fn from_transfer(bytes: u64, span: Duration) -> Self {
        if span.as_ps() == 0 {
            return Self::ZERO;
        }
        Self((bytes as u128 * 8_000_000_000_000 / span.as_ps() as u128) as u64)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s"), (1, "bit/s")];
        let (scale, unit) = UNITS.into_iter().find(|(scale, _)| self.0 >= *scale).unwrap_or((1, "bit/s"));
        let (whole, hundredths) = (self.0 / scale, self.0 % scale * 100 / scale);
        if hundredths == 0 { write!(f, "{whole} {unit}") } else { write!(f, "{whole}.{hundredths:02} {unit}") }
    }
}

impl fmt::Debug for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    /// Parses `100Gbps`, `40 Gbit/s`, `500Mbps`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, u64)] = &[
            ("bps", 1),
            ("kbps", 1_000),
            ("Mbps", 1_000_000),
            ("Gbps", 1_000_000_000),
            ("Tbps", 1_000_000_000_000),
            ("bit/s", 1),
            ("kbit/s", 1_000),
            ("Mbit/s", 1_000_000),
            ("Gbit/s", 1_000_000_000),
            ("Tbit/s", 1_000_000_000_000),
        ];
        parse_scaled(text, UNITS, "a rate such as 100Gbps or 500Mbit/s").map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialisation_is_exact_at_common_rates() {
        assert_eq!(BitRate::gbps(100).serialize(1), Duration::from_ps(80));
        assert_eq!(BitRate::gbps(40).serialize(1_090), Duration::from_ps(218_000));
        assert_eq!(BitRate::gbps(800).serialize(4_096), Duration::from_ps(40_960));
    }

    #[test]
    fn serialisation_rounds_up_at_odd_rates() {
        let third = BitRate::bps(3_000_000_000_000);
        assert_eq!(third.serialize(1), Duration::from_ps(3), "8/3 ps");
    }

    #[test]
    fn rate_and_bytes_agree() {
        let rate = BitRate::gbps(25);
        assert_eq!(rate.bytes_in(rate.serialize(123_456)), 123_456);
        assert_eq!(BitRate::from_transfer(125, Duration::from_ns(10)), BitRate::gbps(100));
        assert_eq!(BitRate::from_transfer(125, Duration::ZERO), BitRate::ZERO);
    }

    #[test]
    fn rates_saturate() {
        let (rate, max) = (BitRate::gbps(10), BitRate::bps(u64::MAX));
        assert_eq!(rate.saturating_sub(BitRate::gbps(11)), BitRate::ZERO);
        assert_eq!(max.saturating_add(rate), max);
        assert_eq!(rate.scaled(2, 3), BitRate::bps(6_666_666_666));
        assert_eq!(max.scaled(3, 2), max);
    }

    #[test]
    fn parse_and_display() {
        assert_eq!("64KiB".parse(), Ok(Bytes::new(65_536)));
        assert_eq!("240KB".parse(), Ok(Bytes::new(240_000)));
        assert_eq!("4096".parse(), Ok(Bytes::new(4_096)));
        assert_eq!("1.5KiB".parse(), Ok(Bytes::new(1_536)));
        assert_eq!("100Gbps".parse(), Ok(BitRate::gbps(100)));
        assert_eq!("2.5 Gbit/s".parse(), Ok(BitRate::bps(2_500_000_000)));
        assert_eq!(Bytes::new(65_536).to_string(), "64 KiB");
        assert_eq!(Bytes::new(240_000).to_string(), "240000 B");
        assert_eq!(BitRate::bps(2_500_000_000).to_string(), "2.50 Gbit/s");
    }

    #[test]
    fn parse_rejects_invalid_text_with_a_one_line_error() {
        for text in ["fast", "", "1.0001B", "100", "12 Gbips", "..5Gbps", "1.2.3Gbps"] {
            let error = text.parse::<BitRate>().expect_err(text).to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert!("0.0001B".parse::<Bytes>().is_err(), "a fraction of a byte is accepted");
    }
}
