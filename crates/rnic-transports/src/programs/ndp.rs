//! `ndp`: the receiver decides when segments leave.
//!
//! Source: NDP, "Re-architecting datacenter networks and stacks for low latency and high performance" (SIGCOMM'17), and
//! Tonic (NSDI'20) section 6.1.1. A segment whose payload a switch has cut is reported by a NACK, and repeated when the
//! receiver pulls. Pulls and the first window are the credit engine's, so this program has no state.
//!
//! A timeout marks everything outstanding that has not been acknowledged, with credit of its own: the pulls for it may
//! have been lost too.

use rnic_program::prelude::*;

rnic_program::transport! {
    /// retransmits packets that switches have trimmed, paced by the receiver's pulls (NDP)
    program Ndp("ndp") {
        scheme: token,
        start: { window: window, rate: 0, timer: rto },
    }
    state State {}
    parameters Parameters {
        /// segments from the first unacknowledged one on that may be outstanding
        window: 9 = 128 [1..=256],
        /// time without progress after which everything outstanding is repeated
        rto: 24 = 320 us,
    }
}

#[program]
pub(super) fn incoming(i: &Incoming, _p: &Parameters, _s: &mut State, a: &mut Actions) {
    a.mark = i.trimmed;
    a.from = i.sack;
    a.to = i.sack + 1;
    a.restart = i.start != i.old_start;
}

#[program]
pub(super) fn periodic(v: &Periodic, _p: &Parameters, _s: &mut State, a: &mut Actions) {
    a.mark = v.expired && v.next != v.start;
    a.from = v.start;
    a.to = v.next;
}
