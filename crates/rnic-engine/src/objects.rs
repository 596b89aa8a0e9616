//! Verbs objects that queue pairs share: protection domains, memory, completion queues, shared receive queues.
//!
//! They hold no references to queue pairs: they only count the queue pairs that use them. The transport code of a
//! queue pair accesses them through `Core`.

mod memory;
mod queues;
mod receives;

use std::collections::VecDeque;

use rnic_base::limits::QUEUES_MAX;
use rnic_base::prefetch_at;

use crate::PdId;
use crate::cq::Cq;
use crate::error::ResourceError;
use crate::event::AsyncEvent;
use crate::mr::MrTable;
use crate::srq::Srq;

/// Maximum number of asynchronous events not yet polled by the program. Beyond it, the oldest are dropped: the same
/// information is in the states of the queue pairs.
const EVENTS_MAX: usize = 4_096;

/// The verbs objects of an engine except its queue pairs, and the asynchronous events of all objects.
#[derive(Debug)]
pub struct Objects {
    pub(crate) mrs: MrTable,
    pub(crate) cqs: Vec<Option<Cq>>,
    pub(crate) srqs: Vec<Option<Srq>>,
    pds: Vec<Option<()>>,
    events: VecDeque<AsyncEvent>,
}

impl Objects {
    pub(crate) fn new(secret: u64) -> Self {
        Self { mrs: MrTable::new(secret), cqs: Vec::new(), srqs: Vec::new(), pds: Vec::new(), events: VecDeque::new() }
    }

    /// Prefetches the first memory regions and the first completion queue.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.mrs.prefetch();
        prefetch_at(&self.cqs, 0);
    }

    /// Prefetches the next completion of that queue; the step after [`Self::prefetch`].
    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        if let Some(Some(cq)) = self.cqs.first() {
            cq.prefetch();
        }
    }

    /// Creates a protection domain.
    ///
    /// # Errors
    /// When there are too many.
    pub fn create_pd(&mut self) -> Result<PdId, ResourceError> {
        insert(&mut self.pds, "protection domains", ()).map(|index| PdId(index as u32))
    }

    pub(crate) fn check_pd(&self, pd: PdId) -> Result<(), ResourceError> {
        if self.pds.get(pd.0 as usize).is_some_and(Option::is_some) {
            Ok(())
        } else {
            Err(ResourceError::Unknown("protection domain"))
        }
    }

    /// Destroys a protection domain that no queue pair belongs to.
    pub(crate) fn destroy_pd(&mut self, pd: PdId) -> Result<(), ResourceError> {
        let has_srq = self.srqs.iter().flatten().any(|srq| srq.pd == pd);
        if self.mrs.in_use(pd) || has_srq {
            return Err(ResourceError::Busy("protection domain"));
        }
        self.pds[pd.0 as usize] = None;
        Ok(())
    }

    /// Removes and returns the oldest event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    #[cold]
    pub(crate) fn raise_event(&mut self, event: AsyncEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// Checks a size against its limit.
pub(crate) fn check_size(what: &'static str, requested: u32, minimum: u32, limit: u32) -> Result<u32, ResourceError> {
    if (minimum..=limit).contains(&requested) {
        return Ok(requested);
    }
    let [requested, minimum, limit] = [requested, minimum, limit].map(u64::from);
    Err(ResourceError::Size { what, requested, minimum, limit })
}

/// Checks that a queue can be resized to `requested` entries while it contains `holds` entries.
fn check_resize(what: &'static str, requested: u32, holds: usize) -> Result<(), ResourceError> {
    if holds <= requested as usize {
        return Ok(());
    }
    Err(ResourceError::Holds { what, requested: u64::from(requested), holds: holds as u64 })
}

/// Stores `value` in the first free slot of `table`; returns its index.
fn insert<T>(table: &mut Vec<Option<T>>, what: &'static str, value: T) -> Result<usize, ResourceError> {
    let index = table.iter().position(Option::is_none).unwrap_or(table.len());
    if index == QUEUES_MAX as usize {
        return Err(ResourceError::Exhausted { what, limit: u64::from(QUEUES_MAX) });
    }
    if index == table.len() {
        table.push(None);
    }
    table[index] = Some(value);
    Ok(index)
}
