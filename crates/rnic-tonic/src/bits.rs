//! Ring maps: one bit for each segment of a window, at position id mod K.
//!
//! K divides 2^24, so a map needs no index of its own: the position of the window's first segment is its id mod K.
//! Searches follow Tonic's appendix C: bits before the head are masked first, after which both halves are searched from
//! zero.

use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

/// Maximum width of a map in bits.
pub const MAP_BITS_MAX: u32 = 256;

const WORDS: usize = (MAP_BITS_MAX / u64::BITS) as usize;

/// A ring of at most 256 bits; its width is an argument, a power of two of at least 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingMap([u64; WORDS]);

impl RingMap {
    /// All bits zero.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Builds a map from its words; position 0 is the lowest bit.
    pub const fn new(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// Returns the words; position 0 is the lowest bit.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Returns the bit at `position`; false outside of the map.
    #[inline]
    pub fn test(&self, position: u32) -> bool {
        self.0.get((position / 64) as usize).is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// Sets the bit at `position`; positions outside of the map are ignored.
    #[inline]
    pub fn set(&mut self, position: u32) {
        if let Some(word) = self.0.get_mut((position / 64) as usize) {
            *word |= 1 << (position % 64);
        }
    }

    /// Returns the map whose positions below `count` are set: the thermometer code of `count`.
    #[inline]
    pub fn below(count: u32) -> Self {
        let word = |index: u32| match count.saturating_sub(index * 64) {
            0 => 0,
            left if left >= 64 => u64::MAX,
            left => (1 << left) - 1,
        };
        Self([word(0), word(1), word(2), word(3)])
    }

    /// Returns the map with `count` set positions, beginning with `from`, in a ring of `width` bits.
    #[inline]
    pub fn range(from: u32, count: u32, width: u32) -> Self {
        let count = count.min(width);
        let end = from + count;
        if end <= width {
            Self::below(end) & !Self::below(from)
        } else {
            (Self::below(width) & !Self::below(from)) | Self::below(end - width)
        }
    }

    /// Returns the position of the first set bit at or after `head` in ring order; `None` when no bit is set.
    #[inline]
    pub fn first(&self, head: u32) -> Option<u32> {
        let after_head = *self & !Self::below(head);
        // Both searches start at a fixed position; a circuit runs them side by side.
        after_head.lowest().or(self.lowest())
    }

    #[inline]
    fn lowest(&self) -> Option<u32> {
        let index = self.0.iter().position(|word| *word != 0)?;
        Some(index as u32 * 64 + self.0[index].trailing_zeros())
    }

    /// Returns the number of set bits.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether no bit is set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Returns the words of a ring of `width` bits, rotated so that `head` is at position 0: the form that programs
    /// read.
    #[inline]
    pub fn from_head(&self, head: u32, width: u32) -> [u64; WORDS] {
        let count = (width / 64) as usize;
        let last = count - 1;
        let (skip, shift) = ((head / 64) as usize, head % 64);
        let mut turned = [0; WORDS];
        for (index, word) in turned.iter_mut().enumerate().take(count) {
            let low = self.0[(index + skip) & last] >> shift;
            // Two shifts, because a shift by 64 is not defined.
            let high = self.0[(index + skip + 1) & last] << 1 << (63 - shift);
            *word = if shift == 0 { low } else { low | high };
        }
        turned
    }
}

impl BitAnd for RingMap {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(core::array::from_fn(|index| self.0[index] & other.0[index]))
    }
}

impl BitOr for RingMap {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(core::array::from_fn(|index| self.0[index] | other.0[index]))
    }
}

impl Not for RingMap {
    type Output = Self;

    /// Inverts all 256 bits; callers then mask the result with a range.
    #[inline]
    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

impl BitAndAssign for RingMap {
    #[inline]
    fn bitand_assign(&mut self, other: Self) {
        *self = *self & other;
    }
}

impl BitOrAssign for RingMap {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::{RandomStreams, RingBitmap};

    use super::*;

    fn naive(map: &RingMap, head: u32, width: u32) -> Option<u32> {
        (0..width).map(|step| (head + step) % width).find(|&position| map.test(position))
    }

    fn with(bits: &[u32]) -> RingMap {
        let mut map = RingMap::EMPTY;
        bits.iter().for_each(|&bit| map.set(bit));
        map
    }

    #[test]
    fn t21_find_first_in_the_papers_example_is_30() {
        assert_eq!(with(&[5, 30]).first(6), Some(30));
        assert_eq!(with(&[5, 30]).first(31), Some(5));
        assert_eq!(with(&[5, 30]).first(5), Some(5));
        assert_eq!(RingMap::EMPTY.first(6), None);
    }

    #[test]
    fn t21_find_first_equals_naive_for_all_heads_and_pairs_of_32_bits() {
        let mut cases = 0;
        for one in 0..32 {
            for two in one..32 {
                for head in 0..32 {
                    let map = with(&[one, two]);
                    assert_eq!(map.first(head), naive(&map, head, 32), "{one}, {two}, head {head}");
                    cases += 1;
                }
            }
        }
        assert_eq!(cases, 32 * (32 * 33 / 2));
    }

    /// Compares a ring of `64 * N` bits with the transport engine's bitmap, which stores its head, and with a naive
    /// search.
    fn compare_with_engine<const N: usize>() {
        let width = 64 * N as u32;
        let mut random = RandomStreams::new(21).stream("find-first");
        for round in 0..20_000 {
            let head = random.below(u64::from(width)) as u32;
            let density = 1 + random.below(6);
            let words = core::array::from_fn(|index| {
                let dense = (0..density).fold(u64::MAX, |word, _| word & random.bits());
                if index < N && !random.below(8).is_multiple_of(7) { dense } else { 0 }
            });
            let map = RingMap::new(words);
            let mut engine = RingBitmap::<N>::new();
            engine.advance(head);
            (0..width).filter(|&bit| map.test(bit)).for_each(|bit| {
                engine.set((bit + width - head) % width);
            });
            let expected = naive(&map, head, width);
            assert_eq!(map.first(head), expected, "round {round}: {words:x?}, head {head}");
            assert_eq!(engine.first_one(0).map(|offset| (head + offset) % width), expected);
            let turned = RingMap::new(map.from_head(head, width));
            assert!((0..width).all(|offset| turned.test(offset) == engine.test(offset)), "{words:x?}, head {head}");
            assert_eq!(map.count(), engine.popcount());
            let count = random.below(u64::from(width) + 1) as u32;
            let range = RingMap::range(head, count, width);
            assert_eq!((map & range).count(), engine.popcount_first(count), "{count} from {head} of {words:x?}");
            assert_eq!(range.count(), count);
        }
    }

    #[test]
    fn t21_find_first_equals_the_engines_bitmap_at_64_to_256_bits() {
        compare_with_engine::<1>();
        compare_with_engine::<2>();
        compare_with_engine::<4>();
    }
}
