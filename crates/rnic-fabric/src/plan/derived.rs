//! Values derived from a plan: bytes in flight, time to drain a full buffer.

use rnic_base::{Bytes, Duration};
use rnic_policy::Protocol;
use rnic_wire::net::{INTERFRAME_GAP_LEN, IpVersion, PREAMBLE_LEN, frame_len};
use rnic_wire::{DATA_HEADERS_MAX, ICRC_LEN, Position};

use super::{LinkPlan, Plan, TopologyPlan};
use crate::entry::{LINK_OVERHEAD, PAUSE_FRAME_LEN};
use crate::frames::Family;
use crate::switch::BufferPlan;
use crate::topology::{LinkClass, Node, Paths};
use crate::workload::Operation;

/// Returns the length in bytes of the largest frame: one with the payload of a full packet.
pub(super) fn largest_frame(plan: &Plan) -> u64 {
    u64::from(match plan.transport.protocol {
        Protocol::Falcon(_) => {
            Family::Falcon.frame_len(Operation::WriteImmediate, Position::Only, plan.mtu) + plan.transport.extra_header
        }
        _ => frame_len(IpVersion::V4, plan.mtu + (DATA_HEADERS_MAX + ICRC_LEN) as u32),
    })
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
        let link = *self.link(class);
        let rate = match (class, self.topology) {
            (LinkClass::Fabric, TopologyPlan::LeafSpine { leaves, hosts_per_leaf, .. }) => {
                let spine = a.max(b) - leaves * hosts_per_leaf - leaves;
                self.spine_rates.get(spine as usize).copied().unwrap_or(link.rate)
            }
            _ => link.rate,
        };
        LinkPlan { rate, ..link }
    }

    fn link(&self, class: LinkClass) -> &LinkPlan {
        match class {
            LinkClass::Host => &self.host_links,
            LinkClass::Fabric => &self.fabric_links,
        }
    }

    /// Returns the classes of the links of the longest path.
    fn longest_path(topology: TopologyPlan) -> Vec<LinkClass> {
        let topology = topology.build();
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

    /// Returns the number of packets that fill the longest path: the round-trip time of a full packet and a short
    /// response in an empty network, divided by the time of a full packet on the slowest link.
    pub(super) fn bdp_packets(&self) -> u64 {
        let (round_trip, slowest) = self.round_trip();
        round_trip.as_ps().div_ceil(slowest.as_ps())
    }

    /// Returns the round-trip time of a full packet and a short response on the longest path of an empty network, and
    /// the time of a full packet on its slowest link.
    pub(super) fn round_trip(&self) -> (Duration, Duration) {
        let (full, short) = (largest_frame(self) + LINK_OVERHEAD, 64 + LINK_OVERHEAD);
        let (mut round_trip, mut slowest) = (Duration::ZERO, Duration::ZERO);
        for class in Self::longest_path(self.topology) {
            let link = self.link(class);
            let packet = link.rate.serialize(full);
            round_trip = round_trip + packet + link.rate.serialize(short) + link.delay * 2;
            slowest = slowest.max(packet);
        }
        (round_trip, slowest)
    }

    /// Returns the bytes that may still arrive after a port of a switch has paused its neighbour: the largest value of
    /// all links.
    pub(crate) fn pause_reaction_bytes(&self) -> u64 {
        let of_link = |link: &LinkPlan| pause_reaction_bytes(link, largest_frame(self)).get();
        of_link(&self.host_links).max(of_link(&self.fabric_links))
    }

    /// Returns IRN's RTO_high (section 4.1, IRN mechanism I-8): the propagation delay of the longest path in both
    /// directions, plus the wait behind one switch buffer that is full with packets for one link.
    pub(super) fn auto_timeout(&self) -> Duration {
        let path = Self::longest_path(self.topology);
        let propagation = path.iter().fold(Duration::ZERO, |sum, class| sum + self.link(*class).delay * 2);
        let buffer = self.switch.map_or(0, |switch| match switch.buffer {
            BufferPlan::InputQueued { per_port } => {
                let ports = self.topology.build().switches.iter().map(|switch| switch.ports()).max().unwrap_or(0);
                per_port * ports as u64
            }
            BufferPlan::Shared { total, .. } => total,
        });
        let slowest = path.iter().map(|class| self.link(*class).rate.serialize(buffer)).max();
        // A point-to-point network has no buffer: add the time of a few packets.
        let packet = self.host_links.rate.serialize(largest_frame(self) + LINK_OVERHEAD);
        propagation + slowest.unwrap_or_default() + packet * 4
    }
}

const _: () = assert!(LINK_OVERHEAD == (PREAMBLE_LEN + INTERFRAME_GAP_LEN) as u64);
