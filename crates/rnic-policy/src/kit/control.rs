//! Contract checks for a congestion controller.

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Time};

use super::{Violation, check_actions, check_interest, check_specs, draw_params};
use crate::control::lanes::LANES;
use crate::control::signals::Signals;
use crate::control::{ControlEvent, ControlPolicy, ControlView, HostDelays};
use crate::paths::PathLabel;

/// Drives `policy` through `steps` random events from `seed`.
///
/// Checks that the controller needs the signals of the events it subscribes to, and subscribes to the events of the
/// signals it needs; and after every event: equal events give equal actions; windows are above zero; rates are above
/// zero and at most the line rate; ticks and the ends of probes are at least a microsecond in the future, so that no
/// queue pair can keep a core busy. It is also driven with the reports of a datapath with flows, which it reads itself
/// or receives as events: see [`super::reports`].
///
/// # Errors
/// The first violation, with the values that reproduce it.
pub fn check_control(policy: &ControlPolicy, seed: u64, steps: u64) -> Result<(), Violation> {
    check_specs(policy.name, policy.params)?;
    let streams = RandomStreams::new(seed);
    for use_defaults in [true, false] {
        let mut random = streams.stream(if use_defaults { "kit/defaults" } else { "kit/drawn" });
        let params = draw_params(policy.params, &mut random, use_defaults);
        let line_rate = [10, 40, 100, 400].map(BitRate::gbps)[random.below(4) as usize];
        let mut view = ControlView { now: Time::ZERO, line_rate, mtu: 1024, in_flight: 0 };
        let (mut state, first) = (policy.start)(&params, &view);
        let mut state_copy = state;
        let violation = |step, what| Violation { policy: policy.name, seed, step, what };
        check_actions(&first, line_rate).map_err(|what| violation(0, what))?;
        let interest = (policy.interest)(&params);
        check_interest(&interest).map_err(|what| violation(0, what))?;
        for step in 1..=steps {
            view.now += Duration::from_ns(random.between(1, 100_000));
            view.in_flight = random.below(500);
            let event = draw_event(&mut random, interest.needs.has(Signals::PROBES));
            let actions = (policy.on_event)(&mut state, &event, &view, &params);
            let repeated = (policy.on_event)(&mut state_copy, &event, &view, &params);
            if actions != repeated || state != state_copy {
                return Err(violation(
                    step,
                    format!("two identical calls for {event:?} had different results, {actions:?} and {repeated:?}"),
                ));
            }
            check_actions(&actions, line_rate).map_err(|what| violation(step, format!("{event:?}: {what}")))?;
            if actions.tick_after.is_some() && !interest.needs.has(Signals::TICKS) {
                return Err(violation(
                    step,
                    format!("{event:?}: the policy requests a tick but does not declare that it needs ticks"),
                ));
            }
            if actions.probe.is_some() && !interest.needs.has(Signals::PROBES) {
                return Err(violation(
                    step,
                    format!("{event:?}: the policy requests a probe but does not declare that it needs probes"),
                ));
            }
            if actions.flow.is_some() {
                return Err(violation(
                    step,
                    format!("{event:?}: the policy returns flow actions to a datapath without flows"),
                ));
            }
        }
        if policy.takes_reports(&params) {
            super::reports::check_reports(policy, &params, seed, steps)?;
        }
        if policy.reports.lanes {
            // Rounded up so that about `steps` reports are made in total.
            super::lanes::check_lanes(policy, &params, seed, steps.div_ceil(LANES as u64))?;
        }
    }
    Ok(())
}

/// Draws a random event; events of probes only for controllers that request probes.
fn draw_event(random: &mut RandomStream, probes: bool) -> ControlEvent {
    match random.below(if probes { 14 } else { 12 }) {
        0..5 => {
            let rtt = (random.below(2) == 0).then(|| Duration::from_ns(random.between(1, 2_000_000)));
            let packets = if rtt.is_some() { random.below(129) } else { random.between(1, 128) };
            let marked = if random.below(3) == 0 { random.below(packets + 1) } else { 0 };
            ControlEvent::Acked { packets, rtt, marked }
        }
        5..7 => ControlEvent::Sent { bytes: random.between(0, 65_536) },
        7 => ControlEvent::Nacked { lost: random.below(2) == 0 },
        8 => ControlEvent::TimedOut,
        9..11 => ControlEvent::Tick,
        11 => ControlEvent::Cnp,
        12 => {
            let [rtt, local, peer] = [2_000_000; 3].map(|max| Duration::from_ns(random.between(1, max)));
            let host = HostDelays { local, peer, are_in_round_trip: random.below(2) == 0 };
            ControlEvent::RoundTrip { path: PathLabel(random.bits() as u16), rtt, host }
        }
        _ => ControlEvent::ProbeLost { path: PathLabel(random.bits() as u16) },
    }
}
