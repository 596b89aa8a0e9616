//! Counters of a pool.

use crate::signal::Kind;

/// Counters of one kind of signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindCounters {
    /// Number of signals queued.
    pub pushed: u64,
    /// Number of bytes in these signals.
    pub pushed_bytes: u64,
    /// Number of records taken by threads, each of which runs a handler.
    pub events: u64,
    /// Events that were folded, because the rate was stable.
    pub folded: u64,
    /// Number of bytes in these records.
    pub bytes: u64,
    /// Number of signals that were removed because their flow was removed.
    pub forgotten: u64,
}

impl KindCounters {
    /// Returns the mean number of bytes per event; zero without events.
    pub const fn bytes_per_event(&self) -> u64 {
        match self.bytes.checked_div(self.events) {
            Some(mean) => mean,
            None => 0,
        }
    }
}

/// Counters of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounters {
    kinds: [KindCounters; Kind::COUNT],
    /// Number of records rejected because of an unknown subject.
    pub refused: u64,
}

impl PoolCounters {
    /// Returns the counters of `kind`.
    pub const fn of(&self, kind: Kind) -> &KindCounters {
        &self.kinds[kind.index()]
    }

    /// Returns the number of events of all kinds.
    pub fn events(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.events).sum()
    }

    pub(super) const fn of_mut(&mut self, kind: Kind) -> &mut KindCounters {
        &mut self.kinds[kind.index()]
    }
}
