//! The engine: dispatches inputs to queue pairs and sends the packets that they produce.

mod change;
mod classes;
mod falcon;
mod fault;
mod final_ack;
mod flows;
mod latency;
mod messages;
mod nvme;
mod observer;
mod prefetch;
mod setup;
mod sharing;
mod signals;
mod snapshot;
mod table;

use rnic_base::{Absence, Duration, Time};
use rnic_wire::{Format, Packet, Qpn};

use crate::config::EngineConfig;
use crate::core::Core;
use crate::dma::{Dma, Segment};
use crate::error::{DropReason, PostError, RxOutcome};
use crate::event::AsyncEvent;
use crate::falcon::FalconNic;
use crate::objects::Objects;
use crate::packet::{Arrival, Departure, RxMeta};
use crate::qp::{ProtocolState, Qp};
use crate::roce::RoceConnection;
use crate::stats::{EngineStats, PoolStats};
use crate::wr::{RecvRequest, SendRequest};

pub use classes::Classes;
use flows::Groups;
pub use latency::Latencies;
pub use messages::Messages;
pub use nvme::Nvme;
pub use observer::{DriverCall, Observer, observe};
pub use prefetch::{Hints, PREFETCH_STEPS};
pub use sharing::Sharing;
pub use signals::Signals;
pub use snapshot::QpSnapshot;
use table::QpTable;

/// An RDMA NIC without link, clock and memory, which the driver provides. See the crate documentation for how to
/// drive it.
#[derive(Debug)]
pub struct Engine {
    core: Core,
    /// State that all Falcon connections share; created with the first Falcon queue pair.
    falcon: Option<Box<FalconNic>>,
    qps: QpTable,
    /// Flows of queue pairs that use several.
    groups: Groups,
    /// Recorder of the driver's calls, if there is one.
    observer: Option<Box<dyn Observer>>,
}

impl Engine {
    /// Returns an engine without any objects.
    pub fn new(config: EngineConfig) -> Self {
        Self {
            qps: QpTable::new(config.secret),
            core: Core::new(config),
            falcon: None,
            groups: Groups::default(),
            observer: None,
        }
    }

    /// Returns read access to the verbs objects other than queue pairs.
    #[inline]
    pub fn objects(&self) -> &Objects {
        &self.core.objects
    }

    /// Returns mutable access to the verbs objects other than queue pairs: to create, use and destroy them.
    #[inline]
    pub fn objects_mut(&mut self) -> &mut Objects {
        &mut self.core.objects
    }

    /// Queues a send request on `qpn`.
    ///
    /// # Errors
    /// When the queue is full or does not exist, its state does not permit it, or the request exceeds a limit. In
    /// this case the request is not queued. Bad keys and ranges are reported in the completion, as in verbs.
    #[inline]
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.find_mut(qpn).ok_or(PostError::UnknownQp)?;
        let result = qp.post_send(&mut self.core, request, 0);
        if self.observer.is_some() {
            observer::note(self, &DriverCall::PostSend(qpn, request, result));
        }
        result
    }

    /// Checks whether [`Engine::post_send`] would accept `request` now, without changing any state.
    ///
    /// # Errors
    /// As [`Engine::post_send`].
    pub fn check_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.qps.find(qpn).ok_or(PostError::UnknownQp)?.check_send(request)
    }

    /// Queues a receive request on `qpn`.
    ///
    /// # Errors
    /// As [`Engine::post_send`].
    #[inline]
    pub fn post_recv(&mut self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.find_mut(qpn).ok_or(PostError::UnknownQp)?;
        let result = qp.verbs.post_recv(&mut self.core, request);
        if self.observer.is_some() {
            observer::note(self, &DriverCall::PostRecv(qpn, request, result));
        }
        result
    }

    /// Processes a received packet. Its payload is the source from which `dma` copies.
    #[inline(always)]
    pub fn receive<D: Dma>(&mut self, now: Time, arrival: Arrival<'_>, dma: &mut D) -> RxOutcome {
        if self.observer.is_some() {
            return observer::receive(self, now, arrival, dma);
        }
        process(self, now, arrival, dma)
    }

    #[inline]
    fn receive_roce<D: Dma>(&mut self, format: Format, packet: &Packet, meta: RxMeta, dma: &mut D) -> RxOutcome {
        let Self { core, qps, .. } = self;
        if let Some(exchange) = &mut core.exchange {
            let lengths = [packet.udp_payload_len(format), packet.payload_len];
            exchange.count_received(packet.dest_qpn, meta.peer, lengths, core.now);
        }
        let Some(qp) = qps.find_mut(packet.dest_qpn) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::UnknownQp));
        };
        let outcome = match qp {
            Qp { verbs, protocol: ProtocolState::Roce(connection) } if verbs.head.accepts(meta.peer, format) => {
                connection.receive(verbs, core, packet, meta.congested, dma)
            }
            _ => qp.receive_other(core, format, packet, meta.peer, dma),
        };
        let slot = qp.verbs.head.slot;
        if let Some(watched) = core.watch.of(slot) {
            watched.count(outcome);
            if core.signals.is_some() {
                signals::received(core, qp, format, packet, (meta.peer, outcome));
            }
        }
        if core.is_unsettled {
            self.settle_failures(slot);
        }
        outcome
    }

    /// Returns the next packet to send, if there is one that may be sent now. [`Engine::segments`] returns its
    /// payload until the next call.
    #[inline(always)]
    pub fn transmit(&mut self, now: Time) -> Option<Departure<'_>> {
        if self.observer.is_some() {
            return observer::transmit(self, now);
        }
        build_next(self, now)
    }

    /// Returns the memory ranges, in order, that contain the payload of the packet last returned by
    /// [`Engine::transmit`].
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        self.core.segments.as_slice()
    }

    /// Returns `true` if [`Engine::transmit`] may return a packet.
    #[inline]
    pub fn has_packets(&self) -> bool {
        !self.core.control.is_empty()
            || !self.core.ready.is_empty()
            || self.core.pulls.is_due(self.core.now)
            || self.stamps_departures()
            || self.core.exchange.as_ref().is_some_and(|exchange| exchange.has_messages())
            || self.core.classes.as_ref().is_some_and(|classes| classes.waiting() != 0)
    }

    /// Returns `true` if packets are waiting that carry their departure time: a driver that sends several of them
    /// reads the clock before each.
    #[inline]
    pub fn stamps_departures(&self) -> bool {
        self.core.ready.has_falcon()
    }

    /// Returns the time at which [`Engine::tick`] must be called next, at the latest. The time may be earlier than
    /// necessary: a tick at which no timeout is due takes little time.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        let mut next = self.core.timers.next();
        if let Some(pull) = self.core.pulls.next_after(self.core.now) {
            next = Some(next.map_or(pull, |next| next.min(pull)));
        }
        match &self.core.exchange {
            None => next,
            Some(exchange) => next.into_iter().chain(exchange.next_timeout()).min(),
        }
    }

    /// Reports that the engine was not driven for `length` until now, because its process was descheduled or busy
    /// with other work. Timeouts that are derived from measured times are extended by the part of this period that
    /// falls into them, and round-trip times are reduced by it. Drivers call this function before they pass in the
    /// packets that arrived in the meantime, and [`Engine::tick`] after that.
    pub fn note_absence(&mut self, now: Time, length: Duration) {
        self.core.absence = Absence::until(now, length);
        if self.observer.is_some() {
            self.core.now = now;
            observer::note(self, &DriverCall::Absence(length));
        }
    }

    /// Reports that all packets that arrived during the last absence have been passed in.
    #[inline]
    pub fn note_caught_up(&mut self) {
        self.core.absence = self.core.absence.caught_up();
        if self.observer.is_some() {
            observer::note(self, &DriverCall::CaughtUp);
        }
    }

    /// Processes all timeouts that are due.
    pub fn tick(&mut self, now: Time) {
        self.core.now = now;
        while let Some((deadline, slot)) = self.core.timers.pop_due(now) {
            match self.qps.at_mut(slot) {
                Some(qp @ Qp { protocol: ProtocolState::Roce(_) | ProtocolState::Unreliable(_), .. }) => {
                    qp.on_timer(&mut self.core, deadline);
                }
                _ => self.tick_falcon(deadline, slot),
            }
        }
        if self.core.exchange.is_some() {
            messages::tick(self);
        }
        if !self.core.overrun_cqs.is_empty() {
            self.fail_overrun();
        }
        if !self.core.flows_due.is_empty() {
            flows::serve(self);
        }
        if self.observer.is_some() {
            observer::note(self, &DriverCall::Tick);
        }
    }

    /// Returns the statistics collected so far.
    pub fn stats(&self) -> &EngineStats {
        &self.core.stats
    }

    /// Returns the statistics of the pools that FaSR's queue pairs share.
    pub fn pool_stats(&self) -> PoolStats {
        self.core.pools.stats()
    }

    /// Handles failures after the current input, which was for the queue pair in `slot`, has been processed: frees
    /// the NIC resources that the protocol of a failed queue pair holds, fails the queue pairs of overflowed completion
    /// queues, and serves flows.
    #[cold]
    #[inline(never)]
    fn settle_failures(&mut self, slot: u32) {
        let Self { core, falcon, qps, .. } = self;
        if let Some(qp) = qps.at_mut(slot) {
            qp.settle_if_failed(core, falcon.as_deref_mut());
        }
        flows::serve(self);
        self.fail_overrun();
    }

    /// Fails all queue pairs that use an overflowed completion queue.
    #[cold]
    fn fail_overrun(&mut self) {
        while let Some(cq) = self.core.overrun_cqs.pop() {
            for qp in self.qps.iter_mut().filter(|qp| qp.verbs.head.uses(cq)) {
                if qp.verbs.head.state != crate::QpState::Reset {
                    self.core.raise_event(AsyncEvent::QpFatal(qp.verbs.head.number));
                    qp.verbs.fail(&mut self.core);
                    qp.settle_if_failed(&mut self.core, self.falcon.as_deref_mut());
                }
            }
            flows::serve(self);
        }
        self.core.is_unsettled = false;
    }
}

/// Processes a received packet.
#[inline(always)]
fn process<D: Dma>(engine: &mut Engine, now: Time, arrival: Arrival<'_>, dma: &mut D) -> RxOutcome {
    engine.core.now = now;
    engine.core.stats.packets_received += 1;
    match arrival {
        Arrival::Roce(format, packet, meta) => engine.receive_roce(format, packet, meta, dma),
        Arrival::Falcon(arrival) => engine.receive_falcon(&arrival, dma),
        Arrival::Message(arrival) => messages::receive(engine, &arrival),
    }
}

/// Builds and returns the next packet.
#[inline(always)]
fn build_next(engine: &mut Engine, now: Time) -> Option<Departure<'_>> {
    engine.core.now = now;
    if engine.core.exchange.is_some() && messages::transmit(engine) {
        return engine.core.exchange.as_deref().map(|exchange| Departure::Message(exchange.out()));
    }
    while let Some(control) = engine.core.control.pop() {
        if let Some(qp) = engine.qps.at_mut(control.slot).filter(|qp| qp.verbs.head.number == control.from) {
            control.write(&mut engine.core.out.packet);
            RoceConnection::send_ack(&qp.verbs, &mut engine.core);
            return Some(Departure::Roce(&engine.core.out));
        }
    }
    if engine.core.pulls.is_due(now) && transmit_pull(&mut engine.core, &mut engine.qps) {
        return Some(Departure::Roce(&engine.core.out));
    }
    if engine.falcon.is_some() && engine.transmit_falcon() {
        count_sent_falcon(&mut engine.core, engine.falcon.as_deref());
        return engine.falcon.as_deref().map(|nic| Departure::Falcon(&nic.out));
    }
    while let Some((half, slot)) = engine.core.ready.pop() {
        let Some(qp) = engine.qps.at_mut(slot) else { continue };
        let is_built = match qp {
            Qp { verbs, protocol: ProtocolState::Roce(connection) } => {
                connection.transmit(half, verbs, &mut engine.core)
            }
            _ => qp.transmit_other(&mut engine.core),
        };
        qp.settle_if_failed(&mut engine.core, None);
        if is_built {
            if engine.core.counts_sent {
                count_sent(&mut engine.core);
            }
            return Some(Departure::Roce(&engine.core.out));
        }
        if engine.core.is_unsettled && !engine.core.flows_due.is_empty() {
            flows::serve(engine);
        }
    }
    // Requests may have failed in this call, and the completion queue may have overflowed, which makes its queue
    // pairs fail.
    if engine.core.is_unsettled {
        engine.fail_overrun();
    }
    None
}

/// Builds the next pull, in `core.out`; returns whether there is one.
#[cold]
#[inline(never)]
fn transmit_pull(core: &mut Core, qps: &mut QpTable) -> bool {
    while let Some(slot) = core.pulls.pop() {
        if let Some(Qp { verbs, protocol: ProtocolState::Roce(connection) }) = qps.at_mut(slot)
            && connection.transmit_pull(verbs, core)
        {
            return true;
        }
    }
    false
}

/// Counts the packet in `core.out`, for messages and signals.
#[cold]
#[inline(never)]
fn count_sent(core: &mut Core) {
    messages::count_sent(core);
    let (from, payload_len) = (core.out.from, core.out.packet.payload_len);
    signals::sent(core, from, payload_len);
}

/// Counts the Falcon packet that is sent.
#[inline]
fn count_sent_falcon(core: &mut Core, nic: Option<&FalconNic>) {
    let Some(nic) = nic.filter(|_| core.counts_sent) else { return };
    let (from, payload_len) = (nic.out.from, nic.out.packet.payload_len);
    messages::count_sent_falcon(core, from, payload_len);
    signals::sent(core, from, payload_len);
}
