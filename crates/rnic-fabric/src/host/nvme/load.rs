//! Commands that a host keeps under way.

use rnic_base::{Duration, RandomStream, Time};
use rnic_nvme::initiator::Command;

use crate::host::Sessions;
use crate::workload::nvme::{BLOCK_LOG2, NvmePlan};

/// The commands that a host posts and keeps under way.
#[derive(Debug)]
pub(super) struct Load {
    plan: NvmePlan,
    random: RandomStream,
    /// When each command was posted, by its cookie.
    posted: Box<[Time]>,
    /// Cookies that no command has.
    free: Vec<u32>,
    /// When each command was posted that is done, and how long it took.
    done: Vec<(Time, Duration)>,
}

/// Blocks of a gigabyte.
const BLOCKS: u64 = 1 << (30 - BLOCK_LOG2);

impl Load {
    pub(super) fn new(plan: NvmePlan, random: RandomStream) -> Self {
        let posted = vec![Time::ZERO; plan.depth as usize].into_boxed_slice();
        Self { plan, random, posted, free: (0..plan.depth).rev().collect(), done: Vec::new() }
    }

    /// The next command, if there is one to post now.
    pub(super) fn next(&mut self, now: Time) -> Option<Command> {
        if now >= self.plan.until {
            return None;
        }
        let cookie = self.free.pop()?;
        self.posted[cookie as usize] = now;
        let blocks = self.plan.blocks();
        let first_block = self.random.below(BLOCKS / u64::from(blocks)) * u64::from(blocks);
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
        let posted = self.posted[cookie as usize];
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
