//! The paths of a connection: labels, windows, and the assignment of packets to paths.
//!
//! Source: Falcon (SIGCOMM'25) section 4.3 (Falcon mechanisms F-24 to F-28). Flows share the sequence space and the
//! connection's window, which is the sum of the flows' windows; the window of a single flow is only used to choose a
//! flow (Falcon mechanism F-25). Acknowledged packets are attributed to flows by the sender's records, because one
//! acknowledgement may cover several flows (Falcon mechanism F-28). The index of a flow is in the low bits of its
//! label, and is the same in both directions.
//!
//! Choice: a retransmission stays on the packet's flow (as in the reference simulator), with the flow's current
//! label.

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
    pub(crate) packets_since_report: u16,
    /// True when packets were considered lost before their timeout since the last report.
    pub(crate) lost: bool,
    /// Number of packets that the peer has received with a congestion mark, from the last acknowledgement.
    pub(crate) ecn: u16,
    /// Time of silence before a probe, as last set by the recovery policy.
    pub(crate) probe: Option<Duration>,
    /// RACK timeout set by the adaptive engine, which overrides that of the recovery policy.
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
    pub retransmitted_packets: u64,
    /// Path changes.
    pub moves: u64,
}

/// State that only connections with several flows have.
#[derive(Clone, Debug)]
struct MultiFlow {
    /// State of the path policy.
    policy_state: PolicyState,
    /// Flow weights for the path policy, if the policy uses weights.
    weights: FlowWeights,
    uses_weights: bool,
    counters: [FlowCounters; FLOWS_MAX],
    round_trips: [Option<Duration>; FLOWS_MAX],
    /// For each flow, send time and T2 of the latest packet that was echoed by an acknowledgement on the flow; `None`
    /// before the first. T1 is not stored, because it wraps around after 563 s and a flow may be silent for that
    /// long.
    echoed: [Option<(Time, Timestamp)>; FLOWS_MAX],
}

impl MultiFlow {
    fn new(policy_state: PolicyState, uses_weights: bool) -> Self {
        let (counters, round_trips, echoed) = Default::default();
        Self { policy_state, weights: FlowWeights::EQUAL, uses_weights, counters, round_trips, echoed }
    }
}

/// The flows of a connection, and the connection's window, which is the sum of the flows' windows.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    flows: PerFlow<Flow>,
    /// The connection's window: the sum over the flows.
    fcwnd: Cwnd,
    /// State for several flows; `None` for a connection with one flow.
    multi_flow: Option<Box<MultiFlow>>,
    flow_hash: u64,
    count: u8,
    index_bits: u8,
}

/// 2^64 divided by the golden ratio: multiplication by it spreads consecutive numbers (Knuth, 6.4).
const GOLDEN_RATIO_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Upper limit of a window for the path selection, in 1/256 packets: windows above four million packets are treated
/// as equal.
const WINDOW_MAX: u64 = 1 << 30;

impl Flows {
    pub(crate) fn new(config: &DeliveryConfig) -> Self {
        let count = usize::from(config.flows);
        let index_bits = count.next_power_of_two().trailing_zeros();
        let view = PathView { now: Time::ZERO, flow_hash: config.flow_hash };
        let (policy_state, _) = (config.paths.policy.start)(&config.paths.params, &view);
        let new_flow = |flow: usize| Flow {
            label: label_of(flow, index_bits, config.labels[flow].get()),
            fcwnd: config.fcwnd.share(flow as u8, config.flows),
            outstanding: 0,
            acknowledged: 0,
            packets_since_report: 0,
            lost: false,
            ecn: 0,
            probe: None,
            rack_rto: None,
        };
        let mut flows = Self {
            flows: PerFlow::new(count, new_flow),
            fcwnd: config.fcwnd,
            multi_flow: (count > 1).then(|| Box::new(MultiFlow::new(policy_state, config.paths.policy.weighs))),
            flow_hash: config.flow_hash,
            count: config.flows,
            index_bits: index_bits as u8,
        };
        flows.update_totals();
        flows
    }

    fn update_totals(&mut self) {
        if let Some(only) = self.flows.only() {
            self.fcwnd = only.fcwnd;
            return;
        }
        let sum: u64 = self.all().map(|flow| flow.fcwnd.fixed()).sum();
        self.fcwnd = Cwnd::from_fixed(sum);
        let Some(multi_flow) = self.multi_flow.as_mut().filter(|multi_flow| multi_flow.uses_weights) else { return };
        multi_flow.weights = FlowWeights::of(self.flows.iter().map(|flow| flow.fcwnd.fixed()));
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

    /// Returns the flow on which a packet with `label` was received. If the label matches no flow of the connection,
    /// the first flow is returned.
    #[inline]
    pub(crate) fn of_label(&self, label: FlowLabel) -> u8 {
        let flow = label.flow(self.index_bits.into());
        if flow < self.count { flow } else { 0 }
    }

    pub(crate) fn set_fcwnd(&mut self, flow: u8, fcwnd: Cwnd) {
        self.get_mut(flow).fcwnd = fcwnd;
        self.update_totals();
    }

    /// Moves `flow` to another path.
    pub(crate) fn set_label(&mut self, flow: u8, entropy: u32) {
        let label = label_of(usize::from(flow), self.index_bits.into(), entropy);
        self.get_mut(flow).label = label;
        // The measured round trip belongs to the previous path.
        if let Some(multi_flow) = &mut self.multi_flow {
            multi_flow.round_trips[usize::from(flow)] = None;
        }
    }

    /// Moves `flow` to another path by setting the next label of a sequence specific to the connection;
    /// `change_number` is the number of this path change within the connection.
    ///
    /// The bit above the index always changes. Therefore no label occurs twice in a row, and the flow changes its
    /// path even if only a few label bits select the path, as on sockets.
    pub(crate) fn repath(&mut self, flow: u8, change_number: u64) {
        self.update_counters(flow, |counters| counters.moves += 1);
        let mixed = (self.flow_hash ^ change_number).wrapping_mul(GOLDEN_RATIO_MULTIPLIER);
        // The high bits of the product are the well-mixed bits.
        let (entropy, old) = ((mixed >> 40) as u32, self.get(flow).label.get() >> self.index_bits);
        self.set_label(flow, entropy & !1 | !old & 1);
    }

    /// Returns the flow for a packet that is sent for the first time.
    #[inline]
    pub(crate) fn choose(&mut self, now: Time, paths: &Configured<PathPolicy>) -> u8 {
        let Some(multi_flow) = &mut self.multi_flow else { return 0 };
        let mut open = [0; FLOWS_MAX];
        for (open, flow) in open.iter_mut().zip(self.flows.iter()) {
            let window = (flow.fcwnd.fixed() >> 8).min(WINDOW_MAX) as i32;
            *open = window - flow.outstanding as i32 * OpenWindows::PARTS_PER_PACKET;
        }
        let event = PathEvent::Choosing {
            open: OpenWindows::new(&open[..usize::from(self.count)]),
            weights: multi_flow.weights,
        };
        let view = PathView { now, flow_hash: self.flow_hash };
        let actions = (paths.policy.on_event)(&mut multi_flow.policy_state, &event, &view, &paths.params);
        let flow = actions.flow.unwrap_or(0);
        assert!(flow < self.count, "path policy `{}` chose flow {flow}", paths.policy.name);
        multi_flow.counters[usize::from(flow)].sent += 1;
        flow
    }

    /// Counts a retransmission on `flow`.
    #[inline]
    pub(crate) fn count_retransmission(&mut self, flow: u8) {
        self.update_counters(flow, |counters| counters.retransmitted_packets += 1);
    }

    #[inline]
    fn update_counters(&mut self, flow: u8, update: impl FnOnce(&mut FlowCounters)) {
        if let Some(multi_flow) = &mut self.multi_flow {
            update(&mut multi_flow.counters[usize::from(flow)]);
        }
    }

    /// Records that an acknowledgement on `flow` echoes a packet sent at `t1` and received at `t2`; returns `true` if
    /// an earlier acknowledgement already echoed this packet or a later one. Always `false` for a connection with one
    /// flow, because most of its acknowledgements are triggered by a packet and echo that packet.
    #[inline]
    pub(crate) fn note_echo(&mut self, now: Time, flow: u8, t1: Timestamp, t2: Timestamp) -> bool {
        let Some(multi_flow) = &mut self.multi_flow else { return false };
        // A T1 at which no packet can have been sent is not a valid echo, and later values are not compared with it.
        let Some(sent_at) = t1.last_time_of(now) else { return false };
        let last_echo = &mut multi_flow.echoed[usize::from(flow)];
        if last_echo.is_some_and(|last_echo| sent_at < last_echo.0 || last_echo == (sent_at, t2)) {
            return true;
        }
        *last_echo = Some((sent_at, t2));
        false
    }

    /// Records a round-trip time measured on `flow`.
    #[inline]
    pub(crate) fn note_round_trip(&mut self, flow: u8, round_trip: Duration) {
        if let Some(multi_flow) = &mut self.multi_flow {
            multi_flow.round_trips[usize::from(flow)] = Some(round_trip);
        }
    }

    /// Returns the last round-trip time of `flow`; `None` before the first measurement, and for a connection with one
    /// flow, which stores its round-trip time elsewhere.
    #[inline]
    pub(crate) fn round_trip(&self, flow: u8) -> Option<Duration> {
        self.multi_flow.as_ref()?.round_trips[usize::from(flow)]
    }

    /// Returns a snapshot of each flow of a connection with several flows.
    pub(crate) fn views(&self) -> impl Iterator<Item = FlowView> {
        let multi_flow = self.multi_flow.iter();
        multi_flow.flat_map(|multi_flow| {
            self.all().zip(multi_flow.counters).zip(multi_flow.round_trips).map(|((flow, counters), round_trip)| {
                let Flow { label, fcwnd, outstanding, .. } = *flow;
                FlowView { label, fcwnd, outstanding, round_trip, counters }
            })
        })
    }

    /// Returns the time of silence before a probe: that of the slowest flow with packets in flight. `None` while this
    /// time is unknown for one of those flows, because then no flow sends a probe before the timeout; also `None` if
    /// no flow has packets in flight, or the recovery policy does not send probes.
    pub(crate) fn probe_after(&self) -> Option<Duration> {
        if let Some(only) = self.flows.only() {
            return only.probe.filter(|_| only.outstanding > 0);
        }
        let mut used = self.all().filter(|flow| flow.outstanding > 0).map(|flow| flow.probe);
        let first = used.next()??;
        used.try_fold(first, |longest, probe| probe.map(|probe| longest.max(probe)))
    }
}

/// Returns the label of `flow`: the index in the low bits, and the low bits of `entropy` in the other bits.
fn label_of(flow: usize, index_bits: u32, entropy: u32) -> FlowLabel {
    FlowLabel::of_flow(flow as u8, index_bits, entropy)
}
