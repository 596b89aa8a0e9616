//! `rnic list`: the names and options that can be chosen, as declared by the crates that provide them.

mod text;

use rnic_base::similar;
use rnic_fabric::plan::SCHEMA;
use rnic_fabric::workload::Operation;
use rnic_fabric::workload::distribution::BUILT_IN;
use rnic_policy::{ParamSpec, ParamUnit, Params, Profile, Signals};
use rnic_transports::{control, paths, profiles, recovery, schedule};
use serde::Serialize;

use crate::args::{ListArgs, ListKind};
use crate::failure::Failure;
use crate::{built_in, console};

/// All names that a plan or a command line can use.
#[derive(Debug, Serialize)]
struct Catalogue {
    transports: Vec<Transport>,
    policies: Vec<Policy>,
    topologies: Vec<Kind>,
    workloads: Vec<Kind>,
    faults: Vec<Kind>,
    operations: Vec<&'static str>,
    sizes: Vec<&'static str>,
    plans: Vec<PlanEntry>,
}

/// A built-in plan.
#[derive(Debug, Serialize)]
struct PlanEntry {
    name: &'static str,
    summary: String,
}

/// A transport: its parts and every option with its value.
#[derive(Debug, Serialize)]
struct Transport {
    name: &'static str,
    summary: &'static str,
    recovery: &'static str,
    control: &'static str,
    paths: &'static str,
    /// Name of the scheduling policy; `None` for transports without one.
    schedule: Option<&'static str>,
    options: Vec<OptionSpec>,
    /// Options (name and value) that have another value over UDP, where software responds.
    over_udp: Vec<(&'static str, String)>,
}

/// A policy of one of the four kinds, with its options.
#[derive(Debug, Serialize)]
struct Policy {
    kind: &'static str,
    name: &'static str,
    summary: &'static str,
    /// True when the policy needs probes: in simulations `[scr]`, on sockets messages between NICs.
    needs_scr: bool,
    state_bytes: usize,
    options: Vec<OptionSpec>,
}

/// An option of a transport or policy; values are formatted for users.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct OptionSpec {
    name: &'static str,
    unit: &'static str,
    default: String,
    min: String,
    max: String,
    /// Permitted words, for options that take one of a few words.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    words: &'static [&'static str],
    help: &'static str,
}

/// A type of topology, workload or fault that plans can name, as declared by the plan reader.
#[derive(Debug, Serialize)]
struct Kind {
    name: &'static str,
    keys: String,
    help: String,
}

/// Runs `rnic list`.
///
/// # Errors
/// When nothing has the name that was given.
pub fn run(args: &ListArgs) -> Result<(), Failure> {
    let mut catalogue = Catalogue::all();
    let is_overview = args.name.is_none() && args.kind.is_none();
    if let Some(kind) = args.kind {
        catalogue.keep(|of, _| of == kind);
    }
    if let Some(name) = &args.name {
        let names: Vec<&str> = catalogue.names();
        if !names.contains(&name.as_str()) {
            let hint = similar::hint(name, names);
            return Err(Failure::input(format!("nothing is called `{name}`{hint} (`rnic list` shows all names)")));
        }
        catalogue.keep(|_, known| known == name);
    }
    match args.json {
        true => console::result("", Some(&catalogue)),
        false if is_overview => console::print(&text::overview(&catalogue)),
        false => console::print(&text::details(&catalogue)),
    }
    Ok(())
}

impl Catalogue {
    fn all() -> Self {
        Self {
            transports: profiles().iter().map(transport).collect(),
            policies: policies(),
            topologies: kinds("topology"),
            workloads: kinds("workload"),
            faults: kinds("fault"),
            operations: Operation::ALL.iter().map(|(name, _)| *name).collect(),
            sizes: BUILT_IN.iter().map(|(name, _)| *name).collect(),
            plans: built_in::plans().map(|(name, text)| PlanEntry { name, summary: built_in::summary(text) }).collect(),
        }
    }

    /// Removes entries for which `is_wanted` returns `false`, given their kind and name; operations and sizes, which
    /// have no kind, too.
    fn keep(&mut self, is_wanted: impl Fn(ListKind, &str) -> bool) {
        self.transports.retain(|entry| is_wanted(ListKind::Transport, entry.name));
        self.policies.retain(|entry| is_wanted(entry.list_kind(), entry.name));
        self.topologies.retain(|entry| is_wanted(ListKind::Topology, entry.name));
        self.workloads.retain(|entry| is_wanted(ListKind::Workload, entry.name));
        self.faults.retain(|entry| is_wanted(ListKind::Fault, entry.name));
        self.plans.retain(|entry| is_wanted(ListKind::Plan, entry.name));
        self.operations.clear();
        self.sizes.clear();
    }

    fn names(&self) -> Vec<&'static str> {
        let kinds = [&self.topologies, &self.workloads, &self.faults];
        let transports = self.transports.iter().map(|entry| entry.name);
        let policies = self.policies.iter().map(|entry| entry.name);
        let plans = self.plans.iter().map(|entry| entry.name);
        transports.chain(policies).chain(kinds.into_iter().flatten().map(|entry| entry.name)).chain(plans).collect()
    }
}

impl Policy {
    fn list_kind(&self) -> ListKind {
        match self.kind {
            "recovery" => ListKind::Recovery,
            "control" => ListKind::Control,
            "paths" => ListKind::Paths,
            _ => ListKind::Schedule,
        }
    }
}

/// Returns the kinds of a table of plans.
fn kinds(table: &str) -> Vec<Kind> {
    let kinds = SCHEMA.table(table).into_iter().flat_map(|table| table.kinds());
    kinds.map(|(word, keys)| Kind { name: word.name, keys: keys.join(", "), help: word.about.summary() }).collect()
}

fn transport(profile: &Profile) -> Transport {
    Transport {
        name: profile.name,
        summary: profile.summary,
        recovery: profile.recovery.policy.name,
        control: profile.control.policy.name,
        paths: profile.paths.policy.name,
        schedule: profile.uses_scheduler().then_some(profile.schedule.policy.name),
        options: profile.options().map(|(spec, value)| option(spec, value)).collect(),
        over_udp: over_udp(profile),
    }
}

fn over_udp(profile: &Profile) -> Vec<(&'static str, String)> {
    let host = rnic_host::host_defaults(profile.clone(), |_| false).expect("its defaults are legal");
    let pairs = profile.options().zip(host.options());
    pairs
        .filter(|((_, plain), (_, host))| plain != host)
        .map(|(_, (spec, host))| (spec.name, spec.show(host)))
        .collect()
}

fn policies() -> Vec<Policy> {
    let mut all = Vec::new();
    /// Appends every policy of the type that `$module` registers.
    macro_rules! append {
        ($($module:ident),+) => {$(
            all.extend($module::ALL.iter().map(|policy| Policy {
                kind: stringify!($module),
                name: policy.name,
                summary: policy.summary,
                needs_scr: probes(stringify!($module), policy.name),
                state_bytes: policy.state_bytes,
                options: policy.params.iter().map(|spec| option(spec, spec.default)).collect(),
            }));
        )+};
    }
    append!(recovery, control, paths, schedule);
    all
}

/// Returns whether the policy `name` requests probes.
fn probes(kind: &str, name: &str) -> bool {
    match kind {
        "control" => control::find(name)
            .is_some_and(|policy| (policy.interest)(&Params::defaults(policy.params)).needs.has(Signals::PROBES)),
        "paths" => paths::find(name).is_some_and(|policy| policy.probes),
        _ => false,
    }
}

fn option(spec: &ParamSpec, value: u64) -> OptionSpec {
    let unit = match spec.unit {
        ParamUnit::Duration => "duration",
        ParamUnit::Rate => "rate",
        ParamUnit::Bytes => "bytes",
        ParamUnit::Count => "count",
        ParamUnit::Switch => "switch",
        ParamUnit::Choice(_) => "choice",
    };
    let words = match spec.unit {
        ParamUnit::Choice(words) => words,
        _ => &[],
    };
    let [default, min, max] = [value, spec.min, spec.max].map(|word| spec.show(word));
    OptionSpec { name: spec.name, unit, default, min, max, words, help: spec.help }
}
