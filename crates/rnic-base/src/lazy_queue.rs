//! A queue that is nearly always empty.

use std::collections::VecDeque;

/// A queue that occupies eight bytes until its first entry is added: for objects that exist in very large numbers.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "an empty `VecDeque` takes four times as much as a pointer")]
pub struct LazyQueue<T>(Option<Box<VecDeque<T>>>);

impl<T> LazyQueue<T> {
    /// Creates an empty queue.
    #[inline]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Returns the inner queue. On first use it is allocated with space for `capacity` values; later it has its
    /// existing capacity.
    #[inline]
    pub fn get_or_allocate(&mut self, capacity: usize) -> &mut VecDeque<T> {
        self.0.get_or_insert_with(|| Box::new(VecDeque::with_capacity(capacity)))
    }

    /// Appends `value`.
    #[inline]
    pub fn push_back(&mut self, value: T) {
        self.get_or_allocate(0).push_back(value);
    }

    /// Removes and returns the oldest entry.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        self.0.as_mut()?.pop_front()
    }

    /// Returns the oldest entry.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.0.as_ref()?.front()
    }

    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.len())
    }

    /// Returns `true` if the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries.
    #[inline]
    pub fn clear(&mut self) {
        if let Some(queue) = &mut self.0 {
            queue.clear();
        }
    }
}

impl<T> Default for LazyQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lazy_queue_is_fifo_and_takes_8_bytes_until_first_use() {
        assert_eq!(size_of::<LazyQueue<[u64; 9]>>(), 8);
        let mut queue = LazyQueue::new();
        assert_eq!((queue.len(), queue.front()), (0, None));
        assert_eq!(queue.pop_front(), None);
        (1..4).for_each(|value| queue.push_back(value));
        queue.get_or_allocate(8).push_front(0);
        assert_eq!((queue.len(), queue.front(), queue.is_empty()), (4, Some(&0), false));
        assert_eq!([queue.pop_front(), queue.pop_front()], [Some(0), Some(1)]);
        queue.clear();
        assert!(queue.is_empty());
    }
}
