//! Who is connected to whom.
//!
//! A topology is a list of switches with their routes, and a list of links. Builders (one file each) make it; nothing
//! else in the fabric knows what a fat-tree is. To add one: a file with a function that returns [`Topology`], and a
//! kind in the plan.

pub(crate) mod distance;
mod fat_tree;
mod leaf_spine;
mod star;

pub use fat_tree::fat_tree;
pub use leaf_spine::leaf_spine;
pub use star::{point_to_point, star};

use crate::route::{Route, RouteSpec};

/// A node: hosts come first, switches after them.
pub type Node = u32;

/// Which kind of link: the plan gives each kind a rate and a delay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkClass {
    /// Between a host and whatever it is connected to.
    Host,
    /// Between two switches.
    Fabric,
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPoint {
    /// The node.
    pub node: Node,
    /// Its port.
    pub port: u32,
}

/// A link, both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSpec {
    /// One end.
    pub a: LinkPoint,
    /// The other.
    pub b: LinkPoint,
    /// What sort of link.
    pub class: LinkClass,
}

/// A switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchSpec {
    /// Its name in plans and reports.
    pub name: String,
    /// Where it sends what.
    pub route: RouteSpec,
}

impl SwitchSpec {
    /// How many ports it has.
    pub fn ports(&self) -> usize {
        (self.route.down_ports + self.route.up_ports) as usize
    }
}

/// A network without rates, delays and buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// End stations; each has one port.
    pub hosts: u32,
    /// Switches; number `i` is node `hosts + i`.
    pub switches: Vec<SwitchSpec>,
    /// Links; every port of every node stands in exactly one.
    pub links: Vec<LinkSpec>,
}

impl Topology {
    /// Hosts and switches together.
    pub fn node_count(&self) -> usize {
        self.hosts as usize + self.switches.len()
    }

    /// How many ports `node` has.
    pub fn ports(&self, node: Node) -> usize {
        self.switch(node).map_or(1, SwitchSpec::ports)
    }

    /// The switch that `node` is, if it is one.
    pub fn switch(&self, node: Node) -> Option<&SwitchSpec> {
        self.switches.get((node as usize).checked_sub(self.hosts as usize)?)
    }

    /// The name of `node`: `host-3`, or its switch's own.
    pub fn name(&self, node: Node) -> String {
        self.switch(node).map_or_else(|| format!("host-{node}"), |switch| switch.name.clone())
    }

    /// The name of the direction of `link` that starts at `from`: `host-3>edge-1`.
    pub fn direction_name(&self, from: LinkPoint, to: LinkPoint) -> String {
        format!("{}>{}", self.name(from.node), self.name(to.node))
    }

    /// For every node and port, the other end of the link and its class.
    pub(crate) fn neighbours(&self) -> Vec<Vec<(LinkPoint, LinkClass)>> {
        let nobody = (LinkPoint { node: u32::MAX, port: 0 }, LinkClass::Fabric);
        let mut neighbours: Vec<Vec<_>> =
            (0..self.node_count()).map(|node| vec![nobody; self.ports(node as Node)]).collect();
        for link in &self.links {
            for (here, there) in [(link.a, link.b), (link.b, link.a)] {
                let place = &mut neighbours[here.node as usize][here.port as usize];
                assert!(place.0.node == u32::MAX, "port {} of {} has two links", here.port, self.name(here.node));
                *place = (there, link.class);
            }
        }
        let all_connected = neighbours.iter().flatten().all(|(there, _)| there.node != u32::MAX);
        assert!(all_connected, "every port has a link");
        neighbours
    }
}

/// The links of the way from one host to another; all equal-cost ways have the same classes.
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

    /// Classes of the links from `src` to `dst`, in order, into `classes`.
    ///
    /// # Panics
    /// When the routes lead in a circle, which is a builder's mistake.
    pub(crate) fn walk(&self, src: u32, dst: u32, classes: &mut Vec<LinkClass>) {
        classes.clear();
        let (mut node, mut port) = (src, 0);
        loop {
            let (there, class) = self.neighbours[node as usize][port];
            classes.push(class);
            node = there.node;
            if node < self.hosts {
                assert!(node == dst, "the route from host {src} to {dst} ends at {node}");
                return;
            }
            assert!(classes.len() <= HOPS_MAX, "the route from host {src} to {dst} goes in circles");
            port = self.routes[(node - self.hosts) as usize].port(dst, 0);
        }
    }
}

/// Links of a path: a fat-tree has 6; more layers than 8 nobody builds.
const HOPS_MAX: usize = 16;
