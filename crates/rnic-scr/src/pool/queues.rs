//! The queues of a pool, indexed by subject and kind, and by position in the round-robin order of their thread.
//!
//! A queue is created for the first record of its subject and kind, at the lowest free position. The records of all
//! queues are stored in one backlog.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use slab::Slab;

use crate::convergence::Convergence;
use crate::queue::{Backlog, Pushed, Queue, Strategy};
use crate::signal::{Kind, Signal};

#[derive(Debug)]
struct Entry {
    queue: Queue,
    thread: u32,
    position: u32,
    convergence: Option<Box<Convergence>>,
}

/// Value that stands for no queue.
const NONE: u32 = u32::MAX;

/// The cycle of one thread: numbers of queues by position.
#[derive(Debug, Default)]
struct Cycle {
    entries: Vec<u32>,
    free: BinaryHeap<Reverse<u32>>,
}

impl Cycle {
    fn insert(&mut self, entry: u32) -> u32 {
        if let Some(Reverse(position)) = self.free.pop() {
            self.entries[position as usize] = entry;
            return position;
        }
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    fn remove(&mut self, position: u32) {
        self.entries[position as usize] = NONE;
        self.free.push(Reverse(position));
    }
}

/// All queues of a pool.
#[derive(Debug)]
pub(super) struct Queues {
    strategies: [Strategy; Kind::COUNT],
    backlog: Backlog,
    entries: Slab<Entry>,
    /// For each kind, the number of the queue of each subject.
    by_subject: [Vec<u32>; Kind::COUNT],
    cycles: Vec<Cycle>,
}

/// A record taken from its queue.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) record: Signal,
    pub(super) position: u32,
    /// `true` if the queue has no more records.
    pub(super) is_empty: bool,
}

/// A queue that was removed.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) position: u32,
    /// Number of signals in its records.
    pub(super) signals: u32,
}

impl Queues {
    pub(super) fn new(strategies: [Strategy; Kind::COUNT], threads: usize) -> Self {
        Self {
            strategies,
            backlog: Backlog::default(),
            entries: Slab::new(),
            by_subject: Default::default(),
            cycles: (0..threads).map(|_| Cycle::default()).collect(),
        }
    }

    /// Queues `record` for `thread`, the thread of its subject and kind; returns the position of the queue.
    #[inline]
    pub(super) fn push(&mut self, thread: usize, record: &Signal) -> (u32, Pushed) {
        let entry = match self.find(record.subject, record.kind) {
            Some(entry) => entry,
            None => self.insert(thread, record.subject, record.kind),
        };
        let Entry { queue, position, .. } = &mut self.entries[entry];
        (*position, queue.push(&mut self.backlog, record))
    }

    /// Removes and returns the oldest record of the queue at `position` of `thread`.
    #[inline]
    pub(super) fn take(&mut self, thread: usize, position: u32) -> Option<Taken> {
        let entry = *self.cycles[thread].entries.get(position as usize)?;
        let queue = &mut self.entries.get_mut(entry as usize)?.queue;
        let record = queue.take(&mut self.backlog)?;
        Some(Taken { record, position, is_empty: queue.is_empty() })
    }

    /// Returns the state of a queue that waits while the rate is stable.
    #[inline]
    pub(super) fn convergence_mut(&mut self, subject: u32, kind: Kind) -> Option<&mut Convergence> {
        let entry = self.find(subject, kind)?;
        self.entries[entry].convergence.as_deref_mut()
    }

    /// Removes a queue and its records.
    pub(super) fn remove(&mut self, subject: u32, kind: Kind) -> Option<Removed> {
        let number = self.find(subject, kind)?;
        self.by_subject[kind.index()][subject as usize] = NONE;
        let mut entry = self.entries.remove(number);
        let folded = entry.convergence.as_deref().and_then(Convergence::folded).map_or(0, |folded| folded.count);
        let waiting = core::iter::from_fn(|| entry.queue.take(&mut self.backlog));
        let signals = waiting.fold(folded, |sum, record| sum.saturating_add(record.count));
        self.cycles[entry.thread as usize].remove(entry.position);
        Some(Removed { position: entry.position, signals })
    }

    pub(super) const fn waiting(&self) -> u32 {
        self.backlog.waiting()
    }

    pub(super) fn memory(&self) -> usize {
        let subjects: usize = self.by_subject.iter().map(|numbers| numbers.capacity() * size_of::<u32>()).sum();
        let cycles: usize = self.cycles.iter().map(|cycle| cycle.entries.capacity() * size_of::<u32>()).sum();
        let waiting = self.entries.iter().filter(|(_, entry)| entry.convergence.is_some()).count();
        let entries = self.entries.capacity() * size_of::<Entry>() + waiting * size_of::<Convergence>();
        self.backlog.memory() + subjects + cycles + entries
    }

    #[inline]
    fn find(&self, subject: u32, kind: Kind) -> Option<usize> {
        self.by_subject[kind.index()]
            .get(subject as usize)
            .filter(|number| **number != NONE)
            .map(|number| *number as usize)
    }

    fn insert(&mut self, thread: usize, subject: u32, kind: Kind) -> usize {
        let strategy = self.strategies[kind.index()];
        let number = self.entries.vacant_key();
        let position = self.cycles[thread].insert(number as u32);
        let convergence = (strategy == Strategy::WhileStable).then(Box::default);
        self.entries.insert(Entry { queue: Queue::new(strategy), thread: thread as u32, position, convergence });
        let numbers = &mut self.by_subject[kind.index()];
        if numbers.len() <= subject as usize {
            numbers.resize(subject as usize + 1, NONE);
        }
        numbers[subject as usize] = number as u32;
        number
    }
}
