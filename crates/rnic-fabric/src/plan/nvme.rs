//! The workload `nvme`: conversion from the parsed to the checked plan.

use rnic_base::limits::WORK_REQUESTS_MAX;
use rnic_base::{BitRate, Duration, Time};
use rnic_nvme::device::{QUEUE_DEPTH_MAX, Service};
use rnic_nvme::{DeviceConfig, Direction, Reads, UNIT, UNITS_MAX};

use super::quantity::Unit;
use super::raw;
use super::{Plan, PlanError};
use crate::workload::nvme::{BLOCK_LOG2, NvmePlan};

pub(super) fn resolve(raw: &raw::Workload) -> Result<NvmePlan, PlanError> {
    let missing = |key| PlanError::value(key, "is missing");
    let direction = match raw.op.as_deref() {
        Some("read") => Direction::Read,
        Some("write") => Direction::Write,
        None => return Err(PlanError::value("workload.op", "is missing; use \"read\" or \"write\"")),
        Some(_) => return Err(PlanError::value("workload.op", "must be \"read\" or \"write\" for NVMe commands")),
    };
    let drive = raw.drive.as_ref().ok_or_else(|| missing("workload.drive"))?;
    let service = |rate: &Unit<BitRate>, latency: &Unit<Duration>| Service { latency: latency.0, bandwidth: rate.0 };
    Ok(NvmePlan {
        direction,
        bytes: raw.message.as_ref().ok_or_else(|| missing("workload.message"))?.0.get(),
        depth: raw.depth(),
        from: raw.from(),
        clients: raw.clients(),
        to: raw.to.unwrap_or(1),
        local: drive.local(),
        until: Time::ZERO + raw.duration.as_ref().ok_or_else(|| missing("workload.duration"))?.0,
        reads: match drive.reads().as_str() {
            "push" => Reads::Push,
            "pull" => Reads::Pull,
            _ => return Err(PlanError::value("workload.drive.reads", "must be \"push\" or \"pull\"")),
        },
        checked: false,
        drive: DeviceConfig {
            read: service(&drive.read_rate, &drive.read_latency),
            write: service(&drive.write_rate, &drive.write_latency),
            queue_depth: drive.queue_depth,
            block_log2: BLOCK_LOG2,
        },
    })
}

/// Checks the constraints of the workload.
pub(super) fn check(nvme: &NvmePlan, plan: &Plan) -> Result<(), PlanError> {
    let wrong = |key, what: String| Err(PlanError::value(key, what));
    let hosts = plan.topology.hosts();
    if nvme.to >= hosts || nvme.clients == 0 || nvme.from >= hosts || nvme.clients > hosts - nvme.from {
        return wrong(
            "workload.clients",
            format!("is out of range: all clients, and the drive's host, must be among hosts 0 to {}", hosts - 1),
        );
    }
    if (nvme.from..nvme.from + nvme.clients).contains(&nvme.to) {
        return wrong("workload.to", "must be a host other than the clients, which start at host `from`".to_owned());
    }
    let bytes_max = u64::from(UNITS_MAX) * u64::from(UNIT);
    if nvme.bytes == 0 || nvme.bytes > bytes_max || !nvme.bytes.is_multiple_of(1 << BLOCK_LOG2) {
        return wrong(
            "workload.message",
            format!("must be a multiple of the block size of {} bytes, at most {bytes_max} bytes", 1 << BLOCK_LOG2),
        );
    }
    if plan.checked_payload && nvme.bytes > 1 << 20 {
        return wrong("workload.message", "must be at most 1 MiB with checked payload".to_owned());
    }
    if !(1..=DEPTH_MAX).contains(&nvme.depth) {
        return wrong("workload.depth", format!("must be 1 to {DEPTH_MAX}"));
    }
    if !(1..=QUEUE_DEPTH_MAX).contains(&nvme.drive.queue_depth) {
        return wrong("workload.drive.queue_depth", format!("must be 1 to {QUEUE_DEPTH_MAX}"));
    }
    let Service { latency: read_latency, bandwidth: read_rate } = nvme.drive.read;
    let Service { latency: write_latency, bandwidth: write_rate } = nvme.drive.write;
    for (key, rate) in [("workload.drive.read_rate", read_rate), ("workload.drive.write_rate", write_rate)] {
        if rate.as_bps() < 1_000_000 {
            return wrong(key, "must be at least 1Mbps".to_owned());
        }
    }
    for (key, latency) in
        [("workload.drive.read_latency", read_latency), ("workload.drive.write_latency", write_latency)]
    {
        if latency > LATENCY_MAX {
            return wrong(key, format!("must be at most {LATENCY_MAX}"));
        }
    }
    if plan.transport.protocol.falcon().is_none() {
        return wrong("transport.name", "must be `falcon` for NVMe".to_owned());
    }
    if plan.mtu < UNIT {
        return wrong("mtu", format!("must be at least {UNIT}, because an NVMe unit is one packet of {UNIT} bytes"));
    }
    if plan.nic.is_some() || plan.slow_host.is_some() {
        let what = "cannot be combined with `nic` or `slow_host`, because hosts with NVMe have no memory model; remove \
             these tables";
        return wrong("workload.kind", what.to_owned());
    }
    if plan.run.slice.is_some() {
        return wrong("run.slice", "does not apply to NVMe, which has commands instead of flows; remove it".to_owned());
    }
    Ok(())
}

/// Largest latency of a drive: twice the time that a host waits for a command before it fails.
const LATENCY_MAX: Duration = Duration::from_secs(60);
/// Maximum number of commands in flight: the capacity of a client's send queue.
const DEPTH_MAX: u32 = WORK_REQUESTS_MAX;
