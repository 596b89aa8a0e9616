//! Verbs objects that queue pairs share: protection domains, memory, completion queues, shared receive queues.
//!
//! They hold no references to queue pairs: a queue pair that uses an object is counted, and carriers access the objects
//! through `Core`.

mod memory;
mod queues;
mod receives;

use std::collections::VecDeque;

use rnic_base::limits::QUEUES_MAX;

use crate::PdId;
use crate::cq::Cq;
use crate::error::ResourceError;
use crate::event::AsyncEvent;
use crate::mr::MrTable;
use crate::srq::Srq;

/// Maximum number of events that wait for their owner. When exceeded, the oldest are dropped: queue pair states carry
/// the same information.
const EVENTS_MAX: usize = 4_096;

/// The verbs objects of an engine other than its queue pairs, and the events of all of them.
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

    /// Creates a protection domain.
    ///
    /// # Errors
    /// When there are too many.
    pub fn create_pd(&mut self) -> Result<PdId, ResourceError> {
        place(&mut self.pds, "protection domains", ()).map(|index| PdId(index as u32))
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
    pub(crate) fn notice(&mut self, event: AsyncEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// Checks a size against its limit.
pub(crate) fn size(what: &'static str, asked: u32, least: u32, limit: u32) -> Result<u32, ResourceError> {
    if (least..=limit).contains(&asked) {
        return Ok(asked);
    }
    let [asked, least, limit] = [asked, least, limit].map(u64::from);
    Err(ResourceError::Size { what, asked, least, limit })
}

/// Checks that a queue of `asked` entries has space for the `holds` entries of the current one.
fn fits(what: &'static str, asked: u32, holds: usize) -> Result<(), ResourceError> {
    if holds <= asked as usize {
        return Ok(());
    }
    Err(ResourceError::Holds { what, asked: u64::from(asked), holds: holds as u64 })
}

/// Stores `value` in the first free slot of `table`; returns its index.
fn place<T>(table: &mut Vec<Option<T>>, what: &'static str, value: T) -> Result<usize, ResourceError> {
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
