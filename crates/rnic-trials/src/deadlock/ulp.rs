//! An upper layer that writes down what it sees, and behaves as it is told.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use rnic_base::{RandomStream, Serial, Time};
use rnic_falcon::transaction::{Completion, PullReply, PushReply, Request, UpperLayer};
use rnic_wire::falcon::{RnrTimer, Rsn, Ulp};

/// The number of a connection's first transaction: it wraps soon.
pub(super) const FIRST: Serial<32> = Serial::new(u32::MAX - 40);

/// How an upper layer behaves, in chances of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// It acknowledges a Push at once, not later.
    pub done_at_once: u64,
    /// It is not ready.
    pub not_ready: u64,
    /// It completes a Push in error.
    pub in_error: u64,
    /// It holds so many Pulls at most; 0 for as many as come.
    pub pulls_held: usize,
}

/// Receives that the connections of a NIC share, as a shared receive queue has them: a message takes one, and it is
/// posted again at once when the last of the message's Pushes is done.
#[derive(Clone, Debug)]
pub struct Receives(Rc<Cell<u32>>);

impl Receives {
    /// So many.
    pub fn new(count: u32) -> Self {
        Self(Rc::new(Cell::new(count)))
    }

    /// Takes `count`, when they are there.
    fn take(&self, count: u32) -> bool {
        let left = self.0.get().checked_sub(count);
        left.inspect(|left| self.0.set(*left)).is_some()
    }

    fn post(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A message that the peer sends here. What its packets' headers would say is written down when it is handed in.
#[derive(Clone, Copy, Debug)]
struct Message {
    pushes: u32,
    done: u32,
}

/// Messages from the peer, and the receives that they take.
#[derive(Debug)]
struct Inbox {
    receives: Receives,
    messages: Vec<Message>,
    /// So many of them have a receive: the oldest, as receives go to the messages of a connection in their order.
    begun: usize,
    /// By transaction of the peer's: of which message it is; none of a Pull.
    of: Vec<Option<usize>>,
}

impl Inbox {
    fn message_of(&self, rsn: Rsn) -> usize {
        let nth = FIRST.distance_to(rsn) as usize;
        self.of[nth].expect("a Push is of a message")
    }

    /// Whether the message of `rsn` has a receive.
    fn has_begun(&self, rsn: Rsn) -> bool {
        self.message_of(rsn) < self.begun
    }

    /// Takes a receive for the message of `rsn`, and for those before it that have none yet; whether there were enough.
    fn begin(&mut self, rsn: Rsn) -> bool {
        let needed = (self.message_of(rsn) + 1).saturating_sub(self.begun);
        let found = self.receives.take(needed as u32);
        self.begun += if found { needed } else { 0 };
        found
    }

    /// A Push is done.
    fn done(&mut self, rsn: Rsn) {
        let index = self.message_of(rsn);
        let message = &mut self.messages[index];
        message.done += 1;
        if message.done == message.pushes {
            self.receives.post();
        }
    }
}

/// What it has seen, and what it still has to do.
#[derive(Debug)]
pub struct Recorder {
    /// How it behaves.
    pub manners: Manners,
    /// What chances are drawn from.
    pub random: RandomStream,
    /// Requests that it has taken, in order.
    pub requests: Vec<Rsn>,
    /// Those that it has completed in error.
    pub refused: Vec<Rsn>,
    /// What has ended of its own.
    pub completions: Vec<Completion>,
    /// Pushes to be acknowledged.
    pub pushes: VecDeque<Rsn>,
    /// Pulls to be answered, with their lengths.
    pub pulls: VecDeque<(Rsn, u16)>,
    /// Requests that it was asked to take, each as often as it was asked.
    pub offers: u64,
    /// None where every Push finds a receive.
    inbox: Option<Inbox>,
}

impl Recorder {
    /// An upper layer that has seen nothing yet; with `receives`, messages need them.
    pub fn new(manners: Manners, random: RandomStream, receives: Option<Receives>) -> Self {
        let inbox = |receives| Inbox { receives, messages: Vec::new(), begun: 0, of: Vec::new() };
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

    /// The peer has handed in its next transaction: a Pull, a Push that begins a message of so many, or one that goes
    /// on with the message before.
    pub fn announce(&mut self, what: Announced) {
        let Some(inbox) = &mut self.inbox else { return };
        if let Announced::Begins(pushes) = what {
            inbox.messages.push(Message { pushes, done: 0 });
        }
        inbox.of.push((what != Announced::Pull).then(|| inbox.messages.len() - 1));
    }

    /// The Push `rsn`, which it had taken, is acknowledged.
    pub fn acknowledged(&mut self, rsn: Rsn) {
        self.inbox.iter_mut().for_each(|inbox| inbox.done(rsn));
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        thousandths > 0 && self.random.below(1_000) < thousandths
    }
}

/// What a transaction is to the upper layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// No part of a message.
    Pull,
    /// The first Push of a message of so many.
    Begins(u32),
    /// A further Push of the last message that has begun.
    GoesOn,
}

/// 10 us.
pub const RETRY: RnrTimer = RnrTimer::from_code(1);

impl UpperLayer for Recorder {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        self.offers += 1;
        let goes_on = self.inbox.as_ref().is_some_and(|inbox| inbox.has_begun(request.rsn));
        // Whoever has a receive is not put off any more.
        if !goes_on && self.happens(self.manners.not_ready) {
            return PushReply::NotReady(RETRY);
        }
        if self.happens(self.manners.in_error) {
            self.refused.push(request.rsn);
            return PushReply::CompleteInError(7);
        }
        if !goes_on && self.inbox.as_mut().is_some_and(|inbox| !inbox.begin(request.rsn)) {
            return PushReply::NotReady(RETRY);
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
            return PullReply::NotReady(RETRY);
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
