//! What papers claim and no simulated network shows: how fast code runs here, and what a search finds.
//!
//! ```text
//! ROOM     rnic-trials (amber: change with a test of what is refused and of what is found)
//! Purpose  trials: a load on the adaptive engine, a search for schedules that end in a deadlock
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-transports, rnic-fae, rnic-falcon
//! Must not know an experiment or a band, simulate a network in time; one file may read the clock
//! Add here a trial: a module and a line in TRIALS
//! Not here bands and sizes (experiments/), who runs trials when (rnic-reproduce), networks in time (rnic-fabric)
//! Proved by tests beside the trials, and rnic-falcon's tests/deadlock.rs, which stands on the search
//! ```
//!
//! A [`Trial`] takes arguments, a TOML table, and a seed, and gives numbers. Of one that is
//! [searched](Nature::Searched) these are a pure function of both; one that is [measured](Nature::Measured) tells of
//! the machine too.

pub mod deadlock;
pub mod fae;

use serde::de::DeserializeOwned;

/// What the numbers of a trial depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nature {
    /// On the machine: they are times. Nothing else may run beside it.
    Measured,
    /// On arguments and seed alone.
    Searched,
}

/// Something that can be tried out. What it does, and with which arguments, its module says and `docs/reproduce.md`.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// What experiments call it.
    pub name: &'static str,
    /// What its numbers depend on.
    pub nature: Nature,
    /// The numbers that every run of it gives.
    pub numbers: &'static [&'static str],
    cost: fn(&toml::Table) -> Result<u64, String>,
    run: fn(&toml::Table, u64) -> Result<serde_json::Value, String>,
}

impl Trial {
    /// Checks arguments; gives about how much work a run with them is: bytes that a simulated network moves in the same
    /// time. Runs of all sorts are put in order by it; no number depends on it.
    ///
    /// # Errors
    /// The first argument that is unknown, missing or out of range, and what would do: one line.
    pub fn cost(&self, arguments: &toml::Table) -> Result<u64, String> {
        (self.cost)(arguments)
    }

    /// Runs it: an object with [`Self::numbers`] and what may stand beside them.
    ///
    /// # Errors
    /// As [`Self::cost`]; or what the machine does not have.
    pub fn run(&self, arguments: &toml::Table, seed: u64) -> Result<serde_json::Value, String> {
        (self.run)(arguments, seed)
    }
}

/// Every trial.
pub const TRIALS: &[Trial] = &[fae::TRIAL, deadlock::TRIAL];

/// The trial called `name`.
///
/// # Errors
/// When there is none; says which there are.
pub fn find(name: &str) -> Result<&'static Trial, String> {
    TRIALS.iter().find(|trial| trial.name == name).ok_or_else(|| {
        let there: Vec<&str> = TRIALS.iter().map(|trial| trial.name).collect();
        format!("there is no trial `{name}`; there are: {}", there.join(", "))
    })
}

/// Arguments as `T` has them; a complaint is one line that names the argument.
fn read<T: DeserializeOwned>(arguments: &toml::Table) -> Result<T, String> {
    serde_path_to_error::deserialize(toml::Value::Table(arguments.clone())).map_err(|error| {
        let message = error.inner().message().split_whitespace().collect::<Vec<_>>().join(" ");
        match error.path().to_string().as_str() {
            "." => message,
            path => format!("{path}: {message}"),
        }
    })
}

/// Complains of an argument that does not lie in `range`.
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
        assert_eq!(find("fae").map(|trial| trial.nature), Ok(Nature::Measured));
        assert_eq!(find("deadlock").map(|trial| trial.nature), Ok(Nature::Searched));
        assert_eq!(find("luck").map(|_| ()), Err("there is no trial `luck`; there are: fae, deadlock".to_owned()));
    }
}
