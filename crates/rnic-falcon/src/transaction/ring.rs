//! Transactions by number: a ring that its oldest entry holds.
//!
//! It grows to what is under way at once: an idle connection is small, and in steady state nothing is allocated.

use core::ops::{Index, IndexMut};

use rnic_base::Seq;

/// Entries for so many numbers from `base` on. An entry is there or blank; blank ones at the front fall off.
#[derive(Debug)]
pub(super) struct Ring<T> {
    /// A power of two; entries beyond are blank.
    entries: Box<[T]>,
    base: Seq,
    /// Numbers that have a place, less one: a power of two less one.
    mask: u64,
    blank: T,
}

/// Entries of a fresh ring.
const ENTRIES_FIRST: usize = 4;

impl<T: Default> Ring<T> {
    /// `size` is a power of two.
    pub(super) fn new(size: u32, first: Seq) -> Self {
        debug_assert!(size.is_power_of_two());
        let entries = (0..ENTRIES_FIRST.min(size as usize)).map(|_| T::default()).collect();
        Self { entries, base: first, mask: u64::from(size) - 1, blank: T::default() }
    }

    /// The oldest number that has a place.
    #[inline]
    pub(super) fn base(&self) -> Seq {
        self.base
    }

    /// The first number that has none yet.
    #[inline]
    pub(super) fn end(&self) -> Seq {
        self.base + self.mask + 1
    }

    /// From here on all entries are blank.
    #[inline]
    pub(super) fn end_of_entries(&self) -> Seq {
        self.base + self.entries.len() as u64
    }

    /// Whether `seq` has a place.
    #[inline]
    pub(super) fn covers(&self, seq: Seq) -> bool {
        self.base <= seq && seq < self.end()
    }

    /// The place of `seq`, as it comes back in a [`crate::seam::Context`].
    #[inline]
    pub(super) fn slot(&self, seq: Seq) -> u32 {
        (seq.get() & self.mask) as u32
    }

    /// The number whose place is `slot`.
    #[inline]
    pub(super) fn seq_at(&self, slot: u32) -> Seq {
        self.base + (u64::from(slot).wrapping_sub(self.base.get()) & self.mask)
    }

    /// Blanks the entry at the front; the next number is the oldest then.
    #[inline]
    pub(super) fn advance(&mut self) {
        let place = place(self.base, self.entries.len());
        self.entries[place] = T::default();
        self.base += 1;
    }

    /// Room for the number that is `offset` after the base.
    #[cold]
    fn grow(&mut self, offset: u64) {
        let len = (offset as usize + 1).next_power_of_two();
        let mut wider: Box<[T]> = (0..len).map(|_| T::default()).collect();
        for offset in 0..self.entries.len() as u64 {
            let seq = self.base + offset;
            wider[place(seq, len)] = core::mem::take(&mut self.entries[place(seq, self.entries.len())]);
        }
        self.entries = wider;
    }
}

/// Where `seq` lies among `len` entries.
#[inline]
fn place(seq: Seq, len: usize) -> usize {
    (seq.get() & (len as u64 - 1)) as usize
}

impl<T: Default> Index<Seq> for Ring<T> {
    type Output = T;
    #[inline]
    fn index(&self, seq: Seq) -> &T {
        debug_assert!(self.covers(seq), "{seq} is outside of the ring at {}", self.base);
        if seq >= self.end_of_entries() {
            return &self.blank;
        }
        &self.entries[place(seq, self.entries.len())]
    }
}

impl<T: Default> IndexMut<Seq> for Ring<T> {
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

    /// Numbers keep their entries, and places their names, while the ring grows and goes round.
    #[test]
    fn entries_stay_with_their_numbers() {
        let first = Seq::start(Psn32::new(u32::MAX - 5));
        let mut ring = Ring::<u64>::new(64, first);
        assert_eq!((ring.entries.len(), ring.end().since(first)), (ENTRIES_FIRST, 64));
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
}
