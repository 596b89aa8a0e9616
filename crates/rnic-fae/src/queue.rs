//! A bounded queue of event records between a datapath and an engine in the same thread.

use crate::filter::{Filter, FlowGate, Refusal};
use crate::record::{Event, EventRecord};

/// Event records, oldest first, in memory that is allocated once.
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
    /// When `capacity` is zero.
    pub fn new(capacity: usize, filter: Filter) -> Self {
        assert!(capacity > 0, "a queue holds something");
        Self { ring: vec![EventRecord::default(); capacity], head: 0, len: 0, filter, generation: true }
    }

    /// Appends `event` of the flow with `gate`, if it is admitted.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    pub fn offer(&mut self, gate: &mut FlowGate, event: &Event) -> Result<(), Refusal> {
        let entering = self.filter.admit(gate, event, self.len, self.ring.len())?;
        let place = self.place(self.len);
        self.ring[place] = EventRecord::pack(&entering, self.generation);
        self.len += 1;
        if place + 1 == self.ring.len() {
            self.generation = !self.generation;
        }
        Ok(())
    }

    /// Removes and returns the oldest event.
    #[inline]
    pub fn pop(&mut self) -> Option<EventRecord> {
        let record = *self.peek(0)?;
        self.head = self.place(1);
        self.len -= 1;
        Some(record)
    }

    /// Returns the event `ahead` positions behind the oldest, without removing it.
    #[inline]
    pub fn peek(&self, ahead: usize) -> Option<&EventRecord> {
        (ahead < self.len).then(|| &self.ring[self.place(ahead)])
    }

    /// Returns the number of events in the queue.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, ahead: usize) -> usize {
        let place = self.head + ahead;
        if place >= self.ring.len() { place - self.ring.len() } else { place }
    }
}
