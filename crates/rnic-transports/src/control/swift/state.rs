//! Swift's state of one connection: four flows and the window towards the NIC in 64 bytes.
//!
//! Widths are those of Falcon's records (specification 10.6.2): 21 bits of window, 24 of a time, 24 of PLB.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::report::Ticks;

use super::nic::NicWindow;
use super::plb::Plb;

/// Flows with a state of their own.
pub(super) const FLOWS: usize = 4;
/// One packet of a window.
pub(super) const WINDOW_ONE: u32 = 1 << 10;
/// The widest window: 11 bits of packets, 10 of a packet's fraction.
pub(super) const WINDOW_MAX: u32 = (1 << WINDOW_BITS) - 1;

const WINDOW_BITS: u32 = 21;
const TIME_MASK: u32 = Ticks::MAX.get();

/// Per-connection state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Swift {
    flows: [FlowBits; FLOWS],
    /// Packets of the present PLB round that met congestion, per flow.
    congested: [u16; FLOWS],
    /// Window towards the NIC, in packets.
    ncwnd: u16,
    /// Packets acknowledged since the last sample, where samples come alone.
    pub(super) waiting: u16,
    /// The marker of ncwnd (24 bits), then a bit for "grew", 3 bits of flows seen, 3 bits of timeouts in a row.
    nic: u32,
}

/// One flow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FlowBits {
    /// fcwnd (21 bits), then packets acknowledged in the present PLB round (10).
    window: u32,
    /// Smoothed round trip (24 bits), then congested PLB rounds in a row (4).
    rtt: u32,
    /// When the window was last cut, or a round trip ago (24 bits).
    marker: u32,
}

/// One flow, taken apart.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    /// Window, with 10 fractional bits; 0 before the first report.
    pub(super) fcwnd: u32,
    /// Smoothed round trip; 0 before the first sample.
    pub(super) srtt: Ticks,
    /// When the window was last cut, or a round trip ago.
    pub(super) marker: Ticks,
    /// Protective load balancing.
    pub(super) plb: Plb,
}

/// All flows together.
#[derive(Clone, Copy)]
pub(super) struct Totals {
    /// The sum of their windows.
    pub(super) fcwnd: u32,
    /// The longest of their round trips.
    pub(super) srtt: Ticks,
}

const GREW: u32 = 1 << 24;
const SEEN_SHIFT: u32 = 25;
const TIMEOUTS_SHIFT: u32 = 28;
const THREE_BITS: u32 = 7;

impl Swift {
    #[inline(always)]
    pub(super) fn flow(&self, index: usize) -> Flow {
        let bits = self.flows[index];
        let plb = Plb {
            congested: self.congested[index],
            acked: (bits.window >> WINDOW_BITS) as u16,
            rounds: (bits.rtt >> Ticks::BITS) as u8,
        };
        Flow { fcwnd: bits.window & WINDOW_MAX, srtt: Ticks::new(bits.rtt), marker: Ticks::new(bits.marker), plb }
    }

    #[inline(always)]
    pub(super) fn set_flow(&mut self, index: usize, flow: Flow) {
        self.flows[index] = FlowBits {
            window: flow.fcwnd | u32::from(flow.plb.acked) << WINDOW_BITS,
            rtt: flow.srtt.get() | u32::from(flow.plb.rounds) << Ticks::BITS,
            marker: flow.marker.get(),
        };
        self.congested[index] = flow.plb.congested;
        let seen = (self.nic >> SEEN_SHIFT & THREE_BITS).max(index as u32 + 1);
        self.nic = self.nic & !(THREE_BITS << SEEN_SHIFT) | seen << SEEN_SHIFT;
    }

    #[inline(always)]
    pub(super) fn nic(&self) -> NicWindow {
        NicWindow { packets: self.ncwnd, marker: Ticks::new(self.nic), grew: self.nic & GREW != 0 }
    }

    #[inline(always)]
    pub(super) fn set_nic(&mut self, nic: NicWindow) {
        self.ncwnd = nic.packets;
        self.nic = self.nic & !(TIME_MASK | GREW) | nic.marker.get() | u32::from(nic.grew) << Ticks::BITS;
    }

    /// Timeouts in a row, up to 7; for transports that do not count them.
    pub(super) fn timeouts(&self) -> u32 {
        self.nic >> TIMEOUTS_SHIFT & THREE_BITS
    }

    pub(super) fn set_timeouts(&mut self, count: u32) {
        self.nic = self.nic & !(THREE_BITS << TIMEOUTS_SHIFT) | count.min(THREE_BITS) << TIMEOUTS_SHIFT;
    }

    /// All flows together, of which `flow` is the state in hand of number `index`.
    #[inline(always)]
    pub(super) fn totals(&self, index: usize, flow: &Flow) -> Totals {
        let seen = (self.nic >> SEEN_SHIFT & THREE_BITS) as usize;
        let only = Totals { fcwnd: flow.fcwnd, srtt: flow.srtt };
        if seen <= 1 && index == 0 {
            return only;
        }
        let others = self.flows.iter().take(seen).enumerate().filter(|(other, _)| *other != index);
        others.fold(only, |sum, (_, flow)| Totals {
            fcwnd: sum.fcwnd + (flow.window & WINDOW_MAX),
            srtt: sum.srtt.max(Ticks::new(flow.rtt)),
        })
    }
}
