//! Path selection: the label of each packet that switches include in their hash.
//!
//! A label is abstract: a UDP source port for RoCEv2, an IPv6 flow label for Falcon, a number that the simulated
//! switches include in their hash.

use bytemuck::Pod;
use rnic_base::{Duration, Time};

use crate::params::{Configured, ParamSpec, Params};
use crate::state::PolicyState;

/// The part of a packet's flow hash that its sender may choose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathLabel(pub u16);

/// Maximum number of flows of a connection: three bits of a flow label identify the flow.
pub const FLOWS_MAX: usize = 8;

/// Free congestion window of each flow: its `fcwnd` minus its unacknowledged packets (Falcon, SIGCOMM'25, section 4.3),
/// in [parts](Self::PARTS_PER_PACKET) of a packet. Negative if more packets are in flight than the window allows now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenWindows {
    open: [i32; FLOWS_MAX],
    count: u8,
}

impl OpenWindows {
    /// Parts of a packet. Packets are counted in 256ths because in an incast, where windows are about one packet or
    /// less, whole packets would make all flows look equal.
    pub const PARTS_PER_PACKET: i32 = 256;

    /// Builds the windows from `open`: by flow, the number of packets that its window still allows; negative when more
    /// are in flight than it allows.
    ///
    /// # Panics
    /// When `open` is empty or longer than [`FLOWS_MAX`].
    pub fn new(open: &[i32]) -> Self {
        assert!((1..=FLOWS_MAX).contains(&open.len()), "a connection has 1 to {FLOWS_MAX} flows, not {}", open.len());
        let mut windows = Self { open: [0; FLOWS_MAX], count: open.len() as u8 };
        windows.open[..open.len()].copy_from_slice(open);
        windows
    }

    /// Returns the open windows, indexed by flow; at least one.
    #[inline]
    pub fn as_slice(&self) -> &[i32] {
        &self.open[..usize::from(self.count)]
    }
}

/// Weights for dividing packets among the flows of a connection, according to the capacity of their paths as shown by
/// congestion windows.
///
/// The public simulator of Falcon has weights of four bits, computed from a window's share of the sum. Here the widest
/// window has the largest weight, and the others have weights in proportion, rounded to the nearest, but at least one:
/// with shares of the sum, eight flows would have only the weights 1 and 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowWeights([u8; FLOWS_MAX]);

impl FlowWeights {
    /// The largest weight of a flow.
    pub const MAX: u8 = 15;
    /// Equal weights for all flows.
    pub const EQUAL: Self = Self([1; FLOWS_MAX]);

    /// Returns the weights of flows with the congestion windows `windows`, which may be in any unit.
    pub fn of(windows: impl Iterator<Item = u64>) -> Self {
        let mut window_sizes = [0; FLOWS_MAX];
        window_sizes.iter_mut().zip(windows).for_each(|(window_size, window)| *window_size = window);
        let largest = window_sizes.into_iter().fold(1, u64::max).min(u64::MAX >> 6);
        let mut weights = Self::EQUAL;
        for (weight, window_size) in weights.0.iter_mut().zip(window_sizes) {
            let scaled = (2 * u64::from(Self::MAX) * window_size.min(largest) + largest) / (2 * largest);
            *weight = (scaled as u8).max(1);
        }
        weights
    }

    /// Returns the weight of `flow`, 1 to [`FlowWeights::MAX`].
    #[inline]
    pub fn of_flow(&self, flow: usize) -> u8 {
        self.0[flow]
    }
}

/// An event for a path policy; each variant states which protocols deliver it. Acknowledgements are not delivered: on
/// Falcon, the state of paths is visible in the windows that come with [`PathEvent::Choosing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathEvent {
    /// A packet is about to be sent: choose a label. Delivered by the RoCE family, only to policies for which
    /// [`Paths::per_packet`] returns `true`.
    Sending {
        /// True when the packet was sent before.
        retransmission: bool,
    },
    /// A packet is about to be sent on one of several flows of the connection: choose one. Falcon delivers it for every
    /// packet that is sent for the first time, and no other event; the response is [`PathActions::flow`].
    Choosing {
        /// Available congestion window of each flow: the window minus the packets in flight.
        open: OpenWindows,
        /// Weights for dividing packets among flows, for policies that request them ([`Paths::WEIGHS`]); for other
        /// policies all weights are equal.
        weights: FlowWeights,
    },
    /// The retransmission timer has expired. Delivered by the RoCE family.
    TimedOut,
    /// A probe that was requested with [`PathActions::probe`] has been answered. This and the following events are
    /// delivered by the RoCE family, on NICs that exchange messages with their peers (SCR mechanisms S-8, S-24).
    Probed {
        /// Number of the path, as in the request.
        path: u8,
        /// Round-trip time, without the time that the answering NIC took.
        rtt: Duration,
    },
    /// A probe that was requested with [`PathActions::probe`] has not been answered in time.
    ProbeLost {
        /// Number of the path, as in the request.
        path: u8,
    },
    /// The time requested with [`PathActions::tick_after`] is reached. The first one is delivered with the first data,
    /// to policies with [`Paths::PROBES`].
    Tick,
    /// All packets sent before [`PathActions::drain`] are acknowledged.
    Drained,
}

/// Maximum number of paths that the path policy of a queue pair can probe.
pub const PROBED_MAX: usize = 6;

/// A probe that a path policy requests. Each request ends in a [`PathEvent::Probed`] or, when the probe is not answered
/// in time or cannot be sent, in a [`PathEvent::ProbeLost`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathProbe {
    /// Number of the path, below [`PROBED_MAX`]. At most one probe is in flight on each path; another request for the
    /// path then ends with the same event.
    pub path: u8,
    /// Label of the path. If it differs from that of the probe in flight, the new probe replaces it.
    pub label: PathLabel,
    /// Time after which the probe counts as lost.
    pub timeout: Duration,
}

/// Read-only state that a path policy receives with an event.
#[derive(Clone, Copy, Debug)]
pub struct PathView {
    /// Current time.
    pub now: Time,
    /// A constant of the queue pair, the same in every run of the same plan and seed.
    pub flow_hash: u64,
}

/// Actions that a path policy requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathActions {
    /// New label, from this packet on; `None` keeps the current one.
    pub label: Option<PathLabel>,
    /// The index of the flow for this packet, in response to [`PathEvent::Choosing`]; `None` means flow 0. A policy
    /// with [`Paths::REORDERS`] must return a flow; a policy without it is rejected for connections with several
    /// flows.
    pub flow: Option<u8>,
    /// Probe to send.
    pub probe: Option<PathProbe>,
    /// Delay after which a [`PathEvent::Tick`] is delivered; replaces an earlier request.
    pub tick_after: Option<Duration>,
    /// Holds new packets until all earlier ones are acknowledged; then [`PathEvent::Drained`] is delivered. A label
    /// that is changed in response to it causes no reordering.
    pub drain: bool,
}

/// A path policy. The implementing type is the private state of one queue pair.
pub trait Paths: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunable parameters.
    const PARAMS: &'static [ParamSpec];
    /// True when packets of one window may be reordered because of this policy.
    const REORDERS: bool;

    /// True when the policy uses [`FlowWeights`], whose maintenance takes time.
    const WEIGHS: bool = false;

    /// True when the policy requests probes, and so needs a NIC that exchanges messages with its peers.
    const PROBES: bool = false;

    /// Required: returns the state of a new queue pair and its first label.
    fn start(params: &Params, view: &PathView) -> (Self, PathLabel);

    /// Required: returns whether the policy is called before every packet.
    fn per_packet(params: &Params) -> bool;

    /// Required: reacts to `event` and returns the actions to apply.
    fn on_event(&mut self, event: &PathEvent, view: &PathView, params: &Params) -> PathActions;
}

/// A type-erased [`Paths`] policy.
#[derive(Clone, Copy, Debug)]
pub struct PathPolicy {
    /// See [`Paths::NAME`].
    pub name: &'static str,
    /// See [`Paths::SUMMARY`].
    pub summary: &'static str,
    /// See [`Paths::PARAMS`].
    pub params: &'static [ParamSpec],
    /// See [`Paths::REORDERS`].
    pub reorders: bool,
    /// See [`Paths::WEIGHS`].
    pub weighs: bool,
    /// See [`Paths::PROBES`].
    pub probes: bool,
    /// Bytes of private state per queue pair.
    pub state_bytes: usize,
    /// See [`Paths::start`].
    pub start: fn(&Params, &PathView) -> (PolicyState, PathLabel),
    /// See [`Paths::per_packet`].
    pub per_packet: fn(&Params) -> bool,
    /// See [`Paths::on_event`].
    pub on_event: fn(&mut PolicyState, &PathEvent, &PathView, &Params) -> PathActions,
}

impl PathPolicy {
    /// Builds the type-erased policy of `T`.
    pub const fn of<T: Paths>() -> Self {
        Self {
            name: T::NAME,
            summary: T::SUMMARY,
            params: T::PARAMS,
            reorders: T::REORDERS,
            weighs: T::WEIGHS,
            probes: T::PROBES,
            state_bytes: size_of::<T>(),
            start: |params, view| {
                let (state, label) = T::start(params, view);
                (PolicyState::of(state), label)
            },
            per_packet: T::per_packet,
            on_event: |state, event, view, params| state.get_mut::<T>().on_event(event, view, params),
        }
    }

    /// Returns the type-erased policy of `T` with the defaults of its parameters.
    pub const fn configured<T: Paths>() -> Configured<Self> {
        Configured { policy: Self::of::<T>(), params: Params::defaults(T::PARAMS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_proportional_to_windows_and_at_least_one() {
        let of = |windows: &[u64]| {
            let weights = FlowWeights::of(windows.iter().copied());
            (0..windows.len()).map(|flow| weights.of_flow(flow)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[100, 25, 50, 1]), [15, 4, 8, 1]);
        assert_eq!(of(&[7, 7]), [15, 15]);
        assert_eq!((of(&[0, 0]), of(&[u64::MAX, 1])), (vec![1, 1], vec![15, 1]), "weights are not between 1 and 15");
    }
}
