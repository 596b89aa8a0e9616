//! What the body knows of one end of a connection: what it has posted and not yet seen done, and what must come of it.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::RandomStream;
use rnic_engine::{CqId, WcFlags, WcOpcode};
use rnic_wire::Qpn;

use super::memory::Pieces;
use crate::arena::BlockId;
use crate::backend::RegionId;
use crate::scenario::{Mix, Op, PlannedFailure, one_in, pick};

/// What must be so when a request has succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    /// The target holds this pattern, or a later version.
    Written(u64),
    /// Nothing beyond what its receiver checks.
    Sent,
    /// Local memory holds this pattern.
    Fetched(u64),
    /// Local memory holds this value.
    Found(u64),
    /// Local memory holds a value that nobody else was given.
    Ticket,
}

/// A request that has been posted.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) index: u64,
    pub(super) op: Op,
    pub(super) planned: Option<PlannedFailure>,
    pub(super) signalled: bool,
    pub(super) len: usize,
    pub(super) local: Pieces,
    /// What local memory holds from the beginning; `None` when the answer comes there.
    pub(super) source: Option<u64>,
    /// Memory at the other end.
    pub(super) target: Option<BlockId>,
    pub(super) check: Check,
    /// It uses a receive of the other end.
    pub(super) consumes: bool,
}

/// What a receive at the other end must report.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) opcode: WcOpcode,
    pub(super) len: usize,
    pub(super) word: u32,
    pub(super) flags: WcFlags,
    /// What its bytes are: a pattern, from some place on.
    pub(super) pattern: (u64, u64),
    /// Memory whose key it takes back.
    pub(super) invalidates: Option<RegionId>,
    pub(super) planned: Option<PlannedFailure>,
}

/// A receive that has been posted.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    pub(super) pieces: Pieces,
}

/// Memory at the other end that several requests work on.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Patterns that it has had or will have, in order.
    pub(super) versions: Vec<u64>,
    /// The last request posted for it reads it: a fenced Write may follow.
    pub(super) read_last: bool,
    /// A request that invalidates its key has been posted.
    pub(super) is_gone: bool,
}

impl Target {
    /// With the pattern that it has, or will have first.
    pub(super) fn new(seed: u64, read_last: bool) -> Self {
        Self { versions: vec![seed], read_last, is_gone: false }
    }
}

/// A word at the other end that only this one works on.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) block: BlockId,
    /// Its value after everything that has been posted.
    pub(super) value: u64,
    /// Its values after each atomic that is not known to be done, and before the first of them.
    pub(super) history: VecDeque<u64>,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) host: usize,
    pub(super) qpn: Qpn,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    pub(super) random: RandomStream,
    /// Names what this incarnation of the queue pair writes.
    pub(super) salt: u64,
    /// Entries of the send queue.
    pub(super) depth: usize,
    pub(super) is_active: bool,
    /// What goes wrong, and at which request.
    pub(super) planned: Option<(u64, PlannedFailure)>,
    /// Requests posted so far.
    pub(super) posted: u64,
    /// Requests that are not known to be done.
    pub(super) ops: VecDeque<Posted>,
    /// Requests in a row without a signal.
    pub(super) silent: usize,
    /// Requests that use a receive: known to be done; received at the other end.
    pub(super) acknowledged: u64,
    pub(super) received: u64,
    /// What the other end still has to receive.
    pub(super) messages: VecDeque<Message>,
    pub(super) targets: BTreeMap<BlockId, Target>,
    pub(super) word: Word,
    /// Receives posted to this queue pair.
    pub(super) receives: VecDeque<Receive>,
    pub(super) receives_max: usize,
    /// First packet sequence number of this incarnation.
    pub(super) psn: u32,
    /// The send queue is being drained, or is drained and goes on after so many steps.
    pub(super) drain: Drain,
    /// A request has not succeeded: from there on nothing does.
    pub(super) failed: bool,
    /// The peer refused a request: then its program must have been told.
    pub(super) was_refused: bool,
    /// A notice says that a request of the other end was refused here.
    pub(super) was_told: bool,
    /// What had not succeeded, kept until nothing can write to it any more.
    pub(super) fallen: Vec<Posted>,
    pub(super) fallen_receives: Vec<(Receive, Option<(u64, u64)>)>,
}

impl End {
    /// Names the pattern of something.
    pub(super) fn seed_of(&self, index: u64, what: u64) -> u64 {
        (self.salt ^ index.wrapping_mul(0x2545_f491_4f6c_dd1d)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ what << 56
    }

    /// Returns what goes wrong, once the request that it happens at has been posted.
    pub(super) fn met_failure(&self) -> Option<PlannedFailure> {
        self.planned.filter(|(at, _)| self.posted > *at).map(|(_, planned)| planned)
    }

    /// Draws what a request does.
    pub(super) fn draw_op(&mut self, mix: &Mix) -> Op {
        let weights = &mix.weights;
        let total: u32 = weights.iter().sum();
        let mut left = self.random.below(u64::from(total)) as u32;
        for (op, weight) in Op::ALL.iter().zip(weights) {
            if left < *weight {
                return *op;
            }
            left -= weight;
        }
        Op::Write
    }

    /// Draws the length of a message, for packets of `mtu` bytes.
    pub(super) fn draw_len(&mut self, mix: &Mix, mtu: u32) -> usize {
        let mtu = u64::from(mtu);
        let most = u64::from(mix.len_max);
        let random = &mut self.random;
        if random.below(100) < mix.round_percent {
            let packets = random.below(1 + (most / mtu).min(12));
            return (packets * mtu + random.below(3)).saturating_sub(1).min(most) as usize;
        }
        match random.below(8) {
            0 => 0,
            1 => random.between(1, most.min(9)) as usize,
            2 => most as usize,
            _ => {
                let share = pick(random, &[1, 4, 30]);
                random.below(1 + most / share) as usize
            }
        }
    }

    /// Draws whether a request is fenced.
    pub(super) fn draw_fence(&mut self, mix: &Mix) -> bool {
        self.random.below(100) < mix.fenced_percent
    }

    /// Returns a request that is still to be filled in.
    pub(super) fn blank(&mut self, mix: &Mix, op: Op, len: usize, check: Check) -> Posted {
        let signalled = self.random.below(100) < mix.signalled_percent || self.silent + 1 >= self.depth;
        Posted {
            index: self.posted,
            op,
            planned: None,
            signalled,
            len,
            local: Pieces::default(),
            source: None,
            target: None,
            check,
            consumes: false,
        }
    }

    /// Returns what the other end must receive.
    pub(super) fn message(&mut self, opcode: WcOpcode, len: usize, word: Option<u32>, seed: u64) -> Message {
        let mut flags = if word.is_some() { WcFlags::WITH_IMM } else { WcFlags::empty() };
        flags.set(WcFlags::SOLICITED, one_in(&mut self.random, 4));
        let word = word.unwrap_or(0);
        Message { opcode, len, word, flags, pattern: (seed, 0), invalidates: None, planned: None }
    }

    /// Returns the youngest request under way that `fits`, if there is one.
    pub(super) fn earlier(&self, fits: impl Fn(&End, &Posted) -> bool) -> Option<Posted> {
        let found = self.ops.iter().rev().find(|op| op.len > 0 && op.planned.is_none() && fits(self, op));
        found.cloned()
    }
}

/// How it is with a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Drain {
    /// Open.
    No,
    /// It finishes what it has begun.
    Draining,
    /// It has, and goes on after so many steps.
    Drained(u32),
}

/// How it is with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// As it should be.
    Alive,
    /// At an end, for a reason that we know; what is left to do is counted down in steps.
    Dying(u32),
    /// Over, and not made again.
    Gone,
}
