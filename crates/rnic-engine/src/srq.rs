//! Shared receive queues: one pool of receives for many queue pairs.

use std::collections::VecDeque;

use crate::wr::Sge;
use crate::{CqId, PdId, SrqId};

/// Attributes of a shared receive queue that a program can query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqInfo {
    /// Maximum number of entries.
    pub max_wr: u32,
    /// Maximum number of scatter/gather entries of each.
    pub max_sge: u32,
    /// Number of entries below which an event is raised; 0 when no event is armed.
    pub limit: u32,
    /// Number of entries posted and not claimed by a queue pair.
    pub posted: usize,
}

/// Receives that any queue pair of the same domain may claim, in the order in which they were posted.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    entries: VecDeque<Entry>,
    /// Scatter/gather lists of the entries, `sges_each` per entry, in the same order as `entries`.
    sges: VecDeque<Sge>,
    sges_each: usize,
    capacity: usize,
    /// Number of entries below which an event is raised; zero when disarmed.
    limit: u32,
    /// Number of queue pairs that consume from this queue.
    pub(crate) users: u32,
    /// For a queue of extended reliable connections: its XRC domain, and the completion queue of its receives.
    pub(crate) shared: Option<(u32, CqId)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    wr_id: u64,
    sge_count: u8,
}

impl Srq {
    pub(crate) fn new(pd: PdId, capacity: u32, sges_each: u32) -> Self {
        Self {
            pd,
            entries: VecDeque::with_capacity(capacity as usize),
            sges: VecDeque::with_capacity(capacity as usize * sges_each as usize),
            sges_each: sges_each as usize,
            capacity: capacity as usize,
            limit: 0,
            users: 0,
            shared: None,
        }
    }

    pub(crate) fn sges_max(&self) -> usize {
        self.sges_each
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn post(&mut self, wr_id: u64, sges: &[Sge]) {
        self.entries.push_back(Entry { wr_id, sge_count: sges.len() as u8 });
        self.sges.extend(sges);
        self.sges.extend(std::iter::repeat_n(Sge::default(), self.sges_each - sges.len()));
    }

    /// Sets the capacity to `capacity` entries, which must be no fewer than are posted, and reserves space for them.
    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity as usize;
        self.entries.reserve(self.capacity - self.entries.len());
        self.sges.reserve((self.capacity - self.entries.len()) * self.sges_each);
    }

    pub(crate) fn info(&self) -> SrqInfo {
        SrqInfo { max_wr: self.capacity as u32, max_sge: self.sges_each as u32, limit: self.limit, posted: self.len() }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Passes the oldest receive to `claim`; returns whether that reached the limit, or `None` when there was no
    /// receive.
    pub(crate) fn take(&mut self, claim: impl FnOnce(u64, &[Sge])) -> Option<LimitReached> {
        let entry = self.entries.pop_front()?;
        let mut sges = [Sge::default(); rnic_base::limits::SGE_MAX];
        for (slot, sge) in sges.iter_mut().zip(self.sges.drain(..self.sges_each)) {
            *slot = sge;
        }
        claim(entry.wr_id, &sges[..entry.sge_count as usize]);
        let is_limit_reached = self.limit > 0 && (self.entries.len() as u32) < self.limit;
        if is_limit_reached {
            // The event is one-shot (IBA 10.2.9.3): setting a limit arms it again.
            self.limit = 0;
        }
        Some(LimitReached(is_limit_reached))
    }
}

/// True when a claim took a shared receive queue below its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitReached(pub(crate) bool);

/// State that only the target of an extended reliable connection has. Stored in the engine rather than in the queue
/// pair, so that it takes no space in other queue pairs.
#[derive(Debug)]
pub(crate) struct Target {
    /// XRC domain of the target.
    pub(crate) domain: u32,
    /// Shared receive queue of the current message.
    pub(crate) current: Option<SrqId>,
}

impl Target {
    pub(crate) fn new(domain: u32) -> Self {
        Self { domain, current: None }
    }
}
