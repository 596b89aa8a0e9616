//! Processing of received messages.

use rnic_base::{BitRate, Time};
use rnic_policy::{HostDelays, PathLabel};
use rnic_wire::Qpn;
use rnic_wire::scr::{Answer, BackPressure, Body, Grant, Message, ProbePath};

use super::outbox::{Pending, PendingAnswer};
use super::{Effect, Exchange, MEASURED_MAX, RoundTrip};
use crate::NicId;
use crate::messages::peer::{Origin, Verdict};

/// Number of periods after which greetings are repeated, so that a peer whose cookie has changed is found.
const GREETING_PERIODS: u64 = 64;

impl Exchange {
    /// Processes a message of `peer` that arrived with `label` at `now`; returns whether it was accepted. `rate`
    /// returns the current sending rate of a queue pair, if it has one.
    #[cold]
    pub(crate) fn receive(
        &mut self,
        peer: NicId,
        label: PathLabel,
        message: &Message,
        now: Time,
        rate: impl Fn(Qpn) -> Option<BitRate>,
    ) -> bool {
        let origin = Origin { peer, is_connected: self.connects(peer, message.dest_qpn, message.source_qpn) };
        let known = self.peers.announced_by(peer);
        let (path, echoed) = match message.body {
            Body::Probe(path) => (path, message.time),
            _ => (ProbePath::default(), message.time),
        };
        let mut answer = PendingAnswer {
            peer,
            label,
            dest_qpn: message.source_qpn,
            source_qpn: message.dest_qpn,
            path,
            echoed,
            received: now.as_ps(),
            announcement: None,
        };
        match self.peers.judge(origin, message, now) {
            Verdict::Drop(cause) => {
                self.stats.count_dropped(cause);
                return false;
            }
            Verdict::Announce { cookie, announced } => {
                answer.announcement = Some((cookie, announced));
                self.push(Pending::Answer(answer));
                return false;
            }
            Verdict::Accept { answer: is_wanted } => {
                self.stats.count_accepted(message.body.kind());
                if is_wanted {
                    self.push(Pending::Answer(answer));
                }
            }
        }
        if self.peers.announced_by(peer) != known {
            self.forget_labels(peer);
        }
        if known.is_none() {
            self.on_announced(peer, now);
        }
        match &message.body {
            Body::Probe(path) => self.take_label(peer, label, message, *path),
            Body::Hint(_) => {}
            Body::Answer(answer) => self.on_answer(peer, message.dest_qpn, answer, now),
            Body::NodeReport(report) => {
                if let Some(partner) = self.partners.get_mut(&peer) {
                    partner.note_report(report, self.config.host_delay_max, now);
                }
            }
            Body::Grants(records) => {
                records.as_slice().iter().for_each(|record| self.on_grant(peer, record, now));
            }
            Body::BackPressure(records) => {
                for record in records.as_slice() {
                    self.on_pressure(peer, record, rate(record.qpn), now);
                }
            }
        }
        true
    }

    /// Returns whether `qpn` is connected to `dest_qpn` of `peer`; the whole NIC is connected when any queue pair is.
    fn connects(&self, peer: NicId, qpn: Qpn, dest_qpn: Qpn) -> bool {
        if qpn == Qpn::GSI {
            return dest_qpn == Qpn::GSI && self.partners.contains_key(&peer);
        }
        self.flows.get(&qpn).is_some_and(|flow| flow.peer == peer && flow.dest_qpn == dest_qpn)
    }

    /// Sends the messages that have waited for the cookie of `peer`, and greets it again, so that it knows this NIC's
    /// cookie.
    fn on_announced(&mut self, peer: NicId, now: Time) {
        let Some(partner) = self.partners.get_mut(&peer) else { return };
        partner.restart_greetings();
        self.greet(peer, now);
        let flows = std::mem::take(&mut self.flows);
        for (qpn, flow) in flows.iter().filter(|(_, flow)| flow.peer == peer) {
            flow.prober.unsent().for_each(|path| self.push(Pending::Probe(*qpn, path)));
        }
        self.flows = flows;
    }

    fn on_answer(&mut self, peer: NicId, qpn: Qpn, answer: &Answer, now: Time) {
        if qpn == Qpn::GSI {
            let interval = self.config.greeting_interval;
            let again_at = now + interval.unwrap_or(self.config.period.saturating_mul(GREETING_PERIODS));
            let Some(partner) = self.partners.get_mut(&peer) else { return };
            self.stats.answers_ignored += u64::from(partner.greeted(answer, again_at, now).is_none());
            return self.arm_partner(peer);
        }
        let host = HostDelays {
            local: self.load.bus_latency,
            peer: self.partners.get(&peer).and_then(|partner| partner.host_delay(now)).unwrap_or_default(),
            are_in_round_trip: self.config.probes_wait_for_hosts,
        };
        let Some(flow) = self.flows.get_mut(&qpn) else { return };
        let Ok(measured) = flow.prober.answered(answer, now) else {
            self.stats.answers_ignored += 1;
            return;
        };
        flow.round_trip = Some(measured.round_trip);
        if self.measured.len() == MEASURED_MAX {
            self.measured.pop_front();
        }
        self.measured.push_back(RoundTrip { qpn, at: now, round_trip: measured.round_trip });
        let (path, round_trip) = (measured.path, measured.round_trip);
        self.effects.push_back(Effect::Measured { qpn, path, round_trip, host });
        self.arm_flow(qpn);
    }

    fn on_grant(&mut self, peer: NicId, record: &Grant, now: Time) {
        let bounds = self.bounds(peer);
        let Some(flow) = self.flows.get(&record.qpn).filter(|flow| flow.peer == peer) else {
            self.stats.records_ignored += 1;
            return;
        };
        let round_trip = self.round_trip_of(flow);
        let Some(flow) = self.flows.get_mut(&record.qpn) else { return };
        let change = flow.change_limit(now, &bounds, |limit| {
            limit.granted(record, round_trip, now, &bounds);
        });
        self.note_limit(record.qpn, change);
    }

    fn on_pressure(&mut self, peer: NicId, record: &BackPressure, rate: Option<BitRate>, now: Time) {
        let bounds = self.bounds(peer);
        let Some(flow) = self.flows.get(&record.qpn).filter(|flow| flow.peer == peer) else {
            self.stats.records_ignored += 1;
            return;
        };
        let round_trip = self.round_trip_of(flow);
        let rate = rate.unwrap_or(self.line).min(self.line);
        let Some(flow) = self.flows.get_mut(&record.qpn) else { return };
        let change = flow.change_limit(now, &bounds, |limit| {
            limit.pressed(rate, round_trip, now, &bounds);
        });
        self.note_limit(record.qpn, change);
    }

    fn note_limit(&mut self, qpn: Qpn, change: Option<Option<BitRate>>) {
        if let Some(limit) = change {
            self.effects.push_back(Effect::Limit(qpn, limit));
        }
        self.arm_flow(qpn);
    }
}
