//! Shared receive queues: one store of receives for many queue pairs.

use std::collections::VecDeque;

use crate::wr::Sge;
use crate::{CqId, PdId, SrqId};

/// What can be asked about a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqInfo {
    /// Entries, at most.
    pub max_wr: u32,
    /// Scatter/gather entries of each, at most.
    pub max_sge: u32,
    /// Below how many there will be an event; 0 when there will be none.
    pub limit: u32,
    /// Entries that are posted and not claimed by a queue pair.
    pub posted: usize,
}

/// Receives that any queue pair of the same domain may claim, in the order in which they were posted.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    entries: VecDeque<Entry>,
    /// Scatter/gather lists of the entries, `sges_each` apiece, in step with `entries`.
    sges: VecDeque<Sge>,
    sges_each: usize,
    capacity: usize,
    /// Raise an event when fewer are left; zero when disarmed.
    limit: u32,
    /// Queue pairs that take from here.
    pub(crate) users: u32,
    /// Of a queue of extended reliable connections: its XRC domain, and where what it receives completes.
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

    pub(crate) fn sge_limit(&self) -> usize {
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

    /// Room for `capacity` entries, which are no fewer than there are.
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

    /// Hands the oldest receive to `claim`; answers whether there was one, and whether the limit was reached by it.
    pub(crate) fn take(&mut self, claim: impl FnOnce(u64, &[Sge])) -> Option<LimitReached> {
        let entry = self.entries.pop_front()?;
        let mut sges = [Sge::default(); rnic_base::limits::SGE_MAX];
        for (slot, sge) in sges.iter_mut().zip(self.sges.drain(..self.sges_each)) {
            *slot = sge;
        }
        claim(entry.wr_id, &sges[..entry.sge_count as usize]);
        let reached = self.limit > 0 && (self.entries.len() as u32) < self.limit;
        if reached {
            // The event is one-shot (IBA 10.2.9.3): armed again by setting a limit.
            self.limit = 0;
        }
        Some(LimitReached(reached))
    }
}

/// Whether a claim took a shared receive queue below its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitReached(pub(crate) bool);

/// State that only the target of an extended reliable connection has. The engine keeps it, so that other
/// queue pairs are no larger.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its XRC domain.
    pub(crate) domain: u32,
    /// The queue of the message under way.
    pub(crate) current: Option<SrqId>,
}

impl Target {
    pub(crate) fn new(domain: u32) -> Self {
        Self { domain, current: None }
    }
}
