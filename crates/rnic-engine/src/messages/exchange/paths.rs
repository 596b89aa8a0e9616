//! Paths chosen by policies: the rate at which paths are probed, and the labels from which a peer's data is accepted.

use rnic_base::{Duration, Time};
use rnic_policy::PathLabel;
use rnic_wire::Qpn;
use rnic_wire::scr::{Body, Cookie, Message, ProbePath};

use super::Exchange;
use crate::NicId;

impl Exchange {
    /// Sets the time at which the path policy of `qpn` is called: `after` from now, or later if the policies of all
    /// queue pairs to that peer NIC would otherwise exceed the limit of probes.
    #[cold]
    pub(crate) fn set_path_tick(&mut self, qpn: Qpn, after: Duration, now: Time) {
        let Some(flow) = self.flows.get_mut(&qpn) else { return };
        let partner = self.partners.get_mut(&flow.peer).filter(|_| flow.is_agreed);
        let planned =
            partner.zip(self.config.path_probe_spacing).map(|(partner, spacing)| partner.plan_probe(spacing, now));
        flow.set_tick(now + after.max(planned.unwrap_or(Duration::ZERO)));
        self.arm_flow(qpn);
    }

    /// Returns the minimum time after which a probe requested by a policy of `qpn` counts as lost.
    pub(super) fn probe_timeout_min(&self, qpn: Qpn) -> Duration {
        let round_trips = self.config.probe_timeout_round_trips;
        let flow = self.flows.get(&qpn).filter(|_| round_trips > 0);
        let more = flow.map_or(Duration::ZERO, |flow| self.round_trip_of(flow).saturating_mul(round_trips));
        self.config.probe_timeout_min + more
    }

    /// Returns the NIC that announces a label by `message`, a probe that has come from this label: the peer of the
    /// queue pairs that the probe names. `None` when the probe names another label or does not carry this NIC's cookie,
    /// or when the NIC has announced too many others. The driver compares the sender's address with that of the NIC
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

    /// Returns the cookie that a NIC has announced. When it changes, the NIC has been restarted, and has forgotten, for
    /// example, the labels that this NIC announced.
    #[must_use]
    pub fn announced_by(&self, nic: NicId) -> Option<Cookie> {
        self.peers.announced_by(nic)
    }

    /// Records the label of an accepted probe of `peer`, if the probe announces it.
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
