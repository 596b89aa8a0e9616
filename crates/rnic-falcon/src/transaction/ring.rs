//! Transactions by number: a ring that its oldest entry holds.

use core::ops::{Index, IndexMut};

use rnic_base::Seq;

/// Entries for so many numbers from `base` on. An entry is there or blank; blank ones at the front fall off.
#[derive(Debug)]
pub(super) struct Ring<T> {
    entries: Box<[T]>,
    base: Seq,
}

impl<T: Default> Ring<T> {
    /// `size` is a power of two.
    pub(super) fn new(size: u32, first: Seq) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { entries: (0..size).map(|_| T::default()).collect(), base: first }
    }

    /// The oldest number that has a place.
    #[inline]
    pub(super) fn base(&self) -> Seq {
        self.base
    }

    /// The first number that has none yet.
    #[inline]
    pub(super) fn end(&self) -> Seq {
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
        (seq.get() as u32) & (self.entries.len() as u32 - 1)
    }

    /// The number whose place is `slot`.
    #[inline]
    pub(super) fn seq_at(&self, slot: u32) -> Seq {
        let mask = self.entries.len() as u64 - 1;
        self.base + (u64::from(slot).wrapping_sub(self.base.get()) & mask)
    }

    /// Blanks the entry at the front; the next number is the oldest then.
    #[inline]
    pub(super) fn advance(&mut self) {
        let oldest = self.base;
        self[oldest] = T::default();
        self.base += 1;
    }
}

impl<T: Default> Index<Seq> for Ring<T> {
    type Output = T;
    #[inline]
    fn index(&self, seq: Seq) -> &T {
        debug_assert!(self.covers(seq), "{seq} is outside of the ring at {}", self.base);
        &self.entries[self.slot(seq) as usize]
    }
}

impl<T: Default> IndexMut<Seq> for Ring<T> {
    #[inline]
    fn index_mut(&mut self, seq: Seq) -> &mut T {
        debug_assert!(self.covers(seq), "{seq} is outside of the ring at {}", self.base);
        let slot = self.slot(seq) as usize;
        &mut self.entries[slot]
    }
}
