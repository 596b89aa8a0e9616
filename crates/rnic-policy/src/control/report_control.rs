//! Optional functions of a controller in addition to [`Control`], on a datapath that reports on flows: for speed, or
//! for engines that keep no state.

use super::Control;
use super::lanes::{Acks, LaneSet, ResponseLanes, StateLanes};
use super::report::{Carried, FlowReport};
use crate::params::Params;
use crate::state::PolicyState;

/// A [`Control`] whose state may be carried in events and responses, or that processes several reports in one batch.
/// An implementation registers itself with [`Control::REPORTS`]; without that, these functions are not called.
pub trait ReportControl: Control {
    /// True when the controller processes several reports in a batch ([`ReportControl::on_acks`]).
    const LANES: bool = false;

    /// Optional, with [`ReportControl::LANES`]: processes the acknowledgements `acks` of the lanes in `set` like as
    /// many separate reports, and writes the settings to `answers`. Returns the lanes that it has processed; the state
    /// of all others is unchanged, and they are reported one by one.
    fn on_acks<L: StateLanes<Self> + ?Sized>(
        _states: &mut L,
        _acks: &Acks,
        _set: LaneSet,
        _params: &Params,
        _answers: &mut ResponseLanes,
    ) -> LaneSet {
        0
    }

    /// Optional, with [`ReportControl::restore`]: returns the part of the state that is carried in the events of a
    /// flow. For a connection with one flow this is the complete state; with several, each flow's events carry the
    /// state of that flow only. Returns `None`, the default, for a controller whose state must be stored by the
    /// engine.
    fn carry(&self) -> Option<Carried> {
        None
    }

    /// Optional: restores the state from the carried values and the settings in force. The values that
    /// [`ReportControl::carry`] returned for the previous state, together with the response given with it, must lead
    /// to a state that makes the same decisions. In the first event of a connection's second and later flows, all
    /// carried values are zero, except those values of [`Carried`] that concern the window towards the NIC: they
    /// belong to the connection, and are taken from the last response for any flow.
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
    pub on_acks: fn(&mut dyn StateLanes<PolicyState>, &Acks, LaneSet, &Params, &mut ResponseLanes) -> LaneSet,
    /// See [`ReportControl::carry`].
    pub carry: fn(&mut PolicyState) -> Option<Carried>,
    /// See [`ReportControl::restore`].
    pub restore: fn(&Carried, &FlowReport, &Params) -> Option<PolicyState>,
}

impl ReportPolicy {
    /// The policy of a controller that implements only [`Control`]: one report at a time, and a state that is not
    /// carried in events.
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

/// Access to the states of a batch of connections, with their type restored.
struct Typed<'a>(&'a mut dyn StateLanes<PolicyState>);

impl<T: bytemuck::Pod> StateLanes<T> for Typed<'_> {
    #[inline]
    fn state(&mut self, lane: usize) -> &mut T {
        self.0.state(lane).get_mut::<T>()
    }
}
