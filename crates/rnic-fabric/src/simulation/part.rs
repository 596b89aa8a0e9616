//! A part of the network: nodes, and the packets in flight to them. The events of a window depend only on the state of
//! the part.

use rnic_base::Time;
use rnic_engine::Hints;

use super::NodeOrder;
use crate::host::{self, FlowEvent, Host};
use crate::network::Network;
use crate::switch::{self, Switch};

/// A partition of the network for parallel simulation; a [`PartRunner`](super::PartRunner) advances all partitions, one
/// time window after another.
#[derive(Debug)]
pub struct Part {
    pub(super) hosts: Vec<Host>,
    pub(super) switches: Vec<Switch>,
    pub(super) network: Network,
    /// Reports of the part's nodes about flows in this window.
    pub(super) flow_events: Vec<FlowEvent>,
    /// The window to run; `None` when it has been run.
    window: Option<Window>,
    /// Prefetch hints of the next hosts, by host number modulo [`HINT_SLOTS`].
    hints: [Hints; HINT_SLOTS],
}

/// A window of time, and the order in which nodes run in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// End of the window: events before this time are processed.
    pub(super) horizon: Time,
    /// True when there are so many connections that their state is no longer cached when a host is simulated again, so
    /// that it is prefetched.
    pub(super) prefetches: bool,
    pub(super) order: NodeOrder,
}

impl Part {
    pub(super) fn new(hosts: Vec<Host>, switches: Vec<Switch>, network: Network) -> Self {
        Self { hosts, switches, network, flow_events: Vec::new(), window: None, hints: Default::default() }
    }

    /// Sets the next window to run.
    pub(super) fn set_window(&mut self, window: Window) {
        self.window = Some(window);
    }

    /// Returns whether the window has been run.
    pub(super) fn is_done(&self) -> bool {
        self.window.is_none()
    }

    /// Processes all events in the time window that has been set; does nothing without one.
    pub fn run(&mut self) {
        let Some(window) = self.window.take() else { return };
        let Window { horizon, prefetches, order } = window;
        self.network.insert_received();
        if prefetches {
            (0..host::STEPS).for_each(|turn| self.prefetch_ahead(turn, horizon));
        }
        let blocks = 0..self.network.calendar.block_count();
        match order {
            NodeOrder::Forward => blocks.for_each(|block| self.run_block(block, window)),
            NodeOrder::Backward => blocks.rev().for_each(|block| self.run_block(block, window)),
        }
    }

    fn run_block(&mut self, block: usize, Window { horizon, prefetches, order }: Window) {
        let nodes = self.network.calendar.nodes_of(block, horizon);
        if nodes.is_empty() {
            return;
        }
        match order {
            NodeOrder::Forward if prefetches => nodes.for_each(|node| {
                self.prefetch_ahead(node + host::STEPS, horizon);
                self.run_node(node, horizon);
            }),
            NodeOrder::Forward => nodes.for_each(|node| self.run_node(node, horizon)),
            NodeOrder::Backward => nodes.rev().for_each(|node| self.run_node(node, horizon)),
        }
        self.network.calendar.settle(block);
    }

    /// Prefetches the state of the nodes that are simulated next. Number 0 is [`host::STEPS`] nodes before the first
    /// node.
    fn prefetch_ahead(&mut self, turn: u32, horizon: Time) {
        let node = |steps: u32| (turn + steps).checked_sub(host::STEPS).map(|node| node as usize);
        for (steps, index) in (1..=host::STEPS).filter_map(|steps| Some((steps, node(steps)?))) {
            if let Some(host) = self.hosts.get(index) {
                let hints = &mut self.hints[index % HINT_SLOTS];
                host.prefetch_ahead(steps, horizon, &self.network, hints);
            }
        }
        for (steps, index) in (1..=switch::STEPS).filter_map(|steps| Some((steps, node(steps)?))) {
            if let Some(switch) = index.checked_sub(self.hosts.len()).and_then(|index| self.switches.get(index)) {
                switch.prefetch_ahead(steps, &self.network);
            }
        }
    }

    #[inline]
    fn run_node(&mut self, node: u32, horizon: Time) {
        if self.network.calendar.next_of(node) >= horizon {
            return;
        }
        let index = node as usize;
        match self.hosts.get_mut(index) {
            Some(host) => {
                host.run(horizon, &mut self.network);
                if !host.sessions.flow_events.is_empty() {
                    self.flow_events.append(&mut host.sessions.flow_events);
                }
            }
            None => self.switches[index - self.hosts.len()].run(horizon, &mut self.network),
        }
    }
}

/// Number of hosts with prefetch hints: more than the number of prefetch steps of a host.
const HINT_SLOTS: usize = 16;

const _: () = assert!(HINT_SLOTS > host::STEPS as usize);
