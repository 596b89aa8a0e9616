//! The events of a flow of the credit engine in one cycle, merged into its next state.
//!
//! | variable | rule |
//! |---|---|
//! | entries, count | Enqueue appends, Transmit removes; both cancel in the count |
//! | rate | from data delivery |
//! | credit, since | Transmit's, when an address leaves |
//! | granted | the largest total that the receiver has said |
//! | extra | plus the segments that a timeout has marked |
//! | sent | plus one when an address leaves |
//!
//! A command replaces what it sets. Grants of more than [`GRANT_STEP_MAX`] segments at once are ignored: no receiver
//! has so much to ask for, and totals are compared serially.

use super::rate::{self, cycles_for, missing_bytes};
use super::wheel::WAIT_MAX;
use crate::program::Scheme;
use crate::shape::{SegmentId, Shape, forward};
use crate::state::{Credit, Entry, Ring};
use crate::wires::{Command, FlowSetup, Forward, Parameters};

/// Number of segments that a flow may send before its receiver has granted any: a full ring.
pub const FIRST_GRANT: u32 = 16;

/// Maximum number of segments that a receiver can grant at once.
pub const GRANT_STEP_MAX: u32 = 1 << 12;

/// The events of one flow in one cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Events {
    /// Enqueue: an address or a command that arrives from data delivery.
    pub(crate) entered: Option<Forward>,
    /// Transmit: the oldest address is passed on to the link.
    pub(crate) leaves: bool,
    /// Parameters set for a packet and by a periodic run.
    pub(crate) parameters: [Option<Parameters>; 2],
    /// The flow's timer has expired.
    pub(crate) is_due: bool,
}

/// Decision about the oldest address of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The ring of segments to be transmitted is empty.
    Empty,
    /// The oldest address may be passed on now.
    Ready,
    /// The oldest address may be passed on after this number of cycles.
    Wait(u64),
    /// The oldest address may be passed on when the receiver has granted more.
    Hold,
}

/// Returns the oldest entry of the ring of segments to be transmitted.
#[inline]
pub(crate) fn oldest(ring: &Ring) -> Entry {
    ring.entries[usize::from(ring.head)]
}

/// Returns the length in bytes of the segment at an address.
#[inline]
fn bytes(entry: Entry, credit: &Credit) -> u16 {
    if entry.is_short() && credit.last_bytes != 0 { credit.last_bytes } else { credit.segment_bytes }
}

/// Returns the credit in cycle `now`.
#[inline]
fn credit_now(credit: &Credit, now: SegmentId) -> u64 {
    rate::credit_at(credit.credit, credit.since, now, credit.rate, credit.segment_bytes)
}

/// Returns the number of tokens left: segments granted by the receiver and by timeouts, less those sent.
#[inline]
fn tokens(credit: &Credit) -> i64 {
    credit.sent.distance_to(credit.granted.plus(credit.extra.value()).plus(FIRST_GRANT))
}

/// Decides whether the oldest address may be passed on in cycle `now`.
pub(crate) fn verdict(ring: &Ring, credit: &Credit, now: SegmentId, shape: &Shape) -> Verdict {
    if ring.count == 0 {
        return Verdict::Empty;
    }
    match shape.scheme() {
        Scheme::Window => Verdict::Ready,
        Scheme::Token if tokens(credit) > 0 => Verdict::Ready,
        Scheme::Token => Verdict::Hold,
        Scheme::Rate => match missing_bytes(credit_now(credit, now), bytes(oldest(ring), credit)) {
            0 => Verdict::Ready,
            missing => Verdict::Wait(cycles_for(missing, credit.rate).unwrap_or(WAIT_MAX)),
        },
    }
}

/// Merges the events of a flow.
pub(crate) fn merge(
    ring: &Ring,
    credit: &Credit,
    events: &Events,
    now: SegmentId,
    initial_rate: u32,
    shape: &Shape,
) -> (Ring, Credit) {
    let (mut next_ring, mut next) = (*ring, *credit);
    let places = shape.sizes().ring;
    if let Some(Forward::Address(entry)) = events.entered {
        assert!(ring.count < places, "data delivery generates no address for which there is no place");
        next_ring.entries[usize::from((ring.head + ring.count) % places)] = entry;
        next_ring.count += 1;
    }
    if events.leaves {
        next_ring.head = (ring.head + 1) % places;
        next_ring.count -= 1;
        match shape.scheme() {
            Scheme::Window => {}
            Scheme::Rate => {
                let spent = u64::from(bytes(oldest(ring), credit)) << rate::FRACTION_BITS;
                next.credit = credit_now(credit, now).saturating_sub(spent);
                next.since = now;
            }
            Scheme::Token => next.sent = credit.sent.plus(1),
        }
    }
    for parameters in events.parameters.iter().flatten() {
        next.rate = parameters.rate.unwrap_or(next.rate);
        next.extra = next.extra.plus(u32::from(parameters.extra));
        if let Some(total) = parameters.grant.filter(|total| forward(next.granted, *total) <= GRANT_STEP_MAX) {
            next.granted = total;
        }
    }
    if let Some(Forward::Command(command)) = events.entered {
        return command_flow(next_ring, next, command, now, initial_rate, shape);
    }
    (next_ring, next)
}

fn command_flow(
    ring: Ring,
    credit: Credit,
    command: Command,
    now: SegmentId,
    initial_rate: u32,
    shape: &Shape,
) -> (Ring, Credit) {
    match command {
        Command::Add(FlowSetup { segment_bytes, .. }) => {
            let new = Credit { segment_bytes, ..Credit::default() };
            let with_rate = Credit { rate: initial_rate, credit: rate::credit_max(segment_bytes), since: now, ..new };
            (Ring::default(), if shape.scheme() == Scheme::Rate { with_rate } else { new })
        }
        Command::Remove => (Ring::default(), Credit::default()),
        Command::Limit { last_bytes, .. } => (ring, Credit { last_bytes, ..credit }),
        Command::SegmentBytes(segment_bytes) => (ring, Credit { segment_bytes, ..credit }),
    }
}
