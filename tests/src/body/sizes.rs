//! Sizes of memory and queues that a scenario requires.

use crate::scenario::Scenario;

impl Scenario {
    fn of_size<T: Copy>(&self, [small, large]: [T; 2]) -> T {
        if self.mix.len_max <= SMALL_BYTES { small } else { large }
    }

    /// Returns the bytes of a host's arena.
    pub(super) fn arena_bytes(&self) -> usize {
        self.of_size(ARENA_BYTES)
    }

    /// Returns the bytes of memory in use above which no further request is posted: there must always be space for
    /// receives, or senders that wait for them would wait indefinitely.
    pub(super) fn request_bytes_max(&self) -> usize {
        self.arena_bytes() / 2
    }

    /// Returns the bytes of every receive.
    pub(super) fn capacity(&self) -> usize {
        // Often exactly the length of the longest message.
        self.mix.len_max as usize + if self.seed.is_multiple_of(3) { 77 } else { 0 }
    }

    /// Returns the maximum number of receives of each of `queues` queues.
    pub(super) fn receives_max(&self, queues: usize) -> usize {
        (self.of_size(RECEIVE_BYTES) / (self.capacity() + 100) / queues).max(1)
    }

    /// Returns the entries of a shared receive queue; 0 where there is none.
    pub(super) fn shared_entries(&self) -> u32 {
        self.shared_receives.map_or(0, |entries| entries.min(self.receives_max(1) as u32))
    }
}

/// Bytes of a host's arena, for messages of up to [`SMALL_BYTES`], and for larger ones: enough for the receives of
/// every queue pair, and for requests that fill the windows.
const ARENA_BYTES: [usize; 2] = [4 << 20, 24 << 20];

/// Maximum message length, in bytes, for which the smaller arena is sufficient.
const SMALL_BYTES: u32 = 30_000;

/// Maximum total bytes of a host's receives, for small and for larger messages.
const RECEIVE_BYTES: [usize; 2] = [1 << 20, 6 << 20];
