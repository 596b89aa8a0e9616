//! What the transaction layer asks of, and tells, an upper layer: RDMA, NVMe, a test (F-1, F-43).
//!
//! Payload is not here. Whoever drives the connection keeps the bytes of what has arrived until the upper layer has
//! taken it, by the request's RSN; on unordered connections that is at once.

use rnic_base::Time;
use rnic_wire::falcon::{CompletionCode, RnrTimer, Rsn, Ulp};

/// A request that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number: names it in what follows.
    pub rsn: Rsn,
    /// Bytes that it moves, with the upper layer's headers and padding.
    pub length: u16,
    /// Payload bytes that came with it.
    pub payload_len: u32,
    /// The upper layer's headers.
    pub ulp: Ulp,
}

/// What becomes of a Push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushReply {
    /// Done: acknowledge it.
    Done,
    /// Taken; [`super::Transactions::acknowledge`] follows.
    Later,
    /// The way into the host is full (F-18): keep it, and offer it again after [`super::Layer::resume`].
    Busy,
    /// RNR (F-7): offer it again, not before that time.
    NotReady(RnrTimer),
    /// CIE (F-8): this one ends in error, with the upper layer's reason, and what follows goes on.
    CompleteInError(u8),
    /// NRE: as CIE, but the upper layer has failed for good.
    NonRecoverable(u8),
    /// This connection may not ask that.
    InvalidCid,
}

/// What becomes of a Pull.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PullReply {
    /// Taken; [`super::Transactions::answer`] follows.
    Later,
    /// As for a Push.
    Busy,
    /// RNR: offered again after that time. The other side never hears of it.
    NotReady(RnrTimer),
}

/// Pull Data, as the target's upper layer hands it in. An error is an answer without data, whose headers say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Payload bytes behind the headers.
    pub payload_len: u32,
    /// Bytes with the upper layer's headers and padding; no more than were asked for.
    pub length: u32,
    /// The upper layer's headers.
    pub ulp: Ulp,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Its number.
    pub rsn: Rsn,
    /// What came with the submission.
    pub tag: u64,
    /// The ending.
    pub code: CompletionCode,
    /// With a refusal, the upper layer's own reason; with [`CompletionCode::RemoteError`] of a Pull, why its target
    /// gave up: the code of the Resync that came ([`rnic_wire::falcon::ResyncCode`]); else 0.
    pub ulp_code: u8,
    /// Of a Pull that ended well: bytes of its data, which [`UpperLayer::pulled`] has described.
    pub data: Option<u16>,
}

/// What a Pull brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PulledData {
    /// Payload bytes.
    pub payload_len: u32,
    /// The upper layer's headers.
    pub ulp: Ulp,
}

/// An upper layer, for one connection.
pub trait UpperLayer {
    /// A Push has arrived, and it is its turn.
    fn push(&mut self, now: Time, request: &Request) -> PushReply;

    /// A Pull has arrived, and it is its turn.
    ///
    /// Where there are Pushes too, whether it is taken must not depend on room to answer earlier Pulls: Pushes that
    /// find no room because of Pulls that wait would fill the window that those answers need (`tests/deadlock.rs` finds
    /// it). RDMA keeps to that by bounding outstanding Reads at their initiator (RDMA over Falcon, section 6.5).
    fn pull(&mut self, now: Time, request: &Request) -> PullReply;

    /// What the packet of its own request says that was submitted with `tag` and without headers
    /// ([`super::Submission::ulp`]): asked each time that the packet leaves, so nothing of it is kept below. A Pull's
    /// may leave again when its data is here and its completion handed over; its target goes by its number then.
    fn headers(&self, tag: u64) -> Ulp;

    /// One of its own transactions has ended. Exactly once for each that was taken.
    fn complete(&mut self, now: Time, completion: &Completion);

    /// The data of a Pull of its own, submitted with `tag`, has come: once, and before its completion, whose turn may
    /// come later.
    fn pulled(&mut self, now: Time, tag: u64, data: &PulledData) {
        let _ = (now, tag, data);
    }

    /// The peer was not ready for the Push submitted with `tag`, which will be sent again.
    fn not_ready(&mut self, now: Time, tag: u64) {
        let _ = (now, tag);
    }

    /// The peer has given up its request `rsn`, which was neither taken nor refused: on ordered connections, what is
    /// behind goes on.
    fn skipped(&mut self, now: Time, rsn: Rsn) {
        let _ = (now, rsn);
    }
}
