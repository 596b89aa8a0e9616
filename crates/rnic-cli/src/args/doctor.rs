//! `rnic doctor`.

use clap::Args;

/// Arguments of `rnic doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Says what `rnic run` would use here, and why: libraries, addresses, what the kernel gives, limits, every setting. \
Exit code 1 when something stops it from working.

Examples:
  rnic doctor
  rnic doctor --json | jq '.checks[] | select(.state != \"ok\")'";
