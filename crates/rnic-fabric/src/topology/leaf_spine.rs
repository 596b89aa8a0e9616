//! Leaf and spine: two layers of switches, every leaf connected to every spine.
//!
//! Source: the folded Clos of two stages, as FaSR (2025) section V-D3 simulates it: 4 spines, 32 leaves of ten
//! servers. Links between switches usually have another rate than those of hosts: `links.fabric` in the plan. Every
//! switch numbers its down ports first; port `p` of a spine leads to leaf `p`.

use super::{LinkClass, LinkPoint, LinkSpec, SwitchSpec, Topology};
use crate::route::RouteSpec;

/// Builds `leaves` switches with `hosts_per_leaf` hosts each, `leaf-0 ..`, all connected to `spines` switches, `spine-0
/// ..`.
///
/// # Panics
/// When one of the numbers is zero.
pub fn leaf_spine(spines: u32, leaves: u32, hosts_per_leaf: u32) -> Topology {
    assert!(spines > 0 && leaves > 0 && hosts_per_leaf > 0, "{spines} spines, {leaves} leaves of {hosts_per_leaf}");
    let hosts = leaves * hosts_per_leaf;
    let switch = |name: String, route: RouteSpec| SwitchSpec { name, route: route.into() };
    let leaf_switches = (0..leaves).map(|leaf| {
        let first_host = leaf * hosts_per_leaf;
        let route = RouteSpec { first_host, hosts_per_port: 1, down_ports: hosts_per_leaf, up_ports: spines };
        switch(format!("leaf-{leaf}"), route)
    });
    let spine_switches = (0..spines).map(|spine| {
        let route = RouteSpec { first_host: 0, hosts_per_port: hosts_per_leaf, down_ports: leaves, up_ports: 0 };
        switch(format!("spine-{spine}"), route)
    });
    let switches = leaf_switches.chain(spine_switches).collect();

    let point = |node, port| LinkPoint { node, port };
    let to_hosts = (0..hosts).map(|host| LinkSpec {
        a: point(host, 0),
        b: point(hosts + host / hosts_per_leaf, host % hosts_per_leaf),
        class: LinkClass::Host,
    });
    let to_spines = (0..leaves).flat_map(|leaf| (0..spines).map(move |spine| (leaf, spine)));
    let to_spines = to_spines.map(|(leaf, spine)| LinkSpec {
        a: point(hosts + leaf, hosts_per_leaf + spine),
        b: point(hosts + leaves + spine, leaf),
        class: LinkClass::Fabric,
    });
    let links = to_hosts.chain(to_spines).collect();
    Topology::folded_clos(hosts, switches, links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Paths;

    /// FaSR section V-D3.
    #[test]
    fn sizes_are_those_of_the_paper() {
        let network = leaf_spine(4, 32, 10);
        assert_eq!((network.hosts, network.switches.len(), network.links.len()), (320, 36, 320 + 128));
        assert_eq!((network.switches[0].ports(), network.switches[35].ports()), (14, 32));
        assert_eq!((network.name(320), network.name(352)), ("leaf-0".to_owned(), "spine-0".to_owned()));
    }

    #[test]
    fn every_pair_is_reached_over_2_or_4_links() {
        for (spines, leaves, hosts_per_leaf) in [(1, 1, 2), (1, 2, 1), (4, 3, 5), (2, 8, 3)] {
            let network = leaf_spine(spines, leaves, hosts_per_leaf);
            let paths = Paths::new(&network);
            let mut classes = Vec::new();
            for src in 0..network.hosts {
                for dst in (0..network.hosts).filter(|dst| *dst != src) {
                    paths.link_classes(src, dst, &mut classes);
                    let same_leaf = src / hosts_per_leaf == dst / hosts_per_leaf;
                    let fabric = classes.iter().filter(|class| **class == LinkClass::Fabric).count();
                    assert_eq!((classes.len(), fabric), if same_leaf { (2, 0) } else { (4, 2) }, "{src} to {dst}");
                }
            }
        }
    }
}
