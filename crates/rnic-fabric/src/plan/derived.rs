//! Values derived from a plan: bytes in flight, time to drain a full buffer.

use std::collections::BTreeSet;

use rnic_base::{BitRate, Bytes, Duration};
use rnic_policy::{Profile, Protocol};
use rnic_wire::net::{INTERFRAME_GAP_LEN, IpVersion, PREAMBLE_LEN, frame_len};
use rnic_wire::{DATA_HEADERS_MAX, ICRC_LEN, Position};

use super::{LinkPlan, Plan, TopologyPlan};
use crate::entry::{LINK_OVERHEAD, PAUSE_FRAME_LEN};
use crate::frames::Family;
use crate::switch::BufferPlan;
use crate::topology::{LinkClass, Node, Paths, longest_path};
use crate::workload::Operation;

/// Returns the length in bytes of the largest frame: one with the payload of a full packet.
pub(super) fn largest_frame(plan: &Plan) -> u64 {
    let of_transport = |transport: &Profile| match transport.protocol {
        Protocol::Falcon(_) => {
            Family::Falcon.frame_len(Operation::WriteImmediate, Position::Only, plan.mtu) + transport.extra_header
        }
        _ => frame_len(IpVersion::V4, plan.mtu + (DATA_HEADERS_MAX + ICRC_LEN) as u32),
    };
    u64::from(plan.transports().into_iter().map(of_transport).max().unwrap_or(0))
}

/// Returns the bytes that may arrive after a port has decided to pause its neighbour: the bytes in flight during twice
/// the delay (IRN 4.1), and what store and forward adds: the packet that caused the pause, the packet that delays the
/// pause frame, the packet whose transmission the neighbour has started, and the pause frame itself.
pub(super) fn pause_reaction_bytes(link: &LinkPlan, largest_frame: u64) -> Bytes {
    let in_flight = link.rate.bytes_in(link.delay * 2);
    Bytes::new(in_flight + 3 * (largest_frame + LINK_OVERHEAD) + u64::from(PAUSE_FRAME_LEN) + LINK_OVERHEAD)
}

impl Plan {
    /// Returns the length in bytes of the largest frame.
    pub(crate) fn largest_frame(&self) -> u64 {
        largest_frame(self)
    }

    /// Returns the link between the nodes `a` and `b`.
    pub(crate) fn link_between(&self, class: LinkClass, a: Node, b: Node) -> LinkPlan {
        let link = self.link(class);
        let rate = match (class, &self.topology) {
            (LinkClass::Fabric, TopologyPlan::LeafSpine { leaves, hosts_per_leaf, .. }) => {
                let spine = a.max(b) - leaves * hosts_per_leaf - leaves;
                self.spine_rates.get(spine as usize).copied().unwrap_or(link.rate)
            }
            _ => link.rate,
        };
        LinkPlan { rate, ..link }
    }

    /// Returns rate and delay of the links of a class.
    pub(crate) fn link(&self, class: LinkClass) -> LinkPlan {
        match class {
            LinkClass::Host => self.host_links,
            LinkClass::Fabric => self.fabric_links,
            LinkClass::Core => self.core_links,
            LinkClass::Own(index) => self.topology.own_links()[index as usize],
        }
    }

    /// Returns rates and delays of all links.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkPlan> {
        let own = self.topology.own_links();
        let of_classes = [self.host_links, self.fabric_links, self.core_links];
        own.iter().copied().chain(of_classes.into_iter().filter(|_| own.is_empty()))
    }

    /// Returns the rate of the link of `host`.
    pub fn host_rate(&self, host: u32) -> BitRate {
        self.topology.host_class(host).map_or(self.host_links.rate, |class| self.link(class).rate)
    }

    /// Returns the classes of the links of the longest path: that with the most links, or, in a graph, that on which a
    /// full packet and its response take longest.
    fn longest_path(&self) -> Vec<LinkClass> {
        let topology = self.topology.build();
        if topology.tables.is_some() {
            return longest_path(&topology, |class| Some(self.round_trip_of(class))).unwrap_or_default();
        }
        let paths = Paths::new(&topology);
        let (mut classes, mut longest) = (Vec::new(), Vec::new());
        for dst in 1..topology.hosts {
            paths.link_classes(0, dst, &mut classes);
            if classes.len() > longest.len() {
                longest.clone_from(&classes);
            }
        }
        longest
    }

    /// Returns the time of a full packet on a link and of a short response on the way back.
    fn round_trip_of(&self, class: LinkClass) -> Duration {
        let LinkPlan { rate, delay } = self.link(class);
        rate.serialize(largest_frame(self) + LINK_OVERHEAD) + rate.serialize(64 + LINK_OVERHEAD) + delay * 2
    }

    /// Returns the number of packets that fill the longest path: the round-trip time of a full packet and a short
    /// response in an empty network, divided by the time of a full packet on the slowest link.
    ///
    /// In a graph whose links have several rates, it is the largest number for any path: for each rate, the longest
    /// path over links that are not slower.
    pub(super) fn bdp_packets(&self) -> u64 {
        let own = self.topology.own_links();
        if own.is_empty() {
            let (round_trip, slowest) = self.round_trip();
            return round_trip.as_ps().div_ceil(slowest.as_ps());
        }
        let rates: BTreeSet<BitRate> = own.iter().map(|link| link.rate).collect();
        let topology = self.topology.build();
        let of_rate = |rate: &BitRate| {
            let round_trip = |class| Some(self.round_trip_of(class)).filter(|_| self.link(class).rate >= *rate);
            let path = longest_path(&topology, round_trip)?;
            let sum = path.iter().fold(Duration::ZERO, |sum, class| sum + self.round_trip_of(*class));
            let packet = rate.serialize(largest_frame(self) + LINK_OVERHEAD);
            Some(sum.as_ps().div_ceil(packet.as_ps()))
        };
        rates.iter().rev().take(RATES_MAX).filter_map(of_rate).max().unwrap_or(1)
    }

    /// Returns the round-trip time of a full packet and a short response on the longest path of an empty network, and
    /// the time of a full packet on its slowest link, or, in a graph, on the slowest link of all.
    pub(super) fn round_trip(&self) -> (Duration, Duration) {
        let path = self.longest_path();
        let full = largest_frame(self) + LINK_OVERHEAD;
        let round_trip = path.iter().fold(Duration::ZERO, |sum, class| sum + self.round_trip_of(*class));
        let slowest = self.slowest_rate(&path).map(|rate| rate.serialize(full));
        (round_trip, slowest.unwrap_or_default())
    }

    /// Returns the lowest rate of the links of `path`, or, in a graph from a file, of all links, because a path with
    /// fewer links may be slower.
    fn slowest_rate(&self, path: &[LinkClass]) -> Option<BitRate> {
        let of_path = path.iter().map(|class| self.link(*class).rate);
        of_path.chain(self.topology.own_links().iter().map(|link| link.rate)).min()
    }

    /// Returns the bytes that may still arrive after a port of a switch has paused its neighbour: the largest value of
    /// all links.
    pub(crate) fn pause_reaction_bytes(&self) -> u64 {
        let of_link = |link: LinkPlan| pause_reaction_bytes(&link, largest_frame(self)).get();
        self.links().map(of_link).max().unwrap_or(0)
    }

    /// Returns the bytes that may still arrive after a host has paused its neighbour: the largest value of all hosts'
    /// links.
    pub(crate) fn host_pause_reaction_bytes(&self) -> u64 {
        let of_host = |host| {
            let link = self.topology.host_class(host).map_or(self.host_links, |class| self.link(class));
            pause_reaction_bytes(&link, largest_frame(self)).get()
        };
        let hosts = if self.topology.own_links().is_empty() { 1 } else { self.topology.hosts() };
        (0..hosts).map(of_host).max().unwrap_or(0)
    }

    /// Returns IRN's RTO_high (section 4.1, IRN mechanism I-8): the propagation delay of the longest path in both
    /// directions, plus the wait behind one switch buffer that is full with packets for one link: in a graph from a
    /// file, the slowest link of all.
    pub(super) fn auto_timeout(&self) -> Duration {
        let path = self.longest_path();
        let propagation = path.iter().fold(Duration::ZERO, |sum, class| sum + self.link(*class).delay * 2);
        let buffer = self.switch.map_or(0, |switch| match switch.buffer {
            BufferPlan::InputQueued { per_port } => {
                let ports = self.topology.build().switches.iter().map(|switch| switch.ports()).max().unwrap_or(0);
                per_port * ports as u64
            }
            BufferPlan::Shared { total, .. } => total,
        });
        let slowest = self.slowest_rate(&path);
        // A point-to-point network has no buffer: add the time of a few packets.
        let host_rate = self.topology.own_links().iter().map(|link| link.rate).min().unwrap_or(self.host_links.rate);
        let packet = host_rate.serialize(largest_frame(self) + LINK_OVERHEAD);
        propagation + slowest.map_or(Duration::ZERO, |rate| rate.serialize(buffer)) + packet * 4
    }
}

/// Maximum number of rates for which the longest path is searched; slower rates have fewer packets in flight.
const RATES_MAX: usize = 16;

const _: () = assert!(LINK_OVERHEAD == (PREAMBLE_LEN + INTERFRAME_GAP_LEN) as u64);
