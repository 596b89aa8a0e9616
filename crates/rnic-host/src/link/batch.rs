//! Batches of packets for the kernel, stored contiguously.
//!
//! Headers are written, and payload is copied from registered memory while its ICRC is computed ([`crate::carry`] gives
//! the reasons), into a slab that is reused for the next batch and stays in the cache.
//!
//! Consecutive packets to one peer form a *train*, which costs the kernel little more than one packet: all have the
//! length of the first one, and only the last may be shorter (udp(7), `UDP_SEGMENT`). An acknowledgement is the
//! shortest packet there is: it ends the train before it, also one of a single packet. So a response and the
//! acknowledgement of the request cost one pass through the kernel; programs that wait for both (`ib_send_lat`) take a
//! quarter less time.
//!
//! Packets of a connection with several paths alternate between them, so consecutive ones hardly ever take the same:
//! each path has its own train, for which space is reserved until it is full. Packets of one path stay in order. Those
//! of different paths are reordered within one batch, as networks do too.

use arrayvec::ArrayVec;
use rnic_base::limits::MTU_MAX;
use rnic_engine::{MemoryFault, PeerId, Segment, Transmit};
use rnic_wire::codec::encode_headers;
use rnic_wire::falcon::{self, psp};
use rnic_wire::{Format, HEADERS_MAX, Headers, ICRC_LEN, IcrcPrefix, Packet, Syndrome, net};

use crate::carry::Carrier;
use crate::marking::Marking;
use crate::memory::{Foreign, Memory};
use crate::sys::{MESSAGES_MAX, SEGMENTS_MAX};

/// Packets of one length to one UDP port of one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) peer: PeerId,
    pub(crate) port: u16,
    /// Socket from which it is sent: [`crate::link::lane::Lane::sender_on`].
    pub(crate) path: u8,
    pub(crate) marking: Marking,
    /// Offset of its first byte in the slab.
    start: usize,
    /// Bytes of every packet but the last.
    pub(crate) segment: u32,
    /// Number of packets.
    pub(crate) count: u32,
    /// Total bytes.
    pub(crate) bytes: u32,
    /// Set while another packet may be appended.
    open: bool,
}

impl Train {
    #[inline]
    pub(crate) fn way(&self) -> SendPath {
        SendPath { peer: self.peer, port: self.port, path: self.path, marking: self.marking }
    }

    /// Returns whether a packet of `len` bytes to the same peer may be appended.
    #[inline]
    fn has_room(&self, len: u32) -> bool {
        self.open && len <= self.segment && self.count < SEGMENTS_MAX as u32 && self.bytes + len <= net::UDP_PAYLOAD_MAX
    }
}

/// Destination of a packet, and how it is sent there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SendPath {
    pub(crate) peer: PeerId,
    /// The peer's UDP port.
    pub(crate) port: u16,
    /// Socket from which it is sent: [`crate::link::lane::Lane::sender_on`].
    pub(crate) path: u8,
    /// Fields of its IP header other than the addresses.
    pub(crate) marking: Marking,
}

/// Returns the fields of a packet's IP header other than the addresses.
#[inline]
pub(crate) fn marking_of(transmit: &Transmit) -> Marking {
    match transmit.format {
        Format::UnreliableDatagram => Marking::of_bits(transmit.mark).unwrap_or_default(),
        _ => Marking::NONE,
    }
}

/// Properties of a packet that depend on its encapsulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrapping {
    /// Bytes, from the headers through the ICRC.
    pub(crate) len: u32,
    /// The peer's UDP port.
    pub(crate) port: u16,
    /// ICRC of the headers below those of this stack (IP and UDP).
    pub(crate) prefix: IcrcPrefix,
    /// True when it may be part of a train.
    pub(crate) couple: bool,
    /// True when the peer's ICRC covers the IPv4 identifications that the kernel assigns in a train, counted from 0 in
    /// each.
    pub(crate) is_numbered: bool,
}

/// Packets that are sent with one system call, in a slab.
pub(crate) struct Batch<'a> {
    slab: &'a mut [u8],
    /// Offset of the free part of the slab, behind all bytes that are used or reserved for trains.
    end: usize,
    /// Bytes of all packets.
    bytes: usize,
    trains: ArrayVec<Train, MESSAGES_MAX>,
    packets: u32,
}

impl<'a> Batch<'a> {
    /// Creates an empty batch in `slab`, of at least [`SLAB_BYTES`].
    pub(crate) fn new(slab: &'a mut [u8]) -> Self {
        assert!(slab.len() >= SLAB_BYTES, "the slab holds {} bytes", slab.len());
        Self { slab, end: 0, bytes: 0, trains: ArrayVec::new(), packets: 0 }
    }

    /// Returns whether another packet of any length fits in addition to `acks`.
    #[inline]
    pub(crate) fn has_room(&self, acks: &Acks) -> bool {
        (self.bytes < BYTES_ENOUGH || self.may_couple())
            && self.end + TRAIN_BYTES_MAX + ACKS_BYTES_MAX <= self.slab.len()
            && self.packets < DATA_PACKETS_MAX
            && self.trains.len() + acks.trains < MESSAGES_MAX - ACK_TRAINS
            && !acks.packets.is_full()
    }

    /// Returns whether the last train has space for another packet as long as its first, and the next packet can be on
    /// its path.
    #[inline]
    fn may_couple(&self) -> bool {
        self.trains.last().is_some_and(|train| train.path == 0 && train.has_room(train.segment))
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// When its payload is unmapped; it is not added then.
    ///
    /// # Panics
    /// When the packet contradicts its format: the engine made it.
    #[inline]
    pub(crate) fn add(
        &mut self,
        transmit: &Transmit,
        payload: &[Segment],
        memory: &Memory,
        wrapping: Wrapping,
    ) -> Result<(), MemoryFault> {
        let Wrapping { len, mut prefix, .. } = wrapping;
        let way = SendPath { peer: transmit.peer, port: wrapping.port, path: 0, marking: marking_of(transmit) };
        let at = self.make_room(way, len, wrapping.couple);
        if wrapping.is_numbered {
            let before = self.trains.last().map_or(0, |train| train.count - 1);
            // A train has fewer packets than there are identifications.
            prefix = prefix.renumbered(before as u16);
        }
        let written = write_packet(&mut self.slab[at..], transmit, payload, memory, prefix);
        if written.is_err() {
            self.give_room_back(way, len);
        }
        written
    }

    /// Adds a packet of `len` bytes that `write` writes; `couple` is true when it may be part of a train.
    ///
    /// # Errors
    /// When `write` fails; it is not added then.
    #[inline]
    pub(crate) fn add_with(
        &mut self,
        way: SendPath,
        len: u32,
        couple: bool,
        write: impl FnOnce(&mut [u8]) -> Result<(), MemoryFault>,
    ) -> Result<(), MemoryFault> {
        let at = self.make_room(way, len, couple);
        let written = write(&mut self.slab[at..at + len as usize]);
        if written.is_err() {
            self.give_room_back(way, len);
        }
        written
    }

    /// Reserves space for a packet of `len` bytes; returns its offset.
    #[inline]
    fn make_room(&mut self, way: SendPath, len: u32, couple: bool) -> usize {
        self.packets += 1;
        self.bytes += len as usize;
        if let Some(at) = self.couple(way, len) {
            return at;
        }
        let (SendPath { peer, port, path, marking }, start) = (way, self.end);
        self.trains.push(Train { peer, port, path, marking, start, segment: len, count: 1, bytes: len, open: couple });
        // Packets of other paths are added in between, so a train on this path reserves all its space from the start.
        let is_apart = path > 0 && couple;
        self.end += if is_apart { (len as usize * SEGMENTS_MAX).min(TRAIN_BYTES_MAX) } else { len as usize };
        start
    }

    /// Releases the space of the last [`Self::make_room`], for a packet on this way and of this length.
    #[cold]
    fn give_room_back(&mut self, way: SendPath, len: u32) {
        self.packets -= 1;
        self.bytes -= len as usize;
        let index = self.trains.iter().rposition(|train| train.way() == way).expect("it was added to a train");
        let train = &mut self.trains[index];
        if train.count == 1 {
            self.end = train.start;
            self.trains.pop();
            return;
        }
        train.count -= 1;
        train.bytes -= len;
        train.open = true;
        if way.path == 0 {
            self.end -= len as usize;
        }
    }

    /// Appends a packet of `len` bytes to the last train on its way, if it fits there; returns its offset.
    #[inline]
    fn couple(&mut self, way: SendPath, len: u32) -> Option<usize> {
        let train = if way.path == 0 {
            self.trains.last_mut().filter(|train| train.way() == way)
        } else {
            self.trains.iter_mut().rev().find(|train| train.way() == way)
        };
        let train = train.filter(|train| train.has_room(len))?;
        let at = train.start + train.bytes as usize;
        train.count += 1;
        train.bytes += len;
        train.open = len == train.segment;
        if way.path == 0 {
            self.end += len as usize;
        }
        Some(at)
    }

    /// Returns whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(crate) fn trains(&self) -> &[Train] {
        &self.trains
    }

    /// Returns the bytes of `train`.
    pub(crate) fn bytes(&self, train: &Train) -> &[u8] {
        &self.slab[train.start..train.start + train.bytes as usize]
    }

    /// Returns the packets of `train`.
    pub(crate) fn packets(&self, train: &Train) -> impl Iterator<Item = &[u8]> {
        self.bytes(train).chunks(train.segment as usize)
    }
}

/// Writes a packet to the front of `free`, its check value included; there must be space for the longest headers, too.
///
/// # Errors
/// When its payload is unmapped.
#[inline]
pub(crate) fn write_packet(
    free: &mut [u8],
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    prefix: IcrcPrefix,
) -> Result<(), MemoryFault> {
    let room = free.first_chunk_mut::<HEADERS_MAX>().expect("the slab has room for a full batch");
    let headers_len = encode_headers(transmit.format, &transmit.packet, room).expect("the engine keeps to the format");
    let (headers, mut free) = free.split_at_mut(headers_len);
    let mut carrier = Carrier::new(prefix);
    let mut pieces = payload.iter().map(|segment| memory.gather(*segment));
    let first = pieces.next().unwrap_or(Foreign::NOTHING);
    carrier.start(headers, first, free)?;
    free = &mut free[first.len()..];
    for piece in pieces {
        carrier.fetch(piece, free)?;
        free = &mut free[piece.len()..];
    }
    let pad = transmit.packet.pad_len() as usize;
    if pad > 0 {
        carrier.more(&[0; 3][..pad], free);
    }
    free[pad..pad + ICRC_LEN].copy_from_slice(&carrier.finish());
    Ok(())
}

/// Acknowledgements to be added at the end of a batch.
///
/// Packets come in trains, and IRN acknowledges every packet: of the cumulative acknowledgements of one train only the
/// last is sent, as if the network had lost the others. Acknowledgements that report a gap are never left out.
#[derive(Default)]
pub(crate) struct Acks {
    packets: ArrayVec<Transmit, ACKS_MAX>,
    /// Maximum number of trains that they form.
    trains: usize,
}

impl Acks {
    /// Adds an acknowledgement; the batch had space for it. `couple` is true when it may be part of a train. Returns
    /// whether it replaces the one before, whose information it includes.
    #[inline]
    pub(crate) fn push(&mut self, ack: Transmit, couple: bool) -> bool {
        if let Some(last) = self.packets.last_mut()
            && says_more(&ack, last)
        {
            *last = ack;
            return true;
        }
        // Queue pairs of one peer may use different ports; equal port bits in their numbers mean the same port.
        let alike = self.packets.last().is_some_and(|last| {
            let (one, other) = (&ack.packet, &last.packet);
            last.peer == ack.peer
                && last.format == ack.format
                && crate::ports::port_of(one.dest_qpn) == crate::ports::port_of(other.dest_qpn)
        });
        if !alike || !couple {
            self.trains += ACK_TRAINS;
        }
        self.packets.push(ack);
        false
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Transmit> {
        self.packets.iter()
    }
}

/// Returns whether `ack` makes `earlier` superfluous: both acknowledge everything up to some packet, for the same queue
/// pair and the same direction, and carry nothing else.
#[inline]
fn says_more(ack: &Transmit, earlier: &Transmit) -> bool {
    let (Some(of_responses), Some(earlier_of_responses)) = (plain_ack(&ack.packet), plain_ack(&earlier.packet)) else {
        return false;
    };
    ack.from == earlier.from
        && ack.peer == earlier.peer
        && of_responses == earlier_of_responses
        && ack.packet.flags == earlier.packet.flags
}

/// Returns `None` unless a packet is a plain cumulative acknowledgement; otherwise whether it acknowledges responses.
#[inline]
fn plain_ack(packet: &Packet) -> Option<bool> {
    let (of_responses, aeth, sack) = match &packet.headers {
        Headers::Ack { aeth, sack } => (false, aeth, sack),
        Headers::ReadAck { aeth, sack } => (true, aeth, sack),
        _ => return None,
    };
    (sack.is_none() && matches!(aeth.syndrome, Syndrome::Ack { .. })).then_some(of_responses)
}

/// Maximum number of acknowledgements of a batch: one full train.
const ACKS_MAX: usize = SEGMENTS_MAX;

/// Maximum number of acknowledgement trains to one peer: the first acknowledgement may close the train of data before
/// it, the others form their own. CNPs are longer and cannot be appended; there are few.
const ACK_TRAINS: usize = 2;

/// Maximum number of packets of a batch, without acknowledgements.
const DATA_PACKETS_MAX: u32 = SEGMENTS_MAX as u32;

/// A batch is sent when it has this number of bytes, four full trains of large packets (one at a time is 5 % slower,
/// eight are no faster), and its last train is complete: in RoCE the first packet of a message is longer than those
/// that follow, and trains cut short would cost more.
const BYTES_ENOUGH: usize = 240_000;

/// Maximum number of bytes of a batch: just below the limit, another train may start and become full; then come
/// acknowledgements, and the space that the last one's headers need while they are written. In addition, space is
/// reserved for trains that may not become full; the system allocates no memory for pages that are not used.
pub(crate) const SLAB_BYTES: usize = BYTES_ENOUGH + (1 + TRAINS_APART) * TRAIN_BYTES_MAX + ACKS_BYTES_MAX;

/// Number of trains on separate paths for which space is reserved, in addition to that for one path: the eight flows
/// that a connection can have.
const TRAINS_APART: usize = 8;

/// Maximum bytes of a train. A packet is shorter, even with the space that its headers need while they are written.
const TRAIN_BYTES_MAX: usize = net::UDP_PAYLOAD_MAX as usize;

const _: () = {
    let roce = 2 * HEADERS_MAX + ICRC_LEN;
    let falcon = psp::LEN_MAX + falcon::HEADERS_MAX + psp::ICV_LEN;
    assert!(MTU_MAX as usize + if roce > falcon { roce } else { falcon } <= TRAIN_BYTES_MAX);
};

/// Bytes of a batch's acknowledgements, and the space that the last one's headers need while they are written.
const ACKS_BYTES_MAX: usize = (ACKS_MAX + 1) * (HEADERS_MAX + 3 + ICRC_LEN);

#[cfg(test)]
#[path = "batch/tests.rs"]
mod tests;
