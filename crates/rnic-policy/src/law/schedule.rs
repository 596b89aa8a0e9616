//! Laws (policies as one function that also becomes a circuit) as schedulers.

use rnic_base::BitRate;
use rnic_program::law::{ScheduleInput, ScheduleOutput};

use super::{InSlot, clock, cut, duration, rate, speed};
use crate::params::{ParamSpec, Params};
use crate::schedule::{RATE_MIN, Schedule, ScheduleActions, ScheduleEvent, SchedulePolicy, ScheduleView};

/// Returns the scheduler in slot `N`.
pub(super) fn policy<const N: usize>() -> SchedulePolicy {
    let law = InSlot::<N>::law();
    SchedulePolicy { name: law.name, summary: law.summary, params: law.specs, ..SchedulePolicy::of::<InSlot<N>>() }
}

impl<const N: usize> Schedule for InSlot<N> {
    const NAME: &'static str = "law";
    const SUMMARY: &'static str = "";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(params: &Params, view: &ScheduleView) -> (Self, ScheduleActions) {
        let mut state = Self::new(params);
        let input = ScheduleInput { started: true, ..at(0, view) };
        let output = state.decide(&input, params);
        let actions = state.apply(&output, view);
        (state, actions)
    }

    fn uses_events(_: &Params) -> bool {
        true
    }

    fn on_event(&mut self, event: &ScheduleEvent, view: &ScheduleView, params: &Params) -> ScheduleActions {
        let at = at(self.0.rate, view);
        let input = match *event {
            ScheduleEvent::Joined => ScheduleInput { joined: true, ..at },
            ScheduleEvent::Served(served) => ScheduleInput {
                served: true,
                wire_bytes: cut(served.wire_bytes),
                packets: cut(served.packets),
                last_at: clock(served.last_at),
                ..at
            },
            ScheduleEvent::Tick => ScheduleInput { tick: true, ..at },
        };
        let output = self.decide(&input, params);
        self.apply(&output, view)
    }
}

impl<const N: usize> InSlot<N> {
    /// Returns what a law's outputs request, cut to the contract, and stores the rate.
    fn apply(&mut self, output: &ScheduleOutput, view: &ScheduleView) -> ScheduleActions {
        let set = |number: u64| (number != 0).then_some(number as u32);
        let new_rate = rate(output.rate, RATE_MIN, view.line_rate).filter(|rate| rate.as_bps() != self.0.rate);
        self.0.rate = new_rate.map_or(self.0.rate, BitRate::as_bps);
        ScheduleActions {
            turn_packets: set(output.packets.get()),
            turn_bytes: set(output.bytes.get()),
            turn_messages: set(output.messages.get()),
            dequeue_rate: new_rate.map(Some),
            is_saturated: (output.saturated != view.is_saturated).then_some(output.saturated),
            restart_all: false,
            tick_after: duration(output.tick),
        }
    }
}

/// Returns the parts of an event that do not depend on its kind, for a queue pair with a dequeue rate of `rate` bit/s,
/// or none.
fn at(rate: u64, view: &ScheduleView) -> ScheduleInput {
    let rate = BitRate::bps(rate);
    ScheduleInput {
        now: clock(view.now),
        line_rate: speed(view.line_rate),
        capacity: speed(view.capacity),
        rate: speed(rate),
        equal: speed(view.weighted_fair_rate()),
        max_min: speed(view.max_min_rate(rate)),
        headroom: speed(view.headroom()),
        permitted: view.control_rate.map_or(cut(0), speed),
        members: cut(view.members.into()),
        saturated: view.is_saturated,
        held: view.is_held,
        ..ScheduleInput::default()
    }
}
