//! Workloads: conversion from the parsed to the checked plan.

use std::sync::Arc;

use rnic_base::limits::MESSAGE_BYTES_MAX;
use rnic_base::{Duration, Probability, Time};
use rnic_policy::{FalconOrdering, Profile};

use super::quantity::Unit;
use super::raw::{self, WorkloadKind as Kind};
use super::schema::reject_unused_keys;
use super::traffic::{
    CONNECTIONS_MAX, check_between, check_traffic, known_host, message, named, named_sizes, operation,
};
use super::{FileReader, Plan, PlanError, TraceFiles, chakra, collective, nvme, tenants};
use crate::link::PLAN_TIME_MAX;
use crate::workload::distribution::{Distribution, ShareMeaning, SizesForm};
use crate::workload::{Background, Between, FlowFile, FlowFormat, Operation, Traffic, WorkloadPlan, read_flows};

/// Returns the value of a required key.
macro_rules! need {
    ($raw:ident . $field:ident) => {
        $raw.$field.as_ref().ok_or_else(|| PlanError::value(concat!("workload.", stringify!($field)), "is missing"))?
    };
}

pub(super) fn resolve(
    raw: &raw::Workload,
    hosts: u32,
    files: &mut FileReader<'_>,
    traces: &mut dyn TraceFiles,
) -> Result<WorkloadPlan, PlanError> {
    reject_unused_keys(raw, raw.kind, "workload", "workload")?;
    if raw.duration.as_ref().is_some_and(|duration| duration.0 == Duration::ZERO) {
        return Err(PlanError::value("workload.duration", "must be above zero"));
    }
    match raw.kind {
        Kind::Manual => Ok(WorkloadPlan::Manual),
        Kind::Poisson => {
            let load_ppm = load_ppm(need!(raw.load).0);
            let duration = need!(raw.duration).0;
            let op = operation_with_data(raw)?;
            Ok(WorkloadPlan::Poisson { load_ppm, sizes: Arc::new(sizes(raw, files)?), duration, op })
        }
        Kind::Incast => Ok(WorkloadPlan::Incast {
            senders: *need!(raw.senders),
            bytes: need!(raw.bytes).0.get(),
            to: raw.to.unwrap_or(0),
            jitter: raw.jitter.map_or(Duration::from_us(5), |Unit(jitter)| jitter),
            repeats: raw.repeats(),
            interval: raw.interval().0,
            start: raw.start().0,
            background: raw.background.as_ref().map(|table| background(table, raw, files)).transpose()?,
            op: operation_with_data(raw)?,
        }),
        Kind::Permutation => {
            let (bytes, traffic) = (need!(raw.bytes).0.get(), traffic(raw, Operation::WriteImmediate)?);
            Ok(WorkloadPlan::Permutation { bytes, connections: raw.connections(), traffic })
        }
        Kind::ClosedLoop => closed_loop(raw),
        Kind::OpenLoop => open_loop(raw),
        Kind::Collective => Ok(WorkloadPlan::Collective(collective::resolve(raw, hosts)?)),
        Kind::Tenants => Ok(WorkloadPlan::Tenants(tenants::resolve(raw, files)?)),
        Kind::Nvme => Ok(WorkloadPlan::Nvme(nvme::resolve(raw)?)),
        Kind::Trace => {
            let name = need!(raw.file);
            let wrong = |what: String| PlanError::File { key: "workload.file", name: name.clone(), what };
            let text = files(name).map_err(wrong)?;
            let format = raw.format.map(|format| match format {
                raw::FlowFileFormat::List => FlowFormat::List,
                raw::FlowFileFormat::Csv => FlowFormat::Csv,
                raw::FlowFileFormat::Hpcc => FlowFormat::Hpcc,
                raw::FlowFileFormat::Htsim => FlowFormat::Htsim,
            });
            let flows = read_flows(&text, format, hosts).map_err(|error| wrong(error.to_string()))?;
            Ok(WorkloadPlan::Trace(Arc::new(flows)))
        }
        Kind::Chakra => Ok(WorkloadPlan::Chakra(chakra::resolve(raw, need!(raw.file), hosts, traces)?)),
    }
}

fn sizes(raw: &raw::Workload, files: &mut FileReader<'_>) -> Result<Distribution, PlanError> {
    let name = match (&raw.sizes, raw.size) {
        (None, Some(Unit(size))) => return Ok(Distribution::fixed(size.get())),
        (Some(name), None) => name,
        _ => {
            return Err(PlanError::value(
                "workload.sizes",
                "is ambiguous or missing; give exactly one of `sizes` (a distribution) and `size`",
            ));
        }
    };
    let shares = raw.shares.map(|shares| match shares {
        raw::Shares::Cumulative => ShareMeaning::Cumulative,
        raw::Shares::Each => ShareMeaning::Each,
    });
    let form = SizesForm { shares, unit: raw.size_unit.map(|Unit(unit)| unit.get()) };
    named_sizes("workload.sizes", name, form, files)
}

fn load_ppm(load: Probability) -> u64 {
    (load.as_f64() * 1e6).round() as u64
}

/// Returns the background traffic of an incast: by default it lasts for the intervals of all requests.
fn background(
    raw: &raw::Background,
    incast: &raw::Workload,
    files: &mut FileReader<'_>,
) -> Result<Background, PlanError> {
    let duration = match (raw.duration, incast.interval()) {
        (Some(Unit(duration)), _) => duration,
        (None, Unit(interval)) if interval > Duration::ZERO => {
            incast.start().0 + interval * u64::from(incast.repeats())
        }
        _ => {
            let what = "needs a `duration`, because the incast has no `interval` from which one follows";
            return Err(PlanError::value("workload.background", what));
        }
    };
    let sizes = Arc::new(named_sizes("workload.background.sizes", &raw.sizes, SizesForm::default(), files)?);
    Ok(Background { load_ppm: load_ppm(raw.load.0), sizes, duration })
}

fn traffic(raw: &raw::Workload, default: Operation) -> Result<Traffic, PlanError> {
    let message_bytes = raw.message.map_or(MESSAGE_BYTES_MAX, |Unit(message)| message.get());
    let op = operation(raw, Some(default))?;
    Ok(Traffic { op, message_bytes, depth: raw.depth(), ..Traffic::ONE_MESSAGE })
}

/// Returns the operation of flows that carry data from their source.
fn operation_with_data(raw: &raw::Workload) -> Result<Operation, PlanError> {
    let Some(name) = &raw.op else { return Ok(Operation::WriteImmediate) };
    let all: Vec<_> = Operation::ALL.into_iter().filter(|(_, op)| op.carries_data()).collect();
    named("workload.op", "operation of these flows", name, &all)
}

fn closed_loop(raw: &raw::Workload) -> Result<WorkloadPlan, PlanError> {
    let mut operations: Vec<_> = Operation::ALL.iter().map(|(name, op)| (*name, (*op, None))).collect();
    operations.push(("read-write", (Operation::Write, Some(Operation::Read))));
    let name = raw.op.as_deref().ok_or_else(|| PlanError::value("workload.op", "is missing"))?;
    let (op, alternate) = named("workload.op", "operation", name, &operations)?;
    let message_bytes = message_bytes(raw, op)?;
    let (count, until) = match (raw.count, raw.duration) {
        (Some(count), None) => (count, None),
        (None, Some(Unit(duration))) => (u32::MAX, Some(Time::ZERO + duration)),
        _ => {
            return Err(PlanError::value(
                "workload.count",
                "is ambiguous or missing; give either `count`, a number of messages, or `duration`",
            ));
        }
    };
    let depth = raw.depth();
    Ok(WorkloadPlan::ClosedLoop {
        between: between(raw),
        jitter: raw.jitter.map_or(Duration::ZERO, |Unit(jitter)| jitter),
        alternate,
        count,
        traffic: Traffic { op, message_bytes, depth, count: Some(count), latencies: true, until, think: raw.think().0 },
    })
}

fn open_loop(raw: &raw::Workload) -> Result<WorkloadPlan, PlanError> {
    let op = operation(raw, None)?;
    let (message_bytes, depth) = (message_bytes(raw, op)?, raw.depth());
    let (load_ppm, until) = (load_ppm(need!(raw.load).0), Some(Time::ZERO + need!(raw.duration).0));
    let traffic =
        Traffic { op, message_bytes, depth, count: Some(u32::MAX), latencies: true, until, ..Traffic::ONE_MESSAGE };
    Ok(WorkloadPlan::OpenLoop { between: between(raw), load_ppm, traffic })
}

fn message_bytes(raw: &raw::Workload, op: Operation) -> Result<u64, PlanError> {
    match raw.message {
        Some(Unit(message)) => Ok(message.get()),
        None if op.is_atomic() => Ok(8),
        None => Err(PlanError::value("workload.message", "is missing")),
    }
}

fn between(raw: &raw::Workload) -> Between {
    Between {
        from: raw.from(),
        clients: raw.clients(),
        to: raw.to.unwrap_or(1),
        servers: raw.servers(),
        queue_pairs: raw.queue_pairs(),
    }
}

/// Checks the constraints of `workload`, whose queue pairs use `transport`.
pub(super) fn check(workload: &WorkloadPlan, transport: &Profile, plan: &Plan) -> Result<(), PlanError> {
    let hosts = plan.topology.hosts();
    let ordering = transport.protocol.falcon().map(|shape| shape.ordering);
    if ordering == Some(FalconOrdering::Unordered) && !matches!(workload, WorkloadPlan::Manual | WorkloadPlan::Nvme(_))
    {
        let what = "must be `ordered` or `weak`, because this workload waits for completions in order";
        return Err(PlanError::value("transport.ordering", what));
    }
    match workload {
        // A group is never several groups.
        WorkloadPlan::Manual | WorkloadPlan::Groups(_) => Ok(()),
        WorkloadPlan::Chakra(chakra) => chakra::check(chakra, plan),
        WorkloadPlan::Trace(file) => check_flows(file, plan),
        WorkloadPlan::Collective(collective) => collective::check(collective, plan),
        WorkloadPlan::Nvme(drive) => nvme::check(drive, plan),
        WorkloadPlan::Tenants(tenants) => tenants::check(tenants, plan),
        WorkloadPlan::Poisson { load_ppm, .. } => check_load("workload.load", *load_ppm),
        WorkloadPlan::Incast { senders, bytes, to, repeats, background, .. } => {
            if let Some(background) = background {
                check_load("workload.background.load", background.load_ppm)?;
            }
            known_host("workload.to", *to, hosts)?;
            if workload.latest_start() > Time::ZERO + PLAN_TIME_MAX {
                let what = format!("is too long: the last request starts later than {PLAN_TIME_MAX}, the longest run");
                return Err(PlanError::value("workload.interval", what));
            }
            if u64::from(*repeats) * u64::from(*senders) > FLOWS_MAX {
                let what = format!("is too large: repeats times senders must be at most {FLOWS_MAX} flows");
                return Err(PlanError::value("workload.repeats", what));
            }
            if !(1..hosts).contains(senders) {
                return Err(PlanError::value("workload.senders", format!("must be 1 to {}", hosts - 1)));
            }
            message("workload.bytes", bytes.div_ceil(u64::from(*senders)))
        }
        WorkloadPlan::Permutation { bytes, connections, traffic } => {
            if *bytes == 0 || *bytes > bytes_in_longest_run(plan) {
                let what = format!("must be above zero, and at most the bytes that a host sends in {PLAN_TIME_MAX}");
                return Err(PlanError::value("workload.bytes", what));
            }
            if !(1..=CONNECTIONS_MAX).contains(connections) || u64::from(*connections) > *bytes {
                let what = format!("must be 1 to {CONNECTIONS_MAX}, with at least one byte for each connection");
                return Err(PlanError::value("workload.connections", what));
            }
            check_traffic(traffic, plan)
        }
        WorkloadPlan::ClosedLoop { between, count, traffic, .. } => {
            check_between(between, hosts)?;
            if *count == 0 {
                return Err(PlanError::value("workload.count", "must be above zero"));
            }
            if traffic.think > PLAN_TIME_MAX {
                let what = format!("must be at most {PLAN_TIME_MAX}, the longest run");
                return Err(PlanError::value("workload.think", what));
            }
            check_traffic(traffic, plan)
        }
        WorkloadPlan::OpenLoop { between, load_ppm, traffic } => {
            check_load("workload.load", *load_ppm)?;
            check_between(between, hosts)?;
            if traffic.message_bytes == 0 {
                return Err(PlanError::value("workload.message", "must be above zero"));
            }
            check_traffic(traffic, plan)
        }
    }
}

fn check_flows(file: &FlowFile, plan: &Plan) -> Result<(), PlanError> {
    let largest = file.flows.iter().map(|flow| flow.bytes).max().unwrap_or(0);
    if largest > bytes_in_longest_run(plan) {
        let what = format!("has a flow of {largest} bytes; a flow must end within {PLAN_TIME_MAX}");
        return Err(PlanError::value("workload.file", what));
    }
    Ok(())
}

/// Returns the number of bytes that a host's link carries in the longest simulated time that a plan may have. Larger
/// transfers are refused, because their duration could not be represented.
fn bytes_in_longest_run(plan: &Plan) -> u64 {
    plan.host_links.rate.bytes_in(PLAN_TIME_MAX)
}

fn check_load(key: &'static str, load_ppm: u64) -> Result<(), PlanError> {
    let in_range = (1..=1_000_000).contains(&load_ppm);
    if in_range { Ok(()) } else { Err(PlanError::value(key, "must be above 0 and at most 100%")) }
}

/// Maximum number of flows that are created in advance and kept in memory.
const FLOWS_MAX: u64 = 1 << 24;
