//! The rate at which acknowledgements are requested (the AR bit).
//!
//! Source: specification 9.1.3.1, and the public simulator's rule: every packet while the smaller window is two
//! packets or less, because then each acknowledgement is needed to send further packets; else about one in 8.5 (code
//! 4).

use rnic_policy::control::report::AckRate;

use super::unit::WINDOW_ONE;

/// Largest window, in packets, at which every packet requests an acknowledgement.
const SMALL_WINDOW: u32 = 2;
/// Code for one acknowledgement in 8.5 packets.
const RATE_INFREQUENT: u32 = 4;

/// Returns the rate for a connection with these windows.
#[inline(always)]
pub(super) fn choose(fcwnd: u32, ncwnd: u32) -> AckRate {
    let is_small = fcwnd <= SMALL_WINDOW * WINDOW_ONE || ncwnd <= SMALL_WINDOW;
    AckRate::code(if is_small { 0 } else { RATE_INFREQUENT })
}

/// Returns the rate for a connection with both windows of `packets` packets.
pub(in crate::control) fn of_packets(packets: u32) -> AckRate {
    choose(packets.saturating_mul(WINDOW_ONE), packets)
}
