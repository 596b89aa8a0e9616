//! A host with a modelled NIC: the same steps as without it, with queues between the link and the engine.

use rnic_base::Time;
use rnic_engine::{RxOutcome, Transmit, TransmitKind};
use rnic_wire::{Headers, Packet};

use super::super::Host;
use super::super::turn::HostKind;
use super::{Arrived, Leaving, NicModel};
use crate::agenda::NEVER;
use crate::entry::{Entry, Flags};
use crate::network::Network;

/// A host of the RoCE family with a modelled NIC; its own event is that the pipeline processes the next received
/// packet.
pub(in crate::host) struct WithNic;

impl HostKind for WithNic {
    #[inline]
    fn due(host: &Host) -> Time {
        host.nic.as_ref().map_or(NEVER, |nic| nic.next_receive_time())
    }

    #[inline]
    fn act(host: &mut Host, now: Time, network: &mut Network) {
        host.process_received(now, network);
    }

    #[inline]
    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        host.arrive_at_nic(now, entry, network);
    }

    #[inline]
    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        host.offer_through_nic(now, network);
    }
}

impl Host {
    fn nic_mut(&mut self) -> &mut NicModel {
        self.nic.as_mut().expect("only hosts with a modelled NIC come here")
    }

    fn arrive_at_nic(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        if entry.is_pause_frame() {
            return self.on_pause_frame(now, entry);
        }
        let packet = self.peek_headers(entry, network);
        let nic = self.nic_mut();
        let len = u64::from(entry.frame_len);
        if nic.arrived_bytes + len > nic.plan.receive_buffer {
            nic.stats.dropped += 1;
            network.packets.remove(entry.packet);
            return;
        }
        // Damaged packets are detected without a context.
        let ready = packet.map_or(now, |packet| nic.contexts.access(now, packet.dest_qpn, &mut nic.bus));
        nic.arrived.push_back(Arrived { entry: *entry, ready });
        nic.arrived_bytes += len;
        nic.stats.most_waiting = nic.stats.most_waiting.max(nic.arrived_bytes);
        if nic.plan.pause.is_some_and(|(stop, _)| nic.arrived_bytes > stop) && !nic.paused_neighbour {
            nic.paused_neighbour = true;
            self.port.send_pause_frame(now, Flags::PAUSE, network);
        }
    }

    /// Passes the received packet that has waited longest through the pipeline.
    fn process_received(&mut self, now: Time, network: &mut Network) {
        let nic = self.nic_mut();
        let Some(Arrived { entry, .. }) = nic.arrived.pop_front() else { return };
        nic.arrived_bytes -= u64::from(entry.frame_len);
        if nic.plan.pause.is_some_and(|(_, go)| nic.arrived_bytes <= go) && nic.paused_neighbour {
            nic.paused_neighbour = false;
            self.port.send_pause_frame(now, Flags::RESUME, network);
        }
        let packet = self.peek_headers(&entry, network);
        let before = self.stats.holes_filled;
        let outcome = self.receive(now, &entry, network);
        network.packets.remove(entry.packet);
        let placed = matches!(outcome, Some(RxOutcome::Accepted | RxOutcome::Early));
        self.stats.useful += u64::from(placed);
        let asks = self.stats.holes_filled > before;
        let nic = self.nic_mut();
        nic.occupy(now, asks);
        if let Some(payload) = packet.filter(|_| placed).map(|packet| u64::from(packet.payload_len))
            && payload > 0
        {
            nic.bus.write(now, payload);
        }
        self.take_completions(now);
    }

    /// Returns the headers of a packet, unless it is damaged.
    fn peek_headers(&self, entry: &Entry, network: &Network) -> Option<Packet> {
        self.carriage.decode(entry, &network.packets).map(|(_, packet, _)| packet)
    }

    /// Sends a packet that is ready, passes the engine's next packets to the pipeline, and records when to poll again.
    fn offer_through_nic(&mut self, now: Time, network: &mut Network) {
        self.hear_doorbells();
        self.pull(now, network);
        let nic = self.nic_mut();
        nic.load(now);
        if !self.port.is_paused() && self.port.free_at <= now {
            let nic = self.nic_mut();
            if let Some(entry) = nic.next_to_leave(now) {
                self.port.send(now, entry, network);
            }
        }
        self.wake = self.wake_of_nic(now);
    }

    /// Counts the work requests that were posted since the last call.
    fn hear_doorbells(&mut self) {
        let Self { nic: Some(nic), sessions, .. } = self else { return };
        let Some(doorbells) = &mut sessions.doorbells else { return };
        doorbells.drain(..).for_each(|qpn| nic.work.posted(qpn));
    }

    fn pull(&mut self, now: Time, network: &mut Network) {
        loop {
            let nic = self.nic.as_ref().expect("only hosts with a modelled NIC come here");
            if nic.pipeline > now || nic.ahead >= nic.ahead_max {
                return;
            }
            let Some((entry, transmit)) = self.next_packet(now, network) else { return };
            self.nic_mut().process_transmit(now, &transmit, entry);
        }
    }

    /// Returns the time at which a packet can be sent, or the pipeline can accept the next packet.
    fn wake_of_nic(&self, now: Time) -> Time {
        let nic = self.nic.as_ref().expect("only hosts with a modelled NIC come here");
        let mut wake = NEVER;
        if !self.port.is_paused() {
            let ready = if nic.acks.is_empty() { nic.loading.front().map_or(NEVER, |first| first.ready) } else { now };
            if ready != NEVER {
                wake = ready.max(self.port.free_at).max(nic.frozen);
            }
        }
        wake = wake.min(nic.described.front().map_or(NEVER, |first| first.ready));
        if nic.ahead < nic.ahead_max && self.engine.has_packets() {
            wake = wake.min(nic.pipeline);
        }
        wake.max(now)
    }
}

impl NicModel {
    /// Returns the time at which the pipeline processes the received packet that has waited longest: the pipeline is
    /// free, the context is available, and the payload received before has been written to memory.
    fn next_receive_time(&self) -> Time {
        let Some(first) = self.arrived.front() else { return NEVER };
        first.ready.max(self.pipeline).max(self.bus.written())
    }

    /// Passes a packet of the engine to the pipeline.
    fn process_transmit(&mut self, now: Time, transmit: &Transmit, entry: Entry) {
        if transmit.kind == TransmitKind::Ack {
            // Its context was available when the acknowledgement was created.
            self.occupy(now, false);
            return self.acks.push_back(entry);
        }
        self.occupy(now, transmit.kind.is_retransmission());
        let mut ready = self.pipeline.max(self.contexts.access(now, transmit.from, &mut self.bus));
        if transmit.kind == TransmitKind::Request && starts_message(&transmit.packet) {
            ready = ready.max(self.work.take(now, transmit.from, &mut self.bus));
        }
        let payload = transmit.packet.payload_len;
        self.ahead += u64::from(entry.frame_len);
        self.described.push_back(Leaving { entry, payload, ready });
    }

    /// Reads the payload of packets whose context and work request are available.
    fn load(&mut self, now: Time) {
        while let Some(first) = self.described.front().copied().filter(|first| first.ready <= now) {
            self.described.pop_front();
            let payload = u64::from(first.payload);
            let ready = if payload == 0 { now } else { self.bus.read(now, payload) };
            self.loading.push_back(Leaving { ready, ..first });
        }
    }

    /// Returns the packet to be sent now, if the port is free.
    fn next_to_leave(&mut self, now: Time) -> Option<Entry> {
        if self.frozen > now {
            return None;
        }
        if let Some(ack) = self.acks.pop_front() {
            return Some(ack);
        }
        let first = self.loading.pop_front_if(|first| first.ready <= now)?;
        self.ahead -= u64::from(first.entry.frame_len);
        Some(first.entry)
    }
}

/// Returns whether the request packet is the first of its message, so that it consumes a work request.
fn starts_message(packet: &Packet) -> bool {
    match packet.headers {
        Headers::Send { position, .. } | Headers::Write { position, .. } => position.starts(),
        Headers::ReadRequest { .. } | Headers::AtomicRequest { .. } => true,
        _ => false,
    }
}
