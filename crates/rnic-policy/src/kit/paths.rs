//! Contract checks for a path policy.

use rnic_base::{Duration, RandomStream, RandomStreams, Time};

use super::{Violation, check_specs, draw_params};
use crate::paths::{FLOWS_MAX, FlowWeights, OpenWindows, PathEvent, PathPolicy, PathView};

/// Generates windows of one to all flows, some of them closed, and arbitrary weights.
fn draw_choosing(random: &mut RandomStream) -> PathEvent {
    let mut open = [0; FLOWS_MAX];
    let count = random.between(1, FLOWS_MAX as u64) as usize;
    open.iter_mut().for_each(|window| *window = random.below(80 << 8) as i32 - (16 << 8));
    let widths: Vec<u64> = (0..count).map(|_| random.below(1 << 20)).collect();
    PathEvent::Choosing { open: OpenWindows::new(&open[..count]), weights: FlowWeights::of(widths.into_iter()) }
}

/// Drives `policy` through `steps` random events from `seed`.
///
/// Checks: equal events give equal actions; a chosen flow exists; a policy that reorders chooses a flow for every
/// [`PathEvent::Choosing`], and a policy that claims not to reorder always chooses the same one; a policy that claims
/// not to reorder never changes its label unless a timeout occurs.
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
        let mut copy = state;
        for step in 0..steps {
            let bad = |what| Violation { policy: policy.name, seed, step, what };
            view.now += Duration::from_ns(random.between(1, 10_000));
            let event = match random.below(20) {
                0 => PathEvent::TimedOut,
                1..14 => PathEvent::Sending { retransmission: random.below(10) == 0 },
                _ => draw_choosing(&mut random),
            };
            let actions = (policy.on_event)(&mut state, &event, &view, &params);
            let again = (policy.on_event)(&mut copy, &event, &view, &params);
            if actions != again || state != copy {
                return Err(bad(format!("{event:?} gave {actions:?} once and {again:?} once")));
            }
            if let PathEvent::Choosing { open, .. } = &event {
                if policy.reorders && actions.flow.is_none() {
                    return Err(bad(format!("{event:?} is answered with no flow although it claims to reorder")));
                }
                let flow = usize::from(actions.flow.unwrap_or(0));
                if flow >= open.as_slice().len() || (flow != 0 && !policy.reorders) {
                    return Err(bad(format!("{event:?} is answered with flow {flow}")));
                }
            }
            let moved = actions.label.is_some_and(|new| new != label);
            if moved && !policy.reorders && event != PathEvent::TimedOut {
                return Err(bad(format!("{event:?} moves it to another path although it claims not to reorder")));
            }
            label = actions.label.unwrap_or(label);
        }
    }
    Ok(())
}
