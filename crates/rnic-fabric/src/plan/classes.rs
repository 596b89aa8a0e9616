//! Classes of packets: conversion from the parsed to the checked plan.

use rnic_engine::{CLASS_WEIGHT_MAX, CLASSES_MAX, ClassShare};
use rnic_policy::Profile;
use rnic_policy::profile::AckRule;

use super::quantity::Unit;
use super::raw::{self, Raw};
use super::tenants::{NAME_LEN_MAX, is_name};
use super::{Plan, PlanError, switches};
use crate::classes::ClassPlan;

/// Returns the classes, ordered by name; empty in a plan without classes.
pub(super) fn resolve(raw: &Raw, plan: &Plan) -> Result<Vec<ClassPlan>, PlanError> {
    let Some(classes) = &raw.classes else { return Ok(Vec::new()) };
    let class = |(name, class): (&String, &raw::Class)| {
        resolve_one(name, class, raw, plan).map_err(|error| in_class(name, error))
    };
    classes.iter().map(class).collect()
}

/// Checks the number of classes.
pub(super) fn check_count(raw: &Raw) -> Result<(), PlanError> {
    match &raw.classes {
        Some(classes) if !(1..=CLASSES_MAX).contains(&classes.len()) => {
            Err(PlanError::value("classes", format!("must have 1 to {CLASSES_MAX} classes")))
        }
        _ => Ok(()),
    }
}

/// Returns the index of the class `name`, which is the value of `key`.
pub(super) fn index_of(raw: &Raw, name: &str, key: &'static str) -> Result<u8, PlanError> {
    let names = || raw.classes.iter().flatten().map(|(name, _)| name.as_str());
    let index = names().position(|known| known == name).and_then(|index| u8::try_from(index).ok());
    index.ok_or_else(|| {
        let known: Vec<_> = names().collect();
        let known = if known.is_empty() { "the plan has no [classes]".to_owned() } else { known.join(", ") };
        PlanError::value(key, format!("unknown class `{name}`; the classes are: {known}"))
    })
}

fn resolve_one(name: &str, class: &raw::Class, raw: &Raw, plan: &Plan) -> Result<ClassPlan, PlanError> {
    let wrong = |key: &'static str, what: String| Err(PlanError::value(key, what));
    if !is_name(name) {
        return wrong("name", format!("must have 1 to {NAME_LEN_MAX} letters, digits, `-` and `_`"));
    }
    if class.priority() > PRIORITY_MAX {
        return wrong("priority", format!("must be 0 to {PRIORITY_MAX}"));
    }
    if !(1..=u32::from(CLASS_WEIGHT_MAX)).contains(&class.weight()) {
        return wrong("weight", format!("must be 1 to {CLASS_WEIGHT_MAX}"));
    }
    let acks = class.acks.as_deref().unwrap_or(name);
    Ok(ClassPlan {
        name: name.to_owned(),
        share: ClassShare { priority: class.priority() as u8, weight: class.weight() as u16 },
        acks: index_of(raw, acks, "acks")?,
        switch: raw.switch.as_ref().map(|switch| of_class(switch, class, raw, plan)).transpose()?,
    })
}

/// Returns the part of a switch that a class has.
fn of_class(
    switch: &raw::Switch,
    class: &raw::Class,
    raw: &Raw,
    plan: &Plan,
) -> Result<crate::switch::SwitchPlan, PlanError> {
    let parts = raw.classes.as_ref().map_or(1, |classes| classes.len() as u64);
    let mut part = switches::resolve(switch, plan, parts)?;
    match (class.pfc, part.pfc) {
        (Some(false), _) => part.pfc = None,
        (Some(true), None) => return Err(PlanError::value("pfc", "needs switches with [switch.pfc]")),
        _ => {}
    }
    match &mut part.ecn {
        Some(ecn) => {
            ecn.kmin = class.kmin.map_or(ecn.kmin, |Unit(bytes)| bytes.get());
            ecn.kmax = class.kmax.map_or(ecn.kmax, |Unit(bytes)| bytes.get());
            if ecn.kmin >= ecn.kmax {
                return Err(PlanError::value("kmin", "must be below kmax"));
            }
        }
        None if class.kmin.is_some() || class.kmax.is_some() => {
            return Err(PlanError::value("kmin", "needs switches with [switch.ecn]"));
        }
        None => {}
    }
    Ok(part)
}

/// Replaces the key of an error by that of class `name`. Keys with a dot are those of another table.
fn in_class(name: &str, error: PlanError) -> PlanError {
    match error {
        PlanError::Value { key, what } if !key.contains('.') => {
            PlanError::Key { key: format!("classes.{name}.{key}"), line: None, what }
        }
        error => error,
    }
}

/// Checks the constraints of classes together with the rest of the plan.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let classes = &plan.classes;
    if classes.is_empty() {
        return Ok(());
    }
    let groups = plan.workload.groups();
    if groups.is_empty() {
        return Err(PlanError::value("classes", "are those of groups of traffic; describe these in [traffic.NAME]"));
    }
    for (class, index) in classes.iter().zip(0..) {
        let key = |key: &str| format!("classes.{}{key}", class.name);
        let is_used =
            groups.iter().any(|group| group.class == index || classes[usize::from(group.class)].acks == index);
        if !is_used {
            let what = "is used by no group of traffic; remove it".to_owned();
            return Err(PlanError::Key { key: key(""), line: None, what });
        }
        let shares_turns =
            |transport: &Profile| transport.protocol.falcon().is_some() || transport.acks != AckRule::EveryPacket;
        let user = groups.iter().find(|group| group.class == index && shares_turns(&group.transport));
        if let Some(user) = user.filter(|_| class.acks != index) {
            let what = format!(
                "cannot be another class: the transport of `{}`, {}, does not acknowledge every packet at once",
                user.name, user.transport.name
            );
            return Err(PlanError::Key { key: key(".acks"), line: None, what });
        }
    }
    let ports = plan.topology.build().switches.iter().map(|switch| switch.ports() as u64).max().unwrap_or(0);
    for part in classes.iter().filter_map(|class| class.switch.as_ref()) {
        switches::check(part, ports, plan.largest_frame())?;
    }
    let (switch, pulls) = (plan.switch, plan.transports().iter().any(|transport| transport.pulls.is_some()));
    let tables = [
        ("nic", plan.nic.is_some(), "whose pipeline has one class"),
        ("scr", plan.scr.is_some(), "whose messages have no class"),
        ("switch.trim", switch.is_some_and(|switch| switch.trim.is_some()), "which has priorities of its own"),
        ("switch.csig", switch.is_some_and(|switch| switch.csig), "which measures one queue"),
        ("transport", pulls, "whose pulls have no class"),
    ];
    match tables.into_iter().find(|(_, is_given, _)| *is_given) {
        Some((key, _, why)) => Err(PlanError::value(key, format!("cannot be combined with [classes]: {why}"))),
        None => Ok(()),
    }
}

/// Highest priority: there are as many as classes.
const PRIORITY_MAX: u32 = CLASSES_MAX as u32 - 1;
