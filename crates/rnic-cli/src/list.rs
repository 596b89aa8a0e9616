//! `rnic list`: the names and options that can be chosen, as declared by the crates that provide them.

use rnic_fabric::plan::SCHEMA;
use rnic_fabric::workload::Operation;
use rnic_fabric::workload::distribution::BUILT_IN;
use rnic_policy::{ParamSpec, ParamUnit, Params, Profile, Signals};
use rnic_transports::{control, paths, profiles, recovery, schedule};
use serde::Serialize;

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::{built_in, console, table};

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
#[derive(Debug, Serialize)]
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
/// Currently none.
pub fn run(args: &ListArgs) -> Result<(), Failure> {
    let catalogue = Catalogue {
        transports: profiles().iter().map(transport).collect(),
        policies: policies(),
        topologies: kinds("topology"),
        workloads: kinds("workload"),
        faults: kinds("fault"),
        operations: Operation::ALL.iter().map(|(name, _)| *name).collect(),
        sizes: BUILT_IN.iter().map(|(name, _)| *name).collect(),
        plans: built_in::plans().map(|(name, text)| PlanEntry { name, summary: built_in::summary(text) }).collect(),
    };
    match args.json {
        true => console::result("", Some(&catalogue)),
        false => console::print(&text(&catalogue)),
    }
    Ok(())
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

fn text(catalogue: &Catalogue) -> String {
    let mut text =
        "Transports (perf: --transport NAME, options by --set KEY=VALUE; sim: --set transport.KEY=VALUE)\n".to_owned();
    for transport in &catalogue.transports {
        let Transport { name, summary, recovery, control, paths, schedule, options, over_udp } = transport;
        text += &format!("\n  {name}: {summary}\n");
        let schedule = schedule.map_or(String::new(), |name| format!(" schedule={name}"));
        text += &format!("    recovery={recovery} control={control} paths={paths}{schedule}\n");
        text += &table::explained(3, options.iter().map(option_row).collect());
        if !over_udp.is_empty() {
            let pairs: Vec<String> = over_udp.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let lines: Vec<String> = pairs.chunks(PAIRS_PER_LINE).map(|pairs| pairs.join(", ")).collect();
            text += &format!("    over UDP, for software: {}\n", lines.join(",\n      "));
        }
    }
    text += "\nPolicies (exchange a part of a transport: perf --set KIND=NAME, sim --set transport.KIND=NAME)\n";
    for kind in ["recovery", "control", "paths", "schedule"] {
        text += &format!("\n  {kind}\n");
        for policy in catalogue.policies.iter().filter(|policy| policy.kind == kind) {
            let only = if policy.needs_scr { "; needs [scr] or --messages" } else { "" };
            text += &format!("    {}: {}{only}\n", policy.name, policy.summary);
            text += &table::explained(5, policy.options.iter().map(option_row).collect());
        }
    }
    for (head, kinds) in [
        ("Topologies (topology.kind of a plan)", &catalogue.topologies),
        ("Workloads (workload.kind of a plan)", &catalogue.workloads),
        ("Faults (kind of a [[fault]] of a plan; each also takes links and packets)", &catalogue.faults),
    ] {
        text += &format!("\n{head}\n\n");
        let row = |kind: &Kind| [kind.name, &kind.keys, &kind.help].map(str::to_owned).to_vec();
        text += &table::explained(1, kinds.iter().map(row).collect());
    }
    text += "\nPlans (sim NAME)\n\n";
    let row = |plan: &PlanEntry| vec![plan.name.to_owned(), plan.summary.clone()];
    text += &table::explained(1, catalogue.plans.iter().map(row).collect());
    let operations = catalogue.operations.join(", ");
    text += &format!("\nOperations of workloads: {operations}; of closed loops also read-write\n");
    text + &format!("Flow sizes that come along: {}; or a file of lines SIZE SHARE\n", catalogue.sizes.join(", "))
}

fn option_row(option: &OptionSpec) -> Vec<String> {
    let OptionSpec { name, unit, default, min, max, words, help } = option;
    let range = match *unit {
        "switch" => "true or false".to_owned(),
        "choice" => words.join(" | "),
        _ => format!("{min} to {max}"),
    };
    vec![(*name).to_owned(), default.clone(), format!("{help} ({unit}, {range})")]
}

/// Number of name and value pairs on a line, to fit a terminal.
const PAIRS_PER_LINE: usize = 4;
