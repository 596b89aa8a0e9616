//! Contents of a snapshot. Names end in their unit; fields are added, not changed.

use serde::{Deserialize, Serialize};

/// One device of one process, at one moment. Counters only grow, so the difference of two snapshots is the activity
/// between them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Name of the device, as programs see it.
    pub device: String,
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
    /// Counters of the device.
    pub counters: DeviceCounters,
    /// Its queue pairs, by number.
    pub queue_pairs: Vec<QueuePairSnapshot>,
    /// Number of queue pairs that are left out because there are too many.
    pub queue_pairs_omitted: u64,
}

/// Counters of a device: the sums over all queue pairs, including destroyed ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceCounters {
    /// Data packets sent for the first time.
    pub packets_sent: u64,
    /// Data packets retransmitted.
    pub packets_retransmitted: u64,
    /// Acknowledgements of every type sent.
    pub acks_sent: u64,
    /// Packets received that could be decoded.
    pub packets_received: u64,
    /// Of these, packets that arrived out of order and were kept.
    pub packets_out_of_order: u64,
    /// Of these, duplicates.
    pub packets_duplicate: u64,
    /// Packets received but not used, for any reason; duplicates are not among them.
    pub packets_dropped: u64,
    /// Bytes of packets sent: UDP payload, and packets through shared memory.
    pub bytes_sent: u64,
    /// Bytes of packets received, likewise.
    pub bytes_received: u64,
    /// Of the bytes sent, those that went through shared memory to a process of this machine.
    pub bytes_sent_by_memory: u64,
    /// System calls that sent packets.
    pub send_calls: u64,
    /// System calls that received packets.
    pub receive_calls: u64,
    /// Timeouts that caused a retransmission.
    pub timeouts: u64,
    /// Negative acknowledgements received.
    pub nacks: u64,
    /// RNR NAKs sent: no receive was posted.
    pub rnr_naks_sent: u64,
    /// Packets received with a congestion mark of the network.
    pub marks_received: u64,
    /// Congestion notifications (CNP) sent to peers.
    pub cnps_sent: u64,
    /// Congestion notifications received.
    pub cnps_received: u64,
    /// Datagrams that the kernel finally refused to send: to peers they are lost.
    pub datagrams_refused: u64,
    /// Packets dropped by impairment.
    pub impairment_lost: u64,
    /// Packets delayed by impairment so that others overtake them.
    pub impairment_reordered: u64,
    /// Packets duplicated by impairment.
    pub impairment_duplicated: u64,
    /// Packets in which impairment inverted a bit.
    pub impairment_corrupted: u64,
}

impl DeviceCounters {
    /// Adds the counters of another device.
    pub fn accumulate(&mut self, other: &Self) {
        macro_rules! add {
            ($($field:ident),* $(,)?) => {
                // Destructures all fields: the compiler reports one that is added to the structure but missing here.
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
            nacks,
            rnr_naks_sent,
            marks_received,
            cnps_sent,
            cnps_received,
            datagrams_refused,
            impairment_lost,
            impairment_reordered,
            impairment_duplicated,
            impairment_corrupted,
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
    /// Name of its transport.
    pub transport: String,
    /// Address of its peer; empty when it has none.
    pub peer: String,
    /// Number of the peer's queue pair.
    pub peer_number: u32,
    /// Packets sent for the first time.
    pub packets_sent: u64,
    /// Packets retransmitted.
    pub packets_retransmitted: u64,
    /// Packets of the peer accepted, including acknowledgements.
    pub packets_received: u64,
    /// Of these, packets that arrived out of order and were kept.
    pub packets_out_of_order: u64,
    /// Duplicate packets of the peer.
    pub packets_duplicate: u64,
    /// Packets of the peer dropped for any other reason.
    pub packets_dropped: u64,
    /// RNR NAKs received from the peer.
    pub rnr_naks: u64,
    /// RNR NAKs sent to the peer: no receive was posted.
    pub rnr_naks_sent: u64,
    /// Negative acknowledgements received from the peer.
    pub nacks: u64,
    /// Timeouts that caused a retransmission.
    pub timeouts: u64,
    /// Packets in flight.
    pub packets_in_flight: u64,
    /// Packets that may be in flight; none when only the peer limits them.
    pub window_packets: Option<u64>,
    /// The most recently measured round-trip time, in microseconds.
    pub round_trip_us: Option<f64>,
    /// The flows of a Falcon connection that has several, each on its own path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowSnapshot>,
}

/// A flow of a Falcon connection that has several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowSnapshot {
    /// Flow label, which the network may hash: another label selects another path.
    pub label: u32,
    /// Packets sent for the first time.
    pub packets_sent: u64,
    /// Packets retransmitted.
    pub packets_retransmitted: u64,
    /// Number of changes to another path.
    pub path_changes: u64,
    /// Packets in flight.
    pub packets_in_flight: u64,
    /// Congestion window in packets; below one, sending is paced by time.
    pub window_packets: f64,
    /// The round-trip time most recently measured on it, in microseconds.
    pub round_trip_us: Option<f64>,
}
