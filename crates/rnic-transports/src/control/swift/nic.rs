//! ncwnd: the window towards the receiving NIC, by the level of its buffers.
//!
//! Source: specification 10.3.4 (gen 1: whole packets, and one more a round trip). Below the target level the window
//! grows by one packet a round trip, or at once when the last change was a decrease; at or above it, once a round trip,
//! `ncwnd *= max(1 - nic_md (level - target) / level, 1 - max_nic_md)`, rounded down. A NACK for want of resources cuts
//! by `max_nic_md`, once a round trip or right after an increase.
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
const DECREASE_MAX_LOG2: u16 = 1;
const NCWND_MIN: u16 = 1;

/// The window and when it last changed.
#[derive(Clone, Copy, Default)]
pub(super) struct NicWindow {
    pub(super) packets: u16,
    /// When it changed or could not change, or a round trip ago.
    pub(super) marker: Ticks,
    /// The last change was an increase.
    pub(super) grew: bool,
}

impl NicWindow {
    /// The receiver's buffers stand at `level`; `is_open` says that the marker is a round trip old.
    #[inline(always)]
    pub(super) fn on_level(&mut self, level: u32, target: u32, now: Ticks, is_open: bool, srtt: Ticks, largest: u16) {
        let before = self.packets;
        let end = select_unpredictable(level < target, largest, NCWND_MIN);
        if level < target {
            let grows = !self.grew | is_open;
            self.packets = select_unpredictable(grows, (before + 1).min(largest), before);
            self.grew = true;
        } else if is_open {
            let whole = level * 10;
            let left = u32::from(before) * (whole - DECREASE_TENTHS * (level - target)) / whole.max(1);
            self.packets = (left as u16).max(before - (before >> DECREASE_MAX_LOG2)).max(NCWND_MIN);
            self.grew = false;
        }
        self.settle(before, now, srtt, end);
    }

    /// The receiver had no resources for a packet.
    #[inline(always)]
    pub(super) fn on_refusal(&mut self, now: Ticks, is_open: bool, srtt: Ticks) {
        let before = self.packets;
        if self.grew || is_open {
            self.packets = (before - (before >> DECREASE_MAX_LOG2)).max(NCWND_MIN);
            self.grew = false;
        }
        self.settle(before, now, srtt, NCWND_MIN);
    }

    #[inline(always)]
    fn settle(&mut self, before: u16, now: Ticks, srtt: Ticks, end: u16) {
        timers::settle(&mut self.marker, now, srtt, (self.packets != before) | (self.packets == end));
    }
}
