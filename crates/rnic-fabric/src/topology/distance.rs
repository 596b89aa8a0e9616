//! Number of switches between two hosts: a receiver derives it from the hop limit of an IPv6 header.
//!
//! Hosts are numbered so that those below a switch are consecutive, and all paths between two hosts have equal
//! length. So the hosts at a given distance from one host are a block of numbers around it, except the smaller block
//! of nearer hosts: a fat-tree has three such blocks. Therefore no hop counter has to be updated in the network.

use super::{Paths, Topology};

/// The blocks of hosts around one host, nearest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct HopDistances {
    blocks: Vec<Block>,
}

/// A range of consecutive hosts, and the number of switches on the path to the farthest host in it.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u32,
    hosts: u32,
    switches: u8,
}

impl HopDistances {
    /// Creates the blocks around `host`, for a network with these [`sizes`].
    pub(crate) fn new(host: u32, sizes: &[(u32, u8)]) -> Self {
        let block =
            |(hosts, switches): &(u32, u8)| Block { first: host / hosts * hosts, hosts: *hosts, switches: *switches };
        Self { blocks: sizes.iter().map(block).collect() }
    }

    /// Returns the number of switches on the path to or from `other`.
    #[inline]
    pub(crate) fn switches(&self, other: u32) -> u8 {
        let around = |block: &&Block| other.wrapping_sub(block.first) < block.hosts;
        self.blocks.iter().find(around).map_or(0, |block| block.switches)
    }
}

/// Returns the sizes of the blocks around any host, and the number of switches on paths inside each.
pub(crate) fn sizes(topology: &Topology) -> Vec<(u32, u8)> {
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
    use crate::topology::{fat_tree, leaf_spine, point_to_point, star};

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
        ];
        let mut classes = Vec::new();
        for topology in topologies {
            let (paths, sizes) = (Paths::new(&topology), sizes(&topology));
            for host in 0..topology.hosts {
                let distances = HopDistances::new(host, &sizes);
                for other in (0..topology.hosts).filter(|other| *other != host) {
                    paths.link_classes(host, other, &mut classes);
                    let switches = distances.switches(other);
                    assert_eq!(usize::from(switches), classes.len() - 1, "{host} to {other} of {}", topology.hosts);
                }
            }
        }
    }
}
