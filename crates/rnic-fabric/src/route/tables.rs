//! Routes of a graph: for each switch and each destination, the ports on a shortest path.
//!
//! Hosts at one switch have the same route everywhere else, so tables are by destination switch: two bytes for each
//! pair of a switch and a switch with hosts, 32 MB for the 4096 switches that a graph may have. Switches refer to
//! groups of ports, each stored once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::link_spec::{LinkClass, LinkSpec};

/// A link from a switch to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    /// Port of the switch.
    pub(crate) port: u16,
    /// Index of the switch at the other end.
    pub(crate) to: u16,
    pub(crate) class: LinkClass,
}

/// The links between switches, and the links of hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SwitchGraph {
    /// By switch: its links to other switches, in the order of ports.
    pub(crate) hops: Vec<Vec<Hop>>,
    /// By host: its switch, the port there, and the class of the link.
    pub(crate) hosts: Vec<(u16, u16, LinkClass)>,
}

impl SwitchGraph {
    /// Lists the links of a network of `hosts` hosts and `switches` switches, in which each host is linked to a switch.
    pub(crate) fn new(hosts: u32, switches: usize, links: &[LinkSpec]) -> Self {
        let mut graph = Self { hops: vec![Vec::new(); switches], hosts: vec![(0, 0, LinkClass::Host); hosts as usize] };
        for link in links {
            for (here, there) in [(link.a, link.b), (link.b, link.a)] {
                let Some(switch) = here.node.checked_sub(hosts) else { continue };
                let (port, class) = (here.port as u16, link.class);
                match there.node.checked_sub(hosts) {
                    None => graph.hosts[there.node as usize] = (switch as u16, port, class),
                    Some(to) => graph.hops[switch as usize].push(Hop { port, to: to as u16, class }),
                }
            }
        }
        graph.hops.iter_mut().for_each(|hops| hops.sort_by_key(|hop| hop.port));
        graph
    }

    /// Returns the length of the shortest path from each switch to switch `end`; [`UNREACHABLE`] without a path.
    pub(crate) fn distances(&self, end: u16) -> Vec<u32> {
        let mut distances = vec![UNREACHABLE; self.hops.len()];
        let mut next = BinaryHeap::from([(Reverse(0), end)]);
        distances[usize::from(end)] = 0;
        while let Some((Reverse(distance), switch)) = next.pop() {
            if distance > distances[usize::from(switch)] {
                continue;
            }
            for hop in &self.hops[usize::from(switch)] {
                let farther = distance + cost(hop.class);
                if farther < distances[usize::from(hop.to)] {
                    distances[usize::from(hop.to)] = farther;
                    next.push((Reverse(farther), hop.to));
                }
            }
        }
        distances
    }

    /// Returns the links of `switch` on a shortest path, for the `distances` of all switches.
    pub(crate) fn shortest<'g>(&'g self, switch: u16, distances: &'g [u32]) -> impl Iterator<Item = &'g Hop> {
        self.hops[usize::from(switch)].iter().filter(move |hop| Self::is_shortest(switch, hop, distances))
    }

    /// Returns whether `hop`, a link of `switch`, is on a shortest path.
    pub(crate) fn is_shortest(switch: u16, hop: &Hop, distances: &[u32]) -> bool {
        let [own, next] = [switch, hop.to].map(|switch| distances[usize::from(switch)]);
        own != UNREACHABLE && next != UNREACHABLE && next + cost(hop.class) == own
    }

    /// Returns the switches with a path, nearest first.
    pub(crate) fn by_distance(distances: &[u32]) -> Vec<u16> {
        let mut order: Vec<u16> =
            (0..distances.len() as u16).filter(|switch| distances[usize::from(*switch)] != UNREACHABLE).collect();
        order.sort_by_key(|switch| distances[usize::from(*switch)]);
        order
    }

    /// Returns the switches with hosts, in order.
    pub(crate) fn edges(&self) -> Vec<u16> {
        let mut edges: Vec<u16> = self.hosts.iter().map(|(switch, ..)| *switch).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

/// Returns the length of a link, as routes count it. The minimal route of a dragonfly has at most one link between
/// groups, also where one over a third group has fewer links.
const fn cost(class: LinkClass) -> u32 {
    match class {
        LinkClass::Core => 16,
        LinkClass::Host | LinkClass::Fabric | LinkClass::Own(_) => 1,
    }
}

/// Length of a path that does not exist.
pub(crate) const UNREACHABLE: u32 = u32::MAX;

/// Ports that lead to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ports<'t> {
    /// The port of the host itself.
    Host(u16),
    /// Ports to other switches, on shortest paths.
    Group {
        /// Position of the first one among the ports of all groups of the switch.
        first: usize,
        ports: &'t [u16],
    },
}

/// Routing tables of all switches of a graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RouteTables {
    /// By host: index of its switch among the switches with hosts, and the port there.
    hosts: Vec<(u16, u16)>,
    /// By host: class of its link.
    classes: Vec<LinkClass>,
    switches: Vec<SwitchTable>,
    /// For each pair of switches with hosts: number of switches on the paths between them.
    lengths: Vec<u8>,
    /// Number of switches with hosts.
    edges: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct SwitchTable {
    /// Index of this switch among the switches with hosts; [`NO_EDGE`] for others.
    edge: u16,
    /// By destination switch: index of a group.
    groups: Vec<u16>,
    /// End of each group in `ports`.
    ends: Vec<u32>,
    ports: Vec<u16>,
}

const NO_EDGE: u16 = u16::MAX;

/// A path that is too long for a packet: the two switches at its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong(pub(crate) u16, pub(crate) u16);

/// Maximum number of switches on a path: those that the hop limit of a packet, 64, allows.
pub(crate) const PATH_SWITCHES_MAX: u8 = 63;

impl RouteTables {
    /// Computes the routes of a graph in which there is a path between any two hosts.
    pub(crate) fn new(graph: &SwitchGraph) -> Result<Self, TooLong> {
        let edges = graph.edges();
        let edge_of = |switch: u16| edges.binary_search(&switch).map_or(NO_EDGE, |edge| edge as u16);
        let table =
            |switch| SwitchTable { edge: edge_of(switch), groups: Vec::new(), ends: Vec::new(), ports: Vec::new() };
        let mut switches: Vec<SwitchTable> = (0..graph.hops.len() as u16).map(table).collect();
        let mut known = vec![BTreeMap::<Vec<u16>, u16>::new(); switches.len()];
        let mut all_lengths = Vec::with_capacity(edges.len() * edges.len());
        for end in &edges {
            let distances = graph.distances(*end);
            let mut lengths = vec![0u8; switches.len()];
            lengths[usize::from(*end)] = 1;
            for switch in SwitchGraph::by_distance(&distances) {
                let hops = || graph.shortest(switch, &distances);
                if let Some(hop) = hops().next() {
                    let length = lengths[usize::from(hop.to)] + 1;
                    if length > PATH_SWITCHES_MAX {
                        return Err(TooLong(switch, *end));
                    }
                    lengths[usize::from(switch)] = length;
                }
            }
            for (switch, table) in (0..).zip(&mut switches) {
                let ports: Vec<u16> = graph.shortest(switch, &distances).map(|hop| hop.port).collect();
                let known = &mut known[usize::from(switch)];
                let group = *known.entry(ports).or_insert_with_key(|ports| {
                    table.ports.extend(ports);
                    table.ends.push(table.ports.len() as u32);
                    table.ends.len() as u16 - 1
                });
                table.groups.push(group);
            }
            all_lengths.extend(edges.iter().map(|edge| lengths[usize::from(*edge)]));
        }
        Ok(Self {
            hosts: graph.hosts.iter().map(|(switch, port, _)| (edge_of(*switch), *port)).collect(),
            classes: graph.hosts.iter().map(|(.., class)| *class).collect(),
            switches,
            lengths: all_lengths,
            edges: edges.len(),
        })
    }

    /// Returns the ports of `switch` that lead to host `dst`.
    #[inline]
    pub(crate) fn ports(&self, switch: u32, dst: u32) -> Ports<'_> {
        let (edge, port) = self.hosts[dst as usize];
        let table = &self.switches[switch as usize];
        if edge == table.edge {
            return Ports::Host(port);
        }
        let (first, end) = table.group(table.groups[usize::from(edge)]);
        Ports::Group { first, ports: &table.ports[first..end] }
    }

    /// Returns the groups of ports of `switch`, in the order of their positions.
    pub(crate) fn groups(&self, switch: u32) -> impl Iterator<Item = &[u16]> {
        let table = &self.switches[switch as usize];
        (0..table.ends.len() as u16).map(|group| {
            let (first, end) = table.group(group);
            &table.ports[first..end]
        })
    }

    /// Returns the number of switches on the paths between two hosts.
    #[inline]
    pub(crate) fn switches_between(&self, a: u32, b: u32) -> u8 {
        let [a, b] = [a, b].map(|host| usize::from(self.hosts[host as usize].0));
        self.lengths[a * self.edges + b]
    }

    /// Returns the class of the link of `host`.
    pub(crate) fn host_class(&self, host: u32) -> LinkClass {
        self.classes[host as usize]
    }
}

impl SwitchTable {
    #[inline]
    fn group(&self, group: u16) -> (usize, usize) {
        let group = usize::from(group);
        let first = group.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        (first as usize, self.ends[group] as usize)
    }
}
