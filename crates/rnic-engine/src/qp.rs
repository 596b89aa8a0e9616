//! The queue pair: its verbs state, and the protocol that carries it. Dispatches calls only.

use std::sync::Arc;

use rnic_base::Seq;
use rnic_wire::{Format, Packet, Qpn};

use crate::PeerId;
use crate::config::{QpAttributes, QpConnection, QpTiming};
use crate::core::Core;
use crate::dma::Dma;
use crate::error::{DropReason, ModifyError, PostError, RxOutcome};
use crate::falcon::{FalconEnd, FalconNic};
use crate::mr::Access;
use crate::roce::RoceConnection;
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
    /// Service type.
    pub service: Service,
    /// Access that the queue pair itself grants to its peer.
    pub access: Access,
    /// Queue key that datagrams for it must carry.
    pub qkey: u32,
    /// Number of the remote queue pair.
    pub dest_qpn: Qpn,
    /// First request packet not yet acknowledged.
    pub una: Seq,
    /// Next request packet that has never been sent.
    pub next: Seq,
    /// Number of send queue entries that have been sent at least in part and are not complete. Where responses share
    /// the window, packets can be in flight without any such entry.
    pub requests_under_way: u32,
    /// Request packet expected next from the peer.
    pub expected: Seq,
    /// Number of messages of the peer completed here, modulo 2^24.
    pub msn: u32,
    /// Response (rPSN) expected next, in split sequence spaces; otherwise the same as `una`.
    pub response_expected: Seq,
    /// Counters.
    pub stats: QpStats,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) verbs: Verbs,
    pub(crate) carrier: Carrier,
}

/// The protocol that carries a queue pair, chosen when it is created, by its service and transport.
#[derive(Debug)]
pub(crate) enum Carrier {
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

impl Carrier {
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
        let carrier = match attributes.nvme {
            Some(role) => Carrier::Falcon(FalconEnd::new(Some(Box::new(role)))),
            None => Carrier::new(&transport),
        };
        Self { verbs: Verbs::new(Head::new(number, slot, attributes, transport), attributes), carrier }
    }

    /// Returns the Falcon part of a queue pair on Falcon.
    #[inline]
    pub(crate) fn falcon(&self) -> Option<&FalconEnd> {
        match &self.carrier {
            Carrier::Falcon(falcon) => Some(falcon),
            _ => None,
        }
    }

    /// Replaces the transport by another one for reliable connections of the RoCE family, before the queue pair is
    /// connected.
    pub(crate) fn set_transport(&mut self, transport: &Arc<Transport>) {
        self.verbs.head.transport = Arc::clone(transport);
        self.carrier = Carrier::new(transport);
        if self.verbs.head.srq.is_some() {
            // No receives are posted to it: the number that it takes from the shared receive queue depends on the
            // transport's window.
            self.verbs.recv = RecvHalf::new(&self.verbs.attributes(), transport);
        }
    }

    /// Makes it the target of an extended reliable connection, in the XRC domain `domain`.
    pub(crate) fn make_target(&mut self, core: &mut Core, domain: u32) {
        self.verbs.recv.is_target = true;
        core.targets.insert(self.verbs.head.number.get(), Target::new(domain));
    }

    /// Resets the queue pair to `Reset`, with the same queues.
    pub(crate) fn reset(&mut self) {
        let (number, slot, attributes) = (self.verbs.head.number, self.verbs.head.slot, self.verbs.attributes());
        // Timers may still contain this slot: a spurious wake-up has no effect.
        let is_target = self.verbs.recv.is_target;
        let nvme = self.falcon().and_then(FalconEnd::nvme_role).copied();
        *self = Self::new(number, slot, &QpAttributes { nvme, ..attributes });
        self.verbs.recv.is_target = is_target;
    }

    /// Queues a request. If the request consumes a receive, it is taken from the shared receive queue `srqn` of a
    /// target, when that is not 0.
    #[inline(always)]
    pub(crate) fn post_send(&mut self, core: &mut Core, request: &SendRequest<'_>, srqn: u32) -> Result<(), PostError> {
        let Self { verbs, carrier } = self;
        let mut wqe = verbs.send.prepare(&verbs.head, request)?;
        if let Carrier::Falcon(end) = carrier {
            end.check(&verbs.head, &wqe)?;
        }
        if srqn != 0 && wqe.op.consumes_receive() {
            // The field is not used otherwise for these operations.
            wqe.operand = u64::from(srqn);
        }
        if verbs.send.post(&verbs.head, core, wqe, request) {
            match carrier {
                Carrier::Roce(connection) => connection.on_work(verbs, core),
                Carrier::Unreliable(end) => end.on_work(verbs, core),
                Carrier::Falcon(end) => end.on_work(verbs, core),
            }
        }
        Ok(())
    }

    /// Checks whether [`Qp::post_send`] would accept `request`.
    pub(crate) fn check_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let wqe = self.verbs.send.prepare(&self.verbs.head, request)?;
        match &self.carrier {
            Carrier::Falcon(end) => end.check(&self.verbs.head, &wqe),
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
        let Self { verbs, carrier } = self;
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
        match carrier {
            Carrier::Roce(roce) => roce.begin_receiving(verbs, start),
            Carrier::Unreliable(end) => end.begin_receiving(start),
            Carrier::Falcon(_) => {}
        }
        Ok(())
    }

    /// Makes the queue pair ready to send, for the first time or again.
    pub(crate) fn begin_sending(&mut self, core: &mut Core, timing: &QpTiming) {
        let Self { verbs, carrier } = self;
        let fresh = verbs.head.state == QpState::ReadyToReceive;
        verbs.head.state = QpState::ReadyToSend;
        verbs.send.set_limits(timing);
        let start = Seq::start(timing.sq_psn);
        match carrier {
            Carrier::Roce(connection) => {
                if fresh {
                    connection.begin_sending(verbs, core, start);
                }
                connection.on_work(verbs, core);
            }
            Carrier::Unreliable(end) => {
                if fresh {
                    end.begin_sending(verbs, core, start);
                }
                end.on_work(verbs, core);
            }
            Carrier::Falcon(end) => {
                if fresh && verbs.send.start == Seq::UNSET {
                    verbs.send.start = start;
                }
                end.begin_sending(verbs, core);
            }
        }
    }

    /// Starts to drain the send queue.
    pub(crate) fn drain(&mut self, core: &mut Core) {
        let Self { verbs, carrier } = self;
        verbs.head.state = QpState::SendQueueDrained;
        match carrier {
            Carrier::Roce(connection) => connection.drain(verbs, core),
            Carrier::Unreliable(_) | Carrier::Falcon(_) => verbs.send.notice_drained(&verbs.head, core),
        }
    }

    /// Sets the key `qkey` that datagrams for this queue pair must carry.
    ///
    /// # Errors
    /// When the queue pair has another service.
    pub(crate) fn set_qkey(&mut self, qkey: u32) -> Result<(), ModifyError> {
        match (&mut self.carrier, self.verbs.head.transport.service) {
            (Carrier::Unreliable(end), Service::UnreliableDatagram) => end.set_qkey(qkey),
            (_, service) => return Err(ModifyError::Service(service)),
        }
        Ok(())
    }

    /// Moves the queue pair to the error state from any state: everything posted is flushed, except that the oldest
    /// request completes with the reason where the peer is known to have refused it.
    pub(crate) fn fail(&mut self, core: &mut Core) {
        let Self { verbs, carrier } = self;
        match carrier.known_failure(verbs) {
            Some(status) => verbs.complete_failed_head(core, status),
            None => verbs.fail(core),
        }
    }

    /// See [`crate::Engine::give_up_on_peer`].
    pub(crate) fn give_up_on_peer(&mut self, core: &mut Core) {
        let Self { verbs, carrier } = self;
        let known = carrier.known_failure(verbs);
        verbs.give_up_on_peer(core, known);
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
        let Self { verbs, carrier } = self;
        match carrier {
            Carrier::Unreliable(end) if end.accepts(&verbs.head, peer, format) => end.receive(verbs, core, packet, dma),
            _ => RxOutcome::Dropped(core.drop_packet(self.drop_reason(peer))),
        }
    }

    /// Builds the next packet, in `core.out`, of a queue pair without RoCE connection; returns whether there is one.
    #[inline(never)]
    pub(crate) fn transmit_other(&mut self, core: &mut Core) -> bool {
        match &mut self.carrier {
            Carrier::Unreliable(end) => end.transmit(&mut self.verbs, core),
            // Falcon connections are in rings of their own.
            Carrier::Roce(_) | Carrier::Falcon(_) => false,
        }
    }

    /// Handles `deadline`, which has expired in the timer heap for this queue pair: processes due timeouts if the
    /// deadline is its current one.
    pub(crate) fn on_alarm(&mut self, core: &mut Core, deadline: Deadline) {
        if let Carrier::Roce(connection) = &mut self.carrier
            && connection.take_expired(deadline)
        {
            connection.on_timeout(&mut self.verbs, core);
            self.settle_if_failed(core, None);
        }
    }

    /// Handles unreadable payload of the packet in `core.out`, the last one that this queue pair has built. Returns
    /// whether a packet without payload replaces it there.
    #[cold]
    pub(crate) fn fault_payload(&mut self, core: &mut Core) -> bool {
        let Self { verbs, carrier } = self;
        let made = match carrier {
            Carrier::Roce(connection) => connection.fault_payload(verbs, core),
            Carrier::Unreliable(end) => {
                end.fault_payload(verbs, core);
                false
            }
            Carrier::Falcon(_) => false,
        };
        self.settle_if_failed(core, None);
        made
    }

    /// Frees the NIC resources that the carrier holds, if this queue pair has failed while the input was processed.
    /// Called after each input.
    #[inline(always)]
    pub(crate) fn settle_if_failed(&mut self, core: &mut Core, nic: Option<&mut FalconNic>) {
        if self.verbs.head.has_failed {
            self.settle_failure(core, nic);
        }
    }

    /// Frees the NIC resources that its carrier holds. A Falcon connection ends, unless it owes its peer a refusal.
    #[cold]
    #[inline(never)]
    fn settle_failure(&mut self, core: &mut Core, nic: Option<&mut FalconNic>) {
        let Self { verbs, carrier } = self;
        verbs.head.has_failed = false;
        match (carrier, nic) {
            (Carrier::Roce(connection), _) => connection.stop(verbs, core),
            (Carrier::Falcon(end), Some(nic)) => end.stop(verbs, core, nic),
            (Carrier::Unreliable(_) | Carrier::Falcon(_), _) => {}
        }
    }

    /// Removes this queue pair from all shared state, before it is reset or destroyed.
    pub(crate) fn leave(&mut self, core: &mut Core, nic: Option<&mut FalconNic>) {
        let Self { verbs, carrier } = self;
        if let (Carrier::Falcon(end), Some(nic)) = (&mut *carrier, nic) {
            end.leave(verbs, core, nic);
        }
        core.forget(verbs.head.slot);
        if let Carrier::Roce(connection) = carrier {
            connection.leave(verbs, core);
            // The queue pair may have been woken for credit that it leaves unused.
            core.wake_for_credit(verbs.head.peer());
        }
    }

    /// See [`crate::Engine::repeat_acks`].
    pub(crate) fn repeat_acks(&mut self, core: &mut Core) -> bool {
        let Self { verbs, carrier } = self;
        let state = verbs.head.state;
        let talks = matches!(state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrained);
        if !(talks || state == QpState::Error && verbs.recv.refused.is_some()) {
            return false;
        }
        match carrier {
            Carrier::Roce(connection) => connection.repeat_acks(verbs, core),
            Carrier::Falcon(end) => end.repeat_acks(verbs, core),
            Carrier::Unreliable(_) => false,
        }
    }

    /// Returns the reason why a packet from `peer` is dropped: another sender than the peer, another format, or a queue
    /// pair that no longer receives.
    #[cold]
    fn drop_reason(&self, peer: PeerId) -> DropReason {
        let head = &self.verbs.head;
        let is_datagram = head.transport.service == Service::UnreliableDatagram;
        match head.state {
            QpState::Reset | QpState::Init => DropReason::State,
            _ if !is_datagram && head.peer() != peer => DropReason::WrongPeer,
            QpState::Error if !matches!(self.carrier, Carrier::Roce(_)) => DropReason::State,
            _ => DropReason::WrongFormat,
        }
    }

    /// Checks that the queue pair may be given another transport, or be made a target: that it is a reliable connection
    /// of the RoCE family.
    pub(crate) fn check_roce(&self) -> Result<(), ModifyError> {
        match self.carrier {
            Carrier::Roce(_) => Ok(()),
            _ => Err(ModifyError::Service(self.verbs.head.transport.service)),
        }
    }

    pub(crate) fn info(&self) -> QpInfo {
        let Self { verbs, carrier } = self;
        let Verbs { head, send, recv, stats } = verbs;
        let (start, first) = (send.start, recv.start);
        let mut qkey = 0;
        let [una, next, expected, response_expected] = match carrier {
            Carrier::Roce(connection) => connection.numbers(&head.transport),
            Carrier::Falcon(end) => end.numbers(start, first),
            Carrier::Unreliable(end) => {
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
            requests_under_way: send.queue.under_way(),
            expected,
            msn: recv.msn & 0xff_ffff,
            response_expected,
            stats: *stats,
        }
    }
}

impl Carrier {
    /// Returns the status with which the oldest entry of the send queue will complete, if it is known that it will
    /// fail.
    fn known_failure(&self, verbs: &Verbs) -> Option<crate::completion::WcStatus> {
        match self {
            Self::Falcon(end) => end.known_failure(verbs),
            Self::Roce(_) | Self::Unreliable(_) => None,
        }
    }
}
