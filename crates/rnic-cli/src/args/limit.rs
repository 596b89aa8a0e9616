//! `rnic limit`.

use clap::Args;
use rnic_base::BitRate;

/// Arguments of `rnic limit`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LimitArgs {
    /// ID of the process, as `rnic top` shows it
    #[arg(value_name = "PID")]
    pub pid: u32,

    /// Limit, framing included (1Mbps or more), or `none` to remove it
    #[arg(value_name = "RATE", value_parser = limit)]
    pub rate: Limit,

    /// Limit this queue pair only (default: all of the process, and those that it creates later)
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair)]
    pub qp: Option<u32>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A rate limit given on the command line; `None` (`none`) means unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit(pub Option<BitRate>);

fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    text.parse().map(|rate| Limit(Some(rate))).map_err(|error: rnic_base::UnitError| format!("{error}, or `none`"))
}

/// Parses the number of a queue pair, decimal or, after `0x`, hexadecimal.
fn queue_pair(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = parsed.ok().filter(|number| *number < 1 << 24);
    number.ok_or_else(|| "expected a queue pair number, such as 0x1a2b or 6699".to_owned())
}

const EXAMPLES: &str = "\
Limits the rate at which the NIC takes the data of a queue pair out of memory: requests, responses to Reads and \
retransmissions, over every transport. The program continues and is not told. A lower limit that it has set itself \
(ibv_modify_qp_rate_limit) stays in force. Permitted for the user of the process, and for root.

Examples:
  rnic limit 4711 2Gbps
  rnic limit 4711 500Mbps --qp 0x1a2b
  rnic limit 4711 none";
