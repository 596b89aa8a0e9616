//! `rnic reproduce`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::pool::PoolArgs;

/// Arguments of `rnic reproduce`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReproduceArgs {
    /// Experiments (irn/fig1), table rows (I-R2), papers (irn), or all
    #[arg(value_name = "ID", required_unless_present_any = ["list", "quantities", "run_lines"])]
    pub ids: Vec<String>,

    /// List the available experiments
    #[arg(long)]
    pub list: bool,

    /// List the numbers that checks can compute without a run
    #[arg(long, conflicts_with = "list")]
    pub quantities: bool,

    /// Run the small version: fewer and shorter runs of the same experiment
    #[arg(long)]
    pub fast: bool,

    /// Number of seeds for each run, instead of the number in the experiment
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub seeds: Option<u32>,

    /// Judge the rows again with other values of the parameters that the paper leaves open
    #[arg(long, value_name = "DESIGN", value_enum, num_args = 0..=1, require_equals = true,
        default_missing_value = "each", conflicts_with_all = ["list", "quantities", "run_lines"])]
    pub sensitivity: Option<SensitivityDesign>,

    /// Directory for results; samples in it are reused by later commands
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    pub out: PathBuf,

    /// Directory of experiments [default: `experiments` in the current directory; without it, the built-in ones]
    #[arg(long, value_name = "DIR")]
    pub experiments: Option<PathBuf>,

    /// Where the runs are executed.
    #[command(flatten)]
    pub pool: PoolArgs,

    /// Only write the remaining runs to FILE, one line of JSON each, without real-time measurements
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dask", "read_results"])]
    pub write_runs: Option<PathBuf>,

    /// First read results from FILE: lines of JSON, as workers write them
    #[arg(long, value_name = "FILE")]
    pub read_results: Option<PathBuf>,

    /// Execute the runs given on standard input, one per line, and write one line for each, as a worker does
    #[arg(long, hide = true, conflicts_with = "ids")]
    pub run_lines: bool,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Settings of open parameters in which rows are judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SensitivityDesign {
    /// One parameter at a time
    Each,
    /// Morris' screening: all parameters, on random trajectories
    Morris,
}

const EXAMPLES: &str = "\
Examples:
  rnic reproduce --list
  rnic reproduce irn/fig1 --fast
  rnic reproduce I-R2
  rnic reproduce irn --seeds 5 --jobs 8
  rnic reproduce I-R15 --fast --sensitivity

The exit code is 1 when a row cannot be judged, or is outside its band and its experiment does not state that this is \
known, and why. Runs are kept in the folder of --out: after an interrupt, or for another figure that needs the same \
ones, only the rest is run.";
