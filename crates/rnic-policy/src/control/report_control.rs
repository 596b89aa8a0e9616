//! What a controller may do beside [`Control`], on a datapath that reports on flows: all of it is for speed, or for
//! engines that keep no state.

use super::Control;
use super::lanes::{Acks, Answers, LaneSet, StateLanes};
use super::report::{Carried, FlowReport};
use crate::params::Params;
use crate::state::PolicyState;

/// A [`Control`] whose state may travel, or that works on several reports at once. Whoever implements it says so with
/// [`Control::REPORTS`]; without that nobody asks.
pub trait ReportControl: Control {
    /// Whether it works on several reports side by side ([`ReportControl::on_acks`]).
    const LANES: bool = false;

    /// Optional, with [`ReportControl::LANES`]: reacts to the acknowledgements `acks` of the lanes in `set` as to so
    /// many reports, and says what it wants in `answers`. Answers which lanes it has dealt with; the state of all
    /// others is as it was, and they are reported one by one.
    fn on_acks<L: StateLanes<Self> + ?Sized>(
        _states: &mut L,
        _acks: &Acks,
        _set: LaneSet,
        _params: &Params,
        _answers: &mut Answers,
    ) -> LaneSet {
        0
    }

    /// Optional, with [`ReportControl::restore`]: what of the state travels with the events of a flow. Of a
    /// connection's only flow that is all of it; of several, each knows of itself. `None`, the default: this controller
    /// needs a memory.
    fn carry(&self) -> Option<Carried> {
        None
    }

    /// Optional: the state again, from what travelled and what is in force. [`ReportControl::carry`] of the state
    /// before and the answer given with it lead to a state that decides the same. With the first event of a
    /// connection's second flow, and of those that follow, nothing but zeros has travelled, save what [`Carried`] says
    /// of the window towards the NIC: that is the connection's, and comes from the last answer to any flow.
    fn restore(_carried: &Carried, _report: &FlowReport, _params: &Params) -> Option<Self> {
        None
    }
}

/// A [`ReportControl`] with its type forgotten.
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
    /// That of a controller that is a [`Control`] and no more: one report at a time, and a state that stays.
    pub const NONE: Self = Self { lanes: false, on_acks: |_, _, _, _, _| 0, carry: |_| None, restore: |_, _, _| None };

    /// Forgets the type of `T`.
    pub const fn of<T: ReportControl>() -> Self {
        Self {
            lanes: T::LANES,
            on_acks: |states, acks, set, params, answers| T::on_acks(&mut Typed(states), acks, set, params, answers),
            carry: |state| state.get_mut::<T>().carry(),
            restore: |carried, report, params| T::restore(carried, report, params).map(PolicyState::of),
        }
    }
}

/// States whose type is known again.
struct Typed<'a>(&'a mut dyn StateLanes<PolicyState>);

impl<T: bytemuck::Pod> StateLanes<T> for Typed<'_> {
    #[inline]
    fn state(&mut self, lane: usize) -> &mut T {
        self.0.state(lane).get_mut::<T>()
    }
}
