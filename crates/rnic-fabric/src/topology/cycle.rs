//! Buffers that wait for each other in a circle, in networks with PFC.
//!
//! A switch with PFC stops a neighbour when packets of that neighbour wait for an output. So the link from `a` to `b`
//! waits for the link from `b` to `c` when a route goes from `a` over `b` to `c`. When such waits form a circle, all of
//! its buffers may fill and none can drain: a deadlock. Source: Dally and Seitz, "Deadlock-Free Message Routing in
//! Multiprocessor Interconnection Networks" (1987): without a circle in this graph there is no deadlock. The graph
//! contains only links that some host's packets use; routes that go up and then down have no circle.

use crate::route::tables::SwitchGraph;

/// A link from one switch to another, by their indices.
pub(crate) type SwitchLink = (u16, u16);

/// Returns links of which each waits for the next one, and the last one for the first, if the routes of `graph` have
/// such a circle.
pub(crate) fn buffer_cycle(graph: &SwitchGraph) -> Option<Vec<SwitchLink>> {
    // Links have numbers, in the order of their switches and ports.
    let mut first_links = Vec::with_capacity(graph.hops.len());
    let mut links: Vec<SwitchLink> = Vec::new();
    for (switch, hops) in (0..).zip(&graph.hops) {
        first_links.push(links.len());
        links.extend(hops.iter().map(|hop| (switch, hop.to)));
    }
    let successors = successors(graph, &first_links, links.len());
    let cycle = find_cycle(&successors)?;
    Some(cycle.into_iter().map(|link| links[link as usize]).collect())
}

/// Returns, for each link, the links for which it waits.
fn successors(graph: &SwitchGraph, first_links: &[usize], links: usize) -> Vec<Vec<u32>> {
    let edges = graph.edges();
    let mut successors: Vec<Vec<u32>> = vec![Vec::new(); links];
    let mut limits = vec![COMPACT_MIN; links];
    for end in &edges {
        let distances = graph.distances(*end);
        // Packets to `end` start at the other switches with hosts.
        let mut is_used = vec![false; graph.hops.len()];
        edges.iter().for_each(|edge| is_used[usize::from(*edge)] = true);
        let next_links = |switch: u16| {
            let all = (first_links[usize::from(switch)]..).zip(&graph.hops[usize::from(switch)]);
            let distances = &distances;
            all.filter(move |(_, hop)| SwitchGraph::is_shortest(switch, hop, distances))
        };
        let next: Vec<Vec<(usize, u16)>> = (0..graph.hops.len() as u16)
            .map(|switch| next_links(switch).map(|(link, hop)| (link, hop.to)).collect())
            .collect();
        for switch in SwitchGraph::by_distance(&distances).into_iter().rev() {
            if !is_used[usize::from(switch)] {
                continue;
            }
            for &(link, to) in &next[usize::from(switch)] {
                is_used[usize::from(to)] = true;
                successors[link].extend(next[usize::from(to)].iter().map(|(link, _)| *link as u32));
            }
        }
        // A link waits for few others, but for the same ones on the way to many destinations.
        for (all, limit) in successors.iter_mut().zip(&mut limits) {
            if all.len() > *limit {
                compact(all);
                *limit = 2 * all.len() + COMPACT_MIN;
            }
        }
    }
    successors.iter_mut().for_each(compact);
    successors
}

/// Number of entries below which repeated ones are kept.
const COMPACT_MIN: usize = 64;

fn compact(links: &mut Vec<u32>) {
    links.sort_unstable();
    links.dedup();
}

/// Returns the nodes of a cycle, if there is one, by a search in depth.
fn find_cycle(successors: &[Vec<u32>]) -> Option<Vec<u32>> {
    let mut is_done = vec![false; successors.len()];
    let mut is_on_path = vec![false; successors.len()];
    for start in 0..successors.len() as u32 {
        // Nodes of the present path, and the number of their successors that have been visited.
        let mut path: Vec<(u32, usize)> = Vec::new();
        let mut enter = Some(start).filter(|start| !is_done[*start as usize]);
        loop {
            if let Some(node) = enter.take() {
                path.push((node, 0));
                is_on_path[node as usize] = true;
            }
            let Some((node, visited)) = path.last_mut() else { break };
            let Some(next) = successors[*node as usize].get(*visited).copied() else {
                is_on_path[*node as usize] = false;
                is_done[*node as usize] = true;
                path.pop();
                continue;
            };
            *visited += 1;
            if is_on_path[next as usize] {
                let from = path.iter().position(|(node, _)| *node == next).unwrap_or(0);
                return Some(path[from..].iter().map(|(node, _)| *node).collect());
            }
            enter = Some(next).filter(|next| !is_done[*next as usize]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Clos, Dragonfly, Rails, Topology, clos, dragonfly, fat_tree, file, leaf_spine, rails};

    fn cycle_of(topology: &Topology) -> Option<Vec<SwitchLink>> {
        buffer_cycle(&SwitchGraph::new(topology.hosts, topology.switches.len(), &topology.links))
    }

    #[test]
    fn routes_up_and_down_have_no_cycle() {
        let clos = clos(Clos { pods: 3, leaves: 2, spines: 2, cores: 2, hosts_per_leaf: 2 });
        let rails = rails(Rails { servers: 3, nics: 4, spines: 2 }).expect("the shape is valid");
        for topology in [fat_tree(4), fat_tree(6), leaf_spine(3, 4, 2), clos, rails] {
            assert_eq!(cycle_of(&topology), None);
        }
    }

    /// Each link of the cycle starts where the one before ends.
    #[test]
    fn minimal_routes_of_a_dragonfly_and_of_a_ring_have_one() {
        let full = Dragonfly { groups: 5, switches: 2, hosts_per_switch: 1, global_links: 2 };
        let ring = "host h[0-4]\nswitch s[0-4]\n".to_owned()
            + &(0..5).map(|at| format!("link h{at} s{at}\nlink s{at} s{}\n", (at + 1) % 5)).collect::<String>();
        let link = (Some(rnic_base::BitRate::gbps(1)), Some(rnic_base::Duration::from_us(1)));
        let ring = file::read(&ring, None, &file::Defaults { host: link, fabric: link }).expect("the text is valid");
        for topology in [dragonfly(full).expect("the shape is valid"), ring.topology] {
            let cycle = cycle_of(&topology).expect("a cycle");
            assert!(cycle.len() > 2, "{cycle:?}");
            for (link, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                assert_eq!(link.1, next.0, "{cycle:?}");
            }
        }
    }

    /// In a ring of three switches no packet crosses two links.
    #[test]
    fn a_ring_of_three_has_no_cycle() {
        let single = Dragonfly { groups: 1, switches: 3, hosts_per_switch: 2, global_links: 1 };
        assert_eq!(cycle_of(&dragonfly(single).expect("the shape is valid")), None);
    }
}
