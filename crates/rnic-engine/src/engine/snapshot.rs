//! Monitoring of all queue pairs of an engine, outside the packet path.

use std::borrow::Cow;

use rnic_base::{BitRate, Duration};
use rnic_falcon::delivery::{Delivery, FlowView};
use rnic_policy::Profile;
use rnic_wire::Qpn;

use crate::PeerId;
use crate::engine::{Engine, flows};
use crate::latency::LatencyTotals;
use crate::qp::{ProtocolState, Qp, QpInfo};
use crate::watch::{MonitoredQp, Traffic};

/// Monitoring data of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QpSnapshot {
    /// The attributes that can also be queried by queue pair number.
    pub info: QpInfo,
    /// Peer at the remote end; undefined before the queue pair is connected, and [`PeerId::NONE`] for services
    /// without a fixed peer.
    pub peer: PeerId,
    /// Name of the queue pair's transport.
    pub transport: &'static str,
    /// Name of the transport program that was loaded from a file and decides; `None` for built-in ones.
    pub program: Option<Cow<'static, str>>,
    /// Number of request packets in flight; with Falcon, including responses to the peer's requests.
    pub in_flight: u64,
    /// Maximum number of request packets in flight, according to the transport's limit or congestion control.
    pub window: u64,
    /// Rate at which the queue pair may send: the lowest limit of congestion control and of users; `None` for the line
    /// rate.
    pub allowed_rate: Option<BitRate>,
    /// Traffic received from the peer; zeros when monitoring is off.
    pub traffic: Traffic,
    /// Last measured round-trip time: that of a request packet, only when monitoring is on; with Falcon, the time
    /// from sending a packet to receiving the acknowledgement that echoes it.
    pub round_trip: Option<Duration>,
    /// Sums of the times of its completed send requests; zeros while they are not collected
    /// ([`crate::Latencies::collect`]).
    pub latency: LatencyTotals,
    /// Flows of a Falcon connection that has several flows.
    pub flows: Vec<FlowView>,
}

impl Engine {
    /// Turns monitoring on: the activity of queue pairs that are created from now on is counted and measured for
    /// [`QpSnapshot`].
    pub fn watch(&mut self) {
        self.core.watch.begin();
    }

    /// Returns all queue pairs, in no particular order.
    pub fn queue_pairs(&self) -> impl Iterator<Item = QpSnapshot> {
        let queue_pairs = self.qps.iter().filter(|qp| !qp.is_flow(&self.core.objects));
        queue_pairs.map(|qp| snapshot(self, qp))
    }

    /// Returns the profile from which queue pair `qpn` is composed, if it exists.
    pub fn profile_of(&self, qpn: Qpn) -> Option<&Profile> {
        self.qps.find(qpn).map(|qp| qp.verbs.head.transport.profile())
    }
}

impl QpSnapshot {
    /// Returns the monitoring data of queue pair `qpn` of `engine`, if it exists.
    pub fn of(engine: &Engine, qpn: Qpn) -> Option<Self> {
        engine.qps.find(qpn).map(|qp| snapshot(engine, qp))
    }
}

fn snapshot(engine: &Engine, qp: &Qp) -> QpSnapshot {
    let watched = |qp: &Qp| engine.core.watch.get(qp.verbs.head.slot);
    let mut view = qp.view(watched(qp));
    for flow in flows::of(engine, view.info.number).map(|qp| qp.view(watched(qp))) {
        view.in_flight += flow.in_flight;
        view.window = view.window.saturating_add(flow.window);
        view.traffic = view.traffic.plus(&flow.traffic);
        view.round_trip = view.round_trip.or(flow.round_trip);
    }
    view.info = with_flows(engine, view.info);
    if let Some(times) = &engine.core.times {
        view.latency = times.totals(qp.verbs.head.slot);
    }
    view
}

/// Returns `info` of a queue pair with the counters of its flows, and the limits of all of them together.
pub(super) fn with_flows(engine: &Engine, mut info: QpInfo) -> QpInfo {
    for flow in flows::of(engine, info.number) {
        info.stats = info.stats.plus(&flow.verbs.stats);
        info.timeouts_spurious = info.timeouts_spurious.saturating_add(flow.info().timeouts_spurious);
    }
    info.rate_limits = flows::limits_of(engine, info.number).unwrap_or(info.rate_limits);
    info
}

impl Qp {
    fn view(&self, watched: Option<&MonitoredQp>) -> QpSnapshot {
        let head = &self.verbs.head;
        let cap = head.transport.in_flight_max;
        let delivery = self.falcon().and_then(|falcon| falcon.delivery());
        let (in_flight, window) = match (&self.protocol, delivery) {
            (_, Some(delivery)) => (delivery.in_flight(), Some(delivery.window())),
            (ProtocolState::Roce(connection), None) => connection.in_flight(),
            (ProtocolState::Unreliable(_) | ProtocolState::Falcon(_), None) => (0, None),
        };
        let timed = watched.and_then(|watched| watched.round_trip.last());
        QpSnapshot {
            info: self.info(),
            peer: head.peer(),
            transport: head.transport.profile.name,
            program: head.transport.profile.loaded_programs(),
            in_flight,
            allowed_rate: self.allowed_rate(),
            traffic: watched.map(|watched| watched.traffic).unwrap_or_default(),
            round_trip: delivery.map_or(timed, |delivery| delivery.round_trip()),
            latency: LatencyTotals::default(),
            window: window.map_or(cap, |window| window.min(cap)),
            flows: delivery.into_iter().flat_map(Delivery::flows).collect(),
        }
    }
}
