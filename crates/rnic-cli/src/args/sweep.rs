//! `rnic sweep`.

use std::path::PathBuf;

use clap::Args;
use rnic_reproduce::axis::Axis;

use super::pool::PoolArgs;
use super::values::Setting;

/// Arguments of `rnic sweep`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SweepArgs {
    /// Description of the runs: the name of a built-in plan (`rnic list` has all), or the path of a TOML file
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,

    /// Key of the plan that varies, and its values; every combination is run when several keys vary
    #[arg(long = "vary", value_name = "KEY=A,B,C", required = true)]
    pub axes: Vec<Axis>,

    /// Replace a key of the plan in all runs, such as links.rate=100Gbps, or an entire table
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<Setting>,

    /// Number of seeds for each combination: 1, 2, ... N
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub seeds: u32,

    /// Number of the report that the table and the charts show, such as queue_max_bytes; may be given several times
    #[arg(long = "field", value_name = "FIELD")]
    pub fields: Vec<String>,

    /// Directory for results: runs.json, runs.parquet, report.html; runs in it are reused by later commands
    #[arg(long, value_name = "DIR", default_value = "out/sweep")]
    pub out: PathBuf,

    /// Where the runs are executed.
    #[command(flatten)]
    pub pool: PoolArgs,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  rnic sweep incast --vary workload.senders=5,10,20,30
  rnic sweep irn-default --vary transport=irn,roce-gbn --vary mtu=1024,4096 --seeds 5
  rnic sweep incast --vary 'switch.buffer=60KB,120KB,240KB' --field queue_max_bytes

The table has the mean over the seeds and half of its 95 % confidence interval. After an interrupt, the same command \
runs only the rest.";
