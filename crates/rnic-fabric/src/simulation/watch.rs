//! Observation of the flows of a run by its caller: the engines at both ends, and the transport of the sender.

use std::sync::Arc;

use rnic_engine::{Engine, Transport};
use rnic_wire::Qpn;

use super::Simulation;
use crate::workload::Operation;

/// A flow and the queue pairs that it has been given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchedFlow {
    /// Number of the flow: flows are numbered in the order of (start, source).
    pub flow: u32,
    /// Sender and receiver.
    pub hosts: [u32; 2],
    /// Queue pairs at the sender and at the receiver.
    pub qpns: [Qpn; 2],
}

/// A caller that watches flows ([`watch_flows`]).
pub trait FlowWatch: Send {
    /// Returns the transport that the sender of `flow` uses in place of the `planned` one, if it is another one. Its
    /// decisions must be the same.
    fn transport(&mut self, flow: u32, operation: Operation, planned: &Arc<Transport>) -> Option<Arc<Transport>>;

    /// Receives the engine of one end of a flow whose queue pairs have been created: `end` 0 is the sender.
    fn opened(&mut self, flow: &WatchedFlow, end: usize, engine: &mut Engine);

    /// Notes that `flow` is done at both ends, and its queue pairs are destroyed.
    fn closed(&mut self, flow: u32);
}

/// Shows every flow of `simulation` to `watch` when its queue pairs are created, before anything is posted. Queue pairs
/// that do not belong to flows, such as those of scripts, are not shown.
pub fn watch_flows(simulation: &mut Simulation, watch: Box<dyn FlowWatch>) {
    simulation.flow_watch = Some(watch);
}

/// Shows a flow to the watch, if there is one.
pub(super) fn show(simulation: &mut Simulation, flow: &WatchedFlow) {
    let Some(watch) = &mut simulation.flow_watch else { return };
    for (end, host) in flow.hosts.into_iter().enumerate() {
        watch.opened(flow, end, &mut simulation.parts.host_mut(host).engine);
    }
}

/// Returns the transport of a group for both ends of a connection.
pub(super) fn planned_transports(simulation: &Simulation, group: u32) -> [Arc<Transport>; 2] {
    [(); 2].map(|()| Arc::clone(&simulation.transports[group as usize]))
}

/// Does the same for a flow, whose sender may be watched.
pub(super) fn transports_of(
    simulation: &mut Simulation,
    flow: u32,
    group: u32,
    operation: Operation,
) -> [Arc<Transport>; 2] {
    let [planned, receiver] = planned_transports(simulation, group);
    let own = simulation.flow_watch.as_mut().and_then(|watch| watch.transport(flow, operation, &planned));
    [own.unwrap_or(planned), receiver]
}
