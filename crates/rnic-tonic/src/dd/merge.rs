//! Conflicts between updates of one flow in the same cycle (Tonic, section 3.4).
//!
//! Up to four sources update a flow in one cycle: the fixed-function stage, which processes acknowledgements; the
//! transport program, called for a received packet or periodically (a *visit*); Segment Generation; and transmission.
//! Their results are merged into the next state:
//!
//! | variable | next value |
//! |---|---|
//! | start, acknowledged segments | that of the fixed-function stage if it ran, otherwise unchanged |
//! | size, timer, rate | the program's for a packet, otherwise the program's for a visit, otherwise unchanged |
//! | next, repeats, total sent | that of Segment Generation |
//! | marked | without the segment just repeated, plus the program's ranges: of sent, unacknowledged segments only |
//! | outstanding | the previous value, plus the segment generated, minus the segment transmitted |
//! | back-pressured, idle | computed from the merged values |
//! | expiry | restarted by the program or after expiry, otherwise started by generation; off if no segment is sent |
//!
//! The program runs in the cycle before. A visit is discarded there if the fixed-function stage or the program
//! processes a packet of the same flow in that cycle: acknowledgements take precedence over timeouts. So one of the
//! program's two answers is merged at most. Marks are kept for all segments that were sent, also those that a smaller
//! window does not cover any more.

use super::generate::{Generated, next_segment};
use super::incoming::Acknowledged;
use crate::bits::RingMap;
use crate::program::{Answer, Installed};
use crate::shape::{SegmentId, Shape, Ticks, forward};
use crate::state::{Duty, Window};
use crate::wires::{Command, FlowSetup};

/// The events of one flow in one cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Events {
    /// Result of the fixed stage of Incoming.
    pub(crate) acknowledged: Option<Acknowledged>,
    /// The program's outputs for a packet.
    pub(crate) incoming: Option<Answer>,
    /// The program's outputs for a periodic run, and whether the timer had expired.
    pub(crate) periodic: Option<(Answer, bool)>,
    /// The segment sent by Segment Generation.
    pub(crate) generated: Option<Generated>,
    /// The credit engine has passed an address of the flow on to the link.
    pub(crate) transmitted: bool,
    /// A command of the driver, which uses the slot of Segment Generation.
    pub(crate) command: Option<Command>,
}

/// The next state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Merged {
    pub(crate) window: Window,
    pub(crate) duty: Duty,
    /// Number of segments that a timeout has marked and that were not marked before: a receiver that grants tokens has
    /// to be informed of them.
    pub(crate) timed_out: u16,
}

/// Merges the events of a flow.
pub(crate) fn merge(window: &Window, duty: &Duty, events: &Events, now: Ticks, shape: &Shape) -> Merged {
    let visit = events.periodic.filter(|_| events.incoming.is_none());
    let answer = events.incoming.or(visit.map(|(answer, _)| answer));

    let next_window = merge_window(window, events, answer.as_ref(), shape);
    let sent = forward(next_window.start, next_window.next);
    let may_be_marked = RingMap::range(shape.position(next_window.start), sent, shape.window()) & !next_window.acked;
    // Ranges are of what was outstanding before the cycle, and of the segment that it may have sent.
    let most = (forward(window.start, window.next) + 1).min(shape.window());
    let marks = answer.map_or(RingMap::EMPTY, |answer| answer.range(window.start, most, shape));
    let mut marked = duty.marked;
    if let Some(repeat) = events.generated.filter(|generated| generated.is_repeat) {
        marked &= !RingMap::range(shape.position(repeat.id), 1, shape.window());
    }
    let is_timeout = visit.is_some_and(|(_, is_expired)| is_expired);
    let timed_out = if is_timeout { (marks & may_be_marked & !marked).count() as u16 } else { 0 };
    marked = (marked | marks) & may_be_marked;

    assert!(!events.transmitted || duty.outstanding > 0, "an address has left that was not generated");
    let mut next_duty = Duty {
        marked,
        outstanding: duty.outstanding + u8::from(events.generated.is_some()) - u8::from(events.transmitted),
        total_sent: duty.total_sent.plus(u32::from(events.generated.is_some())),
        timer: answer.map_or(duty.timer, |answer| answer.timer),
        rate: answer.map_or(duty.rate, |answer| answer.rate),
        ..*duty
    };
    let is_restarted = events.incoming.is_some_and(|answer| answer.restart)
        || visit.is_some_and(|(answer, is_expired)| answer.restart || is_expired);
    set_timer(&mut next_duty, is_restarted, events.generated.is_some(), sent, now);
    set_flags(&next_window, &mut next_duty, shape);
    Merged { window: next_window, duty: next_duty, timed_out }
}

fn merge_window(window: &Window, events: &Events, answer: Option<&Answer>, shape: &Shape) -> Window {
    let mut next = *window;
    if let Some(acknowledged) = &events.acknowledged {
        next.start = acknowledged.start;
        next.acked = acknowledged.acked;
    }
    if let Some(answer) = answer {
        next.size = answer.window;
    }
    match events.generated {
        Some(Generated { id, is_repeat: true, times_sent, .. }) => {
            let position = RingMap::range(shape.position(id), 1, shape.window());
            let bit = |map: RingMap, is_set: bool| if is_set { map | position } else { map & !position };
            next.repeats_low = bit(window.repeats_low, times_sent & 1 == 1);
            next.repeats_high = bit(window.repeats_high, times_sent & 2 == 2);
        }
        Some(generated) => next.next = generated.id.plus(1),
        None => {}
    }
    if let Some(acknowledged) = &events.acknowledged {
        next.repeats_low &= !acknowledged.passed;
        next.repeats_high &= !acknowledged.passed;
    }
    if let Some(Command::Limit { limit, last_bytes }) = events.command {
        next.limit = limit;
        next.has_short_last = last_bytes != 0;
    }
    next
}

/// Starts, restarts or stops the timer. A duration of zero means no timer.
fn set_timer(duty: &mut Duty, is_restarted: bool, is_generated: bool, sent: u32, now: Ticks) {
    if is_restarted || (is_generated && !duty.timer_on) {
        duty.timer_on = true;
        duty.expiry = now.plus(duty.timer.value());
    }
    if sent == 0 || duty.timer.value() == 0 {
        duty.timer_on = false;
        // A stopped timer has one representation, so that equal states are equal bit by bit.
        duty.expiry = Ticks::new(0);
    }
}

/// Computes the flags that depend on merged values.
fn set_flags(window: &Window, duty: &mut Duty, shape: &Shape) {
    let sizes = shape.sizes();
    if duty.outstanding >= sizes.stop {
        duty.back_pressured = true;
    } else if duty.outstanding < sizes.start {
        duty.back_pressured = false;
    }
    duty.idle = next_segment(window, duty, shape).is_none();
}

/// Returns the state of a new flow.
pub(crate) fn new_flow(setup: &FlowSetup, program: &Installed, shape: &Shape) -> (Window, Duty) {
    let Answer { window, rate, timer, .. } = Answer::new(&program.initial(), shape);
    let FlowSetup { first, .. } = *setup;
    let group = Window { in_use: true, start: first, size: window, next: first, limit: first, ..Window::default() };
    (group, Duty { idle: true, total_sent: SegmentId::new(0), timer, rate, ..Duty::default() })
}

#[cfg(test)]
#[path = "merge/tests.rs"]
mod tests;
