//! The sender: what an acknowledgement or timeout changes, and the packets to retransmit.

use super::{BLOCK_BITS, Context, Event, Kind, Lane, PSNS, Record, Then, distance, is_after, place, plus};

/// Decision on an acknowledgement or timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The context afterwards.
    pub context: Context,
    /// The sender's bitmap afterwards.
    pub lane: Lane,
    /// Set if UNACK has advanced.
    pub advanced: bool,
    /// Set if no packet is in flight any more.
    pub is_empty: bool,
    /// Packets to retransmit: from the first up to the second.
    pub retransmit: Option<(u32, u32)>,
    /// Access to the blocks, if any.
    pub record: Option<Record>,
    /// Steps on the blocks that follow.
    pub then: Then,
}

/// Decides on `event`, an acknowledgement or a timeout. `next` is the next packet to be sent for the first time; the
/// other arguments are those of [`super::rx::decide`].
pub fn decide(event: &Event, next: u32, context: Context, lane: Lane, can_open: bool, free: u8) -> Decision {
    let before = context.una;
    let is_timeout = event.kind == Kind::Timeout;
    let is_invalid = is_after(before, event.cumulative) || is_after(event.cumulative, next);
    let una = if is_timeout || is_invalid { before } else { event.cumulative };
    let (advanced, is_empty) = (una != before, una == next);
    let mut same = Decision { context, lane, advanced, is_empty, retransmit: None, record: None, then: Then::Nothing };
    if !is_timeout && is_invalid {
        return same;
    }
    same.context.una = una;
    if advanced {
        let passes_high = lane.open && is_after(una, lane.high);
        if context.recovering {
            same.context.acted = false;
            if !lane.open || passes_high || is_empty {
                (same.context.recovering, same.context.lost) = (false, Default::default());
            }
        }
        let moved = u16::try_from(distance(before, una)).unwrap_or(u16::MAX);
        let run = if lane.open && !passes_high { lane.run.saturating_sub(moved) } else { 0 };
        if lane.slow && (passes_high || !is_after(plus(lane.base, BLOCK_BITS), una)) {
            let trimmed = if passes_high { Lane { open: false, ..lane } } else { Lane { run, ..lane } };
            return Decision { lane: trimmed, then: Then::Trim, ..same };
        }
        same.lane = if passes_high || !lane.open { Lane::default() } else { Lane { run, ..lane } };
    } else if !lane.open {
        same.lane = Lane::default();
    }
    if is_empty {
        return same;
    }
    match event.kind {
        Kind::Sack if is_after(event.psn, una) && is_after(next, event.psn) => {
            on_sack(event, next, same, can_open, free)
        }
        Kind::Aack if same.context.recovering => {
            same.context.lost = event.lost;
            same
        }
        Kind::Fnack | Kind::Nak | Kind::Timeout => go_back(event, next, same),
        _ => same,
    }
}

/// Records the arrival of the reported packet (the engine's `note_selective`), and decides what to retransmit.
fn on_sack(event: &Event, next: u32, same: Decision, can_open: bool, free: u8) -> Decision {
    let Decision { mut context, mut lane, .. } = same;
    let una = context.una;
    if !lane.open && !can_open {
        return go_back(&Event { kind: Kind::Nak, ..*event }, next, same);
    }
    if !lane.open {
        lane = Lane::opened(una);
    }
    let (old, psn) = (lane, event.psn);
    let (mut record, mut then) = (None, Then::Nothing);
    if !is_after(psn, old.high) {
        let from_last = distance(old.last, psn);
        let follows_run = distance(plus(una, 1 + u32::from(old.run)), psn) < PSNS / 2;
        let is_in_list = !(BLOCK_BITS..PSNS / 2).contains(&from_last);
        if !event.lost.is_one() && old.slow && follows_run && is_in_list {
            if from_last < BLOCK_BITS {
                record = Some(Record { bit: 1 << from_last, ..Record::default() });
            } else {
                then = Then::Seek;
            }
        }
    } else {
        lane.high = psn;
        let at = place(&old, una, psn);
        if event.lost.is_one() {
            (lane.run, lane.slow) = ((distance(una, psn) % 1_024) as u16, false);
            then = if old.slow { Then::Release } else { Then::Nothing };
        } else if at.needed <= free {
            record = Some(Record { needed: at.needed, bit: at.bit, first: at.first });
            (lane.run, lane.slow) = (at.run, true);
            if !old.slow {
                (lane.base, lane.last) = (at.first_base, at.first_base);
            } else if at.needed > 0 {
                lane.last = plus(lane.last, BLOCK_BITS);
            }
            then = if at.needed > 1 { Then::Append } else { Then::Nothing };
        }
    }
    let mut retransmit = None;
    if !context.recovering {
        // The first SACK of a recovery: everything before it, whatever the count.
        retransmit = Some((una, psn));
    } else if is_after(psn, old.high) {
        let from = plus(old.high, 1);
        let has_lost_more = event.lost.overflow || event.lost.count > context.lost.count;
        retransmit = Some((from, psn)).filter(|_| psn != from && has_lost_more);
    }
    if !context.recovering || is_after(psn, old.high) {
        (context.recovering, context.lost) = (true, event.lost);
    }
    Decision { context, lane, retransmit, record, then, ..same }
}

/// Handles an FNACK, a NAK or a timeout.
fn go_back(event: &Event, next: u32, same: Decision) -> Decision {
    let Decision { mut context, lane, .. } = same;
    let una = context.una;
    if event.kind == Kind::Fnack {
        context.lost = event.lost;
    }
    if event.kind != Kind::Timeout && context.acted {
        return Decision { context, ..same };
    }
    (context.recovering, context.acted) = (true, true);
    let is_all = event.kind == Kind::Nak || (event.kind == Kind::Timeout && context.lost.is_none());
    let end = if is_all {
        next
    } else if context.lost.is_several() && lane.open && is_after(lane.high, una) {
        if is_after(next, lane.high) { lane.high } else { next }
    } else {
        plus(una, 1)
    };
    let then = if lane.slow && end != plus(una, 1) { Then::Scan } else { Then::Nothing };
    Decision { context, retransmit: Some((una, end)), then, ..same }
}
