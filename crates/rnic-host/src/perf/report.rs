//! What a measurement comes to.

use serde::{Deserialize, Serialize};

/// The result of a measurement. Field names carry the unit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PerfReport {
    /// The transport that the two ends have agreed on.
    pub transport: String,
    /// What was repeated.
    pub op: String,
    /// What carried the packets: `udp`.
    pub wire: String,
    /// Bytes of each operation.
    pub size_bytes: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Operations in flight on each.
    pub depth: u32,
    /// Packets lost on purpose, each way, as a share of one.
    pub loss: f64,
    /// Packets reordered on purpose, each way, as a share of one.
    pub reorder: f64,
    /// Operations that completed.
    pub ops: u64,
    /// Bytes that they moved, one way.
    pub bytes: u64,
    /// From the first operation posted to the last completed.
    pub elapsed_s: f64,
    /// Payload by time.
    pub goodput_gbps: f64,
    /// Operations by time.
    pub ops_per_s: f64,
    /// How long operations took.
    pub latency_us: LatencyUs,
    /// What of them.
    pub latency_kind: LatencyKind,
    /// Data packets of both ends (requests and responses), first time and again.
    pub packets_sent: u64,
    /// Of these, sent again.
    pub packets_retransmitted: u64,
    /// Every byte of every operation was compared with what it should be, and was.
    pub verified: bool,
    /// Operations that were compared.
    pub ops_verified: u64,
    /// Operations that were compared and wrong.
    pub ops_wrong: u64,
    /// Payload bytes of a full packet.
    pub wire_mtu_bytes: u32,
    /// The kernel cut trains into packets at this end.
    pub segmentation: bool,
    /// What this end sent by flow 0 of every queue pair, by flow 1 of every one, and so on, where they have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowReport>,
}

/// What the flows of one index sent, of all queue pairs of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlowReport {
    /// Packets with data or requests, first time and again.
    pub packets: u64,
    /// Of these, sent again.
    pub packets_retransmitted: u64,
    /// Times that such a flow took another path.
    pub path_changes: u64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
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

/// What was timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyKind {
    /// From posting an operation to its completion, waiting for those before it included.
    Operation,
    /// Half of a round trip of two Sends.
    HalfRoundTrip,
}
