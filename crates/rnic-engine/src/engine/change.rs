//! Changing what exists: sizes of queues, and what a key grants.

use std::sync::Arc;

use rnic_base::limits::{COMPLETIONS_MAX, WORK_REQUESTS_MAX};
use rnic_wire::Qpn;

use super::Engine;
use super::setup::size;
use crate::error::{MemoryError, ModifyError, PostError, ResourceError};
use crate::mr::windows::WindowKind;
use crate::mr::{Key, MemoryRegion};
use crate::srq::{Srq, SrqInfo};
use crate::state::QpState;
use crate::state::Service;
use crate::transport::Transport;
use crate::wr::SendRequest;
use crate::{CqId, PdId, SrqId};

impl Engine {
    /// Gives a reliable connection another transport before it is connected: the one that both ends have found out to
    /// have in common. Legal in states `Reset` and `Init`; what has been posted stays.
    ///
    /// # Errors
    /// When it does not exist, is connected, is of another service, or one of both transports is Falcon, whose queue
    /// pairs are made of something else.
    pub fn set_transport(&mut self, qpn: Qpn, transport: &Arc<Transport>) -> Result<(), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        let from = qp.verbs.head.state;
        if !matches!(from, QpState::Reset | QpState::Init) {
            return Err(ModifyError::Transition { from, to: QpState::Init });
        }
        qp.check_roce()?;
        if transport.falcon().is_some() {
            return Err(ModifyError::Service(Service::ReliableConnection));
        }
        qp.set_transport(transport);
        Ok(())
    }

    /// Makes a completion queue larger or smaller. What is in it stays.
    ///
    /// # Errors
    /// When it does not exist, holds more than `capacity`, or the capacity is out of range. Nothing has changed then.
    pub fn resize_cq(&mut self, cq: CqId, capacity: u32) -> Result<(), ResourceError> {
        let queue = self.core.cqs.get_mut(cq.0 as usize).and_then(Option::as_mut);
        let queue = queue.ok_or(ResourceError::Unknown("completion queue"))?;
        size("completion queue entries", capacity, 1, COMPLETIONS_MAX)?;
        fits("completion queue entries", capacity, queue.len())?;
        queue.set_capacity(capacity);
        Ok(())
    }

    /// Makes a shared receive queue larger or smaller. What is posted stays, and so does the limit.
    ///
    /// # Errors
    /// When it does not exist, holds more than `max_wr`, has a higher limit, or the size is out of range. Nothing has
    /// changed then.
    pub fn resize_srq(&mut self, srq: SrqId, max_wr: u32) -> Result<(), ResourceError> {
        let queue = self.core.srqs.get_mut(srq.index()).and_then(Option::as_mut);
        let queue = queue.ok_or(ResourceError::Unknown("shared receive queue"))?;
        size("shared receive queue entries", max_wr, 1, WORK_REQUESTS_MAX)?;
        fits("shared receive queue entries", max_wr, queue.len())?;
        fits("shared receive queue entries", max_wr, queue.limit() as usize)?;
        queue.set_capacity(max_wr);
        Ok(())
    }

    /// What there is to know about a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Option<SrqInfo> {
        self.core.srqs.get(srq.index())?.as_ref().map(Srq::info)
    }

    /// Changes where a key leads and what it grants: `ibv_rereg_mr`. The key stays, and requests under way see the
    /// change.
    ///
    /// # Errors
    /// When no region has this key, or the range or the rights make no sense. Nothing has changed then.
    pub fn reregister(&mut self, key: Key, region: MemoryRegion) -> Result<MemoryRegion, MemoryError> {
        self.core.mrs.reregister(key, region)
    }

    /// Makes a shared receive queue of the XRC domain `domain`: messages to targets of that domain name it by its
    /// number, and complete in `cq`.
    ///
    /// # Errors
    /// As [`Engine::create_srq`], and when the completion queue does not exist.
    pub fn create_shared_srq(
        &mut self,
        pd: PdId,
        (domain, cq): (u32, CqId),
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqId, ResourceError> {
        if self.core.cqs.get(cq.0 as usize).is_none_or(Option::is_none) {
            return Err(ResourceError::Unknown("completion queue"));
        }
        let id = self.create_srq(pd, max_wr, max_sge)?;
        self.core.srq(id).shared = Some((domain, cq));
        self.count_cq_user(cq, 1);
        Ok(id)
    }

    /// Makes a new queue pair the target of an extended reliable connection: its messages take their receives from
    /// shared receive queues of the XRC domain `domain`.
    ///
    /// # Errors
    /// When it is not there, in another state than `Reset`, or not a reliable connection of the RoCE family.
    pub fn make_target(&mut self, qpn: Qpn, domain: u32) -> Result<(), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.check_roce()?;
        let from = qp.verbs.head.state;
        if from != QpState::Reset {
            return Err(ModifyError::Transition { from, to: QpState::Reset });
        }
        qp.make_target(&mut self.core, domain);
        Ok(())
    }

    /// As [`Engine::post_send`], to the target of an extended reliable connection: what takes a receive there takes it
    /// from the shared receive queue with the number `srqn`.
    ///
    /// # Errors
    /// As there.
    pub fn post_send_shared(&mut self, qpn: Qpn, request: &SendRequest<'_>, srqn: u32) -> Result<(), PostError> {
        let qp = self.qps.find_mut(qpn).ok_or(PostError::UnknownQp)?;
        qp.post_send(&mut self.core, request, srqn)
    }

    /// Makes a memory window of `pd`, which grants nothing until it is bound ([`crate::SendOp::Bind`]); answers its
    /// first key.
    ///
    /// # Errors
    /// When the protection domain does not exist or there are too many.
    pub fn allocate_window(&mut self, pd: PdId, kind: WindowKind) -> Result<Key, MemoryError> {
        self.check_pd(pd).map_err(|_| MemoryError::UnknownDomain)?;
        self.core.mrs.allocate_window(pd, kind, None)
    }

    /// Makes a memory window whose keys begin with the upper 24 bits of `key`, for bodies that face a network, as
    /// [`Engine::register_as`].
    ///
    /// # Errors
    /// As [`Engine::allocate_window`], and when those bits are 0 or taken: then others are to be drawn.
    pub fn allocate_window_as(&mut self, key: Key, pd: PdId, kind: WindowKind) -> Result<Key, MemoryError> {
        self.check_pd(pd).map_err(|_| MemoryError::UnknownDomain)?;
        self.core.mrs.allocate_window(pd, kind, Some(key))
    }

    /// Ends a memory window, bound or not; any key that it has had names it.
    ///
    /// # Errors
    /// When there is none.
    pub fn free_window(&mut self, key: Key) -> Result<(), MemoryError> {
        self.core.mrs.free_window(key)
    }

    /// The kind of the memory window that `key` is or was a key of.
    pub fn window_kind(&self, key: Key) -> Option<WindowKind> {
        self.core.mrs.windows().kind(key.0)
    }

    /// Returns whether memory windows are bound to the region with `key`.
    pub fn has_windows(&self, key: Key) -> bool {
        self.core.mrs.windows().hold(key.0)
    }
}

/// Checks that a queue of `asked` entries has room for what the present one `holds`.
fn fits(what: &'static str, asked: u32, holds: usize) -> Result<(), ResourceError> {
    if holds <= asked as usize {
        return Ok(());
    }
    Err(ResourceError::Holds { what, asked: u64::from(asked), holds: holds as u64 })
}
