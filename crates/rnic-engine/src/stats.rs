//! Statistics: counters of queue pairs and of the engine.

use rnic_falcon::adaptive::EventCounts;
use rnic_falcon::delivery::{Delivery, DeliveryCounters};
use rnic_falcon::resources::Amount;
use rnic_policy::paths::FLOWS_MAX;

use crate::error::DropReason;

/// Reason why a queue pair with work did not send in its scheduling turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum WaitReason {
    /// The packets in flight have reached the limit of the profile's cap or bitmap.
    Cap,
    /// The packets in flight have reached the congestion window.
    Window,
    /// The rate of congestion control delays the packet.
    Rate,
    /// The packets in flight to this peer have reached the capacity of its receive buffer.
    PeerWindow,
    /// The outstanding reads and atomics have reached the number that the responder serves.
    ReadLimit,
    /// A fence waits for earlier reads and atomics.
    Fence,
    /// The receiver has sent a receiver-not-ready NAK.
    ReceiverNotReady,
    /// The number of messages in flight has reached the number of receives posted at the other end.
    Credits,
    /// The dequeue rate, which the scheduler or the user has set, delays the packet.
    Dequeue,
    /// The receiver has granted no further packet.
    Tokens,
}

impl WaitReason {
    /// Number of wait reasons.
    pub const COUNT: usize = 10;
    /// All wait reasons, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Cap,
        Self::Window,
        Self::Rate,
        Self::PeerWindow,
        Self::ReadLimit,
        Self::Fence,
        Self::ReceiverNotReady,
        Self::Credits,
        Self::Dequeue,
        Self::Tokens,
    ];
}

/// Counters of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpStats {
    /// Requests and responses sent with a new sequence number.
    pub packets_sent: u64,
    /// Requests and responses retransmitted.
    pub packets_retransmitted: u64,
    /// Timeouts that caused loss recovery to act.
    pub timeouts: u32,
    /// NACKs accepted by the sender.
    pub nacks: u32,
    /// Receiver-not-ready NAKs accepted.
    pub rnr_naks: u32,
    /// Receiver-not-ready NAKs sent.
    pub rnr_naks_sent: u32,
}

impl QpStats {
    /// Returns the sums with the counters of a flow of the same queue pair.
    pub(crate) fn plus(&self, flow: &Self) -> Self {
        Self {
            packets_sent: self.packets_sent + flow.packets_sent,
            packets_retransmitted: self.packets_retransmitted + flow.packets_retransmitted,
            timeouts: self.timeouts.saturating_add(flow.timeouts),
            nacks: self.nacks.saturating_add(flow.nacks),
            rnr_naks: self.rnr_naks.saturating_add(flow.rnr_naks),
            rnr_naks_sent: self.rnr_naks_sent.saturating_add(flow.rnr_naks_sent),
        }
    }
}

/// Counters of the whole engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Requests and responses sent with a new sequence number.
    pub packets_sent: u64,
    /// Requests and responses retransmitted.
    pub packets_retransmitted: u64,
    /// Acknowledgements of every type, and CNPs, sent.
    pub acks_sent: u64,
    /// Packets passed to [`crate::Engine::receive`].
    pub packets_received: u64,
    /// Received packets that were out of order and kept.
    pub packets_out_of_order: u64,
    /// Received packets that were duplicates.
    pub packets_duplicate: u64,
    /// Received Read requests that the peer has retransmitted, according to their timestamps (FaSR).
    pub reads_resubmitted: u64,
    /// Timeouts that caused loss recovery to act.
    pub timeouts: u64,
    /// Timeouts of these after which the packets were acknowledged too soon to have been lost: within half a round
    /// trip, or before they were retransmitted. Counted by Falcon, and where timeouts follow measured round trips.
    pub timeouts_spurious: u64,
    /// Number of times that packets were sent as probes, before a timeout or without a grant, to obtain a response from
    /// the peer.
    pub probes: u64,
    /// NACKs accepted by the sender.
    pub nacks: u64,
    /// Receiver-not-ready NAKs sent.
    pub rnr_naks_sent: u64,
    /// Packets of reliable connections that arrived with a congestion mark.
    pub marks_received: u64,
    /// Congestion notifications (CNP) sent.
    pub cnps_sent: u64,
    /// Congestion notifications accepted.
    pub cnps_received: u64,
    /// Number of windows whose transport program was replaced by a built-in one, because its outputs were invalid.
    pub programs_replaced: u64,
    /// Acknowledgements merged into later ones because the control queue was full.
    pub acks_folded: u64,
    /// Number of times that a queue pair had to wait, by [`WaitReason`].
    pub waits: [u64; WaitReason::COUNT],
    /// Packets dropped, by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
}

/// Counters of FaSR's shared pool. Usage counters and `recoveries` include both ends of connections; `fast_path`,
/// `slow_path` and the counters of finished recoveries only include receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolStats {
    /// Out-of-order or gap-filling packets that needed no bitmap.
    pub fast_path: u64,
    /// Out-of-order or gap-filling packets that needed a bitmap.
    pub slow_path: u64,
    /// Recoveries started, at either end.
    pub recoveries: u64,
    /// Finished recoveries of receivers that never used a block.
    pub recoveries_without_blocks: u64,
    /// Finished recoveries of receivers, by the number of packets lost in them; the last element counts all higher
    /// numbers.
    pub losses_per_recovery: [u64; 17],
    /// Recoveries of receivers in which the loss counter overflowed.
    pub overflows: u64,
    /// Number of times that a bitmap was released because only one packet was missing.
    pub slow_to_fast: u64,
    /// Number of times that a queue pair fell back to go-back-N because the pool was empty.
    pub fallbacks: u64,
    /// Selective acknowledgements that a sender could not record because no block was free.
    pub unrecorded: u64,
    /// Packets dropped because they arrived between a gap and the highest packet (FNACK was sent).
    pub misplaced: u64,
    /// Accesses that had to traverse a list of blocks to its middle.
    pub traversals: u64,
    /// Blocks read to find the next missing packet.
    pub blocks_visited: u64,
    /// Number of units in use: entries of the shared pool, each with the recovery state of a queue pair.
    pub units_in_use: u64,
    /// Maximum number of units in use at the same time: entries of the shared pool, each with the recovery state of a
    /// queue pair.
    pub units_in_use_max: u64,
    /// Blocks in use now.
    pub blocks_in_use: u64,
    /// Maximum number of blocks in use.
    pub blocks_in_use_max: u64,
}

impl PoolStats {
    /// Returns the sum of the counters of two pools.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let Self { losses_per_recovery, .. } = &mut self;
        losses_per_recovery.iter_mut().zip(other.losses_per_recovery).for_each(|(sum, addend)| *sum += addend);
        self.fast_path += other.fast_path;
        self.slow_path += other.slow_path;
        self.recoveries += other.recoveries;
        self.recoveries_without_blocks += other.recoveries_without_blocks;
        self.overflows += other.overflows;
        self.slow_to_fast += other.slow_to_fast;
        self.fallbacks += other.fallbacks;
        self.unrecorded += other.unrecorded;
        self.misplaced += other.misplaced;
        self.traversals += other.traversals;
        self.blocks_visited += other.blocks_visited;
        self.units_in_use += other.units_in_use;
        self.units_in_use_max += other.units_in_use_max;
        self.blocks_in_use += other.blocks_in_use;
        self.blocks_in_use_max += other.blocks_in_use_max;
        self
    }
}

/// State and counters of the resources that Falcon connections share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FalconStats {
    /// True when no resource is held.
    pub is_idle: bool,
    /// Number of refused requests for buffer space: for packets received, requests to be sent, and responses.
    pub refused: u64,
    /// Occupancy of the buffer space for the requests of peers, 0 to 31.
    pub rx_level: u8,
    /// Number of times that a queue pair had to wait for resources (Xoff, Falcon mechanism F-34).
    pub pauses: u64,
    /// Highest occupancy so far of the fullest partition, in thousandths: of its contexts, and of its buffers (Falcon
    /// mechanism F-31).
    pub fullest: Amount,
    /// Counters of events for adaptive engines.
    pub events: EventCounts,
    /// Sums over all Falcon connections, including those that no longer exist.
    pub delivery: DeliveryCounters,
    /// Number of times that a flow changed its path, by flow index, summed over all connections.
    pub moves: [u64; FLOWS_MAX],
}

impl FalconStats {
    /// Adds the counters of a connection.
    pub fn add(&mut self, delivery: &Delivery) {
        self.delivery.add(&delivery.counters());
        self.moves.iter_mut().zip(delivery.moves()).for_each(|(sum, addend)| *sum += addend);
    }
}
