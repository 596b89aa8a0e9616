//! Assignment of nodes to the parts of the network.
//!
//! Hosts are divided into consecutive ranges, whose lengths differ by at most one. A switch is assigned to the part
//! of most of its neighbours, lowest tier first: edge switches to their hosts, aggregation switches to their pod.
//! When several parts have equally many of its neighbours, as for core switches, the switch is assigned to the part
//! with the fewest switches of this tier. So the traffic between parts is the traffic that leaves a pod.

use crate::topology::{Node, Topology};

/// Position of a node: its part, and its number in the part. Hosts have the first numbers, as in the complete network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodePosition {
    pub(super) part: u16,
    pub(super) node: Node,
}

/// The parts of a network.
#[derive(Debug)]
pub(super) struct Partition {
    /// By node: its position.
    positions: Vec<NodePosition>,
    /// The nodes of each part, hosts first.
    parts: Vec<Vec<Node>>,
}

impl Partition {
    /// Divides `topology` into `parts`: at least one; at most one for each host, and [`PARTS_MAX`].
    pub(super) fn new(topology: &Topology, parts: usize) -> Self {
        let count = parts.clamp(1, (topology.hosts as usize).min(PARTS_MAX));
        let part_of = parts_of_nodes(topology, count);
        let mut parts = vec![Vec::new(); count];
        let position = |(part, node): (u16, Node)| {
            let nodes: &mut Vec<Node> = &mut parts[usize::from(part)];
            nodes.push(node);
            NodePosition { part, node: nodes.len() as Node - 1 }
        };
        let positions = part_of.into_iter().zip(0..).map(position).collect();
        Self { positions, parts }
    }

    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn position(&self, node: Node) -> NodePosition {
        self.positions[node as usize]
    }

    /// Returns the nodes of part `part` of the network, in the order of their indices in that part.
    pub(super) fn nodes(&self, part: usize) -> &[Node] {
        &self.parts[part]
    }

    /// Returns the positions of all nodes, hosts first.
    pub(super) fn positions(&self) -> &[NodePosition] {
        &self.positions
    }
}

/// Returns the part of every node.
fn parts_of_nodes(topology: &Topology, count: usize) -> Vec<u16> {
    let neighbours = topology.neighbours();
    let mut part_of: Vec<Option<u16>> = vec![None; topology.node_count()];
    let hosts = topology.hosts as usize;
    (0..hosts).for_each(|host| part_of[host] = Some((host * count / hosts) as u16));
    loop {
        // The next tier: switches without a part that are neighbours of nodes with a part.
        let links_to = |node: usize| {
            let mut links = vec![0u32; count];
            let parts = neighbours[node].iter().filter_map(|(there, _)| part_of[there.node as usize]);
            parts.for_each(|part| links[usize::from(part)] += 1);
            links
        };
        let unassigned = (0..part_of.len()).filter(|node| part_of[*node].is_none());
        let tier: Vec<_> =
            unassigned.map(|node| (node, links_to(node))).filter(|(_, links)| links.iter().any(|n| *n > 0)).collect();
        if tier.is_empty() {
            break;
        }
        let mut assigned = vec![0u32; count];
        for (node, links) in tier {
            let best = |part: &usize| (core::cmp::Reverse(links[*part]), assigned[*part]);
            let part = (0..count).min_by_key(best).expect("there is at least one part");
            assigned[part] += 1;
            part_of[node] = Some(part as u16);
        }
    }
    part_of.into_iter().map(|part| part.unwrap_or(0)).collect()
}

/// Maximum number of parts; limited because every window moves packets between each pair of parts.
const PARTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{fat_tree, leaf_spine, star};

    #[test]
    fn a_pod_is_in_one_part_and_core_switches_are_divided_evenly() {
        let tree = fat_tree(8);
        let partition = Partition::new(&tree, 4);
        assert_eq!(partition.count(), 4);
        // Each part has 32 hosts, 8 edge and 8 aggregation switches of two pods, and a quarter of the 16 core
        // switches.
        assert!((0..4).all(|part| partition.nodes(part).len() == 32 + 8 + 8 + 4));
        for link in &tree.links {
            let ends = [link.a.node, link.b.node];
            let is_core = |node: Node| tree.name(node).starts_with("core");
            let [a, b] = ends.map(|node| partition.position(node).part);
            assert!(a == b || ends.into_iter().any(is_core), "{} and {}", tree.name(ends[0]), tree.name(ends[1]));
        }
    }

    #[test]
    fn every_node_is_in_exactly_one_part_with_hosts_first() {
        for (topology, wanted) in [(fat_tree(4), 3), (leaf_spine(2, 3, 2), 5), (star(6), 4), (star(2), 9), (star(2), 0)]
        {
            let partition = Partition::new(&topology, wanted);
            assert_eq!(partition.count(), wanted.clamp(1, topology.hosts as usize));
            let mut seen = 0;
            for part in 0..partition.count() {
                let nodes = partition.nodes(part);
                let hosts = nodes.partition_point(|node| *node < topology.hosts);
                assert!(hosts.abs_diff(topology.hosts as usize / partition.count()) <= 1, "{hosts} hosts");
                assert!(nodes.is_sorted() && nodes[0] < topology.hosts, "hosts are not first, or the part has none");
                for (&node, index) in nodes.iter().zip(0..) {
                    assert_eq!(partition.position(node), NodePosition { part: part as u16, node: index });
                    seen += 1;
                }
            }
            assert_eq!(seen, topology.node_count());
        }
    }
}
