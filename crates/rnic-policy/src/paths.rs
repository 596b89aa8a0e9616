//! Path choice: the label that switches hash, per packet.
//!
//! A label is abstract: a UDP source port for RoCEv2, an IPv6 flow label for Falcon, a number
//! that the simulated switches mix into their hash.

use bytemuck::Pod;
use rnic_base::Time;

use crate::params::{ParamSpec, Params};
use crate::state::PolicyState;

/// The part of a packet's flow hash that its sender may choose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathLabel(pub u16);

/// Flows of a connection, at most: what three bits of a flow label can name.
pub const FLOWS_MAX: usize = 8;

/// How far the congestion window of each flow is open: its `fcwnd` less its unacknowledged packets (Falcon, SIGCOMM'25,
/// section 4.3), in [parts](Self::PACKET) of a packet. Negative where the window has shrunk, or another flow's share
/// was sent on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenWindows {
    open: [i32; FLOWS_MAX],
    count: u8,
}

impl OpenWindows {
    /// Packets are counted in 256ths: in an incast, where windows are about one packet and less, whole ones would make
    /// all flows alike.
    pub const PACKET: i32 = 256;

    /// Those of `open`, by index of the flow.
    ///
    /// # Panics
    /// When there are none, or more than [`FLOWS_MAX`].
    pub fn new(open: &[i32]) -> Self {
        assert!((1..=FLOWS_MAX).contains(&open.len()), "a connection has 1 to {FLOWS_MAX} flows, not {}", open.len());
        let mut windows = Self { open: [0; FLOWS_MAX], count: open.len() as u8 };
        windows.open[..open.len()].copy_from_slice(open);
        windows
    }

    /// By index of the flow; at least one.
    #[inline]
    pub fn as_slice(&self) -> &[i32] {
        &self.open[..usize::from(self.count)]
    }
}

/// How packets are to be divided among the flows of a connection: by what their paths carry, as far as congestion
/// windows show it.
///
/// The public simulator of Falcon has weights of four bits, which it makes of a window's share of the sum. Here the
/// widest window has the largest weight, and the others theirs in proportion, rounded to the nearest, but one at least:
/// eight flows that share the sum would have no more than 1 and 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowWeights([u8; FLOWS_MAX]);

impl FlowWeights {
    /// The largest weight.
    pub const MAX: u8 = 15;
    /// Of flows that are all alike.
    pub const EQUAL: Self = Self([1; FLOWS_MAX]);

    /// Returns those of flows with `windows`, in any unit.
    pub fn of(windows: impl Iterator<Item = u64>) -> Self {
        let mut widths = [0; FLOWS_MAX];
        widths.iter_mut().zip(windows).for_each(|(width, window)| *width = window);
        let widest = widths.into_iter().fold(1, u64::max).min(u64::MAX >> 6);
        let mut weights = Self::EQUAL;
        for (weight, width) in weights.0.iter_mut().zip(widths) {
            let scaled = (2 * u64::from(Self::MAX) * width.min(widest) + widest) / (2 * widest);
            *weight = (scaled as u8).max(1);
        }
        weights
    }

    /// Returns that of `flow`, 1 to [`FlowWeights::MAX`].
    #[inline]
    pub fn of_flow(&self, flow: usize) -> u8 {
        self.0[flow]
    }
}

/// What a path policy hears; each variant says from which protocols. Nobody tells it of acknowledgements: on Falcon,
/// what paths are like shows in the windows that come with [`PathEvent::Choosing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathEvent {
    /// A packet is about to leave: choose a label. The RoCE family sends it, only to policies that answer `true` to
    /// [`Paths::per_packet`].
    Sending {
        /// Whether it was sent before.
        retransmission: bool,
    },
    /// A packet is about to leave on one of several flows that the connection keeps apart: choose one. Falcon sends it
    /// for every packet that leaves for the first time, and nothing else; the answer is [`PathActions::flow`].
    Choosing {
        /// How far each flow's window is open.
        open: OpenWindows,
        /// How packets should be divided, for policies that ask for it ([`Paths::WEIGHS`]); all alike for others.
        weights: FlowWeights,
    },
    /// The retransmission timer ran out. The RoCE family sends it.
    TimedOut,
}

/// What a path policy sees.
#[derive(Clone, Copy, Debug)]
pub struct PathView {
    /// Now.
    pub now: Time,
    /// A number fixed for the queue pair, the same in every run of the same plan and seed.
    pub flow_hash: u64,
}

/// What a path policy wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathActions {
    /// The label from this packet on; `None` keeps the last one.
    pub label: Option<PathLabel>,
    /// The index of the flow for this packet, in answer to [`PathEvent::Choosing`]; `None` means flow 0. Who says
    /// [`Paths::REORDERS`] names one; who does not is refused where a connection has several.
    pub flow: Option<u8>,
}

/// A path policy, as its author writes it. The type itself is the private state of one queue pair.
pub trait Paths: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunables.
    const PARAMS: &'static [ParamSpec];
    /// Whether packets of one window may overtake each other because of this policy.
    const REORDERS: bool;

    /// Whether it goes by [`FlowWeights`], which cost something to keep.
    const WEIGHS: bool = false;

    /// Required: the state of a fresh queue pair and its first label.
    fn start(params: &Params, view: &PathView) -> (Self, PathLabel);

    /// Required: whether to be asked before every packet.
    fn per_packet(params: &Params) -> bool;

    /// Required: reacts to `event`.
    fn on_event(&mut self, event: &PathEvent, view: &PathView, params: &Params) -> PathActions;
}

/// A [`Paths`] policy with its type forgotten.
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
    /// Forgets the type of `T`.
    pub const fn of<T: Paths>() -> Self {
        Self {
            name: T::NAME,
            summary: T::SUMMARY,
            params: T::PARAMS,
            reorders: T::REORDERS,
            weighs: T::WEIGHS,
            state_bytes: size_of::<T>(),
            start: |params, view| {
                let (state, label) = T::start(params, view);
                (PolicyState::of(state), label)
            },
            per_packet: T::per_packet,
            on_event: |state, event, view, params| state.get_mut::<T>().on_event(event, view, params),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_in_proportion_and_nobody_has_none() {
        let of = |windows: &[u64]| {
            let weights = FlowWeights::of(windows.iter().copied());
            (0..windows.len()).map(|flow| weights.of_flow(flow)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[100, 25, 50, 1]), [15, 4, 8, 1]);
        assert_eq!(of(&[7, 7]), [15, 15]);
        assert_eq!((of(&[0, 0]), of(&[u64::MAX, 1])), (vec![1, 1], vec![15, 1]), "whatever windows are");
    }
}
