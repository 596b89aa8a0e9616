//! Go-back-N with the contexts of FaSR, which its circuits are compared with in size.

use super::sr::{Clock, Outcome};
use super::{Ack, Context, Event, Kind, Lost, Retransmission, Say, Timer, distance, is_after, plus};

/// Processes `event`, as [`super::sr::Sr::step`].
pub fn step(event: &Event, context: &mut Context, next: u32, timer: Timer, clock: Clock) -> Outcome {
    let mut outcome = Outcome { cycles: 1, written: 1, ..Outcome::default() };
    let started = Timer { on: true, extended: false, deadline: plus(clock.now, clock.rto) };
    let mut goes_back = false;
    match event.kind {
        Kind::Data => {
            outcome.ack = on_data(event, context);
            outcome.update_cycles = outcome.ack.map(|_| 1);
        }
        Kind::Ack | Kind::Nak => {
            let cumulative = event.cumulative;
            if is_after(context.una, cumulative) || is_after(cumulative, next) {
                return outcome;
            }
            if cumulative != context.una {
                (context.una, context.acted) = (cumulative, false);
                outcome.timer = Some(Timer { on: cumulative != next, ..started });
            }
            goes_back = event.kind == Kind::Nak && !context.acted && cumulative != next;
        }
        Kind::Timeout if timer.is_due(clock.now) && context.una != next => {
            outcome.timer = Some(started);
            goes_back = true;
        }
        Kind::Extend if timer.is_due(clock.now) && !timer.extended => {
            outcome.timer = Some(Timer { on: true, extended: true, deadline: plus(clock.now, clock.extension) });
        }
        Kind::Arm if !timer.on && context.una != next => outcome.timer = Some(started),
        _ => {}
    }
    if goes_back {
        context.acted = true;
        let argument = (distance(context.una, next) % 1_024) as u16;
        outcome.retransmissions = vec![Retransmission { qp: event.qp, psn: context.una, is_map: false, argument }];
    }
    outcome
}

fn on_data(event: &Event, context: &mut Context) -> Option<Ack> {
    let psn = event.cumulative;
    let mut placed = false;
    let say = if psn == context.rcv_nxt {
        context.rcv_nxt = plus(psn, 1);
        context.gap_at = None;
        placed = true;
        Say::Ack
    } else if is_after(context.rcv_nxt, psn) {
        Say::Ack
    } else {
        let is_new_gap = context.gap_at.is_none_or(|seen| !is_after(psn, seen));
        context.gap_at = Some(psn);
        if !is_new_gap {
            return None;
        }
        Say::Nak
    };
    Some(Ack { qp: event.qp, say, placed, cumulative: context.rcv_nxt, psn, lost: Lost::default() })
}
