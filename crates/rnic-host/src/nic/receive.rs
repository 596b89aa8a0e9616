//! Passes packets from the sockets to the engine. All input here is untrusted.

use std::net::SocketAddr;

use rnic_base::Time;
use rnic_engine::messages::exchange::Exchange;
use rnic_engine::{Arrival, Engine, FalconArrival, Messages, NicId, PeerId, RxMeta};
use rnic_policy::PathLabel;
use rnic_wire::credit::Credit;
use rnic_wire::header::bth;
use rnic_wire::hello::Hello;
use rnic_wire::net::UDP_PORT;
use rnic_wire::scr::{self, MESSAGE_LEN, Message, is_message};
use rnic_wire::{Addresses, Format, HEADERS_MAX, ICRC_LEN, IcrcPrefix, Qpn, cm, codec, gsi};

use super::credit::receive_credit;
use super::device::Device;
use super::hello::receive_hello;
use super::messages;
use crate::bypass::{Broken, Incoming, Record};
use crate::clock::Clock;
use crate::cm::{GsiItem, Manager, gsi_addresses};
use crate::falcon::{Admitted, Falcon, Opened};
use crate::grh::grh;
use crate::host_load::HostMeter;
use crate::ip_fields::PackedIpFields;
use crate::keepalive;
use crate::link::{Link, Ports};
use crate::memory::{Arrived, Memory, Placement};
use crate::ports::port_of;
use crate::stats::RxDrop;
use crate::sys::{self, ReceiveBatch};

/// Receive buffers, and the number of buffers that the next call may fill.
#[derive(Debug)]
pub(crate) struct Receiver {
    batch: ReceiveBatch,
    wanted: usize,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self { batch: ReceiveBatch::new(RECEIVE_BUFFERS), wanted: 1 }
    }

    /// Receives packets that have arrived, up to a budget; returns whether there were any.
    ///
    /// After a long train, more packets are likely to be waiting, and receiving them first allows one acknowledgement
    /// for all of them. After a short train the program runs first, because it may be waiting for these packets.
    pub(super) fn receive_while_busy(&mut self, now: Time, device: &mut Device, cm: &mut Manager) -> bool {
        device.memory.ensure_handler(now);
        let mut any = false;
        for _ in 0..RECEIVE_CALLS {
            let bytes_before = device.link.stats.bytes_received;
            let received = self.receive(now, device, cm);
            any |= received;
            if !received || device.link.stats.bytes_received - bytes_before < LONG_TRAIN_BYTES {
                break;
            }
        }
        any
    }

    /// Receives a batch of datagrams from every socket; returns whether there were any.
    fn receive(&mut self, now: Time, device: &mut Device, cm: &mut Manager) -> bool {
        let mut any = self.receive_from_rings(now, device, cm);
        let link = &device.link;
        let lanes = link.lanes.len();
        let is_only = lanes == 1 && link.bypass.as_ref().is_none_or(|bypass| !bypass.is_used());
        for lane in 0..lanes {
            if device.link.lanes[lane].is_due(is_only) {
                let received = self.receive_lane(now, lane, device, cm);
                device.link.lanes[lane].note(received);
                any |= received;
            }
        }
        any
    }

    /// Receives the packets that other NICs of this machine have put into shared memory; returns whether there were
    /// any.
    fn receive_from_rings(&mut self, now: Time, device: &mut Device, cm: &mut Manager) -> bool {
        if device.link.bypass.as_ref().is_none_or(|bypass| !bypass.is_used()) {
            return false;
        }
        let Some(mut bypass) = device.link.bypass.take() else { return false };
        let mut any = false;
        bypass.incoming.retain_mut(|incoming| {
            if incoming.consumer.is_empty() {
                incoming.empty_at = now;
                return true;
            }
            any = true;
            if incoming.is_fresh {
                incoming.is_fresh = false;
                // A new writer may say anything of the time before.
                incoming.empty_at = now;
                let lanes = device.link.lanes.len();
                let mut look = || (0..lanes).fold(false, |any, lane| self.receive_lane(now, lane, device, cm) | any);
                (0..SOCKET_READS_MAX).all(|_| look());
            }
            let read = Arrivals::of(device, cm).read_ring(now, incoming);
            device.link.stats.bypass_broken += u64::from(read.is_err());
            read.is_ok()
        });
        device.link.bypass = Some(bypass);
        any
    }

    fn receive_lane(&mut self, now: Time, lane: usize, device: &mut Device, cm: &mut Manager) -> bool {
        let mut any = false;
        for receiver in 0..device.link.lanes[lane].receivers().count() {
            let Some(socket) = device.link.lanes[lane].receivers().nth(receiver) else { break };
            match socket.receive(&mut self.batch, self.wanted) {
                Ok(0) => {
                    // Requesting one datagram is cheapest, and the first successful read after an empty one usually
                    // returns only one.
                    self.wanted = 1;
                }
                Ok(count) => {
                    if count == self.wanted {
                        self.wanted = (self.wanted * 2).min(RECEIVE_BUFFERS);
                    }
                    let local = socket.local_addr();
                    Arrivals::of(device, cm).receive_trains(now, local, &mut self.batch);
                    any = true;
                }
                Err(_) => {
                    // The error was caused by a datagram sent earlier. The kernel has now reported it, so receiving
                    // can continue.
                    device.link.has_pending_errors = true;
                    any = true;
                }
            }
        }
        any
    }
}

/// The parts of a NIC that process received datagrams.
struct Arrivals<'a> {
    engine: &'a mut Engine,
    memory: &'a mut Memory,
    link: &'a mut Link,
    falcon: &'a mut Falcon,
    cm: &'a mut Manager,
    clock: &'a Clock,
    host: Option<&'a mut HostMeter>,
}

impl<'a> Arrivals<'a> {
    #[inline]
    fn of(device: &'a mut Device, cm: &'a mut Manager) -> Self {
        let Device { engine, memory, link, falcon, clock, host, .. } = device;
        Self { engine, memory, link, falcon, cm, clock, host: host.as_deref_mut() }
    }

    /// Receives the records of a ring, up to a budget.
    ///
    /// # Errors
    /// When the ring's indices or lengths are invalid.
    fn read_ring(&mut self, now: Time, incoming: &mut Incoming) -> Result<(), Broken> {
        self.record_wait_in_ring(incoming, true);
        let writer_port = incoming.writer_port();
        let Incoming { consumer, source, local, .. } = incoming;
        let local = SocketAddr::new(*local, self.link.local_addr().port());
        // Time at which the Falcon packets in the ring count as received: Falcon compares the clocks of both ends.
        let mut received_at = None;
        for _ in 0..RECORDS_PER_CALL {
            if consumer.has_read_all_published() {
                received_at = None;
            }
            let Some(record) = consumer.next()? else { break };
            let peer = self.link.peers.find(self.link.peer_at(*source), local.ip());
            let peer = peer.filter(|peer| self.link.peers.get(*peer).is_local);
            let origin =
                DatagramOrigin { source: *source, local, peer, congested: false, ip_fields: record.kind.ip_fields };
            self.link.stats.bypass_bytes_received += record.bytes.len() as u64;
            if is_message_record(&record) && self.takes_clear_messages() {
                self.receive_message_record(&origin, writer_port, &record);
            } else if record.kind.is_sealed || self.link.capture.is_some() {
                let mut bytes = as_datagram(&record, &origin);
                if crate::falcon::is_falcon(&bytes) {
                    let now = *received_at.get_or_insert_with(|| self.clock.now());
                    self.receive_falcon(now, &origin, &mut bytes);
                } else {
                    self.receive_datagram(now, &origin, &bytes);
                }
            } else if crate::falcon::is_falcon(record.bytes.copy_front(&mut [0])) {
                let now = *received_at.get_or_insert_with(|| self.clock.now());
                let admitted = self.falcon.admit_in_clear(source.ip(), record.bytes);
                self.pass_to_engine(now, admitted, record.bytes);
            } else {
                self.receive_record(now, &origin, record.bytes);
            }
            self.link.stats.bypass_received += 1;
            if consumer.unreleased() >= RELEASE_BYTES {
                consumer.release();
            }
        }
        consumer.release();
        self.record_wait_in_ring(incoming, false);
        Ok(())
    }

    /// Measures how long a record of a ring has waited: one that has been read, or, if `or_is_next`, the one read next.
    #[inline]
    fn record_wait_in_ring(&mut self, incoming: &Incoming, or_is_next: bool) {
        let Some(host) = &mut self.host else { return };
        if let Some(stamp_ns) = incoming.consumer.take_stamp(or_is_next) {
            // The writer may be another process with a wrong stamp.
            let earliest_ns = self.clock.zero_ns().saturating_add(incoming.empty_at.as_ps() / 1_000);
            host.record_wait(sys::monotonic_ns().saturating_sub(stamp_ns.max(earliest_ns)));
        }
    }

    /// Processes a batch of datagrams that were received on the local address `socket_address`, some of them merged by
    /// the kernel (GRO).
    fn receive_trains(&mut self, now: Time, socket_address: SocketAddr, batch: &mut ReceiveBatch) {
        self.link.stats.receive_calls += 1;
        let mut taken_at_ns = 0;
        for (incoming, bytes) in batch.iter_mut() {
            self.link.stats.bytes_received += bytes.len() as u64;
            let local = SocketAddr::new(incoming.local.unwrap_or(socket_address.ip()), socket_address.port());
            if incoming.truncated {
                self.link.stats.datagrams_received += 1;
                self.link.stats.drop_datagram(RxDrop::Truncated);
                continue;
            }
            let peer = self.link.peers.find(self.link.peer_at(incoming.source), local.ip());
            if incoming.stamped_ns > 0
                && let Some(host) = self.host.as_mut().filter(|_| peer.is_some())
            {
                if taken_at_ns == 0 {
                    taken_at_ns = sys::realtime_ns();
                }
                host.record_wait(taken_at_ns.saturating_sub(incoming.stamped_ns));
            }
            let (congested, ip_fields) = (incoming.congested, incoming.ip_fields);
            let origin = DatagramOrigin { source: incoming.source, local, peer, congested, ip_fields };
            if bytes.is_empty() {
                self.link.stats.datagrams_received += 1;
                self.receive_datagram(now, &origin, bytes);
            }
            // Arrival time of a Falcon datagram, as precise as possible, because Falcon compares the clocks of both
            // ends.
            let mut received_at = None;
            // Each datagram is classified separately, because a train may contain any datagrams with the same
            // addresses: senders and the kernel do not separate protocols.
            for datagram in bytes.chunks_mut(incoming.segment.max(1)) {
                self.link.stats.datagrams_received += 1;
                if crate::falcon::is_falcon(datagram) {
                    let now = *received_at.get_or_insert_with(|| self.clock.now());
                    self.receive_falcon(now, &origin, datagram);
                } else {
                    self.receive_datagram(now, &origin, datagram);
                }
            }
        }
    }

    #[inline]
    fn receive_datagram(&mut self, now: Time, origin: &DatagramOrigin, datagram: &[u8]) {
        if self.link.capture.is_some()
            && let Ok(addresses) = Addresses::new(origin.source, origin.local)
        {
            self.link.capture_with_fields(now, &addresses, datagram, origin.ip_fields);
        }
        if gsi::is_gsi(datagram) {
            return self.receive_management(now, origin, datagram);
        }
        let mut decoded = match codec::decode(datagram) {
            Ok(decoded) => decoded,
            Err(error) => return self.link.stats.drop_malformed(error),
        };
        if keepalive::is_probe(&decoded.packet) && may_probe(self.link.ports, origin.source.port()) {
            // A probe needs no response: its sender only checks that the port is open.
            self.link.stats.probes_received += 1;
            return;
        }
        if decoded.format == Format::UnreliableDatagram {
            return self.receive_unconnected(now, origin, datagram, &decoded);
        }
        let Some(peer) = origin.peer.or_else(|| self.peer_on_path(origin, decoded.packet.dest_qpn)) else {
            return self.link.stats.drop_datagram(RxDrop::UnknownPeer);
        };
        let prefix = self
            .link
            .peers
            .get_mut(peer)
            .received_prefix(datagram.len() as u32, origin.source.port(), || origin.addresses());
        if !self.link.is_whole(now, origin.source.ip(), prefix, datagram) {
            return self.link.stats.drop_datagram(RxDrop::Icrc);
        }
        if self.link.ports == Ports::OfQueuePair
            && origin.source.port() != UDP_PORT
            && self.peer_on_path(origin, decoded.packet.dest_qpn).is_none()
            && !is_from_its_port(self.engine, decoded.packet.dest_qpn, origin.source.port())
        {
            return self.link.stats.drop_datagram(RxDrop::ForeignPort);
        }
        let congested = self.link.impair_received(peer, &mut decoded) || origin.congested;
        let mut dma =
            Placement { memory: self.memory, grh: None, payload: datagram[decoded.payload].into(), kept: None };
        let meta = RxMeta { peer, congested };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Roce(decoded.format, &decoded.packet, meta), &mut dma);
    }

    /// Returns the peer of queue pair `qpn`, if the peer has announced the port from which a datagram was sent
    /// ([`crate::paths`]).
    #[cold]
    fn peer_on_path(&self, origin: &DatagramOrigin, qpn: Qpn) -> Option<PeerId> {
        let nic = Exchange::of(self.engine)?.sender_from(qpn, PathLabel(origin.source.port()))?;
        self.link.is_between(nic.peer, &origin.addresses()).then_some(nic.peer)
    }

    /// Receives a message of the NIC of a peer.
    #[cold]
    fn receive_message(&mut self, now: Time, origin: &DatagramOrigin, datagram: &[u8]) {
        let addresses = origin.addresses();
        self.link.capture(now, &addresses, datagram);
        match messages::read((self.engine, self.link), origin.peer, &addresses, datagram) {
            // The time of arrival is part of a measured round trip.
            Ok((message, nic)) => self.pass_message(self.clock.now(), &message, nic, origin.source.port()),
            Err(reason) => self.link.stats.drop_datagram(reason),
        }
    }

    /// Receives a message that arrived through the ring of the NIC with the port `writer_port`.
    #[cold]
    fn receive_message_record(&mut self, origin: &DatagramOrigin, writer_port: u16, record: &Record<'_>) {
        let now = self.clock.now();
        let sealed = record.kind.is_sealed.then_some((origin.source, origin.local));
        match messages::read_record(origin.peer, writer_port, record.bytes, sealed) {
            Ok((message, nic)) => {
                if self.link.capture.is_some()
                    && let (addresses, Ok(bytes)) = (origin.addresses(), message.encode(&origin.addresses()))
                {
                    self.link.capture(now, &addresses, &bytes);
                }
                self.pass_message(now, &message, nic, origin.source.port());
            }
            Err(reason) => self.link.stats.drop_datagram(reason),
        }
    }

    fn pass_message(&mut self, now: Time, message: &Message, nic: NicId, source_port: u16) {
        if let Some(host) = &mut self.host {
            // The answer to a probe is judged by what its packets have waited.
            Messages::of(self.engine).report_load(now, host.load(now));
        }
        messages::receive(self.engine, self.link, now, &messages::Received { message, nic, source_port });
    }

    /// Receives a Falcon datagram, or a message of the NIC of a peer, which begins with the same two bits.
    #[inline]
    fn receive_falcon(&mut self, now: Time, origin: &DatagramOrigin, datagram: &mut [u8]) {
        if is_message(datagram) && self.takes_clear_messages() {
            return self.receive_message(now, origin, datagram);
        }
        if self.link.capture.is_some()
            && let Ok(addresses) = Addresses::new(origin.source, origin.local)
        {
            self.link.capture_with_fields(now, &addresses, datagram, origin.ip_fields);
        }
        let admitted = if self.falcon.protects() && Exchange::of(self.engine).is_some() {
            match self.falcon.open(origin.source.ip(), datagram) {
                Ok(opened) if opened.is_message(datagram) => {
                    return self.receive_sealed_message(origin, &opened, datagram);
                }
                opened => opened.and_then(|opened| opened.read(datagram)),
            }
        } else {
            self.falcon.admit(origin.source.ip(), datagram)
        };
        self.pass_to_engine(now, admitted, (&*datagram).into());
    }

    /// Returns whether messages of NICs are received that are not sealed. With a key, a datagram that looks like one
    /// may be a packet: an ESP index may begin with the same bytes.
    fn takes_clear_messages(&self) -> bool {
        !self.falcon.protects() && Exchange::of(self.engine).is_some()
    }

    /// Receives a message of the NIC of a peer in an authentic datagram.
    #[cold]
    fn receive_sealed_message(&mut self, origin: &DatagramOrigin, opened: &Opened, datagram: &[u8]) {
        let message = opened.read_message(datagram);
        match message.and_then(|message| messages::read_sealed((self.engine, self.link), opened, message)) {
            Ok((message, nic)) => self.pass_message(self.clock.now(), &message, nic, origin.source.port()),
            Err(reason) => self.link.stats.drop_datagram(reason),
        }
    }

    /// Receives a packet that arrived through shared memory. The sender can change its bytes at any time, so its
    /// headers are copied first.
    #[inline]
    fn receive_record(&mut self, now: Time, origin: &DatagramOrigin, bytes: Arrived<'_>) {
        let mut front = [0; HEADERS_MAX];
        let front = bytes.copy_front(&mut front);
        if gsi::is_gsi(front) {
            return self.link.stats.drop_datagram(RxDrop::Management);
        }
        // The length is computed as if the ICRC followed.
        let len = bytes.len() + ICRC_LEN;
        let mut decoded = match codec::decode_front(front, len) {
            Ok(decoded) => decoded,
            Err(error) => return self.link.stats.drop_malformed(error),
        };
        let is_datagram = decoded.format == Format::UnreliableDatagram;
        if origin.peer.is_none() && !is_datagram {
            return self.link.stats.drop_datagram(RxDrop::UnknownPeer);
        }
        let grh = is_datagram.then(|| grh(&origin.addresses(), origin.ip_fields, len as u32));
        let congested = origin.peer.is_some_and(|peer| self.link.impair_received(peer, &mut decoded));
        let mut dma =
            Placement { memory: self.memory, grh: grh.as_ref(), payload: bytes.slice(decoded.payload), kept: None };
        let meta = RxMeta { peer: origin.peer.unwrap_or(UNKNOWN_PEER), congested };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Roce(decoded.format, &decoded.packet, meta), &mut dma);
    }

    /// Receives a datagram of [`Format::UnreliableDatagram`]: any sender that knows the queue key (Q_Key) may send
    /// one.
    fn receive_unconnected(&mut self, now: Time, origin: &DatagramOrigin, datagram: &[u8], decoded: &codec::Decoded) {
        let (len, addresses) = (datagram.len() as u32, origin.addresses());
        let prefix = match origin.peer {
            Some(peer) => self.link.peers.get_mut(peer).received_prefix(len, origin.source.port(), || addresses),
            None => IcrcPrefix::new(&addresses, len),
        };
        if !self.link.is_whole(now, origin.source.ip(), prefix, datagram) {
            return self.link.stats.drop_datagram(RxDrop::Icrc);
        }
        let grh = grh(&addresses, origin.ip_fields, len);
        let mut dma = Placement {
            memory: self.memory,
            grh: Some(&grh),
            payload: datagram[decoded.payload.clone()].into(),
            kept: None,
        };
        let meta = RxMeta { peer: origin.peer.unwrap_or(UNKNOWN_PEER), congested: false };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Roce(decoded.format, &decoded.packet, meta), &mut dma);
    }

    /// Receives a datagram for queue pair 1: connection management, credit, a hello, or an invalid one.
    #[cold]
    fn receive_management(&mut self, now: Time, origin: &DatagramOrigin, datagram: &[u8]) {
        let Ok(addresses) = Addresses::new(origin.source, origin.local) else {
            return self.link.stats.drop_datagram(RxDrop::UnknownPeer);
        };
        let packet = match gsi::decode(datagram) {
            Ok(packet) => packet,
            Err(_) if self.link.ports != Ports::OfPeer => return self.link.stats.drop_datagram(RxDrop::Management),
            Err(error) => return self.link.stats.drop_malformed(error),
        };
        let prefix = IcrcPrefix::new(&addresses, datagram.len() as u32);
        if !self.link.is_whole(now, origin.source.ip(), prefix, datagram) {
            return self.link.stats.drop_datagram(RxDrop::Icrc);
        }
        if let Some(message) = Credit::parse(packet.mad) {
            return receive_credit(self.link, now, origin.peer, &addresses, message);
        }
        if let Some(message) = Hello::parse(packet.mad) {
            if let Some(peer) = receive_hello(self.link, now, origin.peer, &message) {
                let said = (peer, message.messages);
                messages::note_version(self.engine, self.link, now, message.to, said);
            }
            return;
        }
        if self.link.ports == Ports::OfQueuePair {
            return self.link.stats.drop_datagram(RxDrop::Management);
        }
        let mad = match cm::parse(packet.mad) {
            Ok(mad) => mad,
            Err(error) => return self.link.stats.drop_management(error),
        };
        match &self.link.gsi {
            None => self.cm.receive(now, &addresses, mad),
            Some(gsi) if gsi.is_managed() => {
                // Such peers receive on port 4791, regardless of the port from which they send.
                if !gsi.push(GsiItem::Message(gsi_addresses(&addresses), Box::new(mad))) {
                    self.link.stats.drop_datagram(RxDrop::Management);
                }
                return;
            }
            Some(_) => self.cm.receive(now, &gsi_addresses(&addresses), mad),
        }
        self.link.stats.cm_strays = self.cm.strays;
    }

    /// Passes an admitted packet, whose payload is within `bytes`, to the engine, or counts why it was dropped.
    #[inline]
    fn pass_to_engine(&mut self, now: Time, admitted: Result<Admitted, RxDrop>, bytes: Arrived<'_>) {
        let Admitted { packet, payload, peer, label } = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => return self.link.stats.drop_datagram(reason),
        };
        let mut dma = Placement {
            memory: self.memory,
            grh: None,
            payload: bytes.slice(payload),
            kept: Some(&mut self.falcon.kept),
        };
        let congested = self.link.marks_received(peer, packet.payload_len);
        let arrival = FalconArrival { packet: &packet, peer, label, congested, hops: 0, csig: None };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Falcon(arrival), &mut dma);
    }
}

/// Addresses, peer and IP header fields of a received datagram.
struct DatagramOrigin {
    source: SocketAddr,
    local: SocketAddr,
    peer: Option<PeerId>,
    /// True when the network marked the datagram (ECN).
    congested: bool,
    /// Other fields of its IP header.
    ip_fields: PackedIpFields,
}

impl DatagramOrigin {
    fn addresses(&self) -> Addresses {
        Addresses::new(self.source, self.local).expect("a socket has one IP version")
    }
}

/// Returns whether an OpenRNIC NIC could send probes from `port`: probes are sent only from a port that belongs to a
/// single NIC.
fn may_probe(ports: Ports, port: u16) -> bool {
    match ports {
        Ports::OfPeer => true,
        Ports::OfQueuePair => port != UDP_PORT,
        Ports::RoceV2 => false,
    }
}

/// Returns whether the remote queue pair to which `qpn` is connected uses UDP port `port`.
fn is_from_its_port(engine: &Engine, qpn: Qpn, port: u16) -> bool {
    // Returns true for a queue pair that does not exist, because the engine counts packets for such queue pairs.
    engine.query_qp(qpn).is_none_or(|info| port_of(info.dest_qpn) == port)
}

/// Returns the datagram in the form that a shared-memory record would have over UDP.
#[cold]
fn as_datagram(record: &Record<'_>, origin: &DatagramOrigin) -> Vec<u8> {
    let mut bytes = record.bytes.to_vec();
    if !record.kind.is_sealed && crate::falcon::is_falcon(&bytes) {
        crate::falcon::check(&mut bytes);
        return bytes;
    }
    // A packet that is too short to contain an ICRC is rejected by all further processing.
    if !record.kind.is_sealed && bytes.len() >= bth::LEN {
        let prefix = IcrcPrefix::new(&origin.addresses(), (bytes.len() + ICRC_LEN) as u32);
        let icrc = prefix.start(&bytes).finish();
        bytes.extend_from_slice(&icrc);
    }
    bytes
}

/// Returns whether a record in shared memory is a message between NICs, which has an ICRC only if it was delayed.
#[inline]
fn is_message_record(record: &Record<'_>) -> bool {
    let icrc_len = if record.kind.is_sealed { 0 } else { ICRC_LEN };
    record.bytes.len() == MESSAGE_LEN - icrc_len && record.bytes.copy_front(&mut [0]) == [scr::OPCODE]
}

/// Peer number for unknown senders, to which no packets are sent. It differs from the engine's own value for "no
/// peer", the largest number: a queue pair for datagrams has that value as its peer and would accept the packet as
/// coming from its peer.
const UNKNOWN_PEER: PeerId = PeerId(u32::MAX - 1);

/// Maximum number of packets that one call receives from one ring: acknowledgements are sent only after the call.
const RECORDS_PER_CALL: u32 = 64;

/// Maximum number of reads of the sockets before a ring is read for the first time: emptying a full receive buffer
/// needs fewer.
const SOCKET_READS_MAX: u32 = 1_024;

/// Number of bytes after which ring space is released; it is also released at the end of a call.
const RELEASE_BYTES: u64 = 64 << 10;

/// Maximum number of calls in a row that receive long merged datagrams (GRO) before acknowledgements are sent: two
/// hundred kilobytes, less than a window.
const RECEIVE_CALLS: u32 = 3;

/// Minimum size in bytes of merged datagrams (GRO) that count as long: at least half of the maximum.
const LONG_TRAIN_BYTES: u64 = 32 << 10;

/// Maximum number of buffers that one call receives. Merged datagrams (GRO) have up to 60 KB: more of them at a time
/// would delay acknowledgements and exceed the caches.
const RECEIVE_BUFFERS: usize = 8;

#[cfg(test)]
#[path = "receive/tests.rs"]
mod tests;
