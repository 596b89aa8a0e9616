//! Creation, modification and destruction of resources: the slow path.

use rnic_base::Time;
use rnic_base::limits::{MTU_MAX, MTU_MIN, READS_IN_PROGRESS_MAX, SGE_MAX, WORK_REQUESTS_MAX};
use rnic_policy::AdaptivePlace;
use rnic_wire::{Qpn, RnrTimer};

use super::flows::NUMBERS_TRIED;
use super::nvme::{check_mtu_of, check_role, namespace_of};
use super::observer::{self, DriverCall};
use super::snapshot::with_flows;
use super::{Engine, flows, messages};
use crate::config::{QpAttributes, QpConnection, QpTiming};
use crate::core::Core;
use crate::error::{ModifyError, ResourceError};
use crate::falcon::FalconNic;
use crate::mr::Access;
use crate::namespace::NvmeRole;
use crate::objects::check_size;
use crate::qp::{Qp, QpInfo};
use crate::state::{QpState, Service};
use crate::{CqId, PdId, PeerId};

/// Checks an attribute against its range.
fn check_attribute(what: &'static str, requested: u32, min: u32, max: u32) -> Result<(), ModifyError> {
    if (min..=max).contains(&requested) {
        return Ok(());
    }
    let [requested, min, max] = [requested, min, max].map(u64::from);
    Err(ModifyError::Attribute { what, requested, min, max, step: 1 })
}

/// Step of valid MTUs, in bytes. Full packets are not padded, and RoCE headers count 4-byte words.
const MTU_STEP: u32 = 4;

/// Checks a path MTU.
fn check_mtu(mtu: u32) -> Result<(), ModifyError> {
    let is_valid = (MTU_MIN..=MTU_MAX).contains(&mtu) && mtu.is_multiple_of(MTU_STEP);
    let [requested, min, max, step] = [mtu, MTU_MIN, MTU_MAX, MTU_STEP].map(u64::from);
    if is_valid { Ok(()) } else { Err(ModifyError::Attribute { what: "path MTU", requested, min, max, step }) }
}

/// Creates a queue pair as [`Engine::create_qp`] does, without the flows of its transport.
fn create_without_flows(engine: &mut Engine, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
    engine.core.objects.check_pd(attributes.pd)?;
    check_size("number of send queue entries", attributes.max_send_wr, 0, WORK_REQUESTS_MAX)?;
    check_size("number of receive queue entries", attributes.max_recv_wr, 0, WORK_REQUESTS_MAX)?;
    check_size("number of send scatter/gather entries", attributes.max_send_sge, 0, SGE_MAX as u32)?;
    check_size("number of receive scatter/gather entries", attributes.max_recv_sge, 0, SGE_MAX as u32)?;
    let falcon = attributes.transport.falcon().filter(|_| attributes.service == Service::ReliableConnection);
    if let (Some(shape), Some(nic)) = (falcon, &engine.falcon) {
        nic.check(shape)?;
    }
    let needs_thread = falcon.is_some_and(|shape| shape.fae_place == AdaptivePlace::Thread);
    if needs_thread && engine.core.config.adaptive_thread.is_none() {
        return Err(ResourceError::NoAdaptiveThread);
    }
    check_role(&engine.core, attributes)?;
    let mut attributes = attributes.clone();
    let exists = |cq: CqId| engine.core.objects.cqs.get(cq.0 as usize).is_some_and(Option::is_some);
    if !exists(attributes.send_cq) || !exists(attributes.recv_cq) {
        return Err(ResourceError::Unknown("completion queue"));
    }
    if let Some(id) = attributes.srq {
        let srq = engine.core.objects.srqs.get_mut(id.index()).and_then(Option::as_mut);
        let srq = srq.filter(|srq| srq.pd == attributes.pd).ok_or(ResourceError::Unknown("shared receive queue"))?;
        // Receives are consumed with their complete scatter/gather list.
        attributes.max_recv_sge = srq.sges_max() as u32;
        srq.users += 1;
    }
    let Core { watch, times, .. } = &mut engine.core;
    let number = engine.qps.insert(attributes.number, |number, slot| {
        watch.start(slot);
        if let Some(times) = times {
            times.start(slot);
        }
        Qp::new(number, slot, &attributes)
    });
    match number {
        Ok(_) => {
            engine.core.objects.count_cq_users(attributes.send_cq, attributes.recv_cq, 1);
            if let Some(NvmeRole::Target(namespace)) = attributes.nvme {
                engine.core.namespaces.count_user(namespace, 1);
            }
            if let Some(shape) = falcon {
                let receive_bytes = engine.core.config.falcon_receive_bytes;
                engine.falcon.get_or_insert_with(|| Box::new(FalconNic::new(shape, receive_bytes))).join(shape);
            }
        }
        Err(_) => engine.core.objects.release_srq(attributes.srq),
    }
    number
}

impl Engine {
    /// Destroys a protection domain.
    ///
    /// # Errors
    /// When the domain does not exist, or a memory region still belongs to it.
    pub fn destroy_pd(&mut self, pd: PdId) -> Result<(), ResourceError> {
        self.core.objects.check_pd(pd)?;
        if self.core.namespaces.uses(pd) || self.qps.iter().any(|qp| qp.verbs.head.pd == pd) {
            return Err(ResourceError::Busy("protection domain"));
        }
        self.core.objects.destroy_pd(pd)
    }

    /// Creates a queue pair, in state `Reset`; returns its number.
    ///
    /// # Errors
    /// When a size is out of range, an object it refers to does not exist, or the number is in use; when its
    /// transport is configured with other resources than the Falcon queue pairs of this engine have, or with a thread
    /// that is not available; when it has an NVMe role that its attributes do not permit.
    pub fn create_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        for _ in 0..NUMBERS_TRIED {
            let qpn = create_without_flows(self, attributes)?;
            match flows::create(self, qpn, attributes) {
                Ok(()) => return Ok(qpn),
                Err(error) => {
                    self.destroy_qp(qpn)?;
                    if attributes.number.is_some() || !matches!(error, ResourceError::NumberInUse(_)) {
                        return Err(error);
                    }
                }
            }
        }
        Err(ResourceError::Exhausted { what: "numbers of queue pairs with flows", limit: u64::from(NUMBERS_TRIED) })
    }

    /// Destroys a queue pair in any state. Posted requests are discarded, without completions, as in verbs.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ResourceError> {
        flows::destroy(self, qpn);
        let mut qp = self.qps.remove(qpn).ok_or(ResourceError::Unknown("queue pair"))?;
        qp.detach(&mut self.core, self.falcon.as_deref_mut());
        messages::disconnect(&mut self.core, qpn);
        self.core.objects.mrs.invalidate_bound_by(qpn);
        self.core.targets.remove(&qpn.get());
        if let Some(nic) = self.falcon.as_mut().filter(|_| qp.falcon().is_some()) {
            nic.remove_user();
        }
        if let Some(namespace) = namespace_of(&qp) {
            self.core.namespaces.count_user(namespace, -1);
        }
        let head = &qp.verbs.head;
        self.core.objects.count_cq_users(head.send_cq, head.recv_cq, -1);
        self.core.objects.release_srq(head.srq);
        Ok(())
    }

    /// Returns the attributes of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        let info = self.qps.find(qpn).map(Qp::info)?;
        Some(with_flows(self, info))
    }

    /// Returns the number of further requests that fit into the send queue of `qpn`.
    pub fn send_queue_space(&self, qpn: Qpn) -> Option<u32> {
        self.qps.find(qpn).map(|qp| qp.verbs.send.queue.free_entries())
    }

    /// Limits the packets in flight to `peer`, over all queue pairs, to the capacity of its receive buffer; `None`
    /// removes the limit. Packets of unreliable services count too; the caller must report their arrival with
    /// [`Engine::settle`].
    pub fn set_peer_limit(&mut self, peer: PeerId, packets: Option<u64>) {
        self.core.peers.set_limit(peer, packets);
        self.core.wake_for_credit(peer);
        if self.observer.is_some() {
            observer::note(self, &DriverCall::PeerLimit(peer, packets));
        }
    }

    /// Returns the limit set by [`Engine::set_peer_limit`].
    #[inline]
    pub fn peer_limit(&self, peer: PeerId) -> Option<u64> {
        self.core.peers.limit(peer)
    }

    /// Records that packets of unreliable services to `peer` have arrived or are considered lost, which frees their
    /// credit. These packets are never acknowledged, so only the driver has this information.
    #[inline]
    pub fn settle(&mut self, peer: PeerId, packets: u64) {
        self.core.settle(peer, packets);
    }

    /// Returns the queue pair, after checking that it may change to state `to`.
    fn check_transition(&mut self, qpn: Qpn, to: QpState) -> Result<(&mut Core, &mut Qp), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        let from = qp.verbs.head.state;
        if !from.may_become(to) {
            return Err(ModifyError::Transition { from, to });
        }
        Ok((&mut self.core, qp))
    }

    /// Changes a queue pair from `Reset` to `Init`: from then on, receives may be posted.
    ///
    /// # Errors
    /// When the queue pair does not exist or is in another state.
    pub fn modify_to_init(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.check_transition(qpn, QpState::Init)?.1.verbs.head.state = QpState::Init;
        flows::for_each(self, qpn, |_, qp, _| qp.verbs.head.state = QpState::Init);
        Ok(())
    }

    /// Sets the access to memory that the queue pair grants to the peer: only the remote rights in `access` matter,
    /// and the memory key must grant them too. All rights are granted by default. Permitted in any state.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn set_access(&mut self, qpn: Qpn, access: Access) -> Result<(), ModifyError> {
        self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?.verbs.head.access = access;
        flows::for_each(self, qpn, |_, qp, _| qp.verbs.head.access = access);
        Ok(())
    }

    /// Sets the key that datagrams for this queue pair must carry, and that datagrams sent by it carry instead of a
    /// privileged key; 0 by default. Permitted in any state.
    ///
    /// # Errors
    /// When the queue pair does not exist, or has another service than [`Service::UnreliableDatagram`].
    pub fn set_qkey(&mut self, qpn: Qpn, qkey: u32) -> Result<(), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.set_qkey(qkey)
    }

    /// Sets the time for which the peer waits before it retransmits a request for which no receive was posted.
    /// Permitted in any state.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn set_min_rnr_timer(&mut self, qpn: Qpn, timer: RnrTimer) -> Result<(), ModifyError> {
        self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?.verbs.head.min_rnr_timer = timer;
        Ok(())
    }

    /// Changes a queue pair from `Init` to `ReadyToReceive` for [`Service::UnreliableDatagram`]: from then on,
    /// packets of up to `mtu` bytes from any sender are accepted; `mtu` also limits the packets that are sent later.
    ///
    /// # Errors
    /// When the state, the service or the MTU does not permit it.
    pub fn modify_to_rtr_unconnected(&mut self, qpn: Qpn, mtu: u32) -> Result<(), ModifyError> {
        check_mtu(mtu)?;
        self.check_transition(qpn, QpState::ReadyToReceive)?.1.begin_receiving_unconnected(mtu)
    }

    /// Changes a queue pair from `Init` to `ReadyToReceive`, for connected services: from then on, packets are
    /// accepted.
    ///
    /// # Errors
    /// When the state, the service or an attribute does not permit it.
    pub fn modify_to_rtr(&mut self, qpn: Qpn, connection: &QpConnection) -> Result<(), ModifyError> {
        check_mtu(connection.mtu)?;
        check_attribute("peer index", connection.peer.0, 0, PeerId::NONE.0 - 1)?;
        check_attribute("attribute max_dest_rd_atomic", connection.max_dest_rd_atomic, 0, READS_IN_PROGRESS_MAX)?;
        let (core, qp) = self.check_transition(qpn, QpState::ReadyToReceive)?;
        check_mtu_of(qp, connection.mtu)?;
        qp.begin_receiving(connection)?;
        if let Some(exchange) = &mut core.exchange {
            let nic = exchange.nic_of(connection.peer, connection.dest_qpn);
            exchange.connect(qpn, nic, connection.dest_qpn, core.now);
        }
        let mut result = Ok(());
        flows::for_each(self, qpn, |_, qp, bits| {
            let connection = QpConnection { dest_qpn: Qpn::new(connection.dest_qpn.get() ^ bits), ..*connection };
            result = result.and_then(|()| qp.begin_receiving(&connection));
        });
        result
    }

    /// Changes a queue pair from `ReadyToReceive`, `SendQueueDrained` or `SendQueueError` to `ReadyToSend`: the queue
    /// pair is then fully operational. For queue pairs of unreliable services, only `sq_psn` matters.
    ///
    /// # Errors
    /// When the state or an attribute does not permit it.
    pub fn modify_to_rts(&mut self, now: Time, qpn: Qpn, timing: &QpTiming) -> Result<(), ModifyError> {
        check_attribute("attribute max_rd_atomic", timing.max_rd_atomic, 0, READS_IN_PROGRESS_MAX)?;
        let (core, qp) = self.check_transition(qpn, QpState::ReadyToSend)?;
        core.now = now;
        qp.begin_sending(core, timing);
        flows::for_each(self, qpn, |core, qp, _| qp.begin_sending(core, timing));
        if self.observer.is_some() {
            observer::note(self, &DriverCall::ReadyToSend(qpn, timing));
        }
        Ok(())
    }

    /// Changes a queue pair from `ReadyToSend` to `SendQueueDrained`: requests in flight complete, but no new ones
    /// are sent.
    ///
    /// # Errors
    /// When the queue pair does not exist or is in another state.
    pub fn modify_to_sqd(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let (core, qp) = self.check_transition(qpn, QpState::SendQueueDrained)?;
        qp.drain(core);
        Ok(())
    }

    /// Changes a queue pair to `Error` from any state: all posted requests are flushed, except that the oldest one
    /// completes with the reason for its refusal if the peer is known to have refused it.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn modify_to_error(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.fail(core);
        qp.settle_if_failed(core, falcon.as_deref_mut());
        flows::serve(self);
        Ok(())
    }

    /// Handles the disappearance of the peer of a connected queue pair: all posted requests are flushed. If requests
    /// are in the send queue of a reliable connection, the oldest one completes as if all its retries were exhausted;
    /// otherwise the program is notified by [`crate::AsyncEvent::QpFatal`]. Queue pairs that are not connected are
    /// not affected.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn on_peer_gone(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.on_peer_gone(core);
        qp.settle_if_failed(core, falcon.as_deref_mut());
        flows::serve(self);
        Ok(())
    }

    /// Changes a queue pair to `Reset` from any state: it is then in the same state as after its creation.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn modify_to_reset(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let Self { core, falcon, qps, .. } = self;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.detach(core, falcon.as_deref_mut());
        messages::disconnect(core, qpn);
        qp.reset(&mut self.core);
        flows::reset(self, qpn);
        Ok(())
    }
}
