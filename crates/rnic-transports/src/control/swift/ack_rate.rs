//! How often to ask for acknowledgements (the AR bit).
//!
//! Source: specification 9.1.3.1, and the public simulator's rule: every packet while the smaller
//! window is two packets or less, since then each one is needed to go on; else about one in 8.5 (code 4).

use rnic_policy::control::report::AckRate;

use super::unit::WINDOW_ONE;

/// Up to so many packets of window every packet asks.
const SMALL_WINDOW: u32 = 2;
/// One in 8.5.
const SELDOM: u32 = 4;

/// The rate for a connection with these windows.
#[inline(always)]
pub(super) fn choose(fcwnd: u32, ncwnd: u32) -> AckRate {
    let is_small = fcwnd <= SMALL_WINDOW * WINDOW_ONE || ncwnd <= SMALL_WINDOW;
    AckRate::code(if is_small { 0 } else { SELDOM })
}

/// The rate for a connection with both windows of so many packets.
pub(in crate::control) fn of_packets(packets: u32) -> AckRate {
    choose(packets.saturating_mul(WINDOW_ONE), packets)
}
