//! Rail-optimised: NIC `i` of every server at the switch of rail `i`; spines join the rails.
//!
//! Source: the network of GPU servers whose GPUs have a NIC each, as NVIDIA describes it for DGX SuperPOD ("rail
//! optimized"): GPUs of the same position in different servers are one switch apart. Host `server * nics + i` is NIC
//! `i` of a server. Servers' own links between GPUs are not a part of the network: what a NIC sends to another one of
//! its server crosses a spine.

use super::wiring::Wiring;
use super::{LinkClass, Topology};

/// Numbers of a rail-optimised network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rails {
    /// Number of servers.
    pub servers: u32,
    /// Number of NICs of each server, which is that of the rails.
    pub nics: u32,
    /// Number of switches that join the rails, each linked to every rail.
    pub spines: u32,
}

/// Builds a rail-optimised network: `rail-0 ..`, and `spine-0 ..`.
///
/// # Errors
/// When it is too large.
pub fn rails(shape: Rails) -> Result<Topology, String> {
    let mut wiring = Wiring::default();
    let mut switches = |name: &str, count| -> Result<Vec<_>, String> {
        (0..count).map(|index| wiring.add_switch(format!("{name}-{index}"))).collect()
    };
    let (rails, spines) = (switches("rail", shape.nics)?, switches("spine", shape.spines)?);
    for _ in 0..shape.servers {
        for rail in &rails {
            let host = wiring.add_host()?;
            wiring.add_link(host, *rail, LinkClass::Host)?;
        }
    }
    for rail in &rails {
        for spine in &spines {
            wiring.add_link(*rail, *spine, LinkClass::Fabric)?;
        }
    }
    wiring.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Paths;

    #[test]
    fn nics_of_one_position_are_one_switch_apart() {
        let network = rails(Rails { servers: 5, nics: 3, spines: 2 }).expect("the shape is valid");
        assert_eq!((network.hosts, network.switches.len(), network.links.len()), (15, 5, 15 + 6));
        let (paths, mut classes) = (Paths::new(&network), Vec::new());
        for src in 0..network.hosts {
            for dst in (0..network.hosts).filter(|dst| *dst != src) {
                paths.link_classes(src, dst, &mut classes);
                assert_eq!(classes.len(), if src % 3 == dst % 3 { 2 } else { 4 }, "{src} to {dst}");
            }
        }
    }
}
