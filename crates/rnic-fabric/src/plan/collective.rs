//! The workload `collective`: from what is written to what is meant.

use super::raw::{self, Unit};
use super::workloads::{CONNECTIONS_MAX, check_traffic, operation};
use super::{Plan, PlanError};
use crate::workload::Operation;
use crate::workload::collective::{CollectiveKind, CollectivePlan};

pub(super) fn resolve(raw: &raw::Workload, hosts: u32) -> Result<CollectivePlan, PlanError> {
    let missing = |key| PlanError::value(key, "is missing");
    let name = raw.collective.as_deref().ok_or_else(|| missing("workload.collective"))?;
    let kind = CollectiveKind::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| {
        let known = CollectiveKind::ALL.map(|(name, _)| name).join(", ");
        PlanError::value("workload.collective", format!("unknown collective `{name}`; there are {known}"))
    })?;
    Ok(CollectivePlan {
        kind,
        ranks: raw.ranks.unwrap_or(hosts),
        bytes: raw.bytes.as_ref().map(|Unit(bytes)| bytes.get()).ok_or_else(|| missing("workload.bytes"))?,
        count: raw.count.unwrap_or(1),
        connections: raw.connections.unwrap_or(1),
        shuffle: raw.shuffle.unwrap_or(false),
        op: operation(raw, Some(Operation::WriteImmediate))?,
    })
}

/// What must hold.
pub(super) fn check(collective: &CollectivePlan, plan: &Plan) -> Result<(), PlanError> {
    let wrong = |key, what: String| Err(PlanError::value(key, what));
    let hosts = plan.topology.hosts();
    if !(2..=hosts).contains(&collective.ranks) {
        return wrong("workload.ranks", format!("must be 2 to {hosts}, one for each host"));
    }
    if collective.bytes == 0 {
        return wrong("workload.bytes", "must be above zero".to_owned());
    }
    if !(1..=COUNT_MAX).contains(&collective.count) {
        return wrong("workload.count", format!("must be 1 to {COUNT_MAX}"));
    }
    if collective.connections == 0 || collective.connections_of_rank() > u64::from(CONNECTIONS_MAX) {
        return wrong("workload.connections", format!("must be 1 or more, and at most {CONNECTIONS_MAX} of each host"));
    }
    if !collective.op.consumes_receive() {
        return wrong("workload.op", "a rank must hear of what comes: use write-imm or send".to_owned());
    }
    check_traffic(&collective.traffic(), plan)
}

/// Collectives of a run. Times the steps of the longest ring of hosts, they have a number.
const COUNT_MAX: u32 = 10_000;
