//! Looking at queue pairs from outside, all of them at once: for whoever watches, not for the packet path.

use rnic_base::Duration;
use rnic_falcon::delivery::{Delivery, FlowView};
use rnic_policy::Profile;
use rnic_wire::Qpn;

use crate::PeerId;
use crate::engine::Engine;
use crate::qp::{Carrier, Qp, QpInfo};
use crate::watch::{Traffic, Watched};

/// What a watcher sees of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QpView {
    /// What can be asked about it by number.
    pub info: QpInfo,
    /// Who is at the other end; says nothing before it is connected, and is [`PeerId::NOBODY`] where nobody ever is.
    pub peer: PeerId,
    /// Name of its transport.
    pub transport: &'static str,
    /// Request packets under way; with Falcon, answers to the peer's requests too.
    pub in_flight: u64,
    /// Request packets that may be under way, by the transport's cap or by congestion control.
    pub window: u64,
    /// What it took from its peer; zeros where nobody watches.
    pub traffic: Traffic,
    /// The last round trip that was measured: of a request packet, only where somebody watches; with Falcon, to the
    /// answer that echoes a packet.
    pub round_trip: Option<Duration>,
    /// With Falcon, the flows of a connection that has several.
    pub flows: Vec<FlowView>,
}

impl Engine {
    /// From now on, counts and times for [`QpView`] what queue pairs do that are made later.
    pub fn watch(&mut self) {
        self.core.watch.begin();
    }

    /// Every queue pair there is, in no order that means anything.
    pub fn queue_pairs(&self) -> impl Iterator<Item = QpView> {
        self.qps.iter().map(|qp| qp.view(self.core.watch.get(qp.verbs.head.slot)))
    }

    /// What queue pair `qpn` is composed of, if there is one.
    pub fn profile_of(&self, qpn: Qpn) -> Option<&Profile> {
        self.qps.find(qpn).map(|qp| qp.verbs.head.transport.profile())
    }
}

impl Qp {
    fn view(&self, watched: Option<&Watched>) -> QpView {
        let head = &self.verbs.head;
        let cap = head.transport.in_flight_max;
        let delivery = self.falcon().and_then(|falcon| falcon.delivery());
        let (in_flight, window) = match (&self.carrier, delivery) {
            (_, Some(delivery)) => (delivery.under_way(), Some(delivery.window())),
            (Carrier::Roce(connection), None) => connection.in_flight(),
            (Carrier::Unreliable(_) | Carrier::Falcon(_), None) => (0, None),
        };
        let timed = watched.and_then(|watched| watched.round_trip.last());
        QpView {
            info: self.info(),
            peer: head.peer(),
            transport: head.transport.profile.name,
            in_flight,
            traffic: watched.map(|watched| watched.traffic).unwrap_or_default(),
            round_trip: delivery.map_or(timed, |delivery| delivery.round_trip()),
            window: window.map_or(cap, |window| window.min(cap)),
            flows: delivery.into_iter().flat_map(Delivery::flows).collect(),
        }
    }
}
