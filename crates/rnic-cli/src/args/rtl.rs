//! Arguments of `rnic rtl`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `rnic rtl`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RtlArgs {
    /// Action.
    #[command(subcommand)]
    pub action: RtlAction,
}

const EXAMPLES: &str = "\
Circuits need the source tree of OpenRNIC, Verilator, g++ and zlib: `scripts/setup rtl` installs them.

  rnic rtl trace --plan rtl/plans/new-reno.toml --out new-reno.fst
  gtkwave new-reno.fst";

/// Actions of `rnic rtl`.
#[derive(Debug, Subcommand)]
pub enum RtlAction {
    /// Simulate a network whose sender is Tonic's circuit, and write the circuit's signals as waves
    Trace(TraceArgs),
}

/// Arguments of `rnic rtl trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// Network and flows, such as rtl/plans/new-reno.toml
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,

    /// Transport program with the receivers of TCP: reno, new-reno or sack
    #[arg(long, value_name = "NAME", default_value = "new-reno")]
    pub program: String,

    /// Seed of the losses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// File to write, in the format FST (gtkwave, surfer)
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
