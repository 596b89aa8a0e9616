//! State of one end of a connection: requests posted and not yet known to be complete, and their expected results.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::RandomStream;
use rnic_engine::{CqId, WcFlags, WcOpcode};
use rnic_wire::Qpn;

use super::memory::Pieces;
use crate::arena::BlockId;
use crate::backend::RegionId;
use crate::scenario::{Mix, Op, PlannedFailure, one_in, pick};

/// Condition to check when a request has succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    /// The target holds this pattern, or a later version.
    Written(u64),
    /// No condition beyond the checks at its receiver.
    Sent,
    /// Local memory holds this pattern.
    Fetched(u64),
    /// Local memory holds this value.
    Found(u64),
    /// Local memory holds a value that no other request received.
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
    /// Pattern of local memory at posting; `None` when the response is placed there.
    pub(super) source: Option<u64>,
    /// Memory at the other end that the request uses.
    pub(super) target: Option<BlockId>,
    pub(super) check: Check,
    /// True when it consumes a receive of the other end.
    pub(super) consumes: bool,
}

/// Expected content of a receive completion at the other end.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) opcode: WcOpcode,
    pub(super) len: usize,
    pub(super) word: u32,
    pub(super) flags: WcFlags,
    /// Expected bytes: the seed of a pattern, and the start offset in it.
    pub(super) pattern: (u64, u64),
    /// Memory region whose key the message invalidates.
    pub(super) invalidates: Option<RegionId>,
    pub(super) planned: Option<PlannedFailure>,
}

/// A receive that has been posted.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    pub(super) pieces: Pieces,
}

/// Memory at the other end that several requests use.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Patterns that the memory has had or will have, in order.
    pub(super) versions: Vec<u64>,
    /// True when the last request posted for it is a read, so that a fenced Write may follow.
    pub(super) read_last: bool,
    /// Set when a request that invalidates its key has been posted.
    pub(super) is_gone: bool,
}

impl Target {
    /// Creates a target with `seed`, its current or first future pattern.
    pub(super) fn new(seed: u64, read_last: bool) -> Self {
        Self { versions: vec![seed], read_last, is_gone: false }
    }
}

/// An eight-byte word at the other end that only this end uses.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) block: BlockId,
    /// Value of the word after everything that has been posted.
    pub(super) value: u64,
    /// Values of the word after each atomic that is not known to be complete, and before the first of them.
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
    /// Random value that identifies the patterns of this incarnation of the queue pair.
    pub(super) salt: u64,
    /// Entries of the send queue.
    pub(super) depth: usize,
    pub(super) is_active: bool,
    /// Intended failure, and the index of the request at which it occurs.
    pub(super) planned: Option<(u64, PlannedFailure)>,
    /// Requests posted so far.
    pub(super) posted: u64,
    /// Requests that are not known to be complete.
    pub(super) ops: VecDeque<Posted>,
    /// Consecutive unsignalled requests.
    pub(super) silent: usize,
    /// Numbers of requests that consume a receive: known to be complete, and received at the other end.
    pub(super) acknowledged: u64,
    pub(super) received: u64,
    /// Messages that the other end has not yet received.
    pub(super) messages: VecDeque<Message>,
    pub(super) targets: BTreeMap<BlockId, Target>,
    pub(super) word: Word,
    /// Receives posted to this queue pair.
    pub(super) receives: VecDeque<Receive>,
    pub(super) receives_max: usize,
    /// First packet sequence number of this incarnation.
    pub(super) psn: u32,
    /// Drain state of the send queue.
    pub(super) drain: Drain,
    /// Set when a request has failed: no later request succeeds.
    pub(super) failed: bool,
    /// Set when the peer refused a request: then the peer's program must have received an event.
    pub(super) was_refused: bool,
    /// Set when an event reported that a request of the other end was refused here.
    pub(super) got_error_event: bool,
    /// Requests that did not succeed, kept until their memory can no longer be written.
    pub(super) fallen: Vec<Posted>,
    pub(super) failed_receives: Vec<(Receive, Option<(u64, u64)>)>,
}

impl End {
    /// Returns the seed of a pattern, for request `index` and purpose `purpose`.
    pub(super) fn seed_of(&self, index: u64, purpose: u64) -> u64 {
        (self.salt ^ index.wrapping_mul(0x2545_f491_4f6c_dd1d)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose << 56
    }

    /// Returns the intended failure, once the request at which it occurs has been posted.
    pub(super) fn met_failure(&self) -> Option<PlannedFailure> {
        self.planned.filter(|(at, _)| self.posted > *at).map(|(_, planned)| planned)
    }

    /// Generates the operation of a request.
    pub(super) fn draw_op(&mut self, mix: &Mix) -> Op {
        let weights = &mix.weights;
        let total: u32 = weights.iter().sum();
        let mut remaining = self.random.below(u64::from(total)) as u32;
        for (op, weight) in Op::ALL.iter().zip(weights) {
            if remaining < *weight {
                return *op;
            }
            remaining -= weight;
        }
        Op::Write
    }

    /// Generates the length of a message, for packets of `mtu` bytes.
    pub(super) fn draw_len(&mut self, mix: &Mix, mtu: u32) -> usize {
        let mtu = u64::from(mtu);
        let len_max = u64::from(mix.len_max);
        let random = &mut self.random;
        if random.below(100) < mix.round_percent {
            let packets = random.below(1 + (len_max / mtu).min(12));
            return (packets * mtu + random.below(3)).saturating_sub(1).min(len_max) as usize;
        }
        match random.below(8) {
            0 => 0,
            1 => random.between(1, len_max.min(9)) as usize,
            2 => len_max as usize,
            _ => {
                let divisor = pick(random, &[1, 4, 30]);
                random.below(1 + len_max / divisor) as usize
            }
        }
    }

    /// Generates whether a request is fenced.
    pub(super) fn draw_fence(&mut self, mix: &Mix) -> bool {
        self.random.below(100) < mix.fenced_percent
    }

    /// Returns a request whose remaining fields the caller fills in.
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

    /// Returns the message that the other end must receive.
    pub(super) fn message(&mut self, opcode: WcOpcode, len: usize, word: Option<u32>, seed: u64) -> Message {
        let mut flags = if word.is_some() { WcFlags::WITH_IMM } else { WcFlags::empty() };
        flags.set(WcFlags::SOLICITED, one_in(&mut self.random, 4));
        let word = word.unwrap_or(0);
        Message { opcode, len, word, flags, pattern: (seed, 0), invalidates: None, planned: None }
    }

    /// Returns the most recently posted request in flight that `fits`, if there is one.
    pub(super) fn earlier(&self, fits: impl Fn(&End, &Posted) -> bool) -> Option<Posted> {
        let found = self.ops.iter().rev().find(|op| op.len > 0 && op.planned.is_none() && fits(self, op));
        found.cloned()
    }
}

/// Drain state of a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Drain {
    /// Not drained: requests may start.
    No,
    /// Being drained: requests that have started are finishing.
    Draining,
    /// Drained; resumed after this number of steps.
    Drained(u32),
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Operating normally.
    Alive,
    /// Failed for a known reason; the remaining teardown happens after this number of steps.
    TearingDown(u32),
    /// Closed, and not established again.
    Closed,
}
