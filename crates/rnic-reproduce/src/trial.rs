//! Trials for claims of papers that a plan cannot show: the speed of code on this machine, the results of a search, and
//! comparisons of simulations whose hosts have no engine.
//!
//! A [`Trial`] takes arguments, a TOML table, and a seed, and returns numbers. Those of a
//! [searched](TrialKind::Searched) trial are a pure function of both; as those of a
//! [simulated](TrialKind::Simulated) one; those of a [measured](TrialKind::Measured) trial depend on the machine too.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod deadlock;
pub mod fae;
pub mod tonic;

use rnic_base::plain;
use serde::de::DeserializeOwned;

/// The inputs on which the results of a trial depend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialKind {
    /// Measured on the machine, because the results are times. No other work may run at the same time.
    Measured,
    /// On arguments and seed alone: it searches.
    Searched,
    /// On arguments and seed alone: it simulates networks.
    Simulated,
}

/// A trial. Its function and arguments are described by its module and `docs/reproduce.md`.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Name used by experiments.
    pub name: &'static str,
    /// Source of its numbers.
    pub kind: TrialKind,
    /// The numbers that every run of it returns.
    pub numbers: &'static [&'static str],
    /// Series over time that every run of it returns.
    pub series: &'static [&'static str],
    cost: fn(&toml::Table) -> Result<u64, String>,
    run: fn(&toml::Table, u64) -> Result<serde_json::Value, String>,
}

impl Trial {
    /// Checks arguments; returns the approximate work of a run with them, as the bytes that a simulated network moves
    /// in the same time. Runs of all types are ordered by it; no number depends on it.
    ///
    /// # Errors
    /// The first argument that is unknown, missing or out of range, with the valid values: one line.
    pub fn cost(&self, arguments: &toml::Table) -> Result<u64, String> {
        (self.cost)(arguments)
    }

    /// Runs the trial and returns an object with [`Self::numbers`] and possibly further entries.
    ///
    /// # Errors
    /// As [`Self::cost`]; or a missing capability of the machine.
    pub fn run(&self, arguments: &toml::Table, seed: u64) -> Result<serde_json::Value, String> {
        (self.run)(arguments, seed)
    }
}

/// All trials.
pub const TRIALS: &[Trial] = &[fae::TRIAL, deadlock::TRIAL, tonic::new_reno::TRIAL, tonic::rates::TRIAL];

/// Returns the trial called `name`.
///
/// # Errors
/// When there is none; lists the existing ones.
pub fn find(name: &str) -> Result<&'static Trial, String> {
    TRIALS.iter().find(|trial| trial.name == name).ok_or_else(|| {
        let available: Vec<&str> = TRIALS.iter().map(|trial| trial.name).collect();
        format!("there is no trial `{name}`; there are: {}", available.join(", "))
    })
}

/// Parses arguments as `T`; an error is one line that names the argument.
fn read<T: DeserializeOwned>(arguments: &toml::Table) -> Result<T, String> {
    serde_path_to_error::deserialize(toml::Value::Table(arguments.clone())).map_err(|error| {
        let message = plain::explained(error.inner().message());
        match error.path().to_string().as_str() {
            "." => message,
            path => format!("{path}: {message}"),
        }
    })
}

/// Returns an error if an argument is not between `least` and `most`.
fn within<N: PartialOrd + Copy + core::fmt::Display>(name: &str, value: N, least: N, most: N) -> Result<(), String> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(format!("{name}: {value} does not lie between {least} and {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_found_by_its_name() {
        assert_eq!(find("fae").map(|trial| trial.kind), Ok(TrialKind::Measured));
        assert_eq!(find("deadlock").map(|trial| trial.kind), Ok(TrialKind::Searched));
        assert_eq!(
            find("luck").map(|_| ()),
            Err("there is no trial `luck`; there are: fae, deadlock, tonic-new-reno, tonic-dcqcn".to_owned())
        );
    }
}
