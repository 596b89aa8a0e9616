//! The congestion window shared by window-based controllers: fixed point, additive increase, multiplicative decrease.
//!
//! Source: RFC 5681 section 3.1 (one packet per window, divided among the acknowledgements), for all controllers that
//! grow this way.
//!
//! Deviations: packets with 16 fractional bits instead of bytes; never above the largest number of outstanding packets
//! of the engine.

use bytemuck::{Pod, Zeroable};
use rnic_base::limits::OUTSTANDING_PACKETS_MAX;
use rnic_policy::{ControlActions, ControlView, Cwnd, ParamSpec};

/// A window in packets with 16 fractional bits, as [`Cwnd`]; zero means that there is no window, and only the static
/// cap limits the sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Window(u64);

const PACKET_ONE: u64 = Cwnd::ONE.fixed();

impl Window {
    /// The largest window: no sender has more packets in flight than its bitmap or the engine allows.
    pub(super) const LARGEST: Self = Self::packets(OUTSTANDING_PACKETS_MAX);

    /// Returns the parameter for the initial window.
    pub(super) const fn initial(default: u64) -> ParamSpec {
        let help = "packets in the first window; 0 for none: line rate until the first sign of congestion";
        ParamSpec::count("initial_window", default, 0, OUTSTANDING_PACKETS_MAX, help)
    }

    /// Returns a window of `packets` whole packets.
    pub(super) const fn packets(packets: u64) -> Self {
        Self(packets * PACKET_ONE)
    }

    /// Returns the fixed-point form.
    #[cfg(test)]
    pub(super) const fn fixed(self) -> u64 {
        self.0
    }

    /// Returns this window, or, when there is none, a window of `packets`, but of at least one packet.
    pub(super) fn or_packets(self, packets: u64) -> Self {
        if self.0 == 0 { Self::packets(packets.clamp(1, OUTSTANDING_PACKETS_MAX)) } else { self }
    }

    /// Returns the window reduced by the fraction `part / whole`, but at least one packet.
    pub(super) fn reduced_by(self, part: u64, whole: u64) -> Self {
        let cut = u128::from(self.0) * u128::from(part) / u128::from(whole);
        Self((self.0 - cut as u64).max(PACKET_ONE))
    }

    /// Returns `true` if the window was limiting the sender, of which `packets` packets have just been acknowledged.
    pub(super) fn limits(self, packets: u64, view: &ControlView) -> bool {
        self.0 != 0 && view.in_flight.saturating_add(packets) >= self.0 / PACKET_ONE
    }

    /// Applies congestion avoidance: each of `packets` acknowledged packets adds its share of one packet per window
    /// (RFC 5681, 3.1).
    pub(super) fn add_per_round_trip(&mut self, packets: u64) {
        self.add(
            u128::from(packets.min(OUTSTANDING_PACKETS_MAX)) * u128::from(PACKET_ONE) * u128::from(PACKET_ONE),
            self.0.max(PACKET_ONE),
        );
    }

    /// Applies slow start: adds one packet for every packet acknowledged, up to `threshold`.
    pub(super) fn add_up_to(&mut self, packets: u64, threshold: Self) {
        let grown = self.0 + packets.min(OUTSTANDING_PACKETS_MAX) * PACKET_ONE;
        self.0 = grown.min(threshold.0).min(Self::LARGEST.0).max(self.0);
    }

    fn add(&mut self, share: u128, divisor: u64) {
        self.0 = (self.0 + (share / u128::from(divisor)) as u64).min(Self::LARGEST.0);
    }

    /// Returns the actions that set this window.
    pub(super) fn actions(self) -> ControlActions {
        let window = (self.0 != 0).then(|| Cwnd::from_fixed(self.0));
        ControlActions { window, ..ControlActions::default() }
    }
}
