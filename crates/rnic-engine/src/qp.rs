//! The queue pair: its verbs state, and the protocol that carries it. This module only dispatches calls.

use std::sync::Arc;

use rnic_base::{BitRate, Seq};
use rnic_policy::PathLabel;
use rnic_wire::{Format, Packet, Qpn};

use crate::PeerId;
use crate::config::{QpAttributes, QpConnection, QpTiming};
use crate::core::Core;
use crate::dma::Dma;
use crate::error::{DropReason, ModifyError, PostError, RxOutcome};
use crate::falcon::{FalconEnd, FalconNic};
use crate::limiter::{LimitSource, Limiter, RateLimit};
use crate::mr::Access;
use crate::objects::Objects;
use crate::processors::Processed;
use crate::roce::{ProbeOutcome, RoceConnection};
use crate::srq::Target;
use crate::state::{QpState, Service};
use crate::stats::QpStats;
use crate::timer::Deadline;
use crate::transport::Transport;
use crate::unreliable::UnreliableEnd;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::recv::RecvHalf;
use crate::wr::SendRequest;

/// Attributes of a queue pair that can be queried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInfo {
    /// Queue pair number.
    pub number: Qpn,
    /// Queue pair state.
    pub state: QpState,
    /// Service type of the queue pair.
    pub service: Service,
    /// Access that the queue pair itself grants to its peer.
    pub access: Access,
    /// Queue key that datagrams for it must carry.
    pub qkey: u32,
    /// Number of the remote queue pair.
    pub dest_qpn: Qpn,
    /// Sequence number of the first request packet not yet acknowledged.
    pub una: Seq,
    /// Sequence number of the next request packet that has never been sent.
    pub next: Seq,
    /// Number of send queue entries that have been sent at least in part and are not complete. Where responses share
    /// the window, packets can be in flight without any such entry.
    pub requests_in_progress: u32,
    /// Sequence number of the request packet expected next from the peer.
    pub expected: Seq,
    /// Number of messages of the peer completed here, modulo 2^24.
    pub msn: u32,
    /// Sequence number (rPSN) of the response expected next, in split sequence spaces; otherwise the same as `una`.
    pub response_expected: Seq,
    /// Limits of the dequeue rate that users have set, by [`LimitSource`].
    pub rate_limits: [Option<RateLimit>; LimitSource::COUNT],
    /// Limit that the peer has set by grants or back-pressure.
    pub peer_limit: Option<BitRate>,
    /// Dequeue rate that applies: the lowest of these limits, the peer's and the scheduler's.
    pub dequeue_rate: Option<BitRate>,
    /// Number of times that a packet had to wait for this rate.
    pub dequeue_waits: u64,
    /// Sending rate that congestion control has set.
    pub control_rate: Option<BitRate>,
    /// Weight among the queue pairs that share the link.
    pub weight: u16,
    /// Path label of the next packet, unless the path policy chooses one for each packet.
    pub label: PathLabel,
    /// Timeouts after which the packets were acknowledged too soon to have been lost, as in
    /// [`crate::EngineStats::timeouts_spurious`].
    pub timeouts_spurious: u32,
    /// Counters of the queue pair.
    pub stats: QpStats,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) verbs: Verbs,
    pub(crate) protocol: ProtocolState,
}

/// The protocol that carries a queue pair, chosen when it is created, by its service and transport.
#[derive(Debug)]
pub(crate) enum ProtocolState {
    /// A reliable connection of the RoCE family: RoCE, IRN, FaSR.
    Roce(RoceConnection),
    /// An unreliable connection, or unreliable datagrams.
    Unreliable(UnreliableEnd),
    /// A reliable connection that uses Falcon packets.
    Falcon(FalconEnd),
}

// A connection consists of two of these, most of them idle at any time: state needed only after a loss, a Read or a
// congestion mark is behind a pointer that is empty until then.
const _: () = assert!(size_of::<Qp>() <= 488);

impl ProtocolState {
    fn new(transport: &Transport) -> Self {
        match transport.service {
            Service::ReliableConnection if transport.falcon().is_some() => Self::Falcon(FalconEnd::new(None)),
            Service::ReliableConnection => Self::Roce(RoceConnection::new(transport)),
            Service::UnreliableConnection | Service::UnreliableDatagram => Self::Unreliable(UnreliableEnd::new()),
        }
    }
}

impl Qp {
    pub(crate) fn new(number: Qpn, slot: u32, attributes: &QpAttributes) -> Self {
        let transport = attributes.transport.for_service(attributes.service);
        let protocol = match attributes.nvme {
            Some(role) => ProtocolState::Falcon(FalconEnd::new(Some(Box::new(role)))),
            None => ProtocolState::new(&transport),
        };
        Self { verbs: Verbs::new(Head::new(number, slot, attributes, transport), attributes), protocol }
    }

    /// Returns whether this queue pair is a flow of another one, which is recognised by its completion queue.
    #[cold]
    pub(crate) fn is_flow(&self, objects: &Objects) -> bool {
        self.verbs.head.transport.flows > 1 && objects.flows_of(self.verbs.head.send_cq).is_some()
    }

    /// Returns the Falcon part of a queue pair on Falcon.
    #[inline]
    pub(crate) fn falcon(&self) -> Option<&FalconEnd> {
        match &self.protocol {
            ProtocolState::Falcon(falcon) => Some(falcon),
            _ => None,
        }
    }

    /// Replaces the transport of the queue pair by another transport for reliable connections of the RoCE family,
    /// before the queue pair is connected.
    pub(crate) fn set_transport(&mut self, core: &mut Core, transport: &Arc<Transport>) {
        self.verbs.head.transport = Arc::clone(transport);
        let limiter = self.limiter().copied();
        self.protocol = ProtocolState::new(transport);
        if let Some(limiter) = limiter {
            self.set_limiter(core, limiter);
        }
        if self.verbs.head.srq.is_some() {
            // The queue pair has no posted receives of its own, so its receive half can be replaced: the number that
            // it takes from the shared receive queue depends on the transport's window.
            self.verbs.recv = RecvHalf::new(&self.verbs.attributes(), transport);
        }
    }

    /// Makes it the target of an extended reliable connection, in the XRC domain `domain`.
    pub(crate) fn make_target(&mut self, core: &mut Core, domain: u32) {
        self.verbs.recv.is_target = true;
        core.targets.insert(self.verbs.head.number.get(), Target::new(domain));
    }

    /// Resets the queue pair to `Reset`, with the same queues. The weight and the limits of the dequeue rate remain,
    /// except the program's, which is an attribute of the connection.
    pub(crate) fn reset(&mut self, core: &mut Core) {
        let (number, slot, attributes) = (self.verbs.head.number, self.verbs.head.slot, self.verbs.attributes());
        // Timers may still contain this slot: a spurious wake-up has no effect.
        let is_target = self.verbs.recv.is_target;
        let nvme = self.falcon().and_then(FalconEnd::nvme_role).copied();
        let (weight, class) = (self.verbs.head.weight, self.verbs.head.class);
        let limits = self.limiter().map_or([None; LimitSource::COUNT], Limiter::users);
        *self = Self::new(number, slot, &QpAttributes { nvme, ..attributes });
        (self.verbs.recv.is_target, self.verbs.head.weight) = (is_target, weight);
        self.verbs.head.class = class;
        for source in [LimitSource::Operator, LimitSource::Hint] {
            let limit = limits[source as usize];
            if limit.is_some() {
                self.set_rate_limit(core, source, limit);
            }
        }
    }

    /// Queues a request. If the request consumes a receive and `srqn` is not 0, the receive is taken from the shared
    /// receive queue `srqn` at the XRC target.
    #[inline(always)]
    pub(crate) fn post_send(&mut self, core: &mut Core, request: &SendRequest<'_>, srqn: u32) -> Result<(), PostError> {
        let Self { verbs, protocol } = self;
        let mut wqe = verbs.send.prepare(&verbs.head, request)?;
        if let ProtocolState::Falcon(end) = protocol {
            end.check(&verbs.head, &wqe)?;
        }
        if srqn != 0 && wqe.op.consumes_receive() {
            // These operations do not use the `operand` field otherwise.
            wqe.operand = u64::from(srqn);
        }
        if let Some(times) = &mut core.times {
            let queue = &verbs.send.queue;
            times.posted(verbs.head.slot, queue.tail, queue.capacity(), core.now);
        }
        if verbs.send.post(&verbs.head, core, wqe, request) {
            match protocol {
                ProtocolState::Roce(connection) => connection.on_work(verbs, core),
                ProtocolState::Unreliable(end) => end.on_work(verbs, core),
                ProtocolState::Falcon(end) => end.on_work(verbs, core),
            }
        }
        Ok(())
    }

    /// Checks whether [`Qp::post_send`] would accept `request`.
    pub(crate) fn check_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let wqe = self.verbs.send.prepare(&self.verbs.head, request)?;
        match &self.protocol {
            ProtocolState::Falcon(end) => end.check(&self.verbs.head, &wqe),
            _ => Ok(()),
        }
    }

    /// Accepts datagrams of up to `mtu` bytes from any sender from now on.
    ///
    /// # Errors
    /// When the queue pair has another service.
    pub(crate) fn begin_receiving_unconnected(&mut self, mtu: u32) -> Result<(), ModifyError> {
        let head = &mut self.verbs.head;
        if head.transport.service != Service::UnreliableDatagram {
            return Err(ModifyError::Service(head.transport.service));
        }
        head.state = QpState::ReadyToReceive;
        head.set_mtu(mtu);
        Ok(())
    }

    /// Connects the queue pair: packets are accepted from now on.
    ///
    /// # Errors
    /// When its service has no connections.
    pub(crate) fn begin_receiving(&mut self, connection: &QpConnection) -> Result<(), ModifyError> {
        let Self { verbs, protocol } = self;
        if verbs.head.transport.service == Service::UnreliableDatagram {
            return Err(ModifyError::Service(verbs.head.transport.service));
        }
        let start = Seq::start(connection.rq_psn);
        verbs.head.state = QpState::ReadyToReceive;
        verbs.head.set_peer(connection.peer);
        verbs.head.dest_qpn = connection.dest_qpn;
        verbs.head.set_mtu(connection.mtu);
        verbs.head.min_rnr_timer = connection.min_rnr_timer;
        verbs.recv.connect(start, connection.max_dest_rd_atomic as u8);
        match protocol {
            ProtocolState::Roce(roce) => roce.begin_receiving(verbs, start),
            ProtocolState::Unreliable(end) => end.begin_receiving(start),
            ProtocolState::Falcon(_) => {}
        }
        Ok(())
    }

    /// Makes the queue pair ready to send, for the first time or again.
    pub(crate) fn begin_sending(&mut self, core: &mut Core, timing: &QpTiming) {
        let Self { verbs, protocol } = self;
        let is_first_time = verbs.head.state == QpState::ReadyToReceive;
        verbs.head.state = QpState::ReadyToSend;
        verbs.send.set_limits(timing);
        let start = Seq::start(timing.sq_psn);
        match protocol {
            ProtocolState::Roce(connection) => {
                if is_first_time {
                    connection.begin_sending(verbs, core, start);
                }
                connection.on_work(verbs, core);
            }
            ProtocolState::Unreliable(end) => {
                if is_first_time {
                    end.begin_sending(verbs, core, start);
                }
                end.on_work(verbs, core);
            }
            ProtocolState::Falcon(end) => {
                if is_first_time && verbs.send.start == Seq::UNSET {
                    verbs.send.start = start;
                }
                end.begin_sending(verbs, core);
            }
        }
    }

    /// Starts to drain the send queue.
    pub(crate) fn drain(&mut self, core: &mut Core) {
        let Self { verbs, protocol } = self;
        verbs.head.state = QpState::SendQueueDrained;
        match protocol {
            ProtocolState::Roce(connection) => connection.drain(verbs, core),
            ProtocolState::Unreliable(_) | ProtocolState::Falcon(_) => verbs.send.report_if_drained(&verbs.head, core),
        }
    }

    /// Sets the key `qkey` that datagrams for this queue pair must carry.
    ///
    /// # Errors
    /// When the queue pair has another service.
    pub(crate) fn set_qkey(&mut self, qkey: u32) -> Result<(), ModifyError> {
        match (&mut self.protocol, self.verbs.head.transport.service) {
            (ProtocolState::Unreliable(end), Service::UnreliableDatagram) => end.set_qkey(qkey),
            (_, service) => return Err(ModifyError::Service(service)),
        }
        Ok(())
    }

    /// Moves the queue pair to the error state from any state: everything posted is flushed, except that the oldest
    /// request completes with the refusal's status if the peer is known to have refused it.
    pub(crate) fn fail(&mut self, core: &mut Core) {
        let Self { verbs, protocol } = self;
        match protocol.known_failure(verbs) {
            Some(status) => verbs.complete_failed_head(core, status),
            None => verbs.fail(core),
        }
    }

    /// See [`crate::Engine::on_peer_gone`].
    pub(crate) fn on_peer_gone(&mut self, core: &mut Core) {
        let Self { verbs, protocol } = self;
        let known_status = protocol.known_failure(verbs);
        verbs.on_peer_gone(core, known_status);
    }

    /// Sets or removes a user's limit of the dequeue rate.
    #[cold]
    pub(crate) fn set_rate_limit(&mut self, core: &mut Core, source: LimitSource, limit: Option<RateLimit>) {
        let mut limiter = self.limiter().copied().unwrap_or_default();
        limiter.set_user(source, limit);
        self.set_limiter(core, limiter);
    }

    /// Sets or removes the limit by messages of the peer.
    #[cold]
    pub(crate) fn set_peer_limit(&mut self, core: &mut Core, rate: Option<BitRate>) {
        let mut limiter = self.limiter().copied().unwrap_or_default();
        if limiter.set_peer(rate) {
            self.set_limiter(core, limiter);
        }
    }

    /// Returns the rate at which the queue pair may send, by all limits, if there are any.
    #[cold]
    pub(crate) fn allowed_rate(&self) -> Option<BitRate> {
        [self.control_rate(), self.limiter().and_then(Limiter::rate)].into_iter().flatten().min()
    }

    /// Returns the sending rate set by congestion control; `None` with Falcon, whose connection stores it.
    fn control_rate(&self) -> Option<BitRate> {
        match &self.protocol {
            ProtocolState::Roce(connection) => connection.control_rate(),
            _ => None,
        }
    }

    /// Passes the outcome of a probe, or a tick, to the policy that requested it.
    #[cold]
    pub(crate) fn on_probe(&mut self, core: &mut Core, outcome: &ProbeOutcome) {
        if let Self { verbs, protocol: ProtocolState::Roce(connection) } = self {
            connection.on_probe(verbs, core, outcome);
            self.settle_if_failed(core, None);
        }
    }

    /// Sets the weight among the queue pairs that share the link.
    #[cold]
    pub(crate) fn set_weight(&mut self, core: &mut Core, weight: u16) {
        let Self { verbs, protocol } = self;
        verbs.head.weight = weight;
        match protocol {
            ProtocolState::Roce(connection) => connection.set_weight(verbs, core),
            ProtocolState::Unreliable(end) => end.set_weight(verbs, core),
            ProtocolState::Falcon(end) => end.set_weight(verbs, core),
        }
    }

    /// Runs the scheduler for a record that a thread has processed; returns the rate that it has set, in 2^-20 of the
    /// line rate.
    #[cold]
    pub(crate) fn on_processed(&mut self, core: &mut Core, processed: &Processed) -> u32 {
        let Self { verbs, protocol } = self;
        match protocol {
            ProtocolState::Roce(connection) => connection.on_processed(verbs, core, processed),
            ProtocolState::Unreliable(end) => end.on_processed(verbs, core, processed),
            ProtocolState::Falcon(end) => end.on_processed(verbs, core, processed),
        }
    }

    /// Replaces the limits of the dequeue rate.
    fn set_limiter(&mut self, core: &mut Core, limiter: Limiter) {
        let Self { verbs, protocol } = self;
        match protocol {
            ProtocolState::Roce(connection) => connection.set_limiter(verbs, core, limiter),
            ProtocolState::Unreliable(end) => end.set_limiter(verbs, core, limiter),
            ProtocolState::Falcon(end) => end.set_limiter(verbs, core, limiter),
        }
    }

    /// Returns the limits of the dequeue rate, if it has ever been limited.
    fn limiter(&self) -> Option<&Limiter> {
        match &self.protocol {
            ProtocolState::Roce(connection) => connection.limiter(),
            ProtocolState::Unreliable(end) => end.limiter(),
            ProtocolState::Falcon(end) => end.limiter(),
        }
    }

    /// Processes a received packet that is not from the peer, or not in the format, that a RoCE connection expects.
    #[inline(never)]
    pub(crate) fn receive_other<D: Dma>(
        &mut self,
        core: &mut Core,
        format: Format,
        packet: &Packet,
        peer: PeerId,
        dma: &mut D,
    ) -> RxOutcome {
        let Self { verbs, protocol } = self;
        match protocol {
            ProtocolState::Unreliable(end) if end.accepts(&verbs.head, peer, format) => {
                end.receive(verbs, core, packet, dma)
            }
            _ => RxOutcome::Dropped(core.drop_packet(self.drop_reason(peer))),
        }
    }

    /// Builds the next packet, in `core.out`, of a queue pair without RoCE connection; returns whether there is one.
    #[inline(never)]
    pub(crate) fn transmit_other(&mut self, core: &mut Core) -> bool {
        match &mut self.protocol {
            ProtocolState::Unreliable(end) => end.transmit(&mut self.verbs, core),
            // Falcon connections are in rings of their own.
            ProtocolState::Roce(_) | ProtocolState::Falcon(_) => false,
        }
    }

    /// Handles `deadline`, which has expired in the timer heap for this queue pair: processes due timeouts if the
    /// deadline is its current one.
    pub(crate) fn on_timer(&mut self, core: &mut Core, deadline: Deadline) {
        match &mut self.protocol {
            ProtocolState::Roce(connection) => {
                if connection.remove_expired(deadline) {
                    connection.on_timeout(&mut self.verbs, core);
                    self.settle_if_failed(core, None);
                }
            }
            ProtocolState::Unreliable(end) => end.on_alarm(&self.verbs, core, deadline),
            ProtocolState::Falcon(_) => {}
        }
    }

    /// Handles unreadable payload of the packet in `core.out`, the last one that this queue pair has built. Returns
    /// whether a packet without payload is sent instead.
    #[cold]
    pub(crate) fn fault_payload(&mut self, core: &mut Core) -> bool {
        let Self { verbs, protocol } = self;
        let is_built = match protocol {
            ProtocolState::Roce(connection) => connection.fault_payload(verbs, core),
            ProtocolState::Unreliable(end) => {
                end.fault_payload(verbs, core);
                false
            }
            ProtocolState::Falcon(_) => false,
        };
        self.settle_if_failed(core, None);
        is_built
    }

    /// Frees the NIC resources that the protocol below verbs holds, if this queue pair has failed while
    /// the input was processed. Called after each input.
    #[inline(always)]
    pub(crate) fn settle_if_failed(&mut self, core: &mut Core, nic: Option<&mut FalconNic>) {
        if self.verbs.head.has_failed {
            self.settle_failure(core, nic);
        }
    }

    /// Frees the NIC resources that the protocol holds. A Falcon connection ends, unless it still has to send its peer
    /// a refusal.
    #[cold]
    #[inline(never)]
    fn settle_failure(&mut self, core: &mut Core, nic: Option<&mut FalconNic>) {
        let Self { verbs, protocol } = self;
        verbs.head.has_failed = false;
        if verbs.head.transport.flows > 1 {
            core.note_flows(verbs.head.send_cq, verbs.head.slot);
        }
        if let Some(exchange) = &mut core.exchange {
            exchange.disconnect(verbs.head.number);
        }
        match (protocol, nic) {
            (ProtocolState::Roce(connection), _) => connection.stop(verbs, core),
            (ProtocolState::Falcon(end), Some(nic)) => end.stop(verbs, core, nic),
            (ProtocolState::Unreliable(end), _) => end.stop(core),
            (ProtocolState::Falcon(_), None) => {}
        }
    }

    /// Removes this queue pair from all shared state, before it is reset or destroyed.
    pub(crate) fn detach(&mut self, core: &mut Core, nic: Option<&mut FalconNic>) {
        let Self { verbs, protocol } = self;
        if let (ProtocolState::Falcon(end), Some(nic)) = (&mut *protocol, nic) {
            end.detach(verbs, core, nic);
        }
        core.forget(verbs.head.slot);
        match protocol {
            ProtocolState::Roce(connection) => {
                connection.detach(verbs, core);
                // The queue pair may have been woken for credit that it leaves unused.
                core.wake_for_credit(verbs.head.peer());
            }
            ProtocolState::Unreliable(end) => end.stop(core),
            ProtocolState::Falcon(_) => {}
        }
    }

    /// See [`crate::Engine::repeat_acks`].
    pub(crate) fn repeat_acks(&mut self, core: &mut Core) -> bool {
        let Self { verbs, protocol } = self;
        let state = verbs.head.state;
        let is_connected = matches!(state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrained);
        if !(is_connected || state == QpState::Error && verbs.recv.refused.is_some()) {
            return false;
        }
        match protocol {
            ProtocolState::Roce(connection) => connection.repeat_acks(verbs, core),
            ProtocolState::Falcon(end) => end.repeat_acks(verbs, core),
            ProtocolState::Unreliable(_) => false,
        }
    }

    /// Returns the reason why a packet from `peer` is dropped: its sender is not the queue pair's peer, its format is
    /// wrong, or the queue pair no longer receives.
    #[cold]
    fn drop_reason(&self, peer: PeerId) -> DropReason {
        let head = &self.verbs.head;
        let is_datagram = head.transport.service == Service::UnreliableDatagram;
        match head.state {
            QpState::Reset | QpState::Init => DropReason::State,
            _ if !is_datagram && head.peer() != peer => DropReason::WrongPeer,
            QpState::Error if !matches!(self.protocol, ProtocolState::Roce(_)) => DropReason::State,
            _ => DropReason::WrongFormat,
        }
    }

    /// Checks that the queue pair may be given another transport, or be made a target: that it is a reliable connection
    /// of the RoCE family.
    pub(crate) fn check_roce(&self) -> Result<(), ModifyError> {
        match self.protocol {
            ProtocolState::Roce(_) => Ok(()),
            _ => Err(ModifyError::Service(self.verbs.head.transport.service)),
        }
    }

    pub(crate) fn info(&self) -> QpInfo {
        let Self { verbs, protocol } = self;
        let Verbs { head, send, recv, stats } = verbs;
        let (start, first) = (send.start, recv.start);
        let mut qkey = 0;
        let limiter = self.limiter();
        let [una, next, expected, response_expected] = match protocol {
            ProtocolState::Roce(connection) => connection.numbers(&head.transport),
            ProtocolState::Falcon(end) => end.numbers(start, first),
            ProtocolState::Unreliable(end) => {
                let [next, expected] = end.numbers();
                qkey = end.qkey();
                [next, next, expected, next]
            }
        };
        QpInfo {
            number: head.number,
            state: head.state,
            service: head.transport.service,
            access: head.access,
            qkey,
            dest_qpn: head.dest_qpn,
            una,
            next,
            requests_in_progress: send.queue.in_progress(),
            expected,
            msn: recv.msn & 0xff_ffff,
            response_expected,
            rate_limits: limiter.map_or([None; LimitSource::COUNT], Limiter::users),
            peer_limit: limiter.and_then(Limiter::peer),
            dequeue_rate: limiter.and_then(Limiter::rate),
            dequeue_waits: limiter.map_or(0, Limiter::waits),
            control_rate: self.control_rate(),
            weight: head.weight,
            label: head.label,
            timeouts_spurious: match protocol {
                ProtocolState::Roce(connection) => connection.spurious_timeouts(),
                ProtocolState::Falcon(end) => end.spurious_timeouts(),
                ProtocolState::Unreliable(_) => 0,
            },
            stats: *stats,
        }
    }
}

impl ProtocolState {
    /// Returns the status with which the oldest entry of the send queue will complete, if it is known that it will
    /// fail.
    fn known_failure(&self, verbs: &Verbs) -> Option<crate::completion::WcStatus> {
        match self {
            Self::Falcon(end) => end.known_failure(verbs),
            Self::Roce(_) | Self::Unreliable(_) => None,
        }
    }
}
