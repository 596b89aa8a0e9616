//! The workload `nvme`: conversion from the parsed to the checked plan.

use rnic_base::limits::WORK_REQUESTS_MAX;
use rnic_base::{BitRate, Duration, Time};
use rnic_nvme::device::{QUEUE_DEPTH_MAX, Service};
use rnic_nvme::{DeviceConfig, Direction, Reads, UNIT, UNITS_MAX};

use super::raw::{self, Unit};
use super::{Plan, PlanError};
use crate::workload::nvme::{BLOCK_LOG2, NvmePlan};

pub(super) fn resolve(raw: &raw::Workload) -> Result<NvmePlan, PlanError> {
    let missing = |key| PlanError::value(key, "is missing");
    let direction = match raw.op.as_deref() {
        Some("read") => Direction::Read,
        Some("write") => Direction::Write,
        None => return Err(PlanError::value("workload.op", "is missing: \"read\" or \"write\"")),
        Some(_) => return Err(PlanError::value("workload.op", "an NVMe command is a read or a write")),
    };
    let drive = raw.drive.as_ref().ok_or_else(|| missing("workload.drive"))?;
    let service = |rate: &Unit<BitRate>, latency: &Unit<Duration>| Service { latency: latency.0, bandwidth: rate.0 };
    Ok(NvmePlan {
        direction,
        bytes: raw.message.as_ref().ok_or_else(|| missing("workload.message"))?.0.get(),
        depth: raw.depth.unwrap_or(1),
        from: raw.from.unwrap_or(0),
        clients: raw.clients.unwrap_or(1),
        to: raw.to.unwrap_or(1),
        local: drive.local,
        until: Time::ZERO + raw.duration.as_ref().ok_or_else(|| missing("workload.duration"))?.0,
        reads: match drive.reads.as_deref() {
            None | Some("push") => Reads::Push,
            Some("pull") => Reads::Pull,
            Some(_) => return Err(PlanError::value("workload.drive.reads", "must be \"push\" or \"pull\"")),
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
        return wrong("workload.clients", format!("clients and the drive's host must be among 0 to {}", hosts - 1));
    }
    if (nvme.from..nvme.from + nvme.clients).contains(&nvme.to) {
        return wrong("workload.to", "must be another host than `from` and the clients after it".to_owned());
    }
    let most = u64::from(UNITS_MAX) * u64::from(UNIT);
    if nvme.bytes == 0 || nvme.bytes > most || !nvme.bytes.is_multiple_of(1 << BLOCK_LOG2) {
        return wrong("workload.message", format!("must be whole blocks of {} bytes, up to {most}", 1 << BLOCK_LOG2));
    }
    if plan.checked_payload && nvme.bytes > 1 << 20 {
        return wrong("workload.message", "must be at most a megabyte where the payload is checked".to_owned());
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
        return wrong("transport.name", "NVMe is carried by Falcon: take `falcon`".to_owned());
    }
    if plan.mtu < UNIT {
        return wrong("mtu", format!("a unit of NVMe has {UNIT} bytes and is one packet"));
    }
    if plan.nic.is_some() || plan.slow_host.is_some() {
        let what = "hosts with NVMe have no modelled memory: leave out nic and slow_host";
        return wrong("workload.kind", what.to_owned());
    }
    if plan.run.slice.is_some() {
        return wrong("run.slice", "is for flows, and hosts with NVMe have commands".to_owned());
    }
    Ok(())
}

/// Largest latency of a drive: twice the time that a host waits for a command before it fails.
const LATENCY_MAX: Duration = Duration::from_secs(60);
/// Largest number of commands in flight: the capacity of a client's send queue.
const DEPTH_MAX: u32 = WORK_REQUESTS_MAX;
