//! Scheduling: which queue pair sends next, the length of its turn, and its rate.
//!
//! The engine serves the queue pairs that can send in a ring, one turn each. A turn ends after a number of packets,
//! bytes or messages, whichever is first, and when nothing can be sent. A policy sets these numbers and, as SCR does
//! (section 4.2), the *dequeue rate* of each queue pair: this one value limits the load on the sender, the host bus and
//! the receiver.
//!
//! Falcon's connections are served in a separate ring, in which each sends one packet per turn: schedulers that set
//! only turns have no effect there and cannot be chosen.

use bytemuck::Pod;
use rnic_base::{BitRate, Duration, Time};

use crate::params::{Configured, ParamSpec, Params};
use crate::state::PolicyState;

/// An event for a scheduler, about one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleEvent {
    /// The queue pair is now a member of the group of queue pairs that share the link; [`ScheduleView::members`]
    /// includes it. Delivered with its first data, and again when it sends after it had left the group.
    Joined,
    /// The queue pair has sent packets: requests, or responses to the peer's Reads.
    Served(Served),
    /// The time requested with [`ScheduleActions::tick_after`] is reached.
    Tick,
}

/// Packets that a queue pair has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Number of payload bytes sent.
    pub bytes: u64,
    /// Bytes on the wire: payload, headers and framing.
    pub wire_bytes: u64,
    /// Number of packets sent.
    pub packets: u64,
    /// Time at which the last packet was sent.
    pub last_at: Time,
}

/// Read-only state that a scheduler receives with an event.
///
/// A queue pair is a *member* of those that share the link from its first data on, until it has sent none for a time
/// that the driver sets and waits neither for its dequeue rate nor its turn, or has failed. The scheduler of a queue
/// pair that is no longer a member starts anew, and its dequeue rate is lifted. The sums over members include the rates
/// that this scheduler has set until now, so a scheduler can divide the link although it never sees another queue pair:
/// it adjusts its own rate to the sums with its next event.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleView {
    /// Current time.
    pub now: Time,
    /// Rate of the local link.
    pub line_rate: BitRate,
    /// Total rate that all queue pairs may use: that of the link, or less if the driver shares the link with other
    /// NICs.
    pub capacity: BitRate,
    /// Number of queue pairs that share the link (members).
    pub members: u32,
    /// Weight of this queue pair, at least one.
    pub weight: u32,
    /// Sum of the weights of all queue pairs that share the link.
    pub weights: u64,
    /// Sum of the dequeue rates, as set by schedulers, of all queue pairs that share the link.
    pub allocated: BitRate,
    /// Sum of the weights of the queue pairs that have reported [`ScheduleActions::is_saturated`].
    pub saturated_weights: u64,
    /// Sum of the dequeue rates of the queue pairs that have reported [`ScheduleActions::is_saturated`].
    pub saturated_rates: BitRate,
    /// True when this queue pair has reported [`ScheduleActions::is_saturated`].
    pub is_saturated: bool,
    /// Number of times that a scheduler has requested [`ScheduleActions::restart_all`].
    pub epoch: u32,
    /// True when this queue pair has had to wait for its dequeue rate since its last event, or waits now. False while a
    /// lower limit, set by a user or the peer, applies.
    pub is_held: bool,
    /// Rate that congestion control permits this queue pair, if it sets one.
    pub control_rate: Option<BitRate>,
}

impl ScheduleView {
    /// Returns the view of the only queue pair of an engine with `line_rate`, at `now`.
    pub fn alone(now: Time, line_rate: BitRate) -> Self {
        Self {
            now,
            line_rate,
            capacity: line_rate,
            members: 1,
            weight: 1,
            weights: 1,
            allocated: BitRate::ZERO,
            saturated_weights: 0,
            saturated_rates: BitRate::ZERO,
            is_saturated: false,
            epoch: 0,
            is_held: false,
            control_rate: None,
        }
    }

    /// Returns this queue pair's share of the capacity in proportion to its weight, if all queue pairs used their
    /// shares.
    pub fn weighted_fair_rate(&self) -> BitRate {
        self.capacity.scaled(u64::from(self.weight), self.weights.max(u64::from(self.weight)))
    }

    /// Returns this queue pair's share, by weight, of the capacity that the unsaturated members leave to the saturated
    /// ones: its rate in the weighted max-min allocation, if it is saturated. `rate` is its current dequeue rate.
    pub fn max_min_rate(&self, rate: BitRate) -> BitRate {
        let weight = u64::from(self.weight);
        let (others_weights, others_rates) = match self.is_saturated {
            true => (self.saturated_weights.saturating_sub(weight), self.saturated_rates.saturating_sub(rate)),
            false => (self.saturated_weights, self.saturated_rates),
        };
        let unsaturated = self.allocated.saturating_sub(rate).saturating_sub(others_rates);
        self.capacity.saturating_sub(unsaturated).scaled(weight, others_weights + weight)
    }

    /// Returns the part of the capacity that is not allocated to any queue pair.
    pub fn headroom(&self) -> BitRate {
        self.capacity.saturating_sub(self.allocated)
    }
}

/// Actions that a scheduler requests for the queue pair that the event is about; `None` leaves a setting unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScheduleActions {
    /// New number of packets that the queue pair may send in a turn, 1 to [`TURN_PACKETS_MAX`].
    pub turn_packets: Option<u32>,
    /// New number of payload bytes after which a turn of the queue pair ends, at least one; initially unlimited.
    pub turn_bytes: Option<u32>,
    /// New number of messages after which a turn of the queue pair ends, at least one; initially unlimited.
    pub turn_messages: Option<u32>,
    /// New dequeue rate; `Some(None)` removes the limit. The engine limits it to the range from 1 Mbit/s to the rate of
    /// the link.
    pub dequeue_rate: Option<Option<BitRate>>,
    /// True when the queue pair uses all of its dequeue rate, and would use more.
    pub is_saturated: Option<bool>,
    /// Increments [`ScheduleView::epoch`], which all queue pairs see with their next event.
    pub restart_all: bool,
    /// Delay after which a [`ScheduleEvent::Tick`] is delivered.
    pub tick_after: Option<Duration>,
}

/// Minimum dequeue rate of a queue pair, at which a packet of 4 KB takes 33 ms; at a lower rate, timeouts would treat
/// it as lost.
pub const RATE_MIN: BitRate = BitRate::bps(1_000_000);

/// Maximum number of packets that a queue pair may send in one turn: 1 MiB at the smallest MTU.
pub const TURN_PACKETS_MAX: u32 = 4_096;

/// A scheduler. The implementing type is the private state of one queue pair.
pub trait Schedule: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunable parameters.
    const PARAMS: &'static [ParamSpec];

    /// Required: returns the state of a new queue pair, its initial rate, and how much it may send in its first turn.
    fn start(params: &Params, view: &ScheduleView) -> (Self, ScheduleActions);

    /// Required: returns whether the scheduler receives events; a static scheduler returns `false` and costs nothing at
    /// run time.
    fn uses_events(params: &Params) -> bool;

    /// Required: reacts to `event` and returns the actions to apply.
    fn on_event(&mut self, event: &ScheduleEvent, view: &ScheduleView, params: &Params) -> ScheduleActions;
}

/// A type-erased [`Schedule`] policy.
#[derive(Clone, Copy, Debug)]
pub struct SchedulePolicy {
    /// See [`Schedule::NAME`].
    pub name: &'static str,
    /// See [`Schedule::SUMMARY`].
    pub summary: &'static str,
    /// See [`Schedule::PARAMS`].
    pub params: &'static [ParamSpec],
    /// Bytes of private state per queue pair.
    pub state_bytes: usize,
    /// See [`Schedule::start`].
    pub start: fn(&Params, &ScheduleView) -> (PolicyState, ScheduleActions),
    /// See [`Schedule::uses_events`].
    pub uses_events: fn(&Params) -> bool,
    /// See [`Schedule::on_event`].
    pub on_event: fn(&mut PolicyState, &ScheduleEvent, &ScheduleView, &Params) -> ScheduleActions,
}

impl SchedulePolicy {
    /// Builds the type-erased policy of `T`.
    pub const fn of<T: Schedule>() -> Self {
        Self {
            name: T::NAME,
            summary: T::SUMMARY,
            params: T::PARAMS,
            state_bytes: size_of::<T>(),
            start: |params, view| {
                let (state, actions) = T::start(params, view);
                (PolicyState::of(state), actions)
            },
            uses_events: T::uses_events,
            on_event: |state, event, view, params| state.get_mut::<T>().on_event(event, view, params),
        }
    }

    /// Returns the type-erased policy of `T` with the defaults of its parameters.
    pub const fn configured<T: Schedule>() -> Configured<Self> {
        Configured { policy: Self::of::<T>(), params: Params::defaults(T::PARAMS) }
    }
}
