//! Contract checks for a path policy.

use rnic_base::{Duration, RandomStream, RandomStreams, Time};

use super::{Violation, check_specs, draw_params};
use crate::paths::{
    FLOWS_MAX, FlowWeights, OpenWindows, PROBED_MAX, PathActions, PathEvent, PathPolicy, PathProbe, PathView,
};

/// Draws an event with one to the maximum number of flows, some without free window, and random weights.
fn draw_choosing(random: &mut RandomStream) -> PathEvent {
    let mut open = [0; FLOWS_MAX];
    let count = random.between(1, FLOWS_MAX as u64) as usize;
    open.iter_mut().for_each(|window| *window = random.below(80 << 8) as i32 - (16 << 8));
    let windows: Vec<u64> = (0..count).map(|_| random.below(1 << 20)).collect();
    PathEvent::Choosing { open: OpenWindows::new(&open[..count]), weights: FlowWeights::of(windows.into_iter()) }
}

fn draw_probe_event(random: &mut RandomStream) -> PathEvent {
    let path = random.below(PROBED_MAX as u64) as u8;
    match random.below(10) {
        0 => PathEvent::Drained,
        1..4 => PathEvent::Tick,
        4..6 => PathEvent::ProbeLost { path },
        _ => PathEvent::Probed { path, rtt: Duration::from_ns(random.between(1, 2_000_000)) },
    }
}

/// Returns whether a policy that does not reorder may change the label in response to `event`: packets sent before are
/// acknowledged, or lost.
fn may_move(event: &PathEvent) -> bool {
    matches!(event, PathEvent::TimedOut | PathEvent::Drained | PathEvent::ProbeLost { .. })
}

/// Checks that probes are declared, and that ticks and probes of one queue pair cannot use a whole CPU core.
fn check_probe(policy: &PathPolicy, actions: &PathActions) -> Result<(), String> {
    if !policy.probes && (actions.probe.is_some() || actions.tick_after.is_some()) {
        return Err("the policy requests a probe or a tick although it does not declare that it probes".to_owned());
    }
    let is_wrong = |probe: PathProbe| usize::from(probe.path) >= PROBED_MAX || probe.timeout < TICK_MIN;
    if let Some(probe) = actions.probe.filter(|probe| is_wrong(*probe)) {
        return Err(format!("{probe:?} has no valid path, or times out in less than {TICK_MIN}"));
    }
    match actions.tick_after {
        Some(after) if after < TICK_MIN => Err(format!("the policy requests a tick after {after}")),
        _ => Ok(()),
    }
}

/// Minimum time between two ticks.
const TICK_MIN: Duration = Duration::from_us(1);

/// Drives `policy` through `steps` random events from `seed`.
///
/// Checks: equal events give equal actions; a chosen flow exists; a policy that reorders chooses a flow for every
/// [`PathEvent::Choosing`], and a policy that claims not to reorder always chooses the same one; a policy that claims
/// not to reorder never changes its label unless a timeout occurs, a probe is lost or its packets are acknowledged;
/// probes are declared, and their paths exist.
///
/// # Errors
/// The first violation, with the values that reproduce it.
pub fn check_paths(policy: &PathPolicy, seed: u64, steps: u64) -> Result<(), Violation> {
    check_specs(policy.name, policy.params)?;
    let streams = RandomStreams::new(seed);
    for use_defaults in [true, false] {
        let mut random = streams.stream(if use_defaults { "kit/defaults" } else { "kit/drawn" });
        let params = draw_params(policy.params, &mut random, use_defaults);
        let mut view = PathView { now: Time::ZERO, flow_hash: random.bits() };
        let (mut state, mut label) = (policy.start)(&params, &view);
        let mut state_copy = state;
        for step in 0..steps {
            let violation = |what| Violation { policy: policy.name, seed, step, what };
            view.now += Duration::from_ns(random.between(1, 10_000));
            let event = match random.below(if policy.probes { 30 } else { 20 }) {
                0 => PathEvent::TimedOut,
                20..30 => draw_probe_event(&mut random),
                1..14 => PathEvent::Sending { retransmission: random.below(10) == 0 },
                _ => draw_choosing(&mut random),
            };
            let actions = (policy.on_event)(&mut state, &event, &view, &params);
            let repeated = (policy.on_event)(&mut state_copy, &event, &view, &params);
            if actions != repeated || state != state_copy {
                return Err(violation(format!(
                    "two identical calls for {event:?} had different results, {actions:?} and {repeated:?}"
                )));
            }
            if let PathEvent::Choosing { open, .. } = &event {
                if policy.reorders && actions.flow.is_none() {
                    return Err(violation(format!(
                        "{event:?}: the policy declares that it reorders, so it must select a flow, but selects none"
                    )));
                }
                let flow = usize::from(actions.flow.unwrap_or(0));
                if flow >= open.as_slice().len() || (flow != 0 && !policy.reorders) {
                    return Err(violation(format!(
                        "{event:?}: the policy selects flow {flow}, which does not exist, or is not flow 0 although \
                         it does not reorder"
                    )));
                }
            }
            check_probe(policy, &actions).map_err(|what| violation(format!("{event:?}: {what}")))?;
            let moved = actions.label.is_some_and(|new| new != label);
            if moved && !policy.reorders && !may_move(&event) {
                return Err(violation(format!(
                    "{event:?}: the policy declares that it does not reorder, but changes the path here"
                )));
            }
            label = actions.label.unwrap_or(label);
        }
    }
    Ok(())
}
