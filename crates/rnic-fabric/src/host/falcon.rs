//! A host with the Falcon transport: the same steps as for the RoCE family, with packets of a different size.
//!
//! A packet is sent as soon as the engine returns it, so the time that the engine writes into it is the time of
//! departure (T1, T3); it is received with its last bit (T2, T4). The number of switches that it crossed follows from
//! its source ([`HopDistances`]). Unreliable queue pairs of the same host use packets of the RoCE family.

use rnic_base::{Csig, Time};
use rnic_engine::{
    Arrival, Departure, Dma, DropReason, Engine, FalconArrival, FalconTransmit, NoDma, PeerId, RxOutcome, Transmit,
};
use rnic_policy::FalconShape;
use rnic_wire::{Position, Qpn};

use super::event_loop::HostModel;
use super::nic::buffer::PacketBuffer;
use super::slow::SlowMemory;
use super::{Host, can_send};
use crate::entry::{Entry, Flags};
use crate::falcon_counts::FalconCounts;
use crate::frames::Family;
use crate::network::Network;
use crate::packets::FalconPackets;
use crate::topology::distance::HopDistances;
use crate::workload::Operation;

/// Falcon state of a host.
#[derive(Debug)]
pub(crate) struct FalconState {
    distances: HopDistances,
    /// Number of flows of each connection.
    flows: u8,
    /// True when switches write congestion signals (CSIG) into packets.
    is_stamped: bool,
    counts: FalconCounts,
    memory: Option<SlowMemory>,
}

impl FalconState {
    /// Creates the state of a host with these distances to other hosts, for connections of `shape`.
    pub(crate) fn new(distances: HopDistances, shape: &FalconShape, memory: Option<SlowMemory>) -> Self {
        let (flows, is_stamped) = (shape.flows, shape.csig);
        Self { distances, flows, is_stamped, counts: FalconCounts::default(), memory }
    }
}

/// Type of a host with Falcon and without a modelled NIC.
pub(super) struct WithFalcon;

impl HostModel for WithFalcon {
    #[inline(always)]
    fn prefetch_ahead(host: &Host, network: &Network) {
        network.falcon_packets.prefetch_soon(network.links.first_packet(host.ring));
    }

    #[inline(always)]
    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        host.arrive_with_falcon::<false>(now, entry, network);
    }

    #[inline(always)]
    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        host.offer_falcon(now, network);
    }
}

impl Host {
    /// Processes a packet that arrives. With `MODELLED`, the NIC is modelled and may have packet buffers.
    #[inline(always)]
    pub(super) fn arrive_with_falcon<const MODELLED: bool>(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        if !entry.has(Flags::FALCON) {
            return self.arrive_out_of_line(now, entry, network);
        }
        let is_slow = self.falcon.as_ref().is_some_and(|side| side.memory.is_some());
        let has_backlog = is_slow || MODELLED && packet_buffer(self).is_some();
        if has_backlog {
            self.report_backlog(now);
        }
        let outcome = self.receive_falcon::<MODELLED>(now, entry, network);
        if has_backlog && matches!(outcome, Some(RxOutcome::Accepted | RxOutcome::OutOfOrder)) {
            self.write_to_slow_memory(now, entry);
            self.report_backlog(now);
        }
        network.falcon_packets.remove(entry.packet);
        if matches!(outcome, Some(RxOutcome::Accepted | RxOutcome::OutOfOrder)) {
            self.stats.useful += 1;
        }
        self.take_completions(now);
    }

    /// Reports to the engine the number of bytes still in flight to host memory.
    #[cold]
    fn report_backlog(&mut self, now: Time) {
        let in_buffers = packet_buffer(self).map_or(0, |buffer| buffer.backlog(now));
        let memory = self.falcon.as_ref().and_then(|side| side.memory.as_ref());
        self.engine.set_falcon_backlog(in_buffers + memory.map_or(0, |memory| memory.backlog(now)));
    }

    /// Starts the write of a packet's payload to slow memory. Its length is estimated as the frame length minus the
    /// headers of a Write.
    #[cold]
    fn write_to_slow_memory(&mut self, now: Time, entry: &Entry) {
        let Some(memory) = self.falcon.as_mut().and_then(|side| side.memory.as_mut()) else { return };
        let headers = Family::Falcon.frame_len(Operation::Write, Position::Middle, 0);
        let payload = u32::from(entry.frame_len).saturating_sub(headers);
        memory.write(now, u64::from(payload));
    }

    /// Passes a packet to the engine; returns `None` when the packet is damaged.
    #[inline(always)]
    fn receive_falcon<const MODELLED: bool>(
        &mut self,
        now: Time,
        entry: &Entry,
        network: &mut Network,
    ) -> Option<RxOutcome> {
        let packets = &mut network.falcon_packets;
        let ends = packets.ends(entry.packet);
        let (src, label) = (ends.src(), ends.label());
        let side = self.falcon.as_ref().expect("Falcon packets arrive only at Falcon hosts");
        let hops = side.distances.switches(src);
        let csig = side.is_stamped.then(|| ends.csig());
        let congested = entry.has(Flags::MARKED);
        if self.codec.is_plain() {
            if entry.has(Flags::CORRUPT) {
                self.stats.corrupt += 1;
                return None;
            }
            let packet = packets.headers(entry.packet);
            let arrival = FalconArrival { packet, peer: PeerId(src), label, congested, hops, csig };
            let (payload, qpn) = (packet.payload_len, Qpn::new(packet.cid.get()));
            let outcome = match self.nic.as_mut().filter(|_| MODELLED).and_then(|nic| nic.buffer.as_mut()) {
                Some(buffer) => receive_buffered(&mut self.engine, now, arrival, buffer, NoDma),
                None => self.engine.receive(now, Arrival::Falcon(arrival), &mut NoDma),
            };
            self.note_falcon_payload(now, entry, (payload, qpn), outcome);
            return Some(outcome);
        }
        self.receive_falcon_bytes(now, entry, (hops, csig), packets)
    }

    #[inline(never)]
    fn receive_falcon_bytes(
        &mut self,
        now: Time,
        entry: &Entry,
        (hops, csig): (u8, Option<Csig>),
        packets: &FalconPackets,
    ) -> Option<RxOutcome> {
        let ends = packets.ends(entry.packet);
        let (src, label) = (ends.src(), ends.label());
        let Some((packet, payload)) = self.codec.decode_falcon(entry, packets) else {
            self.stats.corrupt += 1;
            return None;
        };
        let congested = entry.has(Flags::MARKED);
        let arrival = FalconArrival { packet: &packet, peer: PeerId(src), label, congested, hops, csig };
        let payload = &packets.bytes(entry.packet)[payload];
        let buffer = self.nic.as_mut().and_then(|nic| nic.buffer.as_mut());
        let (engine, memory) = (&mut self.engine, self.memory.as_mut().map(|memory| memory.writer_of(payload)));
        let outcome = match (buffer, memory) {
            (None, None) => engine.receive(now, Arrival::Falcon(arrival), &mut NoDma),
            (None, Some(mut memory)) => engine.receive(now, Arrival::Falcon(arrival), &mut memory),
            (Some(buffer), None) => receive_buffered(engine, now, arrival, buffer, NoDma),
            (Some(buffer), Some(memory)) => receive_buffered(engine, now, arrival, buffer, memory),
        };
        self.note_falcon_payload(now, entry, (packet.payload_len, Qpn::new(packet.cid.get())), outcome);
        Some(outcome)
    }

    /// Counts the payload of a useful packet for its queue pair, when payload is measured.
    #[inline(always)]
    fn note_falcon_payload(&mut self, now: Time, entry: &Entry, (payload, qpn): (u32, Qpn), outcome: RxOutcome) {
        if let Some(meter) = &mut self.meter
            && matches!(outcome, RxOutcome::Accepted | RxOutcome::OutOfOrder)
        {
            meter.note(now, entry.frame_len.into(), payload.into(), qpn);
        }
    }

    /// Polls the engine for a packet when one can be sent, and records when to poll again.
    #[inline(always)]
    fn offer_falcon(&mut self, now: Time, network: &mut Network) {
        if !can_send(self, now) {
            return;
        }
        let Some((entry, _)) = self.next_packet_of_any_family(now, network) else { return };
        self.port.send(now, entry, network);
        self.wake = self.port.free_at;
    }

    /// Returns the entry of the engine's next packet, and the queue pair that sends it.
    #[inline(always)]
    pub(super) fn next_packet_of_any_family(&mut self, now: Time, network: &mut Network) -> Option<(Entry, Qpn)> {
        let transmit = match self.engine.transmit(now)? {
            Departure::Falcon(transmit) => transmit,
            // Only unreliable queue pairs send packets of the RoCE family here.
            Departure::Roce(transmit) => {
                let transmit = *transmit;
                return Some((self.load_packet(now, &transmit, network), transmit.from));
            }
            // Plans with messages and Falcon are refused.
            Departure::Message(_) => return None,
        };
        let from = transmit.from;
        let entry = self.codec.store_falcon_packet(transmit, &mut network.falcon_packets);
        if let Some(side) = &mut self.falcon {
            side.counts.count(transmit, side.flows);
        }
        if self.codec.wants_bytes() {
            let transmit: FalconTransmit = *transmit;
            let memory = self.memory.as_ref().map(|memory| (memory, self.engine.segments()));
            self.codec.load_falcon_bytes(now, &transmit, memory, entry.packet, &mut network.falcon_packets);
        }
        Some((entry, from))
    }

    /// Returns the counts of sent packets, and the largest number of bytes that were in flight to the host's memory.
    pub(crate) fn falcon_counts(&self) -> Option<(FalconCounts, u64)> {
        let side = self.falcon.as_ref()?;
        let mut counts = side.counts.clone();
        if let Some(stats) = self.engine.falcon_stats() {
            counts.note(&stats);
        }
        Some((counts, side.memory.as_ref().map_or(0, |memory| memory.bytes_max)))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn load_packet(&mut self, now: Time, transmit: &Transmit, network: &mut Network) -> Entry {
        let entry = self.codec.store_packet(transmit, &mut network.packets);
        self.load_bytes(now, transmit, &entry, network);
        entry
    }

    #[cold]
    #[inline(never)]
    fn arrive_out_of_line(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        self.arrive(now, entry, network);
    }
}

/// Returns the packet buffers of a host's NIC, when it has them.
fn packet_buffer(host: &mut Host) -> Option<&mut PacketBuffer> {
    host.nic.as_mut()?.buffer.as_mut()
}

/// Passes a packet to the engine of a NIC with packet buffers.
#[inline(never)]
fn receive_buffered<D: Dma>(
    engine: &mut Engine,
    now: Time,
    arrival: FalconArrival<'_>,
    buffer: &mut PacketBuffer,
    memory: D,
) -> RxOutcome {
    let mut target = buffer.target(now, arrival.packet.payload_len, memory);
    let outcome = engine.receive(now, Arrival::Falcon(arrival), &mut target);
    if outcome == RxOutcome::Dropped(DropReason::ReceiverNotReady) {
        buffer.note_refusal();
    }
    outcome
}

/// Stores a Falcon packet for transmission, with its bytes when they are needed, and returns its entry.
pub(super) fn store_falcon_departure(
    host: &mut Host,
    now: Time,
    transmit: &FalconTransmit,
    network: &mut Network,
) -> Entry {
    let entry = host.codec.store_falcon_packet(transmit, &mut network.falcon_packets);
    if let Some(side) = &mut host.falcon {
        side.counts.count(transmit, side.flows);
    }
    if host.codec.wants_bytes() {
        let memory = host.memory.as_ref().map(|memory| (memory, host.engine.segments()));
        host.codec.load_falcon_bytes(now, transmit, memory, entry.packet, &mut network.falcon_packets);
    }
    entry
}
