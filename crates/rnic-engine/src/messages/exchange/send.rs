//! Messages to be sent.

use rnic_base::Time;
use rnic_policy::PathLabel;
use rnic_wire::Qpn;
use rnic_wire::scr::{Answer, Body, Grant, Message, NodeReport, RECORDS_MAX, Records};

use super::outbox::{Pending, PendingAnswer};
use super::partner::{GREETING_LABEL, GREETING_PATH};
use super::{Exchange, Q20};
use crate::NicId;
use crate::messages::grants::NewGrant;
use crate::messages::peer::Envelope;
use crate::packet::MessageTransmit;

/// The fields of a message that its type determines.
struct Content {
    peer: NicId,
    label: PathLabel,
    dest_qpn: Qpn,
    source_qpn: Qpn,
    answer_wanted: bool,
    time: u64,
    body: Body,
}

impl Content {
    /// Returns a message about whole NICs, which is not answered.
    fn of_nic(peer: NicId, now: Time, body: Body) -> Self {
        let (dest_qpn, source_qpn) = (Qpn::GSI, Qpn::GSI);
        Self { peer, label: GREETING_LABEL, dest_qpn, source_qpn, answer_wanted: false, time: now.as_ps(), body }
    }
}

impl Exchange {
    /// Returns whether messages wait to be sent.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns the message that [`Self::build_next`] has built.
    pub(crate) fn out(&self) -> &MessageTransmit {
        &self.out
    }

    /// Builds the next message; returns whether there is one.
    #[cold]
    pub(crate) fn build_next(&mut self, now: Time) -> bool {
        while let Some(pending) = self.outbox.pop() {
            let built = match pending {
                Pending::Answer(answer) => self.answer(&answer, now),
                other => self.content(other, now).and_then(|content| {
                    let envelope = self.peers.address(content.peer, content.body.kind())?;
                    Some((content, envelope))
                }),
            };
            if let Some((content, envelope)) = built {
                self.stats.count_sent(content.body.kind());
                self.out = transmit(&content, envelope);
                return true;
            }
        }
        false
    }

    fn answer(&mut self, answer: &PendingAnswer, now: Time) -> Option<(Content, Envelope)> {
        let PendingAnswer { peer, label, dest_qpn, source_qpn, path, echoed, received, announcement } = *answer;
        let body = Answer { path, echoed, received, sent: now.as_ps() };
        let (envelope, body) = match announcement {
            Some((cookie, announced)) => {
                let sequence = self.peers.number_announcement(peer)?;
                let envelope = Envelope { cookie: Some(cookie), announced: Some(announced), sequence };
                (envelope, Answer::default())
            }
            None => (self.peers.address(peer, rnic_wire::scr::Type::Answer)?, body),
        };
        let (answer_wanted, time, body) = (false, now.as_ps(), Body::Answer(body));
        Some((Content { peer, label, dest_qpn, source_qpn, answer_wanted, time, body }, envelope))
    }

    /// Returns the content of a message other than an answer; `None` when it is obsolete.
    fn content(&mut self, pending: Pending, now: Time) -> Option<Content> {
        match pending {
            Pending::Answer(_) => None,
            Pending::Greeting(peer) => {
                let time = self.partners.get_mut(&peer)?.send_greeting(now)?;
                let body = Body::Probe(GREETING_PATH);
                Some(Content { answer_wanted: true, time, ..Content::of_nic(peer, now, body) })
            }
            Pending::Probe(qpn, index) => {
                let flow = self.flows.get_mut(&qpn)?;
                let (peer, dest_qpn) = (flow.peer, flow.dest_qpn);
                let (path, time) = flow.prober.send(index, now)?;
                let (label, body) = (PathLabel(path.label), Body::Probe(path));
                Some(Content { peer, label, dest_qpn, source_qpn: qpn, answer_wanted: true, time, body })
            }
            Pending::Report(peer) => Some(Content::of_nic(peer, now, Body::NodeReport(self.node_report()))),
            Pending::Grants(peer, records) => Some(Content::of_nic(peer, now, Body::Grants(records))),
            Pending::Pressure(peer, records) => Some(Content::of_nic(peer, now, Body::BackPressure(records))),
        }
    }

    pub(super) fn node_report(&self) -> NodeReport {
        let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        NodeReport {
            bus_latency_ns: count(self.load.bus_latency.as_ns()),
            bus_use: self.load.bus_use,
            nic_use: self.load.nic_use,
            rx_rate: self.port.rate,
            headroom: (Q20 as u32).saturating_sub(self.port.rate),
            members: count(self.flows.len() as u64),
            drops: self.drops as u32,
        }
    }

    /// Queues grants, in as few messages as possible for each peer. `grants` is ordered by peer.
    pub(super) fn send_grants(&mut self, grants: &[NewGrant]) {
        for group in grants.chunk_by(|one, other| one.peer == other.peer) {
            for chunk in group.chunks(RECORDS_MAX) {
                let mut records = [Grant::default(); RECORDS_MAX];
                records.iter_mut().zip(chunk).for_each(|(record, new)| *record = new.grant);
                let records = Records::new(&records[..chunk.len()]).expect("a chunk is not longer than a message");
                self.stats.grants_sent += chunk.len() as u64;
                self.push(Pending::Grants(group[0].peer, records));
            }
        }
    }
}

fn transmit(content: &Content, envelope: Envelope) -> MessageTransmit {
    let Content { peer, label, dest_qpn, source_qpn, answer_wanted, time, body } = *content;
    let Envelope { cookie, announced, sequence } = envelope;
    let message =
        Message { dest_qpn, source_qpn, cookie, announced, answer_wanted, is_last: false, sequence, time, body };
    MessageTransmit { nic: peer, label, message }
}
