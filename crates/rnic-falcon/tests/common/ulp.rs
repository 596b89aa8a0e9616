//! An upper layer that writes down what it sees, and behaves as it is told.

use std::collections::VecDeque;

use rnic_base::{RandomStream, Time};
use rnic_falcon::transaction::{Completion, PullReply, PushReply, Request, UpperLayer};
use rnic_wire::falcon::{RnrTimer, Rsn};

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

/// What it has seen, and what it still has to do.
#[derive(Debug)]
pub struct Recorder {
    pub manners: Manners,
    pub random: RandomStream,
    /// Requests that it has taken, in order.
    pub requests: Vec<Rsn>,
    /// Those that it has completed in error.
    pub refused: Vec<Rsn>,
    pub completions: Vec<Completion>,
    /// Pushes to be acknowledged.
    pub pushes: VecDeque<Rsn>,
    /// Pulls to be answered, with their lengths.
    pub pulls: VecDeque<(Rsn, u16)>,
    pub offers: u64,
}

impl Recorder {
    pub fn new(manners: Manners, random: RandomStream) -> Self {
        Self {
            manners,
            random,
            requests: Vec::new(),
            refused: Vec::new(),
            completions: Vec::new(),
            pushes: VecDeque::new(),
            pulls: VecDeque::new(),
            offers: 0,
        }
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        thousandths > 0 && self.random.below(1_000) < thousandths
    }
}

/// 10 us.
pub const RETRY: RnrTimer = RnrTimer::from_code(1);

impl UpperLayer for Recorder {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        self.offers += 1;
        if self.happens(self.manners.not_ready) {
            return PushReply::NotReady(RETRY);
        }
        if self.happens(self.manners.in_error) {
            self.refused.push(request.rsn);
            return PushReply::CompleteInError(7);
        }
        self.requests.push(request.rsn);
        if self.happens(self.manners.done_at_once) {
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

    fn complete(&mut self, _: Time, completion: &Completion) {
        self.completions.push(*completion);
    }
}
