//! Data that a drive may contain at the end of a run.
//!
//! Commands of a load have one length and start at multiples of it, so two of them have the same blocks or none in
//! common. Of commands in flight at the same time, any may be the last to write a block. A command that completed
//! before another completed command was posted cannot be: its data is stale.

use std::collections::BTreeMap;

/// Commands whose data a block may contain, by their first block.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<u64, Place>);

#[derive(Debug, Default)]
struct Place {
    /// Passes, and the turn at which each completed.
    last: Vec<(u64, u64)>,
    /// Set when a command has completed: the initial data has been overwritten.
    is_over: bool,
}

impl Written {
    /// Records that the command of `pass`, which is the turn at which it was posted, completed at `turn`.
    pub(super) fn done(&mut self, first_block: u64, pass: u64, turn: u64) {
        let place = self.0.entry(first_block).or_default();
        place.last.retain(|(_, done)| *done > pass);
        place.last.push((pass, turn));
        place.is_over = true;
    }

    /// Records that the command of `pass` failed: its data may have been written, and may still be.
    pub(super) fn failed(&mut self, first_block: u64, pass: u64) {
        self.0.entry(first_block).or_default().last.push((pass, u64::MAX));
    }

    /// Returns the first block of each completed command, and the passes that it may contain.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, Vec<u64>)> {
        let over = self.0.iter().filter(|(_, place)| place.is_over);
        over.map(|(first, place)| (*first, place.last.iter().map(|(pass, _)| *pass).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(written: &Written) -> Vec<(u64, Vec<u64>)> {
        written.all().collect()
    }

    #[test]
    fn what_was_done_before_another_was_posted_is_stale() {
        let mut written = Written::default();
        written.done(8, 1, 3);
        // Under way at once with the first, and with the next.
        written.done(8, 2, 6);
        assert_eq!(all(&written), [(8, vec![1, 2])]);
        written.done(8, 5, 7);
        assert_eq!(all(&written), [(8, vec![2, 5])], "5 was posted when 1 was done, and 2 was not");
        written.done(8, 9, 10);
        assert_eq!(all(&written), [(8, vec![9])]);
    }

    #[test]
    fn what_has_failed_may_be_there_at_any_time_and_proves_nothing() {
        let mut written = Written::default();
        written.failed(0, 1);
        assert!(all(&written).is_empty(), "what was there before may be there yet");
        written.done(0, 4, 5);
        written.failed(0, 6);
        written.done(0, 8, 9);
        assert_eq!(all(&written), [(0, vec![1, 6, 8])]);
    }
}
