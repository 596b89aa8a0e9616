//! Data that a drive may contain at the end of a run.
//!
//! Commands of a load have one length and start at multiples of it, so two of them cover either the same blocks or no
//! common ones. Of commands in flight at the same time, any may be the last to write a block. A command cannot be the
//! last one if it completed before another completed command was posted: its data is stale.

use std::collections::BTreeMap;

/// Commands whose data may be in the blocks, by first block.
#[derive(Debug, Default)]
pub(super) struct WriteHistory(BTreeMap<u64, PendingWrite>);

#[derive(Debug, Default)]
struct PendingWrite {
    /// Pass numbers, and the number of the event at which each completed.
    candidates: Vec<(u64, u64)>,
    /// Set when a command has completed: the initial data has been overwritten.
    is_overwritten: bool,
}

impl WriteHistory {
    /// Records that the command of `pass`, which is the event number of its post, completed at event number `event`.
    pub(super) fn done(&mut self, first_block: u64, pass: u64, event: u64) {
        let block = self.0.entry(first_block).or_default();
        block.candidates.retain(|(_, done)| *done > pass);
        block.candidates.push((pass, event));
        block.is_overwritten = true;
    }

    /// Records that the command of `pass` failed: its data may have been written, or may still be written.
    pub(super) fn failed(&mut self, first_block: u64, pass: u64) {
        self.0.entry(first_block).or_default().candidates.push((pass, u64::MAX));
    }

    /// Returns the first block of each completed command, and the sequence numbers of the writes whose data each may
    /// contain.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, Vec<u64>)> {
        let overwritten = self.0.iter().filter(|(_, block)| block.is_overwritten);
        overwritten.map(|(first, block)| (*first, block.candidates.iter().map(|(pass, _)| *pass).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(written: &WriteHistory) -> Vec<(u64, Vec<u64>)> {
        written.all().collect()
    }

    #[test]
    fn data_of_a_command_completed_before_a_later_one_was_posted_is_stale() {
        let mut written = WriteHistory::default();
        written.done(8, 1, 3);
        // In flight at the same time as the first command, and as the next one.
        written.done(8, 2, 6);
        assert_eq!(all(&written), [(8, vec![1, 2])]);
        written.done(8, 5, 7);
        assert_eq!(all(&written), [(8, vec![2, 5])], "command 1 completed before 5 was posted, command 2 did not");
        written.done(8, 9, 10);
        assert_eq!(all(&written), [(8, vec![9])]);
    }

    #[test]
    fn data_of_a_failed_command_may_be_present_and_overwrites_nothing_for_certain() {
        let mut written = WriteHistory::default();
        written.failed(0, 1);
        assert!(all(&written).is_empty(), "the initial data was reported as overwritten");
        written.done(0, 4, 5);
        written.failed(0, 6);
        written.done(0, 8, 9);
        assert_eq!(all(&written), [(0, vec![1, 6, 8])]);
    }
}
