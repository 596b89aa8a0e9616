//! Interface between the transaction layer and an upper layer: RDMA, NVMe, or a test (Falcon mechanisms F-1, F-43).
//!
//! Payload does not pass through this interface. The driver of the connection stores the payload of received
//! requests, by RSN, until the upper layer has accepted the request; on unordered connections the upper layer accepts
//! it immediately.

use rnic_base::Time;
use rnic_wire::falcon::{CompletionCode, RnrTimer, Rsn, Ulp};

/// A received request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// RSN, which identifies the request in later calls.
    pub rsn: Rsn,
    /// Bytes transferred, with the upper layer's headers and padding.
    pub length: u16,
    /// Payload bytes in the request's packet.
    pub payload_len: u32,
    /// The upper layer's headers.
    pub ulp: Ulp,
}

/// Decision of the upper layer about a Push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushReply {
    /// The Push is finished: to be acknowledged.
    Done,
    /// The Push is accepted; a call of [`super::Transactions::acknowledge`] follows.
    Later,
    /// The path into the host is full (Falcon mechanism F-18): the Push is to be stored, and offered again after
    /// [`super::Layer::resume`].
    Busy,
    /// RNR (Falcon mechanism F-7): the Push is to be offered again, no sooner than after this time.
    NotReady(RnrTimer),
    /// CIE (Falcon mechanism F-8): this Push ends in error, with the upper layer's reason, and processing of later ones
    /// continues.
    CompleteInError(u8),
    /// NRE: like CIE, but the upper layer has failed permanently.
    NonRecoverable(u8),
    /// The request is not permitted on this connection.
    InvalidCid,
}

/// Decision of the upper layer about a Pull.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PullReply {
    /// The Pull is accepted; a call of [`super::Transactions::respond`] follows.
    Later,
    /// See [`PushReply::Busy`].
    Busy,
    /// RNR: the Pull is to be offered again after this time. The peer is not notified.
    NotReady(RnrTimer),
}

/// Pull Data, as submitted by the target's upper layer. An error is reported in the headers of a response without
/// data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PullResponse {
    /// Payload length in bytes, without the headers.
    pub payload_len: u32,
    /// Total bytes with the upper layer's headers and padding; no more than were requested.
    pub length: u32,
    /// The upper layer's headers.
    pub ulp: Ulp,
}

/// Completion of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// RSN of the transaction.
    pub rsn: Rsn,
    /// Tag of the submission.
    pub tag: u64,
    /// Result of the transaction.
    pub code: CompletionCode,
    /// For a refusal, the reason given by the target's upper layer; for [`CompletionCode::RemoteError`] of a Pull,
    /// the reason for which the target terminated it: the code of the received Resync
    /// ([`rnic_wire::falcon::ResyncCode`]); otherwise 0.
    pub ulp_code: u8,
    /// For a successful Pull: length in bytes of its data, which was delivered by [`UpperLayer::pulled`].
    pub data: Option<u16>,
}

/// Data returned by a Pull.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PulledData {
    /// Payload length in bytes.
    pub payload_len: u32,
    /// The upper layer's headers.
    pub ulp: Ulp,
}

/// The upper layer of one connection.
pub trait UpperLayer {
    /// Delivers a received Push, in order.
    fn push(&mut self, now: Time, request: &Request) -> PushReply;

    /// Delivers a received Pull, in order.
    ///
    /// If there are Pushes too, acceptance of a Pull must not depend on resources for responses to earlier Pulls:
    /// Pushes that are rejected because of waiting Pulls would fill the window that those responses need
    /// (`tests/deadlock.rs` demonstrates this). RDMA complies by bounding outstanding Reads at their initiator (RDMA
    /// over Falcon, section 6.5).
    fn pull(&mut self, now: Time, request: &Request) -> PullReply;

    /// Returns the headers of the local request that was submitted with `tag` and without headers
    /// ([`super::Submission::ulp`]): called whenever the packet is sent, so that the transaction layer need not store
    /// them. The packet of a Pull may be retransmitted after its data has arrived and its completion was delivered;
    /// its target then recognises it by its number.
    fn headers(&self, tag: u64) -> Ulp;

    /// Delivers the completion of a local transaction. Called exactly once for each accepted transaction.
    fn complete(&mut self, now: Time, completion: &Completion);

    /// Delivers the data of a local Pull, submitted with `tag`: once, and before its completion, which may be
    /// delivered later because of ordering.
    fn pulled(&mut self, now: Time, tag: u64, data: &PulledData) {
        let _ = (now, tag, data);
    }

    /// Notifies that the peer was not ready for the Push submitted with `tag`, which will be retransmitted.
    fn not_ready(&mut self, now: Time, tag: u64) {
        let _ = (now, tag);
    }

    /// Notifies that the peer has abandoned its request `rsn`, which the upper layer had neither accepted nor
    /// refused. On ordered connections, delivery of the later requests continues.
    fn skipped(&mut self, now: Time, rsn: Rsn) {
        let _ = (now, rsn);
    }
}
