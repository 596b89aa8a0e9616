//! An upper layer with configurable behaviour that records the requests and completions it receives.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use rnic_base::{RandomStream, Serial, Time};
use rnic_wire::falcon::{RnrTimer, Rsn, Ulp};

use crate::transaction::{Completion, PullReply, PushReply, Request, UpperLayer};

/// Number of a connection's first transaction; chosen so that it wraps soon.
pub const RSN_FIRST: Serial<32> = Serial::new(u32::MAX - 40);

/// Behaviour of an upper layer; probabilities in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpperLayerBehaviour {
    /// Probability of acknowledging a Push immediately instead of later.
    pub done_at_once: u64,
    /// Probability of being not ready.
    pub not_ready: u64,
    /// Probability of completing a Push in error.
    pub in_error: u64,
    /// Maximum number of Pulls held; 0 for no limit.
    pub pulls_held: usize,
}

/// Receives that the connections of a NIC share, as in a shared receive queue: a message consumes one, which is posted
/// again immediately when the last Push of the message is complete.
#[derive(Clone, Debug)]
pub struct Receives(Rc<Cell<u32>>);

impl Receives {
    /// Creates a queue of `count` receives.
    pub fn new(count: u32) -> Self {
        Self(Rc::new(Cell::new(count)))
    }

    /// Takes `count` receives, if available, and returns whether they were.
    fn take(&self, count: u32) -> bool {
        let left = self.0.get().checked_sub(count);
        left.inspect(|left| self.0.set(*left)).is_some()
    }

    fn post(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A message from the peer. The information that its packets' headers would carry is recorded when it is submitted.
#[derive(Clone, Copy, Debug)]
struct Message {
    pushes: u32,
    done: u32,
}

/// Messages from the peer, and the receives that they consume.
#[derive(Debug)]
struct Inbox {
    receives: Receives,
    messages: Vec<Message>,
    /// Number of messages that have a receive: the oldest ones, because receives are assigned to the messages of a
    /// connection in order.
    started: usize,
    /// Index of the message of each of the peer's transactions; `None` for a Pull.
    message_indices: Vec<Option<usize>>,
}

impl Inbox {
    fn message_of(&self, rsn: Rsn) -> usize {
        let nth = RSN_FIRST.distance_to(rsn) as usize;
        self.message_indices[nth].expect("the transaction is a Push, which belongs to a message")
    }

    /// Returns whether the message of `rsn` has a receive.
    fn has_begun(&self, rsn: Rsn) -> bool {
        self.message_of(rsn) < self.started
    }

    /// Takes a receive for the message of `rsn`, and for earlier messages that have none yet; returns whether there
    /// were enough.
    fn begin(&mut self, rsn: Rsn) -> bool {
        let needed = (self.message_of(rsn) + 1).saturating_sub(self.started);
        let found = self.receives.take(needed as u32);
        self.started += if found { needed } else { 0 };
        found
    }

    /// Records that a Push is complete.
    fn done(&mut self, rsn: Rsn) {
        let index = self.message_of(rsn);
        let message = &mut self.messages[index];
        message.done += 1;
        if message.done == message.pushes {
            self.receives.post();
        }
    }
}

/// An upper layer that records received requests and its pending work.
#[derive(Debug)]
pub struct Recorder {
    /// Configured behaviour.
    pub manners: UpperLayerBehaviour,
    /// Random stream for its decisions.
    pub random: RandomStream,
    /// Accepted requests, in order.
    pub requests: Vec<Rsn>,
    /// Requests completed in error.
    pub refused: Vec<Rsn>,
    /// Completions of the transactions that it submitted.
    pub completions: Vec<Completion>,
    /// Pushes to be acknowledged.
    pub pushes: VecDeque<Rsn>,
    /// Pulls that need a response, with their lengths.
    pub pulls: VecDeque<(Rsn, u16)>,
    /// Number of requests offered to it, each counted as often as it was offered.
    pub offers: u64,
    /// `None` when receives are not limited.
    inbox: Option<Inbox>,
}

impl Recorder {
    /// Creates an upper layer in its initial state; with `receives`, messages need them.
    pub fn new(manners: UpperLayerBehaviour, random: RandomStream, receives: Option<Receives>) -> Self {
        let inbox = |receives| Inbox { receives, messages: Vec::new(), started: 0, message_indices: Vec::new() };
        Self {
            manners,
            random,
            requests: Vec::new(),
            refused: Vec::new(),
            completions: Vec::new(),
            pushes: VecDeque::new(),
            pulls: VecDeque::new(),
            offers: 0,
            inbox: receives.map(inbox),
        }
    }

    /// Records the next transaction submitted by the peer: a Pull, the first Push of a message, or a Push that
    /// continues the previous message.
    pub fn announce(&mut self, announced: Announced) {
        let Some(inbox) = &mut self.inbox else { return };
        if let Announced::Begins(pushes) = announced {
            inbox.messages.push(Message { pushes, done: 0 });
        }
        inbox.message_indices.push((announced != Announced::Pull).then(|| inbox.messages.len() - 1));
    }

    /// Records the acknowledgement of the accepted Push `rsn`.
    pub fn acknowledged(&mut self, rsn: Rsn) {
        self.inbox.iter_mut().for_each(|inbox| inbox.done(rsn));
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        thousandths > 0 && self.random.below(1_000) < thousandths
    }
}

/// Position of a transaction in a message of the upper layer: outside any message, first, or continuation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// A transaction outside any message.
    Pull,
    /// The first Push of a message, with the number of its Pushes.
    Begins(u32),
    /// A further Push of the message started last.
    GoesOn,
}

/// RNR retry time of 10 us.
pub const RNR_RETRY: RnrTimer = RnrTimer::from_code(1);

impl UpperLayer for Recorder {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        self.offers += 1;
        let has_receive = self.inbox.as_ref().is_some_and(|inbox| inbox.has_begun(request.rsn));
        // A message that has a receive is not deferred any more.
        if !has_receive && self.happens(self.manners.not_ready) {
            return PushReply::NotReady(RNR_RETRY);
        }
        if self.happens(self.manners.in_error) {
            self.refused.push(request.rsn);
            return PushReply::CompleteInError(7);
        }
        if !has_receive && self.inbox.as_mut().is_some_and(|inbox| !inbox.begin(request.rsn)) {
            return PushReply::NotReady(RNR_RETRY);
        }
        self.requests.push(request.rsn);
        if self.happens(self.manners.done_at_once) {
            self.acknowledged(request.rsn);
            return PushReply::Done;
        }
        self.pushes.push_back(request.rsn);
        PushReply::Later
    }

    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        self.offers += 1;
        if self.manners.pulls_held > 0 && self.pulls.len() >= self.manners.pulls_held {
            return PullReply::Busy;
        }
        if self.happens(self.manners.not_ready) {
            return PullReply::NotReady(RNR_RETRY);
        }
        self.requests.push(request.rsn);
        self.pulls.push_back((request.rsn, request.length));
        PullReply::Later
    }

    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, completion: &Completion) {
        self.completions.push(*completion);
    }
}
