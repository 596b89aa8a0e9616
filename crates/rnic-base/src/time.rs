//! Time in integer picoseconds.
//!
//! At 100 Gbit/s one byte takes 80 ps, at 800 Gbit/s 10 ps: picoseconds keep serialisation times exact integers, and
//! 64 bits of them span 213 days. This module cannot read a clock; a driver (fabric or host) supplies `now`.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};
use core::str::FromStr;

use crate::scaled::{UnitError, parse_scaled};

const PS_PER_NS: u64 = 1_000;
const PS_PER_US: u64 = 1_000_000;
const PS_PER_MS: u64 = 1_000_000_000;
const PS_PER_S: u64 = 1_000_000_000_000;

/// A point in time: picoseconds since the start of the driver of the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A duration in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Time {
    /// Start of the run.
    pub const ZERO: Self = Self(0);

    /// Returns the time `ps` picoseconds after the start.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Returns the time `ns` nanoseconds after the start.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * PS_PER_NS)
    }

    /// Returns the time `us` microseconds after the start.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Self(us * PS_PER_US)
    }

    /// Returns the picoseconds since the start.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Returns the time elapsed since `earlier`; zero when `earlier` is in the future.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time in seconds since the start, for printing only.
    pub fn as_secs_f64(self) -> f64 {
        Duration(self.0).as_secs_f64()
    }
}

impl Duration {
    /// A duration of zero.
    pub const ZERO: Self = Self(0);
    /// Maximum duration, longer than any run.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a duration of `ps` picoseconds.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Returns a duration of `ns` nanoseconds.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * PS_PER_NS)
    }

    /// Returns a duration of `us` microseconds.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Self(us * PS_PER_US)
    }

    /// Returns a duration of `ms` milliseconds.
    #[inline]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * PS_PER_MS)
    }

    /// Returns a duration of `seconds` seconds.
    #[inline]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * PS_PER_S)
    }

    /// Returns the duration in picoseconds.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Returns the duration in whole nanoseconds, rounded down.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0 / PS_PER_NS
    }

    /// Returns the duration in microseconds with a fraction, for printing only.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / PS_PER_US as f64
    }

    /// Returns the duration in seconds with a fraction, for printing only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }

    /// Returns `self - other`, or zero when `other` is longer.
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `self * factor`, limited to [`Duration::MAX`].
    #[inline]
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    #[inline]
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    #[inline]
    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Duration;
    #[inline]
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    #[inline]
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Duration;
    /// Saturates at zero.
    #[inline]
    fn sub(self, other: Duration) -> Duration {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    #[inline]
    fn mul(self, factor: u64) -> Duration {
        self.saturating_mul(factor)
    }
}

impl Div<u64> for Duration {
    type Output = Duration;
    #[inline]
    fn div(self, divisor: u64) -> Duration {
        Duration(self.0 / divisor)
    }
}

/// Formats the value with the largest unit that needs at most three decimals: `1.5 us`, `320 us`, `80 ps`.
fn fmt_ps(ps: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const UNITS: [(u64, &str); 5] =
        [(PS_PER_S, "s"), (PS_PER_MS, "ms"), (PS_PER_US, "us"), (PS_PER_NS, "ns"), (1, "ps")];
    let (scale, unit) = UNITS.into_iter().find(|(scale, _)| ps >= *scale).unwrap_or((1, "ps"));
    let whole = ps / scale;
    // Decimals are truncated to thousandths of the unit: exact for every value that occurs in a plan, and
    // deterministic for all others.
    let thousandths = if scale == 1 { 0 } else { (ps % scale) / (scale / 1_000) };
    if thousandths == 0 {
        return write!(f, "{whole} {unit}");
    }
    let digits = format!("{thousandths:03}");
    write!(f, "{whole}.{} {unit}", digits.trim_end_matches('0'))
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_ps(self.0, f)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_ps(self.0, f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_ps(self.0, f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_ps(self.0, f)
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    /// Parses `100us`, `1.5 ms`, `320 us`, `0`: a decimal number and one of `ps ns us ms s`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, u64)] =
            &[("ps", 1), ("ns", PS_PER_NS), ("us", PS_PER_US), ("ms", PS_PER_MS), ("s", PS_PER_S)];
        parse_scaled(text, UNITS, "a duration such as 100us, 1.5ms or 2s").map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_picks_one_unit() {
        assert_eq!(Duration::from_ps(80).to_string(), "80 ps");
        assert_eq!(Duration::from_ps(1_500_000).to_string(), "1.5 us");
        assert_eq!(Duration::from_us(320).to_string(), "320 us");
        assert_eq!(Duration::ZERO.to_string(), "0 ps");
        assert_eq!(Time::from_us(1_000_001).to_string(), "1 s");
    }

    #[test]
    fn parse_accepts_common_notations() {
        assert_eq!("100us".parse(), Ok(Duration::from_us(100)));
        assert_eq!(" 1.5 ms ".parse(), Ok(Duration::from_us(1_500)));
        assert_eq!("0".parse(), Ok(Duration::ZERO));
        assert_eq!("2s".parse(), Ok(Duration::from_secs(2)));
    }

    #[test]
    fn parse_errors_name_the_cause() {
        let error = "100 parsecs".parse::<Duration>().expect_err("not a unit of time");
        assert!(error.to_string().contains("parsecs"), "{error}");
        assert!("100".parse::<Duration>().is_err(), "a bare number has no unit");
        assert!("us".parse::<Duration>().is_err());
        assert!("-1us".parse::<Duration>().is_err());
        assert!("99999999999s".parse::<Duration>().is_err(), "does not fit into 64 bits");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::ZERO - Duration::from_us(1), Time::ZERO);
        assert_eq!(Time::from_ps(u64::MAX) + Duration::from_us(1), Time::from_ps(u64::MAX));
        assert_eq!(Time::from_us(1).since(Time::from_us(2)), Duration::ZERO);
    }
}
