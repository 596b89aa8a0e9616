//! The list as text for terminals.

use super::{Catalogue, Kind, OptionSpec, PlanEntry, Policy, Transport};
use crate::table;

/// Returns all names with their summaries.
pub(super) fn overview(catalogue: &Catalogue) -> String {
    let mut text = String::new();
    let summaries = catalogue.transports.iter().map(|entry| (entry.name, entry.summary.to_owned()));
    text += &section(TRANSPORTS, summaries);
    for kind in POLICY_KINDS {
        let of_kind = catalogue.policies.iter().filter(|policy| policy.kind == kind);
        text += &section(&format!("{kind}: --set {kind}=NAME"), of_kind.map(|entry| (entry.name, summary(entry))));
    }
    for (head, kinds) in plan_kinds(catalogue) {
        text += &section(head, kinds.iter().map(|entry| (entry.name, entry.help.clone())));
    }
    text += &section(PLANS, catalogue.plans.iter().map(|entry| (entry.name, entry.summary.clone())));
    let operations = catalogue.operations.join(", ");
    text += &format!("Operations of workloads: {operations}; of closed loops also read-write\n");
    text += &format!("Flow sizes that come along: {}; or a file of lines SIZE SHARE\n", catalogue.sizes.join(", "));
    text + "\nWith options and keys: rnic list NAME, rnic list --kind KIND (transport, control, ...)\n"
}

/// Returns the entries with all of their options.
pub(super) fn details(catalogue: &Catalogue) -> String {
    let mut sections = Vec::new();
    if !catalogue.transports.is_empty() {
        sections.push(transports(&catalogue.transports));
    }
    for kind in POLICY_KINDS {
        let of_kind: Vec<&Policy> = catalogue.policies.iter().filter(|policy| policy.kind == kind).collect();
        if !of_kind.is_empty() {
            sections.push(policies(kind, &of_kind));
        }
    }
    for (head, kinds) in plan_kinds(catalogue).into_iter().filter(|(_, kinds)| !kinds.is_empty()) {
        let row = |kind: &Kind| [kind.name, &kind.keys, &kind.help].map(str::to_owned).to_vec();
        let rows = std::iter::once(["name", "keys", ""].map(str::to_owned).to_vec()).chain(kinds.iter().map(row));
        sections.push(format!("{head} (keys: docs/plans.md)\n\n{}", table::explained(1, rows.collect())));
    }
    if !catalogue.plans.is_empty() {
        let row = |plan: &PlanEntry| (plan.name, plan.summary.clone());
        sections.push(section(PLANS, catalogue.plans.iter().map(row)).trim_end().to_owned() + "\n");
    }
    sections.join("\n")
}

fn section(head: &str, entries: impl Iterator<Item = (&'static str, String)>) -> String {
    let rows = entries.map(|(name, summary)| vec![name.to_owned(), summary]).collect();
    format!("{head}\n{}\n", table::explained(1, rows))
}

fn plan_kinds(catalogue: &Catalogue) -> [(&'static str, &Vec<Kind>); 3] {
    [
        ("Topologies: topology.kind of a plan", &catalogue.topologies),
        ("Workloads: workload.kind of a plan", &catalogue.workloads),
        ("Faults: kind of a [[fault]] of a plan", &catalogue.faults),
    ]
}

/// Returns transports with their options. An option that most of several transports have, with the same meaning, is
/// explained once; each transport has its value.
fn transports(entries: &[Transport]) -> String {
    let is_common = |option: &OptionSpec| {
        let owners = entries.iter().filter(|transport| transport.options.iter().any(|other| option.means(other)));
        entries.len() > 1 && owners.count() * 2 > entries.len()
    };
    let mut text = format!("{TRANSPORTS}\nOptions: perf and run: --set KEY=VALUE; plans: transport.KEY\n");
    let mut common: Vec<&OptionSpec> = Vec::new();
    for option in entries.iter().flat_map(|transport| &transport.options).filter(|option| is_common(option)) {
        if !common.iter().any(|known| known.means(option)) {
            common.push(option);
        }
    }
    if !common.is_empty() {
        text += "\n  Options of most transports, whose values follow:\n";
        let row = |option: &&OptionSpec| vec![option.name.to_owned(), option.meaning()];
        text += &table::explained(3, common.iter().map(row).collect());
    }
    for transport in entries {
        let Transport { name, summary, recovery, control, paths, schedule, options: own, over_udp } = transport;
        text += &format!("\n  {name}: {summary}\n");
        let schedule = schedule.map_or(String::new(), |name| format!(" schedule={name}"));
        text += &format!("    recovery={recovery} control={control} paths={paths}{schedule}\n");
        let (shared, own): (Vec<_>, Vec<_>) = own.iter().partition(|option| is_common(option));
        text += &pairs(shared.iter().map(|option| format!("{} {}", option.name, option.default)));
        text += &options(3, own.into_iter());
        let over_udp = pairs(over_udp.iter().map(|(name, value)| format!("{name} {value}")));
        if !over_udp.is_empty() {
            text += &format!("    over UDP, for software: {}", over_udp.trim_start());
        }
    }
    text
}

/// Returns lines of names with values, or nothing if there are none.
fn pairs(pairs: impl Iterator<Item = String>) -> String {
    let pairs: Vec<String> = pairs.collect();
    let lines: Vec<String> = pairs.chunks(PAIRS_PER_LINE).map(|pairs| pairs.join(", ")).collect();
    if lines.is_empty() { String::new() } else { format!("    {}\n", lines.join(",\n      ")) }
}

impl OptionSpec {
    /// Returns whether `other` is the same option, perhaps with another default.
    fn means(&self, other: &Self) -> bool {
        *self == Self { default: self.default.clone(), ..other.clone() }
    }

    fn meaning(&self) -> String {
        let range = match self.unit {
            "switch" => "true or false".to_owned(),
            "choice" => self.words.join(" | "),
            _ => format!("{} to {}", self.min, self.max),
        };
        format!("{} ({}, {range})", self.help, self.unit)
    }
}

fn policies(kind: &str, entries: &[&Policy]) -> String {
    let mut text = format!("Policies of {kind} (perf and run: --set {kind}=NAME; plans: transport.{kind})\n");
    for policy in entries {
        text += &format!("\n  {}: {}\n", policy.name, summary(policy));
        text += &options(3, policy.options.iter());
    }
    text
}

fn summary(policy: &Policy) -> String {
    format!("{}{}", policy.summary, if policy.needs_scr { "; needs [scr] or --messages" } else { "" })
}

fn options<'o>(indent: usize, options: impl Iterator<Item = &'o OptionSpec>) -> String {
    let row = |option: &OptionSpec| vec![option.name.to_owned(), option.default.clone(), option.meaning()];
    table::explained(indent, options.map(row).collect())
}

const TRANSPORTS: &str = "Transports: --transport NAME of perf and run, transport.name of a plan";
const PLANS: &str = "Plans: rnic sim NAME";
const POLICY_KINDS: [&str; 4] = ["recovery", "control", "paths", "schedule"];
/// Number of name and value pairs on a line, to fit a terminal.
const PAIRS_PER_LINE: usize = 4;
