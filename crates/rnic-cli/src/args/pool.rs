//! Options of commands that execute many runs.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

/// Where runs are executed, and which are repeated.
#[derive(Args, Clone, Default, Debug)]
pub struct PoolArgs {
    /// Number of concurrent runs; each uses one processor, and real-time measurements run alone
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,

    /// Repeat runs whose results earlier commands have stored in the output directory
    #[arg(long)]
    pub fresh: bool,

    /// Run on the workers of this Dask cluster, such as tcp://10.0.0.1:8786 (see docs/reproduce.md); real-time
    /// measurements run on this machine
    #[arg(long, value_name = "ADDRESS", conflicts_with = "jobs")]
    pub dask: Option<String>,

    /// Path of the rnic command on the workers [default: its path on this machine]
    #[arg(long, value_name = "PATH", requires = "dask")]
    pub worker_rnic: Option<PathBuf>,
}
