//! A part of the network: nodes, and the packets in flight to them. The events of a window depend only on the state of
//! the part.

use rnic_base::Time;
use rnic_engine::Hints;

use super::NodeOrder;
use crate::host::{self, FlowEvent, Host};
use crate::network::Network;
use crate::switch::{PortHints, Switch};

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
    /// Nodes with events in a window that prefetches, in order.
    active: Vec<u32>,
    /// Prefetch hints of the next nodes, by their position in `active` modulo [`HINT_SLOTS`].
    hints: [(Hints, PortHints); HINT_SLOTS],
}

/// A window of time, and the order in which nodes run in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// End of the window: events before this time are processed.
    pub(super) horizon: Time,
    /// True when there is so much state that a node's is no longer cached when the node is simulated again, so that it
    /// is prefetched.
    pub(super) prefetches: bool,
    pub(super) order: NodeOrder,
}

impl Part {
    pub(super) fn new(hosts: Vec<Host>, switches: Vec<Switch>, network: Network) -> Self {
        Self {
            hosts,
            switches,
            network,
            flow_events: Vec::new(),
            window: None,
            active: Vec::new(),
            hints: Default::default(),
        }
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
        self.network.insert_received();
        let blocks = 0..self.network.calendar.block_count();
        match window.order {
            NodeOrder::Forward if window.prefetches => self.run_prefetched(window.horizon),
            NodeOrder::Forward => blocks.for_each(|block| self.run_block(block, window)),
            NodeOrder::Backward => blocks.rev().for_each(|block| self.run_block(block, window)),
        }
    }

    fn run_block(&mut self, block: usize, Window { horizon, order, .. }: Window) {
        let nodes = self.network.calendar.nodes_of(block, horizon);
        if nodes.is_empty() {
            return;
        }
        match order {
            NodeOrder::Forward => nodes.for_each(|node| self.run_node(node, horizon)),
            NodeOrder::Backward => nodes.rev().for_each(|node| self.run_node(node, horizon)),
        }
        self.network.calendar.settle(block);
    }

    /// Runs the nodes, and prefetches in each turn for those that follow. Which nodes have events is known at the start
    /// of the window, because what they send arrives after it.
    fn run_prefetched(&mut self, horizon: Time) {
        let mut active = core::mem::take(&mut self.active);
        active.clear();
        self.network.calendar.collect_active(horizon, &mut active);
        (0..host::STEPS as usize).for_each(|turn| self.prefetch_ahead(&active, turn, horizon));
        for (turn, node) in active.iter().enumerate() {
            self.prefetch_ahead(&active, turn + host::STEPS as usize, horizon);
            self.run_node(*node, horizon);
        }
        self.network.calendar.settle_all(&active);
        self.active = active;
    }

    /// Prefetches the state of the nodes that are simulated next. Number 0 is [`host::STEPS`] turns before the first
    /// node.
    #[inline]
    fn prefetch_ahead(&mut self, active: &[u32], turn: usize, horizon: Time) {
        let first = (turn + 1).saturating_sub(host::STEPS as usize);
        for (position, node) in (first..=turn).zip(active.get(first..active.len().min(turn + 1)).unwrap_or_default()) {
            let steps = (host::STEPS as usize + position - turn) as u32;
            let (node, (hints, ports)) = (*node as usize, &mut self.hints[position % HINT_SLOTS]);
            match self.hosts.get(node) {
                Some(host) => host.prefetch_ahead(steps, horizon, &self.network, hints),
                None => {
                    let switch = &self.switches[node - self.hosts.len()];
                    switch.prefetch_ahead(steps, horizon, &self.network, ports);
                }
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

/// Number of nodes with prefetch hints: more than the number of prefetch steps of a host.
const HINT_SLOTS: usize = 16;

const _: () = assert!(HINT_SLOTS > host::STEPS as usize);
