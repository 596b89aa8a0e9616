//! Memory of a host as the test driver uses it: blocks between guards in one registered region, all other bytes
//! filled with a pattern.
//!
//! Every byte outside of allocated blocks has a pattern of its own, from a fill seed. A block is checked against this
//! pattern when it is allocated, and its guards are checked when it is released; so a misplaced or delayed write is
//! detected wherever it occurs.

use std::collections::BTreeMap;
use std::ops::Range;

use rnic_base::RandomStream;

use crate::pattern;

/// Identifier of a block of an arena.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BlockId(u32);

#[derive(Clone, Copy, Debug)]
struct AllocatedBlock {
    /// Offset of the guard before the block, and the number of bytes including both guards.
    outer: (usize, usize),
    start: usize,
    len: usize,
    users: u32,
}

/// The memory of one host.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Seed of the pattern of unallocated bytes.
    pub(crate) fill_seed: u64,
    /// Address and key of the first byte of the arena.
    pub(crate) addr: u64,
    pub(crate) key: u32,
    free: BTreeMap<usize, usize>,
    blocks: Vec<Option<AllocatedBlock>>,
    free_ids: Vec<u32>,
    used: usize,
}

impl Arena {
    /// Creates the arena in `bytes` and paints them.
    pub(crate) fn new(bytes: &mut [u8], fill_seed: u64, (addr, key): (u64, u32)) -> Self {
        pattern::fill(bytes, fill_seed, 0);
        let free = BTreeMap::from([(0, bytes.len())]);
        Self { fill_seed, addr, key, free, blocks: Vec::new(), free_ids: Vec::new(), used: 0 }
    }

    /// Allocates a block of `len` bytes, if there is space; its address is a multiple of `align`.
    pub(crate) fn allocate(&mut self, len: usize, align: usize, random: &mut RandomStream) -> Option<BlockId> {
        let (before, after) = (1 + random.below(GUARD_MAX) as usize, 1 + random.below(GUARD_MAX) as usize);
        let need = before + align - 1 + len + after;
        let (at, free) = self.free.iter().find(|(_, free)| **free >= need).map(|(at, free)| (*at, *free))?;
        self.free.remove(&at);
        if free > need {
            self.free.insert(at + need, free - need);
        }
        let start = (self.addr as usize + at + before).next_multiple_of(align) - self.addr as usize;
        self.used += need;
        let held = AllocatedBlock { outer: (at, need), start, len, users: 1 };
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            self.blocks.len() as u32 - 1
        });
        self.blocks[id as usize] = Some(held);
        Some(BlockId(id))
    }

    /// Returns the number of bytes in blocks and their guards.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    fn held(&self, id: BlockId) -> &AllocatedBlock {
        self.blocks[id.0 as usize].as_ref().expect("a block is used between allocation and release")
    }

    /// Returns the range of the block's bytes.
    pub(crate) fn range(&self, id: BlockId) -> Range<usize> {
        let held = self.held(id);
        held.start..held.start + held.len
    }

    /// Returns the block's address, as work requests specify it.
    pub(crate) fn addr_of(&self, id: BlockId) -> u64 {
        self.addr + self.held(id).start as u64
    }

    /// Adds a user to the block.
    pub(crate) fn retain(&mut self, id: BlockId) {
        self.blocks[id.0 as usize].as_mut().expect("a block is used between allocation and release").users += 1;
    }

    /// Checks that the block and its guards were not written since the last release.
    pub(crate) fn check_fresh(&self, id: BlockId, bytes: &[u8]) -> Result<(), String> {
        let (at, len) = self.held(id).outer;
        match pattern::first_difference(&bytes[at..at + len], self.fill_seed, at as u64) {
            None => Ok(()),
            Some(byte) => Err(format!("a byte of free memory was written, at {:#x}", self.addr + (at + byte) as u64)),
        }
    }

    /// Releases one use of the block; after the last one, checks its guards, paints it, and returns true: the block is
    /// free.
    pub(crate) fn release(&mut self, id: BlockId, bytes: &mut [u8]) -> Result<bool, String> {
        let held = self.blocks[id.0 as usize].as_mut().expect("a block is used between allocation and release");
        held.users -= 1;
        if held.users > 0 {
            return Ok(false);
        }
        let AllocatedBlock { outer: (at, len), start, len: inner, .. } = *held;
        self.blocks[id.0 as usize] = None;
        self.free_ids.push(id.0);
        self.used -= len;
        self.add_free_range(at, len);
        let end = start + inner;
        for guard in [at..start, end..at + len] {
            let first = guard.start;
            if let Some(byte) = pattern::first_difference(&bytes[guard], self.fill_seed, first as u64) {
                let addr = self.addr + (first + byte) as u64;
                return Err(format!("a byte beside a buffer of {inner} bytes was written, at {addr:#x}"));
            }
        }
        pattern::fill(&mut bytes[start..end], self.fill_seed, start as u64);
        Ok(true)
    }

    fn add_free_range(&mut self, mut at: usize, mut len: usize) {
        if let Some(next) = self.free.remove(&(at + len)) {
            len += next;
        }
        if let Some((previous, free)) = self.free.range(..at).next_back().map(|(at, free)| (*at, *free))
            && previous + free == at
        {
            self.free.remove(&previous);
            (at, len) = (previous, free + len);
        }
        self.free.insert(at, len);
    }

    /// Checks at the end of a run that every block was released, and that every byte still has its pattern.
    pub(crate) fn check_empty(&self, bytes: &[u8]) -> Result<(), String> {
        if self.used > 0 {
            return Err(format!("{} bytes of buffers are still held by {} blocks", self.used, self.held_count()));
        }
        match pattern::first_difference(bytes, self.fill_seed, 0) {
            None => Ok(()),
            Some(at) => Err(format!("a byte of free memory was written, at {:#x}", self.addr + at as u64)),
        }
    }

    fn held_count(&self) -> usize {
        self.blocks.iter().flatten().count()
    }
}

/// Maximum size of a guard, in bytes.
const GUARD_MAX: u64 = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::RandomStreams;

    fn random() -> RandomStream {
        RandomStreams::new(5).stream("arena")
    }

    #[test]
    fn blocks_do_not_overlap_and_are_released() {
        let mut bytes = vec![0; 1 << 14];
        let (mut arena, mut random) = (Arena::new(&mut bytes, 3, (0x1001, 9)), random());
        let mut held: Vec<_> = (0..100).filter_map(|len| arena.allocate(len, 8, &mut random)).collect();
        let mut ranges: Vec<_> = held.iter().map(|id| arena.range(*id)).collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "two blocks are adjacent");
        assert!(held.iter().all(|id| arena.addr_of(*id).is_multiple_of(8)));
        random.shuffle(&mut held);
        for id in held {
            arena.check_fresh(id, &bytes).expect("its memory is unchanged");
            let range = arena.range(id);
            bytes[range].fill(0xab);
            arena.release(id, &mut bytes).expect("only the block was written");
        }
        arena.check_empty(&bytes).expect("all memory is free and unchanged");
        assert_eq!(arena.free, BTreeMap::from([(0, 1 << 14)]));
    }

    #[test]
    fn a_stray_write_is_found_beside_a_block_and_in_free_memory() {
        let mut bytes = vec![0; 4_096];
        let (mut arena, mut random) = (Arena::new(&mut bytes, 3, (0, 9)), random());
        let id = arena.allocate(100, 1, &mut random).expect("there is enough memory");
        let end = arena.range(id).end;
        bytes[end] ^= 1;
        assert!(arena.check_fresh(id, &bytes).is_err());
        assert!(arena.release(id, &mut bytes).is_err());
        assert!(arena.check_empty(&bytes).is_err());
        bytes[end] ^= 1;
        let id = arena.allocate(100, 1, &mut random).expect("there is enough memory");
        arena.retain(id);
        arena.release(id, &mut bytes).expect("the block has another user");
        assert!(arena.check_empty(&bytes).is_err(), "a block is still in use");
        arena.release(id, &mut bytes).expect("its memory is unchanged");
    }
}
