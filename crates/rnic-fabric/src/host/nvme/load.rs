//! Commands that a host keeps in flight.

use rnic_base::{Duration, RandomStream, Time};
use rnic_nvme::initiator::Command;
use rnic_nvme::{Direction, Extent};

use super::INITIAL_PASS;
use super::write_history::WriteHistory;
use crate::host::Sessions;
use crate::workload::nvme::NvmePlan;

/// The commands that a host posts and keeps in flight.
#[derive(Debug)]
pub(crate) struct Load {
    plan: NvmePlan,
    random: RandomStream,
    /// Commands in flight, by cookie.
    posted: Box<[Posted]>,
    /// First block of the range of the drive that this client uses.
    first_block: u64,
    /// Number of commands posted and number ended so far.
    event_count: u64,
    /// Record of the written blocks, if they are to be checked at the end of the run.
    written: Option<WriteHistory>,
    /// Cookies that are not in use.
    free: Vec<u32>,
    /// For each completed command: the time at which it was posted, and its duration.
    done: Vec<(Time, Duration)>,
}

/// A command in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Posted {
    at: Time,
    first_block: u64,
    pass: u64,
}

impl Load {
    /// Returns the commands of the client whose range of the drive starts at `first_block`.
    pub(crate) fn new(plan: NvmePlan, random: RandomStream, first_block: u64) -> Self {
        let posted = vec![Posted::default(); plan.depth as usize].into_boxed_slice();
        let free = (0..plan.depth).rev().collect();
        Self { plan, random, posted, first_block, event_count: 0, written: None, free, done: Vec::new() }
    }

    /// Starts recording the blocks of completed commands.
    pub(crate) fn record_written(&mut self) {
        self.written = Some(WriteHistory::default());
    }

    /// Returns the extents of completed commands, if recorded, and for each the sequence numbers of the writes whose
    /// data it may contain. Blocks that were only read are unchanged.
    pub(super) fn written(&self) -> impl Iterator<Item = (Extent, Vec<u64>)> {
        let (blocks, writes) = (self.plan.blocks(), self.plan.direction == Direction::Write);
        let all = self.written.iter().flat_map(WriteHistory::all);
        all.map(move |(first_block, passes)| {
            (Extent { first_block, blocks }, if writes { passes } else { vec![INITIAL_PASS] })
        })
    }

    pub(super) fn plan(&self) -> &NvmePlan {
        &self.plan
    }

    /// Returns the blocks of the command with `cookie`.
    pub(super) fn extent(&self, cookie: u64) -> Extent {
        Extent { first_block: self.posted[cookie as usize].first_block, blocks: self.plan.blocks() }
    }

    /// Returns the sequence number of the command with `cookie`: unique, and greater than those of all earlier
    /// commands.
    pub(super) fn pass(&self, cookie: u64) -> u64 {
        self.posted[cookie as usize].pass
    }

    fn next_event(&mut self) -> u64 {
        self.event_count += 1;
        self.event_count
    }

    /// Returns the next command, if one is to be posted now.
    pub(super) fn next(&mut self, now: Time) -> Option<Command> {
        if now >= self.plan.until {
            return None;
        }
        let cookie = self.free.pop()?;
        let blocks = self.plan.blocks();
        let index = self.random.below(self.plan.span() / u64::from(blocks));
        let first_block = self.first_block + index * u64::from(blocks);
        self.posted[cookie as usize] = Posted { at: now, first_block, pass: self.next_event() };
        Some(Command { direction: self.plan.direction, first_block, blocks, cookie: cookie.into() })
    }

    /// Releases the cookie of a command that could not be posted because the queue was full.
    pub(super) fn take_back(&mut self, cookie: u64) {
        self.free.push(cookie as u32);
    }

    /// Stops posting commands.
    pub(super) fn end(&mut self) {
        self.plan.until = Time::ZERO;
    }

    /// Records the completion of the command with `cookie`: it counts as a message of a closed loop.
    pub(super) fn done(&mut self, now: Time, cookie: u64, sessions: &mut Sessions) {
        let Posted { at: posted, first_block, pass } = self.posted[cookie as usize];
        let event = self.next_event();
        if let Some(written) = &mut self.written {
            written.done(first_block, pass, event);
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

    /// Records the failure of the command with `cookie`. It counts as having transferred no data, although some may
    /// have been transferred.
    pub(super) fn failed(&mut self, cookie: u64) {
        let Posted { first_block, pass, .. } = self.posted[cookie as usize];
        if let Some(written) = &mut self.written {
            written.failed(first_block, pass);
        }
        self.free.push(cookie as u32);
    }

    /// Returns, for each completed command, the time at which it was posted and its duration.
    pub(super) fn completed(&self) -> &[(Time, Duration)] {
        &self.done
    }

    /// Returns the number of commands in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.posted.len() - self.free.len()
    }
}
