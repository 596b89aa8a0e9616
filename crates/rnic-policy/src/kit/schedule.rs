//! Contract checks for a scheduler.

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Time};

use super::{Violation, check_specs, draw_params};
use crate::schedule::{
    RATE_MIN, ScheduleActions, ScheduleEvent, SchedulePolicy, ScheduleView, Served, TURN_PACKETS_MAX,
};

/// Drives `policy` through `steps` random events from `seed`.
///
/// Checks: equal events give equal actions; a turn has between one and [`TURN_PACKETS_MAX`] packets, at least one byte
/// and at least one message; dequeue rates are between [`RATE_MIN`] and that of the link, so that the engine need not
/// clamp them; ticks are at least a microsecond in the future.
///
/// # Errors
/// The first violation, with the values that reproduce it.
pub fn check_schedule(policy: &SchedulePolicy, seed: u64, steps: u64) -> Result<(), Violation> {
    check_specs(policy.name, policy.params)?;
    let streams = RandomStreams::new(seed);
    for use_defaults in [true, false] {
        let mut random = streams.stream(if use_defaults { "kit/defaults" } else { "kit/drawn" });
        let params = draw_params(policy.params, &mut random, use_defaults);
        let mut view = ScheduleView::alone(Time::ZERO, BitRate::gbps(100));
        let (mut state, first) = (policy.start)(&params, &view);
        let mut state_copy = state;
        let violation = |step, what| Violation { policy: policy.name, seed, step, what };
        check_actions(&first, &view).map_err(|what| violation(0, what))?;
        for step in 1..=steps {
            draw_view(&mut view, &mut random);
            let event = match random.below(20) {
                0 => ScheduleEvent::Joined,
                1..5 => ScheduleEvent::Tick,
                _ => draw_served(&view, &mut random),
            };
            let actions = (policy.on_event)(&mut state, &event, &view, &params);
            let repeated = (policy.on_event)(&mut state_copy, &event, &view, &params);
            if actions != repeated || state != state_copy {
                return Err(violation(
                    step,
                    format!("two identical calls for {event:?} had different results, {actions:?} and {repeated:?}"),
                ));
            }
            check_actions(&actions, &view).map_err(|what| violation(step, format!("{event:?}: {what}")))?;
        }
    }
    Ok(())
}

/// Advances the time of `view`, and draws consistent totals of all queue pairs that share the link.
fn draw_view(view: &mut ScheduleView, random: &mut RandomStream) {
    view.now += Duration::from_ns(random.between(1, 10_000));
    view.members = random.between(1, 1_024) as u32;
    view.weight = random.between(1, 1_000) as u32;
    let others = u64::from(view.members - 1) * random.between(1, 1_000);
    view.weights = u64::from(view.weight) + others;
    view.capacity = BitRate::bps(random.between(RATE_MIN.as_bps(), view.line_rate.as_bps()));
    view.allocated = BitRate::bps(random.between(0, 2 * view.line_rate.as_bps()));
    view.saturated_rates = BitRate::bps(random.between(0, view.allocated.as_bps()));
    view.is_saturated = random.below(2) == 0;
    // Its own weight is part of the sum if it is saturated, and only then.
    view.saturated_weights = random.between(0, others) + if view.is_saturated { u64::from(view.weight) } else { 0 };
    if view.saturated_weights == 0 {
        view.saturated_rates = BitRate::ZERO;
    }
    view.epoch = view.epoch.wrapping_add(u32::from(random.below(100) == 0));
    view.is_held = random.below(2) == 0;
    view.control_rate = (random.below(2) == 0).then(|| BitRate::bps(random.between(1, view.line_rate.as_bps())));
}

/// Returns an event about packets sent up to the time of `view`.
fn draw_served(view: &ScheduleView, random: &mut RandomStream) -> ScheduleEvent {
    let packets = random.between(1, 64);
    let bytes = packets * random.between(0, 4_096);
    ScheduleEvent::Served(Served { bytes, wire_bytes: bytes + packets * 78, packets, last_at: view.now })
}

fn check_actions(actions: &ScheduleActions, view: &ScheduleView) -> Result<(), String> {
    if let Some(turn) = actions.turn_packets
        && !(1..=TURN_PACKETS_MAX).contains(&turn)
    {
        return Err(format!("the policy sets a turn of {turn} packets; the allowed range is 1 to {TURN_PACKETS_MAX}"));
    }
    if [actions.turn_bytes, actions.turn_messages].contains(&Some(0)) {
        return Err("the policy sets a turn without bytes or messages".to_owned());
    }
    if let Some(Some(rate)) = actions.dequeue_rate
        && !(RATE_MIN..=view.line_rate).contains(&rate)
    {
        return Err(format!("the policy sets a dequeue rate of {rate}; allowed are {RATE_MIN} to {}", view.line_rate));
    }
    if actions.tick_after.is_some_and(|after| after < Duration::from_us(1)) {
        return Err(format!("the policy requests a tick after {:?}, which is less than 1us", actions.tick_after));
    }
    Ok(())
}
