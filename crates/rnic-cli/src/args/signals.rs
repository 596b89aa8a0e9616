//! `rnic signals`.

use clap::Args;
use rnic_base::Duration;

use super::values::positive_time;

/// Arguments of `rnic signals`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SignalsArgs {
    /// ID of the process, as `rnic top` shows it
    #[arg(value_name = "PID")]
    pub pid: u32,

    /// Time after which to stop (default: when the process ends or the reader of the output does)
    #[arg(long = "for", value_name = "TIME", value_parser = positive_time)]
    pub time: Option<Duration>,
}

const EXAMPLES: &str = "\
Prints what happens at the queue pairs and the NIC of a process, as the control programs of SCR see it, a line of \
JSON each: tx, rx, ack, nack, cnp (packets), rtt (answered probes), hint, bus, nic (this host; the latency of the \
bus is the time that packets wait for the process), credit, peer-bus, peer-nic (messages of peers; see --messages of \
rnic run). Signals of the same kind and queue pair within a millisecond are one line. The NIC collects them while \
this command runs, and two seconds longer; two commands for one process share them. Times are those of the process, \
from the start of its NIC.

Examples:
  rnic signals 4711 | head
  rnic signals 4711 --for 5s | jq -c 'select(.signal == \"ack\") | [.t_us, .rtt_us]'";
