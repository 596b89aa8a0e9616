//! Water filling: queue pairs that use all of their rate get more of it while there is any, and those that do not give
//! it back.
//!
//! Source: SCR (NSDI'25) section 5.1 and mechanisms S-18 to S-21: a meter per queue pair, one decision an event, steps
//! of 0.02 to 0.10 GB/s, three ways to treat arrivals, a floor of 1 Gbit/s. The thresholds `full`, `slack` and
//! `margin`, and the average itself, are OpenRNIC's.
//!
//! Deviations, each with a switch or a value that restores the paper's behaviour:
//!
//! * `max_min`: the paper describes how rates are given back to a common rest, but not how a queue pair whose demand
//!   grows gets anything when the rest is empty. Here those that use all of their rate move towards the equal part of
//!   what the others leave, which is the weighted max-min allocation. Off: only the rest is given out;
//! * the first rates come with the first data, and a step is at most 1/64 of the capacity and a quarter of the queue
//!   pair's goal, so that the same values serve links of 100 Gbit/s and of 1 Gbit/s, and many queue pairs;
//! * a queue pair whose rate is so low that packets, and with them events, are rare also decides at ticks;
//! * a part of the link stays free (`share_headroom`): on a link that is full, every packet waits in a queue;
//! * a queue pair that had to wait for its rate gives nothing back: its bursts need the rate, and what it sends while
//!   it is held is no measure of its demand;
//! * what congestion control holds back is not given to others: congestion control would recover into nothing.

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration};
use rnic_policy::schedule::RATE_MIN;
use rnic_policy::{
    Meter, MeterScale, MeterWeight, ParamSpec, Params, Schedule, ScheduleActions, ScheduleEvent, ScheduleView, Served,
};

use super::greedy::{ONE_PACKET, TURN_PARAMS, turn_actions, turn_params};
use super::static_shares::floor_param;

/// State of a queue pair.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct WaterFilling {
    meter: Meter,
    /// Dequeue rate in bits per second; zero before the first data.
    rate: u64,
    /// Sum of weights at the last event.
    weights_seen: u64,
    epoch_seen: u32,
    /// Weight of the queue pair at the last event.
    weight_seen: u32,
    /// Number of measurements in a row with less than `SLACK` of the rate.
    low: u32,
    /// Keeps the size a multiple of eight bytes.
    _unused: u32,
}

const FLOOR: usize = TURN_PARAMS;
const STEP: usize = TURN_PARAMS + 1;
const START: usize = TURN_PARAMS + 2;
const ARRIVAL: usize = TURN_PARAMS + 3;
const MAX_MIN: usize = TURN_PARAMS + 4;
const METER: usize = TURN_PARAMS + 5;
const HEADROOM: usize = TURN_PARAMS + 6;
const TICK: usize = TURN_PARAMS + 7;

const fn params() -> [ParamSpec; TURN_PARAMS + 8] {
    let [calibration, bytes, messages] = turn_params(ONE_PACKET);
    [
        calibration,
        bytes,
        messages,
        floor_param(),
        ParamSpec::rate("share_step", BitRate::bps(400_000_000), "increase an event (SCR Table 5: 0.05 GB/s)"),
        ParamSpec::rate("share_start", BitRate::bps(500_000_000), "first rate, unless arrivals scale (SCR 5.1)"),
        ParamSpec::choice(
            "share_arrival",
            &["scale", "restart", "keep"],
            0,
            "a newcomer gets its part at once and others make way; all start anew; or it gets what is left (SCR 5.1)",
        ),
        ParamSpec::switch("max_min", true, "those above their max-min rate make way when nothing is left"),
        ParamSpec::choice("share_meter", &["time", "event"], 0, "weight of a measurement in the average"),
        ParamSpec::count("share_headroom", 10, 0, 500, "thousandths of the link left free, so that queues stay short"),
        ParamSpec::duration("share_tick", Duration::from_us(4), "decisions without packets at low rates; 0 for none"),
    ]
}

/// Arrival strategies, by index in the parameter.
const SCALE: u64 = 0;
const RESTART: u64 = 1;

/// Use of the rate from which a queue pair counts as saturated, in hundredths.
const FULL_PERCENT: u64 = 95;

/// Use of the rate below which some of it is given back, in hundredths.
const SLACK_PERCENT: u64 = 80;

/// Number of measurements with a utilization below `SLACK_PERCENT` after which a queue pair releases part of its unused
/// rate.
const PATIENCE: u32 = 4;

/// Rate that a queue pair keeps, in quarters of its average rate.
const MARGIN_QUARTERS: u64 = 5;

/// Divisor of the capacity that gives the rate below which a rate counts as low, because packets are rare.
const LOW_RATE_DIVISOR: u64 = 25;

/// Divisor of the capacity that gives the maximum step.
const STEP_DIVISOR: u64 = 64;

/// Divisor of the target rate that gives the maximum step.
const GOAL_DIVISOR: u64 = 4;

/// Divisor of the excess that gives the maximum by which a queue pair above its max-min rate is reduced at once.
const EXCESS_DIVISOR: u64 = 8;

impl Schedule for WaterFilling {
    const NAME: &'static str = "water-filling";
    const SUMMARY: &'static str = "shares by weight, and what some do not use goes to the others (SCR 5.1)";
    const PARAMS: &'static [ParamSpec] = &params();

    fn start(params: &Params, _: &ScheduleView) -> (Self, ScheduleActions) {
        (Self::zeroed(), turn_actions(params))
    }

    fn uses_events(_: &Params) -> bool {
        true
    }

    fn on_event(&mut self, event: &ScheduleEvent, view: &ScheduleView, params: &Params) -> ScheduleActions {
        let capacity = view.capacity.scaled(1_000 - params.get(HEADROOM), 1_000).max(RATE_MIN);
        let view = &ScheduleView { capacity, ..*view };
        let before = self.rate;
        let mut actions = ScheduleActions::default();
        match event {
            ScheduleEvent::Joined => actions = self.join(view, params),
            ScheduleEvent::Served(served) => self.on_served(served, view, params, &mut actions),
            ScheduleEvent::Tick if self.rate > 0 && view.is_held => self.grow(view, params),
            ScheduleEvent::Tick => return actions,
        }
        self.rate = self.rate.clamp(floor(view, params), view.capacity.as_bps());
        if self.rate != before || *event == ScheduleEvent::Joined {
            actions.dequeue_rate = Some(Some(BitRate::bps(self.rate)));
        }
        let is_low = self.rate < view.capacity.as_bps() / LOW_RATE_DIVISOR;
        if is_low && view.is_held && view.headroom() > BitRate::ZERO && params.get(TICK) > 0 {
            actions.tick_after = Some(Duration::from_ps(params.get(TICK)).max(Duration::from_us(1)));
        }
        actions
    }
}

impl WaterFilling {
    /// Returns the actions for a queue pair that has become a member, and sets its first rate.
    fn join(&mut self, view: &ScheduleView, params: &Params) -> ScheduleActions {
        let arrival = params.get(ARRIVAL);
        let rate = if arrival == SCALE { view.weighted_fair_rate().as_bps() } else { params.get(START) };
        let restart_all = arrival == RESTART;
        *self = Self {
            rate,
            weights_seen: view.weights,
            weight_seen: view.weight,
            epoch_seen: view.epoch.wrapping_add(u32::from(restart_all)),
            ..Self::zeroed()
        };
        ScheduleActions { restart_all, is_saturated: Some(false), ..ScheduleActions::default() }
    }

    fn on_served(&mut self, served: &Served, view: &ScheduleView, params: &Params, actions: &mut ScheduleActions) {
        if self.rate == 0 {
            // Requests without data: the queue pair is no member yet.
            return;
        }
        if view.epoch != self.epoch_seen {
            (self.epoch_seen, self.rate) = (view.epoch, params.get(START));
        }
        self.scale(view, params);
        let weight = if params.get(METER) == 0 { MeterWeight::Time } else { MeterWeight::Event };
        if !self.meter.record(served.wire_bytes, served.last_at, &MeterScale::new(view.line_rate, weight)) {
            return;
        }
        let average = self.meter.rate(view.line_rate).as_bps();
        let uses = |percent| average * 100 >= self.rate * percent;
        let is_saturated = uses(FULL_PERCENT) || view.is_held && uses(SLACK_PERCENT);
        if is_saturated != view.is_saturated {
            actions.is_saturated = Some(is_saturated);
        }
        let is_held_by_control = view.control_rate.is_some_and(|rate| rate.as_bps() < self.rate);
        if is_saturated {
            self.low = 0;
            self.grow(view, params);
        } else if !uses(SLACK_PERCENT) && !is_held_by_control && !view.is_held {
            self.low += 1;
            if self.low >= PATIENCE {
                self.low = 0;
                let kept = average * MARGIN_QUARTERS / 4;
                self.rate -= self.rate.saturating_sub(kept) / 2;
            }
        } else {
            self.low = 0;
        }
        self.make_way(view);
    }

    /// Scales the rate in proportion to this queue pair's weight when the weight has changed. If the parameter
    /// `arrival` is `scale`, also reduces the rate when queue pairs that have become active have increased the sum of
    /// the weights.
    fn scale(&mut self, view: &ScheduleView, params: &Params) {
        let (before, now) = (u64::from(self.weight_seen), u64::from(view.weight));
        let mut rate = BitRate::bps(self.rate);
        if before != now {
            rate = rate.scaled(now, before.max(1));
        }
        // A change of this queue pair's weight is no arrival.
        let weights_seen = self.weights_seen.saturating_sub(before) + now;
        if params.get(ARRIVAL) == SCALE && view.weights > weights_seen {
            rate = rate.scaled(weights_seen, view.weights);
        }
        self.rate = rate.as_bps();
        (self.weights_seen, self.weight_seen) = (view.weights, view.weight);
    }

    /// Changes the rate of a queue pair that uses all of it. Below the max-min rate, it is increased by a step, if that
    /// much capacity is unallocated. Above it, it is reduced by a part of the excess when less than a step is
    /// unallocated, so that queue pairs below theirs can grow, and no more of the link is idle than that.
    fn grow(&mut self, view: &ScheduleView, params: &Params) {
        let headroom = view.headroom().as_bps();
        let goal = match params.get(MAX_MIN) {
            0 => self.rate + headroom,
            _ => view.max_min_rate(BitRate::bps(self.rate)).as_bps(),
        };
        let step = params.get(STEP).min(view.capacity.as_bps() / STEP_DIVISOR);
        // A small goal is approached by small steps: the sum of the members' steps must not be a large part of the
        // link.
        let step = step.min(goal / GOAL_DIVISOR).max(1);
        if self.rate < goal {
            self.rate += step.min(headroom).min(goal - self.rate);
        } else if headroom < step {
            self.rate -= step.min((self.rate - goal) / EXCESS_DIVISOR);
        }
    }

    /// Reduces the rate of a queue pair above its share, in proportion, when more is allocated than the capacity:
    /// because a new member received its share at once, or the capacity has shrunk.
    fn make_way(&mut self, view: &ScheduleView) {
        let excess = view.allocated.saturating_sub(view.capacity);
        if excess > BitRate::ZERO {
            let part = BitRate::bps(self.rate).scaled(excess.as_bps(), view.allocated.as_bps()).as_bps();
            self.rate -= part.min(self.rate.saturating_sub(view.weighted_fair_rate().as_bps()));
        }
    }
}

/// Returns the lowest rate of a queue pair.
fn floor(view: &ScheduleView, params: &Params) -> u64 {
    params.get(FLOOR).min(view.capacity.as_bps())
}
