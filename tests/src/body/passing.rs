//! Buffers that are registered alone, by a key that lives as long as they are needed.
//!
//! A program may take a key back, and put the memory to other use, as soon as it knows that the operations on it are
//! complete: the body knows at once. From there on nothing may fail for want of the key, however late the network
//! brings what belonged to them, and nothing may be written ([`crate::arena`] paints the memory).

use rnic_engine::Access;

use super::Body;
use crate::arena::BlockId;
use crate::backend::Backend;

impl<B: Backend> Body<'_, B> {
    /// Perhaps registers a buffer of `host`, just allocated, alone.
    pub(super) fn give_key(&mut self, host: usize, block: BlockId, access: Access) {
        if self.passing.below(100) < self.scenario.passing_percent {
            let range = self.hosts[host].arena.range(block);
            let key = self.backend.register_part(host, self.hosts[host].region, range.start, range.len(), access);
            self.hosts[host].keys.insert(block, key);
        }
    }

    /// The key of a buffer: its own, or that of all memory of its host.
    pub(super) fn key_of(&self, host: usize, block: BlockId) -> u32 {
        let host = &self.hosts[host];
        host.keys.get(&block).map_or(host.arena.key, |key| key.0)
    }

    /// Whether a buffer has a key of its own.
    pub(super) fn is_passing(&self, host: usize, block: BlockId) -> bool {
        self.hosts[host].keys.contains_key(&block)
    }

    /// Nobody needs the buffer any more.
    pub(super) fn take_key_back(&mut self, host: usize, block: BlockId) {
        if let Some(key) = self.hosts[host].keys.remove(&block) {
            self.backend.deregister_part(host, key);
        }
    }
}
