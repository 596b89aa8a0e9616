//! A host with a modelled NIC: the same steps as without it, with queues between the link and the engine.

use rnic_base::Time;
use rnic_engine::{Messages, RxOutcome, Transmit, TransmitKind};
use rnic_wire::{Headers, Packet};

use super::super::Host;
use super::super::event_loop::HostModel;
use super::{Arrived, NicModel, PendingDeparture};
use crate::calendar::NEVER;
use crate::entry::{Entry, Flags};
use crate::network::Network;

/// A host of the RoCE family with a modelled NIC; the event specific to it is that the pipeline processes the next
/// received packet.
pub(in crate::host) struct WithNic;

impl HostModel for WithNic {
    #[inline]
    fn due(host: &Host) -> Time {
        host.nic.as_ref().map_or(NEVER, |nic| nic.next_receive_time())
    }

    #[inline]
    fn step(host: &mut Host, now: Time, network: &mut Network) {
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
        self.nic.as_mut().expect("the host has a modelled NIC")
    }

    fn arrive_at_nic(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        if entry.is_for_nic() {
            return self.arrive_for_nic(now, entry, network);
        }
        let packet = self.peek_headers(entry, network);
        let nic = self.nic_mut();
        let len = u64::from(entry.frame_len);
        if nic.arrived_bytes + len > nic.plan.receive_buffer {
            nic.stats.dropped += 1;
            network.packets.remove(entry.packet);
            return self.report_waiting(now);
        }
        // Damaged packets are detected without a context.
        let ready = packet.map_or(now, |packet| {
            let ready = nic.contexts.access(now, packet.dest_qpn.get(), &mut nic.bus);
            nic.tables.as_mut().map_or(ready, |tables| tables.receive(now, ready, &packet, &mut nic.bus))
        });
        nic.arrived.push_back(Arrived { entry: *entry, at: now, ready });
        nic.arrived_bytes += len;
        nic.stats.waiting_max = nic.stats.waiting_max.max(nic.arrived_bytes);
        if nic.plan.pause.is_some_and(|(stop, _)| nic.arrived_bytes > stop) && !nic.paused_neighbour {
            nic.paused_neighbour = true;
            self.port.send_pause_frame(now, Flags::PAUSE, network);
        }
        self.report_waiting(now);
    }

    /// Reports the packets that wait for the pipeline to the engine, for back-pressure (SCR mechanism S-26).
    fn report_waiting(&mut self, now: Time) {
        let nic = self.nic.as_ref().expect("the host has a modelled NIC");
        let (waiting_bytes, drops) = (nic.arrived_bytes, nic.stats.dropped);
        Messages::of(&mut self.engine).report_backlog(now, waiting_bytes, drops);
    }

    /// Processes the received packet that has waited longest in the pipeline.
    fn process_received(&mut self, now: Time, network: &mut Network) {
        let nic = self.nic_mut();
        let Some(Arrived { entry, at, .. }) = nic.arrived.pop_front() else { return };
        nic.arrived_bytes -= u64::from(entry.frame_len);
        if nic.plan.pause.is_some_and(|(_, go)| nic.arrived_bytes <= go) && nic.paused_neighbour {
            nic.paused_neighbour = false;
            self.port.send_pause_frame(now, Flags::RESUME, network);
        }
        let packet = self.peek_headers(&entry, network);
        let before = self.stats.holes_filled;
        let outcome = self.receive(now, &entry, network);
        network.packets.remove(entry.packet);
        let accepted = matches!(outcome, Some(RxOutcome::Accepted | RxOutcome::OutOfOrder));
        self.stats.useful += u64::from(accepted);
        let queries_bitmap = self.stats.holes_filled > before;
        let nic = self.nic_mut();
        nic.occupy(now, queries_bitmap);
        if let Some(payload) = packet.filter(|_| accepted).map(|packet| u64::from(packet.payload_len))
            && payload > 0
        {
            nic.write_payload(now, at, payload);
        }
        self.report_waiting(now);
        self.take_completions(now);
    }

    /// Returns the headers of a packet, unless it is damaged.
    fn peek_headers(&self, entry: &Entry, network: &Network) -> Option<Packet> {
        self.codec.decode(entry, &network.packets).map(|(_, packet, _)| packet)
    }

    /// Sends a packet that is ready, passes the engine's next packets to the pipeline, and records when to poll again.
    fn offer_through_nic(&mut self, now: Time, network: &mut Network) {
        self.count_doorbells();
        self.feed_pipeline(now, network);
        let nic = self.nic_mut();
        nic.read_payloads(now);
        if !self.port.is_paused() && self.port.free_at <= now {
            let nic = self.nic_mut();
            if let Some(entry) = nic.next_departure(now) {
                self.port.send(now, entry, network);
            }
        }
        self.wake = self.wake_of_nic(now);
    }

    /// Counts the work requests that were posted since the last call.
    fn count_doorbells(&mut self) {
        let Self { nic: Some(nic), sessions, .. } = self else { return };
        let Some(doorbells) = &mut sessions.doorbells else { return };
        doorbells.drain(..).for_each(|qpn| nic.work.posted(qpn));
    }

    /// Passes packets that are ready in the engine to the NIC's pipeline, as long as the pipeline accepts packets.
    fn feed_pipeline(&mut self, now: Time, network: &mut Network) {
        loop {
            let nic = self.nic.as_ref().expect("the host has a modelled NIC");
            if nic.pipeline_free_at > now || nic.queued_bytes >= nic.queued_bytes_max {
                return;
            }
            let Some((entry, transmit)) = self.next_packet(now, network) else { return };
            match transmit {
                Some(transmit) => self.nic_mut().process_transmit(now, &transmit, entry),
                None => self.nic_mut().messages.push_back(entry),
            }
        }
    }

    /// Returns the time at which a packet can be sent, or the pipeline can accept the next packet.
    fn wake_of_nic(&self, now: Time) -> Time {
        let nic = self.nic.as_ref().expect("the host has a modelled NIC");
        let mut wake = NEVER;
        if !self.port.is_paused() {
            let bypasses = !nic.messages.is_empty() || !nic.acks.is_empty();
            let ready = if bypasses { now } else { nic.awaiting_payload.front().map_or(NEVER, |first| first.ready) };
            if ready != NEVER {
                wake = ready.max(self.port.free_at).max(nic.stalled_until);
            }
        }
        wake = wake.min(nic.awaiting_context.front().map_or(NEVER, |first| first.ready));
        if nic.queued_bytes < nic.queued_bytes_max && self.engine.has_packets() {
            wake = wake.min(nic.pipeline_free_at);
        }
        wake.max(now)
    }
}

impl NicModel {
    /// Returns the time at which the pipeline processes the received packet that has waited longest: the pipeline is
    /// free, the context is available, and the payload received before has been written to memory.
    fn next_receive_time(&self) -> Time {
        let Some(first) = self.arrived.front() else { return NEVER };
        first.ready.max(self.pipeline_free_at).max(self.bus.written())
    }

    /// Passes a packet of the engine to the pipeline.
    fn process_transmit(&mut self, now: Time, transmit: &Transmit, entry: Entry) {
        if transmit.kind == TransmitKind::Ack {
            // Its context was available when the acknowledgement was created.
            self.occupy(now, false);
            return self.acks.push_back(entry);
        }
        self.occupy(now, transmit.kind.is_retransmission());
        let mut ready = self.pipeline_free_at.max(self.contexts.access(now, transmit.from.get(), &mut self.bus));
        if transmit.kind == TransmitKind::Request && starts_message(&transmit.packet) {
            ready = ready.max(self.work.take(now, transmit.from, &mut self.bus));
        }
        if let Some(tables) = &mut self.tables {
            ready = tables.translate(now, ready, &transmit.packet, transmit.from, &mut self.bus);
        }
        let payload = transmit.packet.payload_len;
        self.queued_bytes += u64::from(entry.frame_len);
        self.awaiting_context.push_back(PendingDeparture { entry, payload, ready });
    }

    /// Reads the payload of packets whose context and work request are available.
    fn read_payloads(&mut self, now: Time) {
        while let Some(first) = self.awaiting_context.front().copied().filter(|first| first.ready <= now) {
            self.awaiting_context.pop_front();
            let payload = u64::from(first.payload);
            let ready = if payload == 0 { now } else { self.bus.read_payload(now, payload) };
            self.awaiting_payload.push_back(PendingDeparture { ready, ..first });
        }
    }

    /// Returns the packet to be sent now, if the port is free.
    fn next_departure(&mut self, now: Time) -> Option<Entry> {
        if self.stalled_until > now {
            return None;
        }
        if let Some(entry) = self.messages.pop_front().or_else(|| self.acks.pop_front()) {
            return Some(entry);
        }
        let first = self.awaiting_payload.pop_front_if(|first| first.ready <= now)?;
        self.queued_bytes -= u64::from(first.entry.frame_len);
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
