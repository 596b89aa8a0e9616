//! Occupancy of the receive side, as one of 32 levels carried in acknowledgements (specification Rev 0.9, section
//! 10.2; Falcon mechanism F-18).
//!
//! Occupancy is smoothed (each new value counts half, as in the public simulator) and compared with 31 thresholds,
//! here at equal distances. The level is the higher of the levels of packets and of buffers.

use super::Amount;

/// The highest level; a level has 5 bits.
pub const LEVEL_MAX: u8 = 31;

/// Smoothed occupancy of the resources for requests from the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Packets and buffers as fixed-point numbers with [`FRACTION_BITS`] fractional bits.
    packets: u64,
    buffers: u64,
}

impl Level {
    /// Adds a new sample.
    #[inline]
    pub fn update(&mut self, held: Amount) {
        self.packets = (self.packets + (u64::from(held.packets) << FRACTION_BITS)) / 2;
        self.buffers = (self.buffers + (u64::from(held.buffers) << FRACTION_BITS)) / 2;
    }

    /// Returns the level relative to a total of `capacity`.
    #[inline]
    pub fn of(self, capacity: Amount) -> u8 {
        let level = |held: u64, total: u32| {
            let total = u64::from(total) << FRACTION_BITS;
            (held * LEVEL_COUNT).checked_div(total).unwrap_or(0).min(LEVEL_COUNT - 1) as u8
        };
        level(self.packets, capacity.packets).max(level(self.buffers, capacity.buffers))
    }
}

const LEVEL_COUNT: u64 = LEVEL_MAX as u64 + 1;
const FRACTION_BITS: u32 = 8;
