//! ncwnd: the window towards the receiving NIC, controlled by the level of its buffers.
//!
//! Source: specification 10.3.4 (gen 1: whole packets, and one more a round trip). Below the target level the window
//! grows by one packet a round trip, or immediately when the last change was a decrease; at or above it, once a round
//! trip, `ncwnd *= max(1 - nic_md (level - target) / level, 1 - max_nic_md)`, rounded down. A NACK for lack of
//! resources cuts the window by `max_nic_md`, once a round trip or right after an increase.
//!
//! Addition: a target above every level ([`is_off`]) disables all of these rules, including that for NACKs: the
//! window starts at its maximum and stays there.
//!
//! Deviation: the specification moves the marker to now whenever the window is at its minimum or maximum. With more
//! than one acknowledgement a round trip, less than a round trip would then always have passed since the marker while
//! the window is at its maximum, so it would never be reduced for a full receiver. Here the marker moves when the
//! window *could not change further* in the direction that the level requires.

use core::hint::select_unpredictable;

use rnic_policy::control::report::Ticks;

use super::timers;

/// Decrease factor nic_md = 0.8, in tenths.
const DECREASE_TENTHS: u32 = 8;
/// Largest cut, max_nic_md = 0.5, as the base-2 logarithm of its inverse.
const DECREASE_MAX_LOG2: u32 = 1;
const NCWND_MIN: u32 = 1;
/// Largest level: levels have 5 bits.
const LEVEL_MAX: u32 = 31;

/// The window and the time of its last change.
#[derive(Clone, Copy, Default)]
pub(super) struct NicWindow {
    pub(super) packets: u32,
    /// Time at which the window last changed or was at the bound in the required direction; at most one round trip
    /// ago.
    pub(super) marker: Ticks,
    /// `true` if the last change was an increase.
    pub(super) grew: bool,
}

/// Current time, and the smoothed round-trip time.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) now: Ticks,
    pub(super) srtt: Ticks,
}

/// Returns `true` if the control of the window towards the NIC is disabled: the window then stays at its maximum.
#[inline(always)]
pub(super) const fn is_off(target: u32) -> bool {
    target > LEVEL_MAX
}

/// Returns the value to which a window of `packets` is cut when the buffer level is `level`, at or above `target`;
/// below the target, returns `packets`.
#[inline(always)]
pub(super) fn lowered(packets: u32, level: u32, target: u32) -> u32 {
    if level < target {
        return packets;
    }
    let whole = level * 10;
    let reduced = packets * (whole - DECREASE_TENTHS * (level - target)) / whole.max(1);
    reduced.max(packets - (packets >> DECREASE_MAX_LOG2)).max(NCWND_MIN)
}

impl NicWindow {
    /// Handles a sample of the receiver's buffer level, which is below the target if `is_below`. `is_open` is `true`
    /// if the marker is at least a round trip old; `lowered` is the result of [`lowered`].
    #[inline(always)]
    pub(super) fn on_level(&mut self, is_below: bool, lowered: u32, times: Times, is_open: bool, largest: u32) {
        let before = self.packets;
        let (grows, falls) = (is_below & (!self.grew | is_open), !is_below & is_open);
        let raised = select_unpredictable(grows, (before + 1).min(largest), before);
        self.packets = select_unpredictable(falls, lowered, raised);
        self.grew = is_below | (self.grew & !falls);
        self.settle(before, times, select_unpredictable(is_below, largest, NCWND_MIN));
    }

    /// Handles a NACK that reports that the receiver had no resources for a packet.
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
