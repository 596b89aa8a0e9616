//! What only the ends understand of a packet: headers, and bytes when there are any.
//!
//! A slab that is written when a packet leaves its host and read when it reaches the other one. Slots are used again,
//! last freed first, so that few packets under way touch little memory. Where a packet lies decides nothing.

use rnic_base::{Csig, Duration, Psn, near_at, near_whole_at};
use rnic_wire::falcon::{self, FlowLabel};
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

/// The ends of a packet under way, and how its headers are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    /// The host it comes from: its IP source address.
    pub(crate) src: u32,
    /// Its UDP source port.
    pub(crate) source_port: u16,
    pub(crate) format: Format,
}

const _: () = assert!(size_of::<Ends>() == 8);

/// The ends of a Falcon packet under way, and what switches wrote into its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FalconEnds {
    /// The host it comes from: its IPv6 source address.
    src: u32,
    /// Its IPv6 flow label in the low 20 bits; above it the value of its tag ([`Csig::value`]).
    label_and_tag: u32,
}

const _: () = assert!(size_of::<FalconEnds>() == 8);
const _: () = assert!(LABEL_BITS + Csig::VALUE_BITS == u32::BITS);

const LABEL_BITS: u32 = 20;

impl FalconEnds {
    /// Creates the ends of a packet that leaves host `src` with `label`.
    #[inline]
    pub(crate) fn new(src: u32, label: FlowLabel) -> Self {
        let tag = u32::from(Csig::NO_DELAY.value());
        Self { src, label_and_tag: tag << LABEL_BITS | label.get() }
    }

    /// The host that it comes from.
    #[inline]
    pub(crate) fn src(self) -> u32 {
        self.src
    }

    /// Its flow label.
    #[inline]
    pub(crate) fn label(self) -> FlowLabel {
        FlowLabel::new(self.label_and_tag)
    }

    /// Its tag.
    #[inline]
    pub(crate) fn csig(self) -> Csig {
        Csig::from_value((self.label_and_tag >> LABEL_BITS) as u16)
    }

    /// A switch called `locator` delays it by `delay`.
    pub(crate) fn stamp(&mut self, delay: Duration, locator: u32) {
        let tag = u32::from(self.csig().behind(delay, locator).value());
        self.label_and_tag = tag << LABEL_BITS | self.label().get();
    }
}

/// Headers as they lie in a slab: in whole cache lines, because where a packet arrives they are far away.
pub(crate) trait Lines: Copy {
    /// The headers.
    type Packet;
    /// What lies beside them.
    type Ends: Copy;

    fn of(packet: &Self::Packet) -> Self;

    fn packet(&self) -> &Self::Packet;

    /// Headers that say nothing.
    fn nothing() -> Self;
}

/// One cache line.
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

/// Two cache lines: a Falcon packet has 320 bits of bitmaps.
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

/// Every packet of the RoCE family that is under way.
pub(crate) type Packets = Slab<Line>;

/// Every Falcon packet that is under way: apart, so that the others stay as they are.
pub(crate) type FalconPackets = Slab<TwoLines>;

/// Packets under way of one kind.
#[derive(Debug)]
pub(crate) struct Slab<L: Lines> {
    /// Headers; not to be looked at when packets travel as bytes.
    headers: Vec<L>,
    /// Beside `headers`.
    ends: Vec<L::Ends>,
    free: Vec<u32>,
    /// Payload, or the whole datagram when packets are encoded; beside `headers`, and empty when neither is carried.
    bytes: Vec<Vec<u8>>,
    with_bytes: bool,
}

impl<L: Lines> Slab<L> {
    /// A slab; `with_bytes` when packets have payload or travel encoded.
    pub(crate) fn new(with_bytes: bool) -> Self {
        let (headers, ends, free, bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { headers, ends, free, bytes, with_bytes }
    }

    /// Takes a packet in; its bytes are what the slot's last user left, until they are written.
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
        assert!(index < PACKETS_MAX, "more than {PACKETS_MAX} packets under way");
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

    /// The same, for writing.
    pub(crate) fn ends_mut(&mut self, index: u32) -> &mut L::Ends {
        &mut self.ends[index as usize]
    }

    /// Has the headers at `index` brought near: they are wanted soon. Any index will do.
    #[inline]
    pub(crate) fn touch(&self, index: u32) {
        near_whole_at(&self.headers, index as usize);
        near_at(&self.ends, index as usize);
    }

    /// The bytes that travel with a packet.
    pub(crate) fn bytes(&self, index: u32) -> &[u8] {
        self.bytes.get(index as usize).map_or(&[], Vec::as_slice)
    }

    /// The same, for writing.
    pub(crate) fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        self.bytes.get_mut(index as usize).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Lends the bytes of a packet out; [`Packets::put_bytes`] brings them back.
    pub(crate) fn take_bytes(&mut self, index: u32) -> Vec<u8> {
        self.bytes.get_mut(index as usize).map(core::mem::take).unwrap_or_default()
    }

    /// Ends a loan.
    pub(crate) fn put_bytes(&mut self, index: u32, bytes: Vec<u8>) {
        if let Some(place) = self.bytes.get_mut(index as usize) {
            *place = bytes;
        }
    }

    /// Leaves nothing of a packet's headers but their bytes.
    pub(crate) fn forget_headers(&mut self, index: u32) {
        self.headers[index as usize] = L::nothing();
    }

    /// A second packet like the one at `index`.
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

    /// Takes the packet at `index` of `other` over, bytes and all.
    pub(crate) fn adopt(&mut self, other: &mut Self, index: u32) -> u32 {
        let place = self.insert(other.headers(index), other.ends(index));
        if self.with_bytes {
            core::mem::swap(&mut self.bytes[place as usize], &mut other.bytes[index as usize]);
        }
        other.remove(index);
        place
    }

    /// The packet at `index` is no more.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        debug_assert!((index as usize) < self.headers.len());
        self.free.push(index);
    }

    /// Packets under way now.
    pub(crate) fn live(&self) -> usize {
        self.headers.len() - self.free.len()
    }
}

/// Packets under way at once: 2^28 of 72 bytes would be 19 GB, of 136 twice as much; whoever needs more has a runaway
/// sender.
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
