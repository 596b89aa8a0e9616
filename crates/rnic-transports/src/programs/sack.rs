//! `sack`: loss recovery by selective acknowledgements.
//!
//! Source: RFC 6675, with one block an acknowledgement. A segment is lost when three above it have arrived (`IsLost`).
//! Gaps are marked one an acknowledgement, the lowest first; `above` counts the segments that have arrived from the end
//! of the last one on. Segments that have arrived are not in flight: the window grows by them (`pipe`).
//!
//! Choices: those of [`super::reno`]; no rescue retransmission; a repeat that is lost waits for the timeout.

use rnic_program::prelude::*;

use super::tcp::{grow, half, resend};

rnic_program::transport! {
    /// loss recovery by selective acknowledgements (RFC 6675)
    program Sack("sack") {
        scheme: window,
        start: { window: first_window, rate: 0, timer: rto_min },
    }
    state State {
        /// Congestion window.
        cwnd: 8 = first_window,
        /// Window from which on it grows slowly.
        ssthresh: 8 = 255,
        /// Acknowledgements since the window last grew in congestion avoidance.
        acks: 8,
        /// First segment that had not been sent when recovery began, or at the last timeout.
        recover: 24,
        /// End of the last gap that has been marked, as a distance from the first unacknowledged segment; or zero.
        marked: 9,
        /// Segments that have arrived from there on.
        above: 9,
        /// True during recovery.
        recovering: flag,
        /// True while retransmitting what was in flight at a timeout.
        timed_out: flag,
    }
    parameters Parameters {
        /// segments above a gap that indicate a loss (RFC 6675)
        dup_threshold: 8 = 3 [1..=127],
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
    let moved = i.start != i.old_start;
    if moved {
        a.restart = true;
        a.timer = p.rto_min;
        let ended = !s.recover.after(i.start);
        if s.recovering {
            s.recovering = !ended;
        } else {
            grow(&mut s.cwnd, s.ssthresh, &mut s.acks);
            if s.timed_out {
                resend(old_end, i.start, s.cwnd, s.recover, a);
                s.timed_out = !ended;
            }
        }
    }
    let arrived = i.acked.count();
    let offset = s.marked.saturating_sub((i.start - i.old_start).to::<9>());
    s.marked = offset;
    if offset == 0 {
        s.above = arrived;
    } else if i.sacked && i.sack_new && (i.sack - i.start).to::<9>() >= offset {
        s.above += 1;
    }
    let gap = i.acked.first_zero(offset);
    let gap_end = i.acked.first_one(gap);
    let above = s.above.saturating_sub(gap - offset);
    a.window = (s.cwnd.to::<9>() + arrived).min(256);
    if above >= p.dup_threshold.to::<9>() && !s.timed_out {
        if !s.recovering {
            s.ssthresh = half(i.start, i.next);
            s.cwnd = s.ssthresh;
            s.recover = i.next;
            s.recovering = true;
            a.window = (s.cwnd.to::<9>() + arrived).min(256);
        }
        a.mark = true;
        a.from = i.start + gap.to::<24>();
        a.to = i.start + gap_end.to::<24>();
        s.marked = gap_end;
        s.above = above;
    }
}

#[program]
pub(super) fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
    if v.expired {
        s.ssthresh = half(v.start, v.next);
        s.cwnd = u(1);
        s.acks = u(0);
        s.marked = u(0);
        s.above = u(0);
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
