//! `new-reno`: fast recovery that stays until everything is acknowledged that was outstanding at its beginning.
//!
//! Source: RFC 6582, in segments. The variant is the impatient one: only the first partial acknowledgement restarts the
//! timer (section 3.2, step 3). A full acknowledgement sets the window by the first of the RFC's two rules.
//!
//! Choices: those of [`super::reno`]. `recover` is the first segment that had not been sent, one more than the RFC's.

use rnic_program::prelude::*;

use super::tcp::{grow, half, resend};

rnic_program::transport! {
    /// fast recovery with partial acknowledgements (RFC 6582)
    program NewReno("new-reno") {
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
        /// First segment that had not been sent when recovery began, or at the last timeout.
        recover: 24,
        /// True during fast recovery.
        recovering: flag,
        /// A partial acknowledgement has been received in this recovery.
        partial: flag,
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
        a.restart = true;
        a.timer = p.rto_min;
        if s.recovering && s.recover.after(i.start) {
            a.mark = true;
            a.from = i.start;
            a.to = i.start + 1;
            a.restart = !s.partial;
            s.partial = true;
            s.cwnd = s.cwnd.saturating_sub((i.start - i.old_start).to::<8>()).saturating_add(1);
        } else if s.recovering {
            let flight = (i.next - i.start).to::<9>().max(1) + 1;
            s.cwnd = flight.min(s.ssthresh.to::<9>()).to::<8>();
            s.recovering = false;
        } else {
            grow(&mut s.cwnd, s.ssthresh, &mut s.acks);
            if s.timed_out {
                resend(old_end, i.start, s.cwnd, s.recover, a);
                s.timed_out = s.recover.after(i.start);
            }
        }
    } else if i.ack && i.cum == i.start && i.next != i.start {
        s.dup_acks = s.dup_acks.saturating_add(1);
        if s.recovering {
            s.cwnd = s.cwnd.saturating_add(1);
        } else if s.dup_acks == p.dup_threshold && !s.timed_out {
            s.ssthresh = half(i.start, i.next);
            s.cwnd = s.ssthresh.saturating_add(p.dup_threshold);
            s.recover = i.next;
            s.recovering = true;
            s.partial = false;
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
        s.recover = v.next;
        a.mark = v.next != v.start;
        a.from = v.start;
        a.to = v.start + 1;
        a.window = u(1);
        a.timer = a.timer.saturating_add(a.timer).min(p.rto_max);
    }
}
