//! A host's memory, when payload bytes are checked: registered regions in one arena, filled with patterns and compared
//! with them.
//!
//! Every allocation is surrounded by guard bytes, so that a write of the engine outside the allocation is detected
//! when the allocation is freed. Addresses in work requests differ from offsets in the arena, so that using one in
//! place of the other is detected immediately.

use std::collections::BTreeMap;

use rnic_engine::{Dma, MemoryFault, Segment};

/// An allocated block of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Offset in the arena: [`Segment::local`] is relative to it.
    pub local: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Memory of one host.
#[derive(Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
    /// Free ranges: length by offset; no two are adjacent.
    free: BTreeMap<u64, u64>,
    used: u64,
    /// Payload that arrived out of order, by the engine's identifiers: buffers of the NIC, not registered memory.
    kept: BTreeMap<u64, Vec<u8>>,
}

impl Memory {
    /// Creates an empty memory, which grows as blocks are allocated.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates a block of `len` bytes with guards around it. Its content is not initialized.
    pub fn allocate(&mut self, len: u64) -> Block {
        let total_len = len + 2 * GUARD_LEN as u64;
        let fitting = self.free.iter().find(|(_, free)| **free >= total_len).map(|(at, free)| (*at, *free));
        let at = match fitting {
            Some((at, free)) => {
                self.free.remove(&at);
                if free > total_len {
                    self.free.insert(at + total_len, free - total_len);
                }
                at
            }
            None => {
                let at = self.bytes.len() as u64;
                self.bytes.resize((at + total_len) as usize, 0);
                at
            }
        };
        self.used += total_len;
        let block = Block { local: at + GUARD_LEN as u64, len };
        let (before, after) = self.guards(block);
        self.bytes[before].fill(GUARD_BYTE);
        self.bytes[after].fill(GUARD_BYTE);
        block
    }

    /// Frees `block`; returns false when the guards around it were overwritten.
    #[must_use]
    pub fn release(&mut self, block: Block) -> bool {
        let (before, after) = self.guards(block);
        let intact = self.bytes[before].iter().chain(&self.bytes[after]).all(|byte| *byte == GUARD_BYTE);
        let (mut at, mut len) = (block.local - GUARD_LEN as u64, block.len + 2 * GUARD_LEN as u64);
        self.used -= len;
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
        intact
    }

    fn guards(&self, block: Block) -> (core::ops::Range<usize>, core::ops::Range<usize>) {
        let (start, end) = (block.local as usize, (block.local + block.len) as usize);
        (start - GUARD_LEN..start, end..end + GUARD_LEN)
    }

    /// Returns the number of bytes in allocated blocks and their guards.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the `len` bytes at offset `local`.
    pub fn bytes(&self, local: u64, len: u64) -> &[u8] {
        &self.bytes[local as usize..(local + len) as usize]
    }

    /// Returns mutable access to the `len` bytes at offset `local`.
    pub fn bytes_mut(&mut self, local: u64, len: u64) -> &mut [u8] {
        &mut self.bytes[local as usize..(local + len) as usize]
    }

    /// Fills `len` bytes at offset `local` with the pattern of `seed`.
    pub fn fill(&mut self, local: u64, len: u64, seed: u64) {
        for (chunk, index) in self.bytes_mut(local, len).chunks_mut(8).zip(0u64..) {
            chunk.copy_from_slice(&pattern_word(seed, index).to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns the index of the first of `len` bytes at offset `local` that differs from the pattern of `seed`.
    pub fn first_difference(&self, local: u64, len: u64, seed: u64) -> Option<u64> {
        let chunks = self.bytes(local, len).chunks(8).zip(0u64..);
        for (chunk, index) in chunks {
            let expected = pattern_word(seed, index).to_le_bytes();
            if chunk != &expected[..chunk.len()] {
                let within = chunk.iter().zip(expected).position(|(found, wanted)| *found != wanted)?;
                return Some(index * 8 + within as u64);
            }
        }
        None
    }

    /// Appends the content of `segments` to `into`: the payload of a packet to be sent.
    pub fn gather(&self, segments: &[Segment], into: &mut Vec<u8>) {
        for segment in segments {
            into.extend_from_slice(self.bytes(segment.local, u64::from(segment.len)));
        }
    }

    /// Returns the DMA target that writes `payload` to this memory.
    pub fn writer_of<'m>(&'m mut self, payload: &'m [u8]) -> Placement<'m> {
        Placement { memory: self, payload }
    }

    /// Returns the number of stored out-of-order payloads.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    fn word(&mut self, local: u64) -> &mut [u8; 8] {
        self.bytes_mut(local, 8).first_chunk_mut().expect("the range has eight bytes")
    }
}

/// Returns eight bytes of a pattern: different for every seed and index.
fn pattern_word(seed: u64, index: u64) -> u64 {
    let mixed = (seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// A received payload that is being written to a [`Memory`].
#[derive(Debug)]
pub struct Placement<'m> {
    memory: &'m mut Memory,
    payload: &'m [u8],
}

impl Dma for Placement<'_> {
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let from = &self.payload[offset as usize..(offset + target.len) as usize];
        self.memory.bytes_mut(target.local, u64::from(target.len)).copy_from_slice(from);
        Ok(())
    }

    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault> {
        *self.memory.word(local) = value.to_ne_bytes();
        Ok(())
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let word = self.memory.word(local);
        let original = u64::from_ne_bytes(*word);
        if original == compare {
            *word = swap.to_ne_bytes();
        }
        Ok(original)
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        let word = self.memory.word(local);
        let original = u64::from_ne_bytes(*word);
        *word = original.wrapping_add(add).to_ne_bytes();
        Ok(original)
    }

    fn keep(&mut self, handle: u64) {
        let before = self.memory.kept.insert(handle, self.payload.to_vec());
        assert!(before.is_none(), "the engine keeps two payloads as {handle:#x}");
    }

    fn place_kept(&mut self, handle: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let Memory { bytes, kept, .. } = &mut *self.memory;
        let payload = kept.get(&handle).expect("the engine places what it has kept");
        let from = &payload[offset as usize..(offset + target.len) as usize];
        bytes[target.local as usize..][..target.len as usize].copy_from_slice(from);
        Ok(())
    }

    fn release(&mut self, handle: u64) {
        assert!(self.memory.kept.remove(&handle).is_some(), "the engine releases {handle:#x}, which is not kept");
    }
}

/// Guard bytes before and after every block, which must not be written: one cache line.
const GUARD_LEN: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_are_freed() {
        let mut memory = Memory::new();
        let blocks: Vec<Block> = [10, 0, 1_000, 64].iter().map(|len| memory.allocate(*len)).collect();
        for pair in blocks.windows(2) {
            assert!(pair[0].local + pair[0].len + 128 <= pair[1].local);
        }
        let size = memory.bytes.len();
        for index in [1, 3, 0, 2] {
            assert!(memory.release(blocks[index]));
        }
        assert_eq!((memory.used(), memory.free.len()), (0, 1), "not all memory is free in one range");
        memory.allocate(size as u64 - 128);
        assert_eq!(memory.bytes.len(), size);
    }

    #[test]
    fn a_write_outside_a_block_is_detected() {
        let mut memory = Memory::new();
        let block = memory.allocate(8);
        memory
            .writer_of(&[1])
            .place(0, Segment { local: block.local + 8, len: 1 })
            .expect("the target lies in the memory");
        assert!(!memory.release(block));
    }

    #[test]
    fn patterns_differ_and_differences_are_found() {
        let mut memory = Memory::new();
        let block = memory.allocate(1_003);
        memory.fill(block.local, block.len, 7);
        assert_eq!(memory.first_difference(block.local, block.len, 7), None);
        assert_eq!(memory.first_difference(block.local, block.len, 8), Some(0));
        memory.bytes_mut(block.local + 777, 1)[0] ^= 1;
        assert_eq!(memory.first_difference(block.local, block.len, 7), Some(777));
    }
}
