//! What a measurement comes to.

use rnic_base::{Bytes, Duration};
use rnic_fabric::FalconFlow;
use serde::Serialize;

use super::size_bytes;
use crate::args::PerfArgs;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::{flows, number, table};

/// The result of `rnic perf`: the one JSON object of `--json`. Names end in their unit.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The transport.
    pub transport: String,
    /// What was repeated.
    pub op: &'static str,
    /// What carried the packets: `udp` or `sim`.
    pub wire: &'static str,
    /// Times and rates are those of a simulation.
    pub simulated: bool,
    /// Bytes of each operation.
    pub size_bytes: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Operations in flight on each.
    pub depth: u32,
    /// Packets lost on purpose, each way, as a share of one.
    pub loss: f64,
    /// Packets overtaken on purpose, each way, as a share of one.
    pub reorder: f64,
    /// Delay added to each packet (`udp`), or of the link (`sim`).
    pub delay_us: f64,
    /// Rate of the link; none is no limit.
    pub rate_gbps: Option<f64>,
    /// Payload bytes of a full packet.
    pub mtu_bytes: u32,
    /// What chance followed from.
    pub seed: u64,
    /// Operations that completed.
    pub ops: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// How long it took; simulated time on `sim`.
    pub elapsed_s: f64,
    /// Payload by time.
    pub goodput_gbps: f64,
    /// Operations by time.
    pub ops_per_s: f64,
    /// How long operations took.
    pub latency_us: LatencyUs,
    /// `operation`: posting to completion; `half-round-trip`: half of a ping-pong.
    pub latency_kind: &'static str,
    /// Data packets of both ends, first time and again.
    pub packets_sent: u64,
    /// Of these, sent again.
    pub packets_retransmitted: u64,
    /// Every byte of `ops_verified` operations was compared where it arrived, and was right.
    pub verified: bool,
    /// Operations that were compared: those that were measured, or on `udp` without `--verify` a round of others
    /// right after, through the same network.
    pub ops_verified: u64,
    /// Operations that were compared and wrong.
    pub ops_wrong: u64,
    /// Flow 0 of every queue pair, flow 1 of every one, and so on, where they have several: what this end sent on
    /// `udp`, what both did on `sim`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FalconFlow>,
    /// Fingerprint of a simulated run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_hash: Option<String>,
    /// The limit that the run met, where it is known: on `sim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// What the NIC had to tell meanwhile: a path that became too narrow, a capture that ended; nothing on `sim`.
    pub notices: Vec<String>,
    /// Where it ran.
    pub machine: Machine,
    /// Why the capture that was asked for is not whole.
    #[serde(skip)]
    pub capture_failure: Option<Failure>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct LatencyUs {
    /// Half of all are shorter.
    pub p50: f64,
    /// 99 of 100 are shorter.
    pub p99: f64,
    /// 999 of 1000 are shorter.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl From<[f64; 4]> for LatencyUs {
    fn from([p50, p99, p999, max]: [f64; 4]) -> Self {
        Self { p50, p99, p999, max }
    }
}

impl Outcome {
    /// What was asked for; nothing measured yet.
    pub fn asked_for(args: &PerfArgs, machine: Machine) -> Self {
        Self {
            transport: args.transport.clone(),
            op: args.op.name(),
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

    /// For people.
    pub fn text(&self) -> String {
        let Self { transport, op, wire, qps, depth, latency_us: latency, .. } = self;
        let share = self.packets_retransmitted as f64 / self.packets_sent.max(1) as f64 * 100.0;
        let pairs = if *qps == 1 { "1 queue pair".to_owned() } else { format!("{qps} queue pairs") };
        let mut text = format!(
            "{transport}, {op} of {}, {pairs}, {depth} in flight, {} byte packets, over {wire}\n",
            Bytes::new(self.size_bytes.into()),
            self.mtu_bytes
        );
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

    /// What the figures are figures of.
    fn origin(&self) -> String {
        if self.simulated {
            let rate = self.rate_gbps.map_or_else(String::new, number::short);
            let delay = number::micros(self.delay_us);
            return format!("Simulated: a link of {rate} Gbit/s and {delay} each way. Nothing of this is real time.\n");
        }
        format!("Software on {}: not figures of RDMA hardware.\n", self.machine.summary())
    }

    /// Whether what arrived was right, and what was to be written is there.
    ///
    /// # Errors
    /// When operations have brought wrong data, or the capture is not whole.
    pub fn check(&self) -> Result<(), Failure> {
        match self.ops_wrong {
            0 => self.capture_failure.clone().map_or(Ok(()), Err),
            wrong => Err(Failure::Check(format!("check failed: {wrong} operations brought wrong data"))),
        }
    }
}
