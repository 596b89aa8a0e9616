//! Two hosts and one link; or several hosts around one switch.

use super::{LinkClass, LinkPoint, LinkSpec, SwitchSpec, Topology};
use crate::route::RouteSpec;

/// Builds a network of two hosts, back to back.
pub fn point_to_point() -> Topology {
    let end = |node| LinkPoint { node, port: 0 };
    let links = vec![LinkSpec { a: end(0), b: end(1), class: LinkClass::Host }];
    Topology::folded_clos(2, Vec::new(), links)
}

/// Builds a network of `hosts` hosts, each connected to the only switch, `switch-0`; host `i` is at its port `i`.
pub fn star(hosts: u32) -> Topology {
    let route = RouteSpec { first_host: 0, hosts_per_port: 1, down_ports: hosts, up_ports: 0 };
    let links = (0..hosts).map(|host| LinkSpec {
        a: LinkPoint { node: host, port: 0 },
        b: LinkPoint { node: hosts, port: host },
        class: LinkClass::Host,
    });
    let links = links.collect();
    let switch = SwitchSpec { name: "switch-0".to_owned(), route: route.into() };
    Topology::folded_clos(hosts, vec![switch], links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Paths;

    #[test]
    fn every_pair_is_one_or_two_links_apart() {
        let mut classes = Vec::new();
        Paths::new(&point_to_point()).link_classes(1, 0, &mut classes);
        assert_eq!(classes, [LinkClass::Host]);
        let star = star(5);
        let paths = Paths::new(&star);
        for src in 0..5 {
            for dst in (0..5).filter(|dst| *dst != src) {
                paths.link_classes(src, dst, &mut classes);
                assert_eq!(classes, [LinkClass::Host; 2]);
            }
        }
        assert_eq!(star.direction_name(star.links[3].a, star.links[3].b), "host-3>switch-0");
    }
}
