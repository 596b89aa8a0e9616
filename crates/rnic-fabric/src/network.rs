//! What the nodes of a part of the network share, and what leaves it for another part.
//!
//! A network may be simulated in several parts ([`crate::simulation`]). Within a part a packet goes from ring to ring
//! and its headers stay where they are. To another part it goes in a [`Parcel`], headers and bytes with it, which is
//! handed over between two windows: nobody is to see it before the next one.

use rnic_base::Time;

use crate::agenda::{Agenda, NEVER};
use crate::entry::{Entry, Flags};
use crate::link::{LinkEnd, Links};
use crate::packets::{FalconPackets, Packets};

/// What nodes share: the links to them, the agenda, the headers of packets under way.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) links: Links,
    pub(crate) agenda: Agenda,
    pub(crate) packets: Packets,
    pub(crate) falcon_packets: FalconPackets,
    /// Which part this is.
    part: u16,
    /// What goes to other parts, by part.
    leaving: Vec<Parcel>,
    /// What has come from other parts, by part.
    arrived: Vec<Parcel>,
}

impl Network {
    /// Part number `part` of `parts`, with so many nodes and rings; `with_bytes` when packets have payload or travel
    /// encoded.
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

    /// Which part this is.
    pub(crate) fn part(&self) -> u16 {
        self.part
    }

    /// Puts `entry` on the way to `end`, to arrive at `at`, after everything that is on the same way.
    #[inline]
    pub(crate) fn carry(&mut self, end: LinkEnd, at: Time, entry: Entry) {
        if end.part != self.part {
            return self.send_away(end, at, entry);
        }
        self.links.push(end, at, entry, &mut self.agenda);
    }

    /// The same where what leaves later may arrive sooner: for links that reorder.
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

    /// Takes in what has come from other parts.
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

    /// Takes over what `other` has for it; what came before has been unpacked.
    pub(crate) fn take_parcel(&mut self, other: &mut Self) {
        let [leaving, arrived] =
            [&mut other.leaving[usize::from(self.part)], &mut self.arrived[usize::from(other.part)]];
        debug_assert!(arrived.entries.is_empty());
        if !leaving.entries.is_empty() {
            core::mem::swap(leaving, arrived);
        }
    }

    /// The earliest event of any of its nodes.
    pub(crate) fn earliest(&self) -> Time {
        let arrivals = self.arrived.iter().map(|parcel| parcel.earliest);
        arrivals.fold(self.agenda.earliest(), Time::min)
    }

    /// The packet of `entry` is no more.
    #[inline(never)]
    pub(crate) fn remove(&mut self, entry: &Entry) {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.remove(entry.packet);
        } else {
            self.packets.remove(entry.packet);
        }
    }

    /// A second packet like that of `entry`: where it lies.
    pub(crate) fn duplicate(&mut self, entry: &Entry) -> u32 {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.duplicate(entry.packet)
        } else {
            self.packets.duplicate(entry.packet)
        }
    }

    /// The bytes that travel with the packet of `entry`.
    pub(crate) fn bytes_mut(&mut self, entry: &Entry) -> &mut [u8] {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.bytes_mut(entry.packet)
        } else {
            self.packets.bytes_mut(entry.packet)
        }
    }

    /// Packets under way now, between two windows.
    pub(crate) fn live(&self) -> usize {
        let of = |packets: &Packets, falcon: &FalconPackets| packets.live() + falcon.live();
        let parcels = self.arrived.iter().map(|parcel| of(&parcel.packets, &parcel.falcon_packets));
        of(&self.packets, &self.falcon_packets) + parcels.sum::<usize>()
    }

    /// Entries on links now, between two windows.
    pub(crate) fn on_links(&self) -> usize {
        self.links.len() + self.arrived.iter().map(|parcel| parcel.entries.len()).sum::<usize>()
    }
}

/// What goes from one part of the network to another, in the order in which it was sent.
#[derive(Debug)]
struct Parcel {
    entries: Vec<(LinkEnd, Time, Entry)>,
    packets: Packets,
    falcon_packets: FalconPackets,
    /// When the first of it arrives.
    earliest: Time,
}

impl Parcel {
    fn new(with_bytes: bool) -> Self {
        let (packets, falcon_packets) = (Packets::new(with_bytes), FalconPackets::new(with_bytes));
        Self { entries: Vec::new(), packets, falcon_packets, earliest: NEVER }
    }
}

/// Moves the packet of `entry`, if it has one.
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
