//! Origins of numbers, shown so that simulated, computed and measured numbers are not confused.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::experiment::{Experiment, Value};
use crate::trial::{self, TrialKind};

/// Origin of a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// From a simulated network.
    Simulated,
    /// Computed by code, without running an experiment.
    Computed,
    /// Found by a search among cases that are generated from seeds.
    Searched,
    /// Measured by the clock of a machine.
    Measured,
}

impl Origin {
    /// Returns the origin in a few words: `measured on this machine`.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Computed => "computed",
            Self::Searched => "counted in a search",
            Self::Measured => "measured on this machine",
        }
    }

    /// Returns the origin as one word, also used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Computed => "computed",
            Self::Searched => "searched",
            Self::Measured => "measured",
        }
    }

    /// Returns the mark that follows a single number when it is neither simulated nor computed, such as `
    /// (measured)`; otherwise an empty string.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Simulated | Self::Computed => "",
            Self::Searched => " (searched)",
            Self::Measured => " (measured)",
        }
    }

    /// Describes all of `origins`: `simulated, computed or measured on SOME CPU`; `conditions` are those under which
    /// numbers were measured.
    pub fn all(origins: impl IntoIterator<Item = Self>, conditions: Option<&str>) -> String {
        let words = |origin: Self| match (origin, conditions) {
            (Self::Measured, Some(conditions)) => format!("measured on {conditions}"),
            _ => origin.words().to_owned(),
        };
        let mut parts: Vec<String> = origins.into_iter().collect::<BTreeSet<_>>().into_iter().map(words).collect();
        let last = parts.pop().unwrap_or_default();
        if parts.is_empty() { last } else { format!("{} or {last}", parts.join(", ")) }
    }
}

impl Experiment {
    /// Returns the origin of the numbers in the reports of its runs; when it has no runs, that of its quantities.
    pub fn origin(&self) -> Origin {
        match self.trial.as_deref().map(trial::find) {
            Some(Ok(trial)) if trial.kind == TrialKind::Measured => Origin::Measured,
            Some(Ok(trial)) if trial.kind == TrialKind::Simulated => Origin::Simulated,
            Some(_) => Origin::Searched,
            None if self.needs_runs() => Origin::Simulated,
            None => Origin::Computed,
        }
    }

    /// Returns the origin of the value of a check.
    pub(crate) fn origin_of(&self, value: &Value) -> Origin {
        if matches!(value, Value::Quantity { .. }) { Origin::Computed } else { self.origin() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_named_once_and_measured_ones_with_their_conditions() {
        let all = |origins: &[Origin]| Origin::all(origins.iter().copied(), Some("a CPU, load average 1.00"));
        assert_eq!(all(&[Origin::Simulated, Origin::Simulated]), "simulated");
        assert_eq!(all(&[Origin::Computed, Origin::Simulated]), "simulated or computed");
        let three = all(&[Origin::Measured, Origin::Simulated, Origin::Computed]);
        assert_eq!(three, "simulated, computed or measured on a CPU, load average 1.00");
    }
}
