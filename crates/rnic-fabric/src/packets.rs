//! The data of packets that only hosts interpret: headers, and bytes when packets carry them.
//!
//! A slab that is written when a packet is sent by its host and read when it arrives at the other one. Slots are
//! reused, last freed first, so that few packets in flight use little memory. The slot of a packet does not influence
//! the simulation.

use rnic_base::{Csig, Duration, Psn, prefetch_at, prefetch_whole_at};
use rnic_wire::falcon::{self, FlowLabel};
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

/// Source and format of a packet in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    /// The source host, which stands for the IP source address.
    pub(crate) src: u32,
    /// UDP source port.
    pub(crate) source_port: u16,
    pub(crate) format: Format,
}

const _: () = assert!(size_of::<Ends>() == 8);

/// Source and flow label of a Falcon packet in flight, and the tag that switches wrote into its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FalconEnds {
    /// The source host, which stands for the IPv6 source address.
    src: u32,
    /// IPv6 flow label in the low 20 bits; above it the value of the CSIG tag ([`Csig::value`]).
    label_and_tag: u32,
}

const _: () = assert!(size_of::<FalconEnds>() == 8);
const _: () = assert!(LABEL_BITS + Csig::VALUE_BITS == u32::BITS);

const LABEL_BITS: u32 = 20;

impl FalconEnds {
    /// Creates the values of a packet that host `src` sends with `label`.
    #[inline]
    pub(crate) fn new(src: u32, label: FlowLabel) -> Self {
        let tag = u32::from(Csig::NO_DELAY.value());
        Self { src, label_and_tag: tag << LABEL_BITS | label.get() }
    }

    /// Returns the source host.
    #[inline]
    pub(crate) fn src(self) -> u32 {
        self.src
    }

    /// Returns the flow label.
    #[inline]
    pub(crate) fn label(self) -> FlowLabel {
        FlowLabel::new(self.label_and_tag)
    }

    /// Returns the CSIG tag.
    #[inline]
    pub(crate) fn csig(self) -> Csig {
        Csig::from_value((self.label_and_tag >> LABEL_BITS) as u16)
    }

    /// Updates the tag for a switch with number `locator` that delays the packet by `delay`.
    pub(crate) fn stamp(&mut self, delay: Duration, locator: u32) {
        let tag = u32::from(self.csig().behind(delay, locator).value());
        self.label_and_tag = tag << LABEL_BITS | self.label().get();
    }
}

/// Headers as stored in a slab: aligned to complete cache lines, because they are not cached when a packet arrives.
pub(crate) trait Lines: Copy {
    /// The headers.
    type Packet;
    /// The source data stored next to the headers.
    type Ends: Copy;

    fn of(packet: &Self::Packet) -> Self;

    fn packet(&self) -> &Self::Packet;

    /// Returns placeholder headers without information.
    fn nothing() -> Self;
}

/// Headers of the RoCE family: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Line(Packet);

const _: () = assert!(size_of::<Line>() == 64);

impl Lines for Line {
    type Packet = Packet;
    type Ends = Ends;

    #[inline]
    fn of(packet: &Packet) -> Self {
        Self(*packet)
    }

    #[inline]
    fn packet(&self) -> &Packet {
        &self.0
    }

    fn nothing() -> Self {
        let flags = PacketFlags::default();
        Self(Packet { dest_qpn: Qpn::new(0), psn: Psn::new(0), flags, payload_len: 0, headers: Headers::Cnp })
    }
}

/// Headers of Falcon: two cache lines, because a Falcon packet has 320 bits of bitmaps.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct TwoLines(falcon::Packet);

const _: () = assert!(size_of::<TwoLines>() == 128);

impl Lines for TwoLines {
    type Packet = falcon::Packet;
    type Ends = FalconEnds;

    #[inline]
    fn of(packet: &falcon::Packet) -> Self {
        Self(*packet)
    }

    #[inline]
    fn packet(&self) -> &falcon::Packet {
        &self.0
    }

    fn nothing() -> Self {
        Self(falcon::Packet {
            cid: falcon::Cid::default(),
            function: 0,
            protocol: falcon::UlpProtocol::None,
            ack_request: false,
            bases: falcon::WindowBases::default(),
            timestamp: falcon::Timestamp::default(),
            payload_len: 0,
            body: falcon::Body::Ack(falcon::Acknowledgement::default()),
        })
    }
}

/// All packets of the RoCE family in flight.
pub(crate) type Packets = Slab<Line>;

/// All Falcon packets in flight: a separate slab, so that the headers of the RoCE family keep their size.
pub(crate) type FalconPackets = Slab<TwoLines>;

/// Packets in flight of one family.
#[derive(Debug)]
pub(crate) struct Slab<L: Lines> {
    /// Headers, by slot; not valid when packets are encoded to bytes.
    headers: Vec<L>,
    /// Source data, by slot.
    ends: Vec<L::Ends>,
    free: Vec<u32>,
    /// Payload, or the complete datagram when packets are encoded, by slot; empty when neither is carried.
    bytes: Vec<Vec<u8>>,
    with_bytes: bool,
}

impl<L: Lines> Slab<L> {
    /// Creates an empty slab; `with_bytes` when packets have payload or are encoded to bytes.
    pub(crate) fn new(with_bytes: bool) -> Self {
        let (headers, ends, free, bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { headers, ends, free, bytes, with_bytes }
    }

    /// Adds a packet and returns its slot; its bytes are those of the slot's last packet until they are written.
    #[inline]
    pub(crate) fn insert(&mut self, packet: &L::Packet, ends: L::Ends) -> u32 {
        if let Some(index) = self.free.pop() {
            self.headers[index as usize] = L::of(packet);
            self.ends[index as usize] = ends;
            return index;
        }
        self.append(packet, ends)
    }

    #[cold]
    fn append(&mut self, packet: &L::Packet, ends: L::Ends) -> u32 {
        let index = self.headers.len() as u32;
        assert!(index < PACKETS_MAX, "more than {PACKETS_MAX} packets in flight");
        self.headers.push(L::of(packet));
        self.ends.push(ends);
        if self.with_bytes {
            self.bytes.push(Vec::new());
        }
        index
    }

    #[inline]
    pub(crate) fn headers(&self, index: u32) -> &L::Packet {
        self.headers[index as usize].packet()
    }

    #[inline]
    pub(crate) fn ends(&self, index: u32) -> L::Ends {
        self.ends[index as usize]
    }

    /// Returns mutable access to the source data of a packet.
    pub(crate) fn ends_mut(&mut self, index: u32) -> &mut L::Ends {
        &mut self.ends[index as usize]
    }

    /// Prefetches the headers at `index`, which are needed soon. Any index is allowed.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_whole_at(&self.headers, index as usize);
        prefetch_at(&self.ends, index as usize);
    }

    /// Returns the bytes that are stored with a packet.
    pub(crate) fn bytes(&self, index: u32) -> &[u8] {
        self.bytes.get(index as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns mutable access to the bytes that are stored with a packet.
    pub(crate) fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        self.bytes.get_mut(index as usize).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Takes the byte buffer of a packet out of the slab; [`Packets::put_bytes`] returns it.
    pub(crate) fn take_bytes(&mut self, index: u32) -> Vec<u8> {
        self.bytes.get_mut(index as usize).map(core::mem::take).unwrap_or_default()
    }

    /// Returns a byte buffer to the slab.
    pub(crate) fn put_bytes(&mut self, index: u32, bytes: Vec<u8>) {
        if let Some(place) = self.bytes.get_mut(index as usize) {
            *place = bytes;
        }
    }

    /// Replaces the headers of a packet by placeholders, so that only its encoded bytes remain.
    pub(crate) fn forget_headers(&mut self, index: u32) {
        self.headers[index as usize] = L::nothing();
    }

    /// Copies the packet at `index`; returns the slot of the copy.
    pub(crate) fn duplicate(&mut self, index: u32) -> u32 {
        let (lines, ends) = (self.headers[index as usize], self.ends(index));
        let copy = self.insert(lines.packet(), ends);
        if self.with_bytes {
            let bytes = core::mem::take(&mut self.bytes[index as usize]);
            self.bytes[copy as usize].clone_from(&bytes);
            self.bytes[index as usize] = bytes;
        }
        copy
    }

    /// Moves the packet at `index` of `other` to this slab, bytes included; returns its new slot.
    pub(crate) fn adopt(&mut self, other: &mut Self, index: u32) -> u32 {
        let place = self.insert(other.headers(index), other.ends(index));
        if self.with_bytes {
            core::mem::swap(&mut self.bytes[place as usize], &mut other.bytes[index as usize]);
        }
        other.remove(index);
        place
    }

    /// Frees the packet at `index`.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        debug_assert!((index as usize) < self.headers.len());
        self.free.push(index);
    }

    /// Returns the number of packets in flight.
    pub(crate) fn live(&self) -> usize {
        self.headers.len() - self.free.len()
    }
}

/// Largest number of packets in flight: 2^28 packets of 72 bytes take 19 GB, of 136 bytes twice as much; a larger
/// number means that a sender is not limited.
const PACKETS_MAX: u32 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends = Ends { src: 3, source_port: 0xc000, format: Format::Irn };

    fn packet(psn: u32) -> Packet {
        let flags = PacketFlags::default();
        Packet { dest_qpn: Qpn::new(5), psn: Psn::new(psn), flags, payload_len: 0, headers: Headers::Cnp }
    }

    #[test]
    fn slots_are_used_again_and_copies_are_apart() {
        let mut packets = Packets::new(true);
        let first = packets.insert(&packet(1), ENDS);
        packets.put_bytes(first, vec![1, 2, 3]);
        let copy = packets.duplicate(first);
        packets.bytes_mut(first)[0] = 9;
        assert_eq!((packets.bytes(first), packets.bytes(copy)), (&[9, 2, 3][..], &[1, 2, 3][..]));
        assert_eq!(packets.live(), 2);
        packets.remove(first);
        assert_eq!(packets.insert(&packet(2), ENDS), first);
        packets.remove(first);
        packets.remove(copy);
        assert_eq!(packets.live(), 0);
    }
}
