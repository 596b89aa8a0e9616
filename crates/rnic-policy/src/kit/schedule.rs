//! Contract checks for a scheduler.

use rnic_base::{BitRate, Duration, RandomStreams, Time};

use super::{Violation, check_specs, draw_params};
use crate::schedule::{ScheduleActions, ScheduleEvent, SchedulePolicy, ScheduleView};

/// Largest scheduling turn, in packets. Longer turns starve the other queue pairs: 64 KiB at the smallest MTU.
const TURN_PACKETS_MAX: u32 = 256;

/// Drives `policy` through `steps` random events from `seed`.
///
/// Checks: equal events give equal actions; a turn has between one and 256 packets; dequeue rates are above zero; ticks
/// are at least a microsecond in the future.
///
/// # Errors
/// The first violation, with the values that reproduce it.
pub fn check_schedule(policy: &SchedulePolicy, seed: u64, steps: u64) -> Result<(), Violation> {
    check_specs(policy.name, policy.params)?;
    let streams = RandomStreams::new(seed);
    for use_defaults in [true, false] {
        let mut random = streams.stream(if use_defaults { "kit/defaults" } else { "kit/drawn" });
        let params = draw_params(policy.params, &mut random, use_defaults);
        let mut view = ScheduleView { now: Time::ZERO, line_rate: BitRate::gbps(100), active: 1 };
        let (mut state, first) = (policy.start)(&params, &view);
        let mut copy = state;
        let bad = |step, what| Violation { policy: policy.name, seed, step, what };
        check_actions(&first).map_err(|what| bad(0, what))?;
        for step in 1..=steps {
            view.now += Duration::from_ns(random.between(1, 10_000));
            view.active = random.between(1, 1_024) as u32;
            let event = match random.below(6) {
                0 => ScheduleEvent::Activated,
                1 => ScheduleEvent::Drained,
                2 => ScheduleEvent::Tick,
                _ => ScheduleEvent::Served { bytes: random.between(0, 1 << 20) },
            };
            let actions = (policy.on_event)(&mut state, &event, &view, &params);
            let again = (policy.on_event)(&mut copy, &event, &view, &params);
            if actions != again || state != copy {
                return Err(bad(step, format!("{event:?} gave {actions:?} once and {again:?} once")));
            }
            check_actions(&actions).map_err(|what| bad(step, format!("{event:?}: {what}")))?;
        }
    }
    Ok(())
}

fn check_actions(actions: &ScheduleActions) -> Result<(), String> {
    if let Some(turn) = actions.turn_packets
        && !(1..=TURN_PACKETS_MAX).contains(&turn)
    {
        return Err(format!("sets a turn of {turn} packets"));
    }
    if actions.dequeue_rate == Some(Some(BitRate::ZERO)) {
        return Err("sets a dequeue rate of zero".to_owned());
    }
    if actions.tick_after.is_some_and(|after| after < Duration::from_us(1)) {
        return Err(format!("asks for a tick after {:?}", actions.tick_after));
    }
    Ok(())
}
