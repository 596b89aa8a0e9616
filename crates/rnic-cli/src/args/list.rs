//! `rnic list`.

use clap::{Args, ValueEnum};

/// Arguments of `rnic list`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Show what has this name, such as a transport, with all of its options [default: names and summaries of all]
    pub name: Option<String>,

    /// Show only this kind, with all options
    #[arg(long, value_name = "KIND")]
    pub kind: Option<ListKind>,

    /// Print one JSON object on standard output, with all options
    #[arg(long)]
    pub json: bool,
}

/// Kinds of names that plans and command lines use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ListKind {
    /// Transports: `--transport` of `perf` and `run`, `transport.name` of plans.
    Transport,
    /// Policies that recover lost packets.
    Recovery,
    /// Congestion controllers.
    Control,
    /// Policies that choose paths.
    Paths,
    /// Schedulers of queue pairs.
    Schedule,
    /// Topologies of plans.
    Topology,
    /// Workloads of plans.
    Workload,
    /// Faults of plans.
    Fault,
    /// Built-in plans.
    Plan,
}

const EXAMPLES: &str = "\
Examples:
  rnic list
  rnic list irn                                 a transport and the policy of this name, with their options
  rnic list --kind control
  rnic list --json | jq '.transports[].options[].name'";
