//! Commands that a host keeps under way.

use rnic_base::{Duration, RandomStream, Time};
use rnic_nvme::initiator::Command;
use rnic_nvme::{Direction, Extent};

use super::AT_FIRST;
use super::written::Written;
use crate::host::Sessions;
use crate::workload::nvme::NvmePlan;

/// The commands that a host posts and keeps under way.
#[derive(Debug)]
pub(crate) struct Load {
    plan: NvmePlan,
    random: RandomStream,
    /// Commands under way, by cookie.
    posted: Box<[Posted]>,
    /// The first block of this client's part of the drive.
    first_block: u64,
    /// Commands posted, and ended, so far.
    turns: u64,
    /// What has been written, where that is to be looked at in the end.
    written: Option<Written>,
    /// Cookies that no command has.
    free: Vec<u32>,
    /// When each command was posted that is done, and how long it took.
    done: Vec<(Time, Duration)>,
}

/// A command under way.
#[derive(Clone, Copy, Debug, Default)]
struct Posted {
    at: Time,
    first_block: u64,
    pass: u64,
}

impl Load {
    /// Returns the commands of the client whose part of the drive begins with `first_block`.
    pub(crate) fn new(plan: NvmePlan, random: RandomStream, first_block: u64) -> Self {
        let posted = vec![Posted::default(); plan.depth as usize].into_boxed_slice();
        let free = (0..plan.depth).rev().collect();
        Self { plan, random, posted, first_block, turns: 0, written: None, free, done: Vec::new() }
    }

    /// From now on, keeps what has been written.
    pub(crate) fn keep_written(&mut self) {
        self.written = Some(Written::default());
    }

    /// Returns the extents of commands that are done, where they are kept, and the passes that may be there: what has
    /// been read is as it was.
    pub(super) fn written(&self) -> impl Iterator<Item = (Extent, Vec<u64>)> {
        let (blocks, writes) = (self.plan.blocks(), self.plan.direction == Direction::Write);
        let all = self.written.iter().flat_map(Written::all);
        all.map(move |(first_block, passes)| {
            (Extent { first_block, blocks }, if writes { passes } else { vec![AT_FIRST] })
        })
    }

    pub(super) fn plan(&self) -> &NvmePlan {
        &self.plan
    }

    /// Returns the blocks of the command with `cookie`.
    pub(super) fn extent(&self, cookie: u64) -> Extent {
        Extent { first_block: self.posted[cookie as usize].first_block, blocks: self.plan.blocks() }
    }

    /// Returns the pass over the drive that the command with `cookie` is: its own, and greater than those before it.
    pub(super) fn pass(&self, cookie: u64) -> u64 {
        self.posted[cookie as usize].pass
    }

    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// The next command, if there is one to post now.
    pub(super) fn next(&mut self, now: Time) -> Option<Command> {
        if now >= self.plan.until {
            return None;
        }
        let cookie = self.free.pop()?;
        let blocks = self.plan.blocks();
        let turn = self.random.below(self.plan.span() / u64::from(blocks));
        let first_block = self.first_block + turn * u64::from(blocks);
        self.posted[cookie as usize] = Posted { at: now, first_block, pass: self.turn() };
        Some(Command { direction: self.plan.direction, first_block, blocks, cookie: cookie.into() })
    }

    /// There was no room for the command with `cookie`.
    pub(super) fn take_back(&mut self, cookie: u64) {
        self.free.push(cookie as u32);
    }

    /// Nothing more is posted.
    pub(super) fn end(&mut self) {
        self.plan.until = Time::ZERO;
    }

    /// The command with `cookie` is done: it counts as a message of a closed loop does.
    pub(super) fn done(&mut self, now: Time, cookie: u64, sessions: &mut Sessions) {
        let Posted { at: posted, first_block, pass } = self.posted[cookie as usize];
        let turn = self.turn();
        if let Some(written) = &mut self.written {
            written.done(first_block, pass, turn);
        }
        self.free.push(cookie as u32);
        self.done.push((posted, now.since(posted)));
        sessions.messages += 1;
        if sessions.steady.is_none_or(|(from, until)| (from..until).contains(&posted)) {
            sessions.latencies.push(now.since(posted));
        }
        if sessions.steady.is_some_and(|(from, until)| (from..=until).contains(&now)) {
            sessions.steady_bytes += self.plan.bytes;
        }
    }

    /// The command with `cookie` has failed: it counts as nothing moved, although some of it may have been.
    pub(super) fn failed(&mut self, cookie: u64) {
        let Posted { first_block, pass, .. } = self.posted[cookie as usize];
        if let Some(written) = &mut self.written {
            written.failed(first_block, pass);
        }
        self.free.push(cookie as u32);
    }

    /// When each command was posted that is done, and how long it took.
    pub(super) fn all_done(&self) -> &[(Time, Duration)] {
        &self.done
    }

    /// Commands under way.
    pub(super) fn under_way(&self) -> usize {
        self.posted.len() - self.free.len()
    }
}
