//! Faults: conversion from the parsed to the checked plan.

use rnic_base::{Duration, Probability, Time};

use super::quantity::Unit;
use super::raw::{self, FaultKind as Kind};
use super::schema::reject_unused_keys;
use super::{Plan, PlanError, derived};
use crate::entry::LINK_OVERHEAD;
use crate::fault::{FaultKind, FaultPlan, Target, matches};

pub(super) fn resolve(raw: &[raw::Fault], plan: &Plan) -> Result<Vec<FaultPlan>, PlanError> {
    raw.iter().zip(0..).map(|(fault, index)| resolve_one(fault, index, plan)).collect()
}

/// Creates an error about fault number `index`.
fn wrong(index: usize, key: &str, what: impl Into<String>) -> PlanError {
    PlanError::Key { key: format!("fault[{index}].{key}"), line: None, what: what.into() }
}

fn resolve_one(raw: &raw::Fault, index: usize, plan: &Plan) -> Result<FaultPlan, PlanError> {
    reject_unused_keys(raw, raw.kind, "fault", &format!("fault[{index}]"))?;
    let probability = || raw.probability.map(|Unit(p)| p).ok_or_else(|| wrong(index, "probability", "is missing"));
    let kind = match raw.kind {
        Kind::Drop => FaultKind::Drop(probability()?),
        Kind::Duplicate => FaultKind::Duplicate(probability()?),
        Kind::Corrupt => FaultKind::Corrupt(probability()?),
        Kind::Mark if raw.packets() == raw::Target::Acks => {
            return Err(wrong(index, "packets", "must be `data` or `all`, because acknowledgements carry no marks"));
        }
        Kind::Mark => FaultKind::Mark(probability()?),
        Kind::Burst => burst(raw, index, probability()?)?,
        Kind::Reorder => FaultKind::Reorder { probability: probability()?, delay: reorder_delay(raw, index, plan)? },
        Kind::Delay => {
            if raw.delay.is_none() && raw.jitter.is_none() {
                return Err(wrong(index, "delay", "is missing; give `delay`, `jitter` or both"));
            }
            FaultKind::Delay { fixed: raw.delay.map_or(Duration::ZERO, |Unit(delay)| delay), jitter: raw.jitter().0 }
        }
        Kind::Down => {
            let (from, until) = interval(raw, index)?;
            FaultKind::Down { from, until: until.ok_or_else(|| wrong(index, "until", "is missing"))? }
        }
        Kind::Slow => slow(raw, index)?,
    };
    let target = match raw.packets() {
        raw::Target::Data => Target::Data,
        raw::Target::Acks => Target::Acks,
        raw::Target::All => Target::All,
    };
    Ok(FaultPlan { kind, target, links: raw.links() })
}

/// Returns the interval of a fault: its start and its end, if any.
fn interval(raw: &raw::Fault, index: usize) -> Result<(Time, Option<Time>), PlanError> {
    let at = |Unit(at)| Time::ZERO + at;
    let (from, until) = (at(raw.from()), raw.until.map(at));
    if until.is_some_and(|until| until <= from) {
        return Err(wrong(index, "until", "must be after `from`"));
    }
    Ok((from, until))
}

fn slow(raw: &raw::Fault, index: usize) -> Result<FaultKind, PlanError> {
    let Unit(rate) = raw.rate.ok_or_else(|| wrong(index, "rate", "is missing"))?;
    if rate.as_bps() < RATE_MIN {
        return Err(wrong(index, "rate", "must be at least 1Mbps"));
    }
    if raw.packets() != raw::Target::All {
        return Err(wrong(index, "packets", "must be `all`, because a slow link slows all packets"));
    }
    let (from, until) = interval(raw, index)?;
    Ok(FaultKind::Slow { rate, from, until })
}

fn burst(raw: &raw::Fault, index: usize, begin: Probability) -> Result<FaultKind, PlanError> {
    match (raw.length, raw.end) {
        (Some(packets), None) if packets > 0 && raw.loss.is_none() => Ok(FaultKind::BurstOfLength { begin, packets }),
        (None, Some(Unit(end))) if !end.is_never() => Ok(FaultKind::Burst { begin, end, loss: raw.loss().0 }),
        _ => Err(wrong(
            index,
            "length",
            "is ambiguous or missing; give either `length` above zero, or `end` above zero and optionally `loss`",
        )),
    }
}

fn reorder_delay(raw: &raw::Fault, index: usize, plan: &Plan) -> Result<Duration, PlanError> {
    match (raw.delay, raw.displacement) {
        (Some(Unit(delay)), None) => Ok(delay),
        (None, Some(packets)) => {
            let packet = derived::largest_frame(plan) + LINK_OVERHEAD;
            Ok(plan.host_links.rate.serialize(packet) * u64::from(packets))
        }
        _ => Err(wrong(index, "delay", "is ambiguous or missing; give either `delay`, or `displacement` in packets")),
    }
}

/// Checks that every fault applies to a link, and that no fault delays packets beyond the run.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    if plan.faults.is_empty() {
        return Ok(());
    }
    let topology = plan.topology.build();
    let names: Vec<String> = topology
        .links
        .iter()
        .flat_map(|link| [topology.direction_name(link.a, link.b), topology.direction_name(link.b, link.a)])
        .collect();
    for (fault, index) in plan.faults.iter().zip(0..) {
        if let Some(unknown) = fault.patterns().find(|pattern| !names.iter().any(|name| matches(pattern, name))) {
            let example = names.first().map_or("", String::as_str);
            let what = format!(
                "`{unknown}` matches no link direction of this topology; link directions have names such as \
                 `{example}`"
            );
            return Err(wrong(index, "links", what));
        }
        let delay = match fault.kind {
            FaultKind::Reorder { delay, .. } => delay,
            FaultKind::Delay { fixed, jitter } => fixed + jitter,
            _ => Duration::ZERO,
        };
        if delay > DELAY_MAX {
            return Err(wrong(index, "delay", format!("must be at most {DELAY_MAX}")));
        }
    }
    Ok(())
}

/// Lowest rate in bits per second, as for links.
const RATE_MIN: u64 = 1_000_000;

/// Largest delay: longer than any timeout of loss recovery.
const DELAY_MAX: Duration = Duration::from_secs(1);
