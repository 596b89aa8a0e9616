//! Scheduling: which queue pair sends next, the length of its turn, and its rate.
//!
//! The engine serves the queue pairs that can send in a ring, one turn each. A policy sets the length of a turn and, as
//! SCR does (section 4.2), the *dequeue rate* of each queue pair: that one number shapes sending, host bus and
//! receiver.
//!
//! The RoCE family uses it. Falcon's connections have a ring of their own, in which each sends one packet per turn; a
//! scheduler has no effect there and cannot be chosen.

use bytemuck::Pod;
use rnic_base::{BitRate, Duration, Time};

use crate::params::{ParamSpec, Params};
use crate::state::PolicyState;

/// An event for a scheduler, about one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleEvent {
    /// The queue pair has work to send and had none before.
    Activated,
    /// The queue pair has no work left.
    Drained,
    /// The queue pair's turn ended.
    Served {
        /// Payload bytes sent in the turn.
        bytes: u64,
    },
    /// The time requested with [`ScheduleActions::tick_after`] is reached.
    Tick,
}

/// Read-only state that a scheduler is given with an event.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleView {
    /// Current time.
    pub now: Time,
    /// Rate of the local link.
    pub line_rate: BitRate,
    /// Queue pairs that have work, this one included.
    pub active: u32,
}

/// Actions that a scheduler requests for the queue pair that the event is about; `None` leaves a setting unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScheduleActions {
    /// Packets in a turn from now on, at least one.
    pub turn_packets: Option<u32>,
    /// Dequeue rate from now on; `Some(None)` lifts the limit.
    pub dequeue_rate: Option<Option<BitRate>>,
    /// Delay after which a [`ScheduleEvent::Tick`] is delivered.
    pub tick_after: Option<Duration>,
}

/// A scheduler, as its author writes it. The implementing type is the private state of one queue pair.
pub trait Schedule: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunables.
    const PARAMS: &'static [ParamSpec];

    /// Required: returns the state of a new queue pair and its first turn and rate.
    fn start(params: &Params, view: &ScheduleView) -> (Self, ScheduleActions);

    /// Required: returns whether the scheduler receives events; a static scheduler returns `false` and costs nothing at
    /// run time.
    fn listens(params: &Params) -> bool;

    /// Required: reacts to `event` and returns the actions to apply.
    fn on_event(&mut self, event: &ScheduleEvent, view: &ScheduleView, params: &Params) -> ScheduleActions;
}

/// A type-erased [`Schedule`].
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
    /// See [`Schedule::listens`].
    pub listens: fn(&Params) -> bool,
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
            listens: T::listens,
            on_event: |state, event, view, params| state.get_mut::<T>().on_event(event, view, params),
        }
    }
}
