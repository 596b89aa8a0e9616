//! The data of packets that only hosts interpret: headers, and bytes when packets carry them.
//!
//! The slab is written when a host sends a packet, and read when the packet arrives at the other host. Slots are
//! reused, last freed first, so that few packets in flight use little memory. The slot of a packet does not influence
//! the simulation.

use rnic_base::{Csig, Duration, Psn, Psn32, prefetch_at, prefetch_soon_at, prefetch_whole_at};
use rnic_wire::falcon::{self, FlowLabel};
use rnic_wire::scr::{Body, Message, ProbePath};
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

use crate::endpoint::TcpSegment;

/// Source and format of a packet in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Endpoints {
    /// The source host, which represents the IP source address.
    pub(crate) src: u32,
    /// UDP source port.
    pub(crate) source_port: u16,
    pub(crate) format: Format,
}

const _: () = assert!(size_of::<Endpoints>() == 8);

/// Source and flow label of a Falcon packet in flight, and the tag that switches wrote into its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FalconEndpoints {
    /// The source host, which represents the IPv6 source address.
    src: u32,
    /// IPv6 flow label in the low 20 bits; above it the value of the CSIG tag ([`Csig::value`]).
    label_and_tag: u32,
}

const _: () = assert!(size_of::<FalconEndpoints>() == 8);
const _: () = assert!(LABEL_BITS + Csig::VALUE_BITS == u32::BITS);

const LABEL_BITS: u32 = 20;

impl FalconEndpoints {
    /// Combines the values of a packet that host `src` sends with flow label `label`.
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

    /// Returns the CSIG tag of the packet.
    #[inline]
    pub(crate) fn csig(self) -> Csig {
        Csig::from_value((self.label_and_tag >> LABEL_BITS) as u16)
    }

    /// Updates the tag for a switch with number `locator` that delays the packet by `delay`.
    pub(crate) fn stamp(&mut self, delay: Duration, locator: u32) {
        let tag = u32::from(self.csig().after_hop(delay, locator).value());
        self.label_and_tag = tag << LABEL_BITS | self.label().get();
    }
}

/// Headers as stored in a slab. They are aligned to complete cache lines, because they are not cached when a packet
/// arrives, and reading them should then cause few cache misses.
pub(crate) trait StoredHeaders: Copy {
    /// Packet whose headers are stored.
    type Packet;
    /// The source data stored next to the headers.
    type Endpoints: Copy;

    fn of(packet: &Self::Packet) -> Self;

    fn packet(&self) -> &Self::Packet;

    /// Returns headers of a packet without content, as placeholders for a free slot.
    fn placeholder() -> Self;
}

/// Headers of the RoCE family: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct RoceHeaders(Packet);

const _: () = assert!(size_of::<RoceHeaders>() == 64);

impl StoredHeaders for RoceHeaders {
    type Packet = Packet;
    type Endpoints = Endpoints;

    #[inline]
    fn of(packet: &Packet) -> Self {
        Self(*packet)
    }

    #[inline]
    fn packet(&self) -> &Packet {
        &self.0
    }

    fn placeholder() -> Self {
        let flags = PacketFlags::default();
        Self(Packet { dest_qpn: Qpn::new(0), psn: Psn::new(0), flags, payload_len: 0, headers: Headers::Cnp })
    }
}

/// Headers of Falcon: two cache lines, because a Falcon packet has 320 bits of bitmaps.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct FalconHeaders(falcon::Packet);

const _: () = assert!(size_of::<FalconHeaders>() == 128);

impl StoredHeaders for FalconHeaders {
    type Packet = falcon::Packet;
    type Endpoints = FalconEndpoints;

    #[inline]
    fn of(packet: &falcon::Packet) -> Self {
        Self(*packet)
    }

    #[inline]
    fn packet(&self) -> &falcon::Packet {
        &self.0
    }

    fn placeholder() -> Self {
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

/// A packet that is neither of the RoCE family nor Falcon's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OtherPacket {
    /// A message between NICs.
    Message(Message),
    /// A TCP segment of an endpoint that is no engine.
    Tcp(TcpSegment),
}

impl StoredHeaders for OtherPacket {
    type Packet = Self;
    type Endpoints = Endpoints;

    fn of(packet: &Self) -> Self {
        *packet
    }

    fn packet(&self) -> &Self {
        self
    }

    fn placeholder() -> Self {
        Self::Message(Message {
            dest_qpn: Qpn::GSI,
            source_qpn: Qpn::GSI,
            cookie: None,
            announced: None,
            answer_wanted: false,
            is_last: false,
            sequence: Psn32::new(0),
            time: 0,
            body: Body::Probe(ProbePath::default()),
        })
    }
}

/// All messages between NICs in flight, and TCP segments.
pub(crate) type Messages = Slab<OtherPacket>;

/// All packets of the RoCE family in flight.
pub(crate) type Packets = Slab<RoceHeaders>;

/// All Falcon packets in flight. They have a slab of their own, so that slots for the headers of the RoCE family need
/// not be as large as those for Falcon's headers.
pub(crate) type FalconPackets = Slab<FalconHeaders>;

/// Slab of the packets in flight that have the same type of headers (RoCE or Falcon).
#[derive(Debug)]
pub(crate) struct Slab<L: StoredHeaders> {
    /// Headers, by slot; not valid when packets are encoded to bytes.
    headers: Vec<L>,
    /// Source data, by slot.
    ends: Vec<L::Endpoints>,
    free: Vec<u32>,
    /// Payload, or the complete datagram when packets are encoded, by slot; empty when neither is carried.
    bytes: Vec<Vec<u8>>,
    with_bytes: bool,
}

impl<L: StoredHeaders> Slab<L> {
    /// Creates an empty slab; `with_bytes` is set when packets have payload or are encoded to bytes.
    pub(crate) fn new(with_bytes: bool) -> Self {
        let (headers, ends, free, bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { headers, ends, free, bytes, with_bytes }
    }

    /// Adds a packet and returns its slot. Until the caller writes the packet's bytes, the slot has the bytes of its
    /// previous packet.
    #[inline]
    pub(crate) fn insert(&mut self, packet: &L::Packet, ends: L::Endpoints) -> u32 {
        if let Some(index) = self.free.pop() {
            self.headers[index as usize] = L::of(packet);
            self.ends[index as usize] = ends;
            return index;
        }
        self.append(packet, ends)
    }

    #[cold]
    fn append(&mut self, packet: &L::Packet, ends: L::Endpoints) -> u32 {
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
    pub(crate) fn ends(&self, index: u32) -> L::Endpoints {
        self.ends[index as usize]
    }

    /// Returns mutable access to the source data of a packet.
    pub(crate) fn ends_mut(&mut self, index: u32) -> &mut L::Endpoints {
        &mut self.ends[index as usize]
    }

    /// Prefetches the headers at `index` for the next event. Any index is allowed.
    #[inline]
    pub(crate) fn prefetch_soon(&self, index: u32) {
        prefetch_soon_at(&self.headers, index as usize);
        prefetch_soon_at(&self.ends, index as usize);
    }

    /// Prefetches the headers at `index` for a later turn. Any index is allowed.
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

    /// Removes the byte buffer of a packet from the slab and returns it; [`Packets::put_bytes`] puts it back.
    pub(crate) fn take_bytes(&mut self, index: u32) -> Vec<u8> {
        self.bytes.get_mut(index as usize).map(core::mem::take).unwrap_or_default()
    }

    /// Puts a byte buffer back into the slab.
    pub(crate) fn put_bytes(&mut self, index: u32, bytes: Vec<u8>) {
        if let Some(slot) = self.bytes.get_mut(index as usize) {
            *slot = bytes;
        }
    }

    /// Replaces the headers of a packet.
    pub(crate) fn replace_headers(&mut self, index: u32, packet: &L::Packet) {
        self.headers[index as usize] = L::of(packet);
    }

    /// Replaces the headers of a packet with placeholders, so that only its encoded bytes remain.
    pub(crate) fn forget_headers(&mut self, index: u32) {
        self.headers[index as usize] = L::placeholder();
    }

    /// Copies the packet at `index`; returns the slot of the copy.
    pub(crate) fn duplicate(&mut self, index: u32) -> u32 {
        let (headers, ends) = (self.headers[index as usize], self.ends(index));
        let copy = self.insert(headers.packet(), ends);
        if self.with_bytes {
            let bytes = core::mem::take(&mut self.bytes[index as usize]);
            self.bytes[copy as usize].clone_from(&bytes);
            self.bytes[index as usize] = bytes;
        }
        copy
    }

    /// Moves the packet at `index` of `other` to this slab, bytes included; returns its new slot.
    pub(crate) fn adopt(&mut self, other: &mut Self, index: u32) -> u32 {
        let slot = self.insert(other.headers(index), other.ends(index));
        if self.with_bytes {
            core::mem::swap(&mut self.bytes[slot as usize], &mut other.bytes[index as usize]);
        }
        other.remove(index);
        slot
    }

    /// Frees the packet at `index`.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        debug_assert!((index as usize) < self.headers.len());
        self.free.push(index);
    }

    /// Returns the number of packets in flight.
    pub(crate) fn in_flight_count(&self) -> usize {
        self.headers.len() - self.free.len()
    }
}

/// Maximum number of packets in flight: 2^28 packets of 72 bytes take 19 GB, of 136 bytes twice as much; when more
/// are in flight, some sender has no limit.
const PACKETS_MAX: u32 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Endpoints = Endpoints { src: 3, source_port: 0xc000, format: Format::Irn };

    fn packet(psn: u32) -> Packet {
        let flags = PacketFlags::default();
        Packet { dest_qpn: Qpn::new(5), psn: Psn::new(psn), flags, payload_len: 0, headers: Headers::Cnp }
    }

    #[test]
    fn freed_slots_are_reused_and_copies_are_independent() {
        let mut packets = Packets::new(true);
        let first = packets.insert(&packet(1), ENDS);
        packets.put_bytes(first, vec![1, 2, 3]);
        let copy = packets.duplicate(first);
        packets.bytes_mut(first)[0] = 9;
        assert_eq!((packets.bytes(first), packets.bytes(copy)), (&[9, 2, 3][..], &[1, 2, 3][..]));
        assert_eq!(packets.in_flight_count(), 2);
        packets.remove(first);
        assert_eq!(packets.insert(&packet(2), ENDS), first);
        packets.remove(first);
        packets.remove(copy);
        assert_eq!(packets.in_flight_count(), 0);
    }
}
