//! ncwnd: the window towards the receiving NIC, by the level of its buffers.
//!
//! Source: specification 10.3.4 (gen 1: whole packets, and one more a round trip). Below the target level the window
//! grows by one packet a round trip, or at once when the last change was a decrease; at or above it, once a round trip,
//! `ncwnd *= max(1 - nic_md (level - target) / level, 1 - max_nic_md)`, rounded down. A NACK for want of resources cuts
//! by `max_nic_md`, once a round trip or right after an increase.
//!
//! Addition: a target above every level ([`is_off`]) switches all of that off, NACKs too: the window begins at its most
//! and stays there.
//!
//! Deviation: the specification moves the marker to now whenever the window stands at its least or most. With more than
//! one acknowledgement a round trip the gate would then never open at the most, and a full receiver would never be
//! spared. Here the marker moves when the window *could not go on* in the direction that the level asks for.

use core::hint::select_unpredictable;

use rnic_policy::control::report::Ticks;

use super::timers;

/// nic_md, 0.8, in tenths.
const DECREASE_TENTHS: u32 = 8;
/// max_nic_md is 0.5.
const DECREASE_MAX_LOG2: u32 = 1;
const NCWND_MIN: u32 = 1;
/// Levels have 5 bits.
const LEVEL_MAX: u32 = 31;

/// The window and when it last changed.
#[derive(Clone, Copy, Default)]
pub(super) struct NicWindow {
    pub(super) packets: u32,
    /// When it changed or could not change, or a round trip ago.
    pub(super) marker: Ticks,
    /// The last change was an increase.
    pub(super) grew: bool,
}

/// Now, and the smoothed round trip.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) now: Ticks,
    pub(super) srtt: Ticks,
}

/// Whether there is no window towards the NIC, as far as one can do without.
#[inline(always)]
pub(super) const fn is_off(target: u32) -> bool {
    target > LEVEL_MAX
}

/// What a window of `packets` is cut to when the buffers stand at `level`, at or above `target`; anything below it.
#[inline(always)]
pub(super) fn lowered(packets: u32, level: u32, target: u32) -> u32 {
    if level < target {
        return packets;
    }
    let whole = level * 10;
    let left = packets * (whole - DECREASE_TENTHS * (level - target)) / whole.max(1);
    left.max(packets - (packets >> DECREASE_MAX_LOG2)).max(NCWND_MIN)
}

impl NicWindow {
    /// The receiver's buffers stand at a level that is below the target or not; `is_open` says that the marker is a
    /// round trip old, `lowered` is what [`lowered`] says.
    #[inline(always)]
    pub(super) fn on_level(&mut self, is_below: bool, lowered: u32, times: Times, is_open: bool, largest: u32) {
        let before = self.packets;
        let (grows, falls) = (is_below & (!self.grew | is_open), !is_below & is_open);
        let raised = select_unpredictable(grows, (before + 1).min(largest), before);
        self.packets = select_unpredictable(falls, lowered, raised);
        self.grew = is_below | (self.grew & !falls);
        self.settle(before, times, select_unpredictable(is_below, largest, NCWND_MIN));
    }

    /// The receiver had no resources for a packet.
    #[inline(always)]
    pub(super) fn on_refusal(&mut self, times: Times, is_open: bool) {
        let before = self.packets;
        if self.grew || is_open {
            self.packets = (before - (before >> DECREASE_MAX_LOG2)).max(NCWND_MIN);
            self.grew = false;
        }
        self.settle(before, times, NCWND_MIN);
    }

    #[inline(always)]
    fn settle(&mut self, before: u32, times: Times, end: u32) {
        let is_at_end = self.packets == end;
        timers::settle(&mut self.marker, times.now, times.srtt, (self.packets != before) | is_at_end);
    }
}
