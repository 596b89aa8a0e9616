//! A queue that is nearly always empty.

use std::collections::VecDeque;

/// A queue that takes eight bytes until its first entry: for objects of which there may be very many.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "an empty `VecDeque` takes four times as much as a pointer")]
pub struct LazyQueue<T>(Option<Box<VecDeque<T>>>);

impl<T> LazyQueue<T> {
    /// Creates an empty queue.
    #[inline]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Returns the inner queue; allocated with a capacity of `room` when it has never been used, otherwise with its
    /// existing capacity.
    #[inline]
    pub fn made_for(&mut self, room: usize) -> &mut VecDeque<T> {
        self.0.get_or_insert_with(|| Box::new(VecDeque::with_capacity(room)))
    }

    /// Appends `value`.
    #[inline]
    pub fn push_back(&mut self, value: T) {
        self.made_for(0).push_back(value);
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

    /// Returns whether the queue is empty.
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
    fn it_is_a_queue_and_small_before_it_is_used() {
        assert_eq!(size_of::<LazyQueue<[u64; 9]>>(), 8);
        let mut queue = LazyQueue::new();
        assert_eq!((queue.len(), queue.front()), (0, None));
        assert_eq!(queue.pop_front(), None);
        (1..4).for_each(|value| queue.push_back(value));
        queue.made_for(8).push_front(0);
        assert_eq!((queue.len(), queue.front(), queue.is_empty()), (4, Some(&0), false));
        assert_eq!([queue.pop_front(), queue.pop_front()], [Some(0), Some(1)]);
        queue.clear();
        assert!(queue.is_empty());
    }
}
