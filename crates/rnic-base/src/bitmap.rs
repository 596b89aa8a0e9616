//! Ring bitmaps: the state of a delivery window.
//!
//! A window of at most N packets has one bit per packet. Bits are addressed by their *offset* from the head, the head
//! being the first packet that the window still waits for; [`RingBitmap::advance`] discards the bits before the new
//! head. No memory is moved when the head moves: this is the ring buffer of IRN (section 6.2.1) and Tonic (appendix
//! C), whose hardware implementations need the same five operations: set, test, find first zero / one, popcount,
//! advance.
//!
//! IRN needs 128 bits, Falcon 128 and 64, Tonic up to 256, FaSR 500: the width is a parameter.

use core::fmt;

const WORD_BITS: u32 = u64::BITS;

/// A ring of `WORDS * 64` bits; `WORDS` must be a power of two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RingBitmap<const WORDS: usize> {
    words: [u64; WORDS],
    /// Physical bit index of offset 0.
    head: u32,
}

impl<const WORDS: usize> Default for RingBitmap<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize> RingBitmap<WORDS> {
    /// Number of bits in the ring.
    pub const BITS: u32 = WORDS as u32 * WORD_BITS;
    const MASK: u32 = Self::BITS - 1;

    /// Creates a bitmap with all bits zero.
    #[inline]
    pub const fn new() -> Self {
        const { assert!(WORDS.is_power_of_two()) };
        Self { words: [0; WORDS], head: 0 }
    }

    #[inline]
    fn locate(&self, offset: u32) -> (usize, u32) {
        let physical = (self.head + offset) & Self::MASK;
        ((physical / WORD_BITS) as usize, physical % WORD_BITS)
    }

    /// Sets the bit at `offset` from the head; returns `true` if it was clear before.
    ///
    /// # Panics
    /// When `offset` is outside the ring.
    #[inline]
    pub fn set(&mut self, offset: u32) -> bool {
        assert!(offset < Self::BITS, "offset {offset} outside a ring of {} bits", Self::BITS);
        let (word, bit) = self.locate(offset);
        let old_word = self.words[word];
        self.words[word] = old_word | 1 << bit;
        old_word & (1 << bit) == 0
    }

    /// Clears the bit at `offset` from the head; offsets outside the ring are ignored.
    #[inline]
    pub fn clear(&mut self, offset: u32) {
        if offset < Self::BITS {
            let (word, bit) = self.locate(offset);
            self.words[word] &= !(1 << bit);
        }
    }

    /// Returns `true` if the bit at `offset` from the head is set; `false` outside the ring.
    #[inline]
    pub fn test(&self, offset: u32) -> bool {
        let (word, bit) = self.locate(offset);
        offset < Self::BITS && self.words[word] & (1 << bit) != 0
    }

    /// Returns the first offset at or after `from` whose bit, XORed with `xor_mask`, is one.
    #[inline]
    fn scan(&self, from: u32, xor_mask: u64) -> Option<u32> {
        let mut offset = from;
        while offset < Self::BITS {
            let (word, bit) = self.locate(offset);
            let found = ((self.words[word] ^ xor_mask) >> bit).trailing_zeros();
            let bits_in_word = (WORD_BITS - bit).min(Self::BITS - offset);
            if found < bits_in_word {
                return Some(offset + found);
            }
            offset += bits_in_word;
        }
        None
    }

    /// Returns the offset from the head of the first clear bit at or after offset `from`; `None` if all bits from there
    /// on are set.
    #[inline]
    pub fn first_zero(&self, from: u32) -> Option<u32> {
        self.scan(from, u64::MAX)
    }

    /// Returns the first set bit at or after `from`, as an offset.
    #[inline]
    pub fn first_one(&self, from: u32) -> Option<u32> {
        self.scan(from, 0)
    }

    /// Returns the last set bit, as an offset.
    pub fn last_one(&self) -> Option<u32> {
        let mut remaining = Self::BITS;
        while remaining > 0 {
            let (word, bit) = self.locate(remaining - 1);
            let bits_in_word = (bit + 1).min(remaining);
            // Align so that the bit of offset `remaining - 1` is the top one.
            let found = (self.words[word] << (WORD_BITS - 1 - bit)).leading_zeros();
            if found < bits_in_word {
                return Some(remaining - 1 - found);
            }
            remaining -= bits_in_word;
        }
        None
    }

    /// Returns the number of set bits.
    #[inline]
    pub fn popcount(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the number of set bits among the first `count` bits after the head.
    pub fn popcount_first(&self, count: u32) -> u32 {
        let count = count.min(Self::BITS);
        let mut offset = 0;
        let mut ones = 0;
        while offset < count {
            let (word, bit) = self.locate(offset);
            let bits_in_word = (WORD_BITS - bit).min(count - offset);
            ones += (self.words[word] >> bit & low_bits(bits_in_word)).count_ones();
            offset += bits_in_word;
        }
        ones
    }

    /// Returns the first 128 bits after the head, the head's bit lowest: the bitmap carried in a Falcon
    /// acknowledgement.
    pub fn first_128(&self) -> u128 {
        let count = Self::BITS.min(u128::BITS);
        let (mut offset, mut bits) = (0, 0u128);
        while offset < count {
            let (word, bit) = self.locate(offset);
            let bits_in_word = (WORD_BITS - bit).min(count - offset);
            bits |= u128::from(self.words[word] >> bit & low_bits(bits_in_word)) << offset;
            offset += bits_in_word;
        }
        bits
    }

    /// Returns `true` if no bit is set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Moves the head forward by `count` and clears the bits that it passed.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        if count >= Self::BITS {
            self.words = [0; WORDS];
        } else {
            let mut offset = 0;
            while offset < count {
                let (word, bit) = self.locate(offset);
                let bits_in_word = (WORD_BITS - bit).min(count - offset);
                self.words[word] &= !(low_bits(bits_in_word) << bit);
                offset += bits_in_word;
            }
        }
        self.head = self.head.wrapping_add(count) & Self::MASK;
    }

    /// Clears every bit.
    #[inline]
    pub fn reset(&mut self) {
        *self = Self::new();
    }
}

/// Returns a word whose low `count` bits (1 to 64) are set.
#[inline]
const fn low_bits(count: u32) -> u64 {
    u64::MAX >> (WORD_BITS - count)
}

impl<const WORDS: usize> fmt::Debug for RingBitmap<WORDS> {
    /// Formats the offsets of the set bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ones = core::iter::successors(self.first_one(0), |last| self.first_one(last + 1));
        f.debug_set().entries(ones).finish()
    }
}

/// A ring bitmap whose width is chosen at run time.
///
/// A ring of the common 128 bits is stored inside the queue pair, a wider one on the heap, so that idle connections
/// need little memory. [`AnyRing::BITS_MAX`] is for experiments in which the number of packets in flight is not
/// bounded (IRN without BDP-FC).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnyRing {
    /// 64 bits.
    W64(RingBitmap<1>),
    /// 128 bits: the size in IRN and Falcon.
    W128(RingBitmap<2>),
    /// 256 bits.
    W256(Box<RingBitmap<4>>),
    /// 512 bits.
    W512(Box<RingBitmap<8>>),
    /// 16384 bits.
    W16384(Box<RingBitmap<256>>),
}

/// Calls a method on the contained ring, whatever its width.
macro_rules! on_ring {
    ($self:expr, $ring:ident => $call:expr) => {
        match $self {
            AnyRing::W64($ring) => $call,
            AnyRing::W128($ring) => $call,
            AnyRing::W256($ring) => $call,
            AnyRing::W512($ring) => $call,
            AnyRing::W16384($ring) => $call,
        }
    };
}

impl AnyRing {
    /// Number of bits of the widest ring.
    pub const BITS_MAX: u32 = RingBitmap::<256>::BITS;

    /// Returns the smallest ring that holds `bits` bits, all zero, or the largest ring when that is not enough.
    pub fn with_bits(bits: u32) -> Self {
        match bits {
            0..=64 => Self::W64(RingBitmap::new()),
            65..=128 => Self::W128(RingBitmap::new()),
            129..=256 => Self::W256(Box::default()),
            257..=512 => Self::W512(Box::default()),
            _ => Self::W16384(Box::default()),
        }
    }

    /// Returns the number of bits in the ring.
    #[inline]
    pub fn bits(&self) -> u32 {
        match self {
            Self::W64(_) => 64,
            Self::W128(_) => 128,
            Self::W256(_) => 256,
            Self::W512(_) => 512,
            Self::W16384(_) => Self::BITS_MAX,
        }
    }

    /// See [`RingBitmap::set`].
    ///
    /// # Panics
    /// When `offset` is outside the ring.
    #[inline]
    pub fn set(&mut self, offset: u32) -> bool {
        on_ring!(self, ring => ring.set(offset))
    }

    /// See [`RingBitmap::clear`].
    #[inline]
    pub fn clear(&mut self, offset: u32) {
        on_ring!(self, ring => ring.clear(offset));
    }

    /// See [`RingBitmap::test`].
    #[inline]
    pub fn test(&self, offset: u32) -> bool {
        on_ring!(self, ring => ring.test(offset))
    }

    /// See [`RingBitmap::first_zero`].
    #[inline]
    pub fn first_zero(&self, from: u32) -> Option<u32> {
        on_ring!(self, ring => ring.first_zero(from))
    }

    /// See [`RingBitmap::first_one`].
    #[inline]
    pub fn first_one(&self, from: u32) -> Option<u32> {
        on_ring!(self, ring => ring.first_one(from))
    }

    /// See [`RingBitmap::last_one`].
    #[inline]
    pub fn last_one(&self) -> Option<u32> {
        on_ring!(self, ring => ring.last_one())
    }

    /// See [`RingBitmap::popcount`].
    #[inline]
    pub fn popcount(&self) -> u32 {
        on_ring!(self, ring => ring.popcount())
    }

    /// See [`RingBitmap::popcount_first`].
    #[inline]
    pub fn popcount_first(&self, count: u32) -> u32 {
        on_ring!(self, ring => ring.popcount_first(count))
    }

    /// See [`RingBitmap::first_128`].
    #[inline]
    pub fn first_128(&self) -> u128 {
        on_ring!(self, ring => ring.first_128())
    }

    /// See [`RingBitmap::is_empty`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        on_ring!(self, ring => ring.is_empty())
    }

    /// See [`RingBitmap::advance`].
    #[inline]
    pub fn advance(&mut self, count: u32) {
        on_ring!(self, ring => ring.advance(count));
    }

    /// See [`RingBitmap::reset`].
    #[inline]
    pub fn reset(&mut self) {
        on_ring!(self, ring => ring.reset());
    }
}

#[cfg(test)]
#[path = "bitmap/tests.rs"]
mod tests;
