//! Conversion between the engine's packets and their representation in the network.
//!
//! The plan chooses one of three representations: headers as structures; headers as structures with the payload next
//! to them; or one datagram of bytes, checksum included, that the receiver decodes. The last one shows that a
//! simulation uses only information that is transmitted on the wire: the trace must be the same with all three.

mod falcon;
mod message;

use core::ops::Range;

use rnic_base::Time;
use rnic_engine::{Segment, Transmit, TransmitKind};
use rnic_policy::PathLabel;
use rnic_wire::codec::{assemble, decode};
use rnic_wire::net::{IpFields, IpVersion};
use rnic_wire::{Addresses, Format, Headers, Packet, Syndrome, icrc};

use super::memory::Memory;
use crate::addresses::addresses;
use crate::entry::{Entry, Flags};
use crate::packets::{Endpoints, Packets, Slab, StoredHeaders};
use crate::route::flow_hash;
use crate::trace::log::{Answer, DepartureRecord};

/// The representation of a host's packets in the network.
#[derive(Debug)]
pub(crate) struct PacketCodec {
    host: u32,
    encoded: bool,
    with_payload: bool,
    /// Bytes that are added to the length of every frame (IRN section 6.3): of the RoCE family, and of Falcon.
    extra_headers: [u32; 2],
    /// Reused buffers for payloads and datagrams.
    payload: Vec<u8>,
    datagram: Vec<u8>,
    /// Datagrams that this host has sent since the capture was last written; `None` without a capture.
    pub(crate) captured: Option<Vec<Captured>>,
    /// Packets that this host has sent since the trace was last written; `None` without a trace.
    pub(crate) departures: Option<Vec<DepartureRecord>>,
}

/// A datagram for the capture.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) at: Time,
    pub(crate) addresses: Addresses,
    pub(crate) fields: IpFields,
    pub(crate) datagram: Vec<u8>,
}

impl PacketCodec {
    pub(crate) fn new(host: u32, encoded: bool, with_payload: bool, extra_headers: [u32; 2]) -> Self {
        Self {
            host,
            encoded,
            with_payload,
            extra_headers,
            payload: Vec::new(),
            datagram: Vec::new(),
            captured: None,
            departures: None,
        }
    }

    /// Returns the host's number.
    pub(crate) fn host(&self) -> u32 {
        self.host
    }

    /// Returns whether packets are represented by headers alone.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.encoded && !self.with_payload
    }

    /// Returns whether packets carry bytes or are to be captured or traced.
    #[inline]
    pub(crate) fn wants_bytes(&self) -> bool {
        !self.is_plain() || self.captured.is_some() || self.departures.is_some()
    }

    /// Returns whether only a trace wants the packets.
    fn only_traces(&self) -> bool {
        self.is_plain() && self.captured.is_none()
    }

    /// Stores a packet for transmission and returns its network entry.
    #[inline(always)]
    pub(crate) fn store_packet(&self, transmit: &Transmit, packets: &mut Packets) -> Entry {
        let (packet, format, dst) = (&transmit.packet, transmit.format, transmit.peer.0);
        let label = source_port(transmit.label);
        let frame_len = packet.frame_len(format, IpVersion::V4) + self.extra_headers[0];
        let index = packets.insert(packet, Endpoints { src: self.host, source_port: label, format });
        let flags = if transmit.kind == TransmitKind::Ack { Flags::ACK } else { Flags::NONE };
        let identity = identity(self.host, dst, packet, frame_len);
        Entry::new(identity, flow_hash(self.host, dst, label), index, dst, frame_len, flags)
    }

    /// Stores the bytes of packet `index` next to its headers; `memory` is the memory and the segments in it that hold
    /// its payload.
    #[cold]
    pub(crate) fn load_bytes(
        &mut self,
        now: Time,
        transmit: &Transmit,
        memory: Option<(&Memory, &[Segment])>,
        index: u32,
        packets: &mut Packets,
    ) {
        let packet = &transmit.packet;
        if let Some(departures) = &mut self.departures {
            departures.push(departure(now, transmit));
        }
        if self.only_traces() {
            return;
        }
        self.store_bytes(index, packet.payload_len, memory, packets, |codec, payload, datagram| {
            let addresses = addresses(codec.host, transmit.peer.0, source_port(transmit.label));
            assemble(transmit.format, packet, &[payload], &addresses, datagram)
                .expect("the engine makes packets that its format can express");
            if let Some(captured) = &mut codec.captured {
                let fields = IpFields::default();
                captured.push(Captured { at: now, addresses, fields, datagram: datagram.clone() });
            }
        });
    }

    /// Stores the `payload_len` payload bytes of packet `index` next to its headers, or its datagram, which `assemble`
    /// writes and captures.
    fn store_bytes<L: StoredHeaders>(
        &mut self,
        index: u32,
        payload_len: u32,
        memory: Option<(&Memory, &[Segment])>,
        packets: &mut Slab<L>,
        assemble: impl FnOnce(&mut Self, &[u8], &mut Vec<u8>),
    ) {
        let mut payload = core::mem::take(&mut self.payload);
        payload.clear();
        match memory {
            Some((memory, segments)) => memory.gather(segments, &mut payload),
            None => payload.resize(payload_len as usize, 0),
        }
        assert!(payload.len() == payload_len as usize, "the segments do not have the length of the payload");
        let mut bytes = packets.take_bytes(index);
        if self.encoded || self.captured.is_some() {
            let mut datagram = core::mem::take(&mut self.datagram);
            assemble(self, &payload, &mut datagram);
            if self.encoded {
                bytes.clone_from(&datagram);
            }
            self.datagram = datagram;
        }
        if !self.encoded {
            bytes.clone_from(&payload);
        }
        packets.put_bytes(index, bytes);
        if self.encoded {
            packets.forget_headers(index);
        }
        self.payload = payload;
    }

    /// Decodes a received packet: returns its format, its headers, and the range of its bytes that is payload. Returns
    /// `None` when it is damaged.
    pub(crate) fn decode(&self, entry: &Entry, packets: &Packets) -> Option<(Format, Packet, Range<usize>)> {
        let Endpoints { src, source_port, format } = packets.ends(entry.packet);
        let bytes = packets.bytes(entry.packet);
        if !self.encoded {
            let intact = !entry.has(Flags::CORRUPT);
            return intact.then(|| (format, *packets.headers(entry.packet), 0..bytes.len()));
        }
        if !icrc::verify(&addresses(src, self.host, source_port), bytes) {
            return None;
        }
        let decoded = decode(bytes).ok()?;
        Some((decoded.format, decoded.packet, decoded.payload))
    }
}

/// Returns what a trace says about a packet that is sent.
fn departure(at: Time, transmit: &Transmit) -> DepartureRecord {
    let packet = &transmit.packet;
    let answer = match &packet.headers {
        Headers::Ack { aeth, .. } | Headers::LossAck { aeth, .. } | Headers::TrimNack { aeth, .. } => {
            let covered = u32::from(matches!(aeth.syndrome, Syndrome::Ack { .. }));
            Some(Answer::Covers(packet.psn.value().wrapping_add(covered)))
        }
        // In a shared space, a response acknowledges its request.
        Headers::ReadResponse { .. } | Headers::AtomicResponse { .. }
            if !transmit.format.allows_independent_placement() =>
        {
            Some(Answer::Covers(packet.psn.value().wrapping_add(1)))
        }
        Headers::ReadResponse { position, .. } if position.ends() => Some(Answer::Response),
        Headers::AtomicResponse { .. } => Some(Answer::Response),
        _ => None,
    };
    let is_retransmission = transmit.kind.is_retransmission();
    let is_repeated = is_retransmission && answer == Some(Answer::Response);
    DepartureRecord {
        at,
        qpn: transmit.from.get(),
        psn: Some(packet.psn.value()),
        is_retransmission,
        answer: answer.filter(|_| !is_repeated),
    }
}

/// Returns the UDP source port that carries `label`: RoCEv2 uses the dynamic range only, and therefore 14 bits of the
/// label. Switches hash the port, not the label.
#[inline]
fn source_port(label: PathLabel) -> u16 {
    label.0 | 0xc000
}

/// Returns the identity of a packet, from both hosts, queue pair, sequence number, type and length.
#[inline]
fn identity(src: u32, dst: u32, packet: &Packet, frame_len: u32) -> u64 {
    let ends = u64::from(src) << 32 | u64::from(dst);
    let numbers = u64::from(packet.dest_qpn.get()) << 40 | u64::from(packet.psn.value()) << 16 | u64::from(frame_len);
    let mixed = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ numbers.rotate_left(8) ^ kind(&packet.headers);
    let mixed = mixed.wrapping_mul(0x9fb2_1c65_1e98_df25);
    mixed ^ mixed >> 29
}

/// Returns a small number that identifies the packet's type.
#[inline]
fn kind(headers: &Headers) -> u64 {
    match headers {
        Headers::Send { .. } => 1,
        Headers::Write { .. } => 2,
        Headers::ReadRequest { .. } => 3,
        Headers::ReadResponse { .. } => 4,
        Headers::AtomicRequest { .. } => 5,
        Headers::AtomicResponse { .. } => 6,
        Headers::Ack { .. } => 7,
        Headers::ReadAck { .. } => 8,
        Headers::Cnp => 9,
        Headers::Datagram { .. } => 10,
        Headers::LossAck { .. } => 11,
        Headers::PlacementRequest { .. } => 12,
        Headers::SharedSend { .. } => 13,
        Headers::SharedWrite { .. } => 14,
        Headers::TrimNack { .. } => 15,
        Headers::Pull { .. } => 16,
    }
}
