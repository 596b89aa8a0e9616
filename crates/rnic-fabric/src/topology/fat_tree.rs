//! The fat-tree of k-port switches: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core switches, k^3/4
//! hosts, full bisection.
//!
//! Source: Al-Fares, Loukissas, Vahdat, "A scalable, commodity data center network architecture" (SIGCOMM'08),
//! section 3, as used by IRN (SIGCOMM'18) section 4.1 with k = 6. Aggregation switch `a` of each pod connects to core
//! switches `a * k/2 ..`. Every switch numbers its down ports first; port `p` of a core switch leads to pod `p`.

use super::{LinkClass, LinkPoint, LinkSpec, SwitchSpec, Topology};
use crate::route::RouteSpec;

/// Builds the fat-tree of `k`-port switches: `edge-0 ..`, `agg-0 ..` and `core-0 ..`, in this order.
///
/// # Panics
/// When `k` is odd or below 2.
pub fn fat_tree(k: u32) -> Topology {
    assert!(k >= 2 && k.is_multiple_of(2), "a fat-tree of {k}-port switches");
    let half = k / 2;
    let (hosts, per_pod, layer) = (k * half * half, half * half, k * half);
    let edge = |index: u32| hosts + index;
    let agg = |index: u32| hosts + layer + index;
    let core = |index: u32| hosts + 2 * layer + index;

    let switch = |name: String, first_host, hosts_per_port, down_ports, up_ports| SwitchSpec {
        name,
        route: RouteSpec { first_host, hosts_per_port, down_ports, up_ports }.into(),
    };
    let edges = (0..layer).map(|i| switch(format!("edge-{i}"), i * half, 1, half, half));
    let aggs = (0..layer).map(|i| switch(format!("agg-{i}"), i / half * per_pod, half, half, half));
    let cores = (0..half * half).map(|i| switch(format!("core-{i}"), 0, per_pod, k, 0));
    let switches = edges.chain(aggs).chain(cores).collect();

    let point = |node, port| LinkPoint { node, port };
    let fabric = |a, b| LinkSpec { a, b, class: LinkClass::Fabric };
    let to_hosts = (0..hosts).map(|host| LinkSpec {
        a: point(host, 0),
        b: point(edge(host / half), host % half),
        class: LinkClass::Host,
    });
    let pairs = || (0..layer).flat_map(|index| (0..half).map(move |up| (index, up)));
    let to_aggs = pairs().map(|(index, up)| {
        let (pod, in_pod) = (index / half, index % half);
        fabric(point(edge(index), half + up), point(agg(pod * half + up), in_pod))
    });
    let to_cores = pairs().map(|(index, up)| {
        let (pod, in_pod) = (index / half, index % half);
        fabric(point(agg(index), half + up), point(core(in_pod * half + up), pod))
    });
    let links = to_hosts.chain(to_aggs).chain(to_cores).collect();
    Topology::folded_clos(hosts, switches, links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Paths;

    #[test]
    fn sizes_are_those_of_the_paper() {
        let tree = fat_tree(6);
        assert_eq!((tree.hosts, tree.switches.len(), tree.links.len()), (54, 45, 162));
        assert!(tree.switches.iter().all(|switch| switch.ports() == 6));
        let tree = fat_tree(8);
        assert_eq!((tree.hosts, tree.switches.len()), (128, 80));
        assert_eq!(tree.name(tree.hosts + 32), "agg-0");
    }

    #[test]
    fn every_pair_is_reached_over_2_4_or_6_links() {
        for k in [2, 4, 6] {
            let tree = fat_tree(k);
            let paths = Paths::new(&tree);
            let mut classes = Vec::new();
            for src in 0..tree.hosts {
                for dst in (0..tree.hosts).filter(|dst| *dst != src) {
                    paths.link_classes(src, dst, &mut classes);
                    let (edge, pod) = (k / 2, k * k / 4);
                    let expected = if src / edge == dst / edge {
                        2
                    } else if src / pod == dst / pod {
                        4
                    } else {
                        6
                    };
                    assert_eq!(classes.len(), expected, "k = {k}, {src} to {dst}");
                    assert_eq!((classes[0], classes[expected - 1]), (LinkClass::Host, LinkClass::Host));
                }
            }
        }
    }
}
