//! Scheduling: which queue pair sends next, how much in its turn, and how fast.
//!
//! The engine serves the queue pairs that can send in a ring, one turn each. A policy sets the length of a turn and, as
//! SCR does (section 4.2), the *dequeue rate* of each queue pair: that one number shapes sending, host bus and
//! receiver.
//!
//! The RoCE family asks it. Falcon's connections have a ring of their own, in which each sends a packet in turn; there
//! a scheduler means nothing, and cannot be chosen.

use bytemuck::Pod;
use rnic_base::{BitRate, Duration, Time};

use crate::params::{ParamSpec, Params};
use crate::state::PolicyState;

/// What a scheduler hears, about one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleEvent {
    /// It has work and had none.
    Activated,
    /// It has no work left.
    Drained,
    /// Its turn ended.
    Served {
        /// Payload bytes it sent in the turn.
        bytes: u64,
    },
    /// The time asked for with [`ScheduleActions::tick_after`] has come.
    Tick,
}

/// What a scheduler sees.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleView {
    /// Now.
    pub now: Time,
    /// Rate of the local link.
    pub line_rate: BitRate,
    /// Queue pairs that have work, this one included.
    pub active: u32,
}

/// What a scheduler wants done, for the queue pair that the event is about; `None` leaves things as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScheduleActions {
    /// Packets in a turn from now on, at least one.
    pub turn_packets: Option<u32>,
    /// Dequeue rate from now on; `Some(None)` lifts the limit.
    pub dequeue_rate: Option<Option<BitRate>>,
    /// Send a [`ScheduleEvent::Tick`] after this long.
    pub tick_after: Option<Duration>,
}

/// A scheduler, as its author writes it. The type itself is the private state of one queue pair.
pub trait Schedule: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunables.
    const PARAMS: &'static [ParamSpec];

    /// Required: the state of a fresh queue pair and its first turn and rate.
    fn start(params: &Params, view: &ScheduleView) -> (Self, ScheduleActions);

    /// Required: whether it wants to hear any event at all; a static scheduler answers `false` and costs nothing.
    fn listens(params: &Params) -> bool;

    /// Required: reacts to `event`.
    fn on_event(&mut self, event: &ScheduleEvent, view: &ScheduleView, params: &Params) -> ScheduleActions;
}

/// A [`Schedule`] with its type forgotten.
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
    /// Forgets the type of `T`.
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
