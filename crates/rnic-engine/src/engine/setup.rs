//! Making, changing and ending resources: the slow path.

use rnic_base::Time;
use rnic_base::limits::{
    COMPLETIONS_MAX, MTU_MAX, MTU_MIN, QUEUES_MAX, READS_IN_PROGRESS_MAX, SGE_MAX, WORK_REQUESTS_MAX,
};
use rnic_policy::AdaptivePlace;
use rnic_wire::{Qpn, RnrTimer};

use super::Engine;
use super::nvme::{check_mtu_of, check_role, namespace_of};
use crate::config::{QpAttributes, QpConnection, QpTiming};
use crate::core::Core;
use crate::cq::{Cq, Notify};
use crate::error::{MemoryError, ModifyError, ResourceError};
use crate::event::AsyncEvent;
use crate::falcon::Nic;
use crate::mr::{Access, Key, MemoryRegion};
use crate::namespace::NvmeRole;
use crate::qp::{Qp, QpInfo};
use crate::srq::Srq;
use crate::state::{QpState, Service};
use crate::{CqId, PdId, PeerId, SrqId};

/// Checks a size against its limit.
pub(super) fn size(what: &'static str, asked: u32, least: u32, limit: u32) -> Result<u32, ResourceError> {
    if (least..=limit).contains(&asked) {
        return Ok(asked);
    }
    let [asked, least, limit] = [asked, least, limit].map(u64::from);
    Err(ResourceError::Size { what, asked, least, limit })
}

/// Checks an attribute against its range.
fn attribute(what: &'static str, asked: u32, min: u32, max: u32) -> Result<(), ModifyError> {
    if (min..=max).contains(&asked) {
        return Ok(());
    }
    let [asked, min, max] = [asked, min, max].map(u64::from);
    Err(ModifyError::Attribute { what, asked, min, max, step: 1 })
}

/// Full packets are not padded: what RoCE's headers count is words of 4 bytes.
const MTU_STEP: u32 = 4;

/// Checks a path MTU.
fn check_mtu(mtu: u32) -> Result<(), ModifyError> {
    let fits = (MTU_MIN..=MTU_MAX).contains(&mtu) && mtu.is_multiple_of(MTU_STEP);
    let [asked, min, max, step] = [mtu, MTU_MIN, MTU_MAX, MTU_STEP].map(u64::from);
    if fits { Ok(()) } else { Err(ModifyError::Attribute { what: "path MTU", asked, min, max, step }) }
}

/// Puts `value` into the first free slot of `table`; answers which.
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

impl Engine {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// When there are too many.
    pub fn create_pd(&mut self) -> Result<PdId, ResourceError> {
        place(&mut self.pds, "protection domains", ()).map(|index| PdId(index as u32))
    }

    /// Ends a protection domain.
    ///
    /// # Errors
    /// When it does not exist or a memory region still belongs to it.
    pub fn destroy_pd(&mut self, pd: PdId) -> Result<(), ResourceError> {
        self.check_pd(pd)?;
        let has_srq = self.core.srqs.iter().flatten().any(|srq| srq.pd == pd);
        if self.core.mrs.in_use(pd) || has_srq || self.qps.iter_mut().any(|qp| qp.verbs.head.pd == pd) {
            return Err(ResourceError::Busy("protection domain"));
        }
        self.pds[pd.0 as usize] = None;
        Ok(())
    }

    pub(super) fn check_pd(&self, pd: PdId) -> Result<(), ResourceError> {
        if self.pds.get(pd.0 as usize).is_some_and(Option::is_some) {
            Ok(())
        } else {
            Err(ResourceError::Unknown("protection domain"))
        }
    }

    /// Registers memory: from now on, keys grant what `region` says. The key is made from the engine's secret.
    ///
    /// # Errors
    /// When the range or the rights make no sense.
    pub fn register(&mut self, region: MemoryRegion) -> Result<Key, MemoryError> {
        self.core.mrs.register(region, None)
    }

    /// Registers memory under a key of the caller's: bodies that face a network draw it from a generator that nobody
    /// can predict. Keys of [`Engine::register`] can be computed from eight others.
    ///
    /// # Errors
    /// As [`Engine::register`], and when the key is 0 or taken: then another one is to be drawn.
    pub fn register_as(&mut self, key: Key, region: MemoryRegion) -> Result<Key, MemoryError> {
        self.core.mrs.register(region, Some(key))
    }

    /// Takes a registration back. Requests that use it fail.
    ///
    /// # Errors
    /// When no region has this key.
    pub fn deregister(&mut self, key: Key) -> Result<MemoryRegion, MemoryError> {
        self.core.mrs.deregister(key)
    }

    /// Makes a completion queue for `capacity` completions.
    ///
    /// # Errors
    /// When the capacity is out of range or there are too many.
    pub fn create_cq(&mut self, capacity: u32) -> Result<CqId, ResourceError> {
        let cq = Cq::new(size("completion queue entries", capacity, 1, COMPLETIONS_MAX)?);
        place(&mut self.core.cqs, "completion queues", cq).map(|index| CqId(index as u32))
    }

    /// Takes the completions of `qpn` out of all completion queues: for one that is reset or destroyed, and whose
    /// completions the program shall not meet any more.
    pub fn forget_completions(&mut self, qpn: Qpn) {
        for cq in self.core.cqs.iter_mut().flatten() {
            cq.forget(qpn);
        }
    }

    /// Ends a completion queue.
    ///
    /// # Errors
    /// When it does not exist or a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), ResourceError> {
        let slot = self.core.cqs.get_mut(cq.0 as usize).filter(|slot| slot.is_some());
        let slot = slot.ok_or(ResourceError::Unknown("completion queue"))?;
        if slot.as_ref().is_some_and(|cq| cq.users > 0) {
            return Err(ResourceError::Busy("completion queue"));
        }
        *slot = None;
        Ok(())
    }

    /// Asks for one [`crate::AsyncEvent::CqNotify`] at the next completion, or the next solicited or failed one.
    pub fn request_notify(&mut self, cq: CqId, solicited_only: bool) {
        if let Some(Some(cq)) = self.core.cqs.get_mut(cq.0 as usize) {
            cq.request_notify(if solicited_only { Notify::Solicited } else { Notify::Next });
        }
    }

    /// How many completions wait in `cq`, and whether it has overflowed.
    pub fn cq_level(&self, cq: CqId) -> Option<(usize, bool)> {
        self.core.cqs.get(cq.0 as usize)?.as_ref().map(|cq| (cq.len(), cq.is_overrun()))
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// When a size is out of range, the protection domain does not exist, or there are too many.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, ResourceError> {
        self.check_pd(pd)?;
        size("shared receive queue entries", max_wr, 1, WORK_REQUESTS_MAX)?;
        size("scatter/gather entries", max_sge, 0, SGE_MAX as u32)?;
        place(&mut self.core.srqs, "shared receive queues", Srq::new(pd, max_wr, max_sge)).map(SrqId::at)
    }

    /// Ends a shared receive queue. What is posted to it is forgotten.
    ///
    /// # Errors
    /// When it does not exist or a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), ResourceError> {
        let slot = self.core.srqs.get_mut(srq.index()).filter(|slot| slot.is_some());
        let slot = slot.ok_or(ResourceError::Unknown("shared receive queue"))?;
        if slot.as_ref().is_some_and(|srq| srq.users > 0) {
            return Err(ResourceError::Busy("shared receive queue"));
        }
        let shared = slot.as_ref().and_then(|srq| srq.shared);
        *slot = None;
        if let Some((_, cq)) = shared {
            self.count_cq_user(cq, -1);
        }
        // Its number may be the next one's, whom they are not about.
        self.core.events.retain(|event| *event != AsyncEvent::SrqLimitReached(srq));
        Ok(())
    }

    /// Asks for one [`crate::AsyncEvent::SrqLimitReached`] when fewer than `limit` receives are posted.
    ///
    /// # Errors
    /// When it does not exist or cannot hold as many.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), ResourceError> {
        let slot = self.core.srqs.get_mut(srq.index()).and_then(Option::as_mut);
        let queue = slot.ok_or(ResourceError::Unknown("shared receive queue"))?;
        size("shared receive queue limit", limit, 0, queue.info().max_wr)?;
        queue.set_limit(limit);
        Ok(())
    }

    /// How many receives are posted to `srq`.
    pub fn srq_level(&self, srq: SrqId) -> Option<usize> {
        self.core.srqs.get(srq.index())?.as_ref().map(Srq::len)
    }

    /// Makes a queue pair, in state `Reset`; answers its number.
    ///
    /// # Errors
    /// When a size is out of range, something it refers to does not exist, or the number is taken; when its transport
    /// was given other resources than Falcon's queue pairs of this engine have, or a thread that there is not; when it
    /// shall be NVMe's and cannot be.
    pub fn create_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        self.check_pd(attributes.pd)?;
        size("send queue entries", attributes.max_send_wr, 0, WORK_REQUESTS_MAX)?;
        size("receive queue entries", attributes.max_recv_wr, 0, WORK_REQUESTS_MAX)?;
        size("send scatter/gather entries", attributes.max_send_sge, 0, SGE_MAX as u32)?;
        size("receive scatter/gather entries", attributes.max_recv_sge, 0, SGE_MAX as u32)?;
        let falcon = attributes.transport.falcon().filter(|_| attributes.service == Service::ReliableConnection);
        if let (Some(shape), Some(nic)) = (falcon, &self.falcon) {
            nic.check(shape)?;
        }
        let on_thread = falcon.is_some_and(|shape| shape.fae_place == AdaptivePlace::Thread);
        if on_thread && self.core.config.adaptive_thread.is_none() {
            return Err(ResourceError::NoAdaptiveThread);
        }
        check_role(&self.core, attributes)?;
        let mut attributes = attributes.clone();
        let lives = |cq: CqId| self.core.cqs.get(cq.0 as usize).is_some_and(Option::is_some);
        if !lives(attributes.send_cq) || !lives(attributes.recv_cq) {
            return Err(ResourceError::Unknown("completion queue"));
        }
        if let Some(id) = attributes.srq {
            let srq = self.core.srqs.get_mut(id.index()).and_then(Option::as_mut);
            let srq =
                srq.filter(|srq| srq.pd == attributes.pd).ok_or(ResourceError::Unknown("shared receive queue"))?;
            // Receives are claimed with their whole list.
            attributes.max_recv_sge = srq.sge_limit() as u32;
            srq.users += 1;
        }
        let watch = &mut self.core.watch;
        let number = self.qps.insert(attributes.number, |number, slot| {
            watch.start(slot);
            Qp::new(number, slot, &attributes)
        });
        match number {
            Ok(_) => {
                self.count_cq_users(attributes.send_cq, attributes.recv_cq, 1);
                if let Some(NvmeRole::Target(namespace)) = attributes.nvme {
                    self.core.drives.count_user(namespace, 1);
                }
                if let Some(shape) = falcon {
                    self.falcon.get_or_insert_with(|| Box::new(Nic::new(shape))).join(shape);
                }
            }
            Err(_) => self.release_srq(attributes.srq),
        }
        number
    }

    /// Ends a queue pair in any state. What is posted is forgotten, without completions, as in verbs.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ResourceError> {
        let mut qp = self.qps.remove(qpn).ok_or(ResourceError::Unknown("queue pair"))?;
        qp.leave(&mut self.core, self.falcon.as_deref_mut());
        self.core.mrs.leave_qp(qpn);
        self.core.targets.remove(&qpn.get());
        if let Some(nic) = self.falcon.as_mut().filter(|_| qp.falcon().is_some()) {
            nic.part();
        }
        if let Some(namespace) = namespace_of(&qp) {
            self.core.drives.count_user(namespace, -1);
        }
        let head = &qp.verbs.head;
        self.count_cq_users(head.send_cq, head.recv_cq, -1);
        self.release_srq(head.srq);
        Ok(())
    }

    fn count_cq_users(&mut self, send: CqId, recv: CqId, by: i32) {
        for cq in [send, recv] {
            self.count_cq_user(cq, by);
        }
    }

    pub(super) fn count_cq_user(&mut self, cq: CqId, by: i32) {
        if let Some(Some(cq)) = self.core.cqs.get_mut(cq.0 as usize) {
            cq.users = cq.users.saturating_add_signed(by);
        }
    }

    fn release_srq(&mut self, srq: Option<SrqId>) {
        if let Some(id) = srq {
            self.core.srq(id).users -= 1;
        }
    }

    /// What there is to know about a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        self.qps.find(qpn).map(Qp::info)
    }

    /// How many more requests the send queue of `qpn` takes.
    pub fn send_queue_room(&self, qpn: Qpn) -> Option<u32> {
        self.qps.find(qpn).map(|qp| qp.verbs.send.queue.room())
    }

    /// Bounds the packets under way to `peer`, over all queue pairs, to what its receive buffer takes; `None` lifts the
    /// bound. Packets of unreliable services count too, and it is the caller who must say when they have arrived:
    /// [`Engine::settle`].
    pub fn set_peer_limit(&mut self, peer: PeerId, packets: Option<u64>) {
        self.core.peers.set_limit(peer, packets);
        self.core.pass_on_room(peer);
    }

    /// The bound that [`Engine::set_peer_limit`] has set.
    #[inline]
    pub fn peer_limit(&self, peer: PeerId) -> Option<u64> {
        self.core.peers.limit(peer)
    }

    /// Packets of unreliable services to `peer` have arrived, or are given up: others may use their room. Nobody
    /// acknowledges them, so only the body can know.
    #[inline]
    pub fn settle(&mut self, peer: PeerId, packets: u64) {
        self.core.settle(peer, packets);
    }

    /// Returns a queue pair that may become `to`.
    fn change(&mut self, qpn: Qpn, to: QpState) -> Result<(&mut Core, &mut Qp), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        let from = qp.verbs.head.state;
        if !from.may_become(to) {
            return Err(ModifyError::Transition { from, to });
        }
        Ok((&mut self.core, qp))
    }

    /// `Reset` to `Init`: receives may be posted.
    ///
    /// # Errors
    /// When the queue pair is not there or in another state.
    pub fn modify_to_init(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.change(qpn, QpState::Init)?.1.verbs.head.state = QpState::Init;
        Ok(())
    }

    /// What the peer may do to memory, by the rights of the queue pair itself: of `access` the remote rights count, and
    /// the key must grant them too. Everything, until this says otherwise; legal in any state.
    ///
    /// # Errors
    /// When the queue pair is not there.
    pub fn set_access(&mut self, qpn: Qpn, access: Access) -> Result<(), ModifyError> {
        self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?.verbs.head.access = access;
        Ok(())
    }

    /// The key that datagrams for this queue pair must have, and that those which it sends have instead of a privileged
    /// one; 0 until this says otherwise. Legal in any state.
    ///
    /// # Errors
    /// When the queue pair is not there, or of another service than [`Service::UnreliableDatagram`].
    pub fn set_qkey(&mut self, qpn: Qpn, qkey: u32) -> Result<(), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.set_qkey(qkey)
    }

    /// How long the peer waits before it repeats a request that no receive was posted for. Legal in any state.
    ///
    /// # Errors
    /// When the queue pair is not there.
    pub fn set_min_rnr_timer(&mut self, qpn: Qpn, timer: RnrTimer) -> Result<(), ModifyError> {
        self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?.verbs.head.min_rnr_timer = timer;
        Ok(())
    }

    /// `Init` to `ReadyToReceive` for [`Service::UnreliableDatagram`]: packets of up to `mtu` bytes are taken in, from
    /// anybody, and will be sent.
    ///
    /// # Errors
    /// When the state, the service or the MTU forbids it.
    pub fn modify_to_rtr_unconnected(&mut self, qpn: Qpn, mtu: u32) -> Result<(), ModifyError> {
        check_mtu(mtu)?;
        self.change(qpn, QpState::ReadyToReceive)?.1.begin_receiving_unconnected(mtu)
    }

    /// `Init` to `ReadyToReceive`, for connections: packets are taken in.
    ///
    /// # Errors
    /// When the state, the service or an attribute forbids it.
    pub fn modify_to_rtr(&mut self, qpn: Qpn, connection: &QpConnection) -> Result<(), ModifyError> {
        check_mtu(connection.mtu)?;
        attribute("peer", connection.peer.0, 0, PeerId::NOBODY.0 - 1)?;
        attribute("max_dest_rd_atomic", connection.max_dest_rd_atomic, 0, READS_IN_PROGRESS_MAX)?;
        let (_, qp) = self.change(qpn, QpState::ReadyToReceive)?;
        check_mtu_of(qp, connection.mtu)?;
        qp.begin_receiving(connection)
    }

    /// `ReadyToReceive`, `SendQueueDrained` or `SendQueueError` to `ReadyToSend`: fully operational. To queue pairs of
    /// unreliable services only `sq_psn` matters.
    ///
    /// # Errors
    /// When the state or an attribute forbids it.
    pub fn modify_to_rts(&mut self, now: Time, qpn: Qpn, timing: &QpTiming) -> Result<(), ModifyError> {
        attribute("max_rd_atomic", timing.max_rd_atomic, 0, READS_IN_PROGRESS_MAX)?;
        let (core, qp) = self.change(qpn, QpState::ReadyToSend)?;
        core.now = now;
        qp.begin_sending(core, timing);
        Ok(())
    }

    /// `ReadyToSend` to `SendQueueDrained`: requests under way complete, no new ones leave.
    ///
    /// # Errors
    /// When the queue pair is not there or in another state.
    pub fn modify_to_sqd(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let (core, qp) = self.change(qpn, QpState::SendQueueDrained)?;
        qp.drain(core);
        Ok(())
    }

    /// To `Error` from anywhere: everything posted is flushed, but for the oldest request where the peer is known to
    /// have refused it: that completes with the reason.
    ///
    /// # Errors
    /// When the queue pair is not there.
    pub fn modify_to_error(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.fail(core);
        qp.settle_if_failed(core, falcon.as_deref_mut());
        Ok(())
    }

    /// Nobody is at the other end of a connected queue pair any more: everything posted is flushed. If requests wait in
    /// the send queue of a reliable connection, the oldest one completes as when all its retries have been in vain;
    /// otherwise the program is told by [`crate::AsyncEvent::QpFatal`]. Nothing happens to queue pairs that are not
    /// connected.
    ///
    /// # Errors
    /// When the queue pair is not there.
    pub fn give_up_on_peer(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.give_up_on_peer(core);
        qp.settle_if_failed(core, falcon.as_deref_mut());
        Ok(())
    }

    /// To `Reset` from anywhere: as fresh as when it was made.
    ///
    /// # Errors
    /// When the queue pair is not there.
    pub fn modify_to_reset(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.leave(core, falcon.as_deref_mut());
        qp.reset();
        Ok(())
    }
}
