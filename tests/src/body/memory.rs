//! Memory of the hosts: blocks of arenas that are filled with patterns, their keys, and their content.
//!
//! Some buffers are registered separately, by a key that exists as long as they are needed. A program may deregister a
//! key, and use the memory for another purpose, as soon as it knows that the operations on it are complete: the test
//! driver does so immediately. After that no operation may fail because the key is missing, however late the network
//! delivers packets of these operations, and nothing may be written ([`crate::arena`] paints the memory).

use std::collections::BTreeMap;

use rnic_base::RandomStream;
use rnic_engine::{Access, Key, RemoteMemory, Sge};

use crate::arena::{Arena, BlockId};
use crate::backend::{Backend, RegionId};
use crate::pattern;
use crate::scenario::{Scenario, one_in};

/// Local memory of a request or receive.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pub(super) blocks: Vec<BlockId>,
    pub(super) sges: Vec<Sge>,
}

/// Memory of one host.
struct HostMemory {
    region: RegionId,
    arena: Arena,
    /// Keys of buffers that are registered separately.
    keys: BTreeMap<BlockId, Key>,
}

/// Memory of all hosts, indexed by host number.
pub(super) struct Memory {
    hosts: Vec<HostMemory>,
    /// Random stream that selects the buffers with a separate key, at the percentage below.
    separate_keys: RandomStream,
    separate_key_percent: u64,
    /// Maximum number of pieces of a request or receive.
    pieces_max: u32,
}

impl Memory {
    /// Creates the memory without any host.
    pub(super) fn new(scenario: &Scenario, separate_keys: RandomStream) -> Self {
        let (separate_key_percent, pieces_max) = (scenario.separate_key_percent, scenario.mix.sges_max);
        Self { hosts: Vec::new(), separate_keys, separate_key_percent, pieces_max }
    }

    /// Registers and paints `len` bytes for the next host.
    pub(super) fn add(&mut self, backend: &mut impl Backend, len: usize, fill_seed: u64) {
        let host = self.hosts.len();
        let region = backend.register(host, len, Access::all());
        let addr_and_key = backend.region(host, region);
        let arena = Arena::new(backend.bytes(host, region), fill_seed, addr_and_key);
        self.hosts.push(HostMemory { region, arena, keys: BTreeMap::new() });
    }

    /// Returns the address and key of the region that spans all memory of `host`.
    pub(super) fn whole(&self, host: usize) -> (u64, u32) {
        let arena = &self.hosts[host].arena;
        (arena.addr, arena.key)
    }

    /// Returns the number of bytes of `host` in use.
    pub(super) fn used(&self, host: usize) -> usize {
        self.hosts[host].arena.used()
    }

    /// Allocates `len` bytes at `host`, filled with a pattern from an offset on if it is given, and in some cases
    /// registers them separately with `access`; `None` when there is no space.
    ///
    /// # Errors
    /// When something was written there before.
    fn allocate(
        &mut self,
        backend: &mut impl Backend,
        host: usize,
        len: usize,
        (access, paint): (Access, Option<(u64, u64)>),
        random: &mut RandomStream,
    ) -> Result<Option<BlockId>, String> {
        let HostMemory { region, arena, .. } = &mut self.hosts[host];
        let Some(block) = arena.allocate(len, 1, random) else { return Ok(None) };
        let bytes = backend.bytes(host, *region);
        arena.check_fresh(block, bytes).map_err(|what| format!("host {host}: {what}"))?;
        if let Some((seed, start)) = paint {
            pattern::fill(&mut bytes[arena.range(block)], seed, start);
        }
        self.register_separately(backend, host, block, access);
        Ok(Some(block))
    }

    /// Allocates memory at `host` for `len` bytes in several pieces, filled with `source` if it is given; `None` when
    /// there is no space.
    ///
    /// # Errors
    /// When something was written there before.
    pub(super) fn pieces(
        &mut self,
        backend: &mut impl Backend,
        host: usize,
        len: usize,
        source: Option<u64>,
        random: &mut RandomStream,
    ) -> Result<Option<Pieces>, String> {
        let count = random.between(u64::from(len > 0), u64::from(self.pieces_max)) as usize;
        let access = if source.is_some() { Access::empty() } else { Access::LOCAL_WRITE };
        let mut pieces = Pieces::default();
        let mut done = 0;
        for index in 0..count {
            let rest = len - done;
            let piece_len = if index + 1 == count { rest } else { random.below(rest as u64 + 1) as usize };
            if piece_len == 0 && one_in(random, 2) {
                // The key of an entry of zero bytes is not checked.
                pieces.sges.push(Sge { addr: 1, len: 0, lkey: 0xbad });
                continue;
            }
            let paint = source.map(|seed| (seed, done as u64));
            let Some(block) = self.allocate(backend, host, piece_len, (access, paint), random)? else {
                self.release_all(backend, host, &pieces.blocks)?;
                return Ok(None);
            };
            pieces.sges.push(self.sge(host, block, piece_len));
            pieces.blocks.push(block);
            done += piece_len;
        }
        Ok(Some(pieces))
    }

    /// Allocates memory for the response of an atomic: eight bytes that may not be scattered.
    ///
    /// # Errors
    /// As [`Memory::pieces`].
    pub(super) fn word_piece(
        &mut self,
        backend: &mut impl Backend,
        host: usize,
        random: &mut RandomStream,
    ) -> Result<Option<Pieces>, String> {
        let block = self.allocate(backend, host, 8, (Access::LOCAL_WRITE, None), random)?;
        Ok(block.map(|block| Pieces { blocks: vec![block], sges: vec![self.sge(host, block, 8)] }))
    }

    /// Allocates memory at `host` for `len` bytes that peers access, filled with `paint` if it is given.
    ///
    /// # Errors
    /// As [`Memory::pieces`].
    pub(super) fn target(
        &mut self,
        backend: &mut impl Backend,
        host: usize,
        len: usize,
        paint: Option<u64>,
        random: &mut RandomStream,
    ) -> Result<Option<BlockId>, String> {
        self.allocate(backend, host, len, (Access::all(), paint.map(|seed| (seed, 0))), random)
    }

    /// Allocates eight bytes of zeros for atomics.
    pub(super) fn word(&mut self, backend: &mut impl Backend, host: usize, random: &mut RandomStream) -> BlockId {
        let HostMemory { region, arena, .. } = &mut self.hosts[host];
        let block = arena.allocate(8, 8, random).expect("requests leave enough memory for a few words");
        backend.bytes(host, *region)[arena.range(block)].fill(0);
        block
    }

    /// Adds a user to a block.
    pub(super) fn retain(&mut self, host: usize, block: BlockId) {
        self.hosts[host].arena.retain(block);
    }

    /// Releases one use of a block; returns whether the block is free now.
    ///
    /// # Errors
    /// When something was written beside it.
    pub(super) fn release(&mut self, backend: &mut impl Backend, host: usize, block: BlockId) -> Result<bool, String> {
        let HostMemory { region, arena, keys } = &mut self.hosts[host];
        let released = arena.release(block, backend.bytes(host, *region));
        let is_free = released.map_err(|what| format!("host {host}: {what}"))?;
        if is_free && let Some(key) = keys.remove(&block) {
            backend.deregister_part(host, key);
        }
        Ok(is_free)
    }

    /// Releases blocks.
    ///
    /// # Errors
    /// As [`Memory::release`].
    pub(super) fn release_all(
        &mut self,
        backend: &mut impl Backend,
        host: usize,
        blocks: &[BlockId],
    ) -> Result<(), String> {
        blocks.iter().try_for_each(|block| self.release(backend, host, *block).map(|_| ()))
    }

    /// Registers a buffer of `host`, just allocated, separately in some cases.
    fn register_separately(&mut self, backend: &mut impl Backend, host: usize, block: BlockId, access: Access) {
        if self.separate_keys.below(100) < self.separate_key_percent {
            let HostMemory { region, arena, keys } = &mut self.hosts[host];
            let range = arena.range(block);
            keys.insert(block, backend.register_part(host, *region, range.start, range.len(), access));
        }
    }

    /// Returns the key of a buffer: its separate key, or that of all memory of its host.
    pub(super) fn key_of(&self, host: usize, block: BlockId) -> u32 {
        let memory = &self.hosts[host];
        memory.keys.get(&block).map_or(memory.arena.key, |key| key.0)
    }

    /// Returns whether a buffer has a separate key.
    pub(super) fn has_separate_key(&self, host: usize, block: BlockId) -> bool {
        self.hosts[host].keys.contains_key(&block)
    }

    fn sge(&self, host: usize, block: BlockId, len: usize) -> Sge {
        Sge { addr: self.hosts[host].arena.addr_of(block), len: len as u32, lkey: self.key_of(host, block) }
    }

    /// Returns the address and key by which peers access a block.
    pub(super) fn remote(&self, host: usize, block: BlockId) -> RemoteMemory {
        RemoteMemory { addr: self.hosts[host].arena.addr_of(block), rkey: self.key_of(host, block) }
    }

    /// Returns the eight bytes of a block as an integer.
    pub(super) fn word_at(&self, backend: &mut impl Backend, host: usize, block: BlockId) -> u64 {
        self.found(backend, host, &[block])
    }

    /// Returns the eight bytes that an atomic has returned.
    pub(super) fn found(&self, backend: &mut impl Backend, host: usize, blocks: &[BlockId]) -> u64 {
        let HostMemory { region, arena, .. } = &self.hosts[host];
        let bytes = backend.bytes(host, *region);
        let found: Vec<u8> = blocks.iter().flat_map(|block| bytes[arena.range(*block)].iter().copied()).collect();
        u64::from_ne_bytes(found.try_into().expect("the pieces of an atomic have eight bytes"))
    }

    /// Checks that a block of `len` bytes holds one of these patterns, byte by byte.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn check_versions(
        &self,
        backend: &mut impl Backend,
        host: usize,
        (block, len): (BlockId, usize),
        seeds: &[u64],
    ) -> Result<(), String> {
        let HostMemory { region, arena, .. } = &self.hosts[host];
        let patterns: Vec<_> = seeds.iter().map(|seed| (*seed, 0)).collect();
        match pattern::first_unexpected_byte(&backend.bytes(host, *region)[arena.range(block)], &patterns) {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} of {len} is wrong in its target")),
        }
    }

    /// Checks that pieces of local memory together start with `len` bytes of the pattern, and are unchanged after them.
    ///
    /// # Errors
    /// When either is not so.
    pub(super) fn check_pieces(
        &self,
        backend: &mut impl Backend,
        host: usize,
        blocks: &[BlockId],
        (len, seed): (usize, u64),
    ) -> Result<(), String> {
        let HostMemory { region, arena, .. } = &self.hosts[host];
        let bytes = backend.bytes(host, *region);
        let mut done = 0;
        for block in blocks {
            let range = arena.range(*block);
            let filled = range.len().min(len - done);
            let (first, rest) = bytes[range.clone()].split_at(filled);
            if let Some(at) = pattern::first_difference(first, seed, done as u64) {
                return Err(format!("byte {} of {len} is wrong", done + at));
            }
            if let Some(at) = pattern::first_difference(rest, arena.fill_seed, (range.start + filled) as u64) {
                return Err(format!("{} bytes behind {len} there is one that should not be", at + 1));
            }
            done += filled;
        }
        if done < len {
            return Err(format!("{len} bytes into {done}"));
        }
        Ok(())
    }

    /// Checks that nothing has been written to a receive.
    ///
    /// # Errors
    /// When something has.
    pub(super) fn check_untouched(
        &self,
        backend: &mut impl Backend,
        host: usize,
        blocks: &[BlockId],
    ) -> Result<(), String> {
        self.check_pieces(backend, host, blocks, (0, 0)).map_err(|what| format!("a receive not used: {what}"))
    }

    /// Checks that each byte matches one of the patterns, or still has its initial fill pattern.
    ///
    /// # Errors
    /// When one does not.
    pub(super) fn check_mixed(
        &self,
        backend: &mut impl Backend,
        host: usize,
        blocks: &[BlockId],
        allowed_patterns: &[(u64, u64)],
    ) -> Result<(), String> {
        let HostMemory { region, arena, .. } = &self.hosts[host];
        let bytes = backend.bytes(host, *region);
        let mut done = 0;
        for block in blocks {
            let range = arena.range(*block);
            let mut patterns = vec![(arena.fill_seed, range.start as u64)];
            patterns.extend(allowed_patterns.iter().map(|(seed, start)| (*seed, start + done)));
            if let Some(at) = pattern::first_unexpected_byte(&bytes[range.clone()], &patterns) {
                let at = done as usize + at;
                return Err(format!("byte {at} of a flushed request's memory at host {host} is nobody's"));
            }
            done += range.len() as u64;
        }
        Ok(())
    }

    /// Checks that no memory of `host` is in use, and that all of it still has its pattern.
    ///
    /// # Errors
    /// When some is in use or was changed.
    pub(super) fn check_empty(&self, backend: &mut impl Backend, host: usize) -> Result<(), String> {
        let HostMemory { region, arena, .. } = &self.hosts[host];
        arena.check_empty(backend.bytes(host, *region)).map_err(|what| format!("host {host}: {what}"))
    }
}
