//! Passes packets from the engine to the sockets and shared memory.

use rnic_base::Time;
use rnic_engine::{Departure, MemoryFault, Segment, Transmit, TransmitKind};
use rnic_wire::codec::encode_headers;
use rnic_wire::{Addresses, Format, HEADERS_MAX, ICRC_LEN, IcrcPrefix};

use super::device::Device;
use super::falcon;
use crate::bypass::{Kind, Taken};
use crate::link::Link;
use crate::link::batch::{Acks, Batch, SendPath, Wrapping, marking_of, write_packet};
use crate::memory::{Memory, Pieces};

impl Device {
    /// Sends what is ready, up to a budget; returns whether anything was sent.
    pub(super) fn flush(&mut self, now: Time) -> bool {
        self.memory.look_after(now);
        self.has_posts = false;
        if self.link.credits.has_work() {
            self.process_credits(now);
        }
        let mut any = self.link.send_waiting(now);
        let most = self.repairs.packets(self.engine.stamps_departures(), self.engine.stats().packets_retransmitted);
        let mut budget = most;
        while budget > 0 && !self.link.is_held_up() {
            let packets = self.send_batch(now, most);
            if self.link.credits.has_work() {
                self.process_credits(now);
            }
            // Copies without delay are sent together with their originals.
            let waited = self.link.send_waiting(now);
            any |= packets > 0 || waited;
            if packets == 0 {
                break;
            }
            budget = budget.saturating_sub(packets);
        }
        any
    }

    /// Sends at most `most` packets of the engine with one system call; returns the number of packets that the engine
    /// returned.
    ///
    /// Acknowledgements are added at the end of the batch: after data to the same peer, one of them joins the train
    /// instead of starting another. They concern the opposite direction, so the peer cannot observe the changed order.
    fn send_batch(&mut self, now: Time, most: u32) -> u32 {
        let Self { engine, memory, link, slab, falcon, clock, .. } = self;
        let mut batch = Batch::new(slab);
        let mut acks = Acks::default();
        let mut given = 0;
        // Falcon compares clocks of both ends: the timestamps must show when packets are sent.
        let mut now = if engine.stamps_departures() { clock.now() } else { now };
        while batch.has_room(&acks) && given < most && !link.is_held_up() {
            let Some(departure) = engine.transmit(now) else { break };
            given += 1;
            let transmit = match departure {
                Departure::Roce(transmit) => *transmit,
                Departure::Falcon(transmit) => {
                    let transmit = *transmit;
                    falcon::Out { engine, memory, link, falcon, batch: &mut batch }.add_or_fault(now, &transmit);
                    link.join_delayed(now, &mut batch, &acks);
                    if given.is_multiple_of(PACKETS_A_LOOK) {
                        now = clock.now();
                    }
                    continue;
                }
            };
            if transmit.kind == TransmitKind::Ack {
                link.stats.acks_joined += u64::from(acks.push(transmit, link.segmentation));
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
            add_packet(link, memory, &mut batch, now, ack, &[]).expect("an acknowledgement has no payload");
        }
        if !batch.is_empty() {
            link.send_trains(now, &batch);
        }
        if let Some(bypass) = &mut link.bypass {
            bypass.publish(now);
        }
        given
    }
}

/// Number of Falcon packets that are sent with one reading of the clock. They are on the wire together, in one train or
/// two; a reading costs as much as a fortieth of a packet.
const PACKETS_A_LOOK: u32 = 8;

/// Adds a packet to the batch, unless it is dropped or delayed by impairment, sent through shared memory or fragmented;
/// returns whether it can no longer be lost.
///
/// # Errors
/// When its payload memory is no longer mapped: then it is not sent.
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
    if peer.is_special() {
        let copy = |addresses: &Addresses, bytes: &mut Vec<u8>| copy_to(bytes, transmit, payload, memory, addresses);
        let way = SendPath { peer: transmit.peer, port, path: 0, marking: marking_of(transmit) };
        if !link.impair(now, way, len, copy)? {
            return Ok(false);
        }
    }
    if link.peers.get(transmit.peer).is_local && send_by_memory(link, memory, now, transmit, payload, port)? {
        return Ok(true);
    }
    if link.is_still_narrow(now, transmit.peer, len) {
        let addresses = link.peers.get(transmit.peer).way(port);
        let bytes = transmit_copy(transmit, payload, memory, &addresses)?;
        link.send_fragmentable(now, &addresses, bytes, marking_of(transmit));
        return Ok(false);
    }
    let prefix = link.peers.get_mut(transmit.peer).sent_prefix(len, port);
    let is_numbered = link.is_numbered(transmit.peer);
    batch.add(transmit, payload, memory, Wrapping { len, port, prefix, couple: link.segmentation, is_numbered })?;
    Ok(false)
}

/// Sends a packet to another NIC of this machine through shared memory; returns whether it has been sent or queued.
#[inline]
fn send_by_memory(
    link: &mut Link,
    memory: &Memory,
    now: Time,
    transmit: &Transmit,
    payload: &[Segment],
    port: u16,
) -> Result<bool, MemoryFault> {
    let Link { bypass: Some(bypass), peers, stats, .. } = link else { return Ok(false) };
    let len = transmit.packet.udp_payload_len(transmit.format) as usize - ICRC_LEN;
    let target = (transmit.peer, port);
    let kind = Kind { is_sealed: false, marking: marking_of(transmit) };
    let taken = bypass.send(now, target, len, kind, |writer| put_pieces(transmit, payload, memory, writer))?;
    stats.count_bypass(taken, len);
    if taken == Taken::No {
        bypass.prepare(now, transmit.peer, &peers.get(transmit.peer).way(port));
        return Ok(false);
    }
    if taken == Taken::Full {
        let mut bytes = Vec::with_capacity(len);
        put_pieces(transmit, payload, memory, &mut bytes)?;
        link.queue_for_ring(now, target, bytes, kind);
    }
    if link.capture.is_some() {
        let addresses = link.peers.get(transmit.peer).way(port);
        // The packet has been sent: if its memory has been unmapped since, the packet is missing in the capture only.
        if let Ok(copy) = transmit_copy(transmit, payload, memory, &addresses) {
            link.capture_marked(now, &addresses, &copy, kind.marking);
        }
    }
    Ok(true)
}

/// Writes a packet without its check value, piece by piece.
#[inline]
fn put_pieces(
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    out: &mut impl Pieces,
) -> Result<(), MemoryFault> {
    let mut headers = [0; HEADERS_MAX];
    let headers_len =
        encode_headers(transmit.format, &transmit.packet, &mut headers).expect("the engine keeps to the format");
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
