//! `my-transport`: two functions that decide when segments are retransmitted, and how many may be in flight.
//!
//! The program to start from: TCP Reno's window (RFC 5681), with one repaired segment a round trip. `incoming` is
//! called for each packet from the receiver, `periodic` when the timer has expired. The NIC has the rest: it keeps
//! the window and its bitmaps, sends what is marked, then new segments, and runs the timer.
//!
//! Values are numbers of a width, `U<N>`, that wrap as wires do: `u(3)` is a literal, `x.to::<9>()` another width.
//! Both operands of an operation have the same width: `(i.next - i.start).to::<8>() + s.cwnd`. Ids of segments and
//! times have 24 bits, and wrap too: compare them with `after`, `at_least`, `at_most`, `==` and `!=`, never with
//! `<`, `<=`, `>` and `>=`, which the compiler accepts and which are wrong after the wrap. A shift divides:
//! `x >> 2` is a quarter of `x`. Loops, references and floating point cannot become gates; the compiler refuses
//! them at their line.
//!
//! | in `incoming` | bits | meaning |
//! |---|---|---|
//! | `i.ack` | flag | carries a cumulative acknowledgement, `i.cum` |
//! | `i.nack` | flag | reports that `i.cum` is missing and a later segment has arrived |
//! | `i.cnp` | flag | is a notification of congestion marks; with the parameter `cnp_interval` only |
//! | `i.trimmed` | flag | reports that `i.sack` has arrived without its payload |
//! | `i.sacked`, `i.sack_new` | flag | reports that `i.sack` has arrived out of order; and that this is new |
//! | `i.cum`, `i.sack` | 24 | the next segment that the receiver expects; the segment of a report |
//! | `i.start`, `i.old_start` | 24 | the first segment that is not acknowledged, after and before the packet |
//! | `i.next` | 24 | the next segment that has never been sent |
//! | `i.total_sent` | 24 | number of segments sent, repeats included |
//! | `i.now` | 24 | the time, in ticks of 160 ns |
//! | `i.newly` | 9 | number of segments that the packet acknowledges for the first time |
//! | `i.times_sent` | 2 | how often the segment had been sent, as the receiver has seen |
//! | `i.acked`, `i.marked` | map | acknowledged segments, and those to be retransmitted, from `i.start` on |
//!
//! `periodic` has `v.expired`, `v.start`, `v.next`, `v.total_sent`, `v.now`, `v.acked` and `v.marked`. Both set
//! `a.mark` with `a.from` and `a.to` (retransmits the segments from the one up to the other, without that),
//! `a.window` (9 bits, 1 to 256), `a.rate` (23 bits), `a.timer` (24 bits, ticks) and `a.restart` (starts the timer
//! again). Window, rate and timer keep their values unless they are set.

use rnic_program::prelude::*;

rnic_program::transport! {
    /// halves its window for a loss, and repairs one segment a round trip (after RFC 5681)
    program Program("my-transport") {
        // A flow sends as its window permits; `rate` and `token` (grants of the receiver) are the other schemes.
        scheme: window,
        // Window, rate and timer of a new flow. A rate of 0 is that of the link.
        start: { window: first_window, rate: 0, timer: rto },
    }
    // The NIC stores this for a flow: `name: bits = initial value`; a flag has one bit.
    state State {
        /// Window, in segments.
        cwnd: 8 = first_window,
        /// Window from which on it grows by one segment a round trip.
        ssthresh: 8 = 255,
        /// Acknowledgements since the window last grew, from the threshold on.
        acks: 8,
        /// Duplicate acknowledgements in a row.
        dup_acks: 8,
        /// First segment that had not been sent when the last loss was detected.
        recover: 24,
        /// Segments before that one are being repaired.
        recovering: flag,
    }
    // Options of plans and of `--set`, constant for a flow: `name: bits = default [least..=largest]`.
    parameters Parameters {
        /// duplicate acknowledgements that indicate a loss
        dup_threshold: 8 = 3 [1..=255],
        /// segments of the first window
        first_window: 8 = 10 [1..=128],
        /// time without progress after which the first segment is retransmitted; doubled at each expiry
        rto: 24 = 320 us,
        /// longest timeout
        rto_max: 24 = 1000 ms,
    }
}

/// A packet from the receiver. `i.start`, the first segment that is not acknowledged, was `i.old_start` before it, and
/// `i.next` is the first that has not been sent. `a` sets what to retransmit, the window and the timer.
#[program]
pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
    if i.start != i.old_start {
        s.dup_acks = u(0);
        a.restart = true;
        a.timer = p.rto;
        if s.recovering && s.recover.after(i.start) {
            // The repaired segment has arrived, and the next one is missing too.
            a.mark = true;
            a.from = i.start;
            a.to = i.start + 1;
        } else {
            s.recovering = false;
        }
        grow(&mut s.cwnd, s.ssthresh, &mut s.acks);
    } else if i.ack && i.next != i.start {
        s.dup_acks = s.dup_acks.saturating_add(1);
        if s.dup_acks == p.dup_threshold && !s.recovering {
            s.ssthresh = half(i.start, i.next);
            s.cwnd = s.ssthresh;
            s.recover = i.next;
            s.recovering = true;
            a.mark = true;
            a.from = i.start;
            a.to = i.start + 1;
        }
    }
    a.window = s.cwnd.to::<9>();
}

/// A visit of the flow: the timer has expired, or, in programs with deadlines (`due time`), one of them has passed.
#[program]
pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
    if v.expired {
        s.ssthresh = half(v.start, v.next);
        s.cwnd = u(1);
        s.acks = u(0);
        s.dup_acks = u(0);
        s.recover = v.next;
        s.recovering = v.next != v.start;
        a.mark = v.next != v.start;
        a.from = v.start;
        a.to = v.start + 1;
        a.window = u(1);
        a.timer = a.timer.saturating_add(a.timer).min(p.rto_max);
    }
}

/// Lets the window grow for an acknowledgement: by a segment below the threshold, else by one for each window of
/// acknowledgements.
#[program]
fn grow(cwnd: &mut U<8>, ssthresh: U<8>, acks: &mut U<8>) {
    if *cwnd < ssthresh {
        *cwnd = (*cwnd).saturating_add(1);
    } else {
        *acks = (*acks).saturating_add(1);
        if *acks >= *cwnd {
            *acks = u(0);
            *cwnd = (*cwnd).saturating_add(1);
        }
    }
}

/// Returns half of what is in flight, at least two segments.
#[program]
fn half(start: Id, next: Id) -> U<8> {
    let flight = (next - start).to::<9>();
    (flight >> 1).max(2).to::<8>()
}
