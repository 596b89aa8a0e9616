//! Passes packets from the engine to the sockets and shared memory.

use rnic_base::Time;
use rnic_engine::{Departure, MemoryFault, Segment, Transmit, TransmitKind};
use rnic_wire::codec::encode_headers;
use rnic_wire::{Addresses, Format, HEADERS_MAX, ICRC_LEN, IcrcPrefix};

use super::device::Device;
use super::{falcon, messages};
use crate::bypass::{RecordKind, RingResult};
use crate::ip_fields::PackedIpFields;
use crate::link::Link;
use crate::link::batch::{Acks, Batch, SendPath, Wrapping, ip_fields_of, write_packet};
use crate::memory::{Memory, Pieces};

impl Device {
    /// Sends the packets that are ready, up to a budget; returns whether any was sent.
    pub(super) fn flush(&mut self, now: Time) -> bool {
        self.memory.ensure_handler(now);
        self.has_posts = false;
        if self.link.credits.has_work() {
            self.process_credits(now);
        }
        let mut any = self.link.send_waiting(now);
        if self.has_messages() {
            any |= self.send_messages(now);
        }
        if let Some(share) = &mut self.link.share {
            share.resume(now);
        }
        let packets_max =
            self.repairs.packets(self.engine.stamps_departures(), self.engine.stats().packets_retransmitted);
        let mut budget = packets_max;
        while budget > 0 && !self.link.is_blocked() {
            let packets = self.send_batch(now, packets_max);
            if self.link.credits.has_work() {
                self.process_credits(now);
            }
            // Copies that are not delayed are sent together with their originals.
            let waited = self.link.send_waiting(now);
            any |= packets > 0 || waited;
            if packets == 0 {
                if let Some(share) = &mut self.link.share {
                    share.note_idle();
                }
                break;
            }
            budget = budget.saturating_sub(packets);
        }
        any
    }

    /// Sends at most `packets_max` packets of the engine with one system call; returns the number of packets that the
    /// engine returned.
    ///
    /// Acknowledgements are added at the end of the batch: after data to the same peer, one acknowledgement can join
    /// that train instead of starting a new one. They belong to the opposite direction, so the peer cannot detect the
    /// changed order.
    fn send_batch(&mut self, now: Time, packets_max: u32) -> u32 {
        let Self { engine, memory, link, slab, falcon, clock, .. } = self;
        let mut batch = Batch::new(slab);
        let mut acks = Acks::default();
        let mut packets = 0;
        // Falcon compares the clocks of both ends, so the timestamps must be the times at which packets are sent.
        let mut now = if engine.stamps_departures() { clock.now() } else { now };
        while batch.has_room(&acks) && packets < packets_max && !link.is_blocked() {
            let Some(departure) = engine.transmit(now) else { break };
            packets += 1;
            let transmit = match departure {
                Departure::Roce(transmit) => *transmit,
                Departure::Falcon(transmit) => {
                    let transmit = *transmit;
                    falcon::Out { engine, memory, link, falcon, batch: &mut batch }.add_or_fault(now, &transmit);
                    link.join_delayed(now, &mut batch, &acks);
                    if packets.is_multiple_of(PACKETS_PER_CLOCK_READ) {
                        now = clock.now();
                    }
                    continue;
                }
                Departure::Message(transmit) => {
                    messages::put(link, falcon, now, transmit);
                    continue;
                }
            };
            if transmit.kind == TransmitKind::Ack {
                link.stats.acks_joined += u64::from(acks.push(transmit, link.acks_share_trains));
                continue;
            }
            let added = add_packet(link, memory, &mut batch, now, &transmit, engine.segments());
            link.join_delayed(now, &mut batch, &acks);
            let Ok(is_safe) = added else {
                link.stats.payload_faults += 1;
                // The replacement has no payload.
                if let Some(instead) = engine.fault_payload().and_then(Departure::roce).copied() {
                    let _ = add_packet(link, memory, &mut batch, now, &instead, &[]);
                }
                continue;
            };
            if matches!(transmit.format, Format::UnreliableConnection | Format::UnreliableDatagram) {
                link.count_unacknowledged(&transmit, is_safe);
            }
        }
        link.stats.key_changes = falcon.key_changes;
        for ack in acks.iter() {
            add_packet(link, memory, &mut batch, now, ack, &[]).expect("acks have no payload");
        }
        if !batch.is_empty() {
            link.send_trains(now, &batch);
        }
        if let Some(bypass) = &mut link.bypass {
            bypass.publish(now);
        }
        packets
    }
}

/// Number of Falcon packets that are sent with one reading of the clock. They are passed to the kernel in one or two
/// calls, so they are on the wire together; reading the clock costs a fortieth of the work for a packet.
const PACKETS_PER_CLOCK_READ: u32 = 8;

/// Adds a packet to the batch, unless impairment drops or delays it, or it is sent through shared memory or as a
/// datagram that may be fragmented; returns whether it can no longer be lost.
///
/// # Errors
/// When its payload memory has been unmapped: then the packet is not sent.
#[inline]
fn add_packet(
    link: &mut Link,
    memory: &Memory,
    batch: &mut Batch<'_>,
    now: Time,
    transmit: &Transmit,
    payload: &[Segment],
) -> Result<bool, MemoryFault> {
    let len = transmit.packet.udp_payload_len(transmit.format);
    let peer = link.peers.get(transmit.peer);
    let port = link.port_of(peer, transmit.packet.dest_qpn);
    let mut ip_fields = ip_fields_of(transmit);
    if peer.is_special() || link.has_shared_link() {
        let copy = |addresses: &Addresses, bytes: &mut Vec<u8>| copy_to(bytes, transmit, payload, memory, addresses);
        if transmit.format != Format::UnreliableDatagram {
            ip_fields = link.classes.of(transmit.from);
        }
        let path = SendPath { peer: transmit.peer, port, path: link.paths.path_of(transmit), ip_fields };
        if let Some(share) = &mut link.share {
            share.count_payload(payload.iter().map(|segment| u64::from(segment.len)).sum());
        }
        let may_wait = link.peers.get(transmit.peer).impairment.is_some() || link.has_shared_link();
        if may_wait && !link.impair(now, path, len, copy)? {
            return Ok(false);
        }
        if path.path > 0 && !link.exceeds_path_mtu(now, transmit.peer, len) {
            return add_on_path(link, memory, batch, path, transmit, payload);
        }
    }
    if link.peers.get(transmit.peer).is_local
        && send_through_ring(link, memory, now, transmit, payload, (port, ip_fields))?
    {
        return Ok(true);
    }
    if link.exceeds_path_mtu(now, transmit.peer, len) {
        let addresses = link.peers.get(transmit.peer).path(port);
        let bytes = transmit_copy(transmit, payload, memory, &addresses)?;
        link.send_fragmentable(now, &addresses, bytes, ip_fields);
        return Ok(false);
    }
    let prefix = link.peers.get_mut(transmit.peer).sent_prefix(len, port);
    let is_numbered = link.is_numbered(transmit.peer);
    batch.add(
        transmit,
        payload,
        memory,
        Wrapping { len, port, ip_fields, prefix, may_join_train: link.segmentation, is_numbered },
    )?;
    Ok(false)
}

/// Adds a packet to the batch that leaves from the port of a further path.
///
/// # Errors
/// As [`add_packet`].
fn add_on_path(
    link: &mut Link,
    memory: &Memory,
    batch: &mut Batch<'_>,
    path: SendPath,
    transmit: &Transmit,
    payload: &[Segment],
) -> Result<bool, MemoryFault> {
    let len = transmit.packet.udp_payload_len(transmit.format);
    let addresses = link.addresses_of(path);
    let prefix = link.peers.get_mut(transmit.peer).sent_prefix_on(len, path.path, &addresses);
    let SendPath { port, ip_fields, .. } = path;
    let wrapping = Wrapping { len, port, ip_fields, prefix, may_join_train: link.segmentation, is_numbered: false };
    batch.add_on_path(path, transmit, payload, memory, wrapping)?;
    Ok(false)
}

/// Sends a packet to another NIC of this machine through shared memory; returns whether it has been sent or queued.
#[inline]
fn send_through_ring(
    link: &mut Link,
    memory: &Memory,
    now: Time,
    transmit: &Transmit,
    payload: &[Segment],
    (port, ip_fields): (u16, PackedIpFields),
) -> Result<bool, MemoryFault> {
    let Link { bypass: Some(bypass), peers, stats, .. } = link else { return Ok(false) };
    let len = transmit.packet.udp_payload_len(transmit.format) as usize - ICRC_LEN;
    let target = (transmit.peer, port);
    let kind = RecordKind { is_sealed: false, ip_fields };
    let result = bypass.send(now, target, len, kind, |writer| write_pieces(transmit, payload, memory, writer))?;
    stats.count_bypass(result, len);
    if result == RingResult::NoRing {
        bypass.prepare(now, transmit.peer, &peers.get(transmit.peer).path(port));
        return Ok(false);
    }
    if result == RingResult::Full {
        let mut bytes = Vec::with_capacity(len);
        write_pieces(transmit, payload, memory, &mut bytes)?;
        link.queue_for_ring(now, target, bytes, kind);
    }
    if link.capture.is_some() {
        let addresses = link.peers.get(transmit.peer).path(port);
        // The packet has already been sent: if its memory has been unmapped since, it is only missing from the
        // capture.
        if let Ok(copy) = transmit_copy(transmit, payload, memory, &addresses) {
            link.capture_with_fields(now, &addresses, &copy, kind.ip_fields);
        }
    }
    Ok(true)
}

/// Writes a packet in pieces, without its check value.
#[inline]
fn write_pieces(
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    out: &mut impl Pieces,
) -> Result<(), MemoryFault> {
    let mut headers = [0; HEADERS_MAX];
    let headers_len =
        encode_headers(transmit.format, &transmit.packet, &mut headers).expect("the packet matches its format");
    out.put(&headers[..headers_len]);
    payload.iter().try_for_each(|segment| out.fetch(memory.gather(*segment)))?;
    out.put(&[0; 3][..transmit.packet.pad_len() as usize]);
    Ok(())
}

/// Returns a contiguous copy of a packet.
fn transmit_copy(
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    addresses: &Addresses,
) -> Result<Vec<u8>, MemoryFault> {
    let mut bytes = Vec::new();
    copy_to(&mut bytes, transmit, payload, memory, addresses)?;
    Ok(bytes)
}

/// Writes a contiguous copy of a packet to `bytes`.
fn copy_to(
    bytes: &mut Vec<u8>,
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    addresses: &Addresses,
) -> Result<(), MemoryFault> {
    let len = transmit.packet.udp_payload_len(transmit.format);
    bytes.resize(len as usize + HEADERS_MAX, 0);
    write_packet(bytes, transmit, payload, memory, IcrcPrefix::new(addresses, len))?;
    bytes.truncate(len as usize);
    Ok(())
}
