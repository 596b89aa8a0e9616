//! Tunable parameters: declared once, and used by the plan file, the command line, `rnic list` and the policy.
//!
//! A policy declares a table of [`ParamSpec`]; the values are stored in a [`Params`] block of plain words, checked
//! against the bounds when they are set. The policy reads them by the index that it declared.

use core::str::FromStr;

use rnic_base::similar::hint;
use rnic_base::{BitRate, Bytes, Duration, UnitError};

/// Maximum number of parameters of one policy.
pub const PARAMS_MAX: usize = 17;

/// The meaning of a parameter's value, and its text form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamUnit {
    /// A [`Duration`], in picoseconds. Written `100us`.
    Duration,
    /// A [`BitRate`], in bits per second. Written `40Mbps`.
    Rate,
    /// [`Bytes`]. Written `64KiB`.
    Bytes,
    /// A number without a unit (of packets, events, rounds).
    Count,
    /// On or off. Written `true` or `false`.
    Switch,
    /// One of these words; the value is its index.
    Choice(&'static [&'static str]),
}

/// The owner of a control policy's parameter when the recovery policy has one of the same name. An adaptive engine
/// computes times that a recovery policy would compute too, and must use the values set for the recovery policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ParamOwner {
    /// The parameter belongs to its policy alone.
    #[default]
    Policy,
    /// The parameter belongs to the recovery and the control policy: setting it for one sets it for the other. If the
    /// recovery policy has no parameter of that name, it belongs to the control policy.
    Both,
    /// Like [`ParamOwner::Both`]; when the recovery policy has no parameter of that name, the parameter has no effect
    /// and cannot be set.
    Recovery,
}

/// The declaration of one parameter: its name, meaning, default and bounds, in the base unit of `unit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamSpec {
    /// Name in plans: lower case with underscores.
    pub name: &'static str,
    /// Interpretation of the stored 64-bit value.
    pub unit: ParamUnit,
    /// Default value.
    pub default: u64,
    /// Minimum value.
    pub min: u64,
    /// Maximum value.
    pub max: u64,
    /// One line of text: the effect, and the source of the default.
    pub help: &'static str,
    /// For a control policy: the relation to a recovery policy's parameter of the same name.
    pub owner: ParamOwner,
    /// For a control policy: true when the parameter has an effect only with reports of flows
    /// ([`crate::FlowReport`]); it cannot be set on other datapaths.
    pub needs_reports: bool,
    /// For a path policy: true when the parameter has an effect only where the policy chooses labels; it cannot be
    /// set where the policy chooses flows (Falcon).
    pub needs_labels: bool,
    /// For a scheduling policy: true when the parameter limits how much a queue pair sends in one turn; it cannot be
    /// set where every turn is one packet (Falcon).
    pub needs_turns: bool,
}

impl ParamSpec {
    const fn new(
        name: &'static str,
        unit: ParamUnit,
        default: u64,
        (min, max): (u64, u64),
        help: &'static str,
    ) -> Self {
        Self {
            name,
            unit,
            default,
            min,
            max,
            help,
            owner: ParamOwner::Policy,
            needs_reports: false,
            needs_labels: false,
            needs_turns: false,
        }
    }

    /// Returns a duration parameter between zero and ten seconds.
    pub const fn duration(name: &'static str, default: Duration, help: &'static str) -> Self {
        let bounds = (0, Duration::from_secs(10).as_ps());
        Self::new(name, ParamUnit::Duration, default.as_ps(), bounds, help)
    }

    /// Returns a count parameter between `min` and `max`.
    pub const fn count(name: &'static str, default: u64, min: u64, max: u64, help: &'static str) -> Self {
        Self::new(name, ParamUnit::Count, default, (min, max), help)
    }

    /// Returns an on/off parameter.
    pub const fn switch(name: &'static str, default: bool, help: &'static str) -> Self {
        Self::new(name, ParamUnit::Switch, default as u64, (0, 1), help)
    }

    /// Returns a parameter with one of `words` as value.
    pub const fn choice(name: &'static str, words: &'static [&'static str], default: u64, help: &'static str) -> Self {
        Self::new(name, ParamUnit::Choice(words), default, (0, words.len() as u64 - 1), help)
    }

    /// Returns a rate parameter between 1 kbit/s and 10 Tbit/s.
    pub const fn rate(name: &'static str, default: BitRate, help: &'static str) -> Self {
        Self::new(name, ParamUnit::Rate, default.as_bps(), (1_000, 10_000_000_000_000), help)
    }

    /// Returns a size parameter between `min` and `max` bytes.
    pub const fn bytes(name: &'static str, default: u64, min: u64, max: u64, help: &'static str) -> Self {
        Self::new(name, ParamUnit::Bytes, default, (min, max), help)
    }

    /// Returns the same parameter with `owner`, for a control policy whose recovery policy has it as well; see
    /// [`ParamOwner`].
    #[must_use]
    pub const fn owned_by(self, owner: ParamOwner) -> Self {
        Self { owner, ..self }
    }

    /// Returns the same parameter, marked as used only for decisions based on reports of flows.
    #[must_use]
    pub const fn by_reports(self) -> Self {
        Self { needs_reports: true, ..self }
    }

    /// Returns the same parameter, marked as used only where the path policy chooses labels.
    #[must_use]
    pub const fn by_labels(self) -> Self {
        Self { needs_labels: true, ..self }
    }

    /// Returns the same parameter, marked as a limit of how much a queue pair sends in one turn.
    #[must_use]
    pub const fn by_turns(self) -> Self {
        Self { needs_turns: true, ..self }
    }

    /// Returns whether the parameter is a retransmission timeout: the longest time without packets that is expected
    /// from a live peer. Code that expresses time limits as multiples of a timeout, or that lengthens timeouts for a
    /// slow path, uses this function. It compares the name; a test of the registry ensures that every recovery policy
    /// with a timeout uses these names.
    pub fn is_timeout(&self) -> bool {
        TIMEOUT_PARAMS.contains(&self.name)
    }

    /// Formats `value` in its text form.
    pub fn show(&self, value: u64) -> String {
        match self.unit {
            ParamUnit::Duration => Duration::from_ps(value).to_string(),
            ParamUnit::Rate => BitRate::bps(value).to_string(),
            ParamUnit::Bytes => Bytes::new(value).to_string(),
            ParamUnit::Count => value.to_string(),
            ParamUnit::Switch => (value != 0).to_string(),
            ParamUnit::Choice(words) => words.get(value as usize).copied().unwrap_or("?").to_owned(),
        }
    }

    /// Parses and checks a text value.
    ///
    /// # Errors
    /// When the text is not of the parameter's unit or outside its bounds.
    pub fn parse(&self, text: &str) -> Result<u64, ParamError> {
        let unit_error = |source| ParamError::Unit { name: self.name, source };
        let invalid = || ParamError::NotA { name: self.name, text: text.to_owned(), expected: self.expected() };
        let value = match self.unit {
            ParamUnit::Duration => Duration::from_str(text).map_err(unit_error)?.as_ps(),
            ParamUnit::Rate => BitRate::from_str(text).map_err(unit_error)?.as_bps(),
            ParamUnit::Bytes => Bytes::from_str(text).map_err(unit_error)?.get(),
            ParamUnit::Count => text.trim().parse().map_err(|_| invalid())?,
            ParamUnit::Switch => u64::from(text.trim().parse::<bool>().map_err(|_| invalid())?),
            ParamUnit::Choice(words) => words.iter().position(|word| *word == text.trim()).ok_or_else(invalid)? as u64,
        };
        if value < self.min || value > self.max {
            let (min, max) = (self.show(self.min), self.show(self.max));
            return Err(ParamError::OutOfBounds { name: self.name, value: self.show(value), min, max });
        }
        Ok(value)
    }

    fn expected(&self) -> String {
        match self.unit {
            ParamUnit::Switch => "true or false".to_owned(),
            ParamUnit::Choice(words) => format!("one of {}", words.join(", ")),
            _ => "a whole number".to_owned(),
        }
    }
}

/// Names of parameters that are retransmission timeouts. A minimum or an initial value is one; an upper bound for
/// doubling (`rto_max`) is not.
const TIMEOUT_PARAMS: [&str; 4] = ["rto_low", "rto_high", "rto", FLOOR];

/// Name of the parameter for the minimum timeout, for policies that compute the timeout.
pub(crate) const FLOOR: &str = "rto_min";

/// Reason why a parameter could not be set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParamError {
    /// No parameter has this name.
    #[error("unknown parameter `{name}`; the valid parameters are: {known}{}", hint(name, known.split(", ")))]
    Unknown {
        /// Requested name of a parameter.
        name: String,
        /// Names of the parameters that exist.
        known: String,
    },
    /// The text is not a quantity with a unit.
    #[error("parameter `{name}`: {source}")]
    Unit {
        /// Name of the parameter.
        name: &'static str,
        /// The error in the quantity.
        source: UnitError,
    },
    /// The text is not a valid value of the parameter's type.
    #[error("parameter `{name}`: `{text}` is not {expected}")]
    NotA {
        /// Name of the parameter.
        name: &'static str,
        /// Text that was rejected.
        text: String,
        /// Description of a valid value.
        expected: String,
    },
    /// The parameter has no effect in the configuration in which the transport is to run.
    #[error("parameter `{name}` has no effect here: {why}; remove it")]
    Unused {
        /// Name of the parameter.
        name: &'static str,
        /// The reason it has no effect.
        why: &'static str,
    },
    /// The value is outside the bounds.
    #[error("parameter `{name}`: {value} is outside the allowed range of {min} to {max}")]
    OutOfBounds {
        /// Name of the parameter.
        name: &'static str,
        /// Value that was rejected.
        value: String,
        /// Minimum value.
        min: String,
        /// Maximum value.
        max: String,
    },
}

/// The values of one policy's parameters, in the order of their declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Params([u64; PARAMS_MAX]);

impl Params {
    /// Returns the defaults of `specs`.
    ///
    /// # Panics
    /// When the table is longer than [`PARAMS_MAX`].
    pub const fn defaults(specs: &[ParamSpec]) -> Self {
        assert!(specs.len() <= PARAMS_MAX, "a policy has more parameters than PARAMS_MAX");
        let mut values = [0; PARAMS_MAX];
        let mut index = 0;
        while index < specs.len() {
            values[index] = specs[index].default;
            index += 1;
        }
        Self(values)
    }

    /// Returns the word of parameter `index`.
    #[inline]
    pub const fn get(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// Returns the words of the first `count` parameters.
    ///
    /// # Panics
    /// When there are more than [`PARAMS_MAX`].
    #[inline]
    pub fn words(&self, count: usize) -> &[u64] {
        &self.0[..count]
    }

    /// Replaces the word of parameter `index`, without checking it against the table: for values from code, not from
    /// user input.
    #[must_use]
    pub const fn with(mut self, index: usize, value: u64) -> Self {
        self.0[index] = value;
        self
    }

    /// Returns parameter `index` as a duration.
    #[inline]
    pub const fn duration(&self, index: usize) -> Duration {
        Duration::from_ps(self.0[index])
    }

    /// Returns parameter `index` as a rate.
    #[inline]
    pub const fn rate(&self, index: usize) -> BitRate {
        BitRate::bps(self.0[index])
    }

    /// Returns parameter `index` as a switch.
    #[inline]
    pub const fn is_on(&self, index: usize) -> bool {
        self.0[index] != 0
    }

    /// Sets the parameter called `name` from text; returns `Ok(false)` when the table has no such name.
    ///
    /// # Errors
    /// See [`ParamSpec::parse`].
    pub fn set(&mut self, specs: &[ParamSpec], name: &str, text: &str) -> Result<bool, ParamError> {
        let Some(index) = specs.iter().position(|spec| spec.name == name) else { return Ok(false) };
        self.0[index] = specs[index].parse(text)?;
        Ok(true)
    }
}

/// A policy with the values of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Configured<P> {
    /// The policy to call.
    pub policy: P,
    /// The parameters to pass to it.
    pub params: Params,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[ParamSpec] = &[
        ParamSpec::duration("rto", Duration::from_us(320), "timeout"),
        ParamSpec::count("threshold", 3, 1, 64, "packets"),
        ParamSpec::switch("sack", true, "bitmap"),
        ParamSpec::choice("order", &["strict", "weak"], 0, "of packets"),
    ];

    #[test]
    fn set_parses_and_checks_values() {
        let mut params = Params::defaults(SPECS);
        assert_eq!(params.duration(0), Duration::from_us(320));
        assert_eq!(params.set(SPECS, "rto", "1ms"), Ok(true));
        assert_eq!(params.set(SPECS, "sack", "false"), Ok(true));
        assert_eq!(params.set(SPECS, "nonsense", "1"), Ok(false));
        assert_eq!(params.duration(0), Duration::from_us(1_000));
        assert!(!params.is_on(2));
    }

    #[test]
    fn set_rejects_invalid_values_with_a_one_line_error() {
        let mut params = Params::defaults(SPECS);
        for (name, text, expected) in [
            ("rto", "10 apples", "apples"),
            ("rto", "11s", "10 s"),
            ("threshold", "0", "range of 1 to"),
            ("sack", "2", "true"),
            ("order", "weakly", "`weakly` is not one of strict, weak"),
        ] {
            let error = params.set(SPECS, name, text).expect_err(text).to_string();
            assert!(error.contains(name) && error.contains(expected) && error.lines().count() == 1, "{error}");
        }
        assert_eq!(params, Params::defaults(SPECS), "a refused value is stored");
    }
}
