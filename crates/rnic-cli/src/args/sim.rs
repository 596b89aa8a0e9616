//! `rnic sim`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::values::Setting;

/// Arguments of `rnic sim`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SimArgs {
    /// Description of the run, except for its seed: the name of a built-in plan (`rnic list` has all), or the path of a
    /// TOML file
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,

    /// Seed of all random decisions; the same plan and seed give the same run on every machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Run the seeds 1, 2, ... N, and print means with 95 % confidence intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    #[arg(conflicts_with_all = ["seed", "threads", "pcap", "signals", "trace"], requires = "out")]
    pub seeds: Option<u32>,

    /// Replace a key of the plan, such as links.rate=100Gbps, or an entire table
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<Setting>,

    /// Number of threads for the simulation of a large network, best at most the number of idle processors; does not
    /// change the results
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN)]
    pub threads: NonZeroUsize,

    /// Write report.json, runs.json, flows.parquet, report.html, and the time series of the plan, to DIR
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Capture every packet in FILE, as its sender sent it, for tshark or Wireshark
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Write what happens on every link and queue pair to FILE, for Perfetto (ui.perfetto.dev); the plan's
    /// table `trace` selects a part
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Write the events at every host, as control programs see them (SCR), to FILE, one line of JSON for each
    #[arg(long, value_name = "FILE")]
    pub signals: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  rnic sim irn-default
  rnic sim irn-default --set switch.pfc.enabled=true
  rnic sim irn-default --set 'transport={name=\"roce-gbn\", rto=\"auto\"}'
  rnic sim k8-permutation --threads 4
  rnic sim irn-default --set record.interval=10us --out out/irn
  rnic sim incast --trace incast.perfetto --set trace.until=100us
  rnic sim incast --seeds 5 --out out/incast
  rnic sim incast --seed 7 --out out/incast --json | jq .trace_hash

A failed check (a message lost or done twice, wrong bytes, a deadlock) ends with exit code 1 and the command that \
repeats the run.";
