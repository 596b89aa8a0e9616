//! Test data that are unique: every operation has its own, and no two words of one operation are equal.

/// Identifies the data of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pattern(u64);

impl Pattern {
    /// Returns the pattern of operation `index` on queue pair `qp`.
    pub(crate) fn of(qp: u32, index: u64) -> Self {
        // SplitMix64's finaliser: the patterns of neighbouring operations are unrelated.
        let mut mixed = (u64::from(qp) << 48 ^ index).wrapping_add(GOLDEN_RATIO);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(mixed ^ mixed >> 31)
    }

    fn word(self, index: usize) -> [u8; 8] {
        self.0.wrapping_add(GOLDEN_RATIO.wrapping_mul(index as u64)).to_le_bytes()
    }

    /// Writes the pattern to `bytes`.
    pub(crate) fn fill(self, bytes: &mut [u8]) {
        // Complete words first: chunks of a constant size are compiled to vector instructions, which is several times
        // as fast.
        let mut words = bytes.chunks_exact_mut(8);
        let whole = words.len();
        for (index, chunk) in words.by_ref().enumerate() {
            chunk.copy_from_slice(&self.word(index));
        }
        let rest = words.into_remainder();
        rest.copy_from_slice(&self.word(whole)[..rest.len()]);
    }

    /// Returns whether every one of `bytes` matches the pattern.
    pub(crate) fn matches(self, bytes: &[u8]) -> bool {
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        let wrong = |index: usize, word: &[u8]| {
            let [mut found, expected] = [[0; 8], self.word(index)];
            found.copy_from_slice(word);
            u64::from_le_bytes(found) ^ u64::from_le_bytes(expected)
        };
        let end = &self.word(words.len())[..rest.len()];
        rest == end && words.enumerate().fold(0, |all, (index, word)| all | wrong(index, word)) == 0
    }
}

const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_byte_is_detected() {
        for len in [0, 1, 8, 13, 4_096] {
            let mut bytes = vec![0; len];
            Pattern::of(3, 77).fill(&mut bytes);
            assert!(Pattern::of(3, 77).matches(&bytes));
            for at in 0..len {
                bytes[at] ^= 0x10;
                assert!(!Pattern::of(3, 77).matches(&bytes), "byte {at} of {len}");
                bytes[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn different_operations_have_different_data() {
        let mut bytes = vec![0; 64];
        Pattern::of(1, 5).fill(&mut bytes);
        for (qp, index) in [(1, 4), (1, 6), (0, 5), (2, 5), (1, 5 + (1 << 32))] {
            assert!(!Pattern::of(qp, index).matches(&bytes));
        }
        // Shifted by eight bytes, as after a lost packet, the pattern does not match either.
        assert!(!Pattern::of(1, 5).matches(&bytes[8..]));
    }
}
