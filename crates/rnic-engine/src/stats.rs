//! What is counted.

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
}

impl WaitReason {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Cap, Self::Window, Self::Rate, Self::PeerWindow, Self::ReadLimit, Self::Fence, Self::ReceiverNotReady];
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
    /// Timeouts on which recovery acted.
    pub timeouts: u64,
    /// NACKs taken.
    pub nacks: u64,
    /// Receiver-not-ready NAKs sent.
    pub rnr_naks_sent: u64,
    /// Acknowledgements folded into later ones because the control queue was full.
    pub acks_folded: u64,
    /// Times a queue pair had to wait, by [`WaitReason`].
    pub waits: [u64; WaitReason::COUNT],
    /// Packets not used, by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
}
