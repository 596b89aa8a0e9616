//! Runs the search for schedules that end in a deadlock ([`rnic_falcon::search`]), with the parameters of an
//! experiment.

#[cfg(test)]
mod tests;

use rnic_falcon::resources::Carving;
use rnic_falcon::search::net::Scenario;
use rnic_falcon::search::run_schedules;
use rnic_falcon::transaction::Ordering;
use serde::Deserialize;

use super::{Trial, TrialKind, read, within};

/// The deadlock search trial.
pub const TRIAL: Trial = Trial {
    name: "deadlock",
    kind: TrialKind::Searched,
    numbers: &["schedules", "deadlocks", "held", "transactions"],
    series: &[],
    cost: |arguments| checked(arguments).map(|search| search.schedules * SCHEDULE_BYTES),
    run: |arguments, seed| {
        let search = checked(arguments)?;
        // Searches of equal length with other seeds run other schedules.
        let first = seed.wrapping_mul(search.schedules);
        let found = run_schedules(search.scenario(), first, search.schedules);
        Ok(serde_json::json!({
            "schedules": found.schedules,
            "deadlocks": found.deadlocks,
            "held": found.held,
            "transactions": found.transactions,
            // Schedule number with which a test can replay it.
            "first_deadlock": found.first,
        }))
    },
};

/// Arguments of a search: the traffic, the number of schedules, and the mechanisms in use against deadlocks.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    traffic: Traffic,
    #[serde(with = "OrderingName")]
    ordering: Ordering,
    schedules: u64,
    /// Division of the resources into separate pools.
    #[serde(default, with = "CarvingName")]
    carving: Carving,
    /// True when, if resources are scarce, only requests at the head of the line are admitted.
    #[serde(default = "default_true")]
    head_of_line: bool,
    /// True when the two windows have separate sequence spaces.
    #[serde(default = "default_true")]
    separate_spaces: bool,
    /// True when a context is reserved for messages that have started; has no effect if the types of resources share a
    /// pool.
    #[serde(default = "default_true")]
    reserve: bool,
    /// Isolation mechanism that limits the resources of a connection.
    #[serde(default)]
    isolation: Shares,
}

fn default_true() -> bool {
    true
}

/// Traffic of the upper layers.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Traffic {
    Mixed,
    Pulls,
    Messages,
}

/// Names of [`Ordering`] in arguments.
#[derive(Deserialize)]
#[serde(remote = "Ordering", rename_all = "kebab-case")]
enum OrderingName {
    Ordered,
    Unordered,
}

/// Names of [`Carving`] in arguments.
#[derive(Deserialize)]
#[serde(remote = "Carving", rename_all = "kebab-case")]
enum CarvingName {
    Full,
    SharedDirections,
    SharedClasses,
    None,
}

/// Names of the [types of isolation](Scenario::ISOLATIONS) in arguments, in their order.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Shares {
    #[default]
    None,
    Static,
    Dynamic,
}

impl Search {
    /// Returns the scenario in which the search runs.
    fn scenario(&self) -> Scenario {
        let mut scenario = match self.traffic {
            Traffic::Mixed => Scenario::MIXED,
            Traffic::Pulls => Scenario::PULLS,
            Traffic::Messages => Scenario::MESSAGES,
        };
        scenario = scenario.with_ordering(self.ordering).with_carving(self.carving);
        scenario = scenario.with_isolation(Scenario::ISOLATIONS[self.isolation as usize]);
        if !self.head_of_line {
            scenario = scenario.without_head_of_line();
        }
        if !self.reserve {
            scenario = scenario.without_reserve();
        }
        Scenario { shared_space: !self.separate_spaces, ..scenario }
    }
}

fn checked(arguments: &toml::Table) -> Result<Search, String> {
    let search: Search = read(arguments)?;
    within("schedules", search.schedules, 1, SCHEDULES_MAX)?;
    Ok(search)
}

/// Cost of a schedule in bytes: the fabric simulates about 0.4 GB per second on a core, in packets of 1 KB, and here it
/// is 30 thousand schedules per second.
const SCHEDULE_BYTES: u64 = 15_000;
/// Maximum number of schedules: about a day's search.
const SCHEDULES_MAX: u64 = 1 << 32;
