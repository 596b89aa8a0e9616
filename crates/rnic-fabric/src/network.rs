//! State shared by the nodes of one part of the network, and the packets for other parts.
//!
//! A network may be simulated in several parts ([`crate::simulation`]). Within a part a packet moves from ring to
//! ring and its headers stay in their slot. A packet to another part is moved in a [`PartTransfer`], together with its
//! headers and bytes. Parcels are passed between two windows; this is early enough, because their packets arrive in
//! the next window at the earliest.

use rnic_base::Time;

use crate::calendar::{EventCalendar, NEVER};
use crate::entry::{Entry, Flags};
use crate::link::{LinkEnd, Links};
use crate::packets::{FalconPackets, Messages, Packets};

/// State that the nodes of a network share: the links between nodes, the event queue, and the headers of packets in
/// flight.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) links: Links,
    pub(crate) calendar: EventCalendar,
    pub(crate) packets: Packets,
    pub(crate) falcon_packets: FalconPackets,
    pub(crate) messages: Messages,
    /// Number of this part of the simulated network.
    part: u16,
    /// Packets to be passed to other parts of the network, indexed by part.
    outgoing: Vec<PartTransfer>,
    /// Packets received from other parts of the network, indexed by part.
    arrived: Vec<PartTransfer>,
}

impl Network {
    /// Creates part number `part` of `parts`, with this number of nodes and rings; `with_bytes` is set when packets
    /// have payload or are encoded to bytes.
    pub(crate) fn new(part: u16, parts: usize, nodes: usize, rings: usize, with_bytes: bool) -> Self {
        let transfers = || (0..parts).map(|_| PartTransfer::new(with_bytes)).collect();
        Self {
            links: Links::new(rings),
            calendar: EventCalendar::new(nodes),
            packets: Packets::new(with_bytes),
            falcon_packets: FalconPackets::new(with_bytes),
            messages: Messages::new(with_bytes),
            part,
            outgoing: transfers(),
            arrived: transfers(),
        }
    }

    /// Returns the number of this part.
    pub(crate) fn part(&self) -> u16 {
        self.part
    }

    /// Sends `entry` on the link to `end`, to arrive at `at`, after all packets on the same link.
    #[inline]
    pub(crate) fn send_on_link(&mut self, end: LinkEnd, at: Time, entry: Entry) {
        if end.part != self.part {
            return self.send_to_part(end, at, entry);
        }
        self.links.push(end, at, entry, &mut self.calendar);
    }

    /// Sends `entry` on the link to `end`, to arrive at `at`, also before packets sent earlier: for links that reorder.
    pub(crate) fn send_on_link_by_time(&mut self, end: LinkEnd, at: Time, entry: Entry) {
        if end.part != self.part {
            return self.send_to_part(end, at, entry);
        }
        self.links.insert(end, at, entry, &mut self.calendar);
    }

    #[inline(never)]
    fn send_to_part(&mut self, end: LinkEnd, at: Time, mut entry: Entry) {
        let transfer = &mut self.outgoing[usize::from(end.part)];
        let own_slabs = (&mut self.packets, &mut self.falcon_packets, &mut self.messages);
        let transfer_slabs = (&mut transfer.packets, &mut transfer.falcon_packets, &mut transfer.messages);
        move_packet(&mut entry, own_slabs, transfer_slabs);
        transfer.earliest = transfer.earliest.min(at);
        transfer.entries.push((end, at, entry));
    }

    /// Inserts the packets from other parts into the links of this part.
    pub(crate) fn insert_received(&mut self) {
        let Self { links, calendar, packets, falcon_packets, messages, arrived, .. } = self;
        for transfer in arrived.iter_mut().filter(|transfer| !transfer.entries.is_empty()) {
            for (end, at, mut entry) in transfer.entries.drain(..) {
                let transfer_slabs = (&mut transfer.packets, &mut transfer.falcon_packets, &mut transfer.messages);
                move_packet(&mut entry, transfer_slabs, (packets, falcon_packets, messages));
                links.insert(end, at, entry, calendar);
            }
            transfer.earliest = NEVER;
        }
    }

    /// Moves the transfer that `other` has for this part to this part, whose earlier transfers have been unpacked.
    pub(crate) fn take_transfer(&mut self, other: &mut Self) {
        let [outgoing, arrived] =
            [&mut other.outgoing[usize::from(self.part)], &mut self.arrived[usize::from(other.part)]];
        debug_assert!(arrived.entries.is_empty());
        if !outgoing.entries.is_empty() {
            core::mem::swap(outgoing, arrived);
        }
    }

    /// Returns the time of the earliest event of the part's nodes.
    pub(crate) fn earliest(&self) -> Time {
        let arrivals = self.arrived.iter().map(|transfer| transfer.earliest);
        arrivals.fold(self.calendar.earliest(), Time::min)
    }

    /// Frees the packet of `entry`.
    #[inline(never)]
    pub(crate) fn remove(&mut self, entry: &Entry) {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.remove(entry.packet);
        } else if entry.has(Flags::MESSAGE) {
            self.messages.remove(entry.packet);
        } else {
            self.packets.remove(entry.packet);
        }
    }

    /// Copies the packet of `entry`; returns the index of the copy.
    pub(crate) fn duplicate(&mut self, entry: &Entry) -> u32 {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.duplicate(entry.packet)
        } else if entry.has(Flags::MESSAGE) {
            self.messages.duplicate(entry.packet)
        } else {
            self.packets.duplicate(entry.packet)
        }
    }

    /// Returns the bytes that are stored with the packet of `entry`.
    pub(crate) fn bytes_mut(&mut self, entry: &Entry) -> &mut [u8] {
        if entry.has(Flags::FALCON) {
            self.falcon_packets.bytes_mut(entry.packet)
        } else if entry.has(Flags::MESSAGE) {
            self.messages.bytes_mut(entry.packet)
        } else {
            self.packets.bytes_mut(entry.packet)
        }
    }

    /// Returns the number of packets in flight; valid between two windows.
    pub(crate) fn in_flight_count(&self) -> usize {
        let count = |packets: &Packets, falcon: &FalconPackets, messages: &Messages| {
            packets.in_flight_count() + falcon.in_flight_count() + messages.in_flight_count()
        };
        let in_transfer =
            |transfer: &PartTransfer| count(&transfer.packets, &transfer.falcon_packets, &transfer.messages);
        let transfers = self.arrived.iter().map(in_transfer);
        count(&self.packets, &self.falcon_packets, &self.messages) + transfers.sum::<usize>()
    }

    /// Returns the number of entries on links; valid between two windows.
    pub(crate) fn on_links(&self) -> usize {
        self.links.len() + self.arrived.iter().map(|transfer| transfer.entries.len()).sum::<usize>()
    }
}

/// Packets from one part of the network to another, in the order in which they were sent.
#[derive(Debug)]
struct PartTransfer {
    entries: Vec<(LinkEnd, Time, Entry)>,
    packets: Packets,
    falcon_packets: FalconPackets,
    messages: Messages,
    /// Arrival time of the earliest packet of the transfer.
    earliest: Time,
}

impl PartTransfer {
    fn new(with_bytes: bool) -> Self {
        let (packets, falcon_packets) = (Packets::new(with_bytes), FalconPackets::new(with_bytes));
        Self { entries: Vec::new(), packets, falcon_packets, messages: Messages::new(with_bytes), earliest: NEVER }
    }
}

/// All slabs of a network or of a transfer.
type Slabs<'s> = (&'s mut Packets, &'s mut FalconPackets, &'s mut Messages);

/// Moves the headers and bytes of `entry`, if it has any, to other slabs.
fn move_packet(
    entry: &mut Entry,
    (packets, falcon_packets, messages): Slabs<'_>,
    (to, falcon_to, messages_to): Slabs<'_>,
) {
    if entry.is_pause_frame() {
        return;
    }
    entry.packet = if entry.has(Flags::FALCON) {
        falcon_to.adopt(falcon_packets, entry.packet)
    } else if entry.has(Flags::MESSAGE) {
        messages_to.adopt(messages, entry.packet)
    } else {
        to.adopt(packets, entry.packet)
    };
}
