//! The transaction layer of one connection: accepts requests and delivers completions, in the order that the connection
//! guarantees.
//!
//! Sources: Falcon (SIGCOMM'25) sections 4.4, 4.5 and appendix A; specification Rev 0.9 sections 6, 8 and 11.
//! Mechanisms F-2, F-3, F-5 to F-8, F-33, F-34, F-41.
//!
//! A *transaction* moves at most one packet of data: a Push from initiator to target, a Pull from target to initiator.
//! Its initiator numbers it (RSN); on an ordered connection, the target delivers requests to its upper layer in that
//! order, and the initiator delivers completions in that order. Every connection has both halves: [`initiator`] for
//! local requests, [`target`] for the peer's.
//!
//! The interface to the delivery layer is [`Layer`], which implements [`crate::seam::Upper`]. Transactions that the
//! target's upper layer settles later are returned by [`Transactions::settled`], for `Delivery::acknowledge` and
//! `Delivery::refuse`.
//!
//! Choices where the sources are silent or disagree:
//!
//! * an error of a Pull is carried in the upper layer's headers of an empty Pull Data (specification 6.6.5), whatever
//!   its type: a Pull Request is acknowledged on receipt, so it cannot be refused later;
//! * Pull Data shorter than requested is normal, longer completes the transaction with an operation error;
//! * a Resync has the window of the packet that it replaces;
//! * NACKs for a filtered flow (xLR) are processed and never sent: Rev 0.9 does not define the filter;
//! * the transaction timeout runs from the first transmission: a transaction never sent has no sequence number that the
//!   peer could miss.

pub mod ulp;

mod initiator;
mod layer;
mod ring;
mod target;

use rnic_base::{Duration, Time};
use rnic_wire::falcon::{CompletionCode, NackCode, Rsn, Ulp, UlpProtocol};

use crate::resources::Resources;
use crate::resources::threshold::{Alpha, Isolation, Usage};
use crate::seam::{Context, Gates, Received};

use initiator::Initiator;
pub use layer::Layer;
use target::Target;
pub use ulp::{Answer, Completion, PullReply, PushReply, Request, UpperLayer};

/// Ordering guarantee of a connection (F-6). Weak order (data placed on arrival, completions in order) is implemented
/// by the upper layer on an unordered connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ordering {
    /// Requests are delivered to the target's upper layer, and completions to the initiator's, in the order of
    /// requests.
    #[default]
    Ordered,
    /// Requests and completions are delivered in the order of arrival.
    Unordered,
}

/// Parameters agreed between both ends of a connection, and limits of the local end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionConfig {
    /// Ordering guarantee.
    pub ordering: Ordering,
    /// Protocol of the upper layer.
    pub protocol: UlpProtocol,
    /// Maximum size of a transaction in bytes: headers of the upper layer, data and padding (F-3).
    pub mtu: u16,
    /// Maximum number of transactions in flight; a power of two.
    pub outstanding: u32,
    /// Time after which a transaction whose packet was sent and that is not complete ends in error. Much larger than a
    /// packet's timeout.
    pub timeout: Duration,
    /// Limit on the resources of the connection, for isolation from others.
    pub isolation: Isolation,
}

/// Maximum number of transactions in flight in one direction of one connection, given by the size of a context.
pub const OUTSTANDING_MAX: u32 = 1 << 16;

/// Later than every time: the value of a timer that is not set.
const NEVER: Time = Time::from_ps(u64::MAX);

/// The two types of transactions (F-2), by direction of data flow.
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
    /// Bytes moved, with the upper layer's headers and padding: the value of `Request Length` on the wire.
    pub length: u16,
    /// Payload bytes of the request's own packet, without the upper layer's headers: zero for a Pull.
    pub payload_len: u32,
    /// The upper layer's headers, stored until they are no longer needed; when `None`, they are requested from the
    /// upper layer ([`UpperLayer::headers`]) whenever a packet is sent.
    pub ulp: Option<Ulp>,
    /// Identifier returned with the completion.
    pub tag: u64,
    /// True when the transaction continues a message that the peer's upper layer is receiving: once all earlier ones
    /// are acknowledged, the peer does not delay it (RNR). Such transactions may use the
    /// [reserve](crate::resources::ResourceConfig::reserve).
    pub continues: bool,
}

/// Reason for which a submission is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// Xoff (F-34): submit again when [`Transactions::paused`] returns false. No resources were taken.
    #[error("no room for another transaction now")]
    Paused,
    /// Longer than the maximum size of a transaction.
    #[error("a transaction of {length} bytes is longer than the connection's {mtu}")]
    TooLong {
        /// Submitted length in bytes.
        length: u16,
        /// Agreed maximum in bytes.
        mtu: u16,
    },
    /// No bytes to move, a Pull Request with payload, or more payload than the total length.
    #[error("the request is invalid")]
    Senseless,
    /// The connection has failed permanently.
    #[error("the connection is dead")]
    Dead,
}

/// Reason for which the target's upper layer cannot respond or acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// No resources to send the response: to be tried again later.
    #[error("no room for Pull Data now")]
    Paused,
    /// More bytes than were requested.
    #[error("{length} bytes answer a Pull of {asked}")]
    TooLong {
        /// Length of the response in bytes.
        length: u32,
        /// Requested length in bytes.
        asked: u16,
    },
    /// There is no such request, or it does not wait for this operation.
    #[error("no such request waits")]
    Unknown,
}

/// Decision of the target's upper layer about a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// To be passed to `Delivery::acknowledge`.
    Acknowledged(Received),
    /// To be passed to `Delivery::refuse`.
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
    /// Requests delivered to the target's upper layer, and accepted by it.
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
    /// State of the round robin among queues that could all send (F-41).
    turn: u8,
    dead: bool,
    /// NACK code for all received requests, set when the target's upper layer has failed.
    refuses: Option<NackCode>,
}

impl Transactions {
    /// Creates the layer of a connection without any traffic; both ends start to count at `first`.
    ///
    /// # Panics
    /// When `config.outstanding` is not a power of two up to [`OUTSTANDING_MAX`].
    pub fn new(config: TransactionConfig, first: Rsn) -> Self {
        Self::between(config, first, first)
    }

    /// Same as [`Transactions::new`], with local requests starting at `ours` and the peer's at `theirs`.
    ///
    /// # Panics
    /// As [`Transactions::new`].
    pub fn between(config: TransactionConfig, ours: Rsn, theirs: Rsn) -> Self {
        assert!(config.outstanding.is_power_of_two() && config.outstanding <= OUTSTANDING_MAX);
        Self {
            config,
            initiator: Initiator::new(&config, ours),
            target: Target::new(&config, theirs),
            usage: Usage::default(),
            stats: TransactionStats::default(),
            turn: 0,
            dead: false,
            refuses: None,
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

    /// Returns the resources held.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Sets the shares of free resources assigned by the adaptive engine (F-36).
    pub fn set_alphas(&mut self, request: Alpha, data: Alpha) {
        (self.usage.request_alpha, self.usage.data_alpha) = (request, data);
    }

    /// Returns whether no local transaction holds any resources: the next one may then be entitled to the
    /// [reserve](crate::resources::ResourceConfig::reserve).
    #[inline]
    pub const fn holds_nothing(&self) -> bool {
        self.usage.has_no_request()
    }

    /// Returns whether the connection has failed permanently.
    pub const fn is_dead(&self) -> bool {
        self.dead
    }

    /// Returns whether the upper layer must not submit more requests: Xoff (F-34, F-35).
    #[inline]
    pub fn paused(&self, resources: &Resources) -> bool {
        self.dead || self.initiator.is_full() || self.requests_exceed_share(resources)
    }

    /// Returns whether this connection's own [share](crate::resources::threshold) forbids more requests, independent of
    /// the resources available.
    #[inline]
    pub fn requests_exceed_share(&self, resources: &Resources) -> bool {
        self.usage.pauses_requests(self.config.isolation, resources)
    }

    /// Returns whether this connection's own share forbids more responses to Pulls.
    #[inline]
    pub fn answers_exceed_share(&self, resources: &Resources) -> bool {
        self.usage.pauses_data(self.config.isolation, resources)
    }

    /// Announces that the upper layer will submit this number of transactions one after the other: their ring entries
    /// are allocated in one batch instead of a few at a time.
    #[inline]
    pub fn expect(&mut self, transactions: u32) {
        self.initiator.expect(transactions);
    }

    /// Accepts a transaction from the upper layer, and takes all resources that it will need (F-33); returns its RSN.
    ///
    /// # Errors
    /// [`SubmitError`]; no resources were taken then.
    #[inline]
    pub fn submit(&mut self, resources: &mut Resources, submission: &Submission) -> Result<Rsn, SubmitError> {
        if self.dead {
            return Err(SubmitError::Dead);
        }
        if submission.length > self.config.mtu {
            return Err(SubmitError::TooLong { length: submission.length, mtu: self.config.mtu });
        }
        let payload_max = if submission.kind == Kind::Pull { 0 } else { u32::from(submission.length) };
        if submission.length == 0 || submission.payload_len > payload_max {
            return Err(SubmitError::Senseless);
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
    /// When no such Push waits for it.
    pub fn acknowledge(&mut self, rsn: Rsn) -> Result<(), AnswerError> {
        self.target.acknowledge(rsn)
    }

    /// Refuses permanently the Push `rsn`, which the target's upper layer accepted with [`PushReply::Later`].
    ///
    /// # Errors
    /// When no such Push waits for it.
    pub fn refuse(&mut self, rsn: Rsn, code: NackCode) -> Result<(), AnswerError> {
        self.target.refuse(rsn, code)
    }

    /// Handles a permanent failure of the upper layer: Pushes that wait for their turn, and those received later, are
    /// refused with `code`. Pulls are still delivered to it in their turn, so that it can respond with an error.
    /// Requests no longer hold resources. No NACK is sent for Pushes already received: their initiator has received one
    /// for another Push, or retransmits. No resources are held for responses to local requests either, because these
    /// may never arrive; their packets keep theirs until they are acknowledged.
    pub fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        if self.refuses.replace(code).is_none() {
            self.target.refuse_all(resources, code);
            self.initiator.expect_nothing(resources, &mut self.usage);
        }
    }

    /// Responds to the Pull `rsn`, which the target's upper layer accepted with [`PullReply::Later`].
    ///
    /// # Errors
    /// When no such Pull waits for it, or there are no resources to send the response.
    pub fn answer(&mut self, resources: &mut Resources, rsn: Rsn, answer: &Answer) -> Result<(), AnswerError> {
        if self.answers_exceed_share(resources) {
            return Err(AnswerError::Paused);
        }
        self.target.answer(resources, &mut self.usage, rsn, answer)
    }

    /// Returns whether any packet was not sent yet.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.initiator.has_unsent() || self.target.has_answers()
    }

    /// Returns whether a packet could be sent for the first time through these gates.
    #[inline]
    pub(crate) fn has_to_send(&mut self, open: Gates) -> bool {
        self.initiator.sendable(open, true).is_some() || open.pull_data && self.target.sendable().is_some()
    }

    /// Returns the next packet settled by the upper layer, for the delivery layer.
    #[inline]
    pub fn settled(&mut self) -> Option<Settled> {
        self.target.settled()
    }

    /// Returns whether the maximum number of transactions is in flight.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.initiator.is_full()
    }

    /// Returns the tag of the submission that the request of `context` belongs to; `None` for Pull Data.
    #[inline]
    pub fn tag(&self, context: Context) -> Option<u64> {
        (!layer::is_data(context)).then(|| self.initiator.tag(self.initiator.seq_at(context.0)))
    }

    /// Returns the future completion of the oldest request whose tag `is_wanted` and that is known to fail: it was
    /// refused, and the Resync that replaces its packet is not acknowledged yet. Used when the connection is terminated
    /// before that.
    pub fn known_failure(&self, is_wanted: impl Fn(u64) -> bool) -> Option<Completion> {
        self.initiator.known_failure(is_wanted)
    }

    /// Returns the tag of the submission of the Pull `rsn`, as long as its data has not arrived.
    #[inline]
    pub fn expected_by(&self, rsn: Rsn) -> Option<u64> {
        self.initiator.expected_by(rsn)
    }

    /// Returns whether the peer's Push `rsn` was received and waits for its turn: its payload must be kept.
    #[inline]
    pub fn keeps(&self, rsn: Rsn) -> bool {
        self.target.keeps(rsn)
    }

    /// Returns all requests for which [`Transactions::keeps`] holds.
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

    /// Returns the earliest time at which [`Layer::tick`] has to act.
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

    /// Returns whether no transaction is in flight in either direction.
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
