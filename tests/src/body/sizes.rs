//! Sizes of memory and queues, as a scenario needs them.

use crate::scenario::Scenario;

impl Scenario {
    fn of_size<T: Copy>(&self, [small, large]: [T; 2]) -> T {
        if self.mix.len_max <= SMALL_BYTES { small } else { large }
    }

    /// Returns the bytes of a host's arena.
    pub(super) fn arena_bytes(&self) -> usize {
        self.of_size(ARENA_BYTES)
    }

    /// Returns with how much memory in use no further request is posted: receives must always find room, or those who
    /// wait for them would wait for ever.
    pub(super) fn request_bytes_max(&self) -> usize {
        self.arena_bytes() / 2
    }

    /// Returns what every receive takes.
    pub(super) fn capacity(&self) -> usize {
        // Often exactly as much as the longest message has.
        self.mix.len_max as usize + if self.seed.is_multiple_of(3) { 77 } else { 0 }
    }

    /// Returns the receives of each of `queues` queues, at most.
    pub(super) fn receives_max(&self, queues: usize) -> usize {
        (self.of_size(RECEIVE_BYTES) / (self.capacity() + 100) / queues).max(1)
    }

    /// Returns the entries of a shared receive queue; 0 where there is none.
    pub(super) fn shared_entries(&self) -> u32 {
        self.shared_receives.map_or(0, |entries| entries.min(self.receives_max(1) as u32))
    }
}

/// Bytes of a host's arena, for messages of up to [`SMALL_BYTES`], and for larger ones: receives of every queue pair,
/// and requests enough to fill windows.
const ARENA_BYTES: [usize; 2] = [4 << 20, 24 << 20];

/// Messages that make do with the smaller arena.
const SMALL_BYTES: u32 = 30_000;

/// Bytes of a host's receives altogether, at most.
const RECEIVE_BYTES: [usize; 2] = [1 << 20, 6 << 20];
