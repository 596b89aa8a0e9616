//! Shared receive queues.

use rnic_base::limits::{SGE_MAX, WORK_REQUESTS_MAX};

use crate::error::{PostError, ResourceError};
use crate::event::AsyncEvent;
use crate::objects::{Objects, check_resize, check_size, insert};
use crate::srq::{Srq, SrqInfo};
use crate::wr::RecvRequest;
use crate::{CqId, PdId, SrqId};

impl Objects {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// When a size is out of range, the protection domain does not exist, or there are too many.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, ResourceError> {
        self.check_pd(pd)?;
        check_size("number of shared receive queue entries", max_wr, 1, WORK_REQUESTS_MAX)?;
        check_size("number of scatter/gather entries", max_sge, 0, SGE_MAX as u32)?;
        insert(&mut self.srqs, "shared receive queues", Srq::new(pd, max_wr, max_sge)).map(SrqId::at)
    }

    /// Creates a shared receive queue of the XRC domain `domain`: messages to targets of that domain refer to it by its
    /// number, and complete in `cq`.
    ///
    /// # Errors
    /// As [`Objects::create_srq`], and when the completion queue does not exist.
    pub fn create_shared_srq(
        &mut self,
        pd: PdId,
        (domain, cq): (u32, CqId),
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqId, ResourceError> {
        if self.cqs.get(cq.0 as usize).is_none_or(Option::is_none) {
            return Err(ResourceError::Unknown("completion queue"));
        }
        let id = self.create_srq(pd, max_wr, max_sge)?;
        self.srq(id).shared = Some((domain, cq));
        self.count_cq_user(cq, 1);
        Ok(id)
    }

    /// Destroys a shared receive queue. Receives posted to it are discarded.
    ///
    /// # Errors
    /// When it does not exist or a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), ResourceError> {
        let slot = self.srqs.get_mut(srq.index()).filter(|slot| slot.is_some());
        let slot = slot.ok_or(ResourceError::Unknown("shared receive queue"))?;
        if slot.as_ref().is_some_and(|srq| srq.users > 0) {
            return Err(ResourceError::Busy("shared receive queue"));
        }
        let shared = slot.as_ref().and_then(|srq| srq.shared);
        *slot = None;
        if let Some((_, cq)) = shared {
            self.count_cq_user(cq, -1);
        }
        // Its number may be reused by another queue, to which these events do not apply.
        self.events.retain(|event| *event != AsyncEvent::SrqLimitReached(srq));
        Ok(())
    }

    /// Changes the capacity of a shared receive queue. Posted receives and the limit are kept.
    ///
    /// # Errors
    /// When it does not exist, holds more than `max_wr`, has a higher limit, or the size is out of range. Nothing has
    /// changed then.
    pub fn resize_srq(&mut self, srq: SrqId, max_wr: u32) -> Result<(), ResourceError> {
        let queue = self.srqs.get_mut(srq.index()).and_then(Option::as_mut);
        let queue = queue.ok_or(ResourceError::Unknown("shared receive queue"))?;
        check_size("number of shared receive queue entries", max_wr, 1, WORK_REQUESTS_MAX)?;
        check_resize("shared receive queue entries", max_wr, queue.len())?;
        check_resize("shared receive queue entries", max_wr, queue.limit() as usize)?;
        queue.set_capacity(max_wr);
        Ok(())
    }

    /// Requests one [`crate::AsyncEvent::SrqLimitReached`] when fewer than `limit` receives are posted.
    ///
    /// # Errors
    /// When it does not exist or its capacity is less than `limit`.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), ResourceError> {
        let slot = self.srqs.get_mut(srq.index()).and_then(Option::as_mut);
        let queue = slot.ok_or(ResourceError::Unknown("shared receive queue"))?;
        check_size("shared receive queue limit", limit, 0, queue.info().max_wr)?;
        queue.set_limit(limit);
        Ok(())
    }

    /// Returns the number of receives posted to `srq`.
    pub fn srq_level(&self, srq: SrqId) -> Option<usize> {
        self.srqs.get(srq.index())?.as_ref().map(Srq::len)
    }

    /// Returns the attributes of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Option<SrqInfo> {
        self.srqs.get(srq.index())?.as_ref().map(Srq::info)
    }

    /// Queues a receive request on a shared receive queue.
    ///
    /// # Errors
    /// When the queue is full or does not exist, or the request exceeds a limit.
    pub fn post_srq_recv(&mut self, srq: SrqId, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let queue = self.srqs.get_mut(srq.index()).and_then(Option::as_mut).ok_or(PostError::UnknownSrq)?;
        if queue.is_full() {
            return Err(PostError::QueueFull);
        }
        if request.sges.len() > queue.sges_max() {
            return Err(PostError::TooManySges { requested: request.sges.len(), limit: queue.sges_max() });
        }
        queue.post(request.wr_id, request.sges);
        Ok(())
    }

    pub(crate) fn release_srq(&mut self, srq: Option<SrqId>) {
        if let Some(id) = srq {
            self.srq(id).users -= 1;
        }
    }

    pub(crate) fn srq(&mut self, id: SrqId) -> &mut Srq {
        self.srqs[id.index()].as_mut().expect("a queue pair keeps its shared receive queue alive")
    }
}
