//! The run: nodes in windows, flows at their edges.
//!
//! # Windows
//!
//! Every link delays what it carries by at least L, the *lookahead*. Let t be the earliest event of any node. Whatever
//! a node sends at or after t arrives at its neighbour at or after t + L, the *horizon*. So each node may do all it has
//! to do before the horizon without looking at any other: in its own order of time, with its state in the cache, and in
//! whatever order the nodes are taken. Then the next window begins at the then earliest event. (This is the
//! conservative time window of parallel simulation, Lubachevsky 1989, used for locality; nodes could also run on
//! several threads.)
//!
//! A test takes the nodes in two orders and compares trace hashes. The hash is one per node, combined in the order of
//! nodes.
//!
//! # Flows
//!
//! Connections are made and ended between windows, by the simulation, out of band and without delay: at the beginning
//! of a window for every flow that starts in it (so the receiving queue pair is there at least one link delay before a
//! packet can come), and at the end of the window in which both sides are done. Both happen in the order of (time,
//! source), not of execution. Queue pair numbers are dense per host and used again only after many others.

mod connect;
mod finish;
mod manual;
mod slices;
mod stall;

use core::ops::ControlFlow;

use rnic_base::{Duration, RandomStream, RandomStreams, Time};
use rnic_engine::{Engine, EngineConfig, Transport};
use std::sync::Arc;

use crate::agenda::{Agenda, NEVER};
use crate::check::Violations;
use crate::fault::{FaultChain, matches};
use crate::host::SlowHostPlan;
use crate::host::nic::Nic;
use crate::host::slow::SlowMemory;
use crate::host::{self, Carriage, Expected, FalconSide, Host, News, NvmeParts, NvmeSide};
use crate::link::{GROUP, LinkEnd, Links};
use crate::packets::{FalconPackets, Packets};
use crate::plan::{Plan, PlanError};
use crate::port::{Network, Port};
use crate::report::Report;
use crate::route::Route;
use crate::slots::Slots;
use crate::switch::{self, Switch};
use crate::topology::distance::{self, Distances};
use crate::topology::{LinkClass, LinkPoint, Paths, Topology};
use crate::workload::{Source, WorkloadPlan};

use connect::{Flow, Live, Numbers};
use slices::Slicer;
use stall::Watch;

pub use manual::{Capture, QueuePairSpec};

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Simulated time.
    pub now: Time,
    /// Flows that have started.
    pub flows_started: u64,
    /// Flows that are done.
    pub flows_done: u64,
}

/// In which order the nodes of a window are taken. It makes no difference; a test shows that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeOrder {
    /// Lowest number first.
    Forward,
    /// Highest number first.
    Backward,
}

/// A run of a plan.
pub struct Simulation {
    plan: Plan,
    seed: u64,
    network: Network,
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    paths: Paths,
    transport: Arc<Transport>,
    source: Box<dyn Source>,
    flows: Vec<Flow>,
    live: Slots<Live>,
    numbers: Vec<Numbers>,
    first_psns: RandomStream,
    /// What nodes have told in this window.
    news: Vec<News>,
    violations: Violations,
    watch: Watch,
    lookahead: Duration,
    /// Everything before has happened.
    now: Time,
    order: NodeOrder,
    windows: u64,
    /// There are so many connections that their state is far away when its turn comes.
    is_crowded: bool,
    /// What the next hosts will need, by the last digits of their numbers.
    expected: [Expected; EXPECTED],
    capture: Option<Box<dyn manual::CaptureSink>>,
    /// Measures slices, where the plan has any.
    slicer: Option<Box<Slicer>>,
}

impl Simulation {
    /// Builds the network of `plan`; every random number follows from `seed`.
    ///
    /// # Errors
    /// When the plan cannot be run.
    pub fn new(plan: &Plan, seed: u64) -> Result<Self, PlanError> {
        plan.check()?;
        let streams = RandomStreams::new(seed);
        let topology = plan.topology.build();
        let profile = plan.transport.clone();
        let transport = Transport::new(profile).map_err(rnic_transports::SelectError::from)?;
        let distances = distance::sizes(&topology);
        let builder = Builder { plan, streams: &streams, topology: &topology, distances };
        let (hosts, switches, rings) = builder.nodes();
        let with_bytes = plan.checked_payload || plan.encoded;
        let host_count = hosts.len();
        let mut simulation = Self {
            network: Network {
                links: Links::new(rings),
                agenda: Agenda::new(topology.node_count()),
                packets: Packets::new(with_bytes),
                falcon_packets: FalconPackets::new(with_bytes),
            },
            hosts,
            switches,
            paths: Paths::new(&topology),
            transport: Arc::new(transport),
            source: plan.workload.source(topology.hosts, plan.host_links.rate, &streams),
            flows: Vec::new(),
            live: Slots::default(),
            numbers: vec![Numbers::default(); host_count],
            first_psns: streams.stream("connection/psn"),
            news: Vec::new(),
            violations: Violations::default(),
            watch: Watch::new(plan.run.stall_after),
            lookahead: builder.lookahead(),
            now: Time::ZERO,
            order: NodeOrder::Forward,
            windows: 0,
            is_crowded: false,
            expected: Default::default(),
            capture: None,
            slicer: plan.run.slice.map(|slice| Box::new(Slicer::new(slice, &topology))),
            plan: plan.clone(),
            seed,
        };
        simulation.begin_nvme();
        let steady = simulation.steady_time();
        simulation.hosts.iter_mut().for_each(|host| host.sessions.steady = steady);
        Ok(simulation)
    }

    /// Takes the nodes of each window in another order.
    pub fn set_node_order(&mut self, order: NodeOrder) {
        self.order = order;
    }

    /// Runs to the end: until every flow is done and nothing is under way, or until the plan's limit, or until
    /// `progress`, which is called now and then, breaks off.
    pub fn run(&mut self, progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Report {
        loop {
            let next = self.next_event();
            if next == NEVER || next >= self.plan.run.limit {
                break;
            }
            self.window(next);
            if self.watch.is_due(self.now) && self.has_stalled() {
                break;
            }
            self.windows += 1;
            if self.windows.is_multiple_of(PROGRESS_WINDOWS) && progress(&self.progress()).is_break() {
                break;
            }
        }
        self.cut_slices(self.now);
        self.report()
    }

    /// Hosts that use a drive have something to do from the beginning on.
    fn begin_nvme(&mut self) {
        for (host, number) in self.hosts.iter().zip(0..) {
            if host.nvme.is_some() {
                self.network.agenda.lower(number, Time::ZERO);
            }
        }
    }

    fn progress(&self) -> Progress {
        let flows_started = self.flows.len() as u64;
        Progress { now: self.now, flows_started, flows_done: flows_started - self.live.len() as u64 }
    }

    fn next_event(&self) -> Time {
        self.network.agenda.earliest().min(self.source.next_start().unwrap_or(NEVER))
    }

    /// Does everything from `start`, the earliest event, to the horizon.
    fn window(&mut self, start: Time) {
        self.cut_slices(start);
        let horizon = start + self.lookahead;
        self.open_flows(horizon);
        let speaks_falcon = self.plan.transport.protocol.falcon().is_some();
        self.is_crowded = speaks_falcon && self.live.len() > CROWD * self.hosts.len();
        if self.is_crowded {
            (0..host::STEPS).for_each(|turn| self.look_ahead(turn, horizon));
        }
        let blocks = 0..self.network.agenda.block_count();
        match self.order {
            NodeOrder::Forward => blocks.for_each(|block| self.run_block(block, horizon)),
            NodeOrder::Backward => blocks.rev().for_each(|block| self.run_block(block, horizon)),
        }
        self.now = horizon;
        self.close_flows();
        self.write_capture();
    }

    fn run_block(&mut self, block: usize, horizon: Time) {
        let nodes = self.network.agenda.nodes_of(block, horizon);
        if nodes.is_empty() {
            return;
        }
        match self.order {
            NodeOrder::Forward if self.is_crowded => nodes.for_each(|node| {
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

/// Makes nodes and their ports.
struct Builder<'b> {
    plan: &'b Plan,
    streams: &'b RandomStreams,
    topology: &'b Topology,
    distances: Vec<(u32, u8)>,
}

impl Builder<'_> {
    /// Hosts, switches, and how many rings their ports have.
    fn nodes(&self) -> (Vec<Host>, Vec<Switch>, usize) {
        let neighbours = self.topology.neighbours();
        let (first_rings, rings) = self.first_rings();
        let ports_of = |node: u32| -> Vec<Port> {
            let ports = neighbours[node as usize].iter().zip(0..);
            ports
                .map(|((there, class), port)| self.port(LinkPoint { node, port }, *there, *class, &first_rings))
                .collect()
        };
        let hosts = (0..self.topology.hosts).map(|host| {
            let port = ports_of(host).pop().expect("a host has a port");
            self.host(host, first_rings[host as usize], port)
        });
        let hosts = hosts.collect();
        let switches = self.topology.switches.iter().zip(self.topology.hosts..).map(|(spec, node)| {
            let salt = self.streams.stream(&format!("ecmp/{}", spec.name)).bits();
            let plan = self.plan.switch.as_ref().expect("a topology with switches has a plan for them");
            let route = Route::new(&spec.route, salt);
            let mut switch = Switch::new(node, first_rings[node as usize], route, ports_of(node), plan);
            if let Some(ecn) = &plan.ecn {
                switch.set_marking(ecn, self.streams.stream(&format!("ecn/{}", spec.name)));
            }
            switch
        });
        (hosts, switches.collect(), rings)
    }

    /// The first ring of every node: hosts one after the other, switches with whole groups.
    fn first_rings(&self) -> (Vec<u32>, usize) {
        let (mut first_rings, mut next) = (Vec::new(), 0u32);
        for node in 0..self.topology.node_count() as u32 {
            let ports = self.topology.ports(node) as u32;
            if self.topology.switch(node).is_none() {
                first_rings.push(next);
                next += ports;
                continue;
            }
            next = next.next_multiple_of(GROUP as u32);
            first_rings.push(next);
            next += ports.next_multiple_of(GROUP as u32);
        }
        (first_rings, next as usize)
    }

    fn port(&self, here: LinkPoint, there: LinkPoint, class: LinkClass, first_rings: &[u32]) -> Port {
        let link = match class {
            LinkClass::Host => &self.plan.host_links,
            LinkClass::Fabric => &self.plan.fabric_links,
        };
        let ring = first_rings[there.node as usize] + there.port;
        let mut port = Port::new(link.rate, link.delay, LinkEnd { ring, node: there.node, port: there.port });
        let name = self.topology.direction_name(here, there);
        let rules: Vec<_> = self
            .plan
            .faults
            .iter()
            .zip(0..)
            .filter(|(fault, _)| fault.is_for(&name))
            .map(|(fault, index)| {
                (fault.target, fault.kind.build(self.streams.stream(&format!("fault-{index}/{name}"))))
            })
            .collect();
        if !rules.is_empty() {
            port.set_faults(FaultChain::new(rules, self.streams.stream(&format!("fault-bits/{name}"))));
        }
        port
    }

    fn host(&self, host: u32, ring: u32, port: Port) -> Host {
        let secret = self.streams.stream(&format!("engine/host-{host}")).bits();
        let engine =
            Engine::new(EngineConfig { line_rate: self.plan.host_links.rate, secret, ..EngineConfig::default() });
        let extra_header = self.plan.transport.extra_header;
        let carriage = Carriage::new(host, self.plan.encoded, self.plan.checked_payload, extra_header);
        let mut node = Host::new(host, ring, engine, port, carriage, self.plan.checked_payload);
        if let Some(nic) = &self.plan.nic {
            let stream = self.streams.stream(&format!("nic/host-{host}"));
            let mut nic = Nic::new(nic, self.plan.host_links.rate, self.plan.largest_frame(), stream);
            nic.set_slow(self.slow_host(host).cloned());
            node.set_nic(nic);
        }
        if let Some(shape) = self.plan.transport.protocol.falcon() {
            let memory = self.slow_host(host).map(SlowMemory::new);
            node.set_falcon(FalconSide::new(Distances::new(host, &self.distances), shape.flows, memory));
        }
        if let Some(side) = self.nvme(host) {
            node.set_nvme(side);
        }
        node
    }

    /// What `host` does where drives are used.
    fn nvme(&self, host: u32) -> Option<NvmeSide> {
        let WorkloadPlan::Nvme(plan) = &self.plan.workload else { return None };
        let (profile, line_rate) = (&self.plan.transport, self.plan.host_links.rate);
        let parts = NvmeParts { plan, profile, line_rate, streams: self.streams };
        parts.side(host, Distances::new(host, &self.distances))
    }

    /// How slow the memory of `host` is, when it is.
    fn slow_host(&self, host: u32) -> Option<&SlowHostPlan> {
        let name = self.topology.name(host);
        self.plan.slow_host.as_ref().filter(|slow| matches(&slow.hosts, &name))
    }

    /// The least delay of any link.
    fn lookahead(&self) -> Duration {
        let delays = self.topology.links.iter().map(|link| match link.class {
            LinkClass::Host => self.plan.host_links.delay,
            LinkClass::Fabric => self.plan.fabric_links.delay,
        });
        delays.min().expect("a network has links")
    }
}

/// Flows a host from which on looking ahead pays: with fewer, what they need is in the processor's second cache.
const CROWD: usize = 4;

/// More than the steps in which a host is looked at.
const EXPECTED: usize = 16;

const _: () = assert!(EXPECTED > host::STEPS as usize);

/// Windows between two calls of the progress function: a call costs nothing beside so many.
const PROGRESS_WINDOWS: u64 = 256;

#[cfg(test)]
#[path = "simulation/tests.rs"]
mod tests;
