//! Result of a measurement.

use rnic_base::{Bytes, Duration};
use rnic_fabric::FalconFlow;
use rnic_page::number;
use rnic_reproduce::machine::Machine;
use serde::Serialize;

use super::size_bytes;
use crate::args::PerfArgs;
use crate::failure::Failure;
use crate::{flows, table};

/// The result of `rnic perf`: the one JSON object of `--json`. Field names end with the unit of the value.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the transport.
    pub transport: String,
    /// Operation that was repeated; `stream` for writes to a stream of bytes.
    pub op: &'static str,
    /// Carrier of the packets: `udp` or `sim`.
    pub wire: &'static str,
    /// True when times and rates are those of a simulation.
    pub simulated: bool,
    /// Size of each operation, in bytes.
    pub size_bytes: u32,
    /// Number of queue pairs.
    pub qps: u32,
    /// Operations in flight on each queue pair.
    pub depth: u32,
    /// Fraction of packets dropped on purpose in each direction, from 0 to 1.
    pub loss: f64,
    /// Fraction of packets reordered on purpose in each direction, from 0 to 1.
    pub reorder: f64,
    /// Delay added to each packet (`udp`), or of the link (`sim`), in microseconds.
    pub delay_us: f64,
    /// Rate of the link in Gbit/s; `None` for no limit.
    pub rate_gbps: Option<f64>,
    /// Payload bytes of a full packet.
    pub mtu_bytes: u32,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Number of operations that completed.
    pub ops: u64,
    /// Number of payload bytes of these operations.
    pub bytes: u64,
    /// Duration of the measurement in seconds; simulated time on `sim`.
    pub elapsed_s: f64,
    /// Payload bits divided by the elapsed time, in Gbit/s.
    pub goodput_gbps: f64,
    /// Completed operations per second.
    pub ops_per_s: f64,
    /// Latencies of the operations.
    pub latency_us: LatencyUs,
    /// `operation`: posting to completion; `half-round-trip`: half of a ping-pong.
    pub latency_kind: &'static str,
    /// Number of data packets sent by both ends, including retransmissions.
    pub packets_sent: u64,
    /// Number of data packets that were retransmissions.
    pub packets_retransmitted: u64,
    /// True when every byte of `ops_verified` operations was compared at the receiving end, and was correct.
    pub verified: bool,
    /// Number of operations that were compared: the measured ones, or on `udp` without `--verify` those of a further
    /// round immediately afterwards, through the same network.
    pub ops_verified: u64,
    /// Number of operations that were compared and wrong.
    pub ops_wrong: u64,
    /// Statistics for flow 0 of all queue pairs, then for flow 1 of all queue pairs, and so on, if queue pairs have
    /// several flows. They count packets sent by this end on `udp`, and by both ends on `sim`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FalconFlow>,
    /// Hash of the event trace of a simulated run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_hash: Option<String>,
    /// The limit that the run reached, if known; only on `sim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// Notices from the NIC during the measurement, such as a path MTU that became too small or a capture that ended;
    /// empty on `sim`.
    pub notices: Vec<String>,
    /// Machine on which the measurement ran.
    pub machine: Machine,
    /// Reason why the requested capture is incomplete.
    #[serde(skip)]
    pub capture_failure: Option<Failure>,
}

/// Name of a stream of bytes as an operation.
const STREAM: &str = "stream";

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct LatencyUs {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The maximum.
    pub max: f64,
}

impl From<[f64; 4]> for LatencyUs {
    fn from([p50, p99, p999, max]: [f64; 4]) -> Self {
        Self { p50, p99, p999, max }
    }
}

impl Outcome {
    /// Returns an outcome that holds the requested parameters, and no measured values yet.
    pub fn with_parameters(args: &PerfArgs, machine: Machine) -> Self {
        Self {
            transport: args.transport.clone(),
            op: if args.stream { STREAM } else { args.op.name() },
            wire: args.wire.name(),
            simulated: false,
            size_bytes: size_bytes(args),
            qps: args.qps,
            depth: args.depth,
            loss: args.loss.as_f64(),
            reorder: args.reorder.as_f64(),
            delay_us: args.delay.map_or(0.0, Duration::as_us_f64),
            rate_gbps: args.rate.map(|rate| rate.as_gbps_f64()),
            mtu_bytes: args.mtu,
            seed: args.seed,
            ops: 0,
            bytes: 0,
            elapsed_s: 0.0,
            goodput_gbps: 0.0,
            ops_per_s: 0.0,
            latency_us: LatencyUs::default(),
            latency_kind: "operation",
            packets_sent: 0,
            packets_retransmitted: 0,
            verified: false,
            ops_verified: 0,
            ops_wrong: 0,
            flows: Vec::new(),
            trace_hash: None,
            limited_by: None,
            notices: Vec::new(),
            machine,
            capture_failure: None,
        }
    }

    /// Returns the result as text for users.
    pub fn text(&self) -> String {
        let Self { transport, op, wire, qps, depth, latency_us: latency, .. } = self;
        let share = self.packets_retransmitted as f64 / self.packets_sent.max(1) as f64 * 100.0;
        let pairs = if *qps == 1 { "1 queue pair".to_owned() } else { format!("{qps} queue pairs") };
        let size = Bytes::new(self.size_bytes.into());
        let shape = if *op == STREAM {
            format!("a stream in writes of {size}, {depth} of them undelivered at most")
        } else {
            format!("{op} of {size}, {pairs}, {depth} in flight")
        };
        let mut text = format!("{transport}, {shape}, {} byte packets, over {wire}\n", self.mtu_bytes);
        text += &table::results(
            &["operations", "Gbit/s", "op/s", "p50", "p99", "p99.9", "max", "packets", "retransmitted", "verified"],
            vec![vec![
                number::grouped(self.ops),
                number::short(self.goodput_gbps),
                number::short(self.ops_per_s),
                number::micros(latency.p50),
                number::micros(latency.p99),
                number::micros(latency.p999),
                number::micros(latency.max),
                number::grouped(self.packets_sent),
                format!("{} ({} %)", number::grouped(self.packets_retransmitted), number::short(share)),
                self.verdict(),
            ]],
        );
        if !self.flows.is_empty() {
            text += &format!("\n{}", table::results(&flows::HEADS, flows::rows(&self.flows)));
        }
        if self.latency_kind == "half-round-trip" {
            text += "Latencies are half of a round trip.\n";
        }
        if let Some(limit) = &self.limited_by {
            text += &format!("Limited by {limit}.\n");
        }
        for notice in &self.notices {
            text += &format!("Notice: {notice}.\n");
        }
        text + &self.origin()
    }

    fn verdict(&self) -> String {
        match (self.verified, self.ops_verified) {
            (true, ops) => format!("{} op", number::grouped(ops)),
            (false, 0) => "not compared".to_owned(),
            (false, _) => "NO".to_owned(),
        }
    }

    /// Returns text that states the source of the figures.
    fn origin(&self) -> String {
        if self.simulated {
            let rate = self.rate_gbps.map_or_else(String::new, number::short);
            let delay = number::micros(self.delay_us);
            return format!("Simulated: a link of {rate} Gbit/s and {delay} each way. Nothing of this is real time.\n");
        }
        format!("Software on {}: not figures of RDMA hardware.\n", self.machine.summary())
    }

    /// Checks that the received data was correct, and that the requested capture is complete.
    ///
    /// # Errors
    /// When operations delivered wrong data, or the capture is incomplete.
    pub fn check(&self) -> Result<(), Failure> {
        match self.ops_wrong {
            0 => self.capture_failure.clone().map_or(Ok(()), Err),
            wrong => Err(Failure::Check(format!("check failed: {wrong} operations delivered wrong data"))),
        }
    }
}
