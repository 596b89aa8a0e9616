//! The dragonfly: groups of switches, all switches of a group linked to each other, and links between groups.
//!
//! Source: Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology" (ISCA'08), section 3: p
//! hosts a switch, a switches a group, h global links a switch; balanced when a = 2p = 2h. Global link `k` of a group,
//! counted over its switches, leads to the group that is `k mod (groups - 1) + 1` further on (the arrangement that
//! Camarero, Vallejo, Beivide call palmtree, ACM TACO 2014). Links whose round of groups is not complete at both ends
//! do not exist.
//!
//! Routing is minimal (section 4.1): at most one link between groups, and at most one link inside each of the two
//! groups, chosen by ECMP among all such routes. The paper avoids deadlocks by virtual channels, which these switches
//! do not have; with PFC the plan warns of the circle. Adaptive routes (Valiant, UGAL) are not modelled.

use super::wiring::{End, Wiring};
use super::{LinkClass, Topology};

/// Numbers of a dragonfly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dragonfly {
    /// Number of groups: at most `switches * global_links + 1`.
    pub groups: u32,
    /// Number of switches of each group.
    pub switches: u32,
    /// Number of hosts of each switch.
    pub hosts_per_switch: u32,
    /// Number of links of each switch to other groups.
    pub global_links: u32,
}

/// Builds a dragonfly with the switches `group-0-switch-0 ..`.
///
/// # Errors
/// When it is too large, or a group has no link to another one.
pub fn dragonfly(shape: Dragonfly) -> Result<Topology, String> {
    let Dragonfly { groups, switches, hosts_per_switch, global_links } = shape;
    let global = u64::from(switches) * u64::from(global_links);
    if global + 1 < u64::from(groups) {
        return Err(format!("{global} links leave each group, too few for the {} other groups", groups - 1));
    }
    let mut wiring = Wiring::default();
    let mut all = Vec::new();
    for group in 0..groups {
        for switch in 0..switches {
            all.push(wiring.add_switch(format!("group-{group}-switch-{switch}"))?);
        }
    }
    let switch = |group: u32, index: u32| all[(group * switches + index) as usize];
    for end in &all {
        for _ in 0..hosts_per_switch {
            let host = wiring.add_host()?;
            wiring.add_link(host, *end, LinkClass::Host)?;
        }
    }
    for group in 0..groups {
        for (a, b) in (0..switches).flat_map(|a| (a + 1..switches).map(move |b| (a, b))) {
            wiring.add_link(switch(group, a), switch(group, b), LinkClass::Fabric)?;
        }
    }
    if groups > 1 {
        for (a, b) in global_ends(shape) {
            let end = |(group, link): (u32, u32)| -> End { switch(group, link / global_links) };
            wiring.add_link(end(a), end(b), LinkClass::Core)?;
        }
    }
    wiring.build()
}

/// Returns the ends of the links between groups: numbers of the group, and of the link among those of the group.
fn global_ends(shape: Dragonfly) -> impl Iterator<Item = ((u32, u32), (u32, u32))> {
    let (groups, links) = (shape.groups, shape.switches * shape.global_links);
    (0..groups).flat_map(move |group| {
        (0..links).filter_map(move |link| {
            let (round, offset) = (link / (groups - 1), link % (groups - 1) + 1);
            let other = (group + offset) % groups;
            let back = round * (groups - 1) + (groups - offset - 1);
            (group < other && back < links).then_some(((group, link), (other, back)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Paths;

    /// Section 3.1: the largest dragonfly has a * h + 1 groups, joined by one link for each pair.
    #[test]
    fn minimal_routes_have_at_most_one_link_between_groups() {
        for shape in [
            Dragonfly { groups: 9, switches: 4, hosts_per_switch: 2, global_links: 2 },
            Dragonfly { groups: 3, switches: 4, hosts_per_switch: 2, global_links: 2 },
            Dragonfly { groups: 4, switches: 5, hosts_per_switch: 1, global_links: 2 },
            Dragonfly { groups: 1, switches: 3, hosts_per_switch: 1, global_links: 1 },
        ] {
            let network = dragonfly(shape).expect("the shape is valid");
            let per_group = shape.switches * shape.hosts_per_switch;
            let (paths, mut classes) = (Paths::new(&network), Vec::new());
            for src in 0..network.hosts {
                for dst in (0..network.hosts).filter(|dst| *dst != src) {
                    paths.link_classes(src, dst, &mut classes);
                    let count = |class| classes.iter().filter(|link| **link == class).count();
                    let is_same_group = src / per_group == dst / per_group;
                    assert_eq!(count(LinkClass::Core), usize::from(!is_same_group), "{shape:?}: {src} to {dst}");
                    assert!(count(LinkClass::Fabric) <= if is_same_group { 1 } else { 2 }, "{shape:?}");
                }
            }
        }
        let full = Dragonfly { groups: 9, switches: 4, hosts_per_switch: 2, global_links: 2 };
        let network = dragonfly(full).expect("the shape is valid");
        let global = network.links.iter().filter(|link| link.class == LinkClass::Core).count();
        assert_eq!((network.hosts, network.switches.len(), global), (72, 36, 36));
        assert!(network.switches.iter().all(|switch| switch.ports() == 2 + 3 + 2));
    }

    #[test]
    fn groups_without_a_link_between_them_are_refused() {
        let shape = Dragonfly { groups: 10, switches: 4, hosts_per_switch: 2, global_links: 2 };
        assert_eq!(
            dragonfly(shape).expect_err("too few links"),
            "8 links leave each group, too few for the 9 other groups"
        );
    }
}
