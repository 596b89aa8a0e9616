//! Signals: passes events at queue pairs to the collectors ([`crate::signals`]).

use rnic_base::{Duration, Time};
use rnic_scr::{Kind, Signal};
use rnic_wire::falcon::PacketType;
use rnic_wire::net::{IpVersion, link_len};
use rnic_wire::scr::{Body, Message};
use rnic_wire::{Format, Headers, Packet, Qpn, Syndrome};

use super::Engine;
use crate::core::Core;
use crate::error::RxOutcome;
use crate::limiter::OVERHEAD_BYTES;
use crate::packet::FalconArrival;
use crate::qp::{ProtocolState, Qp};
use crate::signals::{Collector, SignalSettings};
use crate::{NicId, PeerId};

/// Access to the signals of an engine.
#[derive(Debug)]
pub struct Signals<'e> {
    engine: &'e mut Engine,
}

impl<'e> Signals<'e> {
    /// Returns access to the signals of `engine`.
    pub fn of(engine: &'e mut Engine) -> Self {
        Self { engine }
    }

    /// Starts collecting congestion signals, and watching all queue pairs ([`Engine::watch`]), including existing ones.
    pub fn collect(self, settings: SignalSettings) {
        let Engine { core, qps, .. } = self.engine;
        core.watch.begin();
        for qp in qps.iter() {
            core.watch.ensure(qp.verbs.head.slot);
        }
        let mut collector = Box::new(Collector::new(settings));
        for qp in qps.iter().filter(|qp| !qp.is_flow(&core.objects)) {
            if let ProtocolState::Roce(connection) = &qp.protocol {
                let [una, ..] = connection.numbers(&qp.verbs.head.transport);
                collector.newly_acknowledged(qp.verbs.head.number, una, una);
            }
        }
        core.signals = Some(collector);
        core.counts_sent = true;
    }

    /// Collects signals until `until`; returns false if collecting has not been started.
    pub fn keep_until(self, now: Time, until: Time) -> bool {
        let collector = self.engine.core.signals.as_mut().filter(|collector| !collector.is_over(now));
        collector.map(|collector| collector.keep_until(until)).is_some()
    }

    /// Returns whether signals are collected.
    pub fn are_collected(&self) -> bool {
        self.engine.core.signals.is_some()
    }

    /// Removes and returns the records that are complete at `now`, in the order of their completion, at most `max` of
    /// them.
    pub fn take(self, now: Time, max: usize) -> impl Iterator<Item = Signal> + use<'e> {
        let collector = self.engine.core.signals.as_deref_mut();
        collector.into_iter().flat_map(move |collector| collector.take(now, max))
    }

    /// Returns the number of signals that were lost because too many records were waiting.
    pub fn lost(&self) -> u64 {
        self.engine.core.signals.as_ref().map_or(0, |collector| collector.lost())
    }

    /// Reports a hint of an application: its `weight`, and its rate limit in bits per second, or 0 for none. `subject`
    /// is a number chosen by the driver.
    pub fn note_hint(self, now: Time, subject: u32, weight: u16, cap_bps: u64) {
        if let Some(collector) = &mut self.engine.core.signals {
            collector.on_hint(subject, now, weight, cap_bps);
        }
    }
}

/// Returns the collector. When its time has expired, it is removed first, so that packets no longer cost anything.
fn collector(core: &mut Core) -> Option<&mut Collector> {
    if core.signals.as_ref().is_some_and(|collector| collector.is_over(core.now)) {
        core.signals = None;
        core.counts_sent = core.exchange.is_some();
    }
    core.signals.as_deref_mut()
}

/// Collects a packet of the RoCE family, or of an unreliable service, that `qp` has received.
#[cold]
#[inline(never)]
pub(super) fn received(
    core: &mut Core,
    qp: &Qp,
    format: Format,
    packet: &Packet,
    (peer, outcome): (PeerId, RxOutcome),
) {
    let (now, number) = (core.now, qp.verbs.head.number);
    // A go-back-N receiver drops packets of its peer that it has received. Packets of others are no signals.
    if matches!(outcome, RxOutcome::Dropped(_)) && !qp.verbs.head.accepts(peer, format) {
        return;
    }
    let rtt = core.watch.get(qp.verbs.head.slot).and_then(|watched| watched.round_trip.last());
    // The collector follows one sequence of a queue pair.
    let is_flow = qp.is_flow(&core.objects);
    let Some(collector) = collector(core) else { return };
    match &packet.headers {
        Headers::Cnp => collector.on_flow(Kind::Cnp, number, now, 0),
        Headers::Ack { aeth, .. }
        | Headers::ReadAck { aeth, .. }
        | Headers::LossAck { aeth, .. }
        | Headers::TrimNack { aeth, .. } => {
            if matches!(aeth.syndrome, Syndrome::Ack { .. }) {
                let bytes = if is_flow { 0 } else { acknowledged_bytes(collector, qp) };
                collector.on_ack(number, now, bytes, rtt);
            } else {
                collector.on_flow(Kind::Nack, number, now, 0);
            }
        }
        _ if packet.payload_len > 0 => {
            let bytes = link_len(IpVersion::V4, packet.udp_payload_len(format));
            collector.on_flow(Kind::Rx, number, now, bytes.into());
        }
        _ => {}
    }
}

/// Returns the bytes of the requests that the last packet has acknowledged, in full packets.
fn acknowledged_bytes(collector: &mut Collector, qp: &Qp) -> u64 {
    let ProtocolState::Roce(connection) = &qp.protocol else { return 0 };
    let head = &qp.verbs.head;
    let [una, ..] = connection.numbers(&head.transport);
    collector.newly_acknowledged(head.number, qp.verbs.send.start, una).saturating_mul(head.mtu().into())
}

/// Collects a Falcon packet that `qp` has received.
#[cold]
#[inline(never)]
pub(super) fn received_falcon(core: &mut Core, qp: &Qp, arrival: &FalconArrival<'_>, outcome: RxOutcome) {
    let (now, number) = (core.now, qp.verbs.head.number);
    if matches!(outcome, RxOutcome::Dropped(_)) && arrival.peer != qp.verbs.head.peer() {
        return;
    }
    let payload_len = arrival.packet.payload_len;
    let rtt = qp.falcon().and_then(|end| end.delivery()).and_then(|delivery| delivery.round_trip());
    let Some(collector) = collector(core) else { return };
    match arrival.packet.body.packet_type() {
        PacketType::Ack | PacketType::ExtendedAck => collector.on_ack(number, now, 0, rtt),
        PacketType::Nack => collector.on_flow(Kind::Nack, number, now, 0),
        _ if payload_len > 0 => collector.on_flow(Kind::Rx, number, now, u64::from(payload_len) + OVERHEAD_BYTES),
        _ => {}
    }
}

/// Collects a packet with `payload_len` bytes that queue pair `from` has sent.
#[cold]
#[inline(never)]
pub(super) fn sent(core: &mut Core, from: Qpn, payload_len: u32) {
    let now = core.now;
    if let Some(collector) = collector(core).filter(|_| payload_len > 0) {
        collector.on_flow(Kind::Tx, from, now, u64::from(payload_len) + OVERHEAD_BYTES);
    }
}

/// Collects an accepted message of `peer`.
pub(super) fn accepted(core: &mut Core, peer: NicId, message: &Message) {
    let now = core.now;
    let Core { signals: Some(collector), exchange: Some(exchange), .. } = core else { return };
    match &message.body {
        Body::NodeReport(report) => collector.on_report(peer, now, report),
        Body::Grants(records) => {
            for grant in records.as_slice().iter().filter(|grant| exchange.has_flow_to(peer, grant.qpn)) {
                collector.on_credit(grant.qpn, now, u64::from(grant.rate_kbps) * 1_000);
            }
        }
        Body::Probe(_) | Body::Answer(_) | Body::Hint(_) | Body::BackPressure(_) => {}
    }
}

/// Collects the round trip of a probe of `qpn` on the path with `label`.
pub(super) fn measured(core: &mut Core, qpn: Qpn, label: u16, rtt: Duration) {
    let now = core.now;
    if let Some(collector) = &mut core.signals {
        collector.on_round_trip(qpn, now, label, rtt);
    }
}
