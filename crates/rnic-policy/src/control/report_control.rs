//! Optional functions of a controller beside [`Control`], on a datapath that reports on flows: for speed, or for
//! engines that keep no state.

use super::Control;
use super::lanes::{Acks, Answers, LaneSet, StateLanes};
use super::report::{Carried, FlowReport};
use crate::params::Params;
use crate::state::PolicyState;

/// A [`Control`] whose state may travel in events and responses, or that processes several reports in one batch. An
/// implementation registers itself with [`Control::REPORTS`]; without that, these functions are not called.
pub trait ReportControl: Control {
    /// True when the controller processes several reports in a batch ([`ReportControl::on_acks`]).
    const LANES: bool = false;

    /// Optional, with [`ReportControl::LANES`]: reacts to the acknowledgements `acks` of the lanes in `set` as to the
    /// same number of reports, and writes its settings to `answers`. Returns the lanes that it has processed; the state
    /// of all others is unchanged, and they are reported one by one.
    fn on_acks<L: StateLanes<Self> + ?Sized>(
        _states: &mut L,
        _acks: &Acks,
        _set: LaneSet,
        _params: &Params,
        _answers: &mut Answers,
    ) -> LaneSet {
        0
    }

    /// Optional, with [`ReportControl::restore`]: returns the part of the state that travels with the events of a flow.
    /// For a connection with one flow that is the complete state; with several, each flow's events carry the state of
    /// that flow only. `None`, the default: this controller needs memory.
    fn carry(&self) -> Option<Carried> {
        None
    }

    /// Optional: restores the state from the values that travelled and the settings in force. [`ReportControl::carry`]
    /// of the previous state, together with the response given with it, lead to a state that makes the same decisions.
    /// With the first event of a connection's second and later flows, all values that travelled are zero, except the
    /// values of [`Carried`] for the window towards the NIC: they belong to the connection, and come from the last
    /// response for any flow.
    fn restore(_carried: &Carried, _report: &FlowReport, _params: &Params) -> Option<Self> {
        None
    }
}

/// A type-erased [`ReportControl`].
#[derive(Clone, Copy, Debug)]
pub struct ReportPolicy {
    /// See [`ReportControl::LANES`].
    pub lanes: bool,
    /// See [`ReportControl::on_acks`].
    pub on_acks: fn(&mut dyn StateLanes<PolicyState>, &Acks, LaneSet, &Params, &mut Answers) -> LaneSet,
    /// See [`ReportControl::carry`].
    pub carry: fn(&mut PolicyState) -> Option<Carried>,
    /// See [`ReportControl::restore`].
    pub restore: fn(&Carried, &FlowReport, &Params) -> Option<PolicyState>,
}

impl ReportPolicy {
    /// The policy of a controller that implements only [`Control`]: one report at a time, and a state that does not
    /// travel.
    pub const NONE: Self = Self { lanes: false, on_acks: |_, _, _, _, _| 0, carry: |_| None, restore: |_, _, _| None };

    /// Builds the type-erased policy of `T`.
    pub const fn of<T: ReportControl>() -> Self {
        Self {
            lanes: T::LANES,
            on_acks: |states, acks, set, params, answers| T::on_acks(&mut Typed(states), acks, set, params, answers),
            carry: |state| state.get_mut::<T>().carry(),
            restore: |carried, report, params| T::restore(carried, report, params).map(PolicyState::of),
        }
    }
}

/// Access to the lanes' states with their type restored.
struct Typed<'a>(&'a mut dyn StateLanes<PolicyState>);

impl<T: bytemuck::Pod> StateLanes<T> for Typed<'_> {
    #[inline]
    fn state(&mut self, lane: usize) -> &mut T {
        self.0.state(lane).get_mut::<T>()
    }
}
