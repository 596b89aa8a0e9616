//! `aimd`: a window that grows by a packet a round trip and is halved by a loss.
//!
//! Source: IRN (SIGCOMM'18) section 4.4.4, as the hand-written [`crate::control::aimd`].
//!
//! Deviations from it: the window grows by a whole packet when that many packets have been acknowledged, not by a
//! part of one with each, so no division is needed.

use rnic_program::prelude::*;

rnic_program::law! {
    /// window: a packet more per round trip, half on loss (IRN 4.4.4), as a law
    law Aimd("aimd") for control
    state State {
        /// Window in 1/256 packets; zero for none.
        window: 24,
        /// Packets acknowledged since it grew.
        acked: 16,
        /// Packets that must be acknowledged before another loss counts.
        settling: 16,
    }
    parameters Parameters {
        /// packets in the first window; 0 for none: line rate until the first sign of congestion
        initial_window: 14 = 0 [0..=8192],
    }
}

/// The controller.
#[program]
pub fn decide(e: &ControlInput, p: &Parameters, s: &mut State, a: &mut ControlOutput) {
    if e.started {
        s.window = p.initial_window.to::<24>() << 8;
    }
    if e.acked {
        let limits = s.window != 0 && (e.in_flight.saturating_add(e.packets)) >= (s.window >> 8).to::<16>();
        if s.settling == 0 && limits {
            s.acked = s.acked.saturating_add(e.packets);
            if s.acked >= (s.window >> 8).to::<16>() {
                s.acked -= (s.window >> 8).to::<16>();
                s.window = s.window.saturating_add(u(256)).min(u(2_097_152));
            }
        }
        s.settling = s.settling.saturating_sub(e.packets);
    }
    if (e.lost || e.timed_out) && s.settling == 0 {
        let window = if s.window == 0 { e.in_flight.min(u(8192)).to::<24>() << 8 } else { s.window };
        s.window = (window >> 1).max(u(256));
        s.acked = u(0);
        s.settling = e.in_flight;
    }
    a.window = s.window;
}
