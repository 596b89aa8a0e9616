//! Completion queues.

use rnic_base::limits::COMPLETIONS_MAX;
use rnic_wire::Qpn;

use crate::CqId;
use crate::completion::Completion;
use crate::cq::{Cq, Notify};
use crate::error::ResourceError;
use crate::objects::{Objects, check_resize, check_size, insert};

impl Objects {
    /// Creates a completion queue for `capacity` completions.
    ///
    /// # Errors
    /// When the capacity is out of range or there are too many.
    pub fn create_cq(&mut self, capacity: u32) -> Result<CqId, ResourceError> {
        let cq = Cq::new(check_size("number of completion queue entries", capacity, 1, COMPLETIONS_MAX)?);
        insert(&mut self.cqs, "completion queues", cq).map(|index| CqId(index as u32))
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// When it does not exist or a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), ResourceError> {
        let slot = self.cqs.get_mut(cq.0 as usize).filter(|slot| slot.is_some());
        let slot = slot.ok_or(ResourceError::Unknown("completion queue"))?;
        if slot.as_ref().is_some_and(|cq| cq.users > 0) {
            return Err(ResourceError::Busy("completion queue"));
        }
        *slot = None;
        Ok(())
    }

    /// Changes the capacity of a completion queue. Completions not yet polled are kept.
    ///
    /// # Errors
    /// When it does not exist, holds more than `capacity`, or the capacity is out of range. Nothing has changed then.
    pub fn resize_cq(&mut self, cq: CqId, capacity: u32) -> Result<(), ResourceError> {
        let queue = self.cqs.get_mut(cq.0 as usize).and_then(Option::as_mut);
        let queue = queue.ok_or(ResourceError::Unknown("completion queue"))?;
        check_size("number of completion queue entries", capacity, 1, COMPLETIONS_MAX)?;
        check_resize("completion queue entries", capacity, queue.len())?;
        queue.set_capacity(capacity);
        Ok(())
    }

    /// Requests one [`crate::AsyncEvent::CqNotify`] at the next completion, or at the next solicited or failed one.
    pub fn request_notify(&mut self, cq: CqId, solicited_only: bool) {
        if let Some(Some(cq)) = self.cqs.get_mut(cq.0 as usize) {
            cq.request_notify(if solicited_only { Notify::Solicited } else { Notify::Next });
        }
    }

    /// Returns the number of completions that wait in `cq`, and whether it has overflowed.
    pub fn cq_level(&self, cq: CqId) -> Option<(usize, bool)> {
        self.cqs.get(cq.0 as usize)?.as_ref().map(|cq| (cq.len(), cq.is_overrun()))
    }

    /// Moves completions from `cq` to `into`; returns their number.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, into: &mut [Completion]) -> usize {
        self.cqs.get_mut(cq.0 as usize).and_then(Option::as_mut).map_or(0, |cq| cq.poll(into))
    }

    /// Removes and returns one completion of `cq`.
    #[inline]
    pub fn poll_cq_one(&mut self, cq: CqId) -> Option<Completion> {
        self.cqs.get_mut(cq.0 as usize)?.as_mut()?.pop()
    }

    /// Removes the completions of `qpn` from all completion queues: for a queue pair that is reset or destroyed, and
    /// whose completions the program must not receive any more.
    pub fn forget_completions(&mut self, qpn: Qpn) {
        for cq in self.cqs.iter_mut().flatten() {
            cq.forget(qpn);
        }
    }

    /// Creates the completion queue of the flows of the queue pair in `slot`.
    pub(crate) fn create_cq_of_flows(&mut self, capacity: u32, slot: u32) -> Result<CqId, ResourceError> {
        let id = self.create_cq(capacity)?;
        if let Some(Some(cq)) = self.cqs.get_mut(id.0 as usize) {
            cq.serve_flows_of(slot);
        }
        Ok(id)
    }

    /// Returns the slot of the queue pair whose flows use `cq`, if it is the queue of flows.
    pub(crate) fn flows_of(&self, cq: CqId) -> Option<u32> {
        self.cqs.get(cq.0 as usize)?.as_ref()?.flows_of()
    }

    pub(crate) fn count_cq_users(&mut self, send_cq: CqId, recv_cq: CqId, delta: i32) {
        for cq in [send_cq, recv_cq] {
            self.count_cq_user(cq, delta);
        }
    }

    pub(crate) fn count_cq_user(&mut self, cq: CqId, delta: i32) {
        if let Some(Some(cq)) = self.cqs.get_mut(cq.0 as usize) {
            cq.users = cq.users.saturating_add_signed(delta);
        }
    }
}
