//! Results of the demonstration.

use rnic_reproduce::machine::Machine;
use serde::Serialize;

/// Results of transferring one file with several transports, over UDP and simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Name of the file, without its folder.
    pub file: String,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Fraction of packets dropped on purpose, from 0 to 1.
    pub loss: f64,
    /// Fraction of packets reordered on purpose, from 0 to 1.
    pub reorder: f64,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Size of one Write, in bytes.
    pub write_bytes: u64,
    /// Writes in flight.
    pub depth: u32,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Command that repeats the demonstration.
    pub command: String,
    /// Machine on which the demonstration ran.
    pub machine: Machine,
    /// Runs, one for each transport and wire.
    pub runs: Vec<Run>,
}

/// Carrier of the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// UDP over loopback between two processes, in real time.
    Udp,
    /// The simulated fabric, in simulated time.
    Sim,
}

/// One transfer of the file; on `udp`, the median of several transfers.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Name of the transport.
    pub transport: String,
    /// Carrier of the packets.
    pub wire: Carrier,
    /// Payload bits divided by the elapsed time, in Gbit/s.
    pub goodput_gbps: f64,
    /// Goodputs of all transfers in ascending order, in Gbit/s, when there were several; this run is the median one.
    pub goodputs_gbps: Vec<f64>,
    /// Seconds from the first Write posted to the last completed; simulated seconds on `sim`.
    pub elapsed_s: f64,
    /// Number of data packets sent, including retransmissions.
    pub packets_sent: u64,
    /// Number of data packets that were retransmissions.
    pub packets_retransmitted: u64,
    /// Time from posting to completion of one Write.
    pub latency_us: Latency,
    /// True when every byte arrived as it was sent.
    pub verified: bool,
    /// Seconds since the start, and the number of bytes whose Writes had completed by then; only as many points as
    /// the chart needs.
    pub delivered: Vec<(f64, u64)>,
}

/// Latencies of operations, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Comparison {
    /// Returns the run of `transport` over `wire`.
    pub fn run(&self, transport: &str, wire: Carrier) -> Option<&Run> {
        self.runs.iter().find(|run| run.transport == transport && run.wire == wire)
    }

    /// Returns the smallest number of real transfers that were made with any one transport.
    pub fn transfers(&self) -> usize {
        let real = self.runs.iter().filter(|run| run.wire == Carrier::Udp);
        real.map(|run| run.goodputs_gbps.len().max(1)).min().unwrap_or(0)
    }

    /// Returns `true` if every byte arrived intact in every transfer.
    pub fn is_verified(&self) -> bool {
        self.runs.iter().all(|run| run.verified)
    }
}
