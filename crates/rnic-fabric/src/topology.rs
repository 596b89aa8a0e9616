//! Nodes and links of a network.
//!
//! A topology is a list of switches with their routes, and a list of links. Builders (one file each) create it; no
//! other code in the fabric depends on the type of network, such as a fat-tree. To add a topology, add a file with a
//! function that returns [`Topology`], and a kind in the plan.
//!
//! # Two kinds of routes
//!
//! In a folded Clos whose hosts are numbered by position, four numbers are the routing table of a switch
//! ([`RouteSpec`]). Any other network is a graph: its builder lists nodes and links in a `Wiring`, which checks them
//! (one link for each host, a path between any two) and computes `RouteTables`: for each switch and each destination
//! switch, all ports on a shortest path, among which ECMP or WCMP chooses as among the up ports of a Clos. A graph that
//! describes a Clos, with the same names and the same order of links, gives the same trace as the Clos.
//!
//! Links of a graph from a file have a rate and a delay each. Everything that depends on rates asks the plan for the
//! link of a [`LinkClass`], and a class is either one of the plan's tables or the index of such a link.

mod best_path;
mod clos;
mod cycle;
pub(crate) mod distance;
mod dragonfly;
mod fat_tree;
pub mod file;
mod leaf_spine;
mod rails;
mod star;
pub(crate) mod wiring;

use std::sync::Arc;

pub(crate) use best_path::{BestPaths, longest_path};
pub use clos::{Clos, clos};
pub(crate) use cycle::buffer_cycle;
pub use dragonfly::{Dragonfly, dragonfly};
pub use fat_tree::fat_tree;
pub use leaf_spine::leaf_spine;
pub use rails::{Rails, rails};
pub use star::{point_to_point, star};

use crate::link_spec::LinkPlan;
pub use crate::link_spec::{LinkClass, LinkPoint, LinkSpec, Node};
use crate::route::tables::RouteTables;
use crate::route::{Route, RouteSpec, SwitchRoute};

/// A switch of the topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchSpec {
    /// Name of the switch in plans and reports.
    pub name: String,
    /// Routing table of the switch.
    pub route: SwitchRoute,
}

impl SwitchSpec {
    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        match self.route {
            SwitchRoute::Clos(RouteSpec { down_ports, up_ports, .. }) => (down_ports + up_ports) as usize,
            SwitchRoute::Table { ports } => ports as usize,
        }
    }
}

/// A network without rates, delays and buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Number of hosts; each has one port.
    pub hosts: u32,
    /// The switches; switch `i` is node `hosts + i`.
    pub switches: Vec<SwitchSpec>,
    /// The links; every port of every node belongs to exactly one link.
    pub links: Vec<LinkSpec>,
    /// Names of the hosts; empty: `host-0`, `host-1` and so on.
    pub host_names: Vec<String>,
    /// Rates and delays of the links of class [`LinkClass::Own`].
    pub own_links: Vec<LinkPlan>,
    /// Routes by destination, of switches with [`SwitchRoute::Table`].
    pub(crate) tables: Option<Arc<RouteTables>>,
}

impl Topology {
    /// Creates a folded Clos: each switch has its routing table, and rates and delays are those of the plan.
    pub(crate) fn folded_clos(hosts: u32, switches: Vec<SwitchSpec>, links: Vec<LinkSpec>) -> Self {
        Self { hosts, switches, links, host_names: Vec::new(), own_links: Vec::new(), tables: None }
    }

    /// Returns the number of hosts and switches.
    pub fn node_count(&self) -> usize {
        self.hosts as usize + self.switches.len()
    }

    /// Returns the number of ports of `node`.
    pub fn ports(&self, node: Node) -> usize {
        self.switch(node).map_or(1, SwitchSpec::ports)
    }

    /// Returns the switch with node number `node`, when it is a switch.
    pub fn switch(&self, node: Node) -> Option<&SwitchSpec> {
        self.switches.get((node as usize).checked_sub(self.hosts as usize)?)
    }

    /// Returns the name of `node`: `host-3`, the name that a file gives the host, or the name of the switch.
    pub fn name(&self, node: Node) -> String {
        match (self.switch(node), self.host_names.get(node as usize)) {
            (Some(switch), _) => switch.name.clone(),
            (None, Some(name)) => name.clone(),
            (None, None) => format!("host-{node}"),
        }
    }

    /// Returns the name of the direction of a link that starts at `from`: `host-3>edge-1`.
    pub fn direction_name(&self, from: LinkPoint, to: LinkPoint) -> String {
        format!("{}>{}", self.name(from.node), self.name(to.node))
    }

    /// Returns the routes by destination.
    ///
    /// # Panics
    /// When the topology has none: a folded Clos.
    pub(crate) fn route_tables(&self) -> Arc<RouteTables> {
        Arc::clone(self.tables.as_ref().expect("switches with tables are built together with them"))
    }

    /// Returns, for every node and port, the other end of its link and the link's class.
    pub(crate) fn neighbours(&self) -> Vec<Vec<(LinkPoint, LinkClass)>> {
        let unused = (LinkPoint { node: u32::MAX, port: 0 }, LinkClass::Fabric);
        let mut neighbours: Vec<Vec<_>> =
            (0..self.node_count()).map(|node| vec![unused; self.ports(node as Node)]).collect();
        for link in &self.links {
            for (here, there) in [(link.a, link.b), (link.b, link.a)] {
                let neighbour = &mut neighbours[here.node as usize][here.port as usize];
                assert!(neighbour.0.node == u32::MAX, "port {} of {} has two links", here.port, self.name(here.node));
                *neighbour = (there, link.class);
            }
        }
        let all_connected = neighbours.iter().flatten().all(|(there, _)| there.node != u32::MAX);
        assert!(all_connected, "a port has no link");
        neighbours
    }
}

/// Finds the links of the path from one host to another. In a folded Clos all equal-cost paths have the same classes;
/// in a graph, this is one of them.
#[derive(Debug)]
pub(crate) struct Paths {
    neighbours: Vec<Vec<(LinkPoint, LinkClass)>>,
    routes: Vec<Route>,
    hosts: u32,
}

impl Paths {
    pub(crate) fn new(topology: &Topology) -> Self {
        let route = |(switch, index): (&SwitchSpec, u32)| match &switch.route {
            SwitchRoute::Clos(spec) => Route::new(spec, 0),
            SwitchRoute::Table { .. } => Route::by_table(topology.route_tables(), index, 0),
        };
        let routes = topology.switches.iter().zip(0..).map(route).collect();
        Self { neighbours: topology.neighbours(), routes, hosts: topology.hosts }
    }

    /// Writes the classes of the links from `src` to `dst`, in order, into `classes`.
    ///
    /// # Panics
    /// When the routes contain a loop, which is an error of a builder.
    pub(crate) fn link_classes(&self, src: u32, dst: u32, classes: &mut Vec<LinkClass>) {
        classes.clear();
        let (mut node, mut port) = (src, 0);
        loop {
            let (there, class) = self.neighbours[node as usize][port];
            classes.push(class);
            node = there.node;
            if node < self.hosts {
                assert!(node == dst, "the route from host {src} to {dst} ends at host {node}");
                return;
            }
            assert!(classes.len() <= HOPS_MAX, "the route from host {src} to {dst} contains a loop");
            port = self.routes[(node - self.hosts) as usize].port(dst, 0);
        }
    }
}

/// Maximum number of links of a path: a fat-tree has 6, a graph has at most 63 switches on a path.
const HOPS_MAX: usize = 64;
