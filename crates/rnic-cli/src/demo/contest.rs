//! What the demonstration has measured.

use serde::Serialize;

use crate::machine::Machine;

/// One file, several transports, two bodies.
#[derive(Clone, Debug, Serialize)]
pub struct Contest {
    /// Name of the file, without its folder.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Packets lost on purpose, as a share of one.
    pub loss: f64,
    /// Packets overtaken on purpose, as a share of one.
    pub reorder: f64,
    /// What all chance follows from.
    pub seed: u64,
    /// Bytes of one Write.
    pub write_bytes: u64,
    /// Writes in flight.
    pub depth: u32,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// What repeats it.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// One for each transport and wire.
    pub runs: Vec<Run>,
}

/// What carried the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Two processes, UDP over loopback, real time.
    Udp,
    /// The fabric, simulated time.
    Sim,
}

/// The file, moved; on `udp` the median of several transfers.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Which transport.
    pub transport: String,
    /// Which body.
    pub wire: Carrier,
    /// Payload by time.
    pub goodput_gbps: f64,
    /// That of every transfer, in ascending order, where there were several; this run is the median one.
    pub goodputs_gbps: Vec<f64>,
    /// From the first Write posted to the last completed; simulated seconds on `sim`.
    pub elapsed_s: f64,
    /// Data packets sent, first time and again.
    pub packets_sent: u64,
    /// Of these, sent again.
    pub packets_retransmitted: u64,
    /// Posting to completion of one Write.
    pub latency_us: Latency,
    /// Every byte arrived as it was sent.
    pub verified: bool,
    /// Seconds since the start, and bytes whose Writes have completed by then; thinned.
    pub delivered: Vec<(f64, u64)>,
}

/// How long operations took, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// One in a hundred takes longer.
    pub p99: f64,
}

impl Contest {
    /// The run of `transport` over `wire`.
    pub fn run(&self, transport: &str, wire: Carrier) -> Option<&Run> {
        self.runs.iter().find(|run| run.transport == transport && run.wire == wire)
    }

    /// How often each transport has moved the file for real, at least.
    pub fn transfers(&self) -> usize {
        let real = self.runs.iter().filter(|run| run.wire == Carrier::Udp);
        real.map(|run| run.goodputs_gbps.len().max(1)).min().unwrap_or(0)
    }

    /// Every byte arrived, every time.
    pub fn is_verified(&self) -> bool {
        self.runs.iter().all(|run| run.verified)
    }
}
