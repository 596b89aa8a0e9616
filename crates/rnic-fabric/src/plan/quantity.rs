//! Quantities of a plan: durations, sizes, rates, probabilities and fractions, as text with a unit.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use rnic_base::{BitRate, Bytes, Duration, Probability};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use crate::link::PLAN_TIME_MAX;

/// A quantity with its unit, or a bare number for keys that permit it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unit<T>(pub(super) T);

/// A type of quantity that a plan may contain.
pub(super) trait Quantity: FromStr<Err: fmt::Display> {
    /// Returns the reason why a value that was parsed is invalid in every plan.
    fn invalid_reason(&self) -> Option<String> {
        None
    }
}

impl Quantity for Duration {
    /// Rejects durations longer than the longest run: times beyond it do not fit into their machine words, and events
    /// at such times would be lost without an error.
    fn invalid_reason(&self) -> Option<String> {
        (*self > PLAN_TIME_MAX).then(|| format!("must be at most {PLAN_TIME_MAX}, the longest run: it is {self}"))
    }
}

impl Quantity for Bytes {}
impl Quantity for BitRate {}
impl Quantity for Probability {}
impl Quantity for Fraction {}

impl<'de, T: Quantity> Deserialize<'de> for Unit<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<T: Quantity> Visitor<'_> for Reader<T> {
            type Value = Unit<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity with its unit in quotes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Unit<T>, E> {
                let value: T = text.parse().map_err(E::custom)?;
                value.invalid_reason().map_or(Ok(Unit(value)), |invalid_reason| Err(E::custom(invalid_reason)))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Unit<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Unit<T>, E> {
                let text = number.to_string();
                // `1.0` is written `1`, which a probability must not be.
                let is_whole = text.bytes().all(|digit| digit.is_ascii_digit());
                self.visit_str(&if is_whole { text + ".0" } else { text })
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// A quantity, or the word `auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum OrAuto<T> {
    #[default]
    Auto,
    Given(T),
}

impl<'de, T: Quantity> Deserialize<'de> for OrAuto<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Unit(MaybeAuto(value)) = Unit::<MaybeAuto<T>>::deserialize(deserializer)?;
        Ok(value)
    }
}

struct MaybeAuto<T>(OrAuto<T>);

impl<T: Quantity> Quantity for MaybeAuto<T> {
    fn invalid_reason(&self) -> Option<String> {
        match &self.0 {
            OrAuto::Auto => None,
            OrAuto::Given(value) => value.invalid_reason(),
        }
    }
}

impl<T: Quantity> FromStr for MaybeAuto<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text.trim() == "auto" {
            return Ok(Self(OrAuto::Auto));
        }
        text.parse().map(|value| Self(OrAuto::Given(value)))
    }
}

/// A fraction such as `1/2`, or an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fraction {
    pub(super) numerator: u64,
    pub(super) denominator: u64,
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a fraction such as 1/2, or a whole number");
        let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
        let read = |part: &str| part.trim().parse::<u64>().ok().filter(|part| (1..=1 << 20).contains(part));
        Ok(Self { numerator: read(numerator).ok_or_else(wrong)?, denominator: read(denominator).ok_or_else(wrong)? })
    }
}
