//! Number of switches between two hosts: a receiver derives it from the hop limit of an IPv6 header.
//!
//! Hosts are numbered so that those below a switch are consecutive, and all paths between two hosts have equal
//! length. So the hosts at a given distance from one host are a block of numbers around it, except the smaller block
//! of nearer hosts: a fat-tree has three such blocks. In other graphs the number is in the routing tables. Therefore no
//! hop counter has to be updated in the network.

use std::sync::Arc;

use super::{Paths, Topology};
use crate::route::tables::RouteTables;

/// The blocks of hosts around one host, nearest first; or the tables of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct HopDistances {
    blocks: Vec<Block>,
    /// The tables, and the host.
    tables: Option<(Arc<RouteTables>, u32)>,
}

/// A range of consecutive hosts, and the number of switches on the path to the farthest host in it.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u32,
    hosts: u32,
    switches: u8,
}

impl HopDistances {
    /// Creates the blocks around `host`, for a network with these [`sizes`], or with these tables.
    pub(crate) fn new(host: u32, sizes: &[(u32, u8)], tables: Option<Arc<RouteTables>>) -> Self {
        let block =
            |(hosts, switches): &(u32, u8)| Block { first: host / hosts * hosts, hosts: *hosts, switches: *switches };
        Self { blocks: sizes.iter().map(block).collect(), tables: tables.map(|tables| (tables, host)) }
    }

    /// Returns the number of switches on the path to or from `other`.
    #[inline]
    pub(crate) fn switches(&self, other: u32) -> u8 {
        let around = |block: &&Block| other.wrapping_sub(block.first) < block.hosts;
        match self.blocks.iter().find(around) {
            Some(block) => block.switches,
            None => self.in_graph(other),
        }
    }

    #[cold]
    #[inline(never)]
    fn in_graph(&self, other: u32) -> u8 {
        self.tables.as_ref().map_or(0, |(tables, host)| tables.switches_between(*host, other))
    }
}

/// Returns the sizes of the blocks around any host, and the number of switches on paths inside each; none for a graph,
/// whose hosts may have any numbers.
pub(crate) fn sizes(topology: &Topology) -> Vec<(u32, u8)> {
    if topology.tables.is_some() {
        return Vec::new();
    }
    let (paths, mut classes) = (Paths::new(topology), Vec::new());
    let mut sizes: Vec<(u32, u8)> = Vec::new();
    for other in 1..topology.hosts {
        paths.link_classes(0, other, &mut classes);
        let switches = classes.len() as u8 - 1;
        match sizes.last_mut() {
            Some((hosts, hop_count)) if *hop_count == switches => *hosts = other + 1,
            _ => sizes.push((other + 1, switches)),
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::*;

    #[test]
    fn f22_hops_are_the_switches_of_every_path() {
        let topologies = [
            point_to_point(),
            star(5),
            leaf_spine(1, 1, 2),
            leaf_spine(4, 3, 5),
            leaf_spine(2, 4, 1),
            fat_tree(2),
            fat_tree(6),
            clos(Clos { pods: 2, leaves: 3, spines: 2, cores: 1, hosts_per_leaf: 2 }),
            rails(Rails { servers: 3, nics: 2, spines: 2 }).expect("valid"),
            dragonfly(Dragonfly { groups: 5, switches: 2, hosts_per_switch: 2, global_links: 2 }).expect("valid"),
        ];
        let mut classes = Vec::new();
        for topology in topologies {
            let (paths, sizes) = (Paths::new(&topology), sizes(&topology));
            for host in 0..topology.hosts {
                let distances = HopDistances::new(host, &sizes, topology.tables.clone());
                for other in (0..topology.hosts).filter(|other| *other != host) {
                    paths.link_classes(host, other, &mut classes);
                    let switches = distances.switches(other);
                    assert_eq!(usize::from(switches), classes.len() - 1, "{host} to {other} of {}", topology.hosts);
                }
            }
        }
    }
}
