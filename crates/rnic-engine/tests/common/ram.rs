//! Places the payload of received packets into memory.

use std::collections::BTreeMap;

use rnic_engine::{Dma, MemoryFault, Segment};

/// Memory of one side, and the payload that is held until it can be placed.
pub struct Ram<'a> {
    pub memory: &'a mut [u8],
    pub payload: &'a [u8],
    /// Payload that arrived out of order.
    pub kept: &'a mut BTreeMap<u64, Vec<u8>>,
}

impl Ram<'_> {
    fn word(&mut self, local: u64) -> &mut [u8; 8] {
        (&mut self.memory[local as usize..local as usize + 8]).try_into().expect("eight bytes")
    }
}

impl Dma for Ram<'_> {
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let (from, to, len) = (offset as usize, target.local as usize, target.len as usize);
        self.memory[to..to + len].copy_from_slice(&self.payload[from..from + len]);
        Ok(())
    }

    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault> {
        *self.word(local) = value.to_ne_bytes();
        Ok(())
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let word = self.word(local);
        let original = u64::from_ne_bytes(*word);
        if original == compare {
            *word = swap.to_ne_bytes();
        }
        Ok(original)
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        let word = self.word(local);
        let original = u64::from_ne_bytes(*word);
        *word = original.wrapping_add(add).to_ne_bytes();
        Ok(original)
    }

    fn keep(&mut self, handle: u64) {
        let before = self.kept.insert(handle, self.payload.to_vec());
        assert!(before.is_none(), "{handle:#x} is kept twice");
    }

    fn place_kept(&mut self, handle: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let payload = self.kept.get(&handle).expect("the payload is kept");
        let (from, to, len) = (offset as usize, target.local as usize, target.len as usize);
        self.memory[to..to + len].copy_from_slice(&payload[from..from + len]);
        Ok(())
    }

    fn release(&mut self, handle: u64) {
        assert!(self.kept.remove(&handle).is_some(), "{handle:#x} is not kept");
    }
}
