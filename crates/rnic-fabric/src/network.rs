//! State that the nodes of a part of the network share, and packets for other parts.
//!
//! A network may be simulated in several parts ([`crate::simulation`]). Within a part a packet moves from ring to ring
//! and its headers stay in their slot. To another part it is moved in a [`Parcel`], together with its headers and
//! bytes; parcels are passed between two windows, because their packets arrive in the next window at the earliest.

use rnic_base::Time;

use crate::agenda::{Agenda, NEVER};
use crate::entry::{Entry, Flags};
use crate::link::{LinkEnd, Links};
use crate::packets::{FalconPackets, Packets};

/// State that nodes share: the links to them, the agenda, the headers of packets in flight.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) links: Links,
    pub(crate) agenda: Agenda,
    pub(crate) packets: Packets,
    pub(crate) falcon_packets: FalconPackets,
    /// Number of this part.
    part: u16,
    /// Packets for other parts, by part.
    leaving: Vec<Parcel>,
    /// Packets received from other parts, by part.
    arrived: Vec<Parcel>,
}

impl Network {
    /// Creates part number `part` of `parts`, with this number of nodes and rings; `with_bytes` when packets have
    /// payload or are encoded to bytes.
    pub(crate) fn new(part: u16, parts: usize, nodes: usize, rings: usize, with_bytes: bool) -> Self {
        let parcels = || (0..parts).map(|_| Parcel::new(with_bytes)).collect();
        Self {
            links: Links::new(rings),
            agenda: Agenda::new(nodes),
            packets: Packets::new(with_bytes),
            falcon_packets: FalconPackets::new(with_bytes),
            part,
            leaving: parcels(),
            arrived: parcels(),
        }
    }

    /// Returns the number of this part.
    pub(crate) fn part(&self) -> u16 {
        self.part
    }

    /// Sends `entry` on the link to `end`, to arrive at `at`, after all packets on the same link.
    #[inline]
    pub(crate) fn carry(&mut self, end: LinkEnd, at: Time, entry: Entry) {
        if end.part != self.part {
            return self.send_away(end, at, entry);
        }
        self.links.push(end, at, entry, &mut self.agenda);
    }

    /// Sends `entry` on the link to `end`, to arrive at `at`, also before packets sent earlier: for links that reorder.
    pub(crate) fn carry_by_time(&mut self, end: LinkEnd, at: Time, entry: Entry) {
        if end.part != self.part {
            return self.send_away(end, at, entry);
        }
        self.links.insert(end, at, entry, &mut self.agenda);
    }

    #[inline(never)]
    fn send_away(&mut self, end: LinkEnd, at: Time, mut entry: Entry) {
        let parcel = &mut self.leaving[usize::from(end.part)];
        let here = (&mut self.packets, &mut self.falcon_packets);
        hand_over(&mut entry, here, (&mut parcel.packets, &mut parcel.falcon_packets));
        parcel.earliest = parcel.earliest.min(at);
        parcel.entries.push((end, at, entry));
    }

    /// Inserts the packets from other parts into the links of this part.
    pub(crate) fn unpack(&mut self) {
        let Self { links, agenda, packets, falcon_packets, arrived, .. } = self;
        for parcel in arrived.iter_mut().filter(|parcel| !parcel.entries.is_empty()) {
            for (end, at, mut entry) in parcel.entries.drain(..) {
                let there = (&mut parcel.packets, &mut parcel.falcon_packets);
                hand_over(&mut entry, there, (packets, falcon_packets));
                links.insert(end, at, entry, agenda);
            }
            parcel.earliest = NEVER;
        }
    }

    /// Takes the parcel that `other` has for this part; earlier parcels have been unpacked.
    pub(crate) fn take_parcel(&mut self, other: &mut Self) {
        let [leaving, arrived] =
            [&mut other.leaving[usize::from(self.part)], &mut self.arrived[usize::from(other.part)]];
        debug_assert!(arrived.entries.is_empty());
        if !leaving.entries.is_empty() {
            core::mem::swap(leaving, arrived);
        }
    }

    /// Returns the time of the earliest event of its nodes.
    pub(crate) fn earliest(&self) -> Time {
        let arrivals = self.arrived.iter().map(|parcel| parcel.earliest);
        arrivals.fold(self.agenda.earliest(), Time::min)
    }

    /// Frees the packet of `entry`.
    #[inline(never)]
    pub(crate) fn remove(&mut self, entry: &Entry) {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.remove(entry.packet);
        } else {
            self.packets.remove(entry.packet);
        }
    }

    /// Copies the packet of `entry`; returns the index of the copy.
    pub(crate) fn duplicate(&mut self, entry: &Entry) -> u32 {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.duplicate(entry.packet)
        } else {
            self.packets.duplicate(entry.packet)
        }
    }

    /// Returns the bytes that are stored with the packet of `entry`.
    pub(crate) fn bytes_mut(&mut self, entry: &Entry) -> &mut [u8] {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.bytes_mut(entry.packet)
        } else {
            self.packets.bytes_mut(entry.packet)
        }
    }

    /// Returns the number of packets in flight; valid between two windows.
    pub(crate) fn live(&self) -> usize {
        let of = |packets: &Packets, falcon: &FalconPackets| packets.live() + falcon.live();
        let parcels = self.arrived.iter().map(|parcel| of(&parcel.packets, &parcel.falcon_packets));
        of(&self.packets, &self.falcon_packets) + parcels.sum::<usize>()
    }

    /// Returns the number of entries on links; valid between two windows.
    pub(crate) fn on_links(&self) -> usize {
        self.links.len() + self.arrived.iter().map(|parcel| parcel.entries.len()).sum::<usize>()
    }
}

/// Packets from one part of the network to another, in the order in which they were sent.
#[derive(Debug)]
struct Parcel {
    entries: Vec<(LinkEnd, Time, Entry)>,
    packets: Packets,
    falcon_packets: FalconPackets,
    /// Time at which the first of them arrives.
    earliest: Time,
}

impl Parcel {
    fn new(with_bytes: bool) -> Self {
        let (packets, falcon_packets) = (Packets::new(with_bytes), FalconPackets::new(with_bytes));
        Self { entries: Vec::new(), packets, falcon_packets, earliest: NEVER }
    }
}

/// Moves the headers and bytes of `entry`, if it has any, to other slabs.
fn hand_over(
    entry: &mut Entry,
    (packets, falcon_packets): (&mut Packets, &mut FalconPackets),
    (to, falcon_to): (&mut Packets, &mut FalconPackets),
) {
    if entry.is_pause_frame() {
        return;
    }
    entry.packet = if entry.has(Flags::FALCON) {
        falcon_to.adopt(falcon_packets, entry.packet)
    } else {
        to.adopt(packets, entry.packet)
    };
}
