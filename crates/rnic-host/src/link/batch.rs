//! Batches of packets for the kernel, stored contiguously.
//!
//! Headers are written, and payload is copied from registered memory while its ICRC is computed ([`crate::copy_crc`]
//! gives the reasons), into a slab that is reused for the next batch and stays in the cache.
//!
//! Consecutive packets to one peer form a *train*, which costs the kernel little more than one packet: all have the
//! length of the first one, and only the last may be shorter (udp(7), `UDP_SEGMENT`). An acknowledgement is the
//! shortest of all packets, so it can be the last packet of any train, even of a train with one other packet. A
//! response and the acknowledgement of the request therefore need only one pass through the kernel; programs that
//! wait for both (`ib_send_lat`) take a quarter less time.
//!
//! Packets of a connection with several paths alternate between them, so consecutive packets rarely use the same
//! path. Each path has its own train, for which space is reserved until it is full. Packets of one path stay in
//! order; packets of different paths are reordered within one batch, as in a network.

use arrayvec::ArrayVec;
use rnic_base::limits::MTU_MAX;
use rnic_engine::{MemoryFault, PeerId, Segment, Transmit};
use rnic_wire::codec::encode_headers;
use rnic_wire::falcon::{self, psp};
use rnic_wire::{Format, HEADERS_MAX, Headers, ICRC_LEN, IcrcPrefix, Packet, Syndrome, net};

use crate::copy_crc::CopyCrc;
use crate::ip_fields::PackedIpFields;
use crate::memory::{Memory, ProgramBytes};
use crate::sys::{MESSAGES_MAX, SEGMENTS_MAX};

/// A train: packets of equal length to one UDP port of one peer, which are passed to the kernel in one buffer (GSO).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) peer: PeerId,
    pub(crate) port: u16,
    /// Socket from which the train is sent: [`crate::link::lane::Lane::sender_on`].
    pub(crate) path: u8,
    pub(crate) ip_fields: PackedIpFields,
    /// Offset of the first byte of the train in the slab.
    start: usize,
    /// Length in bytes of every packet except the last.
    pub(crate) segment: u32,
    /// Number of packets.
    pub(crate) count: u32,
    /// Total length in bytes.
    pub(crate) bytes: u32,
    /// True while another packet may be appended to the train.
    open: bool,
}

impl Train {
    #[inline]
    pub(crate) fn path(&self) -> SendPath {
        SendPath { peer: self.peer, port: self.port, path: self.path, ip_fields: self.ip_fields }
    }

    /// Returns whether a packet of `len` bytes to the same destination may be appended.
    #[inline]
    fn has_room(&self, len: u32) -> bool {
        self.open && len <= self.segment && self.count < SEGMENTS_MAX as u32 && self.bytes + len <= net::UDP_PAYLOAD_MAX
    }
}

/// Destination of a packet, and the local socket and header fields with which it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SendPath {
    pub(crate) peer: PeerId,
    /// The peer's UDP port.
    pub(crate) port: u16,
    /// Socket from which the packet is sent: [`crate::link::lane::Lane::sender_on`].
    pub(crate) path: u8,
    /// Fields of its IP header other than the addresses.
    pub(crate) ip_fields: PackedIpFields,
}

/// Returns the fields of a packet's IP header other than the addresses, unless its queue pair has a traffic class.
#[inline]
pub(crate) fn ip_fields_of(transmit: &Transmit) -> PackedIpFields {
    match transmit.format {
        Format::UnreliableDatagram => PackedIpFields::of_bits(transmit.mark).unwrap_or_default(),
        _ => PackedIpFields::NONE,
    }
}

/// Properties of a packet that depend on how it is encapsulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrapping {
    /// Length in bytes, from the headers through the ICRC.
    pub(crate) len: u32,
    /// The peer's UDP port.
    pub(crate) port: u16,
    /// Fields of its IP header other than the addresses.
    pub(crate) ip_fields: PackedIpFields,
    /// Partial ICRC over the IP and UDP headers.
    pub(crate) prefix: IcrcPrefix,
    /// True when the packet may be in one buffer with others that the kernel splits (a train, GSO).
    pub(crate) may_join_train: bool,
    /// True when the peer's ICRC covers the IPv4 identification, which the kernel counts from 0 for each buffer that it
    /// splits (train).
    pub(crate) is_numbered: bool,
}

/// Packets that are sent with one system call, stored in a slab.
pub(crate) struct Batch<'a> {
    slab: &'a mut [u8],
    /// Offset of the free part of the slab, after all bytes that are used, or reserved for trains (buffers that the
    /// kernel splits).
    end: usize,
    /// Total bytes of all packets.
    bytes: usize,
    trains: ArrayVec<Train, MESSAGES_MAX>,
    packets: u32,
}

impl<'a> Batch<'a> {
    /// Creates an empty batch in `slab`, which must have at least [`SLAB_BYTES`].
    pub(crate) fn new(slab: &'a mut [u8]) -> Self {
        assert!(slab.len() >= SLAB_BYTES, "the slab holds {} bytes", slab.len());
        Self { slab, end: 0, bytes: 0, trains: ArrayVec::new(), packets: 0 }
    }

    /// Returns whether another packet of any length fits in addition to `acks`.
    #[inline]
    pub(crate) fn has_room(&self, acks: &Acks) -> bool {
        (self.bytes < BATCH_BYTES_MIN || self.may_append())
            && self.end + TRAIN_BYTES_MAX + ACKS_BYTES_MAX <= self.slab.len()
            && self.packets < DATA_PACKETS_MAX
            && self.trains.len() + acks.trains < MESSAGES_MAX - ACK_TRAINS
            && !acks.packets.is_full()
    }

    /// Returns whether the last train (buffer that the kernel splits) has space for another packet with the length of
    /// its first packet, and is not on a separate path.
    #[inline]
    fn may_append(&self) -> bool {
        self.trains.last().is_some_and(|train| train.path == 0 && train.has_room(train.segment))
    }

    /// Adds a packet to the batch.
    ///
    /// # Errors
    /// If the memory of its payload is no longer mapped; the packet is then not added.
    ///
    /// # Panics
    /// If the packet does not match its format; the engine creates no such packets.
    #[inline]
    pub(crate) fn add(
        &mut self,
        transmit: &Transmit,
        payload: &[Segment],
        memory: &Memory,
        wrapping: Wrapping,
    ) -> Result<(), MemoryFault> {
        let Wrapping { len, port, ip_fields, mut prefix, .. } = wrapping;
        let path = SendPath { peer: transmit.peer, port, path: 0, ip_fields };
        let at = self.reserve(path, len, wrapping.may_join_train);
        if wrapping.is_numbered {
            let packets_before = self.trains.last().map_or(0, |train| train.count - 1);
            // A train never has more packets than there are identifications.
            prefix = prefix.renumbered(packets_before as u16);
        }
        let written = write_packet(&mut self.slab[at..], transmit, payload, memory, prefix);
        if written.is_err() {
            self.release_reserved(path, len);
        }
        written
    }

    /// Adds a packet that is sent on a further path.
    ///
    /// # Errors
    /// If the memory of its payload is no longer mapped; the packet is then not added.
    pub(crate) fn add_on_path(
        &mut self,
        path: SendPath,
        transmit: &Transmit,
        payload: &[Segment],
        memory: &Memory,
        wrapping: Wrapping,
    ) -> Result<(), MemoryFault> {
        let Wrapping { len, prefix, may_join_train, .. } = wrapping;
        self.add_with(path, len, may_join_train, |out| {
            if out.len() >= HEADERS_MAX {
                return write_packet(out, transmit, payload, memory, prefix);
            }
            // Packets of other paths may follow at once: headers are written where there is space for the longest.
            let mut small = [0; HEADERS_MAX];
            write_packet(&mut small, transmit, payload, memory, prefix)?;
            out.copy_from_slice(&small[..out.len()]);
            Ok(())
        })
    }

    /// Adds a packet of `len` bytes, whose bytes `write` writes; `may_join_train` is true when it may be part of a
    /// train.
    ///
    /// # Errors
    /// When `write` fails; the packet is not added then.
    #[inline]
    pub(crate) fn add_with(
        &mut self,
        path: SendPath,
        len: u32,
        may_join_train: bool,
        write: impl FnOnce(&mut [u8]) -> Result<(), MemoryFault>,
    ) -> Result<(), MemoryFault> {
        let at = self.reserve(path, len, may_join_train);
        let written = write(&mut self.slab[at..at + len as usize]);
        if written.is_err() {
            self.release_reserved(path, len);
        }
        written
    }

    /// Reserves space for a packet of `len` bytes; returns its offset.
    #[inline]
    fn reserve(&mut self, path: SendPath, len: u32, may_join_train: bool) -> usize {
        self.packets += 1;
        self.bytes += len as usize;
        if let Some(at) = self.append_to_train(path, len) {
            return at;
        }
        let (SendPath { peer, port, path, ip_fields }, start) = (path, self.end);
        self.trains.push(Train {
            peer,
            port,
            path,
            ip_fields,
            start,
            segment: len,
            count: 1,
            bytes: len,
            open: may_join_train,
        });
        // Packets of other paths are added in between, so a train on a separate path reserves its maximum space from
        // the start.
        let reserves_train = path > 0 && may_join_train;
        self.end += if reserves_train { (len as usize * SEGMENTS_MAX).min(TRAIN_BYTES_MAX) } else { len as usize };
        start
    }

    /// Releases the space that the last [`Self::reserve`] reserved for a packet of `len` bytes on `path`.
    #[cold]
    fn release_reserved(&mut self, path: SendPath, len: u32) {
        self.packets -= 1;
        self.bytes -= len as usize;
        let index = self.trains.iter().rposition(|train| train.path() == path).expect("it was added to a train");
        let train = &mut self.trains[index];
        if train.count == 1 {
            self.end = train.start;
            self.trains.pop();
            return;
        }
        train.count -= 1;
        train.bytes -= len;
        train.open = true;
        if path.path == 0 {
            self.end -= len as usize;
        }
    }

    /// Appends a packet of `len` bytes to the last train on `path`, if it fits; returns its offset.
    #[inline]
    fn append_to_train(&mut self, path: SendPath, len: u32) -> Option<usize> {
        let train = if path.path == 0 {
            self.trains.last_mut().filter(|train| train.path() == path)
        } else {
            self.trains.iter_mut().rev().find(|train| train.path() == path)
        };
        let train = train.filter(|train| train.has_room(len))?;
        let at = train.start + train.bytes as usize;
        train.count += 1;
        train.bytes += len;
        train.open = len == train.segment;
        if path.path == 0 {
            self.end += len as usize;
        }
        Some(at)
    }

    /// Returns whether the batch has no packets.
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

/// Writes a packet, including its ICRC, to the front of `free`, which must also have space for headers of the maximum
/// length.
///
/// # Errors
/// If the memory of its payload is no longer mapped.
#[inline]
pub(crate) fn write_packet(
    free: &mut [u8],
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    prefix: IcrcPrefix,
) -> Result<(), MemoryFault> {
    let header_space = free.first_chunk_mut::<HEADERS_MAX>().expect("the slab has space for a full batch");
    let headers_len =
        encode_headers(transmit.format, &transmit.packet, header_space).expect("the packet matches its format");
    let (headers, mut free) = free.split_at_mut(headers_len);
    let mut copier = CopyCrc::new(prefix);
    let mut pieces = payload.iter().map(|segment| memory.gather(*segment));
    let first = pieces.next().unwrap_or(ProgramBytes::NOTHING);
    copier.start(headers, first, free)?;
    free = &mut free[first.len()..];
    for piece in pieces {
        copier.fetch(piece, free)?;
        free = &mut free[piece.len()..];
    }
    let pad = transmit.packet.pad_len() as usize;
    if pad > 0 {
        copier.more(&[0; 3][..pad], free);
    }
    free[pad..pad + ICRC_LEN].copy_from_slice(&copier.finish());
    Ok(())
}

/// Acknowledgements to be added at the end of a batch.
///
/// Packets come in trains, and IRN acknowledges every packet: of the cumulative acknowledgements for one train only
/// the last is sent, which for the peer is the same as if the network had lost the others. Acknowledgements that
/// report a gap are always sent.
#[derive(Default)]
pub(crate) struct Acks {
    packets: ArrayVec<Transmit, ACKS_MAX>,
    /// Maximum number of trains (buffers that the kernel splits) that these acknowledgements form.
    trains: usize,
}

impl Acks {
    /// Adds an acknowledgement, for which the batch must have space. `may_join_train` is true when the kernel may split
    /// it from a common buffer (GSO). Returns whether it replaces the previous one, whose information it includes.
    #[inline]
    pub(crate) fn push(&mut self, ack: Transmit, may_join_train: bool) -> bool {
        if let Some(last) = self.packets.last_mut()
            && supersedes(&ack, last)
        {
            *last = ack;
            return true;
        }
        // Queue pairs of one peer may use different ports; queue pair numbers with equal port bits use the same port.
        let shares_train = self.packets.last().is_some_and(|last| {
            let (one, other) = (&ack.packet, &last.packet);
            last.peer == ack.peer
                && last.format == ack.format
                && crate::ports::port_of(one.dest_qpn) == crate::ports::port_of(other.dest_qpn)
        });
        if !shares_train || !may_join_train {
            self.trains += ACK_TRAINS;
        }
        self.packets.push(ack);
        false
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Transmit> {
        self.packets.iter()
    }
}

/// Returns whether `ack` makes `earlier` redundant: both are plain cumulative acknowledgements for the same queue
/// pair and the same direction, or both are pulls for the same queue pair.
#[inline]
fn supersedes(ack: &Transmit, earlier: &Transmit) -> bool {
    let (Some(count), Some(earlier_count)) = (cumulative(&ack.packet), cumulative(&earlier.packet)) else {
        return false;
    };
    // Flows of one queue pair differ in their destination.
    ack.from == earlier.from
        && ack.packet.dest_qpn == earlier.packet.dest_qpn
        && ack.peer == earlier.peer
        && count == earlier_count
        && ack.packet.flags == earlier.packet.flags
}

/// Kind of packets that a packet without data counts cumulatively, so that the latest such packet replaces all earlier
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cumulative {
    Requests,
    Responses,
    Grants,
}

/// Returns what `packet` counts, if it is a plain cumulative acknowledgement or a pull.
#[inline]
fn cumulative(packet: &Packet) -> Option<Cumulative> {
    let (counts, aeth, sack) = match &packet.headers {
        Headers::Ack { aeth, sack } => (Cumulative::Requests, aeth, sack),
        Headers::ReadAck { aeth, sack } => (Cumulative::Responses, aeth, sack),
        Headers::Pull { .. } => return Some(Cumulative::Grants),
        _ => return None,
    };
    (sack.is_none() && matches!(aeth.syndrome, Syndrome::Ack { .. })).then_some(counts)
}

/// Maximum number of acknowledgements in a batch: as many packets as the kernel splits from one buffer.
const ACKS_MAX: usize = SEGMENTS_MAX;

/// Maximum number of trains that the acknowledgements to one peer form: the first acknowledgement may end the train
/// of data before it, and the others form a train of their own. CNPs are longer and cannot be appended, but they are
/// rare.
const ACK_TRAINS: usize = 2;

/// Maximum number of packets in a batch, not counting acknowledgements.
const DATA_PACKETS_MAX: u32 = SEGMENTS_MAX as u32;

/// Number of bytes at which a batch is sent, once its last train is complete: four full trains of large packets
/// (sending one train at a time is 5 % slower, eight trains are no faster). In RoCE the first packet of a message is
/// longer than the following ones, so an incomplete train would cause extra trains.
const BATCH_BYTES_MIN: usize = 240_000;

/// Maximum number of bytes of a batch: just below the limit, one more train may start and become full; after it come
/// the acknowledgements, and the extra space that the headers of the last one need while they are written. In
/// addition, space is reserved for the trains on separate paths, which may not become full; the system allocates no
/// memory for pages that are not used.
pub(crate) const SLAB_BYTES: usize = BATCH_BYTES_MIN + (1 + SEPARATE_TRAINS) * TRAIN_BYTES_MAX + ACKS_BYTES_MAX;

/// Maximum number of trains (buffers that the kernel splits) on separate paths for which space is reserved, in addition
/// to the one on the default path: one for each of the eight flows that a connection can have.
const SEPARATE_TRAINS: usize = 8;

/// Maximum number of bytes of a train (a buffer that the kernel splits). A single packet is always shorter, even with
/// the extra space that its headers need while they are written.
const TRAIN_BYTES_MAX: usize = net::UDP_PAYLOAD_MAX as usize;

const _: () = {
    let roce = 2 * HEADERS_MAX + ICRC_LEN;
    let falcon = psp::LEN_MAX + falcon::HEADERS_MAX + psp::ICV_LEN;
    assert!(MTU_MAX as usize + if roce > falcon { roce } else { falcon } <= TRAIN_BYTES_MAX);
};

/// Maximum number of bytes of the acknowledgements of a batch, with the extra space that the headers of the last
/// acknowledgement need while they are written.
const ACKS_BYTES_MAX: usize = (ACKS_MAX + 1) * (HEADERS_MAX + 3 + ICRC_LEN);

#[cfg(test)]
#[path = "batch/tests.rs"]
mod tests;
