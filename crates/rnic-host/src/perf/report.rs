//! Result of a measurement.

use serde::{Deserialize, Serialize};

/// The result of a measurement. Field names carry the unit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PerfReport {
    /// Name of the transport that the two ends have agreed on.
    pub transport: String,
    /// The operation that was repeated.
    pub op: String,
    /// Layer that carried the packets: `udp`.
    pub wire: String,
    /// Bytes of each operation.
    pub size_bytes: u32,
    /// Number of queue pairs.
    pub qps: u32,
    /// Operations in flight on each queue pair.
    pub depth: u32,
    /// Configured loss probability in each direction, 0 to 1.
    pub loss: f64,
    /// Configured reordering probability in each direction, 0 to 1.
    pub reorder: f64,
    /// Operations that completed.
    pub ops: u64,
    /// Bytes that the operations moved, in one direction.
    pub bytes: u64,
    /// Time from posting the first operation to the last completion, in seconds.
    pub elapsed_s: f64,
    /// Goodput: payload bits per time, in Gbit/s.
    pub goodput_gbps: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Latencies of the operations.
    pub latency_us: LatencyUs,
    /// Definition of the latency.
    pub latency_kind: LatencyKind,
    /// Data packets of both ends (requests and responses), including retransmissions.
    pub packets_sent: u64,
    /// Of these, retransmissions.
    pub packets_retransmitted: u64,
    /// True when every byte of every operation was compared and correct.
    pub verified: bool,
    /// Operations that were compared.
    pub ops_verified: u64,
    /// Operations that were compared and wrong.
    pub ops_wrong: u64,
    /// Payload bytes of a full packet.
    pub wire_mtu_bytes: u32,
    /// True when the kernel split buffers into packets (GSO) at this end.
    pub segmentation: bool,
    /// Counters of the packets that this end sent, by flow index, each summed over all queue pairs; empty when queue
    /// pairs have one flow only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowReport>,
}

/// Counters of the flows with one index, summed over all queue pairs of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlowReport {
    /// Packets with data or requests, including retransmissions.
    pub packets: u64,
    /// Of these, retransmissions.
    pub packets_retransmitted: u64,
    /// Number of path changes of these flows.
    pub path_changes: u64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LatencyUs {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

/// Definition of a latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyKind {
    /// Time from posting an operation to its completion, including the wait for earlier operations.
    Operation,
    /// Half of the round-trip time of two Sends.
    HalfRoundTrip,
}
