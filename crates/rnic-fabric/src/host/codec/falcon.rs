//! Representation of Falcon packets in the network: as structures, with their payload next to them, or as bytes.
//!
//! As bytes, a packet is the content of a UDP datagram: PSP's header with the timestamp in its initialization vector,
//! Falcon's and the upper layer's headers, payload, padding, and a check value of zeros (no key: index 0). Without
//! encryption, none of these fields detects damage. Therefore the frame check sequence, Ethernet's CRC, is included
//! too, and the receiver checks it. The flow label is a field of the IP header and is carried next to the bytes, like
//! the addresses.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::ops::Range;

use rnic_base::Time;
use rnic_engine::{FalconTransmit, Segment, TransmitKind};
use rnic_wire::Addresses;
use rnic_wire::falcon::codec::{assemble, decode_datagram};
use rnic_wire::falcon::{Body, Encapsulation, Packet, PacketType, psp};
use rnic_wire::net::IpFields;

use super::{Captured, PacketCodec};
use crate::entry::{Entry, Flags};
use crate::host::memory::Memory;
use crate::packets::{FalconEndpoints, FalconPackets};
use crate::route::falcon_flow_hash;
use crate::trace::log::{Answer, DepartureRecord};

impl PacketCodec {
    /// Stores a packet for transmission and returns its network entry.
    #[inline]
    pub(crate) fn store_falcon_packet(&self, transmit: &FalconTransmit, packets: &mut FalconPackets) -> Entry {
        let FalconTransmit { packet, label, .. } = transmit;
        let dst = transmit.peer.0;
        let frame_len = packet.frame_len(Encapsulation::IPV6) + self.extra_headers[1];
        let index = packets.insert(packet, FalconEndpoints::new(self.host, *label));
        let flags = if transmit.kind == TransmitKind::Ack { Flags::FALCON_ACK } else { Flags::FALCON };
        let identity = identity(self.host, dst, packet, frame_len) ^ u64::from(label.get()) << 40;
        Entry::new(identity, falcon_flow_hash(self.host, dst, *label), index, dst, frame_len, flags)
    }

    /// Stores the bytes of packet `index` next to its headers; `memory` is the memory and the segments in it that hold
    /// its payload.
    #[cold]
    pub(crate) fn load_falcon_bytes(
        &mut self,
        now: Time,
        transmit: &FalconTransmit,
        memory: Option<(&Memory, &[Segment])>,
        index: u32,
        packets: &mut FalconPackets,
    ) {
        let packet = &transmit.packet;
        if let Some(departures) = &mut self.departures {
            departures.push(departure(now, transmit));
        }
        if self.only_traces() {
            return;
        }
        self.store_bytes(index, packet.payload_len, memory, packets, |codec, payload, datagram| {
            assemble(&psp::Header::default(), packet, &[payload], datagram)
                .expect("the engine makes packets that its format can express");
            if let Some(captured) = &mut codec.captured {
                let addresses = addresses(codec.host, transmit.peer.0);
                let fields = IpFields { flow_label: transmit.label.get(), ..IpFields::default() };
                captured.push(Captured { at: now, addresses, fields, datagram: datagram.clone() });
            }
            let fcs = crc32fast::hash(datagram);
            datagram.extend_from_slice(&fcs.to_le_bytes());
        });
    }

    /// Decodes a received packet: returns its headers, and the range of its bytes that is payload. Returns `None` when
    /// it is damaged.
    pub(crate) fn decode_falcon(&self, entry: &Entry, packets: &FalconPackets) -> Option<(Packet, Range<usize>)> {
        let bytes = packets.bytes(entry.packet);
        if !self.encoded {
            return (!entry.has(Flags::CORRUPT)).then(|| (*packets.headers(entry.packet), 0..bytes.len()));
        }
        let (datagram, fcs) = bytes.split_last_chunk()?;
        if crc32fast::hash(datagram) != u32::from_le_bytes(*fcs) {
            return None;
        }
        let (_, decoded) = decode_datagram(datagram).ok()?;
        Some((decoded.packet, decoded.payload))
    }
}

/// Returns what a trace says about a packet that is sent.
fn departure(at: Time, transmit: &FalconTransmit) -> DepartureRecord {
    let (packet, is_retransmission) = (&transmit.packet, transmit.kind.is_retransmission());
    // Every packet carries the bases of the windows: what has arrived when it is sent.
    let answer = match packet.body.packet_type() {
        PacketType::PullData if is_retransmission => None,
        PacketType::PullData => Some(Answer::Response),
        _ => Some(Answer::All),
    };
    let psn = packet.body.psn().map(|psn| psn.value());
    DepartureRecord { at, qpn: transmit.from.get(), psn, is_retransmission, answer }
}

/// Returns the addresses of a packet from host `src` to host `dst`: fd00::1 is host 0. PSP lets the sender choose the
/// source port; this port carries no information, since the flow label selects the path.
fn addresses(src: u32, dst: u32) -> Addresses {
    let ip = |host: u32| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, ((host + 1) >> 16) as u16, (host + 1) as u16));
    let source = SocketAddr::new(ip(src), SOURCE_PORT);
    Addresses::new(source, SocketAddr::new(ip(dst), psp::UDP_PORT)).expect("both addresses are IPv6")
}

/// UDP source port: the first dynamic port.
const SOURCE_PORT: u16 = 0xc000;

/// Returns the identity of a packet, from both hosts, connection, sequence numbers, type, length, and time of
/// departure, which distinguishes acknowledgements.
#[inline]
fn identity(src: u32, dst: u32, packet: &Packet, frame_len: u32) -> u64 {
    let ends = u64::from(src) << 32 | u64::from(dst);
    let connection = u64::from(packet.cid.get()) << 40 | u64::from(packet.timestamp.value()) << 8;
    let bases = u64::from(packet.bases.data.value()) << 32 | u64::from(packet.bases.request.value());
    let mixed = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ connection ^ u64::from(frame_len).rotate_left(48);
    let mixed = mixed.wrapping_mul(0x9fb2_1c65_1e98_df25) ^ bases.rotate_left(13) ^ body(&packet.body);
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 29
}

/// Returns a value computed from the sequence numbers and the type of a packet.
#[inline]
fn body(body: &Body) -> u64 {
    let kind = u64::from(body.packet_type().code()) << 60;
    let numbers = match body {
        Body::PullRequest { psn, rsn, .. }
        | Body::PullData { psn, rsn, .. }
        | Body::PushData { psn, rsn, .. }
        | Body::Resync { psn, rsn, .. } => u64::from(psn.value()) << 32 | u64::from(rsn.value()),
        Body::Ack(ack) | Body::ExtendedAck(ack, _) => u64::from(ack.t1.value()) << 32 | u64::from(ack.t2.value()),
        Body::Nack(nack) => u64::from(nack.psn.value()) << 32 | u64::from(nack.t1.value()),
    };
    numbers ^ kind
}

#[cfg(test)]
mod tests {
    use rnic_base::Serial;
    use rnic_engine::PeerId;
    use rnic_wire::falcon::{
        Acknowledgement, Bitmaps, Cid, FlowLabel, PacketType, Timestamp, Ulp, UlpProtocol, WindowBases, rdma,
    };
    use rnic_wire::{Position, Qpn, Reth};

    use super::*;
    use crate::fault::FaultChain;

    const LABEL: FlowLabel = FlowLabel::new(0xabcd2);

    fn transmit(body: Body, protocol: UlpProtocol, payload_len: u32) -> FalconTransmit {
        let bases = WindowBases { data: Serial::new(7), request: Serial::new(9) };
        let (cid, timestamp) = (Cid::new(77), Timestamp::new(0x1234_5678));
        let packet = Packet { cid, function: 0, protocol, ack_request: false, bases, timestamp, payload_len, body };
        let kind = if protocol == UlpProtocol::None { TransmitKind::Ack } else { TransmitKind::Request };
        FalconTransmit { packet, peer: PeerId(3), label: LABEL, from: Qpn::new(5), kind }
    }

    fn push(payload_len: u32) -> FalconTransmit {
        let operation = rdma::Operation::Write { position: Position::Only, reth: Reth::default(), tail: None };
        let header = rdma::Header {
            dest_qpn: Qpn::new(77),
            sn: Serial::new(1),
            solicited: false,
            complete_in_error: false,
            operation,
        };
        let ulp = Ulp::Rdma(header);
        let length = ulp.request_len(payload_len) as u16;
        let body = Body::PushData { psn: Serial::new(8), rsn: Serial::new(2), length, ulp };
        transmit(body, UlpProtocol::Rdma, payload_len)
    }

    fn extended_ack() -> FalconTransmit {
        let bitmaps = Bitmaps { data_acked: 5 << 100, data_received: 7 << 100, request_received: 3 };
        transmit(Body::ExtendedAck(Acknowledgement::default(), bitmaps), UlpProtocol::None, 0)
    }

    /// In every representation, a received packet is the same as the packet sent: headers, payload, endpoints and
    /// length.
    #[test]
    fn a_received_packet_equals_the_packet_sent() {
        for (encoded, with_payload) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut codec = PacketCodec::new(1, encoded, with_payload, [0; 2]);
            let mut packets = FalconPackets::new(encoded || with_payload);
            for transmit in [push(1_001), push(0), extended_ack()] {
                let entry = codec.store_falcon_packet(&transmit, &mut packets);
                let packet = &transmit.packet;
                assert_eq!(u32::from(entry.frame_len), packet.frame_len(Encapsulation::IPV6));
                assert_eq!(
                    (entry.dst(), entry.has(Flags::ACK)),
                    (3, packet.payload_len == 0 && packet.body.psn().is_none())
                );
                assert_eq!(packets.ends(entry.packet), FalconEndpoints::new(1, LABEL));
                if codec.wants_bytes() {
                    codec.load_falcon_bytes(Time::ZERO, &transmit, None, entry.packet, &mut packets);
                }
                let receiver = PacketCodec::new(3, encoded, with_payload, [0; 2]);
                let (arrived, payload) = receiver.decode_falcon(&entry, &packets).expect("the packet is intact");
                assert_eq!((&arrived, arrived.body.packet_type()), (packet, packet.body.packet_type()));
                if codec.wants_bytes() {
                    assert_eq!(payload.len(), packet.payload_len as usize);
                }
            }
        }
    }

    /// The frame check sequence detects all errors of one to three flipped bits.
    #[test]
    fn corruption_is_detected_in_bytes_and_by_its_flag() {
        let mut bits = FaultChain::new(Vec::new(), rnic_base::RandomStreams::new(5).stream("bits"));
        for transmit in [push(500), extended_ack()] {
            let (mut codec, mut packets) = (PacketCodec::new(1, true, false, [0; 2]), FalconPackets::new(true));
            for _ in 0..2_000 {
                let entry = codec.store_falcon_packet(&transmit, &mut packets);
                codec.load_falcon_bytes(Time::ZERO, &transmit, None, entry.packet, &mut packets);
                bits.flip_bits(packets.bytes_mut(entry.packet));
                assert_eq!(codec.decode_falcon(&entry, &packets), None);
                packets.remove(entry.packet);
            }
            let codec = PacketCodec::new(1, false, false, [0; 2]);
            let mut entry = codec.store_falcon_packet(&transmit, &mut packets);
            entry.set(Flags::CORRUPT);
            assert_eq!(codec.decode_falcon(&entry, &packets), None);
        }
    }

    #[test]
    fn f24_the_flow_label_selects_path_and_identity() {
        let (codec, mut packets) = (PacketCodec::new(1, false, false, [0; 2]), FalconPackets::new(false));
        let one = codec.store_falcon_packet(&push(8), &mut packets);
        let other =
            codec.store_falcon_packet(&FalconTransmit { label: FlowLabel::new(0xabcd3), ..push(8) }, &mut packets);
        assert!(one.flow_hash != other.flow_hash && one.identity != other.identity);
        let again = codec.store_falcon_packet(&push(8), &mut packets);
        assert_eq!((one.flow_hash, one.identity), (again.flow_hash, again.identity));
        assert_eq!(push(8).packet.body.packet_type(), PacketType::PushData);
    }
}
