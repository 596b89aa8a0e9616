//! All parts of a network: runs a window in each, and finds nodes by their number in the complete network.

use rnic_base::Time;

use super::part::{Part, Window};
use super::partition::{NodePosition, Partition};
use crate::host::{FlowEvent, Host};
use crate::switch::Switch;

/// Runs the windows of the parts of a network. The fabric starts no threads: its caller may provide them.
///
/// # Examples
/// ```
/// use rnic_fabric::simulation::{PartRunner, Part};
///
/// struct Threads;
///
/// impl PartRunner for Threads {
///     fn run(&mut self, parts: &mut [Part]) {
///         std::thread::scope(|scope| parts.iter_mut().for_each(|part| drop(scope.spawn(|| part.run()))));
///     }
/// }
/// ```
pub trait PartRunner: Send {
    /// Calls [`Part::run`] once for each of `parts`, in any order or concurrently, and returns when all are done. The
    /// order of `parts` must not be changed.
    fn run(&mut self, parts: &mut [Part]);
}

/// Simulates one part of the network after the other.
#[derive(Debug)]
struct SequentialRunner;

impl PartRunner for SequentialRunner {
    fn run(&mut self, parts: &mut [Part]) {
        parts.iter_mut().for_each(Part::run);
    }
}

/// The parts of a network, and the positions of the nodes in them.
pub(super) struct Parts {
    parts: Vec<Part>,
    /// For each host: the part of the network to which it belongs, and its index in that part.
    hosts: Vec<(usize, usize)>,
    /// For each switch: the part of the network to which it belongs, and its index in that part.
    switches: Vec<(usize, usize)>,
    runner: Box<dyn PartRunner>,
}

impl Parts {
    /// Combines `parts`, which were created as defined by `partition`.
    pub(super) fn new(parts: Vec<Part>, partition: &Partition) -> Self {
        let (hosts, switches) = partition.positions().split_at(parts.iter().map(|part| part.hosts.len()).sum());
        let host = |position: &NodePosition| (usize::from(position.part), position.node as usize);
        let switch = |position: &NodePosition| {
            let part = usize::from(position.part);
            (part, position.node as usize - parts[part].hosts.len())
        };
        let (hosts, switches) = (hosts.iter().map(host).collect(), switches.iter().map(switch).collect());
        Self { parts, hosts, switches, runner: Box::new(SequentialRunner) }
    }

    /// Makes `runner` run the parts.
    pub(super) fn set_runner(&mut self, runner: Box<dyn PartRunner>) {
        self.runner = runner;
    }

    /// Returns the number of parts.
    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the time of the earliest event of any node.
    pub(super) fn earliest(&self) -> Time {
        self.parts.iter().map(|part| part.network.earliest()).min().expect("there is a part")
    }

    /// Processes all events before the horizon of `window`, and moves packets from part to part.
    pub(super) fn run(&mut self, window: Window) {
        self.parts.iter_mut().for_each(|part| part.set_window(window));
        match &mut self.parts[..] {
            [only] => return only.run(),
            parts => self.runner.run(parts),
        }
        let is_done_and_in_order = |(part, number): (&Part, u16)| part.is_done() && part.network.part() == number;
        assert!(
            self.parts.iter().zip(0..).all(is_done_and_in_order),
            "the runner skipped a part or changed the order of parts"
        );
        for first in 0..self.parts.len() {
            for second in first + 1..self.parts.len() {
                let both = self.parts.get_disjoint_mut([first, second]).expect("the indices differ");
                let [first, second] = both.map(|part| &mut part.network);
                first.take_transfer(second);
                second.take_transfer(first);
            }
        }
    }

    /// Appends the reports of nodes to `flow_events`.
    pub(super) fn collect_flow_events(&mut self, flow_events: &mut Vec<FlowEvent>) {
        self.parts.iter_mut().for_each(|part| flow_events.append(&mut part.flow_events));
    }

    /// Returns the number of packets in flight.
    pub(super) fn in_flight_count(&self) -> usize {
        self.parts.iter().map(|part| part.network.in_flight_count()).sum()
    }

    /// Returns the number of entries on links.
    pub(super) fn on_links(&self) -> usize {
        self.parts.iter().map(|part| part.network.on_links()).sum()
    }

    /// Returns the number of hosts.
    pub(super) fn host_count(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn host(&self, host: u32) -> &Host {
        let (part, index) = self.hosts[host as usize];
        &self.parts[part].hosts[index]
    }

    pub(super) fn host_mut(&mut self, host: u32) -> &mut Host {
        let (part, index) = self.hosts[host as usize];
        &mut self.parts[part].hosts[index]
    }

    /// Registers an event of `host` at `time`, which may be earlier than its present next event.
    pub(super) fn lower(&mut self, host: u32, time: Time) {
        let (part, index) = self.hosts[host as usize];
        self.parts[part].network.calendar.lower(index as u32, time);
    }

    /// Returns all hosts, in order.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> + Clone {
        self.parts.iter().flat_map(|part| &part.hosts)
    }

    /// Returns all hosts, in order, with mutable access.
    pub(super) fn hosts_mut(&mut self) -> impl Iterator<Item = &mut Host> {
        self.parts.iter_mut().flat_map(|part| &mut part.hosts)
    }

    pub(super) fn switch(&self, switch: usize) -> &Switch {
        let (part, index) = self.switches[switch];
        &self.parts[part].switches[index]
    }

    pub(super) fn switch_mut(&mut self, switch: usize) -> &mut Switch {
        let (part, index) = self.switches[switch];
        &mut self.parts[part].switches[index]
    }

    /// Returns all switches, in order.
    pub(super) fn switches(&self) -> impl Iterator<Item = &Switch> + Clone {
        (0..self.switches.len()).map(|switch| self.switch(switch))
    }

    /// Returns all switches, part by part, with mutable access.
    pub(super) fn switches_mut(&mut self) -> impl Iterator<Item = &mut Switch> {
        self.parts.iter_mut().flat_map(|part| &mut part.switches)
    }

    /// Returns one part, for tests that inject an error.
    #[cfg(test)]
    pub(super) fn part_mut(&mut self, part: usize) -> &mut Part {
        &mut self.parts[part]
    }
}
