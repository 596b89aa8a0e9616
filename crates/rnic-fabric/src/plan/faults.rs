//! Faults: conversion from the parsed to the checked plan.

use rnic_base::{Duration, Probability, Time};

use super::raw::{self, FaultKind as Kind, Unit};
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
    reject_unused_keys(raw, index)?;
    let probability = || raw.probability.map(|Unit(p)| p).ok_or_else(|| wrong(index, "probability", "is missing"));
    let kind = match raw.kind {
        Kind::Drop => FaultKind::Drop(probability()?),
        Kind::Duplicate => FaultKind::Duplicate(probability()?),
        Kind::Corrupt => FaultKind::Corrupt(probability()?),
        Kind::Burst => burst(raw, index, probability()?)?,
        Kind::Reorder => FaultKind::Reorder { probability: probability()?, delay: reorder_delay(raw, index, plan)? },
        Kind::Delay => {
            let (fixed, jitter) = (raw.delay.map(|d| d.0), raw.jitter.map(|d| d.0));
            if fixed.is_none() && jitter.is_none() {
                return Err(wrong(index, "delay", "give delay, jitter or both"));
            }
            FaultKind::Delay { fixed: fixed.unwrap_or_default(), jitter: jitter.unwrap_or_default() }
        }
        Kind::Down => {
            let (from, until) = interval(raw, index)?;
            FaultKind::Down { from, until: until.ok_or_else(|| wrong(index, "until", "is missing"))? }
        }
        Kind::Slow => slow(raw, index)?,
    };
    let target = match raw.packets {
        raw::Target::Data => Target::Data,
        raw::Target::Acks => Target::Acks,
        raw::Target::All => Target::All,
    };
    Ok(FaultPlan { kind, target, links: raw.links.clone().unwrap_or_else(|| "*".to_owned()) })
}

/// Returns the interval of a fault: its start and its end, if any.
fn interval(raw: &raw::Fault, index: usize) -> Result<(Time, Option<Time>), PlanError> {
    let at = |value: Option<Unit<Duration>>| value.map(|Unit(at)| Time::ZERO + at);
    let (from, until) = (at(raw.from).unwrap_or(Time::ZERO), at(raw.until));
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
    if raw.packets != raw::Target::All {
        return Err(wrong(index, "packets", "a slow link is slow for all"));
    }
    let (from, until) = interval(raw, index)?;
    Ok(FaultKind::Slow { rate, from, until })
}

fn burst(raw: &raw::Fault, index: usize, begin: Probability) -> Result<FaultKind, PlanError> {
    match (raw.length, raw.end) {
        (Some(packets), None) if packets > 0 && raw.loss.is_none() => Ok(FaultKind::BurstOfLength { begin, packets }),
        (None, Some(Unit(end))) if !end.is_never() => {
            Ok(FaultKind::Burst { begin, end, loss: raw.loss.map_or(Probability::ALWAYS, |Unit(loss)| loss) })
        }
        _ => Err(wrong(index, "length", "give a length in packets, or the probability `end` (and `loss`), above zero")),
    }
}

fn reorder_delay(raw: &raw::Fault, index: usize, plan: &Plan) -> Result<Duration, PlanError> {
    match (raw.delay, raw.displacement) {
        (Some(Unit(delay)), None) => Ok(delay),
        (None, Some(packets)) => {
            let packet = derived::largest_frame(plan) + LINK_OVERHEAD;
            Ok(plan.host_links.rate.serialize(packet) * u64::from(packets))
        }
        _ => Err(wrong(index, "delay", "give either a delay or a displacement in packets")),
    }
}

/// Rejects keys that this type of fault does not use.
fn reject_unused_keys(raw: &raw::Fault, index: usize) -> Result<(), PlanError> {
    use Kind::{Burst, Corrupt, Delay, Down, Drop, Duplicate, Reorder, Slow};
    let keys: [(&str, bool, &[Kind]); 10] = [
        ("probability", raw.probability.is_some(), &[Drop, Duplicate, Corrupt, Burst, Reorder]),
        ("end", raw.end.is_some(), &[Burst]),
        ("loss", raw.loss.is_some(), &[Burst]),
        ("length", raw.length.is_some(), &[Burst]),
        ("delay", raw.delay.is_some(), &[Reorder, Delay]),
        ("displacement", raw.displacement.is_some(), &[Reorder]),
        ("jitter", raw.jitter.is_some(), &[Delay]),
        ("rate", raw.rate.is_some(), &[Slow]),
        ("from", raw.from.is_some(), &[Down, Slow]),
        ("until", raw.until.is_some(), &[Down, Slow]),
    ];
    match keys.iter().find(|(_, given, kinds)| *given && !kinds.contains(&raw.kind)) {
        Some((key, ..)) => {
            let kind = format!("{:?}", raw.kind).to_lowercase();
            Err(wrong(index, key, format!("means nothing for the fault `{kind}`")))
        }
        None => Ok(()),
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
            let what = format!("`{unknown}` is no direction of this topology; directions have names like `{example}`");
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
