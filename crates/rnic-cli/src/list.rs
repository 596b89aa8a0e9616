//! `rnic list`: what there is to choose from, as declared by the rooms that hold it.

use rnic_policy::{ParamSpec, ParamUnit, Profile};
use rnic_transports::{control, paths, profiles, recovery, schedule};
use serde::Serialize;

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::{console, table};

/// Everything that a plan or a command line can name.
#[derive(Debug, Serialize)]
struct Catalogue {
    transports: Vec<Transport>,
    policies: Vec<Policy>,
}

/// A transport: its parts and every option with its value.
#[derive(Debug, Serialize)]
struct Transport {
    name: &'static str,
    summary: &'static str,
    recovery: &'static str,
    control: &'static str,
    paths: &'static str,
    schedule: &'static str,
    options: Vec<OptionSpec>,
}

/// A policy of one of the four kinds, with the options that it brings.
#[derive(Debug, Serialize)]
struct Policy {
    kind: &'static str,
    name: &'static str,
    summary: &'static str,
    state_bytes: usize,
    options: Vec<OptionSpec>,
}

/// An option of a transport or policy; values are as people write them.
#[derive(Debug, Serialize)]
struct OptionSpec {
    name: &'static str,
    unit: &'static str,
    default: String,
    min: String,
    max: String,
    help: &'static str,
}

/// Runs `rnic list`.
///
/// # Errors
/// None today.
pub fn run(args: &ListArgs) -> Result<(), Failure> {
    let catalogue = Catalogue { transports: profiles().iter().map(transport).collect(), policies: policies() };
    if args.json {
        console::json(&catalogue);
    } else {
        console::print(&text(&catalogue));
    }
    Ok(())
}

fn transport(profile: &Profile) -> Transport {
    Transport {
        name: profile.name,
        summary: profile.summary,
        recovery: profile.recovery.policy.name,
        control: profile.control.policy.name,
        paths: profile.paths.policy.name,
        schedule: profile.schedule.policy.name,
        options: profile.options().map(|(spec, value)| option(spec, value)).collect(),
    }
}

fn policies() -> Vec<Policy> {
    let mut all = Vec::new();
    /// Appends every policy of the kind that `$module` registers.
    macro_rules! append {
        ($($module:ident),+) => {$(
            all.extend($module::ALL.iter().map(|policy| Policy {
                kind: stringify!($module),
                name: policy.name,
                summary: policy.summary,
                state_bytes: policy.state_bytes,
                options: policy.params.iter().map(|spec| option(spec, spec.default)).collect(),
            }));
        )+};
    }
    append!(recovery, control, paths, schedule);
    all
}

fn option(spec: &ParamSpec, value: u64) -> OptionSpec {
    let unit = match spec.unit {
        ParamUnit::Duration => "duration",
        ParamUnit::Rate => "rate",
        ParamUnit::Bytes => "bytes",
        ParamUnit::Count => "count",
        ParamUnit::Switch => "switch",
    };
    let [default, min, max] = [value, spec.min, spec.max].map(|word| spec.show(word));
    OptionSpec { name: spec.name, unit, default, min, max, help: spec.help }
}

fn text(catalogue: &Catalogue) -> String {
    let mut text = "Transports (--transport NAME; options by --set KEY=VALUE)\n".to_owned();
    for transport in &catalogue.transports {
        let Transport { name, summary, recovery, control, paths, schedule, options } = transport;
        text += &format!("\n  {name}: {summary}\n");
        text += &format!("    recovery={recovery} control={control} paths={paths} schedule={schedule}\n");
        text += &table::explained(3, options.iter().map(option_row).collect());
    }
    text += "\nPolicies (exchange a part of a transport by --set KIND=NAME)\n";
    for kind in ["recovery", "control", "paths", "schedule"] {
        text += &format!("\n  {kind}\n");
        for policy in catalogue.policies.iter().filter(|policy| policy.kind == kind) {
            text += &format!("    {}: {}\n", policy.name, policy.summary);
            text += &table::explained(5, policy.options.iter().map(option_row).collect());
        }
    }
    text
}

fn option_row(option: &OptionSpec) -> Vec<String> {
    let OptionSpec { name, unit, default, min, max, help } = option;
    let range = if *unit == "switch" { "true or false".to_owned() } else { format!("{min} to {max}") };
    vec![(*name).to_owned(), default.clone(), format!("{help} ({unit}, {range})")]
}
