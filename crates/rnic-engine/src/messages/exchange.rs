//! The owner of all state that messages between NICs need: peers, queue pairs, grants, what waits to be sent.
//!
//! An engine has one when its driver has enabled messages ([`crate::Messages::enable`]). The rules are in the other
//! modules of [`crate::messages`]; this one applies them. It knows queue pairs by number only: what a message changes
//! at a queue pair is an [`Effect`], which the engine carries out.
//!
//! Each NIC *greets* each peer when the first queue pair is connected to it, by a probe between the NICs: the
//! answer announces the peer's cookie, and later ones give the round trip. Before that no other message is sent.

mod alarms;
mod flow;
mod outbox;
mod partner;
mod paths;
mod receive;
mod send;

use std::collections::{BTreeMap, VecDeque};

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Time};
use rnic_policy::{HostDelays, PathLabel};
use rnic_wire::Qpn;
use rnic_wire::net::{IpVersion, link_len};
use rnic_wire::scr::{BackPressure, Cookie, ProbePath, Records};

use super::cadence::{Cadence, Cause, Loads};
use super::config::{ExchangeConfig, GrantScope};
use super::grants::{GrantLaw, NewGrant};
use super::limit::{Bounds, FLOOR_MIN, INTERVAL_MAX};
use super::peer::Peers;
use super::pressure::{Backlog, reaction_time};
use super::stats::{ExchangeStats, RoundTrip};
use crate::limiter::OVERHEAD_BYTES;
use crate::packet::MessageTransmit;
use crate::{NicId, PeerId};

use alarms::{Alarms, Owner};
use flow::Flow;
use outbox::{Outbox, Pending};
use partner::Partner;

pub(crate) use flow::{CONTROL_PATH, DRIVER_PATH};

/// A change at a queue pair that the engine has to apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The limit set by messages of the peer has changed.
    Limit(Qpn, Option<BitRate>),
    /// A probe has been answered.
    Measured { qpn: Qpn, path: ProbePath, round_trip: Duration, host: HostDelays },
    /// A probe has timed out.
    Lost(Qpn, ProbePath),
    /// The tick that a path policy has requested is due.
    PathTick(Qpn),
}

/// Load of the host and its NIC, as measured by the driver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostLoad {
    /// Latency of a read over the host bus, or a substitute for it.
    pub bus_latency: Duration,
    /// Utilisation of the host bus, as a fraction of 2^16.
    pub bus_use: u16,
    /// Utilisation of the NIC, as a fraction of 2^16; zero if it is not measured.
    pub nic_use: u16,
    /// Number of times that the NIC had to read the context of a queue pair from memory.
    pub context_misses: u64,
}

/// Messages with all peers of a NIC.
#[derive(Debug)]
pub struct Exchange {
    config: ExchangeConfig,
    line: BitRate,
    peers: Peers,
    partners: BTreeMap<NicId, Partner>,
    flows: BTreeMap<Qpn, Flow>,
    law: GrantLaw,
    alarms: Alarms,
    outbox: Outbox,
    effects: VecDeque<Effect>,
    random: RandomStream,
    stats: ExchangeStats,
    port: PortUse,
    load: HostLoad,
    /// Packets that the driver has dropped.
    drops: u64,
    /// True while senders still have to be notified of drops, once their last notice is old enough.
    has_untold_drops: bool,
    /// True from the time at which the waiting bytes exceed the threshold of back-pressure until they fall to half of
    /// it.
    is_backlogged: bool,
    /// Number of backlogs that have ended.
    backlogs: u32,
    /// True while no period is running, because nothing arrives.
    is_resting: bool,
    /// Queue pairs that have received data since [`Self::report_backlog`] last processed them, in order of time.
    recent: VecDeque<Qpn>,
    /// Grants of the period that is ending; empty between periods.
    new_grants: Vec<NewGrant>,
    /// Round trips that the driver has not taken yet.
    measured: VecDeque<RoundTrip>,
    /// The message to be returned next.
    out: MessageTransmit,
}

/// Bytes that the port has received.
#[derive(Clone, Copy, Default, Debug)]
struct PortUse {
    /// Number of bytes in the current period, and its start.
    bytes: u64,
    since: Time,
    /// Rate in the last period, as a fraction of 2^20 of the line rate.
    rate: u32,
}

/// Maximum number of queue pairs whose senders are notified of one backlog.
const RECENT_MAX: usize = 64;

/// Maximum number of measured round trips stored for the driver.
const MEASURED_MAX: usize = 1 << 12;

/// Number of peers above which a process sends fewer reports to each, because each is a system call.
const CROWD: u64 = 16;

/// One in the fractions of 2^20 that messages carry.
const Q20: u64 = 1 << 20;

impl Exchange {
    pub(crate) fn new(config: ExchangeConfig, line: BitRate, now: Time) -> Self {
        let config = config.bounded();
        let line = config.shared_line.map_or(line, |rate| rate.min(line));
        Self {
            config,
            line,
            peers: Peers::new(config.answers),
            partners: BTreeMap::new(),
            flows: BTreeMap::new(),
            law: GrantLaw::new(line, config.floor.unwrap_or(FLOOR_MIN).max(FLOOR_MIN)),
            alarms: Alarms::default(),
            outbox: Outbox::default(),
            effects: VecDeque::new(),
            random: RandomStreams::new(config.seed).stream("scr/oob"),
            stats: ExchangeStats::default(),
            port: PortUse { since: now, ..PortUse::default() },
            load: HostLoad::default(),
            drops: 0,
            has_untold_drops: false,
            is_backlogged: false,
            backlogs: 0,
            is_resting: false,
            recent: VecDeque::new(),
            new_grants: Vec::new(),
            measured: VecDeque::new(),
            out: MessageTransmit::BLANK,
        }
    }

    /// Returns the counters of the messages between NICs.
    #[must_use]
    pub const fn stats(&self) -> &ExchangeStats {
        &self.stats
    }

    /// Returns whether `qpn` is connected to a queue pair of `nic`.
    pub(crate) fn has_flow_to(&self, nic: NicId, qpn: Qpn) -> bool {
        self.flows.get(&qpn).is_some_and(|flow| flow.peer == nic)
    }

    /// Returns whether messages are exchanged with this NIC; all others are dropped ([`super::peer::DropCause`]).
    #[must_use]
    pub fn has_partner(&self, nic: NicId) -> bool {
        self.partners.contains_key(&nic)
    }

    /// Returns the bytes that may wait without back-pressure.
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.config.pressure_bytes.unwrap_or(u64::MAX)
    }

    /// Returns the last round trip of a queue pair that a probe has measured.
    #[must_use]
    pub fn round_trip(&self, qpn: Qpn) -> Option<Duration> {
        self.flows.get(&qpn)?.round_trip
    }

    /// Returns the delay in the host of the peer to which a queue pair is connected, if the peer has reported it
    /// recently.
    #[must_use]
    pub fn host_delay_of_peer(&self, qpn: Qpn, now: Time) -> Option<Duration> {
        self.partners.get(&self.flows.get(&qpn)?.peer)?.host_delay(now)
    }

    /// Returns the NIC of queue pair `dest_qpn` of `peer`.
    pub(crate) fn nic_of(&self, peer: PeerId, dest_qpn: Qpn) -> NicId {
        NicId { peer, number: (self.config.nic_of)(dest_qpn) }
    }

    /// Records that a queue pair is connected to `dest_qpn` of the NIC `peer`. It exchanges messages immediately, or
    /// from [`Self::agree`] on.
    #[cold]
    pub(crate) fn connect(&mut self, qpn: Qpn, peer: NicId, dest_qpn: Qpn, now: Time) {
        self.disconnect(qpn);
        if self.flows.is_empty() {
            self.start_period(now);
        }
        let mut flow = Flow::new(peer, dest_qpn, self.config.pressure_bytes.unwrap_or(u64::MAX), self.drops);
        flow.is_granted = self.config.credits == GrantScope::All;
        self.flows.insert(qpn, flow);
        if !self.config.waits_for_agreement {
            self.agree(qpn, now);
        }
    }

    /// Records that the peer of a queue pair supports messages; sends the probes that have waited for this.
    #[cold]
    pub(crate) fn agree(&mut self, qpn: Qpn, now: Time) {
        let Some(flow) = self.flows.get_mut(&qpn).filter(|flow| !flow.is_agreed) else { return };
        flow.is_agreed = true;
        let (peer, held) = (flow.peer, flow.take_held());
        match self.partners.get_mut(&peer) {
            Some(partner) => partner.flows += 1,
            None => self.meet(peer, now),
        }
        held.into_iter().for_each(|(path, timeout)| self.ask(qpn, path, timeout, now));
    }

    /// Starts exchanging messages with `peer`, unless messages are exchanged with too many peers already, or no cookie
    /// is available.
    fn meet(&mut self, peer: NicId, now: Time) {
        let Some(cookie) = self.draw_cookie() else { return };
        if !self.peers.add(peer, cookie) {
            return;
        }
        let flows = self.flows.values().filter(|flow| flow.peer == peer && flow.is_agreed).count() as u32;
        let cadence = Cadence::new(self.config.modes, self.config.period, now, &mut self.random);
        self.partners.insert(peer, Partner::new(flows, cadence));
        self.greet(peer, now);
    }

    /// Records that a queue pair is no longer connected.
    #[cold]
    pub(crate) fn disconnect(&mut self, qpn: Qpn) {
        let Some(flow) = self.flows.remove(&qpn) else { return };
        self.alarms.set(Owner::Flow(qpn), None);
        self.leave(&flow);
        if self.flows.is_empty() {
            self.alarms.set(Owner::Nic, None);
        }
    }

    /// Removes a queue pair from the messages with its peer, after it has been destroyed or disconnected.
    fn leave(&mut self, flow: &Flow) {
        if !flow.is_agreed {
            return;
        }
        if let Some(lift) = self.law.remove((flow.peer, flow.dest_qpn)) {
            self.send_grants(&[lift]);
        }
        if let Some(partner) = self.partners.get_mut(&flow.peer) {
            partner.flows = partner.flows.saturating_sub(1);
            if partner.flows == 0 {
                // The cookie is forgotten, too: the next connection has another one.
                self.partners.remove(&flow.peer);
                self.peers.remove(flow.peer);
                self.alarms.set(Owner::Partner(flow.peer), None);
            }
        }
    }

    /// Starts granting rates to the sender of `qpn`'s data.
    pub(crate) fn grant_to(&mut self, qpn: Qpn) {
        if let Some(flow) = self.flows.get_mut(&qpn) {
            flow.is_granted = self.config.credits != GrantScope::Off;
        }
    }

    fn draw_cookie(&mut self) -> Option<Cookie> {
        match self.config.draw_cookie {
            Some(draw) => Cookie::new(draw()?.get()),
            None => Cookie::new(self.random.bits().max(1)),
        }
    }

    /// Returns the bounds of the limits that `peer` may set.
    fn bounds(&self, peer: NicId) -> Bounds {
        let flows = self.partners.get(&peer).map_or(1, |partner| partner.flows);
        match self.config.floor {
            Some(floor) => Bounds::with_floor(self.line, floor, self.config.step, self.config.period),
            None => Bounds::shared(self.line, flows, self.config.step, self.config.period),
        }
    }

    /// Returns the round trip of a queue pair: measured by its own probes, or by greetings, or the configured one. It
    /// is bounded, so that a peer cannot prolong it by delaying its answers.
    fn round_trip_of(&self, flow: &Flow) -> Duration {
        let partner = self.partners.get(&flow.peer).and_then(|partner| partner.round_trip);
        flow.round_trip.or(partner).unwrap_or(self.config.round_trip).min(INTERVAL_MAX)
    }

    /// Counts a data packet that `qpn` has sent with `label`.
    #[cold]
    pub(crate) fn count_sent(&mut self, qpn: Qpn, label: PathLabel, payload_len: u32, now: Time) {
        let Some(flow) = self.flows.get_mut(&qpn) else { return };
        let peer = flow.peer;
        if flow.count_sent(label, now, self.config.probe_interval) {
            self.arm_flow(qpn);
        }
        if self.config.modes.sampling_bytes.is_some() {
            if let Some(partner) = self.partners.get_mut(&peer) {
                partner.cadence.count_bytes(u64::from(payload_len) + OVERHEAD_BYTES);
            }
            self.report_if_due(peer, now);
        }
    }

    /// Counts a packet of `peer` that has arrived for `qpn`, whether or not it is accepted: `payload_len` bytes in a
    /// UDP datagram of `udp_len`. It is counted for the queue pair only if that is connected to this peer.
    #[cold]
    pub(crate) fn count_received(&mut self, qpn: Qpn, peer: PeerId, [udp_len, payload_len]: [u32; 2], now: Time) {
        let wire_bytes = u64::from(link_len(IpVersion::V4, udp_len));
        if std::mem::take(&mut self.is_resting) {
            self.start_period(now);
        }
        self.port.bytes += wire_bytes;
        let (mut granted, mut sender) = (None, None);
        if let Some(flow) =
            self.flows.get_mut(&qpn).filter(|flow| flow.is_agreed && flow.peer.peer == peer && payload_len > 0)
        {
            flow.received_at = Some(now);
            if self.config.rests_when_idle && self.config.modes.periodic && flow.notes_data(now, self.config.period / 2)
            {
                sender = Some(flow.peer);
            }
            let key = (flow.peer, flow.dest_qpn);
            granted = (flow.is_granted && self.law.add(key)).then_some(key);
            if self.config.pressure_bytes.is_some() && !std::mem::replace(&mut flow.is_recent, true) {
                self.recent.push_back(qpn);
            }
        }
        if let Some(peer) = sender {
            self.resume_reports(peer, now);
        }
        self.forget_oldest_senders();
        if self.config.credits != GrantScope::Off {
            self.law.count(granted, wire_bytes);
        }
    }

    /// Requests a probe of a path of `qpn`, which counts as lost after `timeout`, even if it could not be sent because
    /// the peer's cookie is unknown or too many messages are queued. Until the peer is known to support messages,
    /// requests wait, because the loss of such a probe would say nothing about the path.
    #[cold]
    pub(crate) fn ask(&mut self, qpn: Qpn, path: ProbePath, timeout: Duration, now: Time) {
        let timeout = timeout.max(self.probe_timeout_min(qpn));
        let Some(flow) = self.flows.get_mut(&qpn) else { return };
        if !flow.is_agreed {
            return flow.hold(path, timeout);
        }
        if flow.prober.request(path, timeout, now) && self.peers.knows(flow.peer) {
            self.push(Pending::Probe(qpn, path.index));
        }
        self.arm_flow(qpn);
    }

    /// Removes the oldest entries from the queue pairs that [`Self::report_backlog`] processes, so that those that have
    /// received most recently remain.
    fn forget_oldest_senders(&mut self) {
        while self.recent.len() > RECENT_MAX {
            let oldest = self.recent.pop_front().and_then(|qpn| self.flows.get_mut(&qpn));
            oldest.into_iter().for_each(|flow| flow.is_recent = false);
        }
    }

    /// Records that `waiting_bytes` are queued for the host, and that the driver has dropped `drops` packets since the
    /// start; if these exceed the limits, notifies the recent senders: those of the last round trip and of the time
    /// that NICs need to react. Processes only queue pairs that have received data since the previous call, because
    /// drivers call this for each packet.
    pub(crate) fn report_backlog(&mut self, waiting_bytes: u64, drops: u64, now: Time) {
        self.has_untold_drops |= drops > std::mem::replace(&mut self.drops, drops);
        let Some(threshold) = self.config.pressure_bytes else { return };
        // A backlog that shrinks varies by some packets: it is over when half of the threshold is left.
        let ends = self.is_backlogged && waiting_bytes <= threshold / 2;
        self.is_backlogged = !ends && (self.is_backlogged || waiting_bytes > threshold);
        self.backlogs = self.backlogs.wrapping_add(u32::from(ends));
        if waiting_bytes <= threshold && !self.has_untold_drops {
            return;
        }
        let backlog = Backlog { waiting_bytes, drops, number: self.backlogs };
        let mut notices: Vec<(NicId, BackPressure)> = Vec::new();
        let mut untold = Vec::new();
        while let Some(qpn) = self.recent.pop_front() {
            let Some(round_trip) = self.flows.get(&qpn).map(|flow| self.round_trip_of(flow)) else { continue };
            let Some(flow) = self.flows.get_mut(&qpn) else { continue };
            flow.is_recent = false;
            if flow.received_at.is_none_or(|at| now.since(at) > reaction_time(round_trip)) {
                continue;
            }
            match flow.pressure.observe(backlog, round_trip, now) {
                Some(notice) => notices.push((flow.peer, notice)),
                // The sender is notified of the drops once its last notice is old enough.
                None if self.has_untold_drops && flow.pressure.is_quiet(now) => {
                    flow.is_recent = true;
                    untold.push(qpn);
                }
                None => {}
            }
        }
        self.has_untold_drops = !untold.is_empty();
        self.recent.extend(untold);
        notices.sort_by_key(|(peer, _)| *peer);
        for group in notices.chunk_by(|(one, _), (other, _)| one == other) {
            for chunk in group.chunks(rnic_wire::scr::RECORDS_MAX) {
                let records: Vec<BackPressure> = chunk.iter().map(|(_, notice)| *notice).collect();
                let records = Records::new(&records).expect("a chunk is not longer than a message");
                self.stats.notices_sent += chunk.len() as u64;
                self.push(Pending::Pressure(group[0].0, records));
            }
        }
    }

    /// Records the load of the host.
    pub(crate) fn report_load(&mut self, load: HostLoad) {
        self.load = load;
    }

    /// Removes and returns the round trips that the probes of queue pairs have measured.
    pub(crate) fn take_round_trips(&mut self) -> impl Iterator<Item = RoundTrip> + use<> {
        std::mem::take(&mut self.measured).into_iter()
    }

    /// Removes and returns the next change to be applied at a queue pair.
    pub(crate) fn take_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the time at which [`Self::on_timeout`] must be called.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.alarms.next()
    }

    /// Handles all timeouts that are due.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        while let Some(owner) = self.alarms.pop_due(now) {
            match owner {
                Owner::Nic => self.end_period(now),
                Owner::Partner(peer) => self.on_partner_timeout(peer, now),
                Owner::Flow(qpn) => self.on_flow_timeout(qpn, now),
            }
        }
    }

    fn start_period(&mut self, now: Time) {
        self.port = PortUse { bytes: 0, since: now, rate: self.port.rate };
        if self.config.credits != GrantScope::Off || self.config.modes != super::cadence::Modes::default() {
            self.alarms.set(Owner::Nic, Some(now + self.config.period));
        }
    }

    /// Ends a period: computes the load and the grants.
    fn end_period(&mut self, now: Time) {
        let (elapsed, is_idle) = (now.since(self.port.since), self.port.bytes == 0);
        let rate = BitRate::from_transfer(self.port.bytes, elapsed).as_bps().min(self.line.as_bps());
        self.port.rate = (u128::from(rate) * u128::from(Q20) / u128::from(self.line.as_bps())) as u32;
        if self.config.credits != GrantScope::Off {
            let mut grants = std::mem::take(&mut self.new_grants);
            self.law.end_period(elapsed, &mut grants);
            self.send_grants(&grants);
            grants.clear();
            self.new_grants = grants;
        }
        if self.config.modes.anomaly {
            let port = (self.port.rate >> 4).min(u32::from(u16::MAX)) as u16;
            let loads = Loads { bus: self.load.bus_use, port, drops: 0 };
            let peers: Vec<NicId> = self.partners.keys().copied().collect();
            for peer in peers {
                if let Some(partner) = self.partners.get_mut(&peer) {
                    partner.cadence.observe(loads);
                }
                self.report_if_due(peer, now);
            }
        }
        self.is_resting = self.config.rests_when_idle && is_idle && self.law.is_empty();
        if !self.is_resting {
            self.start_period(now);
        }
    }

    fn on_partner_timeout(&mut self, peer: NicId, now: Time) {
        let Some(partner) = self.partners.get_mut(&peer) else { return };
        if partner.on_timeout(now, self.config.greeting_interval) {
            self.greet(peer, now);
        }
        self.report_if_due(peer, now);
    }

    /// Sends a greeting to `peer`, unless one is outstanding.
    fn greet(&mut self, peer: NicId, now: Time) {
        let configured = self.config.round_trip;
        if self.partners.get_mut(&peer).is_some_and(|partner| partner.greet(configured, now)) {
            self.push(Pending::Greeting(peer));
        }
        self.arm_partner(peer);
    }

    /// Reports the load to `peer` if a report is due.
    fn report_if_due(&mut self, peer: NicId, now: Time) {
        let rests = self.config.rests_when_idle;
        let longer =
            if rests { self.config.period.saturating_mul(self.partners.len() as u64 / CROWD) } else { Duration::ZERO };
        // A period may be longer by its jitter: a single packet is reported, too.
        let recent = (self.config.period + longer).saturating_mul(2);
        if let Some(partner) = self.partners.get_mut(&peer)
            && let Some(cause) = partner.cadence.due(now)
        {
            if cause == Cause::Period && rests && !partner.has_recent_data(now, recent) {
                partner.cadence.rest();
            } else {
                partner.cadence.sent(now, &mut self.random);
                partner.cadence.postpone(longer);
                if self.peers.knows(peer) {
                    self.push(Pending::Report(peer));
                }
            }
        }
        self.arm_partner(peer);
    }

    /// Records that data of `peer` arrives; resumes mode periodic if it is paused.
    fn resume_reports(&mut self, peer: NicId, now: Time) {
        let Some(partner) = self.partners.get_mut(&peer) else { return };
        partner.data_at = Some(now);
        if partner.cadence.resume(now, &mut self.random) {
            self.arm_partner(peer);
        }
    }

    fn on_flow_timeout(&mut self, qpn: Qpn, now: Time) {
        let Some(peer) = self.flows.get(&qpn).map(|flow| flow.peer) else { return };
        let bounds = self.bounds(peer);
        let Some(flow) = self.flows.get_mut(&qpn) else { return };
        if let Some(limit) = flow.change_limit(now, &bounds, |_| ()) {
            self.effects.push_back(Effect::Limit(qpn, limit));
        }
        while let Some(path) = flow.prober.take_lost(now) {
            self.stats.probes_lost += 1;
            self.effects.push_back(Effect::Lost(qpn, path));
        }
        if flow.takes_tick(now) {
            self.effects.push_back(Effect::PathTick(qpn));
            // The policy is called after this, and then it is known whether it probes.
            flow.defer_probe(now + self.config.path_probe_spacing.unwrap_or(Duration::ZERO));
        }
        // The label may be another one with each packet: a new probe would replace one whose answer is in flight.
        let is_probed_by_policy = flow.is_ticking() && self.config.path_probe_spacing.is_some();
        let is_outstanding = flow.prober.is_outstanding(DRIVER_PATH) || is_probed_by_policy;
        if let Some(label) = flow.takes_probe(now, self.config.probe_interval).filter(|_| !is_outstanding) {
            self.ask(qpn, ProbePath { index: DRIVER_PATH, label: label.0 }, self.config.probe_timeout, now);
        }
        self.arm_flow(qpn);
    }

    fn arm_flow(&mut self, qpn: Qpn) {
        let next = self.flows.get(&qpn).and_then(Flow::next_timeout);
        self.alarms.set(Owner::Flow(qpn), next);
    }

    fn arm_partner(&mut self, peer: NicId) {
        let next = self.partners.get(&peer).and_then(Partner::next_timeout);
        self.alarms.set(Owner::Partner(peer), next);
    }

    fn push(&mut self, message: Pending) {
        self.stats.overflows += u64::from(!self.outbox.push(message));
    }
}

#[cfg(test)]
mod tests;
