//! What is counted.

use rnic_falcon::adaptive::EventCounts;
use rnic_falcon::delivery::{Delivery, DeliveryCounters};
use rnic_falcon::resources::Amount;
use rnic_policy::paths::FLOWS_MAX;

use crate::error::DropReason;

/// Why a queue pair with work did not send when it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum WaitReason {
    /// As many packets in flight as the profile's cap or bitmap allows.
    Cap,
    /// As many in flight as the congestion window allows.
    Window,
    /// The congestion control's or scheduler's rate says later.
    Rate,
    /// As many in flight to this peer as its receive buffer takes.
    PeerWindow,
    /// As many reads and atomics outstanding as the responder serves.
    ReadLimit,
    /// A fence waits for earlier reads and atomics.
    Fence,
    /// The receiver said that it is not ready.
    ReceiverNotReady,
    /// As many messages under way as receives are posted at the other end.
    Credits,
}

impl WaitReason {
    /// How many there are.
    pub const COUNT: usize = 8;
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Cap,
        Self::Window,
        Self::Rate,
        Self::PeerWindow,
        Self::ReadLimit,
        Self::Fence,
        Self::ReceiverNotReady,
        Self::Credits,
    ];
}

/// Counters of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpStats {
    /// Requests and responses with a new sequence number.
    pub packets_sent: u64,
    /// Requests and responses sent again.
    pub packets_retransmitted: u64,
    /// Timeouts on which recovery acted.
    pub timeouts: u32,
    /// NACKs taken.
    pub nacks: u32,
    /// Receiver-not-ready NAKs taken.
    pub rnr_naks: u32,
    /// Receiver-not-ready NAKs sent.
    pub rnr_naks_sent: u32,
}

/// Counters of the whole engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Requests and responses with a new sequence number.
    pub packets_sent: u64,
    /// Requests and responses sent again.
    pub packets_retransmitted: u64,
    /// Acknowledgements of every kind, and CNPs, sent.
    pub acks_sent: u64,
    /// Packets handed to [`crate::Engine::receive`].
    pub packets_received: u64,
    /// Of these, early and kept.
    pub packets_early: u64,
    /// Of these, seen before.
    pub packets_duplicate: u64,
    /// Of these, Read requests that the peer has submitted again, as their timestamps say (FaSR).
    pub reads_resubmitted: u64,
    /// Timeouts on which recovery acted.
    pub timeouts: u64,
    /// Waits shorter than a timeout after which packets were sent once more to hear from the peer.
    pub probes: u64,
    /// NACKs taken.
    pub nacks: u64,
    /// Receiver-not-ready NAKs sent.
    pub rnr_naks_sent: u64,
    /// Packets of reliable connections that came with the mark of congestion.
    pub marks_received: u64,
    /// Congestion notifications (CNP) sent.
    pub cnps_sent: u64,
    /// Congestion notifications taken.
    pub cnps_received: u64,
    /// Acknowledgements folded into later ones because the control queue was full.
    pub acks_folded: u64,
    /// Times a queue pair had to wait, by [`WaitReason`].
    pub waits: [u64; WaitReason::COUNT],
    /// Packets not used, by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
}

/// Counters of FaSR's shared pool. What is in use counts both ends of connections; paths and recoveries, receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolStats {
    /// Early or repairing packets that took no bitmap.
    pub fast_path: u64,
    /// Early or repairing packets that did.
    pub slow_path: u64,
    /// Recoveries begun, at either end.
    pub recoveries: u64,
    /// Receivers' recoveries that ended and never had a block.
    pub recoveries_without_blocks: u64,
    /// Receivers' recoveries that ended, by the number of packets lost in them; the last counts all above.
    pub losses_per_recovery: [u64; 17],
    /// Receivers' recoveries in which the loss counter overflowed.
    pub overflows: u64,
    /// Times that a bitmap was given back because one packet was missing only.
    pub slow_to_fast: u64,
    /// Times that a queue pair fell back to go-back-N because the pool was empty.
    pub fallbacks: u64,
    /// Selective acknowledgements that a sender could not note because no block was free.
    pub unrecorded: u64,
    /// Packets dropped because they came between a hole and the highest packet (answered by FNACK).
    pub misplaced: u64,
    /// Accesses that had to walk a list of blocks to its middle.
    pub traversals: u64,
    /// Blocks looked at to find the next missing packet.
    pub blocks_visited: u64,
    /// Units taken now.
    pub units_in_use: u64,
    /// Units taken, at most.
    pub units_in_use_max: u64,
    /// Blocks taken now.
    pub blocks_in_use: u64,
    /// Blocks taken, at most.
    pub blocks_in_use_max: u64,
}

impl PoolStats {
    /// The sum of two pools.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let Self { losses_per_recovery, .. } = &mut self;
        losses_per_recovery.iter_mut().zip(other.losses_per_recovery).for_each(|(sum, more)| *sum += more);
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

/// What Falcon's connections share, and what they have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FalconStats {
    /// Nothing is held.
    pub is_idle: bool,
    /// Room that was asked for and not there: for packets that came, requests that were to leave, and answers.
    pub refused: u64,
    /// How full the room for the requests of others is, 0 to 31.
    pub rx_level: u8,
    /// Times that a queue pair had to wait for resources (Xoff, F-34).
    pub pauses: u64,
    /// How full the fullest part has been, in thousandths: of its contexts, and of its buffers (F-31).
    pub fullest: Amount,
    /// What became of events for adaptive engines.
    pub events: EventCounts,
    /// Sums over all connections, those that have ended included.
    pub delivery: DeliveryCounters,
    /// Times that a flow took another path, of these: flow 0 of every connection, flow 1 of every one, and so on.
    pub moves: [u64; FLOWS_MAX],
}

impl FalconStats {
    /// What a connection has done counts too.
    pub fn add(&mut self, delivery: &Delivery) {
        self.delivery.add(&delivery.counters());
        self.moves.iter_mut().zip(delivery.moves()).for_each(|(sum, more)| *sum += more);
    }
}
