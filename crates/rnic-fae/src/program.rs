//! The program of an engine: a control policy that processes reports, selected by name or by type.
//!
//! A program selected by name ([`ErasedPolicy`]) is chosen at run time and called through a function pointer, and its
//! state is limited to the 64 bytes of the policy contract. A program selected by type ([`Typed`]) is compiled into
//! the engine, and its state may have any size: in a table, a larger state only costs memory and fetching (the
//! paper's reason for the stateful form).

use core::marker::PhantomData;

use bytemuck::Pod;
use rnic_policy::Configured;
use rnic_policy::control::lanes::{Acks, LaneSet, ResponseLanes, StateLanes};
use rnic_policy::control::report::{Carried, FlowReport};
use rnic_policy::{ControlActions, ControlEvent, ControlPolicy, ControlView, Params, PolicyState, ReportControl};

/// A program that runs in the engine.
pub trait Program {
    /// The program's state for one connection, when the engine stores it.
    type State: Pod;

    /// Returns `true` if the program processes reports; otherwise it cannot run in an engine.
    fn understands_reports(&self) -> bool;

    /// Returns `true` if the program can process several reports in a batch.
    fn has_lanes(&self) -> bool;

    /// Returns the state of a new connection, and its initial actions.
    fn start(&self, view: &ControlView) -> (Self::State, ControlActions);

    /// Reacts to a report and returns the actions.
    fn on_event(&self, state: &mut Self::State, event: &ControlEvent, view: &ControlView) -> ControlActions;

    /// Reacts to the acknowledgements of a batch whose positions (lanes) are in `set`; returns the set of those that it
    /// has processed.
    fn on_acks(
        &self,
        states: &mut impl StateLanes<Self::State>,
        acks: &Acks,
        set: LaneSet,
        answers: &mut ResponseLanes,
    ) -> LaneSet;

    /// Returns the state to be carried in the response; `None` if the program needs state in a table.
    fn carry(&self, state: &mut Self::State) -> Option<Carried>;

    /// Restores the state from `carried`, the state carried in an event.
    fn restore(&self, carried: &Carried, report: &FlowReport) -> Option<Self::State>;
}

/// A type-erased congestion control policy.
#[derive(Clone, Copy, Debug)]
pub struct ErasedPolicy(pub Configured<ControlPolicy>);

impl Program for ErasedPolicy {
    type State = PolicyState;

    fn understands_reports(&self) -> bool {
        self.0.policy.takes_reports(&self.0.params)
    }

    fn has_lanes(&self) -> bool {
        self.0.policy.reports.lanes
    }

    fn start(&self, view: &ControlView) -> (PolicyState, ControlActions) {
        (self.0.policy.start_on_flows)(&self.0.params, view)
    }

    #[inline(always)]
    fn on_event(&self, state: &mut PolicyState, event: &ControlEvent, view: &ControlView) -> ControlActions {
        (self.0.policy.on_event)(state, event, view, &self.0.params)
    }

    #[inline(always)]
    fn on_acks(
        &self,
        states: &mut impl StateLanes<PolicyState>,
        acks: &Acks,
        set: LaneSet,
        answers: &mut ResponseLanes,
    ) -> LaneSet {
        (self.0.policy.reports.on_acks)(states, acks, set, &self.0.params, answers)
    }

    #[inline(always)]
    fn carry(&self, state: &mut PolicyState) -> Option<Carried> {
        (self.0.policy.reports.carry)(state)
    }

    #[inline(always)]
    fn restore(&self, carried: &Carried, report: &FlowReport) -> Option<PolicyState> {
        (self.0.policy.reports.restore)(carried, report, &self.0.params)
    }
}

/// A policy with its static type.
#[derive(Clone, Copy, Debug)]
pub struct Typed<C> {
    params: Params,
    policy: PhantomData<fn() -> C>,
}

impl<C: ReportControl> Typed<C> {
    /// Creates the policy with `params`.
    pub const fn new(params: Params) -> Self {
        Self { params, policy: PhantomData }
    }
}

impl<C: ReportControl> Program for Typed<C> {
    type State = C;

    fn understands_reports(&self) -> bool {
        C::interest(&self.params).reports
    }

    fn has_lanes(&self) -> bool {
        C::LANES
    }

    fn start(&self, view: &ControlView) -> (C, ControlActions) {
        C::start(&self.params, view)
    }

    #[inline(always)]
    fn on_event(&self, state: &mut C, event: &ControlEvent, view: &ControlView) -> ControlActions {
        state.on_event(event, view, &self.params)
    }

    #[inline(always)]
    fn on_acks(
        &self,
        states: &mut impl StateLanes<C>,
        acks: &Acks,
        set: LaneSet,
        answers: &mut ResponseLanes,
    ) -> LaneSet {
        C::on_acks(states, acks, set, &self.params, answers)
    }

    #[inline(always)]
    fn carry(&self, state: &mut C) -> Option<Carried> {
        state.carry()
    }

    #[inline(always)]
    fn restore(&self, carried: &Carried, report: &FlowReport) -> Option<C> {
        C::restore(carried, report, &self.params)
    }
}
