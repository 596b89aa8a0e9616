//! Commands that a host keeps under way.

use rnic_base::{Duration, RandomStream, Time};
use rnic_nvme::Extent;
use rnic_nvme::initiator::Command;

use crate::host::Sessions;
use crate::workload::nvme::NvmePlan;

/// The commands that a host posts and keeps under way.
#[derive(Debug)]
pub(crate) struct Load {
    plan: NvmePlan,
    random: RandomStream,
    /// When each command was posted, and the blocks it is about, by its cookie.
    posted: Box<[(Time, u64)]>,
    /// The first block of this client's part of the drive.
    first_block: u64,
    /// The first blocks of commands that are done, where those are to be looked at in the end.
    written: Option<Vec<u64>>,
    /// Cookies that no command has.
    free: Vec<u32>,
    /// When each command was posted that is done, and how long it took.
    done: Vec<(Time, Duration)>,
}

impl Load {
    /// Returns the commands of the client whose part of the drive begins with `first_block`.
    pub(crate) fn new(plan: NvmePlan, random: RandomStream, first_block: u64) -> Self {
        let posted = vec![(Time::ZERO, 0); plan.depth as usize].into_boxed_slice();
        let free = (0..plan.depth).rev().collect();
        Self { plan, random, posted, first_block, written: None, free, done: Vec::new() }
    }

    /// From now on, keeps what has been written.
    pub(crate) fn keep_written(&mut self) {
        self.written = Some(Vec::new());
    }

    /// Returns the extents of commands that are done, where they are kept.
    pub(super) fn written(&self) -> impl Iterator<Item = Extent> {
        let blocks = self.plan.blocks();
        self.written.iter().flatten().map(move |first| Extent { first_block: *first, blocks })
    }

    pub(super) fn plan(&self) -> &NvmePlan {
        &self.plan
    }

    /// Returns the blocks of the command with `cookie`.
    pub(super) fn extent(&self, cookie: u64) -> Extent {
        Extent { first_block: self.posted[cookie as usize].1, blocks: self.plan.blocks() }
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
        self.posted[cookie as usize] = (now, first_block);
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
        let (posted, first_block) = self.posted[cookie as usize];
        if let Some(written) = &mut self.written {
            written.push(first_block);
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

    /// The command with `cookie` has failed: it has moved nothing.
    pub(super) fn failed(&mut self, cookie: u64) {
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
