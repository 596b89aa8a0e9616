//! Functions that the three TCP programs share.

use rnic_program::prelude::*;

/// Increases a window for an acknowledgement: by one below the threshold, otherwise by one per window of
/// acknowledgements (RFC 5681 section 3.1). `acks` counts these.
#[program]
pub(super) fn grow(cwnd: &mut U<8>, ssthresh: U<8>, acks: &mut U<8>) {
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

/// Returns the threshold after a loss: half of the segments in flight, at least two (RFC 5681, equation 4).
#[program]
pub(super) fn half(start: Id, next: Id) -> U<8> {
    let flight = (next - start).to::<9>();
    (flight >> 1).max(2).to::<8>()
}

/// Marks the segments that the window of a slow start after a timeout reaches: from the end of the window before the
/// acknowledgement to its end now, without those that were sent after the timeout, from `end` on.
#[program]
pub(super) fn resend(old_end: Id, start: Id, cwnd: U<8>, end: Id, a: &mut Actions) {
    let from = if old_end.after(start) { old_end } else { start };
    let reach = start + cwnd.to::<24>();
    a.from = from;
    a.to = if reach.after(end) { end } else { reach };
    a.mark = a.to.after(from);
}
