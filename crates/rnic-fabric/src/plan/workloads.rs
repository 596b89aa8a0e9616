//! Workloads: conversion from the parsed to the checked plan.

use std::sync::Arc;

use rnic_base::limits::MESSAGE_BYTES_MAX;
use rnic_base::{Duration, Probability, Time};
use rnic_policy::FalconOrdering;

use super::raw::{self, Unit, WorkloadKind as Kind};
use super::traffic::{CONNECTIONS_MAX, check_traffic, message, named, operation};
use super::{FileReader, Plan, PlanError, collective, nvme};
use crate::link::PLAN_TIME_MAX;
use crate::workload::distribution::{Distribution, SHIPPED};
use crate::workload::{Background, Between, Operation, Traffic, WorkloadPlan, read_trace};

/// Returns the value of a required key.
macro_rules! need {
    ($raw:ident . $field:ident) => {
        $raw.$field.ok_or_else(|| PlanError::value(concat!("workload.", stringify!($field)), "is missing"))?
    };
}

pub(super) fn resolve(raw: raw::Workload, hosts: u32, files: &mut FileReader<'_>) -> Result<WorkloadPlan, PlanError> {
    reject_unused_keys(&raw)?;
    if raw.duration.as_ref().is_some_and(|duration| duration.0 == Duration::ZERO) {
        return Err(PlanError::value("workload.duration", "must be more than 0: nothing would be sent"));
    }
    match raw.kind {
        Kind::Manual => Ok(WorkloadPlan::Manual),
        Kind::Poisson => {
            let load_ppm = load_ppm(need!(raw.load).0);
            let duration = need!(raw.duration).0;
            Ok(WorkloadPlan::Poisson { load_ppm, sizes: Arc::new(sizes(&raw, files)?), duration })
        }
        Kind::Incast => Ok(WorkloadPlan::Incast {
            senders: need!(raw.senders),
            bytes: need!(raw.bytes).0.get(),
            to: raw.to.unwrap_or(0),
            jitter: raw.jitter.map_or(Duration::from_us(5), |Unit(jitter)| jitter),
            repeats: raw.repeats.unwrap_or(1),
            interval: raw.interval.map_or(Duration::ZERO, |Unit(interval)| interval),
            start: raw.start.map_or(Duration::ZERO, |Unit(start)| start),
            background: raw.background.as_ref().map(|it| background(it, &raw, files)).transpose()?,
        }),
        Kind::Permutation => {
            let (bytes, traffic) = (need!(raw.bytes).0.get(), traffic(&raw, Operation::WriteImmediate)?);
            Ok(WorkloadPlan::Permutation { bytes, connections: raw.connections.unwrap_or(1), traffic })
        }
        Kind::ClosedLoop => closed_loop(&raw),
        Kind::OpenLoop => open_loop(&raw),
        Kind::Collective => Ok(WorkloadPlan::Collective(collective::resolve(&raw, hosts)?)),
        Kind::Nvme => Ok(WorkloadPlan::Nvme(nvme::resolve(&raw)?)),
        Kind::Trace => {
            let name = need!(raw.file);
            let wrong = |what: String| PlanError::File { key: "workload.file", name: name.clone(), what };
            let text = files(&name).map_err(wrong)?;
            let flows = read_trace(&text, hosts).map_err(|error| wrong(error.to_string()))?;
            Ok(WorkloadPlan::Trace(flows.into()))
        }
    }
}

fn sizes(raw: &raw::Workload, files: &mut FileReader<'_>) -> Result<Distribution, PlanError> {
    let name = match (&raw.sizes, raw.size) {
        (None, Some(Unit(size))) => return Ok(Distribution::fixed(size.get())),
        (Some(name), None) => name,
        _ => return Err(PlanError::value("workload.sizes", "give either `sizes`, a distribution, or `size`")),
    };
    named_sizes("workload.sizes", name, files)
}

/// Returns a built-in distribution, a form such as `fixed:8KB`, or a distribution from a file.
fn named_sizes(key: &'static str, name: &str, files: &mut FileReader<'_>) -> Result<Distribution, PlanError> {
    if let Some(sizes) = Distribution::shipped(name) {
        return Ok(sizes);
    }
    if let Some(form) = Distribution::from_form(name) {
        return form.map_err(|what| PlanError::value(key, format!("`{name}`: {what}")));
    }
    if !name.contains(['.', '/']) {
        let known: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        let what = format!("unknown distribution `{name}`; there are {known}, uniform:A-B, fixed:A, or name a file");
        return Err(PlanError::value(key, what));
    }
    let wrong = |what: String| PlanError::File { key, name: name.to_owned(), what };
    Distribution::from_text(&files(name).map_err(wrong)?).map_err(|error| wrong(error.to_string()))
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
    let duration = match (raw.duration, incast.interval) {
        (Some(Unit(duration)), _) => duration,
        (None, Some(Unit(interval))) if interval > Duration::ZERO => {
            incast.start.map_or(Duration::ZERO, |Unit(start)| start) + interval * u64::from(incast.repeats.unwrap_or(1))
        }
        _ => {
            let what = "give it a duration: the incast has no interval to last for";
            return Err(PlanError::value("workload.background", what));
        }
    };
    let sizes = Arc::new(named_sizes("workload.background.sizes", &raw.sizes, files)?);
    Ok(Background { load_ppm: load_ppm(raw.load.0), sizes, duration })
}

fn traffic(raw: &raw::Workload, default: Operation) -> Result<Traffic, PlanError> {
    let message_bytes = raw.message.map_or(MESSAGE_BYTES_MAX, |Unit(message)| message.get());
    let op = operation(raw, Some(default))?;
    Ok(Traffic { op, message_bytes, depth: raw.depth.unwrap_or(1), ..Traffic::ONE_MESSAGE })
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
        _ => return Err(PlanError::value("workload.count", "give either a count of messages or a duration")),
    };
    let depth = raw.depth.unwrap_or(1);
    Ok(WorkloadPlan::ClosedLoop {
        between: between(raw),
        jitter: raw.jitter.map_or(Duration::ZERO, |Unit(jitter)| jitter),
        alternate,
        count,
        traffic: Traffic { op, message_bytes, depth, count: Some(count), latencies: true, until },
    })
}

fn open_loop(raw: &raw::Workload) -> Result<WorkloadPlan, PlanError> {
    let op = operation(raw, None)?;
    let (message_bytes, depth) = (message_bytes(raw, op)?, raw.depth.unwrap_or(1));
    let (load_ppm, until) = (load_ppm(need!(raw.load).0), Some(Time::ZERO + need!(raw.duration).0));
    let traffic = Traffic { op, message_bytes, depth, count: Some(u32::MAX), latencies: true, until };
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
        from: raw.from.unwrap_or(0),
        clients: raw.clients.unwrap_or(1),
        to: raw.to.unwrap_or(1),
        servers: raw.servers.unwrap_or(1),
        queue_pairs: raw.queue_pairs.unwrap_or(1),
    }
}

/// Rejects keys that this kind of workload does not use.
fn reject_unused_keys(raw: &raw::Workload) -> Result<(), PlanError> {
    match KEYS.iter().find(|(_, is_given, kinds)| is_given(raw) && !kinds.contains(&raw.kind)) {
        Some((key, ..)) => Err(PlanError::value(key, format!("means nothing for the workload `{}`", raw.kind.name()))),
        None => Ok(()),
    }
}

/// Returns the keys of the table `workload` that are valid for the workload `kind`, in addition to `kind`.
pub(super) fn keys_of(kind: &str) -> impl Iterator<Item = &'static str> {
    let rows = KEYS.iter().filter(move |(_, _, kinds)| kinds.iter().any(|of| of.name() == kind));
    rows.map(|(key, ..)| key.strip_prefix("workload.").unwrap_or(key))
}

/// A key, a function that returns whether a plan has it, and the workloads that accept it.
type Key = (&'static str, fn(&raw::Workload) -> bool, &'static [Kind]);

const KEYS: &[Key] = {
    use Kind::{ClosedLoop, Collective, Incast, Nvme, OpenLoop, Permutation, Poisson, Trace};
    &[
        ("workload.load", |raw| raw.load.is_some(), &[Poisson, OpenLoop]),
        ("workload.sizes", |raw| raw.sizes.is_some(), &[Poisson]),
        ("workload.size", |raw| raw.size.is_some(), &[Poisson]),
        ("workload.duration", |raw| raw.duration.is_some(), &[Poisson, ClosedLoop, OpenLoop, Nvme]),
        ("workload.senders", |raw| raw.senders.is_some(), &[Incast]),
        ("workload.bytes", |raw| raw.bytes.is_some(), &[Incast, Permutation, Collective]),
        ("workload.from", |raw| raw.from.is_some(), &[ClosedLoop, OpenLoop, Nvme]),
        ("workload.to", |raw| raw.to.is_some(), &[Incast, ClosedLoop, OpenLoop, Nvme]),
        ("workload.jitter", |raw| raw.jitter.is_some(), &[Incast, ClosedLoop]),
        ("workload.repeats", |raw| raw.repeats.is_some(), &[Incast]),
        ("workload.interval", |raw| raw.interval.is_some(), &[Incast]),
        ("workload.start", |raw| raw.start.is_some(), &[Incast]),
        ("workload.background", |raw| raw.background.is_some(), &[Incast]),
        ("workload.op", |raw| raw.op.is_some(), &[Permutation, ClosedLoop, OpenLoop, Collective, Nvme]),
        ("workload.message", |raw| raw.message.is_some(), &[Permutation, ClosedLoop, OpenLoop, Nvme]),
        ("workload.depth", |raw| raw.depth.is_some(), &[Permutation, ClosedLoop, OpenLoop, Nvme]),
        ("workload.queue_pairs", |raw| raw.queue_pairs.is_some(), &[ClosedLoop, OpenLoop]),
        ("workload.connections", |raw| raw.connections.is_some(), &[Permutation, Collective]),
        ("workload.clients", |raw| raw.clients.is_some(), &[ClosedLoop, OpenLoop, Nvme]),
        ("workload.servers", |raw| raw.servers.is_some(), &[ClosedLoop, OpenLoop]),
        ("workload.count", |raw| raw.count.is_some(), &[ClosedLoop, Collective]),
        ("workload.collective", |raw| raw.collective.is_some(), &[Collective]),
        ("workload.ranks", |raw| raw.ranks.is_some(), &[Collective]),
        ("workload.shuffle", |raw| raw.shuffle.is_some(), &[Collective]),
        ("workload.file", |raw| raw.file.is_some(), &[Trace]),
        ("workload.drive", |raw| raw.drive.is_some(), &[Nvme]),
    ]
};

/// Checks the constraints of the workload.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let hosts = plan.topology.hosts();
    let ordering = plan.transport.protocol.falcon().map(|shape| shape.ordering);
    if ordering == Some(FalconOrdering::Unordered)
        && !matches!(plan.workload, WorkloadPlan::Manual | WorkloadPlan::Nvme(_))
    {
        let what = "workloads wait for completions in order: use ordered or weak, or post work by hand";
        return Err(PlanError::value("transport.ordering", what));
    }
    match &plan.workload {
        WorkloadPlan::Manual => Ok(()),
        WorkloadPlan::Trace(flows) => {
            let most = carried(plan);
            let largest = flows.iter().map(|flow| flow.bytes).max().unwrap_or(0);
            if largest > most {
                let what = format!("a flow of {largest} bytes lasts longer than the longest run, {PLAN_TIME_MAX}");
                return Err(PlanError::value("workload.file", what));
            }
            Ok(())
        }
        WorkloadPlan::Collective(collective) => collective::check(collective, plan),
        WorkloadPlan::Nvme(drive) => nvme::check(drive, plan),
        WorkloadPlan::Poisson { load_ppm, .. } => load("workload.load", *load_ppm),
        WorkloadPlan::Incast { senders, bytes, to, repeats, background, .. } => {
            if let Some(background) = background {
                load("workload.background.load", background.load_ppm)?;
            }
            known_host("workload.to", *to, hosts)?;
            if plan.workload.latest_start() > Time::ZERO + PLAN_TIME_MAX {
                let what = format!("the last request begins after the longest run, {PLAN_TIME_MAX}");
                return Err(PlanError::value("workload.interval", what));
            }
            if u64::from(*repeats) * u64::from(*senders) > FLOWS_MAX {
                let what = format!("times the senders must be at most {FLOWS_MAX} flows");
                return Err(PlanError::value("workload.repeats", what));
            }
            if !(1..hosts).contains(senders) {
                return Err(PlanError::value("workload.senders", format!("must be 1 to {}", hosts - 1)));
            }
            message("workload.bytes", bytes.div_ceil(u64::from(*senders)))
        }
        WorkloadPlan::Permutation { bytes, connections, traffic } => {
            if *bytes == 0 || *bytes > carried(plan) {
                let what = format!("must be above zero, and at most what a host sends in {PLAN_TIME_MAX}");
                return Err(PlanError::value("workload.bytes", what));
            }
            if !(1..=CONNECTIONS_MAX).contains(connections) || u64::from(*connections) > *bytes {
                let what = format!("must be 1 to {CONNECTIONS_MAX}, each with a byte to send");
                return Err(PlanError::value("workload.connections", what));
            }
            check_traffic(traffic, plan)
        }
        WorkloadPlan::ClosedLoop { between, count, traffic, .. } => {
            check_between(between, hosts)?;
            if *count == 0 {
                return Err(PlanError::value("workload.count", "must be above zero"));
            }
            check_traffic(traffic, plan)
        }
        WorkloadPlan::OpenLoop { between, load_ppm, traffic } => {
            load("workload.load", *load_ppm)?;
            check_between(between, hosts)?;
            if traffic.message_bytes == 0 {
                return Err(PlanError::value("workload.message", "must be above zero"));
            }
            check_traffic(traffic, plan)
        }
    }
}

/// Returns the bytes that a host's link carries in the longest run; the duration of larger transfers could not be
/// represented.
fn carried(plan: &Plan) -> u64 {
    plan.host_links.rate.bytes_in(PLAN_TIME_MAX)
}

fn check_between(between: &Between, hosts: u32) -> Result<(), PlanError> {
    let Between { from, clients, to, servers, .. } = *between;
    if between.queue_pairs == 0 {
        return Err(PlanError::value("workload.queue_pairs", "must be above zero"));
    }
    for (first, first_key, count, key) in
        [(from, "workload.from", clients, "workload.clients"), (to, "workload.to", servers, "workload.servers")]
    {
        known_host(first_key, first, hosts)?;
        if count == 0 || count > hosts - first {
            let what = format!("must be 1 to {}: hosts from {first} to {}", hosts - first, hosts - 1);
            return Err(PlanError::value(key, what));
        }
    }
    if from < to + servers && to < from + clients {
        let what = "must be another host than `from` and the clients after it, and so must the servers after it";
        return Err(PlanError::value("workload.to", what));
    }
    Ok(())
}

fn known_host(key: &'static str, number: u32, hosts: u32) -> Result<(), PlanError> {
    if number < hosts {
        return Ok(());
    }
    Err(PlanError::value(key, format!("there is no host {number}; there are 0 to {}", hosts - 1)))
}

fn load(key: &'static str, load_ppm: u64) -> Result<(), PlanError> {
    let possible = (1..=1_000_000).contains(&load_ppm);
    if possible { Ok(()) } else { Err(PlanError::value(key, "must be above 0 and at most 100%")) }
}

/// Largest number of flows that are created in advance and kept in memory.
const FLOWS_MAX: u64 = 1 << 24;
