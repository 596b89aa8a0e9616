//! The engine: routes inputs to queue pairs and drains what they want done.

mod change;
mod falcon;
mod farewell;
mod fault;
mod look;
mod nvme;
mod prefetch;
mod setup;
mod table;

use rnic_base::{Absence, Duration, Time};
use rnic_wire::{Format, Packet, Qpn};

use crate::config::EngineConfig;
use crate::core::Core;
use crate::dma::{Dma, Segment};
use crate::error::{DropReason, PostError, RxOutcome};
use crate::event::AsyncEvent;
use crate::falcon::Nic;
use crate::objects::Objects;
use crate::packet::{Arrival, Departure, RxMeta};
use crate::qp::{Carrier, Qp};
use crate::roce::RoceConnection;
use crate::stats::{EngineStats, PoolStats};
use crate::wr::{RecvRequest, SendRequest};

pub use look::QpView;
pub use nvme::Nvme;
pub use prefetch::{Hints, PREFETCH_STEPS};
use table::QpTable;

/// An RDMA NIC without link, clock and memory. See the crate documentation for how to drive it.
#[derive(Debug)]
pub struct Engine {
    core: Core,
    /// The state that Falcon's connections share; made with the first.
    falcon: Option<Box<Nic>>,
    qps: QpTable,
}

impl Engine {
    /// An engine with nothing in it.
    pub fn new(config: EngineConfig) -> Self {
        Self { qps: QpTable::new(config.secret), core: Core::new(config), falcon: None }
    }

    /// The verbs objects beside queue pairs: what can be asked about them.
    #[inline]
    pub fn objects(&self) -> &Objects {
        &self.core.objects
    }

    /// The verbs objects beside queue pairs, to make, use and end them.
    #[inline]
    pub fn objects_mut(&mut self) -> &mut Objects {
        &mut self.core.objects
    }

    /// Queues a send request on `qpn`.
    ///
    /// # Errors
    /// When the queue is full or not there, its state forbids it, or the request breaks a limit. Nothing was queued
    /// then. Bad keys and ranges show in the completion, as in verbs.
    #[inline]
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.find_mut(qpn).ok_or(PostError::UnknownQp)?;
        qp.post_send(&mut self.core, request, 0)
    }

    /// Returns whether [`Engine::post_send`] would take `request` now. Nothing is changed.
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
        qp.verbs.post_recv(&mut self.core, request)
    }

    /// Takes a packet in. Its payload is what `dma` copies from.
    #[inline(always)]
    pub fn receive<D: Dma>(&mut self, now: Time, arrival: Arrival<'_>, dma: &mut D) -> RxOutcome {
        self.core.now = now;
        self.core.stats.packets_received += 1;
        match arrival {
            Arrival::Roce(format, packet, meta) => self.receive_roce(format, packet, meta, dma),
            Arrival::Falcon(arrival) => self.receive_falcon(&arrival, dma),
        }
    }

    #[inline]
    fn receive_roce<D: Dma>(&mut self, format: Format, packet: &Packet, meta: RxMeta, dma: &mut D) -> RxOutcome {
        let Self { core, qps, .. } = self;
        let Some(qp) = qps.find_mut(packet.dest_qpn) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::UnknownQp));
        };
        let outcome = match qp {
            Qp { verbs, carrier: Carrier::Roce(connection) } if verbs.head.accepts(meta.peer, format) => {
                connection.receive(verbs, core, packet, meta.congested, dma)
            }
            _ => qp.receive_other(core, format, packet, meta.peer, dma),
        };
        let slot = qp.verbs.head.slot;
        core.watch.count(slot, outcome);
        if core.is_unsettled {
            self.settle_failures(slot);
        }
        outcome
    }

    /// The next packet to send, if there is one that may leave now. Its payload is [`Engine::segments`] until the next
    /// call.
    #[inline(always)]
    pub fn transmit(&mut self, now: Time) -> Option<Departure<'_>> {
        self.core.now = now;
        while let Some(control) = self.core.control.pop() {
            if let Some(qp) = self.qps.at_mut(control.slot).filter(|qp| qp.verbs.head.number == control.from) {
                control.write(&mut self.core.out.packet);
                RoceConnection::send_ack(&qp.verbs, &mut self.core);
                return Some(Departure::Roce(&self.core.out));
            }
        }
        if self.falcon.is_some() && self.transmit_falcon() {
            return self.falcon.as_deref().map(|nic| Departure::Falcon(&nic.out));
        }
        while let Some((half, slot)) = self.core.ready.pop() {
            let Some(qp) = self.qps.at_mut(slot) else { continue };
            let made = match qp {
                Qp { verbs, carrier: Carrier::Roce(connection) } => connection.transmit(half, verbs, &mut self.core),
                _ => qp.transmit_other(&mut self.core),
            };
            qp.settle_if_failed(&mut self.core, None);
            if made {
                return Some(Departure::Roce(&self.core.out));
            }
        }
        // Requests may have failed on the way; a dead completion queue takes its queue pairs along.
        if self.core.is_unsettled {
            self.fail_overrun();
        }
        None
    }

    /// Where the payload of the packet that was last taken with [`Engine::transmit`] lies, in order.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        self.core.segments.as_slice()
    }

    /// Returns whether [`Engine::transmit`] may have something to hand out.
    #[inline]
    pub fn has_packets(&self) -> bool {
        !self.core.control.is_empty() || !self.core.ready.is_empty() || self.stamps_departures()
    }

    /// Returns whether packets wait that carry the time at which they leave: whoever hands out several looks at the
    /// clock in between.
    #[inline]
    pub fn stamps_departures(&self) -> bool {
        self.core.ready.has_falcon()
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
            match self.qps.at_mut(slot) {
                Some(qp @ Qp { carrier: Carrier::Roce(_) | Carrier::Unreliable(_), .. }) => {
                    qp.on_alarm(&mut self.core, deadline);
                }
                _ => self.tick_falcon(deadline, slot),
            }
        }
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
    }

    /// What has been counted so far.
    pub fn stats(&self) -> &EngineStats {
        &self.core.stats
    }

    /// What has been counted in the pools that FaSR's queue pairs share.
    pub fn pool_stats(&self) -> PoolStats {
        self.core.pools.stats()
    }

    /// The input at hand, for the queue pair in `slot`, is done, and something has failed during it: what a failed
    /// queue pair's carrier holds of the NIC is given back, and a dead completion queue takes its queue pairs along.
    #[cold]
    #[inline(never)]
    fn settle_failures(&mut self, slot: u32) {
        let Self { core, falcon, qps, .. } = self;
        if let Some(qp) = qps.at_mut(slot) {
            qp.settle_if_failed(core, falcon.as_deref_mut());
        }
        self.fail_overrun();
    }

    /// A completion queue has overflowed: the queue pairs that use it cannot go on.
    #[cold]
    fn fail_overrun(&mut self) {
        while let Some(cq) = self.core.overrun.pop() {
            for qp in self.qps.iter_mut().filter(|qp| qp.verbs.head.uses(cq)) {
                if qp.verbs.head.state != crate::QpState::Reset {
                    self.core.notice(AsyncEvent::QpFatal(qp.verbs.head.number));
                    qp.verbs.fail(&mut self.core);
                    qp.settle_if_failed(&mut self.core, self.falcon.as_deref_mut());
                }
            }
        }
        self.core.is_unsettled = false;
    }
}
