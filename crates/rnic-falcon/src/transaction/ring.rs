//! Transactions by number: a ring whose start is the oldest entry in use.
//!
//! It grows to the maximum number in flight: an idle connection is small, and in steady state no memory is allocated.

use core::ops::{Index, IndexMut};

use rnic_base::{Seq, prefetch_whole_at};

/// Element of a ring.
pub(super) trait Blank: Sized + 'static {
    /// Value at numbers without an entry.
    const BLANK: &'static Self;

    /// Returns a blank element.
    fn blank() -> Self;

    /// Makes the element blank as far as it is read: the next use overwrites all of it.
    fn clear(&mut self);
}

/// Entries for a range of numbers from `base` on. An entry is in use or blank; blank entries at the front are removed.
#[derive(Debug)]
pub(super) struct Ring<T> {
    /// Entries; their number is a power of two, and numbers beyond are blank.
    entries: Box<[T]>,
    base: Seq,
    /// Maximum size of the range less one: a power of two less one.
    mask: u32,
}

/// Minimum number of entries of a ring that is not empty.
const ENTRIES_FIRST: usize = 4;

/// Maximum number of entries allocated ahead in one batch: a long message may find resources for a few of its packets
/// only.
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

    /// Returns the number from which on all entries are blank.
    #[inline]
    pub(super) fn end_of_entries(&self) -> Seq {
        self.base + self.entries.len() as u64
    }

    /// Returns the size of the range.
    #[inline]
    pub(super) fn places(&self) -> usize {
        self.mask as usize + 1
    }

    /// Returns whether `seq` is in the range.
    #[inline]
    pub(super) fn covers(&self, seq: Seq) -> bool {
        seq.get().wrapping_sub(self.base.get()) <= u64::from(self.mask)
    }

    /// Returns the slot of `seq`, as stored in a [`crate::seam::Context`].
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
        prefetch_whole_at(&self.entries, place(seq, self.entries.len()));
    }

    /// Blanks the entry at the front, and advances the base to the next number.
    #[inline]
    pub(super) fn advance(&mut self) {
        let place = place(self.base, self.entries.len());
        if let Some(entry) = self.entries.get_mut(place) {
            entry.clear();
        }
        self.base += 1;
    }

    /// Same as [`Ring::advance`], when the entry at the front is blank.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.base += 1;
    }

    /// Allocates entries for `more` numbers from `next` on in one batch, as far as the range allows.
    #[inline]
    pub(super) fn expect(&mut self, next: Seq, more: u32) {
        let last = (next.since(self.base) + u64::from(more.min(EXPECTED_MAX))).min(u64::from(self.mask) + 1);
        if last > self.entries.len() as u64 {
            self.grow(last - 1);
        }
    }

    /// Grows the ring to include the number that is `offset` after the base.
    #[cold]
    fn grow(&mut self, offset: u64) {
        let most = self.mask as usize + 1;
        let len = (offset as usize + 1).next_power_of_two().max(self.entries.len() * 2).max(ENTRIES_FIRST).min(most);
        let mut wider: Box<[T]> = (0..len).map(|_| T::blank()).collect();
        for offset in 0..self.entries.len() as u64 {
            let seq = self.base + offset;
            let old = place(seq, self.entries.len());
            wider[place(seq, len)] = core::mem::replace(&mut self.entries[old], T::blank());
        }
        self.entries = wider;
    }
}

/// Returns the index of `seq` among `len` entries.
#[inline]
fn place(seq: Seq, len: usize) -> usize {
    seq.get() as usize & len.wrapping_sub(1)
}

impl<T: Blank> Index<Seq> for Ring<T> {
    type Output = T;
    #[inline]
    fn index(&self, seq: Seq) -> &T {
        debug_assert!(self.covers(seq), "{seq} is outside of the ring at {}", self.base);
        if seq.since(self.base) >= self.entries.len() as u64 {
            return T::BLANK;
        }
        &self.entries[place(seq, self.entries.len())]
    }
}

impl<T: Blank> IndexMut<Seq> for Ring<T> {
    #[inline]
    fn index_mut(&mut self, seq: Seq) -> &mut T {
        debug_assert!(self.covers(seq), "{seq} is outside of the ring at {}", self.base);
        let offset = seq.since(self.base);
        if offset >= self.entries.len() as u64 {
            self.grow(offset);
        }
        let place = place(seq, self.entries.len());
        &mut self.entries[place]
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

    /// Numbers keep their entries, and places their names, while the ring grows and goes round.
    #[test]
    fn entries_stay_with_their_numbers() {
        let first = Seq::start(Psn32::new(u32::MAX - 5));
        let mut ring = Ring::<u64>::new(64, first);
        assert_eq!((ring.entries.len(), ring.end().since(first)), (0, 64));
        let mut next = first;
        for round in 0..500u64 {
            // Up to 1, 2, .. 64 under way.
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

    /// Who says how many come gets their places at once, as far as there are so many, and no more than some at a time.
    #[test]
    fn places_that_are_expected_are_made_at_once() {
        let first = Seq::start(Psn32::new(7));
        let mut ring = Ring::<u64>::new(256, first);
        ring[first] = 1;
        assert_eq!(ring.entries.len(), ENTRIES_FIRST);
        ring.expect(first + 1, 39);
        assert_eq!((ring.entries.len(), ring[first]), (64, 1));
        ring.expect(first + 1, 39);
        assert_eq!(ring.entries.len(), 64, "they are there");
        ring.expect(first + 64, u32::MAX);
        assert_eq!(ring.entries.len(), 128, "a long message gets some");
        ring.expect(first + 250, u32::MAX);
        assert_eq!((ring.entries.len(), ring[first]), (256, 1), "all that have a number");
    }
}
