//! Conversion from the parsed to the checked plan.

use rnic_base::limits::{MTU_MAX, MTU_MIN, READS_IN_PROGRESS_MAX};
use rnic_base::{Duration, Time, plain};
use rnic_policy::Signals;
use serde::Deserialize;

use super::raw::Raw;
use super::{
    FileReader, Plan, PlanError, RunPlan, TopologyPlan, TraceFiles, classes, derived, faults, fitted, groups, hints,
    keys, nic, processors, raw, record, scr, slow_host, switches, topologies, transports,
};
use crate::link::PLAN_TIME_MAX;
use crate::link_spec::{DELAY_MAX, DELAY_MIN, RATE_MAX, RATE_MIN};

/// Parses the text, with some keys replaced.
pub(super) fn read(text: &str, overrides: &[(&str, &str)]) -> Result<Raw, PlanError> {
    let line_at = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let syntax = |error: &toml::de::Error| PlanError::Syntax {
        line: error.span().map_or(1, |span| line_at(span.start)),
        what: plain::explained(error.message()),
    };
    if overrides.is_empty() {
        let deserializer = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
        return serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let inner = error.inner();
            let line = inner.span().map(|span| line_at(span.start));
            key_error(path_of(&error), line, inner.message())
        });
    }
    let mut table: toml::Table = text.parse().map_err(|error| syntax(&error))?;
    for (key, value) in overrides {
        replace(&mut table, key, value)?;
    }
    let value = toml::Value::Table(table);
    serde_path_to_error::deserialize(value).map_err(|error| key_error(path_of(&error), None, error.inner().message()))
}

fn path_of(error: &serde_path_to_error::Error<toml::de::Error>) -> String {
    let path = error.path().to_string();
    if path == "." { hints::TOP_LEVEL.to_owned() } else { path }
}

/// Returns the error that the parser has reported for `path`, or for a key of the group of traffic there.
fn key_error(path: String, line: Option<usize>, what: &str) -> PlanError {
    let (key, what) = match raw::Traffic::wrong_key(what) {
        Some((key, what)) => (format!("{path}.{key}"), what),
        None => (path, what),
    };
    let what = plain::explained(what);
    let hint = hints::hint(&key, &what);
    PlanError::Key { key, line, what: what + &hint }
}

/// Sets `key`, a path with dots, to `value`.
fn replace(table: &mut toml::Table, key: &str, value: &str) -> Result<(), PlanError> {
    let wrong = |what: &str| PlanError::Key { key: key.to_owned(), line: None, what: what.to_owned() };
    let parsed = toml::de::ValueDeserializer::parse(value).and_then(toml::Value::deserialize);
    let is_too_large =
        |text: &str| text.parse::<i64>().is_err_and(|error| *error.kind() == core::num::IntErrorKind::PosOverflow);
    let value = match parsed {
        Ok(value) => value,
        // Otherwise it would be treated as a text, and the error would report a text.
        Err(_) if is_too_large(value) => return Err(wrong(&format!("{value} is too large for any numeric key"))),
        // A value that starts like a list, a table or a quoted text was meant as one.
        Err(error) if value.starts_with(['[', '{', '"', '\'']) => {
            return Err(wrong(&format!("{value}: {}", error.message())));
        }
        Err(_) => toml::Value::String(value.to_owned()),
    };
    if key.is_empty() || key.ends_with('.') {
        return Err(wrong("the key is empty; use KEY=VALUE with a key such as links.rate"));
    }
    keys::insert(table, key, value).map_err(|what| wrong(&what))
}

/// Converts the parsed plan, with defaults for missing values.
pub(super) fn resolve(raw: Raw, files: &mut FileReader<'_>, traces: &mut dyn TraceFiles) -> Result<Plan, PlanError> {
    let topology = topologies::resolve(&raw, files)?;
    let [host_links, fabric_links, core_links] = topologies::links(&raw, &topology)?;
    let fabric = raw.links.as_ref().and_then(|links| links.fabric.as_ref());
    let raw_run = raw.run();
    let run = RunPlan {
        limit: Time::ZERO + raw_run.limit.map_or(Duration::ZERO, |limit| limit.0),
        stall_after: raw_run.stall_after.map_or(Duration::ZERO, |stall| stall.0),
        warmup: raw_run.warmup().0,
        cooldown: raw_run.cooldown().0,
        slice: raw_run.slice.map(|slice| slice.0),
        latency_parts: raw_run.latency_parts(),
    };
    let network = network_signals(raw.switch.as_ref(), raw.scr.as_ref(), &topology);
    let options = default_transport(&raw)?;
    let name = transports::name_of(options)?;
    let mut plan = Plan {
        name: raw.name(),
        mtu: raw.mtu(),
        reads: raw.reads(),
        checked_payload: raw.payload() == raw::Payload::Checked,
        encoded: raw.wire() == raw::Wire::Encoded,
        workload: groups::resolve(&raw, network, topology.hosts(), files, traces)?,
        topology,
        host_links,
        fabric_links,
        core_links,
        spine_rates: fabric.map_or_else(Vec::new, |fabric| fabric.spines().iter().map(|rate| rate.0).collect()),
        switch: None,
        classes: Vec::new(),
        transport: transports::select(network, name, &[])?,
        nic: None,
        processors: None,
        slow_host: raw.slow_host.as_ref().map(slow_host::resolve),
        scr: None,
        faults: Vec::new(),
        run,
        record: raw.record.as_ref().map(record::resolve),
        trace: record::resolve_trace(&raw.trace()),
    };
    check_network(&plan)?;
    check_cooldown(&plan)?;
    if raw_run.limit.is_none() {
        plan.run.limit = fitted::limit(&plan.workload);
    }
    plan.switch = raw.switch.as_ref().map(|switch| switches::resolve(switch, &plan, 1)).transpose()?;
    plan.faults = faults::resolve(&raw.fault(), &plan)?;
    plan.classes = classes::resolve(&raw, &plan)?;
    plan.transport = transports::resolve(name, options, network, &plan, plan.switch.as_slice())?;
    groups::apply_options(&raw, network, &mut plan)?;
    if raw_run.stall_after.is_none() {
        plan.run.stall_after = plan.transports().into_iter().map(fitted::stall_timeout).max().unwrap_or_default();
    }
    plan.processors = raw.processors.as_ref().map(|raw| processors::resolve(raw, plan.host_links.rate)).transpose()?;
    plan.scr = raw.scr.as_ref().and_then(|scr| scr::resolve(scr, &plan));
    plan.nic = raw.nic.as_ref().map(|nic| nic::resolve(nic, &plan)).transpose()?.flatten();
    Ok(plan)
}

/// Checks that a cooldown is used only with a workload that ends at a given time, and that some time remains between
/// warm-up and cooldown.
fn check_cooldown(plan: &Plan) -> Result<(), PlanError> {
    let cooldown = plan.run.cooldown;
    if cooldown == Duration::ZERO {
        return Ok(());
    }
    let wrong = |what: &str| Err(PlanError::value("run.cooldown", what));
    match plan.workload.ends() {
        None => wrong("requires a workload with a `workload.duration`"),
        Some(until) if Time::ZERO + plan.run.warmup + cooldown >= until => {
            wrong("leaves no time between the warm-up and the cooldown; make `workload.duration` longer")
        }
        Some(_) => Ok(()),
    }
}

/// Returns the options of the plan's transport; without one, those of the first group of traffic.
fn default_transport(raw: &Raw) -> Result<&std::collections::BTreeMap<String, toml::Value>, PlanError> {
    let of_groups = raw.traffic.iter().flatten().find_map(|(_, group)| group.transport.as_ref());
    let transport = raw.transport.as_ref().or(of_groups);
    let missing = || PlanError::value("transport", "is missing; name one, such as \"irn\"");
    transport.map(|transport| &transport.0).ok_or_else(missing)
}

/// Returns the signals that switches and messages between NICs provide, in addition to what the hosts measure
/// themselves.
fn network_signals(switch: Option<&raw::Switch>, scr: Option<&raw::Scr>, topology: &TopologyPlan) -> Signals {
    let csig = switch.and_then(|switch| switch.csig.as_ref());
    let is_stamped = csig.is_some_and(raw::Csig::enabled) && *topology != TopologyPlan::PointToPoint;
    let stamps = if is_stamped { Signals::CSIG } else { Signals::NONE };
    let probes = if scr.is_some_and(raw::Scr::enabled) { Signals::PROBES } else { Signals::NONE };
    stamps | probes
}

/// Checks the properties of the network from which other values are computed.
fn check_network(plan: &Plan) -> Result<(), PlanError> {
    if !(MTU_MIN..=MTU_MAX).contains(&plan.mtu) || !plan.mtu.is_multiple_of(4) {
        return Err(PlanError::value("mtu", format!("must be a multiple of 4 from {MTU_MIN} to {MTU_MAX}")));
    }
    if !(1..=READS_IN_PROGRESS_MAX).contains(&plan.reads) {
        return Err(PlanError::value("reads", format!("must be 1 to {READS_IN_PROGRESS_MAX}")));
    }
    for (rate_key, delay_key, link) in [
        ("links.rate", "links.delay", plan.host_links),
        ("links.fabric.rate", "links.fabric.delay", plan.fabric_links),
        ("links.core.rate", "links.core.delay", plan.core_links),
    ] {
        if !(RATE_MIN..=RATE_MAX).contains(&link.rate.as_bps()) {
            return Err(PlanError::value(rate_key, "must be between 1Mbps and 10Tbps"));
        }
        if !(DELAY_MIN..=DELAY_MAX).contains(&link.delay) {
            return Err(PlanError::value(delay_key, format!("must be between {DELAY_MIN} and {DELAY_MAX}")));
        }
    }
    check_spines(plan)
}

/// Checks that each spine has a rate, when rates differ, and that none is above the general rate of links between
/// switches.
fn check_spines(plan: &Plan) -> Result<(), PlanError> {
    let (rates, rate_max) = (&plan.spine_rates, plan.fabric_links.rate);
    if rates.is_empty() {
        return Ok(());
    }
    let wrong = |what: String| Err(PlanError::value("links.fabric.spines", what));
    match plan.topology {
        TopologyPlan::LeafSpine { spines, .. } if rates.len() != spines as usize => {
            wrong(format!("has {} rates, but the topology has {spines} spines; give one rate per spine", rates.len()))
        }
        TopologyPlan::LeafSpine { .. } if rates.iter().any(|rate| *rate > rate_max || rate.as_bps() < RATE_MIN) => {
            wrong(format!("must be between 1Mbps and {rate_max}, the rate of links between switches"))
        }
        TopologyPlan::LeafSpine { .. } => Ok(()),
        _ => wrong("applies only to the leaf-spine topology; remove it".to_owned()),
    }
}

/// Checks all constraints of a plan, however it was created.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    check_network(plan)?;
    let ports = plan.topology.build().switches.iter().map(|switch| switch.ports()).max();
    let frame = derived::largest_frame(plan);
    match (&plan.switch, ports) {
        (None, Some(_)) => {
            return Err(PlanError::value(
                "switch",
                "is missing; a topology with switches requires `model` and `buffer`",
            ));
        }
        (Some(switch), Some(ports)) => switches::check(switch, ports as u64, frame)?,
        _ => {}
    }
    let run = &plan.run;
    if run.limit > Time::ZERO + PLAN_TIME_MAX || run.limit == Time::ZERO {
        return Err(PlanError::value("run.limit", format!("must be above zero and at most {PLAN_TIME_MAX}")));
    }
    if run.stall_after == Duration::ZERO {
        return Err(PlanError::value("run.stall_after", "must be above zero"));
    }
    if let Some(slice) = run.slice
        && slice.saturating_mul(SLICES_MAX) < run.limit.since(Time::ZERO)
    {
        let what = format!("is too short: it results in more than {SLICES_MAX} slices until run.limit, {}", run.limit);
        return Err(PlanError::value("run.slice", what));
    }
    record::check(plan)?;
    faults::check(plan)?;
    groups::check(plan)?;
    classes::check(plan)?;
    nic::check(plan)?;
    processors::check(plan)?;
    slow_host::check(plan)?;
    scr::check(plan)?;
    transports::check(&plan.transport, plan)
}

/// Maximum number of slices: a report contains a few numbers per host for each.
const SLICES_MAX: u64 = 100_000;
