//! A bounded queue of event records between a datapath and an engine in the same thread.

use crate::filter::{Filter, FlowAdmission, Refusal};
use crate::record::{Event, EventRecord};

/// Event records in a ring, oldest first; the memory is allocated once.
#[derive(Debug)]
pub struct EventQueue {
    ring: Vec<EventRecord>,
    head: usize,
    len: usize,
    filter: Filter,
    /// Generation bit, which flips at each wrap of the ring.
    generation: bool,
}

impl EventQueue {
    /// Creates a queue of `capacity` events with the admission rules `filter`.
    ///
    /// # Panics
    /// If `capacity` is zero.
    pub fn new(capacity: usize, filter: Filter) -> Self {
        assert!(capacity > 0, "the capacity is zero");
        Self { ring: vec![EventRecord::default(); capacity], head: 0, len: 0, filter, generation: true }
    }

    /// Appends `event` of the flow that `admission` belongs to, if it is admitted.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    pub fn offer(&mut self, admission: &mut FlowAdmission, event: &Event) -> Result<(), Refusal> {
        let admitted = self.filter.admit(admission, event, self.len, self.ring.len())?;
        let slot = self.slot(self.len);
        self.ring[slot] = EventRecord::pack(&admitted, self.generation);
        self.len += 1;
        if slot + 1 == self.ring.len() {
            self.generation = !self.generation;
        }
        Ok(())
    }

    /// Removes and returns the oldest event.
    #[inline]
    pub fn pop(&mut self) -> Option<EventRecord> {
        let record = *self.peek(0)?;
        self.head = self.slot(1);
        self.len -= 1;
        Some(record)
    }

    /// Returns the event `offset` positions after the oldest, without removing it.
    #[inline]
    pub fn peek(&self, offset: usize) -> Option<&EventRecord> {
        (offset < self.len).then(|| &self.ring[self.slot(offset)])
    }

    /// Returns the number of events in the queue.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the queue is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn slot(&self, offset: usize) -> usize {
        let slot = self.head + offset;
        if slot >= self.ring.len() { slot - self.ring.len() } else { slot }
    }
}
