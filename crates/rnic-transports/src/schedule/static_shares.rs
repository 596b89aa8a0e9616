//! Static shares: every queue pair may use its part of the link by weight, whether others use theirs or not.
//!
//! Source: SCR (NSDI'25) section 5.1, "Static", and mechanisms S-19 and S-21. The rate changes only when queue pairs
//! join or leave.
//!
//! With so many queue pairs that their floors exceed the link, the rates no longer limit any of them, and the turns
//! below decide.
//!
//! Deviations: the paper's adapter has a floor of 1 Gbit/s, and lower ones cost utilisation ("NoBound"). That is a
//! property of its limiter, which ours does not have, and the default is 10 Mbit/s, so that slow links can be shared.

use bytemuck::{Pod, Zeroable};
use rnic_base::BitRate;
use rnic_policy::schedule::RATE_MIN;
use rnic_policy::{ParamSpec, Params, Schedule, ScheduleActions, ScheduleEvent, ScheduleView};

use super::greedy::{ONE_PACKET, TURN_PARAMS, turn_actions, turn_params};

/// State of a queue pair.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct StaticShares {
    /// Dequeue rate in bits per second; zero before the first data.
    rate: u64,
}

const FLOOR: usize = TURN_PARAMS;

const fn params() -> [ParamSpec; TURN_PARAMS + 1] {
    let [calibration, bytes, messages] = turn_params(ONE_PACKET);
    [calibration, bytes, messages, floor_param()]
}

/// Returns the parameter for the lowest rate that a scheduler sets.
pub(super) const fn floor_param() -> ParamSpec {
    let help = "no queue pair gets less (SCR 5.1: 1 Gbit/s)";
    ParamSpec { min: RATE_MIN.as_bps(), ..ParamSpec::rate("share_floor", BitRate::bps(10_000_000), help) }
}

impl Schedule for StaticShares {
    const NAME: &'static str = "static";
    const SUMMARY: &'static str = "each queue pair has its part of the link by weight, used or not (SCR 5.1)";
    const PARAMS: &'static [ParamSpec] = &params();

    fn start(params: &Params, _: &ScheduleView) -> (Self, ScheduleActions) {
        (Self { rate: 0 }, turn_actions(params))
    }

    fn uses_events(_: &Params) -> bool {
        true
    }

    fn on_event(&mut self, event: &ScheduleEvent, view: &ScheduleView, params: &Params) -> ScheduleActions {
        if !matches!(event, ScheduleEvent::Joined | ScheduleEvent::Served(_)) {
            return ScheduleActions::default();
        }
        let floor = BitRate::bps(params.get(FLOOR)).min(view.capacity);
        let rate = view.weighted_fair_rate().max(floor);
        let is_new = *event == ScheduleEvent::Joined || rate.as_bps() != self.rate;
        self.rate = rate.as_bps();
        ScheduleActions { dequeue_rate: is_new.then_some(Some(rate)), ..ScheduleActions::default() }
    }
}
