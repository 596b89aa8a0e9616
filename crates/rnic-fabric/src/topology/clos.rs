//! A folded Clos of three tiers: pods of leaves and spines, and core switches that join the pods.
//!
//! Source: Al-Fares, Loukissas, Vahdat (SIGCOMM'08), section 2.2; a fat-tree is the case in which all numbers are half
//! of the number of ports. In each pod every leaf is linked to every spine. Spine `s` of each pod is linked to core
//! switches `s * cores ..`, so a pod is reached over one core switch by one path. Every switch numbers its down ports
//! first; port `p` of a core switch leads to pod `p`.

use super::{LinkClass, LinkPoint, LinkSpec, SwitchSpec, Topology};
use crate::route::RouteSpec;

/// Numbers of a Clos of three tiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clos {
    /// Number of pods.
    pub pods: u32,
    /// Number of leaves of each pod.
    pub leaves: u32,
    /// Number of spines of each pod, each linked to every leaf of the pod.
    pub spines: u32,
    /// Number of core switches to which each spine is linked.
    pub cores: u32,
    /// Number of hosts of each leaf.
    pub hosts_per_leaf: u32,
}

/// Builds a Clos of three tiers: `leaf-0 ..`, `spine-0 ..` and `core-0 ..`, in this order, pod by pod.
///
/// # Panics
/// When one of the numbers is zero.
pub fn clos(shape: Clos) -> Topology {
    let Clos { pods, leaves, spines, cores, hosts_per_leaf } = shape;
    assert!([pods, leaves, spines, cores, hosts_per_leaf].iter().all(|number| *number > 0), "{shape:?}");
    let (hosts, hosts_per_pod) = (pods * leaves * hosts_per_leaf, leaves * hosts_per_leaf);
    let leaf = |index: u32| hosts + index;
    let spine = |index: u32| leaf(pods * leaves) + index;
    let core = |index: u32| spine(pods * spines) + index;

    let switch = |name: String, first_host, hosts_per_port, down_ports, up_ports| SwitchSpec {
        name,
        route: RouteSpec { first_host, hosts_per_port, down_ports, up_ports }.into(),
    };
    let leaf_switches =
        (0..pods * leaves).map(|i| switch(format!("leaf-{i}"), i * hosts_per_leaf, 1, hosts_per_leaf, spines));
    let spine_switches = (0..pods * spines)
        .map(|i| switch(format!("spine-{i}"), i / spines * hosts_per_pod, hosts_per_leaf, leaves, cores));
    let core_switches = (0..spines * cores).map(|i| switch(format!("core-{i}"), 0, hosts_per_pod, pods, 0));
    let switches = leaf_switches.chain(spine_switches).chain(core_switches).collect();

    let point = |node, port| LinkPoint { node, port };
    let to_hosts = (0..hosts).map(|host| LinkSpec {
        a: point(host, 0),
        b: point(leaf(host / hosts_per_leaf), host % hosts_per_leaf),
        class: LinkClass::Host,
    });
    let to_spines = (0..pods * leaves).flat_map(|index| (0..spines).map(move |up| (index, up)));
    let to_spines = to_spines.map(|(index, up)| LinkSpec {
        a: point(leaf(index), hosts_per_leaf + up),
        b: point(spine(index / leaves * spines + up), index % leaves),
        class: LinkClass::Fabric,
    });
    let to_cores = (0..pods * spines).flat_map(|index| (0..cores).map(move |up| (index, up)));
    let to_cores = to_cores.map(|(index, up)| LinkSpec {
        a: point(spine(index), leaves + up),
        b: point(core(index % spines * cores + up), index / spines),
        class: LinkClass::Core,
    });
    let links = to_hosts.chain(to_spines).chain(to_cores).collect();
    Topology::folded_clos(hosts, switches, links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Paths, fat_tree};

    #[test]
    fn every_pair_is_reached_over_2_4_or_6_links() {
        for shape in [
            Clos { pods: 3, leaves: 2, spines: 4, cores: 2, hosts_per_leaf: 5 },
            Clos { pods: 2, leaves: 3, spines: 1, cores: 3, hosts_per_leaf: 1 },
            Clos { pods: 1, leaves: 2, spines: 2, cores: 1, hosts_per_leaf: 2 },
        ] {
            let network = clos(shape);
            let (paths, mut classes) = (Paths::new(&network), Vec::new());
            for src in 0..network.hosts {
                for dst in (0..network.hosts).filter(|dst| *dst != src) {
                    paths.link_classes(src, dst, &mut classes);
                    let (leaf, pod) = (shape.hosts_per_leaf, shape.hosts_per_leaf * shape.leaves);
                    let middle: &[LinkClass] = if src / leaf == dst / leaf {
                        &[]
                    } else if src / pod == dst / pod {
                        &[LinkClass::Fabric; 2]
                    } else {
                        &[LinkClass::Fabric, LinkClass::Core, LinkClass::Core, LinkClass::Fabric]
                    };
                    let ends = [LinkClass::Host];
                    assert_eq!(classes, [&ends, middle, &ends].concat(), "{shape:?}: {src} to {dst}");
                }
            }
        }
    }

    /// Al-Fares et al.: the fat-tree of k-port switches is a Clos in which every number is k or k/2.
    #[test]
    fn a_fat_tree_is_a_clos() {
        let (tree, same) = (fat_tree(6), clos(Clos { pods: 6, leaves: 3, spines: 3, cores: 3, hosts_per_leaf: 3 }));
        let routes = |topology: &Topology| topology.switches.iter().map(|switch| switch.route).collect::<Vec<_>>();
        let ends = |topology: &Topology| topology.links.iter().map(|link| (link.a, link.b)).collect::<Vec<_>>();
        assert_eq!((routes(&tree), ends(&tree)), (routes(&same), ends(&same)));
    }
}
