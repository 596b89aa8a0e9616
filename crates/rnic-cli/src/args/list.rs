//! `rnic list`.

use clap::Args;

/// Arguments of `rnic list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  rnic list\n  rnic list --json | jq '.transports[].options[].name'")]
pub struct ListArgs {
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
