//! The calls of the engine, with the current time added. Their behaviour is documented in the engine.

use std::sync::Arc;

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::{
    Access, AsyncEvent, Completion, CqId, LimitSource, ModifyError, Observer, PdId, PeerId, PostError, QpAttributes,
    QpConnection, QpTiming, RATE_LIMIT_MIN, RateLimit, RecvRequest, ResourceError, RnrTimer, SendRequest, Signal,
    SignalSettings, Signals, SrqId,
};
use rnic_wire::Qpn;

use super::device::Device;

/// The verbs interface of a NIC: protection domains, queues, queue pairs, requests, completions, and the memory that
/// they use. Returned by [`Nic::verbs`](super::Nic::verbs).
#[derive(Debug)]
pub struct Verbs<'a> {
    pub(super) device: &'a mut Device,
}

impl Verbs<'_> {
    /// See [`rnic_engine::Objects::create_pd`].
    ///
    /// # Errors
    /// The same as [`rnic_engine::Objects::create_pd`].
    pub fn create_pd(&mut self) -> Result<PdId, ResourceError> {
        self.device.engine.objects_mut().create_pd()
    }

    /// See [`rnic_engine::Engine::destroy_pd`].
    ///
    /// # Errors
    /// When the protection domain does not exist or is in use.
    pub fn destroy_pd(&mut self, pd: PdId) -> Result<(), ResourceError> {
        self.device.engine.destroy_pd(pd)
    }

    /// See [`rnic_engine::Objects::create_cq`].
    ///
    /// # Errors
    /// When the capacity is out of range.
    pub fn create_cq(&mut self, capacity: u32) -> Result<CqId, ResourceError> {
        self.device.engine.objects_mut().create_cq(capacity)
    }

    /// See [`rnic_engine::Objects::destroy_cq`].
    ///
    /// # Errors
    /// When the completion queue does not exist or is in use.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), ResourceError> {
        self.device.engine.objects_mut().destroy_cq(cq)
    }

    /// See [`rnic_engine::Objects::resize_cq`].
    ///
    /// # Errors
    /// When the queue does not exist or contains more completions than the new capacity, or the capacity is out of
    /// range.
    pub fn resize_cq(&mut self, cq: CqId, capacity: u32) -> Result<(), ResourceError> {
        self.device.engine.objects_mut().resize_cq(cq, capacity)
    }

    /// See [`rnic_engine::Objects::forget_completions`].
    pub fn forget_completions(&mut self, qpn: Qpn) {
        self.device.engine.objects_mut().forget_completions(qpn);
    }

    /// See [`rnic_engine::Objects::create_srq`].
    ///
    /// # Errors
    /// When a size is out of range or the protection domain does not exist.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, ResourceError> {
        self.device.engine.objects_mut().create_srq(pd, max_wr, max_sge)
    }

    /// See [`rnic_engine::Objects::destroy_srq`].
    ///
    /// # Errors
    /// When the shared receive queue does not exist or is in use.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), ResourceError> {
        self.device.engine.objects_mut().destroy_srq(srq)
    }

    /// See [`rnic_engine::Engine::create_qp`]. The connection manager creates the queue pairs of its connections;
    /// this call is for queue pairs that are connected by other means. When numbers encode ports
    /// ([`crate::NicConfig::shared`]), the NIC generates a number from its own range unless `attributes` specify one.
    ///
    /// # Errors
    /// When a size is out of range, an object that the attributes refer to does not exist, or the number is in use,
    /// or all numbers are.
    pub fn create_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        self.device.create_qp(attributes)
    }

    /// See [`rnic_engine::Engine::destroy_qp`]. Pending acknowledgements are sent first, and the last one more than
    /// once, because afterwards the NIC no longer responds to retransmissions of a peer for which the network has
    /// lost the acknowledgement.
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ResourceError> {
        self.device.flush_last_acks(qpn);
        self.device.destroy_qp(qpn)
    }

    /// See [`rnic_engine::Engine::modify_to_init`].
    ///
    /// # Errors
    /// When the queue pair does not exist or is in another state.
    pub fn modify_to_init(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.device.engine.modify_to_init(qpn)
    }

    /// See [`rnic_engine::Engine::modify_to_rtr`]. The peer must have been acquired with
    /// [`Nic::acquire_peer`](super::Nic::acquire_peer).
    ///
    /// # Errors
    /// When the state or an attribute forbids it.
    pub fn modify_to_rtr(&mut self, qpn: Qpn, connection: &QpConnection) -> Result<(), ModifyError> {
        self.device.warn_of_real_peer(connection.peer, connection.dest_qpn);
        self.device.prepare_bypass(connection.peer, connection.dest_qpn);
        self.device.connect_qp(qpn, connection)
    }

    /// See [`rnic_engine::Engine::modify_to_rtr_unconnected`].
    ///
    /// # Errors
    /// When the state, the service or the MTU forbids it.
    pub fn modify_to_rtr_unconnected(&mut self, qpn: Qpn, mtu: u32) -> Result<(), ModifyError> {
        self.device.engine.modify_to_rtr_unconnected(qpn, mtu)
    }

    /// See [`rnic_engine::Engine::set_transport`].
    ///
    /// # Errors
    /// When the queue pair does not exist, or its state no longer permits the change.
    pub fn set_transport(&mut self, qpn: Qpn, transport: &Arc<rnic_engine::Transport>) -> Result<(), ModifyError> {
        self.device.engine.set_transport(qpn, transport)
    }

    /// See [`rnic_engine::Engine::set_access`].
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn set_access(&mut self, qpn: Qpn, access: Access) -> Result<(), ModifyError> {
        self.device.engine.set_access(qpn, access)
    }

    /// See [`rnic_engine::Engine::set_qkey`].
    ///
    /// # Errors
    /// When the queue pair does not exist, or is not for datagrams.
    pub fn set_qkey(&mut self, qpn: Qpn, qkey: u32) -> Result<(), ModifyError> {
        self.device.engine.set_qkey(qpn, qkey)
    }

    /// See [`rnic_engine::Engine::set_min_rnr_timer`].
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn set_min_rnr_timer(&mut self, qpn: Qpn, timer: RnrTimer) -> Result<(), ModifyError> {
        self.device.engine.set_min_rnr_timer(qpn, timer)
    }

    /// See [`rnic_engine::Engine::set_rate_limit`].
    ///
    /// # Errors
    /// When the queue pair does not exist, or the rate is out of the range of [`Self::rate_limit_range`].
    pub fn set_rate_limit(
        &mut self,
        qpn: Qpn,
        source: LimitSource,
        limit: Option<RateLimit>,
    ) -> Result<(), ModifyError> {
        let now = self.device.clock.now();
        self.device.engine.set_rate_limit(now, qpn, source, limit)
    }

    /// See [`rnic_engine::Sharing::set_weight`].
    ///
    /// # Errors
    /// When the queue pair does not exist, or the weight is not between 1 and [`rnic_engine::WEIGHT_MAX`].
    pub fn set_weight(&mut self, qpn: Qpn, weight: u16) -> Result<(), ModifyError> {
        let now = self.device.clock.now();
        self.device.engine.sharing().set_weight(now, qpn, weight)
    }

    /// See [`rnic_engine::Sharing::set_capacity`].
    pub fn set_capacity(&mut self, capacity: Option<BitRate>) {
        self.device.engine.sharing().set_capacity(capacity);
    }

    /// Passes the calls of the NIC's engine to `observer` from now on.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) {
        rnic_engine::observe(&mut self.device.engine, observer);
    }

    /// Removes and returns at most `max` records of the signals that were collected since the last call, and the number
    /// of signals that were lost. The first call starts collecting them; collecting stops if there is no call for some
    /// time.
    pub(crate) fn take_signals(&mut self, max: usize) -> (Vec<Signal>, u64) {
        let (now, engine) = (self.device.clock.now(), &mut self.device.engine);
        let until = now + SIGNALS_KEPT;
        if !Signals::of(engine).keep_until(now, until) {
            Signals::of(engine).collect(SignalSettings { until, ..SIGNAL_SETTINGS });
        }
        let records = Signals::of(engine).take(now, max).collect();
        (records, Signals::of(engine).lost())
    }

    /// Sets or removes the operator's limit of queue pairs that are created from now on.
    pub(crate) fn set_rate_limit_of_new(&mut self, rate: Option<BitRate>) {
        self.device.config.rate_limit = rate;
    }

    /// Returns the lowest and the highest dequeue rate to which a queue pair can be limited.
    pub fn rate_limit_range(&self) -> [BitRate; 2] {
        [RATE_LIMIT_MIN, self.device.config.line_rate]
    }

    /// Sets the traffic class in the IP headers of all packets of a queue pair that is connected to `peer`:
    /// differentiated services in the upper six bits. The lower two, congestion notification, are the transport's. 0,
    /// which is initial after each connection, leaves the header to the kernel.
    pub fn set_traffic_class(&mut self, qpn: Qpn, peer: PeerId, class: u8) {
        self.device.link.set_traffic_class(qpn, peer, class);
    }

    /// See [`rnic_engine::Engine::modify_to_rts`].
    ///
    /// # Errors
    /// When the state or an attribute forbids it.
    pub fn modify_to_rts(&mut self, qpn: Qpn, timing: &QpTiming) -> Result<(), ModifyError> {
        let now = self.device.clock.now();
        self.device.engine.modify_to_rts(now, qpn, timing)
    }

    /// See [`rnic_engine::Engine::modify_to_sqd`].
    ///
    /// # Errors
    /// When the queue pair does not exist or is in another state.
    pub fn modify_to_sqd(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.device.engine.modify_to_sqd(qpn)
    }

    /// See [`rnic_engine::Engine::modify_to_error`]. Pending acknowledgements are sent first, as with
    /// [`Verbs::destroy_qp`].
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn modify_to_error(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.device.flush_last_acks(qpn);
        self.device.engine.modify_to_error(qpn)
    }

    /// See [`rnic_engine::Engine::modify_to_reset`].
    ///
    /// # Errors
    /// When the queue pair does not exist.
    pub fn modify_to_reset(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.device.engine.modify_to_reset(qpn)?;
        self.device.leave_ring(qpn);
        self.device.link.disconnected(qpn);
        Ok(())
    }

    /// Returns the NVMe namespaces that targets of this NIC serve; see [`rnic_engine::Engine::nvme`].
    pub fn nvme(&mut self) -> rnic_engine::Nvme<'_> {
        self.device.engine.nvme()
    }

    /// See [`rnic_engine::Objects::resize_srq`].
    ///
    /// # Errors
    /// When the queue does not exist or contains more requests than the new size, or the size is out of range.
    pub fn resize_srq(&mut self, srq: SrqId, max_wr: u32) -> Result<(), ResourceError> {
        self.device.engine.objects_mut().resize_srq(srq, max_wr)
    }

    /// See [`rnic_engine::Objects::set_srq_limit`].
    ///
    /// # Errors
    /// When the queue does not exist or its capacity is less than the limit.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), ResourceError> {
        self.device.engine.objects_mut().set_srq_limit(srq, limit)
    }

    /// See [`rnic_engine::Engine::post_send`]. Posted requests are sent, together, with the next
    /// [`Nic::progress`](super::Nic::progress) or [`Nic::doorbell`](super::Nic::doorbell).
    ///
    /// # Errors
    /// When the queue is full or does not exist, its state forbids it, or the request exceeds a limit.
    #[inline]
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.device.note_post();
        self.device.engine.post_send(qpn, request)
    }

    /// See [`rnic_engine::Engine::post_recv`].
    ///
    /// # Errors
    /// The same as [`Verbs::post_send`].
    #[inline]
    pub fn post_recv(&mut self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.device.engine.post_recv(qpn, request)
    }

    /// See [`rnic_engine::Objects::post_srq_recv`].
    ///
    /// # Errors
    /// When the queue is full or does not exist, or the request exceeds a limit.
    #[inline]
    pub fn post_srq_recv(&mut self, srq: SrqId, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.device.engine.objects_mut().post_srq_recv(srq, request)
    }

    /// Removes completions from `cq` and returns their number. It does not receive packets;
    /// [`Nic::progress`](super::Nic::progress) does.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, into: &mut [Completion]) -> usize {
        self.device.engine.objects_mut().poll_cq(cq, into)
    }

    /// Removes and returns one completion from `cq`.
    #[inline]
    pub fn poll_cq_one(&mut self, cq: CqId) -> Option<Completion> {
        self.device.engine.objects_mut().poll_cq_one(cq)
    }

    /// See [`rnic_engine::Objects::request_notify`].
    pub fn request_notify(&mut self, cq: CqId, solicited_only: bool) {
        self.device.engine.objects_mut().request_notify(cq, solicited_only);
    }

    /// Removes and returns the oldest asynchronous event that the program has not polled yet.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.device.poll_event()
    }
}

/// Time without a call of [`Verbs::take_signals`] after which collecting stops.
const SIGNALS_KEPT: Duration = Duration::from_secs(2);

/// Settings of the collectors, except their end. Signals of a kind and subject within a millisecond are merged into one
/// record: a busy queue pair has some thousand records per second instead of some million.
const SIGNAL_SETTINGS: SignalSettings = SignalSettings {
    fold_within: Duration::from_ms(1),
    fold_rx_within: Duration::from_ms(1),
    records_max: 1 << 14,
    until: Time::ZERO,
};
