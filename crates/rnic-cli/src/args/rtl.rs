//! Arguments of `rnic rtl`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::Setting;

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

  rnic rtl trace --plan point-to-point-loss --out irn.fst
  gtkwave irn.gtkw";

const TRACE_EXAMPLES: &str = "\
The plan is simulated, and one of its flows is shown in the circuit of its transport: what the engines at both ends \
receive (packets, acknowledgements, timeouts) is replayed in the circuit at the same times, and what the circuit \
answers is compared with what the engines did. Transports with such a circuit: irn (rtl/irn), fasr (rtl/fasr) and \
programs (tonic-*, or program files); a program's circuit is the emitted one. The first flow with a loss is shown, \
unless --flow names another. Beside the waves, a save file for gtkwave (.gtkw) has the signals that show most.

A file of a network of cycles, such as rtl/plans/new-reno.toml, is simulated with Tonic's whole NIC (rtl/tonic) as \
its first sender.

Examples:
  rnic rtl trace --plan point-to-point-loss --out irn.fst
  rnic rtl trace --plan point-to-point-loss --set 'transport={name=\"fasr\"}' --out fasr.fst
  rnic rtl trace --plan point-to-point-loss --set 'transport={name=\"tonic-new-reno\"}' --out new-reno.fst
  rnic rtl trace --plan incast --set workload.repeats=3 --flow 7 --seed 2 --out incast.fst
  rnic rtl trace --plan rtl/plans/new-reno.toml --out nic.fst
  gtkwave irn.gtkw

Without Verilator: apt-get install verilator g++ zlib1g-dev.";

/// Actions of `rnic rtl`.
#[derive(Debug, Subcommand)]
pub enum RtlAction {
    /// Show the packets of a plan as waves: simulate it, and replay one of its flows in its transport's circuit
    Trace(TraceArgs),
}

/// Arguments of `rnic rtl trace`.
#[derive(Args, Clone, Debug)]
#[command(after_help = TRACE_EXAMPLES)]
pub struct TraceArgs {
    /// The name of a built-in plan (`rnic list` has all), or the path of a TOML file
    #[arg(long, value_name = "PLAN")]
    pub plan: PathBuf,

    /// Replace a key of the plan, such as links.rate=100Gbps, or an entire table
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<Setting>,

    /// Number of the flow, from 0 on, in the order of their starts [default: the first one that retransmits]
    #[arg(long, value_name = "N")]
    pub flow: Option<u32>,

    /// In a network of cycles (rtl/plans): transport program with the receivers of TCP, which are reno, new-reno and
    /// sack [default: new-reno]
    #[arg(long, value_name = "NAME")]
    pub program: Option<String>,

    /// Seed of all random decisions
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// File to write, in the format FST (gtkwave, surfer)
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
