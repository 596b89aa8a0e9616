//! The fingerprint of a run.

use core::fmt;

/// A running 64-bit hash of everything that happened, in order.
///
/// Two runs of the same plan and seed must end with the same value, on any machine (a test holds that). Not
/// cryptographic: it tells accidents apart, not adversaries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self::new()
    }
}

impl TraceHash {
    /// The hash of nothing.
    pub const fn new() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }

    /// Takes in one word.
    #[inline]
    pub const fn word(&mut self, word: u64) {
        // One multiply and one rotate: every input bit reaches the high half, the rotate brings it back down.
        self.0 = (self.0 ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }

    /// The value so far, mixed so that every bit depends on every input.
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
    fn order_and_content_matter() {
        let hash = |words: &[u64]| {
            let mut hash = TraceHash::new();
            words.iter().for_each(|word| hash.word(*word));
            hash.value()
        };
        assert_eq!(hash(&[1, 2, 3]), hash(&[1, 2, 3]));
        assert_ne!(hash(&[1, 2, 3]), hash(&[1, 3, 2]));
        assert_ne!(hash(&[0]), hash(&[0, 0]));
        assert_ne!(hash(&[1]), hash(&[1 << 63]));
    }
}
