//! Contents of a snapshot. Field names end in their unit. Later versions may add fields, but do not change existing
//! ones.

use serde::{Deserialize, Serialize};

/// The state of one device of one process at one moment. Counters only increase, so the difference of two snapshots
/// is the activity between them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Name of the device, as shown to programs.
    pub device: String,
    /// User ID of the owner of the process.
    pub user: u32,
    /// Process ID.
    pub pid: u32,
    /// Index of the device within the process: a program may open several with the same name.
    pub context: u32,
    /// Name of the program.
    pub program: String,
    /// Time since the device was opened, in microseconds.
    pub uptime_us: u64,
    /// Transport of reliable connections.
    pub transport: String,
    /// Description of the layer that carries the packets.
    pub wire: String,
    /// The configured impairment of the network, as text; empty for none.
    pub impairment: Vec<String>,
    /// Weight, share and rates of the process on a link that it shares with others; `None` if it shares none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareSnapshot>,
    /// Measured rate that schedulers divide among the queue pairs, in Gbit/s; `None` where a link has a known rate, or
    /// no scheduler divides one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_gbps: Option<f64>,
    /// Mean time that recently received packets waited until the NIC read them, in microseconds; `None` when that is
    /// not measured, because the NIC exchanges no messages with those of peers, or no packet has arrived recently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_delay_us: Option<f64>,
    /// Counters of the device.
    pub counters: DeviceCounters,
    /// Send requests by their time from post to completion; `None` unless latencies are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latencies: Option<LatencySnapshot>,
    /// Queue pairs of the device, in the order of their numbers.
    pub queue_pairs: Vec<QueuePairSnapshot>,
    /// Number of queue pairs that are omitted because there are too many.
    pub queue_pairs_omitted: u64,
}

/// Weight, share and rates of a process on a link that it shares with other processes of its user.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareSnapshot {
    /// Weight of the process.
    pub weight: u32,
    /// Number of the page through which the processes share the link: processes of one user with the same number share
    /// one link.
    pub page: u64,
    /// Rate of the shared link, in Gbit/s; `None` when the process draws from none.
    pub link_gbps: Option<f64>,
    /// Share of the link's capacity that the process may use when it has data, in Gbit/s.
    pub share_gbps: Option<f64>,
    /// True when the schedulers of the queue pairs limited them to the NIC's share when the queue pairs last had data.
    pub holds_share: bool,
    /// Mean rate of sent payload over some 200 ms, in Gbit/s.
    pub payload_gbps: f64,
    /// Bytes sent, counting Ethernet framing.
    pub wire_bytes_sent: u64,
    /// Payload bytes sent; without a shared link, the packets' bytes without their shortest headers.
    pub payload_bytes_sent: u64,
    /// Number of times that the process had to wait because the queue of the shared link was full.
    pub link_waits: u64,
    /// Number of other processes that draw from the link.
    pub neighbours: u32,
}

/// Send requests that have completed successfully, by their time from post to completion.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencySnapshot {
    /// Entry n has the number of requests of at most 2^n microseconds that are not in an entry before; the last entry
    /// has the rest.
    pub counts: Vec<u64>,
    /// Sum of all times, in nanoseconds.
    pub sum_ns: u64,
}

/// Counters of a device: the sums over all queue pairs, including destroyed ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceCounters {
    /// Data packets sent for the first time.
    pub packets_sent: u64,
    /// Data packets retransmitted.
    pub packets_retransmitted: u64,
    /// Acknowledgements sent, of all types.
    pub acks_sent: u64,
    /// Received packets that could be decoded.
    pub packets_received: u64,
    /// Of these, packets that arrived out of order and were stored.
    pub packets_out_of_order: u64,
    /// Of these, duplicates.
    pub packets_duplicate: u64,
    /// Received packets that were dropped, for any reason; duplicates are not included.
    pub packets_dropped: u64,
    /// Bytes of packets sent: UDP payload, and packets through shared memory.
    pub bytes_sent: u64,
    /// Bytes of packets received, counted in the same way.
    pub bytes_received: u64,
    /// Bytes sent through shared memory to processes of this machine; included in the bytes sent.
    pub bytes_sent_by_memory: u64,
    /// Number of system calls that sent packets.
    pub send_calls: u64,
    /// Number of system calls that received packets.
    pub receive_calls: u64,
    /// Timeouts that caused a retransmission.
    pub timeouts: u64,
    /// Timeouts of these after which packets were acknowledged too soon to have been lost: the delay of the path or of
    /// the peer's process was longer than the timeout.
    pub timeouts_spurious: u64,
    /// Negative acknowledgements received.
    pub nacks: u64,
    /// RNR NAKs sent, because no receive was posted.
    pub rnr_naks_sent: u64,
    /// Packets received with a congestion mark set by the network.
    pub marks_received: u64,
    /// Congestion notification packets (CNP) sent to peers.
    pub cnps_sent: u64,
    /// Congestion notification packets received.
    pub cnps_received: u64,
    /// Windows in which a loaded transport program was replaced by a built-in one, because its outputs were invalid.
    pub programs_replaced: u64,
    /// Datagrams that the kernel permanently refused to send; for the peers they are lost in the network.
    pub datagrams_refused: u64,
    /// Hints of the program that were applied.
    pub hints_applied: u64,
    /// Hints that were rejected because they were invalid, or because the program was changing them while they were
    /// read.
    pub hints_rejected: u64,
    /// Streams of bytes that were made.
    #[serde(default)]
    pub streams_opened: u64,
    /// Streams among these for which no flow id was left.
    #[serde(default)]
    pub streams_in_software: u64,
    /// Messages to the NICs of peers that were sent.
    pub nic_messages_sent: u64,
    /// Messages of the NICs of peers that were accepted.
    pub nic_messages_received: u64,
    /// Messages of the NICs of peers that were dropped because a rule forbids them; those from unknown senders count as
    /// dropped packets only.
    pub nic_messages_dropped: u64,
    /// Packets dropped by impairment.
    pub impairment_lost: u64,
    /// Packets delayed by impairment so that others overtake them.
    pub impairment_reordered: u64,
    /// Packets duplicated by impairment.
    pub impairment_duplicated: u64,
    /// Packets in which impairment inverted a bit.
    pub impairment_corrupted: u64,
    /// Received packets whose payload impairment cut.
    pub impairment_trimmed: u64,
    /// Received packets that impairment marked.
    pub impairment_marked: u64,
}

impl DeviceCounters {
    /// Adds the counters of another device to those of this one.
    pub fn accumulate(&mut self, other: &Self) {
        macro_rules! add {
            ($($field:ident),* $(,)?) => {
                // All fields are destructured, so that the compiler reports a field that is added to the structure
                // but missing here.
                let Self { $($field),* } = *other;
                $(self.$field = self.$field.saturating_add($field);)*
            };
        }
        add!(
            packets_sent,
            packets_retransmitted,
            acks_sent,
            packets_received,
            packets_out_of_order,
            packets_duplicate,
            packets_dropped,
            bytes_sent,
            bytes_received,
            bytes_sent_by_memory,
            send_calls,
            receive_calls,
            timeouts,
            timeouts_spurious,
            nacks,
            rnr_naks_sent,
            marks_received,
            cnps_sent,
            cnps_received,
            programs_replaced,
            datagrams_refused,
            hints_applied,
            hints_rejected,
            streams_opened,
            streams_in_software,
            nic_messages_sent,
            nic_messages_received,
            nic_messages_dropped,
            impairment_lost,
            impairment_reordered,
            impairment_duplicated,
            impairment_corrupted,
            impairment_trimmed,
            impairment_marked,
        );
    }
}

/// A queue pair in a snapshot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueuePairSnapshot {
    /// Queue pair number.
    pub number: u32,
    /// `RC`, `UC` or `UD`.
    pub service: String,
    /// State: `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE`, `ERR`.
    pub state: String,
    /// Name of the transport.
    pub transport: String,
    /// Name of the transport program in use, if it was loaded from a file; `None` for built-in ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Address of the peer; empty when the queue pair has none.
    pub peer: String,
    /// Number of the peer's queue pair.
    pub peer_number: u32,
    /// Packets sent for the first time.
    pub packets_sent: u64,
    /// Packets retransmitted.
    pub packets_retransmitted: u64,
    /// Accepted packets from the peer, including acknowledgements.
    pub packets_received: u64,
    /// Of these, packets that arrived out of order and were stored.
    pub packets_out_of_order: u64,
    /// Duplicate packets from the peer.
    pub packets_duplicate: u64,
    /// Packets from the peer dropped for any other reason.
    pub packets_dropped: u64,
    /// RNR NAKs received from the peer.
    pub rnr_naks: u64,
    /// RNR NAKs sent to the peer, because no receive was posted.
    pub rnr_naks_sent: u64,
    /// Negative acknowledgements received from the peer.
    pub nacks: u64,
    /// Timeouts that caused a retransmission.
    pub timeouts: u64,
    /// Timeouts of these after which packets were acknowledged too soon to have been lost: the delay of the path or of
    /// the peer's process was longer than the timeout.
    pub timeouts_spurious: u64,
    /// Packets in flight.
    pub packets_in_flight: u64,
    /// Maximum number of packets in flight; `None` when only the limit of the peer applies.
    pub window_packets: Option<u64>,
    /// Dequeue rate that applies, in Gbit/s: the lowest of the limits set by program, operator and scheduler.
    pub dequeue_gbps: Option<f64>,
    /// Limit that the peer has set by grants or back-pressure, in Gbit/s; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_limit_gbps: Option<f64>,
    /// Round trip of the path by the last probe, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probed_round_trip_us: Option<f64>,
    /// Host delay of the peer as it has recently reported, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_host_delay_us: Option<f64>,
    /// Number of times that a packet had to wait for the dequeue rate.
    pub dequeue_waits: u64,
    /// The most recently measured round-trip time, in microseconds.
    pub round_trip_us: Option<f64>,
    /// Send requests that have completed successfully; zero, as the three sums, unless latencies are measured.
    pub operations: u64,
    /// Time that they waited before only the window or the pacing held them back, in nanoseconds.
    pub admission_ns: u64,
    /// Time from then until their first packets were sent, in nanoseconds.
    pub window_ns: u64,
    /// Time from then until they completed, in nanoseconds: both ways on the wire, and the remote NIC.
    pub network_ns: u64,
    /// The flows of a Falcon connection that has several; each flow uses its own path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowSnapshot>,
}

/// A flow of a Falcon connection that has several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowSnapshot {
    /// Flow label, which the network may use for path selection: another label selects another path.
    pub label: u32,
    /// Packets sent for the first time.
    pub packets_sent: u64,
    /// Packets retransmitted.
    pub packets_retransmitted: u64,
    /// Number of times that the flow was moved to another path.
    pub path_changes: u64,
    /// Packets in flight.
    pub packets_in_flight: u64,
    /// Congestion window in packets; below one, packets are paced by time.
    pub window_packets: f64,
    /// The most recently measured round-trip time of the flow, in microseconds.
    pub round_trip_us: Option<f64>,
}
