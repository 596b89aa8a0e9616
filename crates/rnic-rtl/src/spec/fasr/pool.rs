//! The two levels of the pool: units, and blocks in linked lists.

use super::{BLOCK_BITS, Unit};

/// Level 1: units of recovery state.
#[derive(Clone, Debug)]
pub struct Pool1 {
    units: Vec<Option<Unit>>,
}

impl Pool1 {
    /// Creates a pool of `count` free units.
    pub fn new(count: usize) -> Self {
        Self { units: vec![None; count] }
    }

    /// Returns the first free unit.
    pub fn offer(&self) -> Option<u8> {
        self.units.iter().position(Option::is_none).map(|at| at as u8)
    }

    /// Returns the state of unit `at`.
    ///
    /// # Panics
    /// When it is free.
    pub fn get(&self, at: u8) -> Unit {
        self.units[usize::from(at)].expect("the unit is in use")
    }

    /// Sets the state of unit `at`, which is then in use.
    pub fn set(&mut self, at: u8, unit: Unit) {
        self.units[usize::from(at)] = Some(unit);
    }

    /// Frees unit `at`.
    pub fn release(&mut self, at: u8) {
        self.units[usize::from(at)] = None;
    }

    /// Returns a bit for each unit in use.
    pub fn taken(&self) -> u64 {
        self.units.iter().enumerate().map(|(at, unit)| u64::from(unit.is_some()) << at).sum()
    }
}

/// A block: its bits, and the next one of its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// The bits.
    pub word: u16,
    /// Index of the next block.
    pub next: Option<u8>,
}

/// Level 2: blocks of bitmaps.
#[derive(Clone, Debug)]
pub struct Pool2 {
    blocks: Vec<Option<Block>>,
}

impl Pool2 {
    /// Creates a pool of `count` free blocks.
    pub fn new(count: usize) -> Self {
        Self { blocks: vec![None; count] }
    }

    /// Returns the first free block.
    pub fn offer(&self) -> Option<u8> {
        self.blocks.iter().position(Option::is_none).map(|at| at as u8)
    }

    /// Returns the number of free blocks.
    pub fn free(&self) -> u8 {
        self.blocks.iter().filter(|block| block.is_none()).count() as u8
    }

    /// Returns block `at`.
    ///
    /// # Panics
    /// When it is free.
    pub fn get(&self, at: u8) -> Block {
        self.blocks[usize::from(at)].expect("the block is in use")
    }

    /// Sets `bits` in block `at`.
    ///
    /// # Panics
    /// When it is free.
    pub fn mark(&mut self, at: u8, bits: u16) {
        self.blocks[usize::from(at)].as_mut().expect("the block is in use").word |= bits;
    }

    /// Takes the first free block with these bits, behind `tail` if there is one; returns its index.
    ///
    /// # Panics
    /// When none is free.
    pub fn take(&mut self, word: u16, tail: Option<u8>) -> u8 {
        let new = self.offer().expect("the number of free blocks was checked");
        self.blocks[usize::from(new)] = Some(Block { word, next: None });
        if let Some(block) = tail.and_then(|tail| self.blocks[usize::from(tail)].as_mut()) {
            block.next = Some(new);
        }
        new
    }

    /// Frees block `at`, the head of its list; returns the next one.
    pub fn release(&mut self, at: u8) -> Option<u8> {
        self.blocks[usize::from(at)].take().and_then(|block| block.next)
    }

    /// Returns a bit for each block in use.
    pub fn taken(&self) -> u128 {
        self.blocks.iter().enumerate().map(|(at, block)| u128::from(block.is_some()) << at).sum()
    }

    /// Returns the position of the first zero of block `at` from `from` on.
    pub fn first_zero(&self, at: u8, from: u32) -> Option<u32> {
        let word = self.get(at).word;
        (from..BLOCK_BITS).find(|bit| word & 1 << bit == 0)
    }
}
