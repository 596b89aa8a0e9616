//! Hash function for numbers that are looked up for every packet: queue pair numbers, and the handles of stored
//! payload.
//!
//! The standard library's hash function prevents other parties from choosing numbers that collide, and takes 20 ns.
//! No other party chooses these numbers: queue pair numbers are generated locally, and the handles of payload are
//! consecutive numbers within a window.

use std::hash::{BuildHasherDefault, Hasher};

/// Hasher for tables whose keys consist of one locally chosen number.
pub(crate) type ByNumber = BuildHasherDefault<Mixer>;

/// Knuth's multiplicative hash; the table uses its upper and its lower bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(GOLDEN_RATIO);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// The golden ratio as a fraction of 2^64, rounded to an odd number.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn consecutive_numbers_get_different_hashes() {
        let hash = |number: u64| {
            let mut mixer = Mixer::default();
            mixer.write_u64(number);
            mixer.finish()
        };
        for first in [0, 7 << 32, u64::from(u32::MAX) - 100] {
            let low: BTreeSet<u64> = (first..first + 1_024).map(|number| hash(number) % 4_096).collect();
            let high: BTreeSet<u64> = (first..first + 1_024).map(|number| hash(number) >> 57).collect();
            assert!(low.len() > 800, "{} places of 1024 numbers", low.len());
            assert_eq!(high.len(), 128);
        }
    }
}
