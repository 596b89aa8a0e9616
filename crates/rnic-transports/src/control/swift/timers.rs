//! The gate that allows one change per round trip, and the gap between packets. Timeouts are in
//! [`timeouts`](crate::control::timeouts).
//!
//! Source: specification 10.3.4 and 10.3.5; paper, section 4.2.

use core::hint::select_unpredictable;

use rnic_policy::control::report::{Gap, Ticks};

use super::unit::WINDOW_ONE;

/// Returns `true` if a round trip has passed since `marker`, or if none has been measured yet.
#[inline(always)]
pub(super) fn is_gate_open(now: Ticks, marker: Ticks, srtt: Ticks) -> bool {
    (srtt == Ticks::ZERO) | (now.since(marker) >= srtt)
}

/// Sets `marker` to `now` if the window has changed; otherwise limits its age to one round trip, so that the 24-bit
/// time does not wrap unnoticed while acknowledgements arrive.
#[inline(always)]
pub(super) fn settle(marker: &mut Ticks, now: Ticks, srtt: Ticks, changed: bool) {
    let old = select_unpredictable(now.since(*marker) > srtt, now.since(srtt), *marker);
    *marker = select_unpredictable(changed, now, old);
}

/// Returns the gap after a packet while the window is below one packet: rtt/fcwnd - rtt.
#[inline(always)]
pub(super) fn gap(fcwnd: u32, srtt: Ticks) -> Gap {
    if fcwnd >= WINDOW_ONE {
        return Gap::NONE;
    }
    let fcwnd = u64::from(fcwnd.max(1));
    Gap::of_ticks((u64::from(srtt.get()) * (u64::from(WINDOW_ONE) - fcwnd)).div_ceil(fcwnd))
}
