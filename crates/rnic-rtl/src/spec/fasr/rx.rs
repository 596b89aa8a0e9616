//! The receiver: what a data packet changes, and the acknowledgement for it.

use super::{BLOCK_BITS, Context, Lane, Lost, REACH, Record, Say, Then, distance, is_after, place, plus};

/// Decision for a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The context afterwards.
    pub context: Context,
    /// The receiver's bitmap afterwards.
    pub lane: Lane,
    /// The acknowledgement. With [`Then::Walk`] it is sent after the walk.
    pub say: Say,
    /// Set if the packet's payload is written to memory.
    pub placed: bool,
    /// The count for the acknowledgement.
    pub lost: Lost,
    /// Access to the blocks, if any.
    pub record: Option<Record>,
    /// Steps on the blocks that follow.
    pub then: Then,
}

/// Decides on packet `psn`. `can_open` is set if the queue pair holds a unit or one is free, `free` is the number of
/// free blocks.
pub fn decide(psn: u32, context: Context, lane: Lane, can_open: bool, free: u8) -> Decision {
    let same =
        Decision { context, lane, say: Say::Ack, placed: false, lost: lane.lost, record: None, then: Then::Nothing };
    let rcv_nxt = context.rcv_nxt;
    if psn == rcv_nxt {
        return next_in_order(same);
    }
    if is_after(rcv_nxt, psn) {
        return same;
    }
    if distance(rcv_nxt, psn) >= REACH {
        return Decision { say: Say::Nak, ..same };
    }
    if lane.open && !is_after(psn, lane.high) {
        // On the fast path everything up to sack-high was received.
        let is_between = lane.slow && psn != lane.high;
        return Decision { say: if is_between { Say::Fnack } else { Say::Ack }, ..same };
    }
    let opened = if lane.open { lane } else { Lane::opened(rcv_nxt) };
    let missed = distance(opened.high, psn) - u32::from(lane.open);
    let lost = opened.lost.with(missed);
    let is_fast = !opened.slow && lost.is_one();
    let at = place(&opened, rcv_nxt, psn);
    let is_refused = context.refuses_to.is_some() || lane.fallen;
    let fits = (lane.open || can_open) && (is_fast || at.needed <= free);
    if is_refused || !fits {
        return refuse(same, psn, is_refused);
    }
    let mut kept = Lane { lost, high: psn, ..opened };
    let (mut record, mut then) = (None, Then::Nothing);
    if is_fast {
        kept.run = distance(rcv_nxt, psn) as u16;
    } else {
        (kept.slow, kept.run) = (true, at.run);
        if !opened.slow {
            (kept.base, kept.last) = (at.first_base, at.first_base);
        } else if at.needed > 0 {
            kept.last = plus(kept.last, BLOCK_BITS);
        }
        record = Some(Record { needed: at.needed, bit: at.bit, first: at.first });
        if at.needed > 1 {
            then = Then::Append;
        }
    }
    Decision { lane: kept, say: Say::Sack, placed: true, lost, record, then, ..same }
}

fn next_in_order(same: Decision) -> Decision {
    let Decision { mut context, mut lane, .. } = same;
    context.gap_at = None;
    if !lane.open {
        context.rcv_nxt = plus(context.rcv_nxt, 1);
        context.refuses_to = context.refuses_to.filter(|end| *end != context.rcv_nxt);
        return Decision { context, placed: true, ..same };
    }
    if !lane.lost.overflow {
        lane.lost.count = lane.lost.count.saturating_sub(1);
    }
    let mut then = Then::Walk;
    if !lane.slow {
        context.rcv_nxt = plus(lane.high, 1);
        (lane, then) = (Lane::default(), Then::Nothing);
    }
    Decision { context, lane, say: Say::Aack, placed: true, lost: lane.lost, then, ..same }
}

/// Drops `psn`, which is not recorded. A gap is reported once, and again when packets arrive that are not higher than
/// the last one seen.
fn refuse(same: Decision, psn: u32, is_refused: bool) -> Decision {
    let Decision { mut context, mut lane, .. } = same;
    let is_new_gap = context.gap_at.is_none_or(|seen| !is_after(psn, seen));
    context.gap_at = Some(psn);
    if !is_refused && lane.open {
        lane.fallen = true;
    } else if !is_refused {
        context.refuses_to = Some(plus(psn, 1));
    }
    Decision { context, lane, say: if is_new_gap { Say::Nak } else { Say::Nothing }, ..same }
}
