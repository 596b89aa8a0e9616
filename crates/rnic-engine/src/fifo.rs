//! A queue of plain values.
//!
//! `VecDeque` would work too, and was used before, but three of these queues are used for every packet: without drop
//! glue, lazy growth and two-part slices, a push or a pop takes five instructions instead of fifteen.

use rnic_base::prefetch_at;

/// A first-in, first-out queue. It grows by doubling, and never shrinks.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    entries: Box<[T]>,
    head: u32,
    tail: u32,
    blank: T,
}

impl<T: Copy> Fifo<T> {
    /// Returns an empty queue; `blank` fills unused slots.
    pub(crate) fn new(blank: T) -> Self {
        Self { entries: Box::default(), head: 0, tail: 0, blank }
    }

    #[inline]
    fn slot(&self, counter: u32) -> usize {
        counter as usize & self.entries.len().wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.len() == self.entries.len() {
            self.grow();
        }
        let slot = self.slot(self.tail);
        self.entries[slot] = value;
        self.tail = self.tail.wrapping_add(1);
    }

    /// Prefetches the front entry.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_at(&self.entries, self.slot(self.head));
    }

    /// Returns the value at `index` from the front.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<T> {
        (index < self.tail.wrapping_sub(self.head)).then(|| self.entries[self.slot(self.head.wrapping_add(index))])
    }

    /// Inserts `value` before all others.
    #[inline]
    pub(crate) fn push_front(&mut self, value: T) {
        if self.len() == self.entries.len() {
            self.grow();
        }
        self.head = self.head.wrapping_sub(1);
        let slot = self.slot(self.head);
        self.entries[slot] = value;
    }

    /// Drops the value that was pushed last.
    pub(crate) fn drop_newest(&mut self) {
        if !self.is_empty() {
            self.tail = self.tail.wrapping_sub(1);
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let value = self.entries[self.slot(self.head)];
        self.head = self.head.wrapping_add(1);
        Some(value)
    }

    /// Keeps only the values for which `keep` returns `true`, in order. Used only on the slow path.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for _ in 0..self.len() {
            if let Some(value) = self.pop().filter(&keep) {
                self.push(value);
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let capacity = (self.entries.len() * 2).max(16);
        let mut entries = vec![self.blank; capacity].into_boxed_slice();
        let count = self.len();
        for (index, entry) in entries.iter_mut().take(count).enumerate() {
            *entry = self.entries[self.slot(self.head.wrapping_add(index as u32))];
        }
        self.entries = entries;
        (self.head, self.tail) = (0, count as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in proptest::collection::vec(0u8..6, 0..400)) {
            let (mut fifo, mut model) = (Fifo::new(0), VecDeque::new());
            for (value, step) in steps.into_iter().enumerate() {
                match step {
                    0..3 => {
                        fifo.push(value);
                        model.push_back(value);
                    }
                    3 => {
                        fifo.push_front(value);
                        model.push_front(value);
                    }
                    4 if value % 8 == 0 => {
                        fifo.retain(|value| value % 3 > 0);
                        model.retain(|value| value % 3 > 0);
                    }
                    _ => prop_assert_eq!(fifo.pop(), model.pop_front()),
                }
                prop_assert_eq!((fifo.len(), fifo.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
