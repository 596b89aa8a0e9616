//! Creates the parts of a network: nodes and their ports.

use rnic_base::{BitRate, Duration, RandomStreams, Time};
use rnic_engine::{BurstDefault, Engine, EngineConfig, Messages, PoolConfig, ProcessorConfig, SteeringMode};
use rnic_policy::Profile;

use super::connect::NUMBERS_OF_FLOWS;
use super::part::Part;
use super::partition::Partition;
use crate::classes::{ClassPlan, shares};
use crate::fault::{FaultChain, matches};
use crate::host::nic::NicModel;
use crate::host::slow::SlowMemory;
use crate::host::{FalconState, Host, Meter, PacketCodec, Rank, SCRIPT_START, ScriptRun, set_classes};
use crate::link::{GROUP, LinkEnd};
use crate::network::Network;
use crate::plan::Plan;
use crate::plan::SlowHostPlan;
use crate::port::Port;
use crate::route::{Route, RouteSpec, SwitchRoute};
use crate::switch::{Multipath, Switch};
use crate::topology::distance::{self, HopDistances};
use crate::topology::{LinkClass, LinkPoint, Node, Topology};
use crate::workload::WorkloadPlan;

/// Creates nodes and their ports.
pub(super) struct Builder<'b> {
    plan: &'b Plan,
    streams: &'b RandomStreams,
    topology: &'b Topology,
    partition: &'b Partition,
    neighbours: Vec<Vec<(LinkPoint, LinkClass)>>,
    distances: Vec<(u32, u8)>,
    /// By node of the complete network: the ring of its first port, in its part.
    first_rings: Vec<u32>,
    /// Number of rings of each part.
    rings: Vec<usize>,
}

impl<'b> Builder<'b> {
    pub(super) fn new(
        plan: &'b Plan,
        streams: &'b RandomStreams,
        topology: &'b Topology,
        partition: &'b Partition,
    ) -> Self {
        let (first_rings, rings) = first_rings(topology, partition);
        let (neighbours, distances) = (topology.neighbours(), distance::sizes(topology));
        Self { plan, streams, topology, partition, neighbours, distances, first_rings, rings }
    }

    pub(super) fn parts(&self) -> Vec<Part> {
        (0..self.partition.count()).map(|part| self.part(part)).collect()
    }

    fn part(&self, part: usize) -> Part {
        let nodes = self.partition.nodes(part);
        let hosts = nodes.partition_point(|node| *node < self.topology.hosts);
        let (hosts, switches) = nodes.split_at(hosts);
        let with_bytes = self.plan.checked_payload || self.plan.encoded;
        let network = Network::new(part as u16, self.partition.count(), nodes.len(), self.rings[part], with_bytes);
        let hosts = hosts.iter().map(|host| self.host(*host)).collect();
        Part::new(hosts, switches.iter().map(|switch| self.switch(*switch)).collect(), network)
    }

    fn ports(&self, node: Node) -> Vec<Port> {
        let ports = self.neighbours[node as usize].iter().zip(0..);
        ports.map(|((there, class), port)| self.port(LinkPoint { node, port }, *there, *class)).collect()
    }

    fn switch(&self, node: Node) -> Switch {
        let spec = self.topology.switch(node).expect("the node is a switch");
        let salt = self.streams.stream(&format!("ecmp/{}", spec.name)).bits();
        let plan = self.plan.switch.as_ref().expect("a topology with switches has a plan for them");
        let number = node - self.topology.hosts;
        let route = match (&spec.route, plan.multipath) {
            (SwitchRoute::Clos(spec), Multipath::Ecmp) => Route::new(spec, salt),
            (SwitchRoute::Clos(spec), Multipath::Wcmp) => Route::weighted(spec, salt, &self.rates_up(node, spec)),
            (SwitchRoute::Table { .. }, Multipath::Ecmp) => Route::by_table(self.topology.route_tables(), number, salt),
            (SwitchRoute::Table { .. }, Multipath::Wcmp) => {
                Route::by_weighted_table(self.topology.route_tables(), number, salt, &self.rates(node))
            }
        };
        let first_ring = self.first_rings[node as usize];
        let mut switch = Switch::new(self.partition.position(node).node, first_ring, route, self.ports(node), plan);
        if !self.plan.classes.is_empty() {
            let classes = &self.plan.classes;
            let parts: Vec<_> = classes.iter().filter_map(|class| class.switch).collect();
            let stream = |class: &ClassPlan| self.streams.stream(&format!("ecn/{}/{}", spec.name, class.name));
            switch.set_classes(shares(classes), &parts, classes.iter().map(stream).collect());
        } else if let Some(ecn) = &plan.ecn {
            switch.set_marking(ecn, self.streams.stream(&format!("ecn/{}", spec.name)));
        }
        if plan.csig {
            switch.set_stamping(number);
        }
        switch
    }

    /// Returns the rates of the up links of switch `node`, in the order of its ports.
    fn rates_up(&self, node: Node, route: &RouteSpec) -> Vec<BitRate> {
        self.rates(node).split_off(route.down_ports as usize)
    }

    /// Returns the rates of the links of switch `node`, in the order of its ports.
    fn rates(&self, node: Node) -> Vec<BitRate> {
        let links = self.neighbours[node as usize].iter();
        links.map(|(there, class)| self.plan.link_between(*class, node, there.node).rate).collect()
    }

    fn port(&self, here: LinkPoint, there: LinkPoint, class: LinkClass) -> Port {
        let link = self.plan.link_between(class, here.node, there.node);
        let position = self.partition.position(there.node);
        let ring = self.first_rings[there.node as usize] + there.port;
        let end = LinkEnd { ring, node: position.node, port: there.port as u16, part: position.part };
        let mut port = Port::new(link.rate, link.delay, end);
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

    fn host(&self, host: u32) -> Host {
        let secret = self.streams.stream(&format!("engine/host-{host}")).bits();
        let (line_rate, mut processors) = (self.plan.host_rate(host), self.plan.processors);
        if let Some(PoolConfig { steering: SteeringMode::Hardware { key }, .. }) = &mut processors {
            *key = self.streams.stream(&format!("processors/host-{host}")).bits();
        }
        let engine = Engine::new(EngineConfig {
            line_rate,
            secret,
            burst: BURST,
            processors: processors.map(ProcessorConfig::Modelled),
            falcon_receive_bytes: self.plan.nic.and_then(|nic| nic.packet_buffer).map(|buffer| buffer.bytes()),
            ..EngineConfig::default()
        });
        let transports = self.plan.transports();
        let extra_header = |is_falcon| {
            let of_family = |profile: &&&Profile| profile.protocol.falcon().is_some() == is_falcon;
            transports.iter().find(of_family).unwrap_or(&transports[0]).extra_header
        };
        let extra_headers = [extra_header(false), extra_header(true)];
        let codec = PacketCodec::new(host, self.plan.encoded, self.plan.checked_payload, extra_headers);
        let port = self.ports(host).pop().expect("a host has a port");
        let (number, ring) = (self.partition.position(host).node, self.first_rings[host as usize]);
        let mut node = Host::new(number, ring, engine, port, codec, self.plan.checked_payload);
        if let Some(nic) = &self.plan.nic {
            let stream = |cache: &str| self.streams.stream(&format!("nic/host-{host}{cache}"));
            let mut nic = NicModel::new(nic, line_rate, self.plan.largest_frame(), stream);
            nic.set_slow_intervals(self.slow_host(host).cloned());
            node.set_nic(nic);
        }
        let has_families = transports.iter().any(|one| one.protocol.falcon().is_some())
            && transports.iter().any(|one| one.protocol.falcon().is_none());
        if has_families || !self.plan.classes.is_empty() {
            set_classes(&mut node, &self.plan.classes);
        }
        if let Some(shape) = transports.iter().find_map(|profile| profile.protocol.falcon()) {
            let memory = self.slow_host(host).map(SlowMemory::new);
            node.set_falcon(FalconState::new(
                HopDistances::new(host, &self.distances, self.topology.tables.clone()),
                shape,
                memory,
            ));
        }
        let (slice, has_tenants) = (self.plan.run.slice, matches!(self.plan.workload, WorkloadPlan::Tenants(_)));
        if slice.is_some() || has_tenants {
            node.meter = Some(meter(self.plan, line_rate));
        }
        if let Some(scr) = &self.plan.scr {
            let seed = self.streams.stream(&format!("scr/host-{host}")).bits();
            Messages::of(&mut node.engine).enable(Time::ZERO, scr.exchange(seed));
        }
        if let Some((collective, _)) = self.plan.workload.collective() {
            node.sessions.rank = Some(Box::new(Rank::of(collective)));
        }
        if let WorkloadPlan::Chakra(chakra) = &self.plan.workload
            && host < chakra.ranks
        {
            node.sessions.script = Some(Box::new(ScriptRun::new(&chakra.script, host as usize)));
            node.start_at(Time::ZERO, SCRIPT_START);
        }
        node
    }

    /// Returns the slow memory parameters of `host`, when its memory is slow.
    fn slow_host(&self, host: u32) -> Option<&SlowHostPlan> {
        let name = self.topology.name(host);
        self.plan.slow_host.as_ref().filter(|slow| matches(&slow.hosts, &name))
    }

    /// Returns the shortest delay of any link.
    pub(super) fn lookahead(&self) -> Duration {
        let delays = self.topology.links.iter().map(|link| self.plan.link(link.class).delay);
        delays.min().expect("a network has links")
    }
}

/// Returns a meter for a host of `plan` with a link of `rate`.
pub(super) fn meter(plan: &Plan, rate: BitRate) -> Box<Meter> {
    let mut meter = Box::new(Meter::new(plan.run.slice, rate));
    if plan.splits_queue_pairs() {
        meter.join_flows(NUMBERS_OF_FLOWS);
    }
    meter
}

/// Returns the first ring of every node in its part, and the number of rings of each part: hosts use consecutive rings,
/// switches use complete groups.
fn first_rings(topology: &Topology, partition: &Partition) -> (Vec<u32>, Vec<usize>) {
    let mut first_rings = vec![0; topology.node_count()];
    let rings = (0..partition.count()).map(|part| {
        let mut next = 0u32;
        for &node in partition.nodes(part) {
            let ports = topology.ports(node) as u32;
            if topology.switch(node).is_none() {
                first_rings[node as usize] = next;
                next += ports;
                continue;
            }
            next = next.next_multiple_of(GROUP as u32);
            first_rings[node as usize] = next;
            next += ports.next_multiple_of(GROUP as u32);
        }
        next as usize
    });
    let rings = rings.collect();
    (first_rings, rings)
}

/// Burst of queue pairs whose rate is limited: two full packets. A NIC reads payload over its bus and serves others in
/// between, so a queue pair with work can be late by microseconds, which it catches up.
const BURST: BurstDefault = BurstDefault { bytes: 0, train_bytes: 0, catch_up: Duration::from_us(2) };
