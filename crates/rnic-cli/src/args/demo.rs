//! `rnic demo`.

use std::path::PathBuf;

use clap::Args;
use rnic_base::Probability;

/// Arguments of `rnic demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// File to move; without it, a large file of the Rust toolchain or of /usr/lib
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Where to write demo.html and demo.json
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Packets that vanish, each by itself, in both directions
    #[arg(long, value_name = "P", default_value = "1%")]
    pub loss: Probability,

    /// Packets that are overtaken by later ones
    #[arg(long, value_name = "P", default_value = "1%")]
    pub reorder: Probability,

    /// Decides which packets are lost and overtaken
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Moves a file by RDMA Write between two processes over UDP, through loss and reordering, with roce-gbn, irn and falcon,
and compares it byte for byte. Then the same bytes cross a simulated 100 Gbit/s link under the same conditions.

Examples:
  rnic demo
  rnic demo --file /usr/bin/gdb --loss 0.1%";
