//! What is posted, how much of it, how readily it is received, and what is posted wrong.

use rnic_base::RandomStream;

use super::{Place, one_in, pick};

/// The operations of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// RDMA Write.
    Write,
    /// Write with immediate.
    WriteImm,
    /// Send.
    Send,
    /// Send with immediate.
    SendImm,
    /// Send with invalidate.
    SendInvalidate,
    /// RDMA Read of memory that lies there.
    Read,
    /// RDMA Read of what an earlier Write of the same queue pair, that may be under way, has brought there.
    ReadBack,
    /// A fenced Write over what an earlier Read reads.
    Overwrite,
    /// A fenced Write of what an earlier Read brings.
    Echo,
    /// Compare and swap on a word of this queue pair's own.
    CompareSwap,
    /// Fetch and add on the same word.
    FetchAdd,
    /// Fetch and add on a word that all queue pairs share.
    SharedAdd,
}

impl Op {
    /// Every one.
    pub const ALL: &[Self] = &[
        Self::Write,
        Self::WriteImm,
        Self::Send,
        Self::SendImm,
        Self::SendInvalidate,
        Self::Read,
        Self::ReadBack,
        Self::Overwrite,
        Self::Echo,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::SharedAdd,
    ];
}

/// A request that cannot succeed, or an end for another reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlannedFailure {
    /// Write with a remote key that does not exist.
    WriteKey,
    /// Write to where nothing may be written.
    WriteRight,
    /// Write beyond the end of the region.
    WriteRange,
    /// Read with a remote key that does not exist.
    ReadKey,
    /// Read from where nothing may be read.
    ReadRight,
    /// Atomic on memory that grants none.
    AtomicRight,
    /// Atomic on an address that is no multiple of eight.
    AtomicAlignment,
    /// Send with invalidate of a key that does not exist.
    InvalidateKey,
    /// Send with invalidate of a key that does not allow it.
    InvalidateRight,
    /// Send of more than its receive takes.
    SendTooLong,
    /// Write from memory whose key does not exist.
    WriteLocalKey,
    /// Send from beyond the end of a region.
    SendLocalRange,
    /// Read into memory whose key does not exist.
    ReadLocalKey,
    /// The program gives up: the queue pair of the receiving end is put into the error state.
    PeerGivesUp,
    /// The program gives up: the queue pair of the sending end is put into the error state.
    GivesUp,
    /// The receiving end is gone and says nothing: retries are exceeded.
    PeerVanishes,
    /// The receiving end posts no more receives: retries are exceeded.
    NeverReady,
}

impl PlannedFailure {
    /// Every one.
    pub const ALL: &[Self] = &[
        Self::WriteKey,
        Self::WriteRight,
        Self::WriteRange,
        Self::ReadKey,
        Self::ReadRight,
        Self::AtomicRight,
        Self::AtomicAlignment,
        Self::InvalidateKey,
        Self::InvalidateRight,
        Self::SendTooLong,
        Self::WriteLocalKey,
        Self::SendLocalRange,
        Self::ReadLocalKey,
        Self::PeerGivesUp,
        Self::GivesUp,
        Self::PeerVanishes,
        Self::NeverReady,
    ];
}

/// How readily receives are posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receives {
    /// As many as fit, always.
    Early,
    /// One now and then, so that senders are told to wait.
    Late,
}

/// What is posted.
#[derive(Clone, Debug)]
pub struct Mix {
    /// How often each of [`Op::ALL`] comes up.
    pub weights: [u32; Op::ALL.len()],
    /// Bytes of a message, at most.
    pub len_max: u32,
    /// Of a hundred messages, so many have a length near a multiple of the MTU.
    pub round_percent: u64,
    /// Scatter/gather entries, at most.
    pub sges_max: u32,
    /// Of a hundred requests, so many are signalled.
    pub signalled_percent: u64,
    /// Of a hundred requests, so many have a fence.
    pub fenced_percent: u64,
    /// Requests posted in one go, at most.
    pub burst_max: u64,
    /// Receives.
    pub receives: Receives,
    /// Nanoseconds between two looks at what is done, at most.
    pub step_ns: u64,
}

impl Mix {
    pub(super) fn draw(place: Place, random: &mut RandomStream) -> Self {
        let mut weights = [0; Op::ALL.len()];
        while weights.iter().all(|weight| *weight == 0) {
            weights.fill_with(|| if one_in(random, 2) { random.between(1, 8) as u32 } else { 0 });
        }
        Self {
            weights,
            len_max: pick(random, &[64, 1_000, 5_000, 5_000, 30_000, 30_000, 400_000]),
            round_percent: pick(random, &[0, 30, 90]),
            sges_max: pick(random, &[1, 1, 2, 4]),
            signalled_percent: pick(random, &[0, 30, 100, 100]),
            fenced_percent: pick(random, &[0, 0, 10, 50]),
            burst_max: pick(random, &[1, 4, 16]),
            receives: pick(random, &[Receives::Early, Receives::Early, Receives::Late]),
            step_ns: pick(random, if place == Place::Fabric { &[500, 3_000, 20_000] } else { &[1_000, 50_000] }),
        }
    }
}
