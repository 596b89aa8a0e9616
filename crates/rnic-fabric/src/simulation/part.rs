//! A part of the network: nodes, and what is under way to them. What it does in a window depends on nothing outside.

use rnic_base::Time;
use rnic_engine::Hints;

use super::NodeOrder;
use crate::host::{self, Host, News};
use crate::network::Network;
use crate::switch::{self, Switch};

/// A part of the network, which a [`Crew`](super::Crew) has do what happens there in a window.
#[derive(Debug)]
pub struct Part {
    pub(super) hosts: Vec<Host>,
    pub(super) switches: Vec<Switch>,
    pub(super) network: Network,
    /// What its nodes have told in this window.
    pub(super) news: Vec<News>,
    /// What there is to do.
    window: Option<Window>,
    /// What the next hosts will need, by the last digits of their numbers.
    expected: [Hints; EXPECTED],
}

/// A span of time, and how nodes are to be taken in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// All that happens before.
    pub(super) horizon: Time,
    /// There are so many connections that their state is far away when its turn comes.
    pub(super) is_crowded: bool,
    pub(super) order: NodeOrder,
}

impl Part {
    pub(super) fn new(hosts: Vec<Host>, switches: Vec<Switch>, network: Network) -> Self {
        Self { hosts, switches, network, news: Vec::new(), window: None, expected: Default::default() }
    }

    /// From now on there is `window` to do.
    pub(super) fn set_window(&mut self, window: Window) {
        self.window = Some(window);
    }

    /// Whether the window has been done.
    pub(super) fn is_done(&self) -> bool {
        self.window.is_none()
    }

    /// Does everything that happens in the window.
    pub fn run(&mut self) {
        let Some(window) = self.window.take() else { return };
        let Window { horizon, is_crowded, order } = window;
        self.network.unpack();
        if is_crowded {
            (0..host::STEPS).for_each(|turn| self.look_ahead(turn, horizon));
        }
        let blocks = 0..self.network.agenda.block_count();
        match order {
            NodeOrder::Forward => blocks.for_each(|block| self.run_block(block, window)),
            NodeOrder::Backward => blocks.rev().for_each(|block| self.run_block(block, window)),
        }
    }

    fn run_block(&mut self, block: usize, Window { horizon, is_crowded, order }: Window) {
        let nodes = self.network.agenda.nodes_of(block, horizon);
        if nodes.is_empty() {
            return;
        }
        match order {
            NodeOrder::Forward if is_crowded => nodes.for_each(|node| {
                self.look_ahead(node + host::STEPS, horizon);
                self.run_node(node, horizon);
            }),
            NodeOrder::Forward => nodes.for_each(|node| self.run_node(node, horizon)),
            NodeOrder::Backward => nodes.rev().for_each(|node| self.run_node(node, horizon)),
        }
        self.network.agenda.settle(block);
    }

    /// Has what the next nodes need brought near. Turn 0 is [`host::STEPS`] turns before that of the first node.
    fn look_ahead(&mut self, turn: u32, horizon: Time) {
        let node = |steps: u32| (turn + steps).checked_sub(host::STEPS).map(|node| node as usize);
        for (steps, index) in (1..=host::STEPS).filter_map(|steps| Some((steps, node(steps)?))) {
            if let Some(host) = self.hosts.get(index) {
                let expected = &mut self.expected[index % EXPECTED];
                host.look_ahead(steps, horizon, &self.network, expected);
            }
        }
        for (steps, index) in (1..=switch::STEPS).filter_map(|steps| Some((steps, node(steps)?))) {
            if let Some(switch) = index.checked_sub(self.hosts.len()).and_then(|index| self.switches.get(index)) {
                switch.look_ahead(steps, &self.network);
            }
        }
    }

    #[inline]
    fn run_node(&mut self, node: u32, horizon: Time) {
        if self.network.agenda.next_of(node) >= horizon {
            return;
        }
        let index = node as usize;
        match self.hosts.get_mut(index) {
            Some(host) => {
                host.run(horizon, &mut self.network);
                if !host.sessions.news.is_empty() {
                    self.news.append(&mut host.sessions.news);
                }
            }
            None => self.switches[index - self.hosts.len()].run(horizon, &mut self.network),
        }
    }
}

/// More than the steps in which a host is looked at.
const EXPECTED: usize = 16;

const _: () = assert!(EXPECTED > host::STEPS as usize);
