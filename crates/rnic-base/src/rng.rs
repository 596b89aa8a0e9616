//! Seeded random numbers, one stream per name.
//!
//! A run has one seed. Every component draws its random numbers from a stream of its own, identified by a name
//! ("fault/link-3/drop", "workload/host-12"), so that adding a component, or running components in another order,
//! does not change the numbers of other components. Probabilities are integers and the exponential distribution is
//! computed in fixed point: the same plan and seed give the same random numbers on every machine, which `f64::ln` of
//! the platform's mathematics library does not promise.

use core::fmt;
use core::str::FromStr;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::scaled::{UnitError, parse_scaled};
use crate::time::Duration;

/// Seed of a run, from which every named stream is derived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomStreams {
    seed: u64,
}

impl RandomStreams {
    /// Creates the streams of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the seed of the streams.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the stream named `name`, positioned at its start.
    pub fn stream(&self, name: &str) -> RandomStream {
        // The FNV-1a hash of the name selects the stream; xoshiro's own seeding (SplitMix64) distributes the 64 bits
        // over its state.
        let name_hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mixed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ name_hash;
        RandomStream(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }
}

/// One stream of random numbers (xoshiro256++).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RandomStream(Xoshiro256PlusPlus);

impl RandomStream {
    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniformly distributed number in `0..bound` (Lemire's multiply-and-reject).
    ///
    /// # Panics
    /// When `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a uniformly distributed number in `low..=high`.
    ///
    /// # Panics
    /// When `high < low`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range {low}..={high}");
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.bits(),
        }
    }

    /// Returns true with probability `probability`.
    #[inline]
    pub fn chance(&mut self, probability: Probability) -> bool {
        probability.0 != 0 && self.bits() >> 1 < probability.0
    }

    /// Returns a random time from the exponential distribution with mean `mean`: the intervals of a Poisson process.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // -ln(u) = (64 - log2(bits)) * ln 2, for u = bits / 2^64, in 32.32 fixed point.
        const LN_2_FIXED: u128 = 2_977_044_472; // ln 2 * 2^32
        let uniform = self.bits() | 1;
        let minus_log2 = (64u64 << 32) - log2_fixed(uniform);
        let minus_ln = (u128::from(minus_log2) * LN_2_FIXED) >> 32;
        let ps = (u128::from(mean.as_ps()) * minus_ln) >> 32;
        Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Puts `items` into a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Returns log2 of `value` with 32 fractional bits, by repeated squaring.
fn log2_fixed(value: u64) -> u64 {
    let whole = u64::from(value.ilog2());
    // The mantissa as 1.63 fixed point, in [1, 2).
    let mut mantissa = value << value.leading_zeros();
    let mut fraction = 0u64;
    for _ in 0..32 {
        let square = u128::from(mantissa) * u128::from(mantissa);
        fraction <<= 1;
        if square >> 127 == 1 {
            fraction |= 1;
            mantissa = (square >> 64) as u64;
        } else {
            mantissa = (square >> 63) as u64;
        }
    }
    whole << 32 | fraction
}

/// A probability, stored as a multiple of 2^-63 so that 0 and 1 are both exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(u64);

impl Probability {
    /// Probability 0.
    pub const NEVER: Self = Self(0);
    /// Probability 1.
    pub const ALWAYS: Self = Self(1 << 63);

    /// Returns the probability `numerator` / `denominator`, at most 1.
    ///
    /// # Panics
    /// When `denominator` is zero.
    pub const fn ratio(numerator: u64, denominator: u64) -> Self {
        assert!(denominator > 0, "the denominator is zero");
        let scaled = ((numerator as u128) << 63) / denominator as u128;
        if scaled > 1 << 63 { Self::ALWAYS } else { Self(scaled as u64) }
    }

    /// Returns `true` if the probability is zero.
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Returns the probability as a fraction of one, for printing only.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / (1u64 << 63) as f64
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nine decimals show the precision of a plan (a millionth of a percent), with trailing zeros trimmed.
        let text = format!("{:.7}", self.as_f64() * 100.0);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Probability {
    type Err = UnitError;

    /// Parses `1%`, `0.5 %` or a bare fraction such as `0.01`. A bare `1` may be meant as a percentage and is refused.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == "1" {
            return Err(UnitError::Ambiguous {
                text: text.to_owned(),
                readings: "1% (one in a hundred) or 1.0 (all)?",
            });
        }
        const EXPECTED: &str = "a probability between 0 and 1, such as 1% or 0.01";
        const DENOMINATOR: u64 = 1_000_000_000_000;
        let parts = parse_scaled(text, &[("", DENOMINATOR), ("%", DENOMINATOR / 100)], EXPECTED)?;
        if parts > DENOMINATOR {
            return Err(UnitError::OutOfRange { text: text.to_owned(), expected: EXPECTED });
        }
        Ok(Self::ratio(parts, DENOMINATOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_never_change_between_versions() {
        // Recorded traces and published figures depend on this value. It must never change.
        let mut stream = RandomStreams::new(7).stream("fault/link-0");
        assert_eq!([stream.bits(), stream.bits()], [6_438_647_841_927_493_509, 11_882_907_625_894_787_575]);
    }

    #[test]
    fn streams_differ_by_name_and_by_seed() {
        let streams = RandomStreams::new(1);
        assert_ne!(streams.stream("a").bits(), streams.stream("b").bits());
        assert_ne!(streams.stream("a").bits(), RandomStreams::new(2).stream("a").bits());
        assert_eq!(streams.stream("a"), streams.stream("a"));
    }

    #[test]
    fn chance_is_true_at_the_given_rate() {
        let mut stream = RandomStreams::new(3).stream("chance");
        let hits = (0..100_000).filter(|_| stream.chance(Probability::ratio(1, 100))).count();
        assert!((900..1_100).contains(&hits), "{hits} of 100000 at 1 %");
        assert!((0..100).all(|_| stream.chance(Probability::ALWAYS)));
        assert!((0..100).all(|_| !stream.chance(Probability::NEVER)));
    }

    #[test]
    fn exponential_has_the_right_mean_and_tail() {
        let mut stream = RandomStreams::new(5).stream("poisson");
        let mean = Duration::from_us(48);
        let draws: Vec<u64> = (0..100_000).map(|_| stream.exponential(mean).as_ps()).collect();
        let average = draws.iter().sum::<u64>() / draws.len() as u64;
        let error = average.abs_diff(mean.as_ps()) as f64 / mean.as_ps() as f64;
        assert!(error < 0.01, "mean off by {error}");
        let share_above_mean = draws.iter().filter(|draw| **draw > mean.as_ps()).count() as f64 / draws.len() as f64;
        assert!((share_above_mean - (-1.0f64).exp()).abs() < 0.005, "P(X > mean) = {share_above_mean}, not 1/e");
    }

    #[test]
    fn log2_fixed_is_log2() {
        for value in [1, 2, 3, 10, 1 << 40, u64::MAX] {
            let log2 = log2_fixed(value) as f64 / (1u64 << 32) as f64;
            assert!((log2 - (value as f64).log2()).abs() < 1e-8, "{value}: {log2}");
        }
    }

    #[test]
    fn below_covers_its_range() {
        let mut stream = RandomStreams::new(9).stream("below");
        let mut seen = [0u32; 7];
        (0..7_000).for_each(|_| seen[stream.below(7) as usize] += 1);
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert_eq!(stream.between(5, 5), 5);
    }

    #[test]
    fn probability_parses_and_prints() {
        assert_eq!("1%".parse(), Ok(Probability::ratio(1, 100)));
        assert_eq!("0.01".parse(), Ok(Probability::ratio(1, 100)));
        for all in ["100%", "1.0", "1.00"] {
            assert_eq!(all.parse(), Ok(Probability::ALWAYS));
        }
        let ambiguous = "1".parse::<Probability>().expect_err("two readings").to_string();
        assert_eq!(ambiguous, "`1` is ambiguous: 1% (one in a hundred) or 1.0 (all)?");
        assert!("1.5".parse::<Probability>().is_err());
        assert!("101%".parse::<Probability>().is_err());
        assert!("-1%".parse::<Probability>().is_err());
        assert_eq!(Probability::ratio(1, 200).to_string(), "0.5%");
    }
}
