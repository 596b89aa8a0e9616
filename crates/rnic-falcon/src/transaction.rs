//! The transaction layer of one connection: accepts requests and delivers completions, in the order that the
//! connection guarantees.
//!
//! Sources: Falcon (SIGCOMM'25) sections 4.4, 4.5 and appendix A; specification Rev 0.9 sections 6, 8 and 11.
//! Mechanisms F-2, F-3, F-5 to F-8, F-33, F-34, F-41.
//!
//! A *transaction* transfers at most one packet of data: a Push from initiator to target, a Pull from target to
//! initiator. Its initiator numbers it (RSN); on an ordered connection, the target delivers requests to its upper
//! layer in that order, and the initiator delivers completions in that order. Every connection has both halves:
//! [`initiator`] for local requests, [`target`] for the peer's.
//!
//! The interface to the delivery layer is [`Layer`], which implements [`crate::interface::Upper`]. Transactions that
//! the target's upper layer does not settle immediately are later returned by [`Transactions::settled`], to be passed
//! to `Delivery::acknowledge` or `Delivery::refuse`.
//!
//! Choices where the sources are silent or disagree:
//!
//! * an error of a Pull is carried in the upper layer's headers of an empty Pull Data (specification 6.6.5), whatever
//!   its type: a Pull Request is acknowledged on receipt, so it cannot be refused later;
//! * Pull Data may be shorter than requested; if it is longer, the transaction completes with an operation error;
//! * a Resync has the window of the packet that it replaces;
//! * NACKs for a filtered flow (xLR) are processed and never sent: Rev 0.9 does not define the filter;
//! * the transaction timeout runs from the first transmission: a transaction that was never sent has no sequence
//!   number for which the peer could wait.

pub mod ulp;

mod initiator;
mod layer;
mod ring;
mod target;

use rnic_base::{Duration, Time};
use rnic_wire::falcon::{CompletionCode, NackCode, Rsn, Ulp, UlpProtocol};

use crate::interface::{Context, Gates, Received};
use crate::resources::Resources;
use crate::resources::threshold::{Alpha, Isolation, Usage};

use initiator::Initiator;
pub use layer::Layer;
use target::Target;
pub use ulp::{Completion, PullReply, PullResponse, PushReply, Request, UpperLayer};

/// Ordering guarantee of a connection (Falcon mechanism F-6). Weak order (data placed on arrival, completions in order)
/// is implemented by the upper layer on an unordered connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ordering {
    /// Requests are delivered to the target's upper layer, and completions to the initiator's, in the order in which
    /// the requests were submitted.
    #[default]
    Ordered,
    /// Requests and completions are delivered in the order of arrival.
    Unordered,
}

/// Parameters agreed between both ends of a connection, and limits that apply to the local end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionConfig {
    /// Ordering guarantee.
    pub ordering: Ordering,
    /// Upper-layer protocol.
    pub protocol: UlpProtocol,
    /// Maximum size of a transaction in bytes: headers of the upper layer, data and padding (Falcon mechanism F-3).
    pub mtu: u16,
    /// Maximum number of transactions in flight; a power of two.
    pub outstanding: u32,
    /// Time after the first transmission of its packet after which an incomplete transaction ends in error. Much
    /// larger than a packet's timeout.
    pub timeout: Duration,
    /// Limit on the resources of the connection, to isolate other connections from it.
    pub isolation: Isolation,
}

/// Maximum number of transactions in flight in one direction of one connection, limited by the size of a context.
pub const OUTSTANDING_MAX: u32 = 1 << 16;

/// A time later than any event: the value of a timer that is not set.
const NEVER: Time = Time::from_ps(u64::MAX);

/// The two types of transactions (Falcon mechanism F-2), by direction of data flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Data flows to the target: RDMA Write and Send; NVMe requests.
    Push,
    /// Data flows from the target: RDMA Read and atomics; NVMe data of Writes.
    Pull,
}

/// A transaction submitted by the upper layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// Direction of data flow.
    pub kind: Kind,
    /// Bytes transferred, with the upper layer's headers and padding: the value of `Request Length` on the wire.
    pub length: u16,
    /// Payload bytes of the request's own packet, without the upper layer's headers: zero for a Pull.
    pub payload_len: u32,
    /// The upper layer's headers, stored until they are no longer needed; if `None`, the transaction layer requests
    /// them from the upper layer ([`UpperLayer::headers`]) whenever a packet is sent.
    pub ulp: Option<Ulp>,
    /// Identifier returned with the completion.
    pub tag: u64,
    /// True if the transaction continues a message that the peer's upper layer is already receiving: after all
    /// earlier transactions are acknowledged, the peer does not delay it by RNR NACKs. Such transactions may use the
    /// [reserve](crate::resources::ResourceConfig::reserve).
    pub continues: bool,
}

/// Reason for which a submission is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// Xoff (Falcon mechanism F-34): to be submitted again when [`Transactions::paused`] returns `false`. No resources
    /// were allocated.
    #[error("no resources are available for another transaction; submit it again later")]
    Paused,
    /// The transaction is longer than the agreed maximum size.
    #[error("a transaction of {length} bytes exceeds the connection's maximum of {mtu} bytes")]
    TooLong {
        /// Submitted length in bytes.
        length: u16,
        /// Agreed maximum in bytes.
        mtu: u16,
    },
    /// The length is zero, a Pull Request has payload, or the payload is longer than the total length.
    #[error(
        "the request is invalid: it transfers no bytes, is a Pull Request with payload, or has more payload than its \
         total length"
    )]
    InconsistentLength,
    /// The connection has failed permanently.
    #[error("the connection has failed and accepts no more transactions")]
    Terminated,
}

/// Reason for which a response or an acknowledgement of the target's upper layer is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RespondError {
    /// There are no resources to send the response; to be tried again later.
    #[error("no resources are available for Pull Data; send it again later")]
    Paused,
    /// The response is longer than requested.
    #[error("a response of {length} bytes exceeds the {asked} bytes that the Pull Request requested")]
    TooLong {
        /// Length of the response in bytes.
        length: u32,
        /// Requested length in bytes.
        asked: u16,
    },
    /// There is no such request, or it does not wait for this operation.
    #[error("the request does not exist, or is not waiting for this operation")]
    Unknown,
}

/// Decision of the target's upper layer about a received packet, reported after the packet was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketDecision {
    /// The packet is to be passed to `Delivery::acknowledge`.
    Acknowledged(Received),
    /// The packet is to be passed to `Delivery::refuse`.
    Refused(Received, NackCode),
}

/// Counters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionStats {
    /// Transactions accepted from the upper layer.
    pub submitted: u64,
    /// Completions delivered to the upper layer.
    pub completed: u64,
    /// Completions in error, included in `completed`.
    pub completed_in_error: u64,
    /// Requests delivered to the target's upper layer and accepted by it.
    pub delivered: u64,
    /// Requests for which the upper layer was not ready.
    pub not_ready: u64,
    /// Packets rejected for lack of resources.
    pub no_resources: u64,
}

/// The transaction layer of one connection.
#[derive(Debug)]
pub struct Transactions {
    config: TransactionConfig,
    initiator: Initiator,
    target: Target,
    usage: Usage,
    stats: TransactionStats,
    /// State of the round-robin selection among queues that all have a packet to send (Falcon mechanism F-41).
    round_robin: u8,
    terminated: bool,
    /// NACK code with which all received requests are refused; set when the target's upper layer has failed.
    refuse_code: Option<NackCode>,
}

impl Transactions {
    /// Creates the transaction layer of a connection without any traffic; the RSNs of both ends start at `first`.
    ///
    /// # Panics
    /// If `config.outstanding` is not a power of two up to [`OUTSTANDING_MAX`].
    pub fn new(config: TransactionConfig, first: Rsn) -> Self {
        Self::between(config, first, first)
    }

    /// Same as [`Transactions::new`], with the RSNs of local requests starting at `local_first` and those of the peer's
    /// requests at `peer_first`.
    ///
    /// # Panics
    /// See [`Transactions::new`].
    pub fn between(config: TransactionConfig, local_first: Rsn, peer_first: Rsn) -> Self {
        assert!(config.outstanding.is_power_of_two() && config.outstanding <= OUTSTANDING_MAX);
        Self {
            config,
            initiator: Initiator::new(&config, local_first),
            target: Target::new(&config, peer_first),
            usage: Usage::default(),
            stats: TransactionStats::default(),
            round_robin: 0,
            terminated: false,
            refuse_code: None,
        }
    }

    /// Returns the agreed parameters.
    pub const fn config(&self) -> &TransactionConfig {
        &self.config
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &TransactionStats {
        &self.stats
    }

    /// Returns the resources held by this connection, and its shares.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Sets the shares of free resources assigned by the adaptive engine (Falcon mechanism F-36).
    pub fn set_alphas(&mut self, request: Alpha, data: Alpha) {
        (self.usage.request_alpha, self.usage.data_alpha) = (request, data);
    }

    /// Returns `true` if no local transaction holds any resources; the next one may then use the
    /// [reserve](crate::resources::ResourceConfig::reserve).
    #[inline]
    pub const fn holds_no_resources(&self) -> bool {
        self.usage.has_no_request()
    }

    /// Returns `true` if the connection has failed permanently.
    pub const fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// Returns `true` if the upper layer must not submit more requests: Xoff (Falcon mechanisms F-34, F-35).
    #[inline]
    pub fn paused(&self, resources: &Resources) -> bool {
        self.terminated || self.initiator.is_full() || self.requests_exceed_share(resources)
    }

    /// Returns `true` if this connection's own [share](crate::resources::threshold) forbids more requests,
    /// independent of the available resources.
    #[inline]
    pub fn requests_exceed_share(&self, resources: &Resources) -> bool {
        self.usage.pauses_requests(self.config.isolation, resources)
    }

    /// Returns `true` if this connection's own share forbids more responses to Pulls.
    #[inline]
    pub fn responses_exceed_share(&self, resources: &Resources) -> bool {
        self.usage.pauses_data(self.config.isolation, resources)
    }

    /// Announces that the upper layer will submit this number of transactions one after the other, so that their ring
    /// entries are allocated in one batch instead of a few at a time.
    #[inline]
    pub fn expect(&mut self, transactions: u32) {
        self.initiator.expect(transactions);
    }

    /// Accepts a transaction from the upper layer, and allocates all resources that it will need (Falcon mechanism
    /// F-33); returns its RSN.
    ///
    /// # Errors
    /// Returns a [`SubmitError`] if the transaction is not accepted; no resources are allocated then.
    #[inline]
    pub fn submit(&mut self, resources: &mut Resources, submission: &Submission) -> Result<Rsn, SubmitError> {
        if self.terminated {
            return Err(SubmitError::Terminated);
        }
        if submission.length > self.config.mtu {
            return Err(SubmitError::TooLong { length: submission.length, mtu: self.config.mtu });
        }
        let payload_max = if submission.kind == Kind::Pull { 0 } else { u32::from(submission.length) };
        if submission.length == 0 || submission.payload_len > payload_max {
            return Err(SubmitError::InconsistentLength);
        }
        if self.paused(resources) {
            return Err(SubmitError::Paused);
        }
        let rsn = self.initiator.submit(resources, &mut self.usage, submission).ok_or(SubmitError::Paused)?;
        self.stats.submitted += 1;
        Ok(rsn)
    }

    /// Acknowledges the Push `rsn`, which the target's upper layer accepted with [`PushReply::Later`].
    ///
    /// # Errors
    /// Returns an error if there is no such Push that waits for its acknowledgement.
    pub fn acknowledge(&mut self, rsn: Rsn) -> Result<(), RespondError> {
        self.target.acknowledge(rsn)
    }

    /// Refuses permanently the Push `rsn`, which the target's upper layer accepted with [`PushReply::Later`].
    ///
    /// # Errors
    /// Returns an error if there is no such Push that waits for its acknowledgement.
    pub fn refuse(&mut self, rsn: Rsn, code: NackCode) -> Result<(), RespondError> {
        self.target.refuse(rsn, code)
    }

    /// Handles a permanent failure of the upper layer: Pushes that are not delivered yet, and those received later,
    /// are refused with `code`. Pulls are still delivered to the upper layer, in order, so that it can respond with
    /// an error. Requests no longer hold resources. No NACK is sent for Pushes already received: their initiator
    /// receives one for another Push, or when it retransmits. No resources are held for responses to local requests
    /// either, because these may never arrive; the resources for sending these requests are held until the requests
    /// are acknowledged.
    pub fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        if self.refuse_code.replace(code).is_none() {
            self.target.refuse_all(resources, code);
            self.initiator.release_response_resources(resources, &mut self.usage);
        }
    }

    /// Responds to the Pull `rsn`, which the target's upper layer accepted with [`PullReply::Later`].
    ///
    /// # Errors
    /// Returns an error if there is no such Pull that waits for its response, or there are no resources to send the
    /// response.
    pub fn respond(
        &mut self,
        resources: &mut Resources,
        rsn: Rsn,
        response: &PullResponse,
    ) -> Result<(), RespondError> {
        if self.responses_exceed_share(resources) {
            return Err(RespondError::Paused);
        }
        self.target.respond(resources, &mut self.usage, rsn, response)
    }

    /// Returns `true` if a packet is waiting for its first transmission.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.initiator.has_unsent() || self.target.has_responses()
    }

    /// Returns `true` if a packet could be sent for the first time through the `open` gates.
    #[inline]
    pub(crate) fn has_to_send(&mut self, open: Gates) -> bool {
        self.initiator.sendable(open, true).is_some() || open.pull_data && self.target.sendable().is_some()
    }

    /// Returns the next packet that the upper layer has settled, to be passed to the delivery layer.
    #[inline]
    pub fn settled(&mut self) -> Option<PacketDecision> {
        self.target.settled()
    }

    /// Returns `true` if the maximum number of transactions is in flight.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.initiator.is_full()
    }

    /// Returns the tag of the local request that `context` belongs to; `None` for Pull Data.
    #[inline]
    pub fn tag(&self, context: Context) -> Option<u64> {
        (!layer::is_data(context)).then(|| self.initiator.tag(self.initiator.seq_at(context.0)))
    }

    /// Returns the completion, not delivered yet, of the oldest request that is known to fail and for whose tag
    /// `is_wanted` returns `true`: the request was refused, and the Resync that replaces its packet is not
    /// acknowledged yet. Used when the connection is terminated before that.
    pub fn known_failure(&self, is_wanted: impl Fn(u64) -> bool) -> Option<Completion> {
        self.initiator.known_failure(is_wanted)
    }

    /// Returns the tag of the local Pull `rsn`, if its data has not arrived yet.
    #[inline]
    pub fn expected_by(&self, rsn: Rsn) -> Option<u64> {
        self.initiator.expected_by(rsn)
    }

    /// Returns `true` if the peer's Push `rsn` was received but not delivered yet, so that its payload must be
    /// stored.
    #[inline]
    pub fn holds_push(&self, rsn: Rsn) -> bool {
        self.target.holds_push(rsn)
    }

    /// Returns all requests for which [`Transactions::holds_push`] returns `true`.
    pub fn kept(&self) -> impl Iterator<Item = Rsn> {
        self.target.kept()
    }

    /// Withdraws the packet of `context`, which cannot be sent or retransmitted for a local reason: a Resync replaces
    /// it, and a local request completes with [`CompletionCode::LocalXlr`].
    pub fn withdraw(&mut self, context: Context) {
        if layer::is_data(context) {
            self.target.withdraw(self.target.seq_at(layer::slot_of_data(context)));
        } else {
            self.initiator.withdraw(self.initiator.seq_at(context.0));
        }
    }

    /// Returns the earliest time at which [`Layer::tick`] has an action to perform.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        let due = self.initiator.next_deadline().min(self.target.next_retry());
        (due < NEVER).then_some(due)
    }

    /// See [`crate::connection::Connection::prefetch_indirect`].
    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        self.initiator.prefetch_indirect();
        self.target.prefetch_indirect();
    }

    /// Returns `true` if no transaction is in flight in either direction.
    pub fn is_idle(&self) -> bool {
        self.initiator.is_empty() && self.target.is_empty()
    }
}

/// Returns the completion code at the initiator for a transaction refused with `code`.
fn completion_of(code: NackCode) -> CompletionCode {
    match code {
        NackCode::CompleteInError { .. } => CompletionCode::TargetCompleteInError,
        NackCode::NonRecoverable { .. } => CompletionCode::TargetNonRecoverable,
        NackCode::InvalidCid => CompletionCode::TargetInvalidCid,
        NackCode::Resource | NackCode::NotReady { .. } | NackCode::Xlr => CompletionCode::RemoteError,
    }
}
