//! Place of a packet in the blocks of a bitmap.

use super::{BLOCK_BITS, Lane, plus};

/// Place of a packet that is higher than all recorded ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of blocks to take.
    pub needed: u8,
    /// The bit of the packet in its block.
    pub bit: u16,
    /// Bits of the run in the first block, if there was no block before.
    pub first: u16,
    /// Packet of the first bit of the first block, if there was no block before.
    pub first_base: u32,
    /// The part of the run that stays a number.
    pub run: u16,
}

/// Returns the place of `psn` in a bitmap whose gap is at `hole` (FaSR mechanism R-13): blocks start behind the run of
/// consecutive packets, unless the run is shorter than a block. The distance is computed with ten bits.
pub fn place(lane: &Lane, hole: u32, psn: u32) -> Place {
    let is_short = u32::from(lane.run) < BLOCK_BITS;
    let run = if is_short { 0 } else { lane.run };
    let first_base = plus(hole, 1 + u32::from(run));
    let start = if lane.slow { lane.last } else { first_base };
    let offset = psn.wrapping_sub(start) % 1_024;
    let new_list = !lane.slow;
    Place {
        needed: (offset / BLOCK_BITS) as u8 + u8::from(new_list),
        bit: 1 << (offset % BLOCK_BITS),
        first: if is_short && new_list { (1 << lane.run) - 1 } else { 0 },
        first_base,
        run: if new_list { run } else { lane.run },
    }
}
