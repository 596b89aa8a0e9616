//! The transaction layer of one connection: requests in, completions out, in the order that the connection promises.
//!
//! Sources: Falcon (SIGCOMM'25) sections 4.4, 4.5 and appendix A; specification Rev 0.9 sections 6, 8 and 11.
//! Mechanisms F-2, F-3, F-5 to F-8, F-33, F-34, F-41.
//!
//! A *transaction* is at most one packet of data: a Push takes it there, a Pull brings it back. Its initiator numbers
//! it (RSN); the target hands requests to its upper layer in that order, and the initiator hands back completions in
//! it, when the connection is ordered. Both halves live in every connection: [`initiator`] for our requests, [`target`]
//! for the peer's.
//!
//! What passes to the delivery layer goes through [`Layer`], which implements [`crate::seam::Upper`]. What the target's
//! upper layer settles later comes out of [`Transactions::settled`], for `Delivery::acknowledge` and
//! `Delivery::refuse`.
//!
//! Choices where the sources are silent or disagree:
//!
//! * an error of a Pull travels inside the upper layer's headers of an empty Pull Data (specification 6.6.5), whatever
//!   kind of error it is: a Pull Request is acknowledged on receipt, so it could not be refused later;
//! * Pull Data shorter than asked is normal, longer ends the transaction with an operation error;
//! * a Resync has the window of what it stands for;
//! * NACKs for a filtered flow (xLR) are understood and never sent: Rev 0.9 does not say what filters;
//! * the transaction timeout runs from the first transmission: one that never left has no number that the other side
//!   could miss.

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

/// What a connection promises about order (F-6). Weak order (data placed as it comes, completions in order) is built by
/// the upper layer on an unordered connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ordering {
    /// Requests reach the target's upper layer, and completions the initiator's, in the order of requests.
    #[default]
    Ordered,
    /// Both as they come.
    Unordered,
}

/// What both ends of a connection have agreed on, and what this end may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionConfig {
    /// Order.
    pub ordering: Ordering,
    /// The upper layer.
    pub protocol: UlpProtocol,
    /// Bytes of a transaction, at most: headers of the upper layer, data and padding (F-3).
    pub mtu: u16,
    /// Transactions under way, at most; a power of two.
    pub outstanding: u32,
    /// A transaction whose packet has left and that is not complete after so long ends in error. Much larger than a
    /// packet's timeout.
    pub timeout: Duration,
    /// How it is kept from taking what others need.
    pub isolation: Isolation,
}

/// Transactions under way in one direction of one connection, at most: what a context can name.
pub const OUTSTANDING_MAX: u32 = 1 << 16;

/// Not by the clock.
const NEVER: Time = Time::from_ps(u64::MAX);

/// The two sorts of transactions (F-2): where data flows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// To the target: RDMA Write and Send; NVMe requests.
    Push,
    /// From the target: RDMA Read and atomics; NVMe data of Writes.
    Pull,
}

/// What the upper layer hands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// Which way data flows.
    pub kind: Kind,
    /// Bytes that it moves, with the upper layer's headers and padding: what `Request Length` says on the wire.
    pub length: u16,
    /// Payload bytes of the request's own packet, behind the upper layer's headers: none for a Pull.
    pub payload_len: u32,
    /// The upper layer's headers, to be kept until they are not needed; without, it is asked for them
    /// ([`UpperLayer::headers`]) when a packet leaves.
    pub ulp: Option<Ulp>,
    /// Comes back with the completion.
    pub tag: u64,
    /// It goes on with what the peer's upper layer takes in: when all before it is acknowledged, it is not put off
    /// (RNR). For such there is a [reserve](crate::resources::ResourceConfig::reserve).
    pub continues: bool,
}

/// Why a submission is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// Xoff (F-34): come back when [`Transactions::paused`] says no. Nothing was taken.
    #[error("no room for another transaction now")]
    Paused,
    /// Longer than a transaction may be.
    #[error("a transaction of {length} bytes is longer than the connection's {mtu}")]
    TooLong {
        /// What was asked.
        length: u16,
        /// What is agreed.
        mtu: u16,
    },
    /// Nothing to move, a Pull Request with payload, or more payload than the whole is long.
    #[error("the request makes no sense")]
    Senseless,
    /// It has failed for good.
    #[error("the connection is dead")]
    Dead,
}

/// Why the target's upper layer cannot answer or acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// No room to send it: try again later.
    #[error("no room for Pull Data now")]
    Paused,
    /// More bytes than were asked for.
    #[error("{length} bytes answer a Pull of {asked}")]
    TooLong {
        /// What was given.
        length: u32,
        /// What was asked.
        asked: u16,
    },
    /// There is no such request, or it waits for no such thing.
    #[error("no such request waits")]
    Unknown,
}

/// What the target's upper layer has settled about a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// `Delivery::acknowledge`.
    Acknowledged(Received),
    /// `Delivery::refuse`.
    Refused(Received, NackCode),
}

/// What has been counted on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionStats {
    /// Transactions taken from the upper layer.
    pub submitted: u64,
    /// Completions handed to it.
    pub completed: u64,
    /// Of those, in error.
    pub completed_in_error: u64,
    /// Requests handed to the target's upper layer, and accepted by it.
    pub delivered: u64,
    /// Requests that it was not ready for.
    pub not_ready: u64,
    /// Packets that found no room.
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
    /// Whose turn it is among queues that could all send (F-41).
    turn: u8,
    dead: bool,
    /// The target's upper layer has failed: what is said of all that comes.
    refuses: Option<NackCode>,
}

impl Transactions {
    /// A connection on which nothing has happened; both ends begin to count at `first`.
    ///
    /// # Panics
    /// When `config.outstanding` is not a power of two up to [`OUTSTANDING_MAX`].
    pub fn new(config: TransactionConfig, first: Rsn) -> Self {
        Self::between(config, first, first)
    }

    /// As [`Transactions::new`], when our requests begin at `ours` and the peer's at `theirs`.
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

    /// What was agreed.
    pub const fn config(&self) -> &TransactionConfig {
        &self.config
    }

    /// What has been counted.
    pub const fn stats(&self) -> &TransactionStats {
        &self.stats
    }

    /// What it holds.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The shares of free resources that the adaptive engine gives it (F-36).
    pub fn set_alphas(&mut self, request: Alpha, data: Alpha) {
        (self.usage.request_alpha, self.usage.data_alpha) = (request, data);
    }

    /// Whether no transaction of ours holds anything: the next may be of those for whom there is a
    /// [reserve](crate::resources::ResourceConfig::reserve).
    #[inline]
    pub const fn holds_nothing(&self) -> bool {
        self.usage.has_no_request()
    }

    /// Whether it has failed for good.
    pub const fn is_dead(&self) -> bool {
        self.dead
    }

    /// Xoff (F-34, F-35): whether the upper layer shall hand in no more requests.
    #[inline]
    pub fn paused(&self, resources: &Resources) -> bool {
        self.dead || self.initiator.is_full() || self.requests_exceed_share(resources)
    }

    /// Whether it is for this connection's own [share](crate::resources::threshold) that it may hand in no more
    /// requests, however much there is.
    #[inline]
    pub fn requests_exceed_share(&self, resources: &Resources) -> bool {
        self.usage.pauses_requests(self.config.isolation, resources)
    }

    /// The same of answers to Pulls.
    #[inline]
    pub fn answers_exceed_share(&self, resources: &Resources) -> bool {
        self.usage.pauses_data(self.config.isolation, resources)
    }

    /// The upper layer is about to hand in so many, one after the other: places for them are made at once, not a few
    /// at a time.
    #[inline]
    pub fn expect(&mut self, transactions: u32) {
        self.initiator.expect(transactions);
    }

    /// Takes a transaction from the upper layer, with all that it will need (F-33); gives its number.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was taken then.
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

    /// The target's upper layer acknowledges the Push `rsn`, which it had taken with [`PushReply::Later`].
    ///
    /// # Errors
    /// When no such Push waits for it.
    pub fn acknowledge(&mut self, rsn: Rsn) -> Result<(), AnswerError> {
        self.target.acknowledge(rsn)
    }

    /// The target's upper layer refuses the Push `rsn` for good, which it had taken with [`PushReply::Later`].
    ///
    /// # Errors
    /// When no such Push waits for it.
    pub fn refuse(&mut self, rsn: Rsn, code: NackCode) -> Result<(), AnswerError> {
        self.target.refuse(rsn, code)
    }

    /// The upper layer has failed for good: Pushes that wait for their turn, and those that come, are refused with
    /// `code`. It still hears of Pulls, in their turn, to say so. No request holds room any more. Those that are here
    /// are told nothing: their initiator has heard of another, or asks again. Nor is room held for what our own
    /// requests would bring, which may never come; their packets hold theirs until they are acknowledged.
    pub fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        if self.refuses.replace(code).is_none() {
            self.target.refuse_all(resources, code);
            self.initiator.expect_nothing(resources, &mut self.usage);
        }
    }

    /// The target's upper layer answers the Pull `rsn`, which it had taken with [`PullReply::Later`].
    ///
    /// # Errors
    /// When no such Pull waits for it, or there is no room to send it.
    pub fn answer(&mut self, resources: &mut Resources, rsn: Rsn, answer: &Answer) -> Result<(), AnswerError> {
        if self.answers_exceed_share(resources) {
            return Err(AnswerError::Paused);
        }
        self.target.answer(resources, &mut self.usage, rsn, answer)
    }

    /// Whether something was never sent.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.initiator.has_unsent() || self.target.has_answers()
    }

    /// Whether something could be sent for the first time through these gates.
    #[inline]
    pub(crate) fn has_to_send(&mut self, open: Gates) -> bool {
        self.initiator.sendable(open, true).is_some() || open.pull_data && self.target.sendable().is_some()
    }

    /// What has been settled since, for the delivery layer.
    #[inline]
    pub fn settled(&mut self) -> Option<Settled> {
        self.target.settled()
    }

    /// Whether as many transactions are under way as there may be.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.initiator.is_full()
    }

    /// What came with the submission that the request of `context` belongs to; none for Pull Data.
    #[inline]
    pub fn tag(&self, context: Context) -> Option<u64> {
        (!layer::is_data(context)).then(|| self.initiator.tag(self.initiator.seq_at(context.0)))
    }

    /// How the oldest of those requests will end whose tag `is_wanted`, if it is known that one will fail: it was
    /// refused, and the Resync in the place of its packet is not acknowledged yet. For whoever ends the connection
    /// before that.
    pub fn known_failure(&self, is_wanted: impl Fn(u64) -> bool) -> Option<Completion> {
        self.initiator.known_failure(is_wanted)
    }

    /// What came with the submission of the Pull `rsn`, as long as its data has not come.
    #[inline]
    pub fn expected_by(&self, rsn: Rsn) -> Option<u64> {
        self.initiator.expected_by(rsn)
    }

    /// Whether the peer's Push `rsn` is here, and its turn has not come: its payload must be kept.
    #[inline]
    pub fn keeps(&self, rsn: Rsn) -> bool {
        self.target.keeps(rsn)
    }

    /// All requests for which [`Transactions::keeps`] holds.
    pub fn kept(&self) -> impl Iterator<Item = Rsn> {
        self.target.kept()
    }

    /// The packet of `context` cannot be sent, now or again, for a reason of our own: a Resync takes its place, and a
    /// request of ours ends with [`CompletionCode::LocalXlr`].
    pub fn withdraw(&mut self, context: Context) {
        if layer::is_data(context) {
            self.target.withdraw(self.target.seq_at(layer::slot_of_data(context)));
        } else {
            self.initiator.withdraw(self.initiator.seq_at(context.0));
        }
    }

    /// When [`Layer::tick`] has something to do, at the earliest.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        let due = self.initiator.next_deadline().min(self.target.next_retry());
        (due < NEVER).then_some(due)
    }

    /// See [`crate::connection::Connection::touch_apart`].
    #[inline]
    pub(crate) fn touch_apart(&self) {
        self.initiator.touch_apart();
        self.target.touch_apart();
    }

    /// Whether nothing is under way in either direction.
    pub fn is_idle(&self) -> bool {
        self.initiator.is_empty() && self.target.is_empty()
    }
}

/// Ends a transaction at its initiator.
fn completion_of(code: NackCode) -> CompletionCode {
    match code {
        NackCode::CompleteInError { .. } => CompletionCode::TargetCompleteInError,
        NackCode::NonRecoverable { .. } => CompletionCode::TargetNonRecoverable,
        NackCode::InvalidCid => CompletionCode::TargetInvalidCid,
        NackCode::Resource | NackCode::NotReady { .. } | NackCode::Xlr => CompletionCode::RemoteError,
    }
}
