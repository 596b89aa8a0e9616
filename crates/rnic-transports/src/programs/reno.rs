//! `reno`: fast retransmit and fast recovery.
//!
//! Source: RFC 5681 section 3.2, in segments. One segment is repaired by fast retransmit; a second loss in a window
//! usually waits for a timeout. After a timeout, segments are repeated in slow start, as the window allows.
//!
//! Choices: the timeout is a parameter that doubles at each expiry (RFC 6298 section 5.5), since programs have no times
//! of packets; a duplicate acknowledgement is one that leaves the window where it is while segments are outstanding.

use rnic_program::prelude::*;

use super::tcp::{grow, half, resend};

rnic_program::transport! {
    /// fast retransmit and fast recovery (RFC 5681)
    program Reno("reno") {
        scheme: window,
        start: { window: first_window, rate: 0, timer: rto_min },
    }
    state State {
        /// Congestion window.
        cwnd: 8 = first_window,
        /// Window from which on it grows slowly.
        ssthresh: 8 = 255,
        /// Duplicate acknowledgements in a row.
        dup_acks: 8,
        /// Acknowledgements since the window last grew in congestion avoidance.
        acks: 8,
        /// First segment that had not been sent at the last timeout.
        resend_end: 24,
        /// True during fast recovery.
        recovering: flag,
        /// True while retransmitting what was in flight at a timeout.
        timed_out: flag,
    }
    parameters Parameters {
        /// duplicate acknowledgements that indicate a loss (RFC 5681)
        dup_threshold: 8 = 3 [1..=255],
        /// segments of the first window (RFC 6928)
        first_window: 8 = 10 [1..=128],
        /// first timeout, doubled at each expiry
        rto_min: 24 = 320 us,
        /// maximum timeout
        rto_max: 24 = 1000 ms,
    }
}

#[program]
pub(super) fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
    let old_end = i.old_start + s.cwnd.to::<24>();
    if i.start != i.old_start {
        s.dup_acks = u(0);
        if s.recovering {
            s.cwnd = s.ssthresh;
            s.recovering = false;
        } else {
            grow(&mut s.cwnd, s.ssthresh, &mut s.acks);
        }
        if s.timed_out {
            resend(old_end, i.start, s.cwnd, s.resend_end, a);
            s.timed_out = s.resend_end.after(i.start);
        }
        a.restart = true;
        a.timer = p.rto_min;
    } else if i.ack && i.cum == i.start && i.next != i.start {
        s.dup_acks = s.dup_acks.saturating_add(1);
        if s.recovering {
            s.cwnd = s.cwnd.saturating_add(1);
        } else if s.dup_acks == p.dup_threshold && !s.timed_out {
            s.ssthresh = half(i.start, i.next);
            s.cwnd = s.ssthresh.saturating_add(p.dup_threshold);
            s.recovering = true;
            a.mark = true;
            a.from = i.start;
            a.to = i.start + 1;
        }
    }
    a.window = s.cwnd.to::<9>();
}

#[program]
pub(super) fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
    if v.expired {
        s.ssthresh = half(v.start, v.next);
        s.cwnd = u(1);
        s.dup_acks = u(0);
        s.acks = u(0);
        s.recovering = false;
        s.timed_out = true;
        s.resend_end = v.next;
        a.mark = v.next != v.start;
        a.from = v.start;
        a.to = v.start + 1;
        a.window = u(1);
        a.timer = a.timer.saturating_add(a.timer).min(p.rto_max);
    }
}
