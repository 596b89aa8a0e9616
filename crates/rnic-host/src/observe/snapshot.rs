//! What is told. Names end in their unit; fields are added, not changed.

use serde::{Deserialize, Serialize};

/// One device of one process, at one moment. Counters only grow, so the difference of two snapshots is what happened
/// between them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Name of the device, as programs see it.
    pub device: String,
    /// Number of the process.
    pub pid: u32,
    /// Which of the process's devices it is: a program may open several, of one name.
    pub context: u32,
    /// Its program.
    pub program: String,
    /// Since the device was opened.
    pub uptime_us: u64,
    /// Transport of reliable connections.
    pub transport: String,
    /// What carries the packets, in words.
    pub wire: String,
    /// The bad network that was asked for, in words; empty for none.
    pub impairment: Vec<String>,
    /// What the device has counted.
    pub counters: DeviceCounters,
    /// Its queue pairs, by number.
    pub queue_pairs: Vec<QueuePairSnapshot>,
    /// Queue pairs that are not told because there are too many.
    pub queue_pairs_omitted: u64,
}

/// Counters of a device: all queue pairs together, those that are gone included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceCounters {
    /// Data packets sent for the first time.
    pub packets_sent: u64,
    /// Data packets sent again.
    pub packets_retransmitted: u64,
    /// Acknowledgements of every kind sent.
    pub acks_sent: u64,
    /// Packets that came in and could be read.
    pub packets_received: u64,
    /// Of these, out of order and kept.
    pub packets_out_of_order: u64,
    /// Of these, seen before.
    pub packets_duplicate: u64,
    /// Packets that came in and were not used, for any reason; duplicates are not among them.
    pub packets_dropped: u64,
    /// Bytes of packets sent: UDP payload, and what went through memory.
    pub bytes_sent: u64,
    /// Bytes of packets that came in, likewise.
    pub bytes_received: u64,
    /// Of those sent, the ones that went through memory to a process of this machine.
    pub bytes_sent_by_memory: u64,
    /// Calls of the kernel that sent something.
    pub send_calls: u64,
    /// Calls of the kernel that received something.
    pub receive_calls: u64,
    /// Timeouts on which something was sent again.
    pub timeouts: u64,
    /// Negative acknowledgements that came in.
    pub nacks: u64,
    /// Times a peer was told that no receive is posted.
    pub rnr_naks_sent: u64,
    /// Packets that a network has marked where it was congested.
    pub marks_received: u64,
    /// Congestion notifications (CNP) sent to peers.
    pub cnps_sent: u64,
    /// Congestion notifications that came in.
    pub cnps_received: u64,
    /// Datagrams that the kernel refused for good: to peers they are lost.
    pub datagrams_refused: u64,
    /// Packets that impairment has lost.
    pub impairment_lost: u64,
    /// Packets that impairment has let others overtake.
    pub impairment_reordered: u64,
    /// Packets that impairment has sent twice.
    pub impairment_duplicated: u64,
    /// Packets in which impairment has made a bit wrong.
    pub impairment_corrupted: u64,
}

impl DeviceCounters {
    /// Adds what another device has counted.
    pub fn accumulate(&mut self, other: &Self) {
        macro_rules! add {
            ($($field:ident),* $(,)?) => {
                // All of them: one that is added to the structure is missed here by the compiler.
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

/// A queue pair.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueuePairSnapshot {
    /// Its number.
    pub number: u32,
    /// `RC`, `UC` or `UD`.
    pub service: String,
    /// Its state: `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE`, `ERR`.
    pub state: String,
    /// Its transport.
    pub transport: String,
    /// Where its peer is; empty when it has none.
    pub peer: String,
    /// The peer's queue pair.
    pub peer_number: u32,
    /// Packets sent for the first time.
    pub packets_sent: u64,
    /// Packets sent again.
    pub packets_retransmitted: u64,
    /// Packets of the peer taken, acknowledgements included.
    pub packets_received: u64,
    /// Of these, out of order and kept.
    pub packets_out_of_order: u64,
    /// Packets of the peer that had come in before.
    pub packets_duplicate: u64,
    /// Packets of the peer not used for any other reason.
    pub packets_dropped: u64,
    /// Receiver-not-ready answers of the peer.
    pub rnr_naks: u64,
    /// Times it told the peer that no receive is posted.
    pub rnr_naks_sent: u64,
    /// Negative acknowledgements of the peer.
    pub nacks: u64,
    /// Timeouts on which something was sent again.
    pub timeouts: u64,
    /// Packets under way.
    pub packets_in_flight: u64,
    /// Packets that may be under way; none when nothing limits them but the peer.
    pub window_packets: Option<u64>,
    /// The last round trip that was measured.
    pub round_trip_us: Option<f64>,
    /// The flows of a Falcon connection that has several, each on a path of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowSnapshot>,
}

/// A flow of a Falcon connection that has several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowSnapshot {
    /// What the network may hash: another label is another path.
    pub label: u32,
    /// Packets sent for the first time.
    pub packets_sent: u64,
    /// Packets sent again.
    pub packets_retransmitted: u64,
    /// Times that it took another path.
    pub path_changes: u64,
    /// Packets under way.
    pub packets_in_flight: u64,
    /// Packets that its window has room for; below one it sends by the clock.
    pub window_packets: f64,
    /// The last round trip that was measured on it.
    pub round_trip_us: Option<f64>,
}
