//! Routing in a switch: down when the destination is below the switch, otherwise up by hash.
//!
//! Hosts are numbered so that those below a switch, and below each of its ports, are consecutive: two numbers
//! describe the hosts below. This scheme covers every folded Clos (star, leaf and spine, fat-tree of any depth).
//! Among equal-cost up ports, one is chosen by a hash of source, destination and label with a salt per switch (ECMP,
//! RFC 2992's hash-threshold): without the salt every layer would make the same choice, and most paths would not be
//! used.
//!
//! When up links have different rates, a switch may choose among them by weight: "WCMP: Weighted Cost Multipathing
//! for Improved Fairness in Data Centers" (EuroSys'14). The paper replicates entries of a table and reduces weights
//! to what fits; here the range of the hash is divided, so that the shares equal the weights exactly, and with equal
//! weights each flow takes the same port as with ECMP. A weight is the rate of the link to the next layer, which in a
//! leaf-spine network is the rate of the complete path: all links of a spine have one rate.
//!
//! In a graph that is no folded Clos, no host is below any switch in this sense, and the port is taken from tables by
//! destination ([`RouteTables`]): the same hash chooses among all ports on a shortest path. A Clos pays nothing for
//! that: the tables, like the weights, are behind the pointer that is empty for ECMP in a Clos.

pub(crate) mod tables;

use std::sync::Arc;

use rnic_base::BitRate;
use rnic_wire::falcon::FlowLabel;

use tables::{Ports, RouteTables};

/// The routing table of one switch.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// First host below the switch, and number of hosts below it.
    first_host: u32,
    hosts: u32,
    /// 2^32 divided by the number of hosts below each port, rounded up: division by multiplication, exact for fewer
    /// than 2^16 hosts below a switch.
    per_port_inverse: u64,
    /// Ports 0..down_ports lead down, the next `up_ports` ports lead up.
    down_ports: u32,
    up_ports: u32,
    salt: u64,
    /// Another choice than among all up ports equally.
    choice: Option<Box<Choice>>,
}

/// A choice among ports that takes more than a multiplication.
#[derive(Clone, Debug)]
enum Choice {
    /// Among the up ports by weight: smallest hash for each up port except the first one.
    Weighted(Box<[u64]>),
    /// Among the ports of a table, for each destination.
    Table {
        tables: Arc<RouteTables>,
        /// Index of the switch in the tables.
        switch: u32,
        /// By weight: smallest hash for each port of each group, 0 for the first one of a group. Empty: equally.
        bounds: Box<[u64]>,
    },
}

/// The routing table of a switch, as the builder of a topology gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchRoute {
    /// In a folded Clos: the position of the switch.
    Clos(RouteSpec),
    /// In any other graph: computed from the links, for the switch's number of ports.
    Table {
        /// Number of ports.
        ports: u32,
    },
}

impl From<RouteSpec> for SwitchRoute {
    fn from(spec: RouteSpec) -> Self {
        Self::Clos(spec)
    }
}

/// Position of a switch relative to the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteSpec {
    /// The first host below the switch.
    pub first_host: u32,
    /// Number of hosts below each of its down ports.
    pub hosts_per_port: u32,
    /// Number of ports that lead down: 0 to `down_ports` - 1.
    pub down_ports: u32,
    /// Number of ports that lead up: the ports after the down ports.
    pub up_ports: u32,
}

impl Route {
    pub(crate) fn new(spec: &RouteSpec, salt: u64) -> Self {
        let hosts = spec.hosts_per_port * spec.down_ports;
        assert!(spec.hosts_per_port > 0 && u64::from(hosts) * u64::from(spec.hosts_per_port) < 1 << 32);
        Self {
            first_host: spec.first_host,
            hosts,
            per_port_inverse: (1u64 << 32).div_ceil(u64::from(spec.hosts_per_port)),
            down_ports: spec.down_ports,
            up_ports: spec.up_ports,
            salt,
            choice: None,
        }
    }

    /// Creates the table of switch `switch` of a graph.
    pub(crate) fn by_table(tables: Arc<RouteTables>, switch: u32, salt: u64) -> Self {
        let choice = Choice::Table { tables, switch, bounds: Box::default() };
        Self::without_down_ports(salt, choice)
    }

    /// Creates a table like [`Route::by_table`] whose ports are chosen in proportion to the `rates` of the switch's
    /// ports.
    pub(crate) fn by_weighted_table(tables: Arc<RouteTables>, switch: u32, salt: u64, rates: &[BitRate]) -> Self {
        let group_bounds = |ports: &[u16]| {
            let weights: Vec<BitRate> = ports.iter().map(|port| rates[usize::from(*port)]).collect();
            core::iter::once(0).chain(bounds(&weights)).take(ports.len()).collect::<Vec<_>>()
        };
        let bounds = tables.groups(switch).flat_map(group_bounds).collect();
        Self::without_down_ports(salt, Choice::Table { tables, switch, bounds })
    }

    fn without_down_ports(salt: u64, choice: Choice) -> Self {
        let (first_host, hosts, per_port_inverse, down_ports, up_ports) = (0, 0, 0, 0, 0);
        Self { first_host, hosts, per_port_inverse, down_ports, up_ports, salt, choice: Some(Box::new(choice)) }
    }

    /// Creates a table like [`Route::new`] whose up ports are chosen in proportion to `weights`.
    pub(crate) fn weighted(spec: &RouteSpec, salt: u64, weights: &[BitRate]) -> Self {
        assert!(weights.len() == spec.up_ports as usize, "the number of weights is not the number of up ports");
        Self { choice: Some(Box::new(Choice::Weighted(bounds(weights).collect()))), ..Self::new(spec, salt) }
    }

    /// Returns the port that leads to host `dst` for packets with `flow_hash`.
    #[inline]
    pub(crate) fn port(&self, dst: u32, flow_hash: u32) -> usize {
        let offset = dst.wrapping_sub(self.first_host);
        if offset < self.hosts {
            return ((u64::from(offset) * self.per_port_inverse) >> 32) as usize;
        }
        let hash = u64::from(mix(flow_hash, self.salt));
        if let Some(choice) = &self.choice {
            return choice.port(self.down_ports, dst, hash);
        }
        self.down_ports as usize + ((hash * u64::from(self.up_ports)) >> 32) as usize
    }
}

impl Choice {
    // Within the caller it would take registers from the packets of a Clos.
    #[cold]
    #[inline(never)]
    fn port(&self, down_ports: u32, dst: u32, hash: u64) -> usize {
        match self {
            Self::Weighted(bounds) => down_ports as usize + bounds.partition_point(|bound| *bound <= hash),
            Self::Table { tables, switch, bounds } => {
                let (first, ports) = match tables.ports(*switch, dst) {
                    Ports::Host(port) => return usize::from(port),
                    Ports::Group { first, ports } => (first, ports),
                };
                let chosen = match bounds.get(first..first + ports.len()) {
                    Some(bounds) => bounds.partition_point(|bound| *bound <= hash) - 1,
                    None => ((hash * ports.len() as u64) >> 32) as usize,
                };
                usize::from(ports[chosen])
            }
        }
    }
}

/// Returns the smallest hash for each port except the first one, for ports that are chosen in proportion to `weights`.
fn bounds(weights: &[BitRate]) -> impl Iterator<Item = u64> {
    let weight = |rate: &BitRate| u128::from(rate.as_bps());
    let total: u128 = weights.iter().map(weight).sum();
    let mut sum = 0;
    weights[..weights.len().saturating_sub(1)].iter().map(move |rate| {
        sum += weight(rate);
        ((sum << u32::BITS).div_ceil(total)) as u64
    })
}

/// Returns 32 well-mixed bits of `flow_hash` and `salt`.
#[inline]
fn mix(flow_hash: u32, salt: u64) -> u32 {
    let first = (u64::from(flow_hash) ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let second = (first ^ first >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (second >> 32) as u32
}

/// Returns the value of a packet that switches hash to choose a path.
#[inline]
pub(crate) fn flow_hash(src: u32, dst: u32, label: u16) -> u32 {
    let ends = u64::from(src) << 40 ^ u64::from(dst) << 16 ^ u64::from(label);
    (ends.wrapping_mul(0x9fb2_1c65_1e98_df25) >> 32) as u32
}

/// Returns the value that switches hash for a Falcon packet, whose label has 20 bits.
#[inline]
pub(crate) fn falcon_flow_hash(src: u32, dst: u32, label: FlowLabel) -> u32 {
    let ends = u64::from(src) << 40 ^ u64::from(dst) << 20 ^ u64::from(label.get());
    (ends.wrapping_mul(0x9fb2_1c65_1e98_df25) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_down_port_is_exact_for_every_host_and_port_width() {
        for hosts_per_port in [1u32, 2, 3, 4, 5, 16, 27, 64, 256] {
            for down_ports in [1u32, 3, 4, 8, 64] {
                let spec = RouteSpec { first_host: 1_000, hosts_per_port, down_ports, up_ports: 4 };
                let route = Route::new(&spec, 7);
                for offset in 0..hosts_per_port * down_ports {
                    assert_eq!(route.port(1_000 + offset, 99), (offset / hosts_per_port) as usize);
                }
                assert!(route.port(999, 5) >= down_ports as usize, "a host before the first one has a down port");
                assert!(route.port(1_000 + hosts_per_port * down_ports, 5) >= down_ports as usize);
            }
        }
    }

    #[test]
    fn up_ports_are_chosen_evenly_and_independently_per_switch() {
        let spec = RouteSpec { first_host: 0, hosts_per_port: 1, down_ports: 4, up_ports: 4 };
        let (one, two) = (Route::new(&spec, 11), Route::new(&spec, 12));
        let mut pairs = [[0u32; 4]; 4];
        for flow in 0..16_000 {
            let hash = flow_hash(flow % 128, 100 + flow / 128, flow as u16);
            pairs[one.port(1_000, hash) - 4][two.port(1_000, hash) - 4] += 1;
        }
        let even = |count: &u32| (850..1_150).contains(count);
        assert!(pairs.iter().flatten().all(even), "pairs of choices are not equally likely: {pairs:?}");
    }

    /// Each port is chosen for its share, by weight, of 100,000 flows to within two percent.
    #[test]
    fn weighted_ports_have_their_shares_and_equal_weights_are_ecmp() {
        let spec = RouteSpec { first_host: 0, hosts_per_port: 1, down_ports: 4, up_ports: 4 };
        let flows = || (0..100_000).map(|flow| flow_hash(flow % 128, 1_000, (flow / 128) as u16));
        let rates = [400, 100, 25, 100];
        let weighted = Route::weighted(&spec, 11, &rates.map(BitRate::gbps));
        let mut counts = [0u32; 4];
        flows().for_each(|hash| counts[weighted.port(1_000, hash) - 4] += 1);
        for (count, rate) in counts.into_iter().zip(rates) {
            let expected = 100_000.0 * rate as f64 / 625.0;
            assert!((f64::from(count) / expected - 1.0).abs() < 0.02, "{counts:?} for {rates:?}");
        }
        let (equal, ecmp) = (Route::weighted(&spec, 11, &[BitRate::gbps(100); 4]), Route::new(&spec, 11));
        assert!(flows().all(|hash| equal.port(1_000, hash) == ecmp.port(1_000, hash)));
        let one = RouteSpec { up_ports: 1, ..spec };
        assert_eq!(Route::weighted(&one, 11, &[BitRate::gbps(1)]).port(1_000, 77), 4);
        assert_eq!(weighted.port(2, 77), 2, "weights changed a down port");
    }

    /// The labels of a connection differ in their low bits, or, after a path change, in the high bits.
    #[test]
    fn f24_labels_of_one_connection_spread_over_the_ports() {
        let spec = RouteSpec { first_host: 0, hosts_per_port: 1, down_ports: 4, up_ports: 4 };
        let route = Route::new(&spec, 11);
        let (mut by_port, mut moved) = ([0u32; 4], 0);
        let port = |label| route.port(1_000, falcon_flow_hash(3, 1_000, label));
        for entropy in 0..4_000 {
            for index in 0..4 {
                let label = FlowLabel::of_flow(index, 2, entropy);
                by_port[port(label) - 4] += 1;
                moved += u32::from(port(label) != port(FlowLabel::of_flow(index, 2, entropy + 1)));
            }
        }
        assert!(by_port.iter().all(|count| (3_800..4_200).contains(count)), "{by_port:?}");
        assert!((11_600..12_400).contains(&moved), "not three in four flows change their port: {moved} of 16000");
    }
}
