//! Packets on their way to the kernel: gathered, not copied.
//!
//! A packet is three runs of bytes: its headers, its payload where that lies in registered memory, and padding with the
//! ICRC. Headers and trailers are written one after the other into a slab, so that the trailer of one packet and the
//! headers of the next are one run; packets without payload (acknowledgements) are one run altogether.
//!
//! Consecutive packets to one peer form a *train*, which costs the kernel little more than one packet: all have the
//! length of the first one, and only the last may be shorter (udp(7), `UDP_SEGMENT`).

use std::io::IoSlice;

use arrayvec::ArrayVec;
use rnic_base::limits::SGE_MAX;
use rnic_engine::{PeerId, Segment, Transmit};
use rnic_wire::codec::encode_headers;
use rnic_wire::{HEADERS_MAX, Headers, ICRC_LEN, IcrcPrefix, Packet, Syndrome, net};

use crate::memory::Memory;
use crate::sys::{MESSAGES_MAX, SEGMENTS_MAX};

/// Packets of one length to one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) peer: PeerId,
    /// Where its parts begin, and where they end.
    first_part: usize,
    end_part: usize,
    /// Bytes of every packet but the last.
    pub(crate) segment: u32,
    /// Packets.
    pub(crate) count: u32,
    /// Bytes altogether.
    pub(crate) bytes: u32,
    /// Another packet may be coupled on.
    open: bool,
}

impl Train {
    /// Whether a packet of `len` bytes to the same peer may be coupled on.
    #[inline]
    fn has_room(&self, len: u32) -> bool {
        self.open && len <= self.segment && self.count < SEGMENTS_MAX as u32 && self.bytes + len <= net::UDP_PAYLOAD_MAX
    }
}

/// What one call of the kernel sends. Borrows registered memory and the slab for as long as it takes.
pub(crate) struct Batch<'a> {
    /// From the beginning of the run that is being written.
    slab: &'a mut [u8],
    /// Bytes of that run so far.
    pending: usize,
    parts: ArrayVec<IoSlice<'a>, PARTS_MAX>,
    trains: ArrayVec<Train, MESSAGES_MAX>,
    bytes: u32,
    packets: u32,
}

impl<'a> Batch<'a> {
    /// An empty batch that writes headers into `slab`, of at least [`SLAB_BYTES`].
    pub(crate) fn new(slab: &'a mut [u8]) -> Self {
        assert!(slab.len() >= SLAB_BYTES, "the slab holds {} bytes", slab.len());
        Self { slab, pending: 0, parts: ArrayVec::new(), trains: ArrayVec::new(), bytes: 0, packets: 0 }
    }

    /// Whether another packet, any packet, finds room beside `acks`.
    #[inline]
    pub(crate) fn has_room(&self, acks: &Acks) -> bool {
        (self.bytes < BYTES_ENOUGH || self.may_couple())
            && self.packets < DATA_PACKETS_MAX
            && self.trains.len() + acks.trains < MESSAGES_MAX - ACK_TRAINS
            && self.parts.remaining_capacity() >= PARTS_OF_PACKET_MAX + PARTS_OF_ACKS
            && !acks.packets.is_full()
    }

    /// Whether the last train has room for another packet like its first.
    #[inline]
    fn may_couple(&self) -> bool {
        self.trains.last().is_some_and(|train| train.has_room(train.segment))
    }

    /// Adds a packet of `len` bytes, headers to ICRC. `couple` says whether it may be part of a train.
    ///
    /// # Panics
    /// When the packet contradicts its format: the engine made it.
    #[inline]
    pub(crate) fn add(
        &mut self,
        transmit: &Transmit,
        len: u32,
        payload: &[Segment],
        memory: &'a Memory,
        prefix: IcrcPrefix,
        couple: bool,
    ) {
        if !self.couple(transmit.peer, len) {
            self.start_train(transmit.peer, len, couple);
        }
        let (_, free) = self.slab.split_at_mut(self.pending);
        let room = free.first_chunk_mut::<HEADERS_MAX>().expect("the slab has room for a full batch");
        let headers_len =
            encode_headers(transmit.format, &transmit.packet, room).expect("the engine keeps to the format");
        let mut icrc = prefix.start(&room[..headers_len]);
        self.pending += headers_len;
        for segment in payload {
            let bytes = memory.gather(*segment);
            icrc.update(bytes);
            self.end_run();
            self.parts.push(IoSlice::new(bytes));
        }
        let pad = transmit.packet.pad_len() as usize;
        let trailer = &mut self.slab[self.pending..self.pending + pad + ICRC_LEN];
        if pad > 0 {
            trailer[..pad].fill(0);
            icrc.update(&trailer[..pad]);
        }
        trailer[pad..].copy_from_slice(&icrc.finish());
        self.pending += pad + ICRC_LEN;
        self.bytes += len;
        self.packets += 1;
    }

    /// Couples a packet of `len` bytes to the last train, if it fits there.
    #[inline]
    fn couple(&mut self, peer: PeerId, len: u32) -> bool {
        let Some(train) = self.trains.last_mut() else { return false };
        let fits = train.peer == peer && train.has_room(len);
        if fits {
            train.count += 1;
            train.bytes += len;
            train.open = len == train.segment;
        }
        fits
    }

    fn start_train(&mut self, peer: PeerId, len: u32, open: bool) {
        self.end_train();
        let first_part = self.parts.len();
        self.trains.push(Train { peer, first_part, end_part: first_part, segment: len, count: 1, bytes: len, open });
    }

    fn end_train(&mut self) {
        self.end_run();
        if let Some(train) = self.trains.last_mut() {
            train.end_part = self.parts.len();
        }
    }

    /// Ends the run of headers and trailers that is being written.
    #[inline]
    fn end_run(&mut self) {
        if self.pending > 0 {
            let (run, rest) = std::mem::take(&mut self.slab).split_at_mut(self.pending);
            self.parts.push(IoSlice::new(run));
            self.slab = rest;
            self.pending = 0;
        }
    }

    /// Nothing more comes; answers whether there is anything to send. A batch is large: it is filled and sent where it
    /// stands, never moved.
    pub(crate) fn finish(&mut self) -> bool {
        self.end_train();
        self.packets > 0
    }

    pub(crate) fn trains(&self) -> &[Train] {
        &self.trains
    }

    /// The bytes of `train`, where they are.
    pub(crate) fn parts(&self, train: &Train) -> &[IoSlice<'_>] {
        &self.parts[train.first_part..train.end_part]
    }

    /// The packets of `train`, each with its own bytes.
    pub(crate) fn copy(&self, train: &Train) -> Vec<Vec<u8>> {
        let bytes: Vec<u8> = self.parts(train).iter().flat_map(|part| part.iter().copied()).collect();
        bytes.chunks(train.segment as usize).map(<[u8]>::to_vec).collect()
    }
}

/// Acknowledgements that wait to be the last of a batch.
///
/// Packets come in trains, and IRN acknowledges every packet: of the cumulative acknowledgements of one train only the
/// last is sent, as if the network had lost the others. What tells of a gap is never left out.
#[derive(Default)]
pub(crate) struct Acks {
    packets: ArrayVec<Transmit, ACKS_MAX>,
    /// Trains that they make, at most.
    trains: usize,
}

impl Acks {
    /// Takes one in; the batch had room. `couple` says whether it may be part of a train. Answers whether it replaces
    /// the one before, which says nothing that this one does not say too.
    #[inline]
    pub(crate) fn push(&mut self, ack: Transmit, couple: bool) -> bool {
        if let Some(last) = self.packets.last_mut()
            && says_more(&ack, last)
        {
            *last = ack;
            return true;
        }
        let alike = self.packets.last().is_some_and(|last| last.peer == ack.peer && last.format == ack.format);
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

/// Whether `ack` makes `earlier` superfluous: both say "everything up to here has arrived", of the same queue pair and
/// the same direction, and nothing else.
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

/// Whether a packet is a plain cumulative acknowledgement, and then whether of responses.
#[inline]
fn plain_ack(packet: &Packet) -> Option<bool> {
    let (of_responses, aeth, sack) = match &packet.headers {
        Headers::Ack { aeth, sack } => (false, aeth, sack),
        Headers::ReadAck { aeth, sack } => (true, aeth, sack),
        _ => return None,
    };
    (sack.is_none() && aeth.syndrome == Syndrome::ACK).then_some(of_responses)
}

/// Acknowledgements of a batch, at most: one full train.
const ACKS_MAX: usize = SEGMENTS_MAX;

/// Trains of acknowledgements to one peer: the first may close the train of data before it, the others make one of
/// their own. CNPs are longer and cannot be coupled behind; there are few.
const ACK_TRAINS: usize = 2;

/// Packets of a batch beside acknowledgements, at most.
const DATA_PACKETS_MAX: u32 = SEGMENTS_MAX as u32;

/// A batch is sent when it has so many bytes, one full train of large packets, and its last train is complete: in RoCE
/// the first packet of a message is longer than those that follow, and trains cut short would cost more. Waiting for
/// more would leave the receiver idle.
const BYTES_ENOUGH: u32 = 60_000;

/// A packet's payload lies in at most so many pieces, each with a run of headers before it, and a run of what follows.
const PARTS_OF_PACKET_MAX: usize = 2 * SGE_MAX + 1;

/// Acknowledgements are one part for each train.
const PARTS_OF_ACKS: usize = MESSAGES_MAX;

/// Parts of a batch: two for each packet of a usual one.
const PARTS_MAX: usize = 2 * DATA_PACKETS_MAX as usize + PARTS_OF_PACKET_MAX + PARTS_OF_ACKS;

/// Bytes of headers, padding and ICRC of a batch, and the room that the last packet's headers want while they are
/// written.
pub(crate) const SLAB_BYTES: usize = (DATA_PACKETS_MAX as usize + ACKS_MAX + 1) * (HEADERS_MAX + 3 + ICRC_LEN);

#[cfg(test)]
#[path = "batch/tests.rs"]
mod tests;
