//! The paths of a connection: labels, windows, and the assignment of packets to paths.
//!
//! Source: Falcon (SIGCOMM'25) section 4.3 (F-24 to F-28). Flows share the sequence space and the connection's window,
//! which is the sum of the flows' windows; a flow's own window is only used to choose a flow (F-25). Packets are
//! attributed to flows by the sender's own record, because one acknowledgement may cover several flows (F-28). The
//! index of a flow is in the low bits of its label, and the same in both directions.
//!
//! Choice: a retransmission stays on the packet's flow (as in the reference simulator), with the flow's current label.

use rnic_base::{Duration, Time};
use rnic_policy::paths::FLOWS_MAX;
use rnic_policy::{Configured, Cwnd, FlowWeights, OpenWindows, PathEvent, PathPolicy, PathView, PolicyState};
use rnic_wire::falcon::{FlowLabel, Timestamp};

use crate::delivery::config::DeliveryConfig;
use crate::delivery::per_flow::PerFlow;

/// State of one flow at its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) label: FlowLabel,
    pub(crate) fcwnd: Cwnd,
    /// Packets sent on the flow and not acknowledged.
    pub(crate) outstanding: u32,
    /// Packets acknowledged since the last report to the adaptive engine.
    pub(crate) acknowledged: u16,
    /// Packets sent since the last report, including retransmissions.
    pub(crate) left: u16,
    /// True when packets were considered lost before their timeout since the last report.
    pub(crate) lost: bool,
    /// Packets received by the peer with a congestion mark, by the last acknowledgement.
    pub(crate) ecn: u16,
    /// Wait before a probe, as last set by recovery.
    pub(crate) probe: Option<Duration>,
    /// RACK timeout set by the adaptive engine, overriding recovery's.
    pub(crate) rack_rto: Option<Duration>,
}

/// Snapshot of a flow of a connection with several flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowView {
    /// Current label, which the network hashes.
    pub label: FlowLabel,
    /// Window of the flow.
    pub fcwnd: Cwnd,
    /// Packets sent on the flow and not acknowledged.
    pub outstanding: u32,
    /// The last round-trip time measured on the flow.
    pub round_trip: Option<Duration>,
    /// Counts of the flow so far.
    pub counters: FlowCounters,
}

/// Counts of one flow of a connection with several flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounters {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets retransmitted.
    pub sent_again: u64,
    /// Path changes.
    pub moves: u64,
}

/// State that only connections with several flows have.
#[derive(Clone, Debug)]
struct Several {
    /// State of the path policy.
    choice: PolicyState,
    /// Flow weights for the path policy, if it uses weights.
    weights: FlowWeights,
    weighs: bool,
    counters: [FlowCounters; FLOWS_MAX],
    round_trips: [Option<Duration>; FLOWS_MAX],
    /// For each flow, send time of the latest packet echoed by an acknowledgement on it, and its T2; `None` before the
    /// first. T1 is not stored, because it wraps around after 563 s and a flow may be silent for as long.
    echoed: [Option<(Time, Timestamp)>; FLOWS_MAX],
}

impl Several {
    fn new(choice: PolicyState, weighs: bool) -> Self {
        let (counters, round_trips, echoed) = Default::default();
        Self { choice, weights: FlowWeights::EQUAL, weighs, counters, round_trips, echoed }
    }
}

/// The flows of a connection, and its window, the sum of their windows.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    flows: PerFlow<Flow>,
    /// The connection's window: the sum over the flows.
    fcwnd: Cwnd,
    /// `None` for a connection with one flow.
    several: Option<Box<Several>>,
    flow_hash: u64,
    count: u8,
    index_bits: u8,
}

/// 2^64 divided by the golden ratio: spreads consecutive numbers (Knuth, 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Upper limit of a window in the path choice, in 1/256 packets: windows above four million packets are treated as
/// equal.
const WINDOW_MAX: u64 = 1 << 30;

impl Flows {
    pub(crate) fn new(config: &DeliveryConfig) -> Self {
        let count = usize::from(config.flows);
        let index_bits = count.next_power_of_two().trailing_zeros();
        let view = PathView { now: Time::ZERO, flow_hash: config.flow_hash };
        let (choice, _) = (config.paths.policy.start)(&config.paths.params, &view);
        let fresh = |flow: usize| Flow {
            label: label_of(flow, index_bits, config.labels[flow].get()),
            fcwnd: config.fcwnd.share(flow as u8, config.flows),
            outstanding: 0,
            acknowledged: 0,
            left: 0,
            lost: false,
            ecn: 0,
            probe: None,
            rack_rto: None,
        };
        let mut flows = Self {
            flows: PerFlow::new(count, fresh),
            fcwnd: config.fcwnd,
            several: (count > 1).then(|| Box::new(Several::new(choice, config.paths.policy.weighs))),
            flow_hash: config.flow_hash,
            count: config.flows,
            index_bits: index_bits as u8,
        };
        flows.add_up();
        flows
    }

    fn add_up(&mut self) {
        if let Some(only) = self.flows.only() {
            self.fcwnd = only.fcwnd;
            return;
        }
        let sum: u64 = self.all().map(|flow| flow.fcwnd.fixed()).sum();
        self.fcwnd = Cwnd::from_fixed(sum);
        let Some(several) = self.several.as_mut().filter(|several| several.weighs) else { return };
        several.weights = FlowWeights::of(self.flows.iter().map(|flow| flow.fcwnd.fixed()));
    }

    /// Returns the number of flows.
    #[inline]
    pub(crate) fn count(&self) -> u8 {
        self.count
    }

    /// Returns the connection's window.
    #[inline]
    pub(crate) fn fcwnd(&self) -> Cwnd {
        self.fcwnd
    }

    #[inline]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter()
    }

    #[inline]
    pub(crate) fn get(&self, flow: u8) -> &Flow {
        &self.flows[flow]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, flow: u8) -> &mut Flow {
        &mut self.flows[flow]
    }

    /// Returns the flow on which a packet with `label` was received. A label that names no flow of the connection maps
    /// to the first flow.
    #[inline]
    pub(crate) fn of_label(&self, label: FlowLabel) -> u8 {
        let flow = label.flow(self.index_bits.into());
        if flow < self.count { flow } else { 0 }
    }

    pub(crate) fn set_fcwnd(&mut self, flow: u8, fcwnd: Cwnd) {
        self.get_mut(flow).fcwnd = fcwnd;
        self.add_up();
    }

    /// Moves `flow` to another path.
    pub(crate) fn set_label(&mut self, flow: u8, entropy: u32) {
        let label = label_of(usize::from(flow), self.index_bits.into(), entropy);
        self.get_mut(flow).label = label;
        // The measured round trip belongs to the previous path.
        if let Some(several) = &mut self.several {
            several.round_trips[usize::from(flow)] = None;
        }
    }

    /// Moves `flow` to any other path, as the connection's move number `moves`, with the next label of a sequence
    /// specific to the connection.
    ///
    /// The bit above the index always changes. Therefore no label occurs twice in a row, and when only few label bits
    /// select a path, as on sockets, the flow still leaves its previous path.
    pub(crate) fn repath(&mut self, flow: u8, moves: u64) {
        self.count_of(flow, |counters| counters.moves += 1);
        let mixed = (self.flow_hash ^ moves).wrapping_mul(GOLDEN);
        // The high bits of the product are the well-mixed ones.
        let (entropy, old) = ((mixed >> 40) as u32, self.get(flow).label.get() >> self.index_bits);
        self.set_label(flow, entropy & !1 | !old & 1);
    }

    /// Returns the flow for a packet that is sent for the first time.
    #[inline]
    pub(crate) fn choose(&mut self, now: Time, paths: &Configured<PathPolicy>) -> u8 {
        let Some(several) = &mut self.several else { return 0 };
        let mut open = [0; FLOWS_MAX];
        for (open, flow) in open.iter_mut().zip(self.flows.iter()) {
            let window = (flow.fcwnd.fixed() >> 8).min(WINDOW_MAX) as i32;
            *open = window - flow.outstanding as i32 * OpenWindows::PACKET;
        }
        let event =
            PathEvent::Choosing { open: OpenWindows::new(&open[..usize::from(self.count)]), weights: several.weights };
        let view = PathView { now, flow_hash: self.flow_hash };
        let actions = (paths.policy.on_event)(&mut several.choice, &event, &view, &paths.params);
        let flow = actions.flow.unwrap_or(0);
        assert!(flow < self.count, "path policy `{}` chose flow {flow}", paths.policy.name);
        several.counters[usize::from(flow)].sent += 1;
        flow
    }

    /// Counts a retransmission on `flow`.
    #[inline]
    pub(crate) fn count_again(&mut self, flow: u8) {
        self.count_of(flow, |counters| counters.sent_again += 1);
    }

    #[inline]
    fn count_of(&mut self, flow: u8, what: impl FnOnce(&mut FlowCounters)) {
        if let Some(several) = &mut self.several {
            what(&mut several.counters[usize::from(flow)]);
        }
    }

    /// Records that an acknowledgement on `flow` echoes a packet sent at `t1` and received at `t2`; returns whether an
    /// earlier acknowledgement already echoed it, or echoed a later packet. Always false for a connection with one
    /// flow, whose acknowledgements are mostly triggered by a packet and echo that one.
    #[inline]
    pub(crate) fn echoes_again(&mut self, now: Time, flow: u8, t1: Timestamp, t2: Timestamp) -> bool {
        let Some(several) = &mut self.several else { return false };
        // A T1 at which no packet can have been sent is not an echo, and is not compared with later ones.
        let Some(left) = t1.last_shown(now) else { return false };
        let last = &mut several.echoed[usize::from(flow)];
        if last.is_some_and(|last| left < last.0 || last == (left, t2)) {
            return true;
        }
        *last = Some((left, t2));
        false
    }

    /// Records a round-trip time measured on `flow`.
    #[inline]
    pub(crate) fn note_round_trip(&mut self, flow: u8, round_trip: Duration) {
        if let Some(several) = &mut self.several {
            several.round_trips[usize::from(flow)] = Some(round_trip);
        }
    }

    /// Returns the last round-trip time of `flow`; `None` before the first, and for a connection with one flow, which
    /// stores it itself.
    #[inline]
    pub(crate) fn round_trip(&self, flow: u8) -> Option<Duration> {
        self.several.as_ref()?.round_trips[usize::from(flow)]
    }

    /// Returns a snapshot of each flow, when there are several.
    pub(crate) fn views(&self) -> impl Iterator<Item = FlowView> {
        let several = self.several.iter();
        several.flat_map(|several| {
            self.all().zip(several.counters).zip(several.round_trips).map(|((flow, counters), round_trip)| {
                let Flow { label, fcwnd, outstanding, .. } = *flow;
                FlowView { label, fcwnd, outstanding, round_trip, counters }
            })
        })
    }

    /// Returns the wait before a probe: that of the slowest flow with packets in flight. `None` while no wait is known
    /// for one of those flows, because probes of all flows then wait up to the timeout; also when no flow has packets
    /// in flight, or the recovery policy does not probe.
    pub(crate) fn probe_after(&self) -> Option<Duration> {
        if let Some(only) = self.flows.only() {
            return only.probe.filter(|_| only.outstanding > 0);
        }
        let mut used = self.all().filter(|flow| flow.outstanding > 0).map(|flow| flow.probe);
        let first = used.next()??;
        used.try_fold(first, |most, probe| probe.map(|probe| most.max(probe)))
    }
}

/// Returns the label of `flow` with the index in its low bits, the rest from the low bits of `entropy`.
fn label_of(flow: usize, index_bits: u32, entropy: u32) -> FlowLabel {
    FlowLabel::of_flow(flow as u8, index_bits, entropy)
}
