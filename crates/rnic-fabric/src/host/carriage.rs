//! From the engine's packet to what travels, and back.
//!
//! Three ways of travelling, chosen by the plan: headers as they are; headers as they are with the payload beside them;
//! or one datagram of bytes, checksum included, that the receiver decodes. The last proves that a simulation knows
//! nothing that the wire does not carry: the trace must be the same in all three.

mod falcon;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::Range;

use rnic_base::Time;
use rnic_engine::{Segment, Transmit, TransmitKind};
use rnic_policy::PathLabel;
use rnic_wire::codec::{assemble, decode};
use rnic_wire::net::{IpFields, IpVersion, UDP_PORT};
use rnic_wire::{Addresses, Format, Headers, Packet, icrc};

use super::memory::Memory;
use crate::entry::{Entry, Flags};
use crate::packets::{Ends, Lines, Packets, Slab};
use crate::route::flow_hash;

/// How the packets of a host travel.
#[derive(Debug)]
pub(crate) struct Carriage {
    host: u32,
    encoded: bool,
    with_payload: bool,
    /// Bytes that every frame is longer than its packet makes it (IRN section 6.3).
    extra_header: u32,
    /// Buffers that are used again and again.
    payload: Vec<u8>,
    datagram: Vec<u8>,
    /// What this host has sent since the capture was last written, if there is one.
    pub(crate) captured: Option<Vec<Captured>>,
}

/// A datagram for the capture.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) at: Time,
    pub(crate) addresses: Addresses,
    pub(crate) fields: IpFields,
    pub(crate) datagram: Vec<u8>,
}

impl Carriage {
    pub(crate) fn new(host: u32, encoded: bool, with_payload: bool, extra_header: u32) -> Self {
        Self { host, encoded, with_payload, extra_header, payload: Vec::new(), datagram: Vec::new(), captured: None }
    }

    /// Whether packets travel as headers alone.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.encoded && !self.with_payload
    }

    /// Whether bytes travel, or are to be captured.
    #[inline]
    pub(crate) fn wants_bytes(&self) -> bool {
        !self.is_plain() || self.captured.is_some()
    }

    /// Puts a packet on its way.
    #[inline(always)]
    pub(crate) fn load(&self, transmit: &Transmit, packets: &mut Packets) -> Entry {
        let (packet, format, dst) = (&transmit.packet, transmit.format, transmit.peer.0);
        let label = source_port(transmit.label);
        let frame_len = packet.frame_len(format, IpVersion::V4) + self.extra_header;
        let index = packets.insert(packet, Ends { src: self.host, source_port: label, format });
        let flags = if transmit.kind == TransmitKind::Ack { Flags::ACK } else { Flags::NONE };
        let identity = identity(self.host, dst, packet, frame_len);
        Entry::new(identity, flow_hash(self.host, dst, label), index, dst, frame_len, flags)
    }

    /// Puts the bytes of packet `index` beside it; `memory` is where its payload lies, and which part of it.
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
        self.lay_beside(index, packet.payload_len, memory, packets, |carriage, payload, datagram| {
            let addresses = addresses(carriage.host, transmit.peer.0, source_port(transmit.label));
            assemble(transmit.format, packet, &[payload], &addresses, datagram)
                .expect("the engine makes packets that its format can express");
            if let Some(captured) = &mut carriage.captured {
                let fields = IpFields::default();
                captured.push(Captured { at: now, addresses, fields, datagram: datagram.clone() });
            }
        });
    }

    /// Puts the bytes of packet `index` beside it, `payload_len` of them, or its datagram, which `assemble` writes and
    /// captures.
    fn lay_beside<L: Lines>(
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
        assert!(payload.len() == payload_len as usize, "segments make up the payload");
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

    /// Takes a packet off its way: format, headers, and which of its bytes are payload. `None` when it was damaged.
    pub(crate) fn unload(&self, entry: &Entry, packets: &Packets) -> Option<(Format, Packet, Range<usize>)> {
        let Ends { src, source_port, format } = packets.ends(entry.packet);
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

/// The UDP source port that carries `label`: RoCEv2 keeps to the dynamic range, and so to 14 bits of the label.
/// Switches hash the port, not the label.
#[inline]
fn source_port(label: PathLabel) -> u16 {
    label.0 | 0xc000
}

/// The addresses of a packet on its way from host `src` to host `dst`: 10.0.0.1 is host 0.
fn addresses(src: u32, dst: u32, source_port: u16) -> Addresses {
    let ip = |host: u32| IpAddr::V4(Ipv4Addr::from_bits(FIRST_ADDRESS + host));
    let source = SocketAddr::new(ip(src), source_port);
    Addresses::new(source, SocketAddr::new(ip(dst), UDP_PORT)).expect("both are version 4")
}

const FIRST_ADDRESS: u32 = 0x0a00_0001;

/// Who a packet is: ends, queue pair, sequence number, kind, length.
#[inline]
fn identity(src: u32, dst: u32, packet: &Packet, frame_len: u32) -> u64 {
    let ends = u64::from(src) << 32 | u64::from(dst);
    let numbers = u64::from(packet.dest_qpn.get()) << 40 | u64::from(packet.psn.value()) << 16 | u64::from(frame_len);
    let mixed = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ numbers.rotate_left(8) ^ kind(&packet.headers);
    let mixed = mixed.wrapping_mul(0x9fb2_1c65_1e98_df25);
    mixed ^ mixed >> 29
}

/// A small number for each kind of packet.
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
    }
}
