//! The real transaction layer above the delivery layer, with an upper layer that sends, answers and refuses at random.

use std::collections::VecDeque;

use rnic_base::{Duration, RandomStream, Serial, Time};
use rnic_falcon::delivery::Delivery;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::seam::{Context, Exhausted, Gates, Outgoing, Upper, Verdict};
use rnic_falcon::transaction::{
    Answer, AnswerError, Completion, Kind, Layer, PullReply, PushReply, Request, Settled, Submission,
    TransactionConfig, Transactions, UpperLayer,
};
use rnic_wire::falcon::{NackCode, Packet, RnrTimer, Rsn, Ulp};

/// The upper layer of one end.
pub struct Verbs {
    random: RandomStream,
    /// Chances in a thousand.
    not_ready: u64,
    in_error: u64,
    pub requests: Vec<Rsn>,
    pub refused: Vec<Rsn>,
    pub completions: Vec<Completion>,
    pushes: VecDeque<Rsn>,
    pulls: VecDeque<(Rsn, u16)>,
}

impl UpperLayer for Verbs {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        if self.random.below(1_000) < self.not_ready {
            return PushReply::NotReady(RnrTimer::from_code(1));
        }
        if self.random.below(1_000) < self.in_error {
            self.refused.push(request.rsn);
            return PushReply::CompleteInError(7);
        }
        self.requests.push(request.rsn);
        if self.random.below(2) == 0 {
            return PushReply::Done;
        }
        self.pushes.push_back(request.rsn);
        PushReply::Later
    }

    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        if self.random.below(1_000) < self.not_ready {
            return PullReply::NotReady(RnrTimer::from_code(1));
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

/// What an end has to do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub transactions: u64,
    pub not_ready: u64,
    pub in_error: u64,
}

/// One end above its delivery layer.
pub struct Stack {
    pub transactions: Transactions,
    pub resources: Resources,
    pub verbs: Verbs,
    load: Load,
    pub submitted: u64,
    now: Time,
}

/// Both ends begin to count transactions here.
pub const FIRST: Rsn = Serial::new(u32::MAX - 100);

impl Stack {
    pub fn new(config: TransactionConfig, resources: ResourceConfig, load: Load, random: RandomStream) -> Self {
        let verbs = Verbs {
            random,
            not_ready: load.not_ready,
            in_error: load.in_error,
            requests: Vec::new(),
            refused: Vec::new(),
            completions: Vec::new(),
            pushes: VecDeque::new(),
            pulls: VecDeque::new(),
        };
        let transactions = Transactions::new(config, FIRST);
        Self { transactions, resources: Resources::new(resources), verbs, load, submitted: 0, now: Time::ZERO }
    }

    /// Whether nothing is left, here and of what was asked of others.
    pub fn is_done(&self) -> bool {
        let completed = self.verbs.completions.len() as u64;
        self.submitted == self.load.transactions
            && completed == self.submitted
            && self.transactions.is_idle()
            && self.resources.is_idle()
    }

    fn layer(&mut self) -> Layer<'_, Verbs> {
        Layer { transactions: &mut self.transactions, resources: &mut self.resources, ulp: &mut self.verbs }
    }

    /// Hands in what there is room for.
    fn submit(&mut self) {
        while self.submitted < self.load.transactions {
            let kind = if self.verbs.random.below(2) == 0 { Kind::Push } else { Kind::Pull };
            let length = self.verbs.random.between(1, 4_096) as u16;
            let payload_len = if kind == Kind::Push { u32::from(length) } else { 0 };
            let submission = Submission { kind, length, payload_len, ulp: None, tag: self.submitted, continues: false };
            if self.transactions.submit(&mut self.resources, &submission).is_err() {
                break;
            }
            self.submitted += 1;
        }
    }

    /// Acknowledges and answers, about half of what waits.
    fn answer(&mut self) {
        while self.verbs.random.below(2) == 0
            && let Some(rsn) = self.verbs.pushes.pop_front()
        {
            // Fails for a request that a Resync has skipped meanwhile: the connection no longer knows it.
            let _ = self.transactions.acknowledge(rsn);
        }
        while self.verbs.random.below(2) == 0
            && let Some((rsn, length)) = self.verbs.pulls.front().copied()
        {
            let answer = Answer { payload_len: u32::from(length), length: u32::from(length), ulp: Ulp::None };
            match self.transactions.answer(&mut self.resources, rsn, &answer) {
                Err(AnswerError::Paused) => break,
                Ok(()) | Err(_) => drop(self.verbs.pulls.pop_front()),
            }
        }
    }
}

impl super::link::Above for Stack {
    fn work(&mut self, now: Time, delivery: &mut Delivery) {
        self.submit();
        self.answer();
        self.layer().tick(now);
        while let Some(settled) = self.transactions.settled() {
            match settled {
                Settled::Acknowledged(received) => delivery.acknowledge(now, received),
                Settled::Refused(received, code) => delivery.refuse(received, code),
            }
        }
        self.now = now;
    }

    fn wake(&self) -> Option<Time> {
        let waits = !self.verbs.pushes.is_empty() || !self.verbs.pulls.is_empty();
        let has_more = self.submitted < self.load.transactions && !self.transactions.paused(&self.resources);
        let soon = (waits || has_more).then(|| self.now + Duration::from_us(1));
        [soon, self.transactions.next_timeout()].into_iter().flatten().min()
    }
}

impl Upper for Stack {
    fn next(&mut self, now: Time, open: Gates) -> Option<Outgoing> {
        self.layer().next(now, open)
    }

    fn again(&mut self, now: Time, context: Context) -> Outgoing {
        self.layer().again(now, context)
    }

    fn acked(&mut self, now: Time, context: Context) {
        self.layer().acked(now, context);
    }

    fn nacked(&mut self, now: Time, context: Context, code: NackCode) {
        self.layer().nacked(now, context, code);
    }

    fn exhausted(&mut self, now: Time, context: Context) -> Exhausted {
        self.layer().exhausted(now, context)
    }

    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        self.layer().offer(now, packet)
    }

    fn duplicate(&mut self, now: Time, packet: &Packet) -> Option<NackCode> {
        self.layer().duplicate(now, packet)
    }

    fn rx_level(&self) -> u8 {
        self.resources.rx_level()
    }
}
