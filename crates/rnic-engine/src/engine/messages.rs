//! Messages between NICs: the part of the engine that passes them on, and applies what they change at queue pairs.
//!
//! A driver that carries messages
//!
//! * enables them with [`Messages::enable`];
//! * sends what [`Engine::transmit`] returns as [`Departure::Message`](crate::Departure::Message), encoded by
//!   [`rnic_wire::scr::Message::encode`], to the peer, with the label as source port;
//! * passes datagrams for which [`rnic_wire::scr::is_message`] holds, parsed by
//!   [`rnic_wire::scr::Message::parse_verified`], to [`Engine::receive`] as a [`MessageArrival`], if they came from the
//!   address of a peer;
//! * reports what it measures: [`Messages::report_backlog`], [`Messages::report_load`].
//!
//! Timers are those of [`Engine::next_timeout`] and [`Engine::tick`].

use rnic_base::Time;
use rnic_policy::{ControlEvent, PathEvent, PathLabel};
use rnic_wire::Qpn;
use rnic_wire::scr::ProbePath;

use super::{Engine, signals};
use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::messages::config::ExchangeConfig;
use crate::messages::exchange::{CONTROL_PATH, DRIVER_PATH, Effect, Exchange, HostLoad};
use crate::messages::stats::RoundTrip;
use crate::packet::{MessageArrival, MessageTransmit};
use crate::roce::ProbeOutcome;

/// Access to the messages between NICs: enables them, and takes the measurements that the driver provides for them.
#[derive(Debug)]
pub struct Messages<'e> {
    engine: &'e mut Engine,
}

impl<'e> Messages<'e> {
    /// Returns the access to the messages of `engine`.
    pub fn of(engine: &'e mut Engine) -> Self {
        Self { engine }
    }

    /// Exchanges messages from now on, with the peers of all queue pairs that are connected.
    pub fn enable(self, now: Time, config: ExchangeConfig) {
        let Engine { core, qps, .. } = self.engine;
        core.now = now;
        let mut exchange = Box::new(Exchange::new(config, core.config.line_rate, now));
        for qp in qps.iter().filter(|qp| !qp.is_flow(&core.objects)) {
            let head = &qp.verbs.head;
            if head.state.receives() && head.peer() != crate::PeerId::NONE {
                let nic = exchange.nic_of(head.peer(), head.dest_qpn);
                exchange.connect(head.number, nic, head.dest_qpn, now);
            }
        }
        core.exchange = Some(exchange);
        core.counts_sent = true;
    }

    /// Reports that the peer of `qpn` supports messages, if the settings leave it to the driver to find out
    /// ([`ExchangeConfig::waits_for_agreement`]).
    pub fn agree(self, now: Time, qpn: Qpn) {
        let core = &mut self.engine.core;
        core.now = now;
        if let Some(exchange) = &mut core.exchange {
            exchange.agree(qpn, now);
        }
    }

    /// Returns the next message to send, but no other packet: drivers that answer probes immediately call this after
    /// receiving them.
    pub fn transmit(self, now: Time) -> Option<&'e MessageTransmit> {
        self.engine.core.now = now;
        if !transmit(self.engine) {
            return None;
        }
        self.engine.core.exchange.as_deref().map(Exchange::out)
    }

    /// Grants rates to the peer of `qpn`, if the settings leave the choice to the driver
    /// ([`GrantScope::Chosen`](crate::messages::config::GrantScope::Chosen)).
    pub fn grant_to(self, qpn: Qpn) {
        if let Some(exchange) = &mut self.engine.core.exchange {
            exchange.grant_to(qpn);
        }
    }

    /// Reports that `waiting_bytes` of received packets are queued for the host, and that the driver has dropped
    /// `drops` packets since its start. If these exceed the limits, the recent senders are notified (SCR mechanism
    /// S-26).
    pub fn report_backlog(self, now: Time, waiting_bytes: u64, drops: u64) {
        if let Some(exchange) = &mut self.engine.core.exchange {
            exchange.report_backlog(waiting_bytes, drops, now);
        }
    }

    /// Reports the load of the host, which is used in reports to peers, for congestion control and as a signal.
    pub fn report_load(self, now: Time, load: HostLoad) {
        let core = &mut self.engine.core;
        if let Some(exchange) = &mut core.exchange {
            exchange.report_load(load);
        }
        if let Some(collector) = &mut core.signals {
            collector.on_load(now, load);
        }
    }

    /// Returns the round trips that the probes of queue pairs have measured since the last call, the last few thousand
    /// at most.
    pub fn take_round_trips(self) -> impl Iterator<Item = RoundTrip> + use<> {
        self.engine.core.exchange.as_mut().map(|exchange| exchange.take_round_trips()).into_iter().flatten()
    }
}

impl Exchange {
    /// Returns the messages between NICs of `engine`, if they are enabled.
    #[must_use]
    pub fn of(engine: &Engine) -> Option<&Self> {
        engine.core.exchange.as_deref()
    }
}

/// Processes a received message.
#[cold]
#[inline(never)]
pub(super) fn receive(engine: &mut Engine, arrival: &MessageArrival<'_>) -> RxOutcome {
    let Engine { core, qps, .. } = engine;
    let now = core.now;
    let is_accepted = core.exchange.as_mut().is_some_and(|exchange| {
        let rate = |qpn| qps.find(qpn).and_then(|qp| qp.allowed_rate());
        exchange.receive(arrival.nic, arrival.label, arrival.message, now, rate)
    });
    if is_accepted {
        signals::accepted(&mut engine.core, arrival.nic, arrival.message);
    }
    apply_effects(engine);
    if is_accepted { RxOutcome::Accepted } else { RxOutcome::Dropped(engine.core.drop_packet(DropReason::Message)) }
}

/// Builds the next message; returns whether there is one.
#[cold]
#[inline(never)]
pub(super) fn transmit(engine: &mut Engine) -> bool {
    let core = &mut engine.core;
    let Some(exchange) = core.exchange.as_mut().filter(|exchange| exchange.has_messages()) else { return false };
    let is_built = exchange.build_next(core.now);
    if is_built {
        core.segments.clear();
    }
    is_built
}

/// Handles the timeouts of messages that are due.
#[cold]
#[inline(never)]
pub(super) fn tick(engine: &mut Engine) {
    let core = &mut engine.core;
    if let Some(exchange) = &mut core.exchange {
        exchange.on_timeout(core.now);
    }
    apply_effects(engine);
}

/// Counts the packet in `core.out`.
#[cold]
pub(super) fn count_sent(core: &mut Core) {
    let (from, label, payload_len) = (core.out.from, core.out.label, core.out.packet.payload_len);
    if let Some(exchange) = core.exchange.as_mut().filter(|_| payload_len > 0) {
        exchange.count_sent(from, label, payload_len, core.now);
    }
}

/// Counts a Falcon packet that queue pair `from` sends.
#[cold]
pub(super) fn count_sent_falcon(core: &mut Core, from: Qpn, payload_len: u32) {
    if let Some(exchange) = core.exchange.as_mut().filter(|_| payload_len > 0) {
        exchange.count_sent(from, PathLabel::default(), payload_len, core.now);
    }
}

/// Forgets a queue pair that is reset or destroyed.
#[cold]
pub(super) fn disconnect(core: &mut Core, qpn: Qpn) {
    if let Some(exchange) = &mut core.exchange {
        exchange.disconnect(qpn);
    }
    if let Some(collector) = &mut core.signals {
        collector.forget(qpn);
    }
}

/// Carries out what messages and timeouts have changed at queue pairs.
fn apply_effects(engine: &mut Engine) {
    let Engine { core, qps, .. } = engine;
    while let Some(effect) = core.exchange.as_mut().and_then(|exchange| exchange.take_effect()) {
        let (qpn, outcome) = match effect {
            Effect::Limit(qpn, limit) => {
                if let Some(qp) = qps.find_mut(qpn) {
                    qp.set_peer_limit(core, limit);
                }
                continue;
            }
            Effect::PathTick(qpn) => (qpn, Some(ProbeOutcome::Path(PathEvent::Tick))),
            Effect::Lost(qpn, path) => (qpn, lost(path)),
            Effect::Measured { qpn, path, round_trip: rtt, host } => {
                signals::measured(core, qpn, path.label, rtt);
                let outcome = match path.index {
                    CONTROL_PATH => {
                        let path = PathLabel(path.label);
                        Some(ProbeOutcome::Control(ControlEvent::RoundTrip { path, rtt, host }))
                    }
                    DRIVER_PATH => None,
                    index => Some(ProbeOutcome::Path(PathEvent::Probed { path: index, rtt })),
                };
                (qpn, outcome)
            }
        };
        if let Some((outcome, qp)) = outcome.zip(qps.find_mut(qpn)) {
            qp.on_probe(core, &outcome);
        }
    }
}

/// Returns the event of a lost probe, for the policy that asked for it.
fn lost(path: ProbePath) -> Option<ProbeOutcome> {
    match path.index {
        CONTROL_PATH => Some(ProbeOutcome::Control(ControlEvent::ProbeLost { path: PathLabel(path.label) })),
        DRIVER_PATH => None,
        index => Some(ProbeOutcome::Path(PathEvent::ProbeLost { path: index })),
    }
}
