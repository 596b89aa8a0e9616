//! The queue of one subject and one kind of signal, for a producer and a consumer in the same thread.
//!
//! Source: SCR (NSDI'25), section 4.3.2: one queue per flow and type; coalescing by accumulating, by keeping the latest
//! and by keeping the oldest. The depth, the bound of bytes and the behaviour of a full queue are OpenRNIC's.
//!
//! Restrictions: a record is never lost. A queue that is full folds into its newest record, whichever strategy it has.
//! A queue without records has no memory but its head: the records of all queues are in one [`Backlog`], so a thousand
//! idle flows cost what their heads cost.

use crate::signal::{KeptValue, Kind, Signal};

/// Number of records in a queue at which further ones are merged into the newest.
pub const QUEUE_DEPTH: u32 = 64;

/// Number of bytes in a merged TX record at which another record is started. Without this limit a record could contain
/// megabytes, and the rate of the flow would be decided once per millisecond.
pub const FOLDED_BYTES_MAX: u64 = 64 << 10;

/// Strategy for merging the records of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Records are merged only when the queue is full.
    None,
    /// Bytes and counts are summed.
    Accumulate,
    /// Records are merged, and the latest value is kept.
    Latest,
    /// Records are merged, and the oldest value is kept.
    Oldest,
    /// As [`Strategy::Accumulate`]; in addition, the processor does not run the program while the rate is stable
    /// ([`crate::Convergence`]).
    WhileStable,
}

impl Strategy {
    /// Returns the default strategy of a kind: counted signals are summed, measured ones are replaced.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Tx | Kind::Rx | Kind::Cnp | Kind::Ack | Kind::Nack => Self::Accumulate,
            Kind::Rtt | Kind::Hint | Kind::Bus | Kind::Nic | Kind::Credit | Kind::PeerBus | Kind::PeerNic => {
                Self::Latest
            }
        }
    }

    /// Returns which value a merged record keeps.
    #[inline]
    pub const fn kept_value(self) -> KeptValue {
        match self {
            Self::Oldest => KeptValue::Oldest,
            Self::None | Self::Accumulate | Self::Latest | Self::WhileStable => KeptValue::Latest,
        }
    }

    /// Returns `true` if `newer` is merged into `newest`, the newest record of a queue that is not full.
    #[inline]
    pub const fn folds(self, newest: &Signal, newer: &Signal) -> bool {
        match self {
            Self::None => false,
            Self::Accumulate | Self::Latest | Self::Oldest | Self::WhileStable => {
                !matches!(newer.kind, Kind::Tx) || newest.bytes.saturating_add(newer.bytes) <= FOLDED_BYTES_MAX
            }
        }
    }
}

/// The effect of a record on its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// The record was appended to the queue.
    Appended,
    /// The record was merged into the newest one.
    Folded,
}

/// End of a list of records.
const NO_RECORD: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    record: Signal,
    next: u32,
}

/// The records of many queues. Its memory grows to the maximum number of records that were queued at the same time, and
/// is reused.
#[derive(Debug)]
pub struct Backlog {
    nodes: Vec<Node>,
    free: u32,
    waiting: u32,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: NO_RECORD, waiting: 0 }
    }
}

impl Backlog {
    /// Creates a backlog with memory for `records` records.
    pub fn with_capacity(records: usize) -> Self {
        Self { nodes: Vec::with_capacity(records), ..Self::default() }
    }

    /// Returns the number of records that wait in all queues.
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns the memory used by the records in bytes.
    pub const fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    fn allocate(&mut self, record: Signal) -> u32 {
        self.waiting += 1;
        let node = Node { record, next: NO_RECORD };
        if self.free == NO_RECORD {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let number = self.free;
        self.free = self.nodes[number as usize].next;
        self.nodes[number as usize] = node;
        number
    }

    fn release(&mut self, number: u32) -> Node {
        self.waiting -= 1;
        let node = self.nodes[number as usize];
        self.nodes[number as usize].next = self.free;
        self.free = number;
        node
    }
}

/// The head of a queue, whose records are stored in a [`Backlog`]; all calls for a queue must pass the same backlog.
#[derive(Debug)]
pub struct Queue {
    oldest: u32,
    newest: u32,
    len: u32,
    strategy: Strategy,
}

impl Queue {
    /// Creates an empty queue.
    pub const fn new(strategy: Strategy) -> Self {
        Self { oldest: NO_RECORD, newest: NO_RECORD, len: 0, strategy }
    }

    /// Appends `record`, or merges it into the newest record.
    #[inline]
    pub fn push(&mut self, backlog: &mut Backlog, record: &Signal) -> Pushed {
        if self.len > 0 {
            let newest = &mut backlog.nodes[self.newest as usize].record;
            if self.len >= QUEUE_DEPTH || self.strategy.folds(newest, record) {
                newest.fold(record, self.strategy.kept_value());
                return Pushed::Folded;
            }
        }
        let number = backlog.allocate(*record);
        if self.len == 0 {
            self.oldest = number;
        } else {
            backlog.nodes[self.newest as usize].next = number;
        }
        self.newest = number;
        self.len += 1;
        Pushed::Appended
    }

    /// Removes and returns the oldest record.
    #[inline]
    pub fn take(&mut self, backlog: &mut Backlog) -> Option<Signal> {
        if self.len == 0 {
            return None;
        }
        let node = backlog.release(self.oldest);
        self.oldest = node.next;
        self.len -= 1;
        Some(node.record)
    }

    /// Removes all records and returns their number.
    pub fn clear(&mut self, backlog: &mut Backlog) -> u32 {
        let cleared = self.len;
        while self.take(backlog).is_some() {}
        cleared
    }

    /// Returns the number of records.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns `true` if there is no record.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the strategy.
    pub const fn strategy(&self) -> Strategy {
        self.strategy
    }
}

#[cfg(test)]
mod tests;
