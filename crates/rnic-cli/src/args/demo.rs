//! `rnic demo`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rnic_base::{BitRate, Duration, Probability};

use super::values::{positive_rate, positive_time};

/// Arguments of `rnic demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    /// Another demonstration; without it, a file is transferred
    #[command(subcommand)]
    pub other: Option<OtherDemo>,

    /// File to transfer [default: a large file of the Rust toolchain or of /usr/lib]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Directory in which to write demo.html and demo.json
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Probability that a packet is lost, independently of others, in both directions
    #[arg(long, value_name = "P", default_value = "1%")]
    pub loss: Probability,

    /// Probability that a packet is overtaken by later ones
    #[arg(long, value_name = "P", default_value = "1%")]
    pub reorder: Probability,

    /// Seed that determines which packets are lost and overtaken
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Demonstrations other than the transfer of a file.
#[derive(Subcommand, Clone, Debug)]
pub enum OtherDemo {
    /// Two tenants share a link, one with large messages and one with small ones, under each scheduler
    NoisyNeighbour(NoisyArgs),
}

/// Arguments of `rnic demo noisy-neighbour`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOISY_EXAMPLES)]
pub struct NoisyArgs {
    /// Rate of the link that the processes share
    #[arg(long, value_name = "RATE", default_value = "2Gbps", value_parser = positive_rate)]
    pub link_rate: BitRate,

    /// Duration of each measurement
    #[arg(long, value_name = "TIME", default_value = "800ms", value_parser = positive_time)]
    pub duration: Duration,

    /// Directory in which to write noisy-neighbour.html and noisy-neighbour.json
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const NOISY_EXAMPLES: &str = "\
One tenant writes 64 KiB messages, 32 at a time; the other sends 256 bytes and waits for the answer. Both are pairs of \
processes of their own, `rnic perf` over UDP, and their packets queue for one link, which no other process shares. The \
latency of the second tenant is measured alone, and beside the first under each scheduler, three times in turns.

Examples:
  rnic demo noisy-neighbour
  rnic demo noisy-neighbour --link-rate 500Mbps --duration 3s";

const EXAMPLES: &str = "\
Moves a file by RDMA Write between two processes over UDP, through loss and reordering, with roce-gbn, irn and falcon, \
and compares it byte for byte. Then the same bytes cross a simulated 100 Gbit/s link under the same conditions.

Examples:
  rnic demo
  rnic demo --file /usr/bin/gdb --loss 0.1%
  rnic demo noisy-neighbour                     two tenants on one link";
