//! Swift's state of one connection: four flows and the window towards the NIC in 64 bytes.
//!
//! Widths are those of Falcon's records (specification 10.6.2): 21 bits for a window, 24 for a time, 24 for PLB.

use core::hint::select_unpredictable;

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::report::Ticks;

use super::alpha::Alphas;
use super::nic::NicWindow;
use super::plb::Plb;

/// Number of flows with a state of their own.
pub(super) const FLOWS: usize = 4;
/// The widest window: 11 integer bits of packets, 10 fractional bits.
pub(super) const WINDOW_MAX: u32 = (1 << WINDOW_BITS) - 1;

const WINDOW_BITS: u32 = 21;
const TIME_MASK: u32 = Ticks::MAX.get();

/// Per-connection state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Swift {
    flows: [FlowBits; FLOWS],
    /// Congested packets of the current PLB round, per flow.
    congested: [u16; FLOWS],
    /// Window towards the NIC, in packets.
    ncwnd: u16,
    /// With reports, the codes of the shares set last: of requests, then of responses, 4 bits each. Without reports,
    /// packets acknowledged since the last sample.
    other: u16,
    /// The marker of ncwnd (24 bits), then one bit that is set if it last grew, 3 bits for the number of flow states
    /// in use, and 3 bits of consecutive timeouts.
    nic: u32,
}

/// The packed state of one flow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FlowBits {
    /// fcwnd (21 bits), then packets acknowledged in the current PLB round (10).
    window: u32,
    /// Smoothed round trip (24 bits), then consecutive congested PLB rounds (4).
    rtt: u32,
    /// Time of the last cut of the window; at most one round trip ago (24 bits).
    marker: u32,
}

/// The unpacked state of one flow.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    /// Window, with 10 fractional bits; 0 before the first report.
    pub(super) fcwnd: u32,
    /// Smoothed round trip; 0 before the first sample.
    pub(super) srtt: Ticks,
    /// Time of the last cut of the window; at most one round trip ago.
    pub(super) marker: Ticks,
    /// State of protective load balancing.
    pub(super) plb: Plb,
}

/// Totals of all flows.
#[derive(Clone, Copy)]
pub(super) struct Totals {
    /// The sum of the flows' windows; a state shared by two flows counts twice.
    pub(super) fcwnd: u32,
    /// The longest of the flows' round trips.
    pub(super) srtt: Ticks,
}

const GREW_BIT: u32 = 1 << 24;
const SEEN_SHIFT: u32 = 25;
const TIMEOUTS_SHIFT: u32 = 28;
const THREE_BITS_MASK: u32 = 7;

impl Swift {
    #[inline(always)]
    pub(super) fn flow(&self, index: usize) -> Flow {
        Flow::from_words(&self.words(index))
    }

    #[inline(always)]
    pub(super) fn set_flow(&mut self, index: usize, flow: Flow) {
        self.set_flow_words(index, &flow.to_words());
        let seen = (self.nic >> SEEN_SHIFT & THREE_BITS_MASK).max(index as u32 + 1);
        self.nic = self.nic & !(THREE_BITS_MASK << SEEN_SHIFT) | seen << SEEN_SHIFT;
    }

    /// Returns the last of the flows in use: the only one, in a state that reports carry.
    #[inline(always)]
    pub(super) fn last_flow(&self) -> Flow {
        let seen = (self.nic >> SEEN_SHIFT & THREE_BITS_MASK) as usize;
        self.flow(seen.saturating_sub(1))
    }

    /// Returns flow `index` in its packed form.
    #[inline(always)]
    pub(super) fn words(&self, index: usize) -> FlowWords {
        let FlowBits { window, rtt, marker } = self.flows[index];
        FlowWords { window, rtt, marker, congested: self.congested[index].into() }
    }

    /// Writes a flow whose state has been written before.
    #[inline(always)]
    pub(super) fn set_flow_words(&mut self, index: usize, words: &FlowWords) {
        let &FlowWords { window, rtt, marker, congested } = words;
        self.flows[index] = FlowBits { window, rtt, marker };
        self.congested[index] = congested as u16;
    }

    #[inline(always)]
    pub(super) fn nic(&self) -> NicWindow {
        NicWindow::from_words(self.nic_words())
    }

    #[inline(always)]
    pub(super) fn set_nic(&mut self, nic: NicWindow) {
        self.set_nic_words(nic.to_words(self.nic));
    }

    /// Returns the window towards the NIC in its packed form.
    #[inline(always)]
    pub(super) fn nic_words(&self) -> NicWords {
        NicWords { packets: self.ncwnd.into(), bits: self.nic }
    }

    #[inline(always)]
    pub(super) fn set_nic_words(&mut self, words: NicWords) {
        self.ncwnd = words.packets as u16;
        self.nic = words.bits;
    }

    /// Returns the shares set last; the largest possible before the first report.
    #[inline(always)]
    pub(super) fn shares(&self) -> Alphas {
        Alphas::from_bits(self.other.into())
    }

    #[inline(always)]
    pub(super) fn set_shares(&mut self, shares: Alphas) {
        self.other = shares.bits() as u16;
    }

    /// Returns the packets acknowledged since the last sample; used for transports without reports.
    pub(super) fn unsampled_packets(&self) -> u16 {
        self.other
    }

    pub(super) fn set_unsampled_packets(&mut self, packets: u16) {
        self.other = packets;
    }

    /// Returns the number of consecutive timeouts, up to 7; used for transports that do not count them.
    pub(super) fn timeouts(&self) -> u32 {
        self.nic >> TIMEOUTS_SHIFT & THREE_BITS_MASK
    }

    pub(super) fn set_timeouts(&mut self, count: u32) {
        self.nic = self.nic & !(THREE_BITS_MASK << TIMEOUTS_SHIFT) | count.min(THREE_BITS_MASK) << TIMEOUTS_SHIFT;
    }

    /// Returns the totals of all states except number `index`, for a connection with `flows` flows.
    #[inline(always)]
    pub(super) fn others(&self, index: usize, flows: u32) -> Totals {
        let seen = (self.nic >> SEEN_SHIFT & THREE_BITS_MASK) as usize;
        let none = Totals { fcwnd: 0, srtt: Ticks::ZERO };
        if seen <= 1 && index == 0 {
            return none;
        }
        let others = self.flows.iter().take(seen).enumerate().filter(|(other, _)| *other != index);
        others.fold(none, |sum, (other, flow)| Totals {
            fcwnd: sum.fcwnd + of_state(flow.window & WINDOW_MAX, other, flows),
            srtt: sum.srtt.max(Ticks::new(flow.rtt)),
        })
    }
}

/// Returns the window of the flows that share state `index`, each with the window `fcwnd`: `fcwnd` counts twice when
/// a connection with `flows` flows has a flow with the index four higher.
#[inline(always)]
fn of_state(fcwnd: u32, index: usize, flows: u32) -> u32 {
    fcwnd << u32::from(index + FLOWS < flows as usize)
}

impl Totals {
    /// Returns the totals including the flows of state `index`, whose window and round trip are those of `flow`; for a
    /// connection with `flows` flows.
    #[inline(always)]
    pub(super) fn and(self, flow: &Flow, index: usize, flows: u32) -> Self {
        Self { fcwnd: self.fcwnd + of_state(flow.fcwnd, index, flows), srtt: self.srtt.max(flow.srtt) }
    }
}

/// A flow in its packed form.
#[derive(Clone, Copy)]
pub(super) struct FlowWords {
    pub(super) window: u32,
    pub(super) rtt: u32,
    pub(super) marker: u32,
    pub(super) congested: u32,
}

impl Flow {
    #[inline(always)]
    pub(super) fn from_words(words: &FlowWords) -> Self {
        let &FlowWords { window, rtt, marker, congested } = words;
        let plb = Plb { congested, acked: window >> WINDOW_BITS, rounds: rtt >> Ticks::BITS };
        Self { fcwnd: window & WINDOW_MAX, srtt: Ticks::new(rtt), marker: Ticks::new(marker), plb }
    }

    #[inline(always)]
    pub(super) fn to_words(self) -> FlowWords {
        FlowWords {
            window: self.fcwnd | self.plb.acked << WINDOW_BITS,
            rtt: self.srtt.get() | self.plb.rounds << Ticks::BITS,
            marker: self.marker.get(),
            congested: self.plb.congested,
        }
    }
}

/// The window towards the NIC in its packed form.
#[derive(Clone, Copy)]
pub(super) struct NicWords {
    pub(super) packets: u32,
    /// Word that contains the marker and direction of the window, and other bits that do not belong to it.
    pub(super) bits: u32,
}

impl NicWindow {
    #[inline(always)]
    pub(super) fn from_words(words: NicWords) -> Self {
        Self { packets: words.packets, marker: Ticks::new(words.bits), grew: words.bits & GREW_BIT != 0 }
    }

    /// Packs the window beside the other contents of `bits`.
    #[inline(always)]
    pub(super) fn to_words(self, bits: u32) -> NicWords {
        let grew = select_unpredictable(self.grew, GREW_BIT, 0);
        NicWords { packets: self.packets, bits: bits & !(TIME_MASK | GREW_BIT) | self.marker.get() | grew }
    }
}
