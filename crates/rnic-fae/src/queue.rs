//! A bounded queue of event records between a datapath and an engine in the same thread.

use crate::filter::{Filter, FlowGate, Refusal};
use crate::record::{Event, EventRecord};

/// Event records, oldest first, in memory that is taken once.
#[derive(Debug)]
pub struct EventQueue {
    ring: Vec<EventRecord>,
    head: usize,
    len: usize,
    filter: Filter,
    /// Flips each time round.
    generation: bool,
}

impl EventQueue {
    /// A queue of `capacity` events with `filter` in front.
    ///
    /// # Panics
    /// When `capacity` is zero.
    pub fn new(capacity: usize, filter: Filter) -> Self {
        assert!(capacity > 0, "a queue holds something");
        Self { ring: vec![EventRecord::default(); capacity], head: 0, len: 0, filter, generation: true }
    }

    /// Puts `event` of the flow with `gate` at the end, if it enters.
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

    /// Takes the oldest.
    #[inline]
    pub fn pop(&mut self) -> Option<EventRecord> {
        let record = *self.peek(0)?;
        self.head = self.place(1);
        self.len -= 1;
        Some(record)
    }

    /// The event `ahead` behind the oldest, left where it is.
    #[inline]
    pub fn peek(&self, ahead: usize) -> Option<&EventRecord> {
        (ahead < self.len).then(|| &self.ring[self.place(ahead)])
    }

    /// How many wait.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
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
