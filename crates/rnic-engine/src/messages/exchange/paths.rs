//! Paths that policies choose: how often they are probed, and from which labels data of a peer is accepted.

use rnic_base::{Duration, Time};
use rnic_policy::PathLabel;
use rnic_wire::Qpn;
use rnic_wire::scr::{Body, Cookie, Message, ProbePath};

use super::Exchange;
use crate::NicId;

impl Exchange {
    /// Sets the time at which the path policy of `qpn` is called: `after` from now, or later where policies to the same
    /// peer NIC together send a limited number of probes.
    #[cold]
    pub(crate) fn set_path_tick(&mut self, qpn: Qpn, after: Duration, now: Time) {
        let Some(flow) = self.flows.get_mut(&qpn) else { return };
        let partner = self.partners.get_mut(&flow.peer).filter(|_| flow.is_agreed);
        let planned =
            partner.zip(self.config.path_probe_spacing).map(|(partner, spacing)| partner.plan_probe(spacing, now));
        flow.set_tick(now + after.max(planned.unwrap_or(Duration::ZERO)));
        self.arm_flow(qpn);
    }

    /// Returns the shortest time after which a probe that a policy of `qpn` asks for counts as lost.
    pub(super) fn probe_timeout_min(&self, qpn: Qpn) -> Duration {
        let round_trips = self.config.probe_timeout_round_trips;
        let flow = self.flows.get(&qpn).filter(|_| round_trips > 0);
        let more = flow.map_or(Duration::ZERO, |flow| self.round_trip_of(flow).saturating_mul(round_trips));
        self.config.probe_timeout_min + more
    }

    /// Returns the NIC that announces a label by `message`, a probe that has come from this label: the peer of the
    /// queue pairs that the probe names. `None` when the probe names another label or does not carry our cookie, or
    /// when the NIC has announced too many others. The driver compares the sender's address with that of the NIC
    /// before it passes the message to the engine, which records the label.
    #[must_use]
    pub fn announcer(&self, message: &Message, label: PathLabel) -> Option<NicId> {
        let Body::Probe(path) = message.body else { return None };
        let flow = self.flows.get(&message.dest_qpn).filter(|flow| flow.dest_qpn == message.source_qpn)?;
        let partner = self.partners.get(&flow.peer)?;
        let is_valid = self.config.takes_labels
            && path.label == label.0
            && partner.may_announce(label)
            && self.peers.has_our_cookie(flow.peer, message);
        is_valid.then_some(flow.peer)
    }

    /// Returns the NIC of the queue pair to which `qpn` is connected, if data of that NIC is accepted from `label`.
    #[must_use]
    pub fn sender_from(&self, qpn: Qpn, label: PathLabel) -> Option<NicId> {
        let peer = self.flows.get(&qpn)?.peer;
        self.partners.get(&peer).filter(|partner| partner.has_label(label)).map(|_| peer)
    }

    /// Returns the cookie that a NIC has announced. With another one than before, it has forgotten what it has been
    /// sent: the labels that this NIC has announced to it, for instance.
    #[must_use]
    pub fn announced_by(&self, nic: NicId) -> Option<Cookie> {
        self.peers.announced_by(nic)
    }

    /// Records the label of a probe of `peer` that has been accepted, if the probe announces it.
    pub(super) fn take_label(&mut self, peer: NicId, label: PathLabel, message: &Message, path: ProbePath) {
        let is_announced = self.config.takes_labels && message.dest_qpn != Qpn::GSI && path.label == label.0;
        if let Some(partner) = self.partners.get_mut(&peer).filter(|_| is_announced) {
            partner.announce(label);
        }
    }

    /// Accepts data of `peer` from no label any more.
    pub(super) fn forget_labels(&mut self, peer: NicId) {
        if let Some(partner) = self.partners.get_mut(&peer) {
            partner.forget_labels();
        }
    }
}
