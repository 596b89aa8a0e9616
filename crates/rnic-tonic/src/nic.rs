//! The interface of a Tonic NIC to its host, the same for the model and for a circuit.

use crate::driver::Refused;
use crate::sets::ActiveSet;
use crate::shape::{FlowId, SegmentId};
use crate::tonic::{FlowView, Input, Tonic};
use crate::wires::{Address, FlowSetup};

/// A Tonic NIC, driven cycle by cycle: the model, or a circuit that equals it.
pub trait Nic: core::fmt::Debug + Send {
    /// Returns the number of the next cycle.
    fn now(&self) -> u64;

    /// Adds a flow; see [`Tonic::add_flow`].
    ///
    /// # Errors
    /// As stated there.
    fn add_flow(&mut self, flow: FlowId, setup: FlowSetup) -> Result<(), Refused>;

    /// Announces segments; see [`Tonic::set_limit`].
    ///
    /// # Errors
    /// As stated there.
    fn set_limit(&mut self, flow: FlowId, limit: SegmentId, last_bytes: u16) -> Result<(), Refused>;

    /// Returns the readable state of a flow. That of a circuit may be some cycles old.
    ///
    /// # Errors
    /// When the flow number is out of range.
    fn flow(&self, flow: FlowId) -> Result<FlowView, Refused>;

    /// Runs one cycle; see [`Tonic::step`].
    fn step(&mut self, input: &Input) -> Option<Address>;

    /// Returns the first cycle before `end` in which anything can change without further input; see
    /// [`Tonic::next_event`].
    fn next_event(&mut self, end: u64) -> Option<u64>;

    /// Runs the cycles before `end` until an address leaves; see [`Tonic::advance_to`].
    fn advance_to(&mut self, end: u64) -> Option<(u64, Address)>;
}

impl<S: ActiveSet + core::fmt::Debug + Send> Nic for Tonic<S> {
    fn now(&self) -> u64 {
        self.now()
    }

    fn add_flow(&mut self, flow: FlowId, setup: FlowSetup) -> Result<(), Refused> {
        self.add_flow(flow, setup)
    }

    fn set_limit(&mut self, flow: FlowId, limit: SegmentId, last_bytes: u16) -> Result<(), Refused> {
        self.set_limit(flow, limit, last_bytes)
    }

    fn flow(&self, flow: FlowId) -> Result<FlowView, Refused> {
        self.flow(flow)
    }

    fn step(&mut self, input: &Input) -> Option<Address> {
        self.step(input)
    }

    fn next_event(&mut self, end: u64) -> Option<u64> {
        self.next_event(end)
    }

    fn advance_to(&mut self, end: u64) -> Option<(u64, Address)> {
        self.advance_to(end)
    }
}

impl Nic for Box<dyn Nic> {
    fn now(&self) -> u64 {
        (**self).now()
    }

    fn add_flow(&mut self, flow: FlowId, setup: FlowSetup) -> Result<(), Refused> {
        (**self).add_flow(flow, setup)
    }

    fn set_limit(&mut self, flow: FlowId, limit: SegmentId, last_bytes: u16) -> Result<(), Refused> {
        (**self).set_limit(flow, limit, last_bytes)
    }

    fn flow(&self, flow: FlowId) -> Result<FlowView, Refused> {
        (**self).flow(flow)
    }

    fn step(&mut self, input: &Input) -> Option<Address> {
        (**self).step(input)
    }

    fn next_event(&mut self, end: u64) -> Option<u64> {
        (**self).next_event(end)
    }

    fn advance_to(&mut self, end: u64) -> Option<(u64, Address)> {
        (**self).advance_to(end)
    }
}
