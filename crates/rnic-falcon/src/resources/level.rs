//! How full the receive side is, as one of 32 levels that travel in acknowledgements (specification Rev 0.9, section
//! 10.2; F-18).
//!
//! Occupancy is smoothed (each new value counts half, as in the public simulator) and compared with 31 thresholds, here
//! at equal distances. Of packets and buffers, the fuller speaks.

use super::Amount;

/// The highest level: 5 bits.
pub const LEVEL_MAX: u8 = 31;

/// The smoothed occupancy of the room for requests from the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Packets and buffers, each with [`FRACTION_BITS`] behind the point.
    packets: u64,
    buffers: u64,
}

impl Level {
    /// Takes a new value.
    #[inline]
    pub fn update(&mut self, held: Amount) {
        self.packets = (self.packets + (u64::from(held.packets) << FRACTION_BITS)) / 2;
        self.buffers = (self.buffers + (u64::from(held.buffers) << FRACTION_BITS)) / 2;
    }

    /// The level, when there is room for `capacity` in all.
    #[inline]
    pub fn of(self, capacity: Amount) -> u8 {
        let level = |held: u64, room: u32| {
            let room = u64::from(room) << FRACTION_BITS;
            (held * LEVELS).checked_div(room).unwrap_or(0).min(LEVELS - 1) as u8
        };
        level(self.packets, capacity.packets).max(level(self.buffers, capacity.buffers))
    }
}

const LEVELS: u64 = LEVEL_MAX as u64 + 1;
const FRACTION_BITS: u32 = 8;
