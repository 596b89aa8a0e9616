//! Nodes and links of a network.
//!
//! A topology is a list of switches with their routes, and a list of links. Builders (one file each) create it; no
//! other code in the fabric depends on the type of network, such as a fat-tree. To add a topology, add a file with a
//! function that returns [`Topology`], and a kind in the plan.

pub(crate) mod distance;
mod fat_tree;
mod leaf_spine;
mod star;

pub use fat_tree::fat_tree;
pub use leaf_spine::leaf_spine;
pub use star::{point_to_point, star};

use crate::route::{Route, RouteSpec};

/// Number of a node: hosts have the lowest numbers, followed by switches.
pub type Node = u32;

/// Class of a link: the plan gives each class a rate and a delay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkClass {
    /// Between a host and its neighbour.
    Host,
    /// Between two switches.
    Fabric,
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPoint {
    /// Node at this end of the link.
    pub node: Node,
    /// Port of the node.
    pub port: u32,
}

/// A link, both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSpec {
    /// One end of the link.
    pub a: LinkPoint,
    /// The end of the link opposite to `a`.
    pub b: LinkPoint,
    /// Class of the link.
    pub class: LinkClass,
}

/// A switch of the topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchSpec {
    /// Name of the switch in plans and reports.
    pub name: String,
    /// Routing table of the switch.
    pub route: RouteSpec,
}

impl SwitchSpec {
    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        (self.route.down_ports + self.route.up_ports) as usize
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
}

impl Topology {
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

    /// Returns the name of `node`: `host-3`, or the name of the switch.
    pub fn name(&self, node: Node) -> String {
        self.switch(node).map_or_else(|| format!("host-{node}"), |switch| switch.name.clone())
    }

    /// Returns the name of the direction of a link that starts at `from`: `host-3>edge-1`.
    pub fn direction_name(&self, from: LinkPoint, to: LinkPoint) -> String {
        format!("{}>{}", self.name(from.node), self.name(to.node))
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

/// Finds the links of the path from one host to another; all equal-cost paths have the same classes.
#[derive(Debug)]
pub(crate) struct Paths {
    neighbours: Vec<Vec<(LinkPoint, LinkClass)>>,
    routes: Vec<Route>,
    hosts: u32,
}

impl Paths {
    pub(crate) fn new(topology: &Topology) -> Self {
        let routes = topology.switches.iter().map(|switch| Route::new(&switch.route, 0)).collect();
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

/// Maximum number of links of a path: a fat-tree has 6; networks with more than 8 layers are not built.
const HOPS_MAX: usize = 16;
