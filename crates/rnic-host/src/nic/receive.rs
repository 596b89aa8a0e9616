//! Passes packets from the sockets to the engine. All input here is untrusted.

use std::net::SocketAddr;

use rnic_base::Time;
use rnic_engine::{Arrival, Engine, FalconArrival, PeerId, RxMeta};
use rnic_wire::credit::Credit;
use rnic_wire::header::bth;
use rnic_wire::hello::Hello;
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, Format, HEADERS_MAX, ICRC_LEN, IcrcPrefix, Qpn, cm, codec, gsi};

use super::credit::receive_credit;
use super::device::Device;
use super::hello::receive_hello;
use crate::bypass::{Broken, Incoming, Record};
use crate::clock::Clock;
use crate::cm::{GsiNews, Manager, gsi_way};
use crate::falcon::{Admitted, Falcon};
use crate::grh::grh;
use crate::keepalive;
use crate::link::{Link, Ports};
use crate::marking::Marking;
use crate::memory::{Arrived, Memory, Placement};
use crate::ports::port_of;
use crate::stats::RxDrop;
use crate::sys::ReceiveBatch;

/// Receive buffers, and the number of them that the next call may fill.
#[derive(Debug)]
pub(crate) struct Receiver {
    batch: ReceiveBatch,
    wanted: usize,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self { batch: ReceiveBatch::new(BUFFERS), wanted: 1 }
    }

    /// Receives what has arrived, up to a budget; returns whether there was anything.
    ///
    /// After a long train more packets are likely to be waiting, and one acknowledgement covers all of it. After a
    /// short one the program runs first, because it may be waiting for just this.
    pub(super) fn receive_while_busy(&mut self, now: Time, device: &mut Device, cm: &mut Manager) -> bool {
        device.memory.look_after(now);
        let mut any = false;
        for _ in 0..RECEIVE_CALLS {
            let before = device.link.stats.bytes_received;
            let received = self.receive(now, device, cm);
            any |= received;
            if !received || device.link.stats.bytes_received - before < LONG_TRAIN_BYTES {
                break;
            }
        }
        any
    }

    /// Receives a batch of datagrams from every socket; returns whether there were any.
    fn receive(&mut self, now: Time, device: &mut Device, cm: &mut Manager) -> bool {
        let mut any = self.receive_by_memory(now, device, cm);
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
    fn receive_by_memory(&mut self, now: Time, device: &mut Device, cm: &mut Manager) -> bool {
        if device.link.bypass.as_ref().is_none_or(|bypass| !bypass.is_used()) {
            return false;
        }
        let Some(mut bypass) = device.link.bypass.take() else { return false };
        let mut any = false;
        bypass.incoming.retain_mut(|incoming| {
            if incoming.consumer.is_empty() {
                return true;
            }
            any = true;
            if incoming.is_fresh {
                incoming.is_fresh = false;
                let lanes = device.link.lanes.len();
                let mut look = || (0..lanes).fold(false, |any, lane| self.receive_lane(now, lane, device, cm) | any);
                (0..FRESH_LOOKS).all(|_| look());
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
                    // Requesting one is cheapest, and usually one datagram follows an empty read.
                    self.wanted = 1;
                }
                Ok(count) => {
                    if count == self.wanted {
                        self.wanted = (self.wanted * 2).min(BUFFERS);
                    }
                    let bound = socket.local_addr();
                    Arrivals::of(device, cm).receive_trains(now, bound, &mut self.batch);
                    any = true;
                }
                Err(_) => {
                    // The error concerns a datagram sent earlier. The kernel has reported it once, so receiving
                    // continues.
                    device.link.has_pending_errors = true;
                    any = true;
                }
            }
        }
        any
    }
}

/// Receivers of arriving datagrams: the parts of a NIC that process them.
struct Arrivals<'a> {
    engine: &'a mut Engine,
    memory: &'a mut Memory,
    link: &'a mut Link,
    falcon: &'a mut Falcon,
    cm: &'a mut Manager,
    clock: &'a Clock,
}

impl<'a> Arrivals<'a> {
    #[inline]
    fn of(device: &'a mut Device, cm: &'a mut Manager) -> Self {
        let Device { engine, memory, link, falcon, clock, .. } = device;
        Self { engine, memory, link, falcon, cm, clock }
    }

    /// Receives the records of a ring, up to a budget.
    ///
    /// # Errors
    /// When the ring's indices or lengths are invalid.
    fn read_ring(&mut self, now: Time, incoming: &mut Incoming) -> Result<(), Broken> {
        let Incoming { consumer, source, local, .. } = incoming;
        let local = SocketAddr::new(*local, self.link.local_addr().port());
        // Arrival time of the Falcon packets that are in the ring by now: the sender and this NIC compare clocks.
        let mut came = None;
        for _ in 0..RECORDS_AT_ONCE {
            if consumer.has_read_what_it_knows() {
                came = None;
            }
            let Some(record) = consumer.next()? else { break };
            let peer = self.link.peers.find(self.link.peer_at(*source), local.ip());
            let peer = peer.filter(|peer| self.link.peers.get(*peer).is_local);
            let way = DatagramOrigin { source: *source, local, peer, congested: false, marking: record.kind.marking };
            self.link.stats.bypass_bytes_received += record.bytes.len() as u64;
            if record.kind.is_sealed || self.link.capture.is_some() {
                let mut bytes = as_datagram(&record, &way);
                if crate::falcon::is_falcon(&bytes) {
                    let now = *came.get_or_insert_with(|| self.clock.now());
                    self.receive_falcon(now, &way, &mut bytes);
                } else {
                    self.receive_datagram(now, &way, &bytes);
                }
            } else if crate::falcon::is_falcon(record.bytes.copy_front(&mut [0])) {
                let now = *came.get_or_insert_with(|| self.clock.now());
                let admitted = self.falcon.admit_in_clear(source.ip(), record.bytes);
                self.hand_in(now, admitted, record.bytes);
            } else {
                self.receive_record(now, &way, record.bytes);
            }
            self.link.stats.bypass_received += 1;
            if consumer.unreleased() >= RELEASE_BYTES {
                consumer.release();
            }
        }
        consumer.release();
        Ok(())
    }

    /// Receives a batch of trains that arrived at `bound`.
    fn receive_trains(&mut self, now: Time, bound: SocketAddr, batch: &mut ReceiveBatch) {
        self.link.stats.receive_calls += 1;
        for (incoming, bytes) in batch.iter_mut() {
            self.link.stats.bytes_received += bytes.len() as u64;
            let local = SocketAddr::new(incoming.local.unwrap_or(bound.ip()), bound.port());
            if incoming.truncated {
                self.link.stats.datagrams_received += 1;
                self.link.stats.drop_datagram(RxDrop::Truncated);
                continue;
            }
            let peer = self.link.peers.find(self.link.peer_at(incoming.source), local.ip());
            let (congested, marking) = (incoming.congested, incoming.marking);
            let way = DatagramOrigin { source: incoming.source, local, peer, congested, marking };
            if bytes.is_empty() {
                self.link.stats.datagrams_received += 1;
                self.receive_datagram(now, &way, bytes);
            }
            // Arrival time of a Falcon datagram, as exact as possible: the sender and this NIC compare clocks.
            let mut came = None;
            // Each datagram is classified by itself, because senders and the kernel form trains of any datagrams with
            // the same addresses.
            for datagram in bytes.chunks_mut(incoming.segment.max(1)) {
                self.link.stats.datagrams_received += 1;
                if crate::falcon::is_falcon(datagram) {
                    let now = *came.get_or_insert_with(|| self.clock.now());
                    self.receive_falcon(now, &way, datagram);
                } else {
                    self.receive_datagram(now, &way, datagram);
                }
            }
        }
    }

    #[inline]
    fn receive_datagram(&mut self, now: Time, way: &DatagramOrigin, datagram: &[u8]) {
        if self.link.capture.is_some()
            && let Ok(addresses) = Addresses::new(way.source, way.local)
        {
            self.link.capture_marked(now, &addresses, datagram, way.marking);
        }
        if gsi::is_gsi(datagram) {
            return self.receive_management(now, way, datagram);
        }
        let decoded = match codec::decode(datagram) {
            Ok(decoded) => decoded,
            Err(error) => return self.link.stats.drop_malformed(error),
        };
        if keepalive::is_probe(&decoded.packet) && may_probe(self.link.ports, way.source.port()) {
            // A probe needs no response: the sender only checks that it is not refused.
            self.link.stats.probes_received += 1;
            return;
        }
        if decoded.format == Format::UnreliableDatagram {
            return self.receive_unconnected(now, way, datagram, &decoded);
        }
        let Some(peer) = way.peer else { return self.link.stats.drop_datagram(RxDrop::UnknownPeer) };
        let prefix =
            self.link.peers.get_mut(peer).received_prefix(datagram.len() as u32, way.source.port(), || way.addresses());
        if !self.link.is_whole(now, way.source.ip(), prefix, datagram) {
            return self.link.stats.drop_datagram(RxDrop::Icrc);
        }
        if self.link.ports == Ports::OfQueuePair
            && way.source.port() != UDP_PORT
            && !is_from_its_port(self.engine, decoded.packet.dest_qpn, way.source.port())
        {
            return self.link.stats.drop_datagram(RxDrop::ForeignPort);
        }
        let mut dma =
            Placement { memory: self.memory, grh: None, payload: datagram[decoded.payload].into(), kept: None };
        let meta = RxMeta { peer, congested: way.congested };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Roce(decoded.format, &decoded.packet, meta), &mut dma);
    }

    /// Receives a Falcon datagram.
    #[inline]
    fn receive_falcon(&mut self, now: Time, way: &DatagramOrigin, datagram: &mut [u8]) {
        if self.link.capture.is_some()
            && let Ok(addresses) = Addresses::new(way.source, way.local)
        {
            self.link.capture(now, &addresses, datagram);
        }
        let admitted = self.falcon.admit(way.source.ip(), datagram);
        self.hand_in(now, admitted, (&*datagram).into());
    }

    /// Receives a packet that arrived through shared memory. The sender can change its bytes at any time, so its
    /// headers are copied out first.
    #[inline]
    fn receive_record(&mut self, now: Time, way: &DatagramOrigin, bytes: Arrived<'_>) {
        let mut front = [0; HEADERS_MAX];
        let front = bytes.copy_front(&mut front);
        if gsi::is_gsi(front) {
            return self.link.stats.drop_datagram(RxDrop::Management);
        }
        // Length as if the ICRC followed.
        let len = bytes.len() + ICRC_LEN;
        let decoded = match codec::decode_front(front, len) {
            Ok(decoded) => decoded,
            Err(error) => return self.link.stats.drop_malformed(error),
        };
        let is_datagram = decoded.format == Format::UnreliableDatagram;
        if way.peer.is_none() && !is_datagram {
            return self.link.stats.drop_datagram(RxDrop::UnknownPeer);
        }
        let grh = is_datagram.then(|| grh(&way.addresses(), way.marking, len as u32));
        let mut dma =
            Placement { memory: self.memory, grh: grh.as_ref(), payload: bytes.slice(decoded.payload), kept: None };
        let meta = RxMeta { peer: way.peer.unwrap_or(UNKNOWN_PEER), congested: false };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Roce(decoded.format, &decoded.packet, meta), &mut dma);
    }

    /// Receives a datagram of [`Format::UnreliableDatagram`]: any sender that knows the queue key may send one.
    fn receive_unconnected(&mut self, now: Time, way: &DatagramOrigin, datagram: &[u8], decoded: &codec::Decoded) {
        let (len, addresses) = (datagram.len() as u32, way.addresses());
        let prefix = match way.peer {
            Some(peer) => self.link.peers.get_mut(peer).received_prefix(len, way.source.port(), || addresses),
            None => IcrcPrefix::new(&addresses, len),
        };
        if !self.link.is_whole(now, way.source.ip(), prefix, datagram) {
            return self.link.stats.drop_datagram(RxDrop::Icrc);
        }
        let grh = grh(&addresses, way.marking, len);
        let mut dma = Placement {
            memory: self.memory,
            grh: Some(&grh),
            payload: datagram[decoded.payload.clone()].into(),
            kept: None,
        };
        let meta = RxMeta { peer: way.peer.unwrap_or(UNKNOWN_PEER), congested: false };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Roce(decoded.format, &decoded.packet, meta), &mut dma);
    }

    /// Receives a datagram for queue pair 1: connection management, credit, a hello, or an invalid one.
    #[cold]
    fn receive_management(&mut self, now: Time, way: &DatagramOrigin, datagram: &[u8]) {
        let Ok(addresses) = Addresses::new(way.source, way.local) else {
            return self.link.stats.drop_datagram(RxDrop::UnknownPeer);
        };
        let packet = match gsi::decode(datagram) {
            Ok(packet) => packet,
            Err(_) if self.link.ports != Ports::OfPeer => return self.link.stats.drop_datagram(RxDrop::Management),
            Err(error) => return self.link.stats.drop_malformed(error),
        };
        let prefix = IcrcPrefix::new(&addresses, datagram.len() as u32);
        if !self.link.is_whole(now, way.source.ip(), prefix, datagram) {
            return self.link.stats.drop_datagram(RxDrop::Icrc);
        }
        if let Some(message) = Credit::parse(packet.mad) {
            return receive_credit(self.link, now, way.peer, &addresses, message);
        }
        if let Some(message) = Hello::parse(packet.mad) {
            return receive_hello(self.link, now, way.peer, &message);
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
                // Peers receive on port 4791, whatever port they send from.
                if !gsi.push(GsiNews::Message(gsi_way(&addresses), Box::new(mad))) {
                    self.link.stats.drop_datagram(RxDrop::Management);
                }
                return;
            }
            Some(_) => self.cm.receive(now, &gsi_way(&addresses), mad),
        }
        self.link.stats.cm_strays = self.cm.strays;
    }

    /// Passes an admitted packet, whose payload is within `bytes`, to the engine, or counts why it was dropped.
    #[inline]
    fn hand_in(&mut self, now: Time, admitted: Result<Admitted, RxDrop>, bytes: Arrived<'_>) {
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
        let arrival = FalconArrival { packet: &packet, peer, label, congested: false, hops: 0, csig: None };
        // The engine counts the result.
        let _ = self.engine.receive(now, Arrival::Falcon(arrival), &mut dma);
    }
}

/// Addresses, peer and IP header fields of a datagram that arrived.
struct DatagramOrigin {
    source: SocketAddr,
    local: SocketAddr,
    peer: Option<PeerId>,
    /// Set when the network marked it (ECN).
    congested: bool,
    /// Other fields of its IP header.
    marking: Marking,
}

impl DatagramOrigin {
    fn addresses(&self) -> Addresses {
        Addresses::new(self.source, self.local).expect("a socket has one IP version")
    }
}

/// Returns whether OpenRNIC NICs send probes from `port`: only from the port that a NIC has for itself.
fn may_probe(ports: Ports, port: u16) -> bool {
    match ports {
        Ports::OfPeer => true,
        Ports::OfQueuePair => port != UDP_PORT,
        Ports::RoceV2 => false,
    }
}

/// Returns whether the queue pair that `qpn` is connected to uses UDP port `port`.
fn is_from_its_port(engine: &Engine, qpn: Qpn, port: u16) -> bool {
    // Packets for queue pairs that do not exist pass, because the engine counts them.
    engine.query_qp(qpn).is_none_or(|info| port_of(info.dest_qpn) == port)
}

/// Returns the datagram that a record would be on the UDP wire.
#[cold]
fn as_datagram(record: &Record<'_>, way: &DatagramOrigin) -> Vec<u8> {
    let mut bytes = record.bytes.to_vec();
    if !record.kind.is_sealed && crate::falcon::is_falcon(&bytes) {
        crate::falcon::check(&mut bytes);
        return bytes;
    }
    // A packet that is too short to have an ICRC is too short for all further processing.
    if !record.kind.is_sealed && bytes.len() >= bth::LEN {
        let prefix = IcrcPrefix::new(&way.addresses(), (bytes.len() + ICRC_LEN) as u32);
        let icrc = prefix.start(&bytes).finish();
        bytes.extend_from_slice(&icrc);
    }
    bytes
}

/// Peer number for unknown senders; no packet is sent to it. Different from the engine's own value for no peer, which
/// is the largest number: a queue pair for datagrams would take that for its peer.
const UNKNOWN_PEER: PeerId = PeerId(u32::MAX - 1);

/// Maximum number of packets of one ring that one call receives: acknowledgements wait for the end of the call.
const RECORDS_AT_ONCE: u32 = 64;

/// Maximum number of reads of the sockets before a ring is read for the first time: emptying a full receive buffer
/// takes fewer.
const FRESH_LOOKS: u32 = 1_024;

/// Ring space is released after this many bytes, or at the end of a call.
const RELEASE_BYTES: u64 = 64 << 10;

/// Calls that receive long trains before acknowledgements are sent: two hundred kilobytes, less than a window.
const RECEIVE_CALLS: u32 = 3;

/// Minimum size of a long train, in bytes: at least half of the longest.
const LONG_TRAIN_BYTES: u64 = 32 << 10;

/// Maximum number of datagrams or trains that one call receives. Trains are 60 KB: more of them at a time would delay
/// acknowledgements and exceed the caches.
const BUFFERS: usize = 8;

#[cfg(test)]
#[path = "receive/tests.rs"]
mod tests;
