//! Transactions by number: a ring that starts at the oldest entry in use.
//!
//! It grows to the maximum number of transactions in flight: an idle connection needs little memory, and in steady
//! state no memory is allocated.

use core::ops::{Index, IndexMut};

use rnic_base::{Seq, prefetch_whole_at};

/// Element of a ring.
pub(super) trait Blank: Sized + 'static {
    /// A static blank element, returned for numbers without an entry.
    const BLANK: &'static Self;

    /// Returns a blank element.
    fn blank() -> Self;

    /// Resets the fields that are read in blank elements; the others keep old values until the entry is used again.
    fn clear(&mut self);
}

/// Entries for a range of numbers from `base` on. An entry is in use or blank; blank entries at the front are removed.
#[derive(Debug)]
pub(super) struct Ring<T> {
    /// The entries, a power of two of them; numbers beyond them count as blank.
    entries: Box<[T]>,
    base: Seq,
    /// Maximum size of the range, a power of two, minus one.
    mask: u32,
}

/// Minimum number of entries of a ring that is not empty.
const ENTRIES_MIN: usize = 4;

/// Maximum number of entries allocated in advance in one batch: for a long message, there may be resources for only a
/// few of its packets.
const EXPECTED_MAX: u32 = 64;

impl<T: Blank> Ring<T> {
    /// Creates an empty ring; `size` is a power of two.
    pub(super) fn new(size: u32, first: Seq) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { entries: Box::default(), base: first, mask: size - 1 }
    }

    /// Returns the oldest number in the range.
    #[inline]
    pub(super) fn base(&self) -> Seq {
        self.base
    }

    /// Returns the first number beyond the range.
    #[inline]
    pub(super) fn end(&self) -> Seq {
        self.base + (u64::from(self.mask) + 1)
    }

    /// Returns the first number for which no entry is allocated: it and all later ones are blank.
    #[inline]
    pub(super) fn end_of_entries(&self) -> Seq {
        self.base + self.entries.len() as u64
    }

    /// Returns the size of the range.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.mask as usize + 1
    }

    /// Returns `true` if `seq` is in the range.
    #[inline]
    pub(super) fn covers(&self, seq: Seq) -> bool {
        seq.get().wrapping_sub(self.base.get()) <= u64::from(self.mask)
    }

    /// Returns the slot of `seq`, as stored in a [`crate::interface::Context`].
    #[inline]
    pub(super) fn slot(&self, seq: Seq) -> u32 {
        seq.get() as u32 & self.mask
    }

    /// Returns the number in `slot`.
    #[inline]
    pub(super) fn seq_at(&self, slot: u32) -> Seq {
        self.base + u64::from(slot.wrapping_sub(self.base.get() as u32) & self.mask)
    }

    /// Prefetches the entry of `seq`.
    #[inline]
    pub(super) fn prefetch(&self, seq: Seq) {
        prefetch_whole_at(&self.entries, entry_index(seq, self.entries.len()));
    }

    /// Makes the entry at the front blank, and advances the base to the next number.
    #[inline]
    pub(super) fn advance(&mut self) {
        let index = entry_index(self.base, self.entries.len());
        if let Some(entry) = self.entries.get_mut(index) {
            entry.clear();
        }
        self.base += 1;
    }

    /// Same as [`Ring::advance`], for an entry at the front that is already blank.
    #[inline]
    pub(super) fn skip_blank(&mut self) {
        self.base += 1;
    }

    /// Allocates entries for `count` numbers starting at `next` in one batch, limited by the range.
    #[inline]
    pub(super) fn expect(&mut self, next: Seq, count: u32) {
        let last = (next.since(self.base) + u64::from(count.min(EXPECTED_MAX))).min(u64::from(self.mask) + 1);
        if last > self.entries.len() as u64 {
            self.grow(last - 1);
        }
    }

    /// Extends the ring to include the number at `offset` from the base.
    #[cold]
    fn grow(&mut self, offset: u64) {
        let len_max = self.mask as usize + 1;
        let len = (offset as usize + 1).next_power_of_two().max(self.entries.len() * 2).max(ENTRIES_MIN).min(len_max);
        let mut wider: Box<[T]> = (0..len).map(|_| T::blank()).collect();
        for offset in 0..self.entries.len() as u64 {
            let seq = self.base + offset;
            let old = entry_index(seq, self.entries.len());
            wider[entry_index(seq, len)] = core::mem::replace(&mut self.entries[old], T::blank());
        }
        self.entries = wider;
    }
}

/// Returns the index of `seq` in a ring of `len` entries.
#[inline]
fn entry_index(seq: Seq, len: usize) -> usize {
    seq.get() as usize & len.wrapping_sub(1)
}

impl<T: Blank> Index<Seq> for Ring<T> {
    type Output = T;
    #[inline]
    fn index(&self, seq: Seq) -> &T {
        debug_assert!(self.covers(seq), "{seq} is outside the ring that starts at {}", self.base);
        if seq.since(self.base) >= self.entries.len() as u64 {
            return T::BLANK;
        }
        &self.entries[entry_index(seq, self.entries.len())]
    }
}

impl<T: Blank> IndexMut<Seq> for Ring<T> {
    #[inline]
    fn index_mut(&mut self, seq: Seq) -> &mut T {
        debug_assert!(self.covers(seq), "{seq} is outside the ring that starts at {}", self.base);
        let offset = seq.since(self.base);
        if offset >= self.entries.len() as u64 {
            self.grow(offset);
        }
        let index = entry_index(seq, self.entries.len());
        &mut self.entries[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::Psn32;

    impl Blank for u64 {
        const BLANK: &'static Self = &0;

        fn blank() -> Self {
            0
        }

        fn clear(&mut self) {
            *self = 0;
        }
    }

    /// Numbers keep their entries and slots while the ring grows and wraps.
    #[test]
    fn entries_keep_their_numbers_while_the_ring_grows() {
        let first = Seq::start(Psn32::new(u32::MAX - 5));
        let mut ring = Ring::<u64>::new(64, first);
        assert_eq!((ring.entries.len(), ring.end().since(first)), (0, 64));
        let mut next = first;
        for round in 0..500u64 {
            // The number of entries in use grows from 1 to 64.
            while next.since(ring.base()) < 1 + round % 64 {
                ring[next] = next.get();
                assert_eq!(ring.seq_at(ring.slot(next)), next);
                next += 1;
            }
            let mut seq = ring.base();
            while seq < ring.end() {
                assert_eq!(ring[seq], if seq < next { seq.get() } else { 0 }, "{seq}");
                seq += 1;
            }
            while next.since(ring.base()) > round % 7 {
                ring.advance();
            }
        }
        assert_eq!(ring.entries.len(), 64);
    }

    /// `expect` allocates entries in advance, limited by the range and by a maximum number per call.
    #[test]
    fn expected_entries_are_allocated_in_one_batch() {
        let first = Seq::start(Psn32::new(7));
        let mut ring = Ring::<u64>::new(256, first);
        ring[first] = 1;
        assert_eq!(ring.entries.len(), ENTRIES_MIN);
        ring.expect(first + 1, 39);
        assert_eq!((ring.entries.len(), ring[first]), (64, 1));
        ring.expect(first + 1, 39);
        assert_eq!(ring.entries.len(), 64, "the entries were allocated before");
        ring.expect(first + 64, u32::MAX);
        assert_eq!(ring.entries.len(), 128, "one call allocates at most EXPECTED_MAX entries");
        ring.expect(first + 250, u32::MAX);
        assert_eq!((ring.entries.len(), ring[first]), (256, 1), "the range limits the entries");
    }
}
