//! `rnic reproduce`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

/// Arguments of `rnic reproduce`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReproduceArgs {
    /// Experiments (irn/fig1), rows (I-R2), papers (irn), or all
    #[arg(value_name = "ID", required_unless_present_any = ["list", "quantities", "run_lines"])]
    pub ids: Vec<String>,

    /// Show what there is
    #[arg(long)]
    pub list: bool,

    /// Show the numbers that checks can have computed without a run
    #[arg(long, conflicts_with = "list")]
    pub quantities: bool,

    /// The small version: fewer, shorter runs of the same thing
    #[arg(long)]
    pub fast: bool,

    /// So many seeds for each run, instead of what the experiment says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub seeds: Option<u32>,

    /// Runs at once; a run takes one processor; what is measured runs by itself
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,

    /// Run again what earlier commands have left in the folder
    #[arg(long)]
    pub fresh: bool,

    /// Where results go, and samples stay for the next time
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    pub out: PathBuf,

    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    pub experiments: PathBuf,

    /// Run on the workers of this Dask cluster, such as tcp://10.0.0.1:8786 (see docs/reproduce.md); what is measured
    /// runs here
    #[arg(long, value_name = "ADDRESS", conflicts_with = "jobs")]
    pub dask: Option<String>,

    /// The rnic command as the workers find it; without, where it is here
    #[arg(long, value_name = "PATH", requires = "dask")]
    pub worker_rnic: Option<PathBuf>,

    /// Only write the runs that are left to do, a line of JSON each; without those that are measured
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dask", "read_results"])]
    pub write_runs: Option<PathBuf>,

    /// Take these results first: lines of JSON, as the workers write them
    #[arg(long, value_name = "FILE")]
    pub read_results: Option<PathBuf>,

    /// Do the runs on standard input, a line each, and write a line for each: what a worker does
    #[arg(long, hide = true, conflicts_with = "ids")]
    pub run_lines: bool,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  rnic reproduce --list
  rnic reproduce irn/fig1 --fast
  rnic reproduce I-R2
  rnic reproduce irn --seeds 5 --jobs 8

A row whose mean over the seeds is outside its band ends with exit code 1. Runs are kept in the folder of --out: after
an interrupt, or for another figure that needs the same ones, only the rest is run.";
