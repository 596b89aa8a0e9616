//! The workload `collective`: conversion from the parsed to the checked plan.

use rnic_base::limits::MESSAGE_BYTES_MAX;

use super::quantity::Unit;
use super::raw;
use super::traffic::{CONNECTIONS_MAX, check_traffic, named, operation};
use super::{Plan, PlanError};
use crate::workload::Operation;
use crate::workload::collective::{CollectiveKind, CollectivePlan};

pub(super) fn resolve(raw: &raw::Workload, hosts: u32) -> Result<CollectivePlan, PlanError> {
    let missing = |key| PlanError::value(key, "is missing");
    let name = raw.collective.as_deref().ok_or_else(|| missing("workload.collective"))?;
    let kind = named("workload.collective", "collective", name, &CollectiveKind::ALL)?;
    Ok(CollectivePlan {
        kind,
        ranks: raw.ranks.unwrap_or(hosts),
        bytes: raw.bytes.as_ref().map(|Unit(bytes)| bytes.get()).ok_or_else(|| missing("workload.bytes"))?,
        count: raw.count.unwrap_or(1),
        connections: raw.connections(),
        shuffle: raw.shuffle(),
        op: operation(raw, Some(Operation::WriteImmediate))?,
    })
}

/// Checks the constraints of a collective.
pub(super) fn check(collective: &CollectivePlan, plan: &Plan) -> Result<(), PlanError> {
    let wrong = |key, what: String| Err(PlanError::value(key, what));
    let hosts = plan.topology.hosts();
    if !(2..=hosts).contains(&collective.ranks) {
        return wrong("workload.ranks", format!("must be 2 to {hosts}, the number of hosts"));
    }
    if !(1..=COUNT_MAX).contains(&collective.count) {
        return wrong("workload.count", format!("must be 1 to {COUNT_MAX}"));
    }
    if !collective.op.consumes_receive() {
        return wrong("workload.op", "must notify the receiving rank; use write-imm or send".to_owned());
    }
    if collective.connections == 0 || collective.connections_of_rank() > u64::from(CONNECTIONS_MAX) {
        return wrong(
            "workload.connections",
            format!("must be 1 or more, with at most {CONNECTIONS_MAX} connections per host"),
        );
    }
    let bytes_min = u64::from(collective.ranks) * u64::from(collective.connections);
    let connections_total = u64::from(collective.ranks) * collective.connections_of_rank();
    if connections_total > ALL_CONNECTIONS_MAX {
        return wrong(
            "workload.ranks",
            format!(
                "requires {connections_total} connections in total, which exceeds the maximum of {ALL_CONNECTIONS_MAX}"
            ),
        );
    }
    if collective.bytes < bytes_min {
        return wrong("workload.bytes", format!("must be at least {bytes_min}, one byte for each rank and connection"));
    }
    if collective.message_bytes() > MESSAGE_BYTES_MAX {
        return wrong(
            "workload.bytes",
            format!("must give each rank at most {MESSAGE_BYTES_MAX} bytes per connection"),
        );
    }
    check_traffic(&collective.traffic(), plan).or_else(|_| {
        let what =
            "is too large for checked payload, with four messages in flight on each connection; use smaller buffers \
             or payload = \"none\"";
        wrong("workload.bytes", what.to_owned())
    })
}

/// Maximum number of connections of a run: the specification of each is kept in memory.
const ALL_CONNECTIONS_MAX: u64 = 1 << 24;

/// Maximum number of collectives of a run: with this number, the steps around the longest ring of hosts can be counted
/// in 32 bits.
const COUNT_MAX: u32 = 10_000;
