//! The engine: routes inputs to queue pairs and drains what they want done.

mod change;
mod falcon;
mod farewell;
mod fault;
mod look;
mod setup;
mod table;

use rnic_base::{Absence, Duration, Psn, Time};
use rnic_policy::PathLabel;
use rnic_wire::falcon::PacketType;
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

use crate::completion::Completion;
use crate::config::EngineConfig;
use crate::core::Core;
use crate::dma::{Dma, Segment};
use crate::error::{DropReason, PostError, RxOutcome};
use crate::event::AsyncEvent;
use crate::falcon::Nic;
use crate::ready::Half;
use crate::stats::{EngineStats, PoolStats};
use crate::wr::{RecvRequest, SendRequest};
use crate::{CqId, PeerId, SrqId};

pub use change::SrqInfo;
pub use falcon::{FalconArrival, FalconStats, FalconTransmit, Reach};
pub use look::QpView;
use table::QpTable;

/// What the body knows about a packet beside its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// Whom it came from.
    pub peer: PeerId,
    /// The network marked it (ECN "congestion experienced").
    pub congested: bool,
}

/// What sort of packet leaves, for accounting and traces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransmitKind {
    /// An acknowledgement of any sort, or a CNP.
    Ack,
    /// A request, for the first time.
    Request,
    /// A request, again.
    RequestAgain,
    /// A response, for the first time.
    Response,
    /// A response, again.
    ResponseAgain,
}

impl TransmitKind {
    /// That of a packet of Falcon.
    #[inline]
    pub const fn of_falcon(packet: PacketType, again: bool) -> Self {
        match (packet, again) {
            (PacketType::Nack | PacketType::Ack | PacketType::ExtendedAck, _) => Self::Ack,
            (PacketType::PullData, false) => Self::Response,
            (PacketType::PullData, true) => Self::ResponseAgain,
            (_, false) => Self::Request,
            (_, true) => Self::RequestAgain,
        }
    }

    /// Whether the packet has been sent before.
    pub fn is_retransmission(self) -> bool {
        matches!(self, Self::RequestAgain | Self::ResponseAgain)
    }
}

/// A packet to send. Its payload is [`Engine::segments`].
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Headers.
    pub packet: Packet,
    /// How to encode them.
    pub format: Format,
    /// Whom to send it to.
    pub peer: PeerId,
    /// What the network shall hash.
    pub label: PathLabel,
    /// The queue pair it comes from.
    pub from: Qpn,
    /// What sort of packet it is.
    pub kind: TransmitKind,
    /// Of datagrams, what their address says of it ([`crate::DatagramAddress::mark`]). Of other packets, nothing.
    pub mark: u64,
}

impl Transmit {
    /// What lies in the engine before the first packet.
    pub(crate) const BLANK: Self = Self {
        packet: Packet {
            dest_qpn: Qpn::new(0),
            psn: Psn::new(0),
            flags: PacketFlags { solicited: false, ack_request: false, fecn: false, becn: false },
            payload_len: 0,
            headers: Headers::Cnp,
        },
        format: Format::RoceV2,
        peer: PeerId(0),
        label: PathLabel(0),
        from: Qpn::new(0),
        kind: TransmitKind::Ack,
        mark: 0,
    };
}

/// An RDMA NIC without link, clock and memory. See the crate documentation for how to drive it.
#[derive(Debug)]
pub struct Engine {
    core: Core,
    /// The state that Falcon's connections share; made with the first.
    falcon: Option<Box<Nic>>,
    qps: QpTable,
    pds: Vec<Option<()>>,
}

impl Engine {
    /// An engine with nothing in it.
    pub fn new(config: EngineConfig) -> Self {
        Self { qps: QpTable::new(config.secret), core: Core::new(config), falcon: None, pds: Vec::new() }
    }

    /// Queues a send request on `qpn`.
    ///
    /// # Errors
    /// When the queue is full or not there, its state forbids it, or the request breaks a limit. Nothing was queued
    /// then. Bad keys and ranges show in the completion, as in verbs.
    #[inline]
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.find_mut(qpn).ok_or(PostError::UnknownQp)?;
        qp.post_send(&mut self.core, request)
    }

    /// Returns whether [`Engine::post_send`] would take `request` now. Nothing is changed.
    ///
    /// # Errors
    /// As [`Engine::post_send`].
    pub fn check_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.qps.find(qpn).ok_or(PostError::UnknownQp)?.prepare_send(request).map(|_| ())
    }

    /// Queues a receive request on `qpn`.
    ///
    /// # Errors
    /// As [`Engine::post_send`].
    #[inline]
    pub fn post_recv(&mut self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.find_mut(qpn).ok_or(PostError::UnknownQp)?;
        qp.post_recv(&mut self.core, request)
    }

    /// Queues a receive request on a shared receive queue.
    ///
    /// # Errors
    /// When the queue is full or not there, or the request breaks a limit.
    pub fn post_srq_recv(&mut self, srq: SrqId, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let queue = self.core.srqs.get_mut(srq.index()).and_then(Option::as_mut).ok_or(PostError::UnknownSrq)?;
        if queue.is_full() {
            return Err(PostError::QueueFull);
        }
        if request.sges.len() > queue.sge_limit() {
            return Err(PostError::TooManySges { asked: request.sges.len(), limit: queue.sge_limit() });
        }
        queue.post(request.wr_id, request.sges);
        Ok(())
    }

    /// Takes a packet in. Its payload is what `dma` copies from.
    #[inline]
    pub fn receive<D: Dma>(
        &mut self,
        now: Time,
        format: Format,
        packet: &Packet,
        meta: RxMeta,
        dma: &mut D,
    ) -> RxOutcome {
        self.core.now = now;
        self.core.stats.packets_received += 1;
        let Some(qp) = self.qps.find_mut(packet.dest_qpn) else {
            return RxOutcome::Dropped(self.core.drop_packet(DropReason::UnknownQp));
        };
        if qp.peer != meta.peer || qp.transport.format != format {
            return self.receive_unreliable(format, packet, meta, dma);
        }
        let outcome = qp.receive(&mut self.core, now, packet, meta.congested, dma);
        self.core.watch.count(qp.slot, outcome);
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
        outcome
    }

    /// A packet that no reliable connection expects.
    #[inline(never)]
    fn receive_unreliable<D: Dma>(&mut self, format: Format, packet: &Packet, meta: RxMeta, dma: &mut D) -> RxOutcome {
        let qp = self.qps.find_mut(packet.dest_qpn).expect("the caller has found it");
        let outcome = qp.receive_unreliable(&mut self.core, format, packet, meta.peer, dma);
        self.core.watch.count(qp.slot, outcome);
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
        outcome
    }

    /// The next packet to send, if there is one that may leave now. Its payload is [`Engine::segments`] until the next
    /// call.
    #[inline(always)]
    pub fn transmit(&mut self, now: Time) -> Option<&Transmit> {
        self.core.now = now;
        while let Some(control) = self.core.control.pop() {
            if let Some(qp) = self.qps.at_mut(control.slot).filter(|qp| qp.number == control.from) {
                control.write(&mut self.core.out.packet);
                qp.send_ack(&mut self.core);
                return Some(&self.core.out);
            }
        }
        while let Some((half, slot)) = self.core.ready.pop() {
            let Some(qp) = self.qps.at_mut(slot) else { continue };
            let made = match half {
                Half::Requester => qp.transmit_request(&mut self.core, now),
                Half::Responder => qp.transmit_response(&mut self.core, now),
                Half::Falcon => unreachable!("what waits there goes to Falcon's own ring"),
            };
            if made {
                return Some(&self.core.out);
            }
            let peer = qp.peer;
            self.core.pass_on_room(peer);
        }
        // Requests may have failed on the way; a dead completion queue takes its queue pairs along.
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
        None
    }

    /// Where the payload of the packet that was last taken with [`Engine::transmit`] lies, in order.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        self.core.segments.as_slice()
    }

    /// Whether [`Engine::transmit`] may have something to hand out.
    #[inline]
    pub fn has_packets(&self) -> bool {
        !self.core.control.is_empty() || !self.core.ready.is_empty()
    }

    /// When [`Engine::tick`] must be called next, at the latest. May be early: a tick at which nothing is due costs
    /// little.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        self.core.timers.next()
    }

    /// Says that nobody drove the engine for `length` until now: its process was off its core, or busy with something
    /// else. Waits that this fell into are extended, where timeouts follow what is measured, and round trips are
    /// shorter by it. Bodies call it before they hand in what has come meanwhile, and [`Engine::tick`] after that.
    pub fn note_absence(&mut self, now: Time, length: Duration) {
        self.core.absence = Absence::until(now, length);
    }

    /// Says that all packets that arrived during the last absence have been handed in.
    #[inline]
    pub fn note_caught_up(&mut self) {
        self.core.absence = self.core.absence.caught_up();
    }

    /// Lets everything act that is due.
    pub fn tick(&mut self, now: Time) {
        self.core.now = now;
        while let Some((deadline, slot)) = self.core.timers.pop_due(now) {
            match self.qps.at_mut(slot).filter(|qp| qp.armed == deadline) {
                Some(qp) if qp.extra.falcon().is_none() => {
                    qp.armed = crate::timer::Deadline::NEVER;
                    qp.wake_up(&mut self.core, now);
                }
                _ => self.tick_falcon(deadline, slot),
            }
        }
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
    }

    /// Takes completions from `cq` into `into`; answers how many.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, into: &mut [Completion]) -> usize {
        self.core.cqs.get_mut(cq.0 as usize).and_then(Option::as_mut).map_or(0, |cq| cq.poll(into))
    }

    /// Takes one completion from `cq`.
    #[inline]
    pub fn poll_cq_one(&mut self, cq: CqId) -> Option<Completion> {
        self.core.cqs.get_mut(cq.0 as usize)?.as_mut()?.pop()
    }

    /// Takes a notice.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.core.events.pop_front()
    }

    /// What has been counted so far.
    pub fn stats(&self) -> &EngineStats {
        &self.core.stats
    }

    /// What has been counted in the pools that FaSR's queue pairs share.
    pub fn pool_stats(&self) -> PoolStats {
        self.core.pools.stats()
    }

    /// A completion queue has overflowed: the queue pairs that use it cannot go on.
    #[cold]
    fn fail_overrun(&mut self) {
        while let Some(cq) = self.core.overrun.pop() {
            for qp in self.qps.iter_mut().filter(|qp| qp.send_cq == cq || qp.recv_cq == cq) {
                if qp.state != crate::QpState::Reset {
                    self.core.notice(AsyncEvent::QpFatal(qp.number));
                    qp.enter_error(&mut self.core);
                    if let Some(nic) = &mut self.falcon {
                        qp.stop_falcon(&mut self.core, nic);
                    }
                }
            }
        }
    }
}
