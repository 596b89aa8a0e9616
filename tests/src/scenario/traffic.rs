//! The requests of a run: their types and number, how early receives are posted, and which requests are invalid.

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
    /// RDMA Read of memory with known content.
    Read,
    /// RDMA Read of data that an earlier Write of the same queue pair, possibly in flight, has written.
    ReadBack,
    /// A fenced Write over memory that an earlier Read reads.
    Overwrite,
    /// A fenced Write of data that an earlier Read returns.
    Echo,
    /// Compare and swap on a word that only this queue pair uses.
    CompareSwap,
    /// Fetch and add on the same word.
    FetchAdd,
    /// Fetch and add on a word that all queue pairs share.
    SharedAdd,
}

impl Op {
    /// All operations.
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

/// A request that will fail, or another cause for the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlannedFailure {
    /// Write with a remote key that does not exist.
    WriteKey,
    /// Write to memory without write access.
    WriteRight,
    /// Write beyond the end of the region.
    WriteRange,
    /// Read with a remote key that does not exist.
    ReadKey,
    /// Read from memory without read access.
    ReadRight,
    /// Atomic on memory that grants no atomic access.
    AtomicRight,
    /// Atomic on an address that is not a multiple of eight.
    AtomicAlignment,
    /// Send with invalidate of a key that does not exist.
    InvalidateKey,
    /// Send with invalidate of a key that does not allow it.
    InvalidateRight,
    /// Send of a message longer than its receive.
    SendTooLong,
    /// Write from memory whose key does not exist.
    WriteLocalKey,
    /// Send from beyond the end of a region.
    SendLocalRange,
    /// Read into memory whose key does not exist.
    ReadLocalKey,
    /// The program at the receiving end puts its queue pair into the error state.
    QpFailedByPeer,
    /// The program at the sending end puts its queue pair into the error state.
    QpFailedLocally,
    /// The receiving end fails without any notification: retries are exceeded.
    PeerUnresponsive,
    /// The receiving end posts no more receives: retries are exceeded.
    NeverReady,
}

impl PlannedFailure {
    /// All types of failure.
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
        Self::QpFailedByPeer,
        Self::QpFailedLocally,
        Self::PeerUnresponsive,
        Self::NeverReady,
    ];
}

/// Strategy of posting receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receives {
    /// As many as possible, always.
    Eager,
    /// One at random times, so that senders receive RNR NAKs.
    Late,
}

/// Distribution of the posted requests.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Relative frequency of each of [`Op::ALL`].
    pub weights: [u32; Op::ALL.len()],
    /// Maximum bytes of a message.
    pub len_max: u32,
    /// Percentage of messages whose length is close to a multiple of the MTU.
    pub round_percent: u64,
    /// Maximum number of scatter/gather entries.
    pub sges_max: u32,
    /// Percentage of requests that are signalled.
    pub signalled_percent: u64,
    /// Percentage of requests with a fence.
    pub fenced_percent: u64,
    /// Maximum number of requests posted in one batch.
    pub burst_max: u64,
    /// Posting of receives.
    pub receives: Receives,
    /// Maximum time between two polls, in ns.
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
            receives: pick(random, &[Receives::Eager, Receives::Eager, Receives::Late]),
            step_ns: pick(random, if place == Place::Fabric { &[500, 3_000, 20_000] } else { &[1_000, 50_000] }),
        }
    }
}
