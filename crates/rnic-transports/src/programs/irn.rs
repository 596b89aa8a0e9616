//! `irn`: selective recovery under a static cap, with two timeouts.
//!
//! Source: IRN (SIGCOMM'18) sections 3.1 (recovery), 3.2 (cap), 4.1 (timeouts). Its decisions are those of the
//! hand-written [`crate::recovery::irn`], which explains the choices; a test compares both. Positions are kept as
//! distances from the first unacknowledged segment: comparisons of 9 bits are shorter than serial ones of 24.

use rnic_program::prelude::*;

rnic_program::transport! {
    /// selective recovery, a cap of one bandwidth-delay product, two timeouts (IRN)
    program Irn("irn") {
        scheme: rate,
        start: { window: cap, rate: 0, timer: rto_low },
    }
    state State {
        /// Distance to the end of recovery: the first segment that had not been sent when one was last repeated. Zero
        /// outside of recovery.
        recovery: 9,
        /// Distance up to which gaps have been marked in this recovery.
        retransmitted: 9,
        /// Distance below which segments count as lost once everything before them is acknowledged.
        presumed_lost: 9,
        /// Distance of the highest segment that has arrived; zero without one.
        highest: 9,
        /// The timer has been extended since it was last started.
        extended: flag,
    }
    parameters Parameters {
        /// maximum number of segments in flight: one bandwidth-delay product (section 3.2)
        cap: 9 = 110 [1..=256],
        /// timeout when few segments are in flight (section 4.1)
        rto_low: 24 = 100 us,
        /// timeout otherwise (section 4.1)
        rto_high: 24 = 320 us,
        /// N: rto_low holds with fewer segments in flight than this
        rto_low_packets: 8 = 3 [0..=255],
    }
}

/// Marks the gaps that have not been marked in this recovery: the segment at `start`, and those missing below the
/// highest segment that has arrived.
#[program]
fn mark_holes(start: Id, next: Id, acked: Map, s: &mut State, a: &mut Actions) {
    let hole = acked.first_zero(s.retransmitted);
    let end = s.highest.max(1);
    if end > hole {
        a.mark = true;
        s.retransmitted = end;
        s.recovery = (next - start).to::<9>();
    }
    a.from = start + hole.to::<24>();
    a.to = start + end.to::<24>();
}

#[program]
pub(super) fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
    let moved = i.start != i.old_start;
    let advance = (i.start - i.old_start).to::<9>();
    s.recovery = s.recovery.saturating_sub(advance);
    s.retransmitted = s.retransmitted.saturating_sub(advance);
    s.presumed_lost = s.presumed_lost.saturating_sub(advance);
    s.highest = s.highest.saturating_sub(advance);
    if i.sacked && i.sack_new && i.sack.at_least(i.start) {
        s.highest = s.highest.max((i.sack - i.start).to::<9>());
    }
    if moved {
        a.restart = true;
        a.timer = p.rto_low;
        s.extended = false;
    }
    let enters = i.nack && s.recovery == 0 && i.start != i.next;
    if enters {
        s.retransmitted = u(0);
        s.presumed_lost = u(0);
    }
    let continues = s.recovery != 0 && (i.nack || (moved && (s.highest != 0 || s.presumed_lost != 0)));
    if enters || continues {
        mark_holes(i.start, i.next, i.acked, s, a);
    }
}

#[program]
pub(super) fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
    if v.expired && v.next != v.start {
        let many = (v.next - v.start) >= p.rto_low_packets.to::<24>();
        if many && !s.extended && p.rto_high > p.rto_low {
            s.extended = true;
            a.timer = p.rto_high - p.rto_low;
        } else {
            s.extended = false;
            s.retransmitted = u(0);
            s.presumed_lost = (v.next - v.start).to::<9>();
            a.timer = p.rto_low;
            mark_holes(v.start, v.next, v.acked, s, a);
        }
    }
}
