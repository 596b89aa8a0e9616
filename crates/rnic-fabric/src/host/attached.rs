//! Hosts whose link serves an endpoint that is no engine ([`crate::endpoint`]).

use rnic_base::Time;
use rnic_engine::{PeerId, Transmit, TransmitKind};
use rnic_policy::PathLabel;
use rnic_wire::{Format, Headers, Packet, Qpn};

use super::event_loop::HostModel;
use super::{Host, can_send};
use crate::calendar::NEVER;
use crate::endpoint::{Datagram, Endpoint, Incoming, Outgoing, TcpSegment};
use crate::entry::{Entry, Flags};
use crate::network::Network;
use crate::packets::{Endpoints, Messages, OtherPacket};
use crate::route::flow_hash;

/// A host with an attached endpoint.
pub(super) struct WithEndpoint;

impl HostModel for WithEndpoint {
    #[inline(always)]
    fn due(host: &Host) -> Time {
        host.attached.as_ref().and_then(|endpoint| endpoint.next_event()).unwrap_or(NEVER)
    }

    #[inline(always)]
    fn step(host: &mut Host, now: Time, _: &mut Network) {
        if let Some(endpoint) = &mut host.attached {
            endpoint.advance(now);
        }
    }

    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        if entry.is_pause_frame() {
            return host.on_pause_frame(now, entry);
        }
        let received = read(entry, network);
        network.remove(entry);
        let Some(incoming) = received else {
            host.stats.corrupt += 1;
            return;
        };
        // Every segment of data shows progress; a connection without any is found to stall.
        host.stats.useful += u64::from(!entry.has(Flags::ACK));
        if let Some(endpoint) = &mut host.attached {
            endpoint.receive(now, &incoming);
        }
    }

    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        if !can_send(host, now) {
            return;
        }
        let Some(outgoing) = host.attached.as_mut().and_then(|endpoint| endpoint.transmit(now)) else { return };
        let entry = match outgoing.datagram {
            Datagram::Roce(format, packet) => {
                let transmit = transmit(outgoing.to, format, packet);
                host.codec.store_packet(&transmit, &mut network.packets)
            }
            Datagram::Tcp(segment) => store(host.codec.host(), &outgoing, &segment, &mut network.messages),
        };
        host.port.send(now, entry, network);
        host.wake = host.port.free_at;
    }
}

/// Connects `endpoint` to the link of `host`, in place of the host's engine.
pub(crate) fn attach(host: &mut Host, endpoint: Box<dyn Endpoint>) {
    host.attached = Some(endpoint);
    host.has_model = true;
}

/// Returns the endpoint that is connected to the link of `host`, if there is one.
pub(crate) fn endpoint(host: &Host) -> Option<&dyn Endpoint> {
    host.attached.as_deref()
}

/// Returns the datagram of `entry`; `None` when it is damaged, or of a protocol that endpoints do not use.
fn read(entry: &Entry, network: &Network) -> Option<Incoming> {
    if entry.has(Flags::CORRUPT) || entry.has(Flags::FALCON) {
        return None;
    }
    let is_marked = entry.has(Flags::MARKED);
    if !entry.has(Flags::MESSAGE) {
        let Endpoints { src, format, .. } = network.packets.ends(entry.packet);
        let datagram = Datagram::Roce(format, *network.packets.headers(entry.packet));
        return Some(Incoming { from: src, datagram, is_marked });
    }
    match network.messages.headers(entry.packet) {
        OtherPacket::Message(_) => None,
        OtherPacket::Tcp(segment) => {
            let from = network.messages.ends(entry.packet).src;
            Some(Incoming { from, datagram: Datagram::Tcp(*segment), is_marked })
        }
    }
}

fn transmit(to: u32, format: Format, packet: Packet) -> Transmit {
    let is_ack = matches!(packet.headers, Headers::Ack { .. } | Headers::Cnp);
    let kind = if is_ack { TransmitKind::Ack } else { TransmitKind::Request };
    Transmit { packet, format, peer: PeerId(to), label: PathLabel(0), from: Qpn::new(0), kind, mark: 0 }
}

/// Stores a segment for transmission and returns its network entry.
fn store(host: u32, outgoing: &Outgoing, segment: &TcpSegment, messages: &mut Messages) -> Entry {
    let port = segment.connection as u16;
    let ends = Endpoints { src: host, source_port: port, format: Format::RoceV2 };
    let index = messages.insert(&OtherPacket::Tcp(*segment), ends);
    let flags = if segment.len == 0 { Flags::SENT_MESSAGE } else { Flags::MESSAGE };
    let numbers = u64::from(segment.sequence) << 32 | u64::from(segment.acknowledgement);
    let ends = u64::from(host) << 48 ^ u64::from(outgoing.to) << 32 ^ u64::from(segment.connection);
    let mixed = (ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ numbers).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let identity = mixed ^ mixed >> 29 ^ u64::from(segment.len);
    Entry::new(identity, flow_hash(host, outgoing.to, port), index, outgoing.to, segment.frame_len(), flags)
}
