//! Groups of traffic: conversion from the parsed to the checked plan.

use rnic_policy::{Profile, Signals};

use super::raw::{Raw, WorkloadKind as Kind};
use super::schema::Named;
use super::tenants::{NAME_LEN_MAX, is_name};
use super::{FileReader, Plan, PlanError, TraceFiles, classes, transports, workloads};
use crate::switch::SwitchPlan;
use crate::workload::WorkloadPlan;
use crate::workload::groups::GroupPlan;

/// Returns the only workload of the plan, or its groups; their transports have the default options.
pub(super) fn resolve(
    raw: &Raw,
    network: Signals,
    hosts: u32,
    files: &mut FileReader<'_>,
    traces: &mut dyn TraceFiles,
) -> Result<WorkloadPlan, PlanError> {
    classes::check_count(raw)?;
    let traffic = match (&raw.workload, &raw.traffic) {
        (Some(workload), None) => return workloads::resolve(workload, hosts, files, traces),
        (None, Some(traffic)) => traffic,
        (Some(_), Some(_)) => {
            return Err(PlanError::value("traffic", "cannot be combined with `workload`; make that a group, too"));
        }
        (None, None) => return Err(PlanError::value("workload", "is missing; describe the traffic")),
    };
    if !(1..=GROUPS_MAX).contains(&traffic.len()) {
        return Err(PlanError::value("traffic", format!("must have 1 to {GROUPS_MAX} groups")));
    }
    let mut groups: Vec<GroupPlan> = Vec::new();
    for (name, group) in traffic {
        let key = |key: &str| format!("traffic.{name}.{key}");
        let wrong = |key: String, what: String| Err(PlanError::Key { key, line: None, what });
        if !is_name(name) {
            let what = format!("the name must have 1 to {NAME_LEN_MAX} letters, digits, `-` and `_`");
            return wrong(format!("traffic.{name:?}"), what);
        }
        let kind = group.workload.kind;
        if matches!(kind, Kind::Tenants | Kind::Nvme | Kind::Chakra | Kind::Manual) {
            let what = format!("`{}` cannot be a group of traffic, only the whole workload", kind.name());
            return wrong(key("kind"), what);
        }
        let other = groups.iter().find(|group| matches!(group.workload, WorkloadPlan::Collective(_)));
        if let Some(other) = other.filter(|_| kind == Kind::Collective) {
            let what = format!("a plan has at most one group of collectives, and `{}` is one", other.name);
            return wrong(key("kind"), what);
        }
        let workload =
            workloads::resolve(&group.workload, hosts, files, traces).map_err(|error| in_group(name, error))?;
        let options = group.transport.as_ref().or(raw.transport.as_ref());
        let Some(options) = options else {
            let what = "is missing; name a transport here or in [transport], such as \"irn\"";
            return wrong(key("transport"), what.to_owned());
        };
        let transport = transports::name_of(&options.0).and_then(|name| transports::select(network, name, &[]));
        let transport = transport.map_err(|error| in_group(name, error))?;
        let class = match (&group.class, &raw.classes) {
            (Some(class), _) => classes::index_of(raw, class, "class").map_err(|error| in_group(name, error))?,
            (None, None) => 0,
            (None, Some(_)) => return wrong(key("class"), "is missing; name one of the plan's [classes]".to_owned()),
        };
        groups.push(GroupPlan { name: name.clone(), workload, transport, class });
    }
    Ok(WorkloadPlan::Groups(groups))
}

/// Applies the options of the transports of all groups; `plan` has everything else that their values depend on.
pub(super) fn apply_options(raw: &Raw, network: Signals, plan: &mut Plan) -> Result<(), PlanError> {
    let profile = |GroupPlan { name, class, .. }: &GroupPlan| {
        let group = raw.traffic.iter().flatten().find(|(other, _)| *other == name);
        let switches = plan.switches_of(*class);
        let own = group.and_then(|(_, group)| group.transport.as_ref());
        let options = own.or(raw.transport.as_ref()).map(|transport| &transport.0);
        let options = options.ok_or_else(|| PlanError::value("transport.name", "is missing"))?;
        transports::resolve(transports::name_of(options)?, options, network, plan, &switches)
            .map_err(|error| if own.is_some() { in_group(name, error) } else { error })
    };
    let profiles = plan.workload.groups().iter().map(profile);
    let profiles: Vec<Profile> = profiles.collect::<Result<_, _>>()?;
    if let WorkloadPlan::Groups(groups) = &mut plan.workload {
        groups.iter_mut().zip(profiles).for_each(|(group, profile)| group.transport = profile);
    }
    Ok(())
}

/// Replaces the key of an error about a workload or a transport by that of group `name`.
pub(super) fn in_group(name: &str, error: PlanError) -> PlanError {
    let of_group = |key: &str| format!("traffic.{name}.{}", key.strip_prefix("workload.").unwrap_or(key));
    match error {
        PlanError::Value { key, what } => PlanError::Key { key: of_group(key), line: None, what },
        PlanError::Key { key, line, what } => PlanError::Key { key: of_group(&key), line, what },
        PlanError::File { key, name: file, what } => {
            PlanError::Key { key: of_group(key), line: None, what: format!("{file}: {what}") }
        }
        PlanError::Transport(source) => {
            PlanError::Key { key: of_group("transport"), line: None, what: source.to_string() }
        }
        error @ PlanError::Syntax { .. } => error,
    }
}

/// Checks the constraints of the workload, or of the groups: of each one, and of their transports together.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    match &plan.workload {
        WorkloadPlan::Groups(groups) => check_groups(groups, plan),
        workload => workloads::check(workload, &plan.transport, plan),
    }
}

fn check_groups(groups: &[GroupPlan], plan: &Plan) -> Result<(), PlanError> {
    for group in groups {
        workloads::check(&group.workload, &group.transport, plan).map_err(|error| in_group(&group.name, error))?;
        transports::check(&group.transport, plan).map_err(|error| in_group(&group.name, error))?;
    }
    let is_falcon = |profile: &Profile| profile.protocol.falcon().is_some();
    for (group, index) in groups.iter().zip(0..) {
        let wrong =
            |what: String| Err(PlanError::Key { key: format!("traffic.{}.transport", group.name), line: None, what });
        let family = groups[..index].iter().find(|other| is_falcon(&other.transport) == is_falcon(&group.transport));
        let Some(other) = family else { continue };
        if other.transport.extra_header != group.transport.extra_header {
            return wrong(format!("`extra_header` must be that of group `{}`: a NIC has one format", other.name));
        }
        if is_falcon(&group.transport) && other.transport.protocol != group.transport.protocol {
            return wrong(format!(
                "the options of Falcon must be those of group `{}`: a NIC has one Falcon engine for all connections",
                other.name
            ));
        }
    }
    check_models(groups, plan)
}

/// Rejects models of NICs and of schedulers that know one transport only, when there are several.
fn check_models(groups: &[GroupPlan], plan: &Plan) -> Result<(), PlanError> {
    let label = |profile: &Profile| rnic_transports::label(profile);
    let Some(other) = groups.iter().find(|group| label(&group.transport) != label(&plan.transport)) else {
        return Ok(());
    };
    let tables = [
        ("nic", plan.nic.is_some()),
        ("scr", plan.scr.is_some()),
        ("processors", plan.processors.is_some()),
        ("run.latency_parts", plan.run.latency_parts),
    ];
    match tables.into_iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) => {
            let what = format!(
                "needs one transport for all groups of traffic, but `{}` has {} and the plan {}; remove one of them",
                other.name,
                label(&other.transport),
                label(&plan.transport)
            );
            Err(PlanError::value(key, what))
        }
        None => Ok(()),
    }
}

impl Plan {
    /// Returns the transports in use: that of every group of traffic, or the only one.
    pub(crate) fn transports(&self) -> Vec<&Profile> {
        match self.workload.groups() {
            [] => vec![&self.transport],
            groups => groups.iter().map(|group| &group.transport).collect(),
        }
    }

    /// Returns the switches as packets of `class` and their acknowledgements meet them.
    fn switches_of(&self, class: u8) -> Vec<SwitchPlan> {
        let Some(of_packets) = self.classes.get(usize::from(class)) else { return self.switch.into_iter().collect() };
        [of_packets, &self.classes[usize::from(of_packets.acks)]].into_iter().filter_map(|class| class.switch).collect()
    }

    /// Returns whether any queue pair uses several flows.
    pub(crate) fn splits_queue_pairs(&self) -> bool {
        self.transports().iter().any(|profile| profile.flow_count() > 1)
    }

    /// Returns whether any queue pair uses Falcon.
    pub(crate) fn uses_falcon(&self) -> bool {
        self.transports().iter().any(|profile| profile.protocol.falcon().is_some())
    }
}

/// Maximum number of groups of traffic.
const GROUPS_MAX: usize = 64;
