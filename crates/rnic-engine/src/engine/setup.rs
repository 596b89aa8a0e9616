//! Creation, modification and destruction of resources: the slow path.

use rnic_base::Time;
use rnic_base::limits::{MTU_MAX, MTU_MIN, READS_IN_PROGRESS_MAX, SGE_MAX, WORK_REQUESTS_MAX};
use rnic_policy::AdaptivePlace;
use rnic_wire::{Qpn, RnrTimer};

use super::Engine;
use super::nvme::{check_mtu_of, check_role, namespace_of};
use crate::config::{QpAttributes, QpConnection, QpTiming};
use crate::core::Core;
use crate::error::{ModifyError, ResourceError};
use crate::falcon::FalconNic;
use crate::mr::Access;
use crate::namespace::NvmeRole;
use crate::objects::size;
use crate::qp::{Qp, QpInfo};
use crate::state::{QpState, Service};
use crate::{CqId, PdId, PeerId};

/// Checks an attribute against its range.
fn attribute(what: &'static str, asked: u32, min: u32, max: u32) -> Result<(), ModifyError> {
    if (min..=max).contains(&asked) {
        return Ok(());
    }
    let [asked, min, max] = [asked, min, max].map(u64::from);
    Err(ModifyError::Attribute { what, asked, min, max, step: 1 })
}

/// Step of valid MTUs, in bytes. Full packets are not padded, and RoCE headers count 4-byte words.
const MTU_STEP: u32 = 4;

/// Checks a path MTU.
fn check_mtu(mtu: u32) -> Result<(), ModifyError> {
    let fits = (MTU_MIN..=MTU_MAX).contains(&mtu) && mtu.is_multiple_of(MTU_STEP);
    let [asked, min, max, step] = [mtu, MTU_MIN, MTU_MAX, MTU_STEP].map(u64::from);
    if fits { Ok(()) } else { Err(ModifyError::Attribute { what: "path MTU", asked, min, max, step }) }
}

impl Engine {
    /// Destroys a protection domain.
    ///
    /// # Errors
    /// When it does not exist or a memory region still belongs to it.
    pub fn destroy_pd(&mut self, pd: PdId) -> Result<(), ResourceError> {
        self.core.objects.check_pd(pd)?;
        if self.core.drives.uses(pd) || self.qps.iter().any(|qp| qp.verbs.head.pd == pd) {
            return Err(ResourceError::Busy("protection domain"));
        }
        self.core.objects.destroy_pd(pd)
    }

    /// Creates a queue pair, in state `Reset`; returns its number.
    ///
    /// # Errors
    /// When a size is out of range, an object it refers to does not exist, or the number is taken; when its transport
    /// is configured with other resources than the Falcon queue pairs of this engine have, or with a thread that is not
    /// available; when it is meant for NVMe and its attributes do not permit that.
    pub fn create_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        self.core.objects.check_pd(attributes.pd)?;
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
        let lives = |cq: CqId| self.core.objects.cqs.get(cq.0 as usize).is_some_and(Option::is_some);
        if !lives(attributes.send_cq) || !lives(attributes.recv_cq) {
            return Err(ResourceError::Unknown("completion queue"));
        }
        if let Some(id) = attributes.srq {
            let srq = self.core.objects.srqs.get_mut(id.index()).and_then(Option::as_mut);
            let srq =
                srq.filter(|srq| srq.pd == attributes.pd).ok_or(ResourceError::Unknown("shared receive queue"))?;
            // Receives are consumed with their complete scatter/gather list.
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
                self.core.objects.count_cq_users(attributes.send_cq, attributes.recv_cq, 1);
                if let Some(NvmeRole::Target(namespace)) = attributes.nvme {
                    self.core.drives.count_user(namespace, 1);
                }
                if let Some(shape) = falcon {
                    self.falcon.get_or_insert_with(|| Box::new(FalconNic::new(shape))).join(shape);
                }
            }
            Err(_) => self.core.objects.release_srq(attributes.srq),
        }
        number
    }

    /// Destroys a queue pair in any state. Posted requests are discarded, without completions, as in verbs.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ResourceError> {
        let mut qp = self.qps.remove(qpn).ok_or(ResourceError::Unknown("queue pair"))?;
        qp.leave(&mut self.core, self.falcon.as_deref_mut());
        self.core.objects.mrs.leave_qp(qpn);
        self.core.targets.remove(&qpn.get());
        if let Some(nic) = self.falcon.as_mut().filter(|_| qp.falcon().is_some()) {
            nic.part();
        }
        if let Some(namespace) = namespace_of(&qp) {
            self.core.drives.count_user(namespace, -1);
        }
        let head = &qp.verbs.head;
        self.core.objects.count_cq_users(head.send_cq, head.recv_cq, -1);
        self.core.objects.release_srq(head.srq);
        Ok(())
    }

    /// Returns the attributes of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        self.qps.find(qpn).map(Qp::info)
    }

    /// Returns the number of further requests that fit into the send queue of `qpn`.
    pub fn send_queue_room(&self, qpn: Qpn) -> Option<u32> {
        self.qps.find(qpn).map(|qp| qp.verbs.send.queue.room())
    }

    /// Limits the packets in flight to `peer`, over all queue pairs, to the capacity of its receive buffer; `None`
    /// removes the limit. Packets of unreliable services count too, and the caller must report when they have arrived:
    /// [`Engine::settle`].
    pub fn set_peer_limit(&mut self, peer: PeerId, packets: Option<u64>) {
        self.core.peers.set_limit(peer, packets);
        self.core.wake_for_credit(peer);
    }

    /// Returns the limit set by [`Engine::set_peer_limit`].
    #[inline]
    pub fn peer_limit(&self, peer: PeerId) -> Option<u64> {
        self.core.peers.limit(peer)
    }

    /// Records that packets of unreliable services to `peer` have arrived, or are given up: others may use their
    /// credit. They are never acknowledged, so only the driver can know.
    #[inline]
    pub fn settle(&mut self, peer: PeerId, packets: u64) {
        self.core.settle(peer, packets);
    }

    /// Returns a queue pair that may change to state `to`.
    fn change(&mut self, qpn: Qpn, to: QpState) -> Result<(&mut Core, &mut Qp), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        let from = qp.verbs.head.state;
        if !from.may_become(to) {
            return Err(ModifyError::Transition { from, to });
        }
        Ok((&mut self.core, qp))
    }

    /// Changes a queue pair from `Reset` to `Init`: receives may be posted.
    ///
    /// # Errors
    /// When the queue pair does not exist or is in another state.
    pub fn modify_to_init(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.change(qpn, QpState::Init)?.1.verbs.head.state = QpState::Init;
        Ok(())
    }

    /// Sets the access to memory that the queue pair itself grants to the peer: of `access` only the remote rights
    /// count, and the key must grant them too. Until this is called, all rights are granted; legal in any state.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn set_access(&mut self, qpn: Qpn, access: Access) -> Result<(), ModifyError> {
        self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?.verbs.head.access = access;
        Ok(())
    }

    /// Sets the key that datagrams for this queue pair must carry, and that datagrams sent by it carry in place of a
    /// privileged one; 0 until this is called. Legal in any state.
    ///
    /// # Errors
    /// When the queue pair does not exist, or has another service than [`Service::UnreliableDatagram`].
    pub fn set_qkey(&mut self, qpn: Qpn, qkey: u32) -> Result<(), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.set_qkey(qkey)
    }

    /// Sets the time for which the peer waits before it retransmits a request for which no receive was posted. Legal in
    /// any state.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn set_min_rnr_timer(&mut self, qpn: Qpn, timer: RnrTimer) -> Result<(), ModifyError> {
        self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?.verbs.head.min_rnr_timer = timer;
        Ok(())
    }

    /// Changes a queue pair from `Init` to `ReadyToReceive` for [`Service::UnreliableDatagram`]: packets of up to `mtu`
    /// bytes are accepted, from any sender, and will be sent.
    ///
    /// # Errors
    /// When the state, the service or the MTU forbids it.
    pub fn modify_to_rtr_unconnected(&mut self, qpn: Qpn, mtu: u32) -> Result<(), ModifyError> {
        check_mtu(mtu)?;
        self.change(qpn, QpState::ReadyToReceive)?.1.begin_receiving_unconnected(mtu)
    }

    /// Changes a queue pair from `Init` to `ReadyToReceive`, for connections: packets are accepted.
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

    /// Changes a queue pair from `ReadyToReceive`, `SendQueueDrained` or `SendQueueError` to `ReadyToSend`: fully
    /// operational. For queue pairs of unreliable services only `sq_psn` matters.
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

    /// Changes a queue pair from `ReadyToSend` to `SendQueueDrained`: requests in flight complete, no new ones are
    /// sent.
    ///
    /// # Errors
    /// When the queue pair does not exist or is in another state.
    pub fn modify_to_sqd(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let (core, qp) = self.change(qpn, QpState::SendQueueDrained)?;
        qp.drain(core);
        Ok(())
    }

    /// Changes a queue pair to `Error` from any state: everything posted is flushed, except that the oldest request
    /// completes with the reason where the peer is known to have refused it.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn modify_to_error(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.fail(core);
        qp.settle_if_failed(core, falcon.as_deref_mut());
        Ok(())
    }

    /// Handles the disappearance of the peer of a connected queue pair: everything posted is flushed. If requests wait
    /// in the send queue of a reliable connection, the oldest one completes as when all its retries are exhausted;
    /// otherwise the program is notified by [`crate::AsyncEvent::QpFatal`]. Queue pairs that are not connected are left
    /// unchanged.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn give_up_on_peer(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.give_up_on_peer(core);
        qp.settle_if_failed(core, falcon.as_deref_mut());
        Ok(())
    }

    /// Changes a queue pair to `Reset` from any state: it is as when it was created.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn modify_to_reset(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.leave(core, falcon.as_deref_mut());
        qp.reset();
        Ok(())
    }
}
