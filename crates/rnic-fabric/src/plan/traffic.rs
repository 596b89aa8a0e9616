//! Options that several workloads share: operations by name, and limits of traffic.

use rnic_base::limits::{MESSAGE_BYTES_MAX, WORK_REQUESTS_MAX};

use super::{Plan, PlanError, raw};
use crate::workload::{Operation, Traffic};

pub(super) fn operation(raw: &raw::Workload, default: Option<Operation>) -> Result<Operation, PlanError> {
    let Some(name) = &raw.op else {
        return default.ok_or_else(|| PlanError::value("workload.op", "is missing"));
    };
    named("workload.op", "operation", name, &Operation::ALL)
}

/// Returns the value in `all` whose name is `name`.
pub(super) fn named<T: Copy>(
    key: &'static str,
    what: &str,
    name: &str,
    all: &[(&'static str, T)],
) -> Result<T, PlanError> {
    all.iter().find(|(known, _)| *known == name).map(|(_, found)| *found).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        PlanError::value(key, format!("unknown {what} `{name}`; there are {}", known.join(", ")))
    })
}

pub(super) fn message(key: &'static str, bytes: u64) -> Result<(), PlanError> {
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    Err(PlanError::value(key, format!("a message has at most {MESSAGE_BYTES_MAX} bytes")))
}

pub(super) fn check_traffic(traffic: &Traffic, plan: &Plan) -> Result<(), PlanError> {
    message("workload.message", traffic.message_bytes)?;
    if !(1..=WORK_REQUESTS_MAX).contains(&traffic.depth) {
        return Err(PlanError::value("workload.depth", format!("must be 1 to {WORK_REQUESTS_MAX}")));
    }
    if traffic.op.is_atomic() && traffic.message_bytes != 8 {
        return Err(PlanError::value("workload.message", "atomic operations work on 8 bytes"));
    }
    if traffic.message_bytes == 0 && traffic.count.is_none() {
        return Err(PlanError::value("workload.message", "must be above zero"));
    }
    let memory = traffic.slot_bytes(u64::MAX).saturating_mul(u64::from(traffic.depth));
    if plan.checked_payload && memory > CHECKED_MEMORY_MAX {
        let what =
            format!("depth times message, {memory} bytes, is more than the {CHECKED_MEMORY_MAX} that a flow may check");
        return Err(PlanError::value("workload.depth", what));
    }
    Ok(())
}

/// Largest memory of one end of a flow with checked bytes, in bytes.
const CHECKED_MEMORY_MAX: u64 = 4 << 30;

/// Largest number of connections of a host in a permutation or a collective: more than a NIC is required to hold
/// (Falcon, SIGCOMM'25, section 5.2).
pub(super) const CONNECTIONS_MAX: u32 = 1 << 17;
