//! The interface between the NIC and the kernel: packets are sent here, or kept until they can be sent.
//!
//! No packet that the engine outputs is lost here. When the kernel has no buffer space, the packets that it did not
//! accept are kept, and the engine is not polled for more until they have been sent. Packets that are kept have been
//! copied, because the program may reclaim their memory meanwhile.
//!
//! The kernel splits a train into packets with consecutive IPv4 identifications, starting at 0. To OpenRNIC NICs the
//! ICRC of each is computed for identification 0, and that is what they check; a capture made by another tool may
//! therefore report the ICRC of all but the first packet of a train as wrong. Captures written by this crate are right.
//! To real RoCEv2 peers the ICRC is computed for the identification that is sent ([`numbered`]).

pub(crate) mod batch;
pub(crate) mod lane;
mod numbered;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_engine::{MemoryFault, PeerId, Transmit};
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, IpFields, IpVersion, Qpn};

use crate::bypass::{Bypass, Kind, Taken};
use crate::capture::{CaptureTo, record};
use crate::cm::GsiPort;
use crate::credit::Credits;
use crate::datagram::Datagram;
use crate::hello::Hellos;
use crate::identification::Identifications;
use crate::impair::{DelayLine, Fate};
use crate::marking::Marking;
use crate::notice::{Notice, Notices};
use crate::peer::{Peer, Peers};
use crate::ports;
use crate::stats::NicStats;
use crate::sys::{DeferredError, MESSAGES_MAX, Outgoing, Quoted, UdpSocket};

use batch::{Acks, Batch, SendPath, Train};
use lane::Lane;

/// The sending side of a NIC, and the state shared by both sides.
#[derive(Debug)]
pub(crate) struct Link {
    /// Sockets by IP version: at least one lane; with several, one for each IP version.
    pub(crate) lanes: ArrayVec<Lane, LANES_MAX>,
    /// True when packets must specify their source address, because the sockets are bound to all addresses.
    is_wildcard: bool,
    /// Method of finding a peer's UDP port.
    pub(crate) ports: Ports,
    pub(crate) peers: Peers,
    /// Flow control of unreliable packets.
    pub(crate) credits: Credits,
    pub(crate) hellos: Hellos,
    /// Identifications of packets from real RoCEv2 peers over IPv4.
    identifications: Option<Box<Identifications>>,
    /// True when the kernel splits trains into packets (GSO).
    pub(crate) segmentation: bool,
    /// Claim on the address, for a NIC at a single address of port 4791 while other NICs share that port for sending:
    /// prevents a second such NIC at this address.
    pub(crate) claim: Option<UnixDatagram>,
    /// General services interface: connection management with real RoCEv2 peers.
    pub(crate) gsi: Option<Arc<GsiPort>>,
    /// The same-host wire through shared memory.
    pub(crate) bypass: Option<Box<Bypass>>,
    /// Packets that wait for space in a shared-memory ring, oldest first.
    ring_backlog: VecDeque<WaitingForRing>,
    /// Datagrams that are ready to be sent, oldest first.
    tx_backlog: VecDeque<Datagram>,
    /// Datagrams that are ready to be sent, but larger than the path MTU.
    fragment_backlog: VecDeque<Datagram>,
    /// Datagrams delayed by impairment.
    delay_line: DelayLine,
    /// Buffers of datagrams that have left the delay line, for reuse.
    free_buffers: Vec<Vec<u8>>,
    /// Set while errors reported by the network have not been read.
    pub(crate) has_pending_errors: bool,
    /// Set while credit responses are ready to be sent.
    pub(crate) has_answers: bool,
    pub(crate) capture: Option<CaptureTo>,
    pub(crate) stats: NicStats,
    pub(crate) notices: Notices,
}

/// A packet that waits for space in a shared-memory ring.
#[derive(Debug)]
struct WaitingForRing {
    target: (PeerId, u16),
    bytes: Vec<u8>,
    kind: Kind,
    since: Time,
}

/// Method of finding a peer's UDP port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ports {
    /// Each peer has one port.
    OfPeer,
    /// Each queue pair's number encodes a port ([`crate::ports`]).
    OfQueuePair,
    /// All peers use RoCEv2's port.
    RoceV2,
}

/// Meaning of a kernel error for the datagram or train that was to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// No buffer space now.
    Full,
    /// Larger than the path MTU.
    TooLarge,
    /// Trains cannot be split on this path.
    NoSegmentation,
    /// A network error, possibly about an earlier datagram, possibly permanent.
    Network,
    /// Permanent.
    Never,
}

impl Refusal {
    fn of(error: &io::Error, is_train: bool) -> Self {
        match error.raw_os_error() {
            // With errors reported, ENOBUFS can also mean that a queue of the interface was full and the packet is
            // lost.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Self::Full,
            Some(libc::EMSGSIZE) => Self::TooLarge,
            // The kernel returns this for segments that are larger than the path MTU.
            Some(libc::EINVAL) if is_train => Self::TooLarge,
            Some(libc::EIO) if is_train => Self::NoSegmentation,
            Some(errno) if is_network_error(errno) => Self::Network,
            _ => Self::Never,
        }
    }
}

/// Returns whether `errno` reports an ICMP message or a routing failure.
fn is_network_error(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EPROTO
            | libc::EOPNOTSUPP
            | libc::EACCES
    )
}

impl Link {
    pub(crate) fn new(lanes: ArrayVec<Lane, LANES_MAX>, ports: Ports, segmentation: bool) -> Self {
        Self {
            is_wildcard: lanes[0].local_addr().ip().is_unspecified(),
            segmentation: segmentation && lanes[0].sender().has_segmentation(),
            lanes,
            ports,
            identifications: (ports == Ports::RoceV2).then(Box::default),
            peers: Peers::default(),
            credits: Credits::default(),
            hellos: Hellos::default(),
            ring_backlog: VecDeque::new(),
            claim: None,
            gsi: None,
            bypass: None,
            tx_backlog: VecDeque::new(),
            fragment_backlog: VecDeque::new(),
            delay_line: DelayLine::default(),
            free_buffers: Vec::new(),
            has_pending_errors: false,
            has_answers: false,
            capture: None,
            stats: NicStats::default(),
            notices: Notices::default(),
        }
    }

    /// Releases the ring to `target`, to which no queue pair is connected any more, unless packets wait for space in
    /// it.
    pub(crate) fn release_ring(&mut self, now: Time, target: (PeerId, u16)) {
        if let Some(bypass) = &mut self.bypass
            && !self.ring_backlog.iter().any(|waiting| waiting.target == target)
        {
            bypass.release(now, target);
        }
    }

    /// Returns whether ready packets wait for buffer space.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.is_held_by_kernel() || !self.ring_backlog.is_empty()
    }

    /// Returns whether ready packets wait for buffer space of the kernel.
    #[inline]
    pub(crate) fn is_held_by_kernel(&self) -> bool {
        !self.tx_backlog.is_empty() || !self.fragment_backlog.is_empty()
    }

    /// Returns the time at which the next delayed packet is sent.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.delay_line.next_due()
    }

    /// Discards the delayed packets.
    pub(crate) fn lose_delayed(&mut self) {
        self.delay_line.clear();
    }

    /// Returns the local address and port.
    #[inline]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.lanes[0].local_addr()
    }

    /// Returns the index of the lane to `ip`. A NIC on a single address has peers of its IP version only.
    #[inline]
    pub(crate) fn lane_of(&self, ip: IpAddr) -> usize {
        self.lanes.iter().position(|lane| lane.carries(ip)).unwrap_or(0)
    }

    /// Returns the UDP port of `peer` that `dest_qpn` uses.
    #[inline]
    pub(crate) fn port_of(&self, peer: &Peer, dest_qpn: Qpn) -> u16 {
        match self.ports {
            Ports::OfQueuePair => ports::port_of(dest_qpn),
            Ports::OfPeer | Ports::RoceV2 => peer.addresses.dst().port(),
        }
    }

    /// Returns the address under which the peer that sends from `source` is registered.
    #[inline]
    pub(crate) fn peer_at(&self, source: SocketAddr) -> SocketAddr {
        if self.ports == Ports::OfPeer { source } else { SocketAddr::new(source.ip(), UDP_PORT) }
    }

    /// Returns the local address that a packet on a socket bound to all addresses must specify.
    pub(crate) fn source_of(&self, addresses: &Addresses) -> Option<IpAddr> {
        self.is_wildcard.then(|| addresses.src().ip())
    }

    /// Adds a datagram to the capture, if there is one.
    #[inline]
    pub(crate) fn capture(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        self.capture_marked(now, addresses, bytes, Marking::NONE);
    }

    /// Adds a marked datagram to the capture, if there is one.
    #[inline]
    pub(crate) fn capture_marked(&mut self, now: Time, addresses: &Addresses, bytes: &[u8], marking: Marking) {
        if self.capture.is_some() {
            let fields = IpFields { identification: self.identification_of(addresses, bytes), ..marking.fields() };
            record(&mut self.capture, &mut self.stats, &mut self.notices, now, addresses, fields, bytes);
        }
    }

    /// Applies impairment to a packet of `len` bytes on `way`. `copy` creates the datagram when one is needed, in a
    /// buffer that may contain an old one. Returns whether the packet is sent now.
    ///
    /// # Errors
    /// When `copy` fails: the packet is unchanged then.
    pub(crate) fn impair(
        &mut self,
        now: Time,
        way: SendPath,
        len: u32,
        copy: impl FnOnce(&Addresses, &mut Vec<u8>) -> Result<(), MemoryFault>,
    ) -> Result<bool, MemoryFault> {
        let addresses = self.addresses_of(way);
        let Self { peers, delay_line, free_buffers, stats, .. } = self;
        let peer = peers.get_mut(way.peer);
        let Some(impairment) = &mut peer.impairment else { return Ok(true) };
        let fate: Fate = impairment.judge(now, peer.addresses.ip_version(), len, &mut stats.impairment);
        delay_line.overtake(impairment, now);
        if let Some((last, others)) = fate.copies.split_last() {
            let mut bytes = free_buffers.pop().unwrap_or_default();
            copy(&addresses, &mut bytes)?;
            let datagram = Datagram { addresses, bytes, marking: way.marking };
            let mut insert = |late, datagram| {
                stats.impairment.queue_full += u64::from(!delay_line.insert(late, datagram, impairment));
            };
            others.iter().for_each(|late| insert(late, datagram.clone()));
            insert(last, datagram);
        }
        Ok(fate.passes)
    }

    /// Adds datagrams whose delay is over to the batch: on the wire they follow the packets that are already in it, and
    /// cost the kernel no more than those. Datagrams that go through shared memory, have an ICRC for being sent alone,
    /// or do not fit, are sent later ([`Self::send_waiting`]).
    pub(crate) fn join_delayed(&mut self, now: Time, batch: &mut Batch<'_>, acks: &Acks) {
        while let Some((way, marking)) =
            self.delay_line.first_due(now).map(|datagram| (datagram.addresses, datagram.marking))
            && batch.has_room(acks)
            && let Some(peer) = self.peers.find(self.peer_at(way.dst()), way.src().ip())
            && !self.peers.get(peer).is_local
            && !self.is_numbered(peer)
            && let Some(Datagram { bytes, .. }) = self.delay_line.pop_due(now)
        {
            let path = self.lanes[self.lane_of(way.dst().ip())].path_from(way.src().port());
            let way = SendPath { peer, port: way.dst().port(), path, marking };
            let copied = batch.add_with(way, bytes.len() as u32, self.segmentation, |out| {
                out.copy_from_slice(&bytes);
                Ok(())
            });
            copied.expect("a copy of our own cannot be gone");
            self.reuse(bytes);
        }
    }

    fn reuse(&mut self, buffer: Vec<u8>) {
        if self.free_buffers.len() < SPARE_MAX {
            self.free_buffers.push(buffer);
        }
    }

    /// Queues `bytes`, a complete datagram, for sending; impairment applies as to any other.
    pub(crate) fn send_soon(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        let peer = self.peers.find(self.peer_at(addresses.dst()), addresses.src().ip());
        let Some(peer) = peer else { return self.reply_to_unknown(now, addresses, bytes) };
        let way = SendPath { peer, port: addresses.dst().port(), path: 0, marking: Marking::NONE };
        let passes = self.impair(now, way, bytes.len() as u32, |_, copy| {
            copy.clear();
            copy.extend_from_slice(bytes);
            Ok(())
        });
        if passes.expect("a copy of our own cannot be gone") {
            self.capture(now, addresses, bytes);
            self.tx_backlog.push_back(Datagram {
                addresses: *addresses,
                bytes: bytes.to_vec(),
                marking: Marking::NONE,
            });
        }
    }

    /// Sends a response to a sender that is not a registered peer, immediately or not at all: an unanswered sender
    /// retransmits its request. Source addresses of requests may be forged, and the kernel keeps responses to hosts
    /// that do not exist for seconds. So no response is queued, and half of the socket's buffer space is reserved for
    /// peers.
    #[cold]
    fn reply_to_unknown(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        let to = addresses.dst().into();
        let parts = [IoSlice::new(bytes)];
        let message =
            Outgoing { to: &to, from: self.source_of(addresses), parts: &parts, segment: None, marking: Marking::NONE };
        let socket = self.lanes[self.lane_of(addresses.dst().ip())].sender();
        let (mut is_sent, mut tries) = (false, 0);
        while socket.is_half_free() && !is_sent && tries < LATE_ERRORS_MAX {
            tries += 1;
            match socket.send(&[message]) {
                Ok(_) => is_sent = true,
                // The error may concern an earlier datagram.
                Err(error) if Refusal::of(&error, false) == Refusal::Network => self.has_pending_errors = true,
                Err(_) => break,
            }
        }
        if is_sent {
            self.capture(now, addresses, bytes);
            self.count_datagrams(1, bytes.len(), false);
        } else {
            self.stats.datagrams_refused += 1;
        }
    }

    /// Counts a packet that will not be acknowledged; one that can no longer be lost counts as arrived.
    #[inline]
    pub(crate) fn count_unacknowledged(&mut self, transmit: &Transmit, is_safe: bool) {
        let port = self.port_of(self.peers.get(transmit.peer), transmit.packet.dest_qpn);
        if is_safe {
            self.credits.arrived(transmit.peer);
        } else {
            self.credits.sent(transmit.peer, port);
        }
    }

    /// Returns the addresses of a response to `to` that is to be sent from the local address `from`.
    pub(crate) fn way_back(&self, from: IpAddr, to: SocketAddr) -> Option<Addresses> {
        let port = self.lanes[self.lane_of(to.ip())].sender().local_addr().port();
        Addresses::new(SocketAddr::new(from, port), to).ok()
    }

    /// Returns whether so many datagrams are queued that no more responses should be created for unknown senders.
    pub(crate) fn is_crowded_by_answers(&self) -> bool {
        self.tx_backlog.len() >= ANSWERS_MAX
    }

    /// Queues a packet that is larger than the path MTU of its peer.
    pub(crate) fn send_fragmentable(&mut self, now: Time, addresses: &Addresses, bytes: Vec<u8>, marking: Marking) {
        if !self.may_fragment(addresses) {
            self.stats.datagrams_refused += 1;
            return;
        }
        self.capture_marked(now, addresses, &bytes, marking);
        self.fragment_backlog.push_back(Datagram { addresses: *addresses, bytes, marking });
    }

    /// Sends queued datagrams whose wait is over; returns whether any was sent.
    pub(crate) fn send_waiting(&mut self, now: Time) -> bool {
        let mut any = self.end_delays(now, now);
        if !self.ring_backlog.is_empty() {
            any |= self.send_ring_backlog(now);
        }
        if !self.is_held_by_kernel() {
            return any;
        }
        any |= self.send_queue(now, false);
        if !self.fragment_backlog.is_empty() && self.lanes.iter_mut().all(|lane| lane.allow_fragments(true).is_ok()) {
            any |= self.send_queue(now, true);
            // A failure here cannot be reported; packets would then be fragmented unnecessarily.
            self.lanes.iter_mut().for_each(|lane| drop(lane.allow_fragments(false)));
        }
        any
    }

    /// Sends all queued packets, because the NIC will not be driven again. Packets delayed by impairment are sent too:
    /// on a real network they would be in flight, and arrive although their sender no longer exists.
    pub(crate) fn send_all(&mut self, now: Time) {
        self.end_delays(now, Time::from_ps(u64::MAX));
        self.send_waiting(now);
        if let Some(bypass) = &mut self.bypass {
            bypass.publish(now);
        }
    }

    /// Takes datagrams that are due by `due` from the delay line; returns whether any was sent.
    fn end_delays(&mut self, now: Time, due: Time) -> bool {
        let mut any = false;
        while let Some(datagram) = self.delay_line.pop_due(due) {
            self.capture_marked(now, &datagram.addresses, &datagram.bytes, datagram.marking);
            if self.send_sealed(now, &datagram) {
                any = true;
            } else {
                self.tx_backlog.push_back(datagram);
            }
        }
        any
    }

    /// Sends a complete datagram through shared memory, if its peer is on this machine; returns whether the datagram is
    /// done with (sent, queued or lost).
    fn send_sealed(&mut self, now: Time, datagram: &Datagram) -> bool {
        let way = &datagram.addresses;
        let called = self.peer_at(way.dst());
        let Self { bypass: Some(bypass), peers, stats, ring_backlog, .. } = self else { return false };
        let Some(peer) = peers.find(called, way.src().ip()).filter(|peer| peers.get(*peer).is_local) else {
            return false;
        };
        let (bytes, target) = (&datagram.bytes, (peer, way.dst().port()));
        let kind = Kind { is_sealed: true, marking: datagram.marking };
        let taken = bypass.send_own(now, target, bytes, kind);
        stats.count_bypass(taken, bytes.len());
        if taken == Taken::Full {
            ring_backlog.push_back(WaitingForRing { target, bytes: bytes.clone(), kind, since: now });
        }
        taken != Taken::No
    }

    /// Queues a packet for another NIC of this machine whose ring has no space.
    #[cold]
    pub(crate) fn queue_for_ring(&mut self, now: Time, target: (PeerId, u16), bytes: Vec<u8>, kind: Kind) {
        self.ring_backlog.push_back(WaitingForRing { target, bytes, kind, since: now });
    }

    /// Retries packets whose ring had no space; returns whether any was written.
    #[cold]
    fn send_ring_backlog(&mut self, now: Time) -> bool {
        let Self { bypass: Some(bypass), stats, ring_backlog, .. } = self else { return false };
        let mut any = false;
        while let Some(WaitingForRing { target, bytes, kind, since }) = ring_backlog.front() {
            let taken = bypass.send_own(now, *target, bytes, *kind);
            let is_late = now.since(*since) > ROOM_WAIT;
            match taken {
                Taken::Full if !is_late => break,
                Taken::Full => bypass.stop_waiting_for(*target),
                _ => {}
            }
            stats.count_bypass(if taken == Taken::Yes { taken } else { Taken::Lost }, bytes.len());
            any |= taken == Taken::Yes;
            ring_backlog.pop_front();
        }
        bypass.publish(now);
        any
    }

    /// Sends the trains of a batch. Packets for which the kernel has no buffer space are kept.
    pub(crate) fn send_trains(&mut self, now: Time, batch: &Batch<'_>) {
        if self.capture.is_some() {
            self.capture_trains(now, batch);
        }
        let (mut first, mut tries) = (0, 0);
        while first < batch.trains().len() {
            let train = batch.trains()[first];
            match self.offer(batch, first) {
                Ok(count) => {
                    batch.trains()[first..first + count].iter().for_each(|train| self.count_sent(train));
                    self.stats.send_calls += 1;
                    (first, tries) = (first + count, 0);
                    continue;
                }
                Err(error) => match Refusal::of(&error, train.count > 1) {
                    Refusal::Full => {
                        batch.trains()[first..].iter().for_each(|train| self.hold(batch, train));
                        return;
                    }
                    // This port is below those of NICs, so no NIC has it: the kernel does not send there, whatever its
                    // error about the size means.
                    Refusal::TooLarge if self.ports == Ports::OfQueuePair && !ports::is_port_of_nic(train.port) => {
                        self.stats.datagrams_refused += u64::from(train.count);
                    }
                    Refusal::TooLarge => self.widen(now, batch, &train),
                    Refusal::NoSegmentation => {
                        self.segmentation = false;
                        self.notices.push(Notice::SegmentationRefused);
                        self.hold(batch, &train);
                    }
                    Refusal::Network if tries < LATE_ERRORS_MAX => {
                        self.has_pending_errors = true;
                        tries += 1;
                        continue;
                    }
                    Refusal::Network | Refusal::Never => self.stats.datagrams_refused += u64::from(train.count),
                },
            }
            (first, tries) = (first + 1, 0);
        }
    }

    /// Submits the trains from `first` on to the kernel.
    #[inline]
    fn offer(&self, batch: &Batch<'_>, first: usize) -> io::Result<usize> {
        let lane_to = |train: &Train| (self.lane_of(self.peers.get(train.peer).addresses.dst().ip()), train.path);
        let trains = &batch.trains()[first..];
        let (lane, path) = lane_to(&trains[0]);
        let count = trains.iter().take_while(|train| lane_to(train) == (lane, path)).count();
        let trains = &trains[..count];
        let to: ArrayVec<socket2::SockAddr, MESSAGES_MAX> =
            trains.iter().map(|train| self.peers.get(train.peer).way(train.port).dst().into()).collect();
        let parts: ArrayVec<[IoSlice<'_>; 1], MESSAGES_MAX> =
            trains.iter().map(|train| [IoSlice::new(batch.bytes(train))]).collect();
        let mut messages = ArrayVec::<Outgoing<'_>, MESSAGES_MAX>::new();
        for ((train, to), parts) in trains.iter().zip(&to).zip(&parts) {
            let segment = (train.count > 1).then_some(train.segment as u16);
            let from = self.peers.get(train.peer).from;
            messages.push(Outgoing { to, from, parts, segment, marking: train.marking });
        }
        self.lanes[lane].sender_on(path).send(&messages)
    }

    #[inline]
    fn count_sent(&mut self, train: &Train) {
        let stats = &mut self.stats;
        stats.messages_sent += 1;
        stats.datagrams_sent += u64::from(train.count);
        stats.bytes_sent += u64::from(train.bytes);
    }

    #[cold]
    fn hold(&mut self, batch: &Batch<'_>, train: &Train) {
        let addresses = self.addresses_of(train.way());
        self.stats.datagrams_held += u64::from(train.count);
        let packets = self.apart(batch, train);
        let marking = train.marking;
        self.tx_backlog.extend(packets.into_iter().map(|bytes| Datagram { addresses, bytes, marking }));
    }

    /// Returns whether packets larger than the path MTU may be fragmented on it. Adapters never do so, and the ICRC of
    /// RoCEv2 covers the identification, which the kernel chooses for an IPv4 packet that may be fragmented: no peer
    /// would accept it.
    fn may_fragment(&self, addresses: &Addresses) -> bool {
        self.ports != Ports::RoceV2 || addresses.ip_version() == IpVersion::V6
    }

    /// Queues the packets of a train that are larger than the path MTU as fragmentable datagrams.
    #[cold]
    fn widen(&mut self, now: Time, batch: &Batch<'_>, train: &Train) {
        self.mark_narrow(now, train.peer);
        let addresses = self.addresses_of(train.way());
        if !self.may_fragment(&addresses) {
            self.stats.datagrams_refused += u64::from(train.count);
            return;
        }
        let packets = self.apart(batch, train);
        let marking = train.marking;
        self.fragment_backlog.extend(packets.into_iter().map(|bytes| Datagram { addresses, bytes, marking }));
    }

    /// Records that the path MTU to `peer` is too small for its packets.
    fn mark_narrow(&mut self, now: Time, peer: PeerId) {
        let may_fragment = self.may_fragment(&self.peers.get(peer).addresses);
        let peer = self.peers.get_mut(peer);
        if peer.fragmenting.replace(now).is_none() {
            self.stats.path_mtu_reductions += 1;
            let to = peer.addresses.dst();
            self.notices.push(if may_fragment { Notice::PathTooNarrow(to) } else { Notice::PathRefuses(to.ip()) });
        }
    }

    fn capture_trains(&mut self, now: Time, batch: &Batch<'_>) {
        for train in batch.trains() {
            let addresses = self.addresses_of(train.way());
            batch.packets(train).for_each(|bytes| self.capture_marked(now, &addresses, bytes, train.marking));
        }
    }

    /// Returns the source and destination of packets on `way`.
    fn addresses_of(&self, way: SendPath) -> Addresses {
        let SendPath { peer, port, path, .. } = way;
        let way = self.peers.get(peer).way(port);
        if path == 0 {
            return way;
        }
        let port = self.lanes[self.lane_of(way.dst().ip())].sender_on(path).local_addr().port();
        Addresses::new(SocketAddr::new(way.src().ip(), port), way.dst()).expect("the IP versions are those of a peer")
    }

    /// Sends the ready datagrams, or with `fragmentable` those that may be fragmented; returns whether any was sent.
    fn send_queue(&mut self, now: Time, fragmentable: bool) -> bool {
        let (mut any, mut tries) = (false, 0);
        loop {
            let queue = if fragmentable { &mut self.fragment_backlog } else { &mut self.tx_backlog };
            let Some(way) = queue.front().map(|datagram| datagram.addresses) else { return any };
            let lane = self.lanes.iter().find(|lane| lane.carries(way.dst().ip())).unwrap_or(&self.lanes[0]);
            let socket = lane.sender_on(lane.path_from(way.src().port()));
            let error = match offer_datagrams(socket, queue, self.is_wildcard) {
                Ok(count) => {
                    let bytes = queue.drain(..count).map(|datagram| datagram.bytes.len()).sum();
                    self.count_datagrams(count, bytes, fragmentable);
                    (any, tries) = (true, 0);
                    continue;
                }
                Err(error) => Refusal::of(&error, false),
            };
            if error == Refusal::Full {
                return any;
            }
            if error == Refusal::Network && tries < LATE_ERRORS_MAX {
                self.has_pending_errors = true;
                tries += 1;
                continue;
            }
            tries = 0;
            match queue.pop_front() {
                Some(datagram) if error == Refusal::TooLarge && !fragmentable => {
                    let way = datagram.addresses;
                    if let Some(peer) = self.peers.find(self.peer_at(way.dst()), way.src().ip()) {
                        self.mark_narrow(now, peer);
                    }
                    if self.may_fragment(&way) {
                        self.fragment_backlog.push_back(datagram);
                    } else {
                        self.stats.datagrams_refused += 1;
                    }
                }
                _ => self.stats.datagrams_refused += 1,
            }
        }
    }

    fn count_datagrams(&mut self, count: usize, bytes: usize, fragmentable: bool) {
        let stats = &mut self.stats;
        stats.send_calls += 1;
        stats.messages_sent += count as u64;
        stats.datagrams_sent += count as u64;
        stats.bytes_sent += bytes as u64;
        stats.datagrams_fragmentable += if fragmentable { count as u64 } else { 0 };
    }

    /// Processes the delayed errors of the network: marks peers with a small path MTU and returns the addresses that
    /// cannot be reached.
    pub(crate) fn read_error_queue(&mut self, now: Time) -> ArrayVec<Unreachable, LATE_ERRORS_AT_ONCE> {
        let mut unreachable = ArrayVec::new();
        for _ in 0..LATE_ERRORS_AT_ONCE {
            let Some(DeferredError { to, errno, quoted }) = self.lanes.iter().find_map(Lane::take_deferred_error)
            else {
                self.has_pending_errors = false;
                break;
            };
            let Some(to) = to else { continue };
            if errno == libc::EMSGSIZE {
                let peers: Vec<PeerId> = self.peers.at(self.peer_at(to)).collect();
                peers.into_iter().for_each(|peer| self.mark_narrow(now, peer));
            } else if is_network_error(errno) {
                self.stats.network_errors += 1;
                unreachable.push(Unreachable { address: to, errno, quoted });
            }
        }
        unreachable
    }

    /// Returns whether packets to `peer` must still be fragmented; checks once in a while whether the path MTU has
    /// grown.
    pub(crate) fn is_still_narrow(&mut self, now: Time, peer: PeerId, len: u32) -> bool {
        let peer = self.peers.get_mut(peer);
        let Some(since) = peer.fragmenting else { return false };
        if now.since(since) < LOOK_AGAIN_AFTER {
            return true;
        }
        let ip_len = peer.addresses.ip_version().header_len() + rnic_wire::net::UDP_LEN;
        let fits = crate::sys::route(peer.addresses.src(), peer.addresses.dst())
            .is_ok_and(|route| ip_len + len <= route.mtu_bytes);
        if fits {
            peer.fragmenting = None;
            self.notices.push(Notice::PathWideAgain(peer.addresses.dst()));
        } else {
            peer.fragmenting = Some(now);
        }
        !fits
    }
}

/// A report that a sent datagram cannot be delivered. Any host can forge one: `quoted` must prove it.
#[derive(Clone, Debug)]
pub(crate) struct Unreachable {
    /// Destination of the datagram.
    pub(crate) address: SocketAddr,
    pub(crate) errno: i32,
    /// Start of the datagram, as quoted by the report.
    pub(crate) quoted: Quoted,
}

/// Submits datagrams of one IP version and from one port, from the front of `queue`, to the kernel.
fn offer_datagrams(socket: &UdpSocket, queue: &VecDeque<Datagram>, is_wildcard: bool) -> io::Result<usize> {
    let kind = |datagram: &Datagram| (datagram.addresses.dst().is_ipv4(), datagram.addresses.src().port());
    let first = queue.front().map(kind);
    let same = move |datagram: &&Datagram| Some(kind(datagram)) == first;
    let next = || queue.iter().take(MESSAGES_MAX).take_while(same);
    let to: ArrayVec<socket2::SockAddr, MESSAGES_MAX> =
        next().map(|datagram| datagram.addresses.dst().into()).collect();
    let parts: ArrayVec<[IoSlice<'_>; 1], MESSAGES_MAX> =
        next().map(|datagram| [IoSlice::new(&datagram.bytes)]).collect();
    let messages: ArrayVec<Outgoing<'_>, MESSAGES_MAX> = next()
        .zip(to.iter().zip(&parts))
        .map(|(datagram, (to, parts))| {
            let from = is_wildcard.then(|| datagram.addresses.src().ip());
            Outgoing { to, from, parts, segment: None, marking: datagram.marking }
        })
        .collect();
    socket.send(&messages)
}

/// Time that a packet waits for a NIC of this machine to read its ring: a tick of a busy machine. Everything else waits
/// with it, so a NIC that does not read in this time is not waited for again.
const ROOM_WAIT: Duration = Duration::from_ms(5);

/// Number of queued datagrams from which on no more responses to unknown senders are created; an unanswered sender
/// retransmits its request.
const ANSWERS_MAX: usize = 64;

/// Maximum number of buffers kept for reuse: the part of a window that impairment typically delays.
const SPARE_MAX: usize = 64;

/// Number of IP versions.
const LANES_MAX: usize = 2;

/// Number of immediate retries after network errors, which may concern earlier datagrams.
const LATE_ERRORS_MAX: u32 = 4;

/// Delayed errors that are read per call, so that a flood of ICMP messages does not block the NIC.
const LATE_ERRORS_AT_ONCE: usize = 16;

/// Time between two checks of a path with a small MTU: routes change in seconds, and a check costs a few system calls.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
