//! Options that several workloads share: operations and sizes by name, hosts, and limits of traffic.

use rnic_base::limits::{MESSAGE_BYTES_MAX, WORK_REQUESTS_MAX};

use super::{FileReader, Plan, PlanError, raw};
use crate::workload::distribution::{BUILT_IN, Distribution, SizesForm};
use crate::workload::{Between, Operation, Traffic};

pub(super) fn operation(raw: &raw::Workload, default: Option<Operation>) -> Result<Operation, PlanError> {
    let Some(name) = &raw.op else {
        return default.ok_or_else(|| PlanError::value("workload.op", "is missing"));
    };
    named("workload.op", "operation", name, &Operation::ALL)
}

/// Returns the value in `all` whose name is `name`.
pub(super) fn named<T: Copy>(
    key: &'static str,
    noun: &str,
    name: &str,
    all: &[(&'static str, T)],
) -> Result<T, PlanError> {
    all.iter().find(|(known, _)| *known == name).map(|(_, found)| *found).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        PlanError::value(key, format!("unknown {noun} `{name}`; the valid values are {}", known.join(", ")))
    })
}

pub(super) fn message(key: &'static str, bytes: u64) -> Result<(), PlanError> {
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    Err(PlanError::value(
        key,
        format!("results in messages that are too long; a message has at most {MESSAGE_BYTES_MAX} bytes"),
    ))
}

pub(super) fn check_traffic(traffic: &Traffic, plan: &Plan) -> Result<(), PlanError> {
    message("workload.message", traffic.message_bytes)?;
    if !(1..=WORK_REQUESTS_MAX).contains(&traffic.depth) {
        return Err(PlanError::value("workload.depth", format!("must be 1 to {WORK_REQUESTS_MAX}")));
    }
    if traffic.op.is_atomic() && traffic.message_bytes != 8 {
        return Err(PlanError::value("workload.message", "must be 8 bytes for atomic operations"));
    }
    if traffic.message_bytes == 0 && traffic.count.is_none() {
        return Err(PlanError::value("workload.message", "must be above zero"));
    }
    let memory = traffic.slot_bytes(u64::MAX).saturating_mul(u64::from(traffic.depth));
    if plan.checked_payload && memory > CHECKED_MEMORY_MAX {
        let noun = format!(
            "is too large: depth times message, {memory} bytes, exceeds the {CHECKED_MEMORY_MAX} bytes per flow \
                 that can be checked"
        );
        return Err(PlanError::value("workload.depth", noun));
    }
    Ok(())
}

/// Returns a built-in distribution, a form such as `fixed:8KB`, or a distribution from a file.
pub(super) fn named_sizes(
    key: &'static str,
    name: &str,
    form: SizesForm,
    files: &mut FileReader<'_>,
) -> Result<Distribution, PlanError> {
    let is_file = name.contains(['.', '/']) && Distribution::from_form(name).is_none();
    if form != SizesForm::default() && !is_file {
        return Err(PlanError::value(key, "`shares` and `size_unit` apply to files of sizes only; remove them"));
    }
    if let Some(sizes) = Distribution::built_in(name) {
        return Ok(sizes);
    }
    if let Some(form) = Distribution::from_form(name) {
        return form.map_err(|what| PlanError::value(key, format!("`{name}`: {what}")));
    }
    if !name.contains(['.', '/']) {
        let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        let what = format!("unknown distribution `{name}`; use {known}, uniform:A-B, fixed:A, or the name of a file");
        return Err(PlanError::value(key, what));
    }
    let wrong = |what: String| PlanError::File { key, name: name.to_owned(), what };
    Distribution::from_file(&files(name).map_err(wrong)?, form).map_err(|error| wrong(error.to_string()))
}

pub(super) fn check_between(between: &Between, hosts: u32) -> Result<(), PlanError> {
    let Between { from, clients, to, servers, .. } = *between;
    if between.queue_pairs == 0 {
        return Err(PlanError::value("workload.queue_pairs", "must be above zero"));
    }
    for (first, first_key, count, key) in
        [(from, "workload.from", clients, "workload.clients"), (to, "workload.to", servers, "workload.servers")]
    {
        known_host(first_key, first, hosts)?;
        if count == 0 || count > hosts - first {
            let what =
                format!("must be 1 to {}, because only hosts {first} to {} are available", hosts - first, hosts - 1);
            return Err(PlanError::value(key, what));
        }
    }
    if from < to + servers && to < from + clients {
        let what =
            "overlaps with the clients: clients (from host `from` on) and servers (from host `to` on) must differ";
        return Err(PlanError::value("workload.to", what));
    }
    Ok(())
}

pub(super) fn known_host(key: &'static str, number: u32, hosts: u32) -> Result<(), PlanError> {
    if number < hosts {
        return Ok(());
    }
    Err(PlanError::value(
        key,
        format!("is not a host of this topology: there is no host {number}; hosts are numbered 0 to {}", hosts - 1),
    ))
}

/// Largest memory of one end of a flow with checked bytes, in bytes.
const CHECKED_MEMORY_MAX: u64 = 4 << 30;

/// Maximum number of connections of a host in a permutation or a collective: more than a NIC is required to hold
/// (Falcon, SIGCOMM'25, section 5.2).
pub(super) const CONNECTIONS_MAX: u32 = 1 << 17;
