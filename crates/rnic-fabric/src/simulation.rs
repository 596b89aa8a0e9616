//! The event loop of a run: nodes run in windows of time, flows start and end between windows.
//!
//! # Windows
//!
//! Every link delays its packets by at least L, the *lookahead*. Let t be the earliest event of any node. A packet that
//! a node sends at or after t arrives at its neighbour at or after t + L, the *horizon*. So each node may process all
//! its events before the horizon independently of all others: in its own order of time, with its state in the cache,
//! and with the nodes in any order. Then the next window starts at the next earliest event. (This is the conservative
//! time window of parallel simulation, Lubachevsky 1989.)
//!
//! A test runs the nodes in two orders and compares trace hashes. Each node has a hash of its own; they are combined in
//! the order of nodes.
//!
//! # Parts
//!
//! A network can be divided into parts that run their windows at the same time ([`Simulation::in_parts`],
//! [`PartRunner`]). A part consists of its nodes, the links to them and the packets in flight on these links; its
//! code accesses no other state. Packets for another part are moved between two windows; that is early enough,
//! because they arrive at the horizon or later. So a run in several parts has the same trace, and the same report, as
//! a run in one.
//!
//! # Flows
//!
//! Connections are created and destroyed between windows, by the simulation, out of band and without delay: at the
//! start of a window for every flow that starts in it (so the receiving queue pair exists at least one link delay
//! before a packet can arrive), and at the end of the window in which both ends are done. Both happen in the order of
//! (time, source), not of execution. Queue pair numbers are dense per host and reused only after many others.

mod builder;
mod connect;
mod drives;
mod finish;
mod groups;
mod manual;
mod part;
mod partition;
mod parts;
mod record;
mod script;
mod signals;
mod slices;
mod stall;
mod tenants;
mod trace;
mod watch;

use core::ops::ControlFlow;

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Time};
use rnic_engine::Transport;
use rnic_policy::Profile;
use slab::Slab;
use std::sync::Arc;

use crate::calendar::NEVER;
use crate::check::Violations;
use crate::host::FlowEvent;
use crate::plan::{Plan, PlanError};
use crate::report::Report;
use crate::topology::Paths;
use crate::workload::Source;

use builder::Builder;
use connect::{ActiveFlow, Flow, NUMBERS_OF_FLOWS, QpNumbers};
use drives::Drive;
use groups::GroupCounts;
use part::Window;
use partition::Partition;
use parts::Parts;
use record::Recorder;
use slices::Slicer;
use stall::StallWatch;
use tenants::Tenancy;
use trace::Tracer;

pub use manual::{Capture, QueuePairSpec};
pub use part::Part;
pub use parts::PartRunner;
pub use record::TimeSeries;
pub use signals::SignalLog;
pub use trace::Traces;
pub use watch::{FlowWatch, WatchedFlow, watch_flows};

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Simulated time that the run has reached.
    pub now: Time,
    /// Flows that have started.
    pub flows_started: u64,
    /// Flows that are done.
    pub flows_done: u64,
    /// Simulated time at which the run ends, or the last flow or message starts, if the plan says so.
    pub end: Option<Time>,
}

/// Order in which the nodes of a window run. It does not change the result; a test verifies that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeOrder {
    /// Node with the lowest number first.
    Forward,
    /// Node with the highest number first.
    Backward,
}

/// A run of a plan.
pub struct Simulation {
    plan: Plan,
    seed: u64,
    parts: Parts,
    paths: Paths,
    /// Transports of flows: of each group of traffic, or the only one.
    transports: Vec<Arc<Transport>>,
    source: Box<dyn Source>,
    flows: Vec<Flow>,
    /// Results of groups of traffic that flows leave when they end.
    group_counts: Vec<GroupCounts>,
    /// True when the state of links and switches does not fit into the processor's caches.
    is_large: bool,
    /// Every queue pair number is a multiple of this one.
    number_spacing: u32,
    active: Slab<ActiveFlow>,
    qp_numbers: Vec<QpNumbers>,
    first_psns: RandomStream,
    /// The NVMe drive that hosts use over the network, when the workload has one.
    drive: Option<Drive>,
    /// The tenants, when the workload has tenants.
    tenancy: Option<Box<Tenancy>>,
    /// Reports of nodes about flows in this window.
    flow_events: Vec<FlowEvent>,
    violations: Violations,
    watch: StallWatch,
    lookahead: Duration,
    /// All events before this time have been processed.
    now: Time,
    order: NodeOrder,
    windows: u64,
    /// Set when the plan's limit has ended the run.
    is_truncated: bool,
    /// Maximum number of packets in flight: measured between windows, so that it is the same for every order and any
    /// number of parts.
    in_flight_max: usize,
    capture: Option<Box<dyn manual::CaptureSink>>,
    /// Measurement per time slice, when the plan has slices.
    slicer: Option<Box<Slicer>>,
    /// The recording of time series, if there is one.
    recorder: Option<Box<Recorder>>,
    /// The trace, if the run is traced.
    tracer: Option<Box<Tracer>>,
    /// The caller that watches flows, if one does.
    flow_watch: Option<Box<dyn FlowWatch>>,
}

impl Simulation {
    /// Builds the network of `plan`; all random numbers are derived from `seed`.
    ///
    /// # Errors
    /// When the plan cannot be run.
    pub fn new(plan: &Plan, seed: u64) -> Result<Self, PlanError> {
        Self::in_parts(plan, seed, 1)
    }

    /// Builds the network of `plan` in `parts` parts (at least one; at most one for each host, and 64), which can run
    /// their windows at the same time ([`Self::set_runner`]). The result of the run does not depend on the number of
    /// parts.
    ///
    /// # Errors
    /// When the plan cannot be run.
    pub fn in_parts(plan: &Plan, seed: u64, parts: usize) -> Result<Self, PlanError> {
        plan.check()?;
        let streams = RandomStreams::new(seed);
        let topology = plan.topology.build();
        let transport = |profile: &Profile| {
            let mut profile = profile.clone();
            profile.set_line_rate(plan.host_links.rate);
            Ok(Arc::new(Transport::new(profile).map_err(rnic_transports::SelectError::from)?))
        };
        let transports = plan.transports().into_iter().map(transport).collect::<Result<_, PlanError>>()?;
        let rates: Vec<BitRate> = (0..topology.hosts).map(|host| plan.host_rate(host)).collect();
        let partition = Partition::new(&topology, parts);
        let builder = Builder::new(plan, &streams, &topology, &partition);
        let parts = Parts::new(builder.parts(), &partition);
        let mut simulation = Self {
            qp_numbers: vec![QpNumbers::default(); parts.host_count()],
            parts,
            paths: Paths::new(&topology),
            transports,
            source: plan.workload.source(&rates, &streams),
            flows: Vec::new(),
            group_counts: vec![GroupCounts::default(); plan.workload.groups().len()],
            is_large: topology.links.len() > PREFETCH_LINKS_MIN,
            number_spacing: if plan.splits_queue_pairs() { NUMBERS_OF_FLOWS } else { 1 },
            active: Slab::new(),
            first_psns: streams.stream("connection/psn"),
            drive: None,
            tenancy: None,
            flow_events: Vec::new(),
            violations: Violations::default(),
            watch: StallWatch::new(plan.run.stall_after),
            lookahead: builder.lookahead(),
            now: Time::ZERO,
            order: NodeOrder::Forward,
            windows: 0,
            is_truncated: false,
            in_flight_max: 0,
            capture: None,
            slicer: plan.run.slice.map(|slice| Box::new(Slicer::new(slice, &topology))),
            recorder: None,
            tracer: None,
            flow_watch: None,
            plan: plan.clone(),
            seed,
        };
        simulation.start_nvme();
        script::start(&mut simulation);
        simulation.tenancy = Tenancy::new(plan, &mut simulation.parts);
        groups::prepare(&mut simulation);
        let steady = simulation.steady_interval();
        if plan.run.latency_parts {
            Traces::of(&mut simulation).measure_latencies();
        }
        simulation.parts.hosts_mut().for_each(|host| host.sessions.steady = steady);
        Ok(simulation)
    }

    /// Returns the number of parts of the network.
    pub fn part_count(&self) -> usize {
        self.parts.count()
    }

    /// Makes `runner` simulate the time windows of the parts of the network, if it has several; by default they are
    /// simulated one after the other.
    pub fn set_runner(&mut self, runner: Box<dyn PartRunner>) {
        self.parts.set_runner(runner);
    }

    /// Sets the order in which the nodes of each window run.
    pub fn set_node_order(&mut self, order: NodeOrder) {
        self.order = order;
    }

    /// Runs to the end: until every flow is complete and no packet is in flight, until the plan's limit, or until
    /// `progress`, which is called periodically, stops it.
    pub fn run(&mut self, progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Report {
        loop {
            let next = self.next_event();
            if next == NEVER || next >= self.plan.run.limit {
                self.is_truncated = next != NEVER;
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
        self.time_series().finish();
        trace::finish(self);
        self.report()
    }

    fn progress(&self) -> Progress {
        let flows_started = self.flows.len() as u64;
        let limit = Some(self.plan.run.limit).filter(|limit| *limit != NEVER);
        let end = self.plan.workload.ends().into_iter().chain(limit).min();
        Progress { now: self.now, flows_started, flows_done: flows_started - self.active.len() as u64, end }
    }

    fn next_event(&self) -> Time {
        self.parts.earliest().min(self.source.next_start().unwrap_or(NEVER))
    }

    /// Processes all events from `start`, the earliest event, to the horizon.
    fn window(&mut self, start: Time) {
        self.cut_slices(start);
        if self.recorder.as_ref().is_some_and(|recorder| recorder.is_due(start)) {
            self.time_series().take_until(start);
        }
        let horizon = start + self.lookahead;
        self.open_flows(horizon);
        if let Some(tenancy) = &mut self.tenancy {
            tenancy.give_hints(start, horizon, &mut self.parts);
        }
        let prefetches = self.is_large || self.active.len() > PREFETCH_FLOWS_MIN * self.parts.host_count();
        self.parts.run(Window { horizon, prefetches, order: self.order });
        self.in_flight_max = self.in_flight_max.max(self.parts.in_flight_count());
        self.now = horizon;
        if let Some(tracer) = &mut self.tracer {
            tracer.collect(&mut self.parts);
        }
        self.process_flow_events();
        self.write_capture();
    }
}

/// Number of flows per host above which prefetching is worthwhile: with fewer, their state fits into the processor's
/// second-level cache.
const PREFETCH_FLOWS_MIN: usize = 4;

/// Number of links above which prefetching is worthwhile: the state of a link's two directions takes some 700 bytes,
/// and in each window most of it is read and written. A fat-tree of 16-port switches (3,072 links) is simulated a tenth
/// faster without prefetching, one of 20-port switches (6,000) a fifth faster with it.
const PREFETCH_LINKS_MIN: usize = 4_096;

/// Number of windows between two calls of the progress function, so that its cost is negligible.
const PROGRESS_WINDOWS: u64 = 256;

#[cfg(test)]
#[path = "simulation/tests.rs"]
mod tests;
