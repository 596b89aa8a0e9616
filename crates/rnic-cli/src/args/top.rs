//! `rnic top`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use rnic_base::Duration;

use super::values::positive_time;

/// Arguments of `rnic top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Interval between updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_time)]
    pub interval: Duration,

    /// Measure one interval, print the result, and exit
    #[arg(long)]
    pub once: bool,

    /// Number of queue pairs to print: those with the most packets; on a terminal, all can be reached
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub qps: usize,

    /// Serve metrics to Prometheus at ADDR:PORT, path /metrics, until interrupted (port 0: any free port)
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["once", "json", "interval", "qps"])]
    pub prometheus: Option<SocketAddr>,

    /// Write metrics to FILE at each update, for the textfile collector of Prometheus' node exporter, which reads files
    /// whose names end in .prom
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "json", "qps", "prometheus"])]
    pub textfile: Option<PathBuf>,

    /// Print one JSON object with all counters, and exit
    #[arg(long, conflicts_with_all = ["once", "interval", "qps"])]
    pub json: bool,
}

const EXAMPLES: &str = "\
Shows the processes of this user (for root: of all users) in this network namespace that have opened the software \
device, with their rates, losses, retransmissions and out-of-order packets. On a terminal, queue pairs can be sorted \
and selected, and the history of the selected one is shown; q ends it.

Examples:
  rnic top
  rnic top --once
  rnic top --json | jq '.devices[].counters.packets_retransmitted'
  rnic top --prometheus 127.0.0.1:9464
  rnic top --interval 10s --textfile /var/lib/prometheus/node-exporter/rnic.prom";
