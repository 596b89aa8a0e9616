//! Hash of the events of a run.

use core::fmt;

/// A running 64-bit hash of all events, in order.
///
/// Two runs of the same plan and seed must end with the same hash on any machine (a test verifies that). The hash is
/// not cryptographic: it detects accidental differences, not deliberate ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self::new()
    }
}

impl TraceHash {
    /// Creates the hash of an empty sequence of events.
    pub const fn new() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }

    /// Adds one word to the hash.
    #[inline]
    pub const fn add_word(&mut self, word: u64) {
        // One multiplication and one rotation: every input bit affects the high half, and the rotation moves the high
        // half back down.
        self.0 = (self.0 ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }

    /// Returns the hash so far, mixed so that every bit depends on every input bit.
    pub const fn value(&self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^ (hash >> 32)
    }
}

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.value())
    }
}

impl fmt::Debug for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_order_and_content() {
        let hash = |words: &[u64]| {
            let mut hash = TraceHash::new();
            words.iter().for_each(|word| hash.add_word(*word));
            hash.value()
        };
        assert_eq!(hash(&[1, 2, 3]), hash(&[1, 2, 3]));
        assert_ne!(hash(&[1, 2, 3]), hash(&[1, 3, 2]));
        assert_ne!(hash(&[0]), hash(&[0, 0]));
        assert_ne!(hash(&[1]), hash(&[1 << 63]));
    }
}
