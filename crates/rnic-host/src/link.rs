//! The interface between the NIC and the kernel: packets are sent here, or queued until they can be sent.
//!
//! No packet that the engine outputs is lost here. When the kernel has no buffer space, the packets that it did not
//! accept are queued, and no more packets are requested from the engine until these have been sent. Queued packets
//! have been copied, because the program may reuse their memory meanwhile.
//!
//! The kernel splits a train into packets with consecutive IPv4 identifications, starting at 0. For OpenRNIC peers
//! the ICRC of each packet is computed with identification 0, and those peers check it that way; a capture made by
//! another tool may therefore report the ICRC of all but the first packet of a train as wrong. Captures written by
//! this crate are right. For real RoCEv2 peers the ICRC is computed with the identification that is actually sent
//! ([`numbered`]).

pub(crate) mod batch;
mod delayed;
pub(crate) mod lane;
mod message;
mod numbered;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_engine::{PeerId, Transmit};
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, IpFields, IpVersion, Qpn};

use crate::bypass::{Bypass, RecordKind, RingResult};
use crate::capture::{CaptureTo, record};
use crate::cm::GsiPort;
use crate::credit::Credits;
use crate::datagram::Datagram;
use crate::hello::Hellos;
use crate::identification::Identifications;
use crate::impair::DelayLine;
use crate::ip_fields::PackedIpFields;
use crate::notice::{Notice, Notices};
use crate::paths::ProbedPaths;
use crate::peer::{Peer, Peers};
use crate::ports;
use crate::share::Share;
use crate::stats::NicStats;
use crate::sys::{DeferredError, MESSAGES_MAX, Outgoing, Quoted, UdpSocket};
use crate::traffic_class::TrafficClasses;

use batch::{Batch, SendPath, Train};
use lane::Lane;

/// The sending side of a NIC, and the state that both sides share.
#[derive(Debug)]
pub(crate) struct Link {
    /// Sockets by IP version (lanes): at least one entry, and at most one for each IP version.
    pub(crate) lanes: ArrayVec<Lane, LANES_MAX>,
    /// True when packets must specify their source address, because the sockets are bound to all addresses.
    is_wildcard: bool,
    /// Method of determining a peer's UDP port.
    pub(crate) ports: Ports,
    pub(crate) peers: Peers,
    /// Flow control of unreliable packets.
    pub(crate) credits: Credits,
    pub(crate) hellos: Hellos,
    /// Source ports of queue pairs whose path policy probes.
    pub(crate) paths: ProbedPaths,
    /// Traffic classes of connected queue pairs.
    pub(crate) classes: TrafficClasses,
    /// Identifications of the packets received from real RoCEv2 peers over IPv4.
    identifications: Option<Box<Identifications>>,
    /// True when the kernel splits large buffers into packets (GSO).
    pub(crate) segmentation: bool,
    /// True while acknowledgements to one peer may be in one buffer: the kernel splits large buffers, and no queue pair
    /// has had a traffic class.
    pub(crate) acks_share_trains: bool,
    /// Lock on the address, for a NIC that uses port 4791 of a single address while other NICs share that port for
    /// sending: prevents a second such NIC at this address.
    pub(crate) claim: Option<UnixDatagram>,
    /// General services interface, used for connection management with real RoCEv2 peers.
    pub(crate) gsi: Option<Arc<GsiPort>>,
    /// Shared memory through which packets to NICs of the same host are sent.
    pub(crate) bypass: Option<Box<Bypass>>,
    /// State for sharing a link or its capacity with the other NICs of the user, if enabled.
    pub(crate) share: Option<Box<Share>>,
    /// Packets that wait for space in a shared-memory ring, oldest first.
    ring_backlog: VecDeque<WaitingForRing>,
    /// Datagrams that are ready to be sent, oldest first.
    tx_backlog: VecDeque<Datagram>,
    /// Datagrams that are ready to be sent, but larger than the path MTU.
    fragment_backlog: VecDeque<Datagram>,
    /// Datagrams delayed by impairment or by the shared link.
    delay_line: DelayLine,
    /// Buffers of datagrams that have left the delay line, which are reused.
    free_buffers: Vec<Vec<u8>>,
    /// True while errors that the network has reported have not been read.
    pub(crate) has_pending_errors: bool,
    /// Set while credit responses are ready to be sent.
    pub(crate) has_responses: bool,
    pub(crate) capture: Option<CaptureTo>,
    /// Reason for which packets are sent from the NIC's own port instead of 4791; `None` if they are sent from 4791.
    pub(crate) source_port_refusal: Option<String>,
    pub(crate) stats: NicStats,
    pub(crate) notices: Notices,
}

/// A packet that waits for space in a shared-memory ring.
#[derive(Debug)]
struct WaitingForRing {
    target: (PeerId, u16),
    bytes: Vec<u8>,
    kind: RecordKind,
    since: Time,
}

/// Method of determining a peer's UDP port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ports {
    /// Each peer has one port.
    OfPeer,
    /// The number of each queue pair encodes a port ([`crate::ports`]).
    OfQueuePair,
    /// All peers use port 4791, the port of RoCEv2.
    RoceV2,
}

/// Meaning of a kernel error for the datagram, or the batch of datagrams (GSO), that was to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// The kernel currently has no buffer space.
    Full,
    /// The packet is larger than the path MTU.
    TooLarge,
    /// Trains cannot be split on this path.
    NoSegmentation,
    /// A network error. It may have been caused by an earlier datagram, and it may be permanent.
    Network,
    /// A permanent error.
    Never,
}

impl Refusal {
    fn of(error: &io::Error, is_train: bool) -> Self {
        match error.raw_os_error() {
            // On sockets that report errors, ENOBUFS can also mean that a queue of the interface was full and the
            // packet is lost.
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

/// Returns whether `errno` was caused by an ICMP message or a routing failure.
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
        let segmentation = segmentation && lanes[0].sender().has_segmentation();
        Self {
            is_wildcard: lanes[0].local_addr().ip().is_unspecified(),
            segmentation,
            acks_share_trains: segmentation,
            lanes,
            ports,
            identifications: (ports == Ports::RoceV2).then(Box::default),
            peers: Peers::default(),
            credits: Credits::default(),
            hellos: Hellos::default(),
            paths: ProbedPaths::default(),
            classes: TrafficClasses::default(),
            ring_backlog: VecDeque::new(),
            claim: None,
            gsi: None,
            bypass: None,
            share: None,
            tx_backlog: VecDeque::new(),
            fragment_backlog: VecDeque::new(),
            delay_line: DelayLine::default(),
            free_buffers: Vec::new(),
            has_pending_errors: false,
            has_responses: false,
            capture: None,
            source_port_refusal: None,
            stats: NicStats::default(),
            notices: Notices::default(),
        }
    }

    /// Releases the ring to `target` after its last queue pair has been disconnected, unless packets wait for space
    /// in the ring.
    pub(crate) fn release_ring(&mut self, now: Time, target: (PeerId, u16)) {
        if let Some(bypass) = &mut self.bypass
            && !self.ring_backlog.iter().any(|waiting| waiting.target == target)
        {
            bypass.release(now, target);
        }
    }

    /// Forgets a queue pair that is no longer connected.
    pub(crate) fn disconnected(&mut self, qpn: Qpn) {
        self.hellos.disconnected(qpn);
        self.paths.disconnect(qpn);
        self.classes.forget(qpn);
    }

    /// Sets the traffic class of a queue pair that is connected to `peer`.
    pub(crate) fn set_traffic_class(&mut self, qpn: Qpn, peer: PeerId, class: u8) {
        if self.peers.look_up(peer).is_some() && self.classes.set(qpn, class) {
            self.peers.get_mut(peer).differs_by_queue_pair = true;
            self.acks_share_trains = false;
        }
    }

    /// Returns whether `addresses` lead from the host of `peer` to this one, whatever the ports.
    pub(crate) fn is_between(&self, peer: PeerId, addresses: &Addresses) -> bool {
        self.peers.look_up(peer).is_some_and(|known| {
            let (own, its) = (known.addresses.src(), known.addresses.dst());
            (addresses.src().ip(), addresses.dst().ip()) == (its.ip(), own.ip())
        })
    }

    /// Returns whether no packets must be taken from the engine: earlier ones wait for space, or the queue of the
    /// shared link is full.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked_on_space() || self.share.as_ref().is_some_and(|share| share.is_full())
    }

    /// Returns whether packets queue for a shared link.
    #[inline]
    pub(crate) fn has_shared_link(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.has_link())
    }

    /// Returns whether packets wait for buffer space of the kernel or for space in a shared-memory ring.
    #[inline]
    pub(crate) fn is_blocked_on_space(&self) -> bool {
        self.is_blocked_by_kernel() || !self.ring_backlog.is_empty()
    }

    /// Returns whether packets wait for buffer space of the kernel.
    #[inline]
    pub(crate) fn is_blocked_by_kernel(&self) -> bool {
        !self.tx_backlog.is_empty() || !self.fragment_backlog.is_empty()
    }

    /// Returns the local address and port.
    #[inline]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.lanes[0].local_addr()
    }

    /// Returns the index of the sockets (lane) for packets to `ip`. A NIC bound to a single address has only peers with
    /// the IP version of that address.
    #[inline]
    pub(crate) fn lane_of(&self, ip: IpAddr) -> usize {
        self.lanes.iter().position(|lane| lane.carries(ip)).unwrap_or(0)
    }

    /// Returns the UDP port of `peer` to which packets for `dest_qpn` are sent.
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

    /// Returns the local address that must be specified for a packet because the socket is bound to all addresses;
    /// `None` if the socket is bound to one.
    pub(crate) fn source_of(&self, addresses: &Addresses) -> Option<IpAddr> {
        self.is_wildcard.then(|| addresses.src().ip())
    }

    /// Adds a datagram to the capture, if a capture is active.
    #[inline]
    pub(crate) fn capture(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        self.capture_with_fields(now, addresses, bytes, PackedIpFields::NONE);
    }

    /// Adds a datagram with these IP fields to the capture, if a capture is active.
    #[inline]
    pub(crate) fn capture_with_fields(
        &mut self,
        now: Time,
        addresses: &Addresses,
        bytes: &[u8],
        given: PackedIpFields,
    ) {
        if self.capture.is_some() {
            let fields = IpFields { identification: self.identification_of(addresses, bytes), ..given.fields() };
            record(&mut self.capture, &mut self.stats, &mut self.notices, now, addresses, fields, bytes);
        }
    }

    /// Queues `bytes`, a complete datagram, for sending. Impairment is applied to it as to any other packet.
    pub(crate) fn queue_datagram(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        let peer = self.peers.find(self.peer_at(addresses.dst()), addresses.src().ip());
        let Some(peer) = peer else { return self.reply_to_unknown(now, addresses, bytes) };
        let path = SendPath { peer, port: addresses.dst().port(), path: 0, ip_fields: PackedIpFields::NONE };
        let passes = self.impair(now, path, bytes.len() as u32, |_, copy| {
            copy.clear();
            copy.extend_from_slice(bytes);
            Ok(())
        });
        if passes.expect("NIC memory is mapped") {
            self.capture(now, addresses, bytes);
            self.tx_backlog.push_back(Datagram {
                addresses: *addresses,
                bytes: bytes.to_vec(),
                ip_fields: PackedIpFields::NONE,
            });
        }
    }

    /// Sends a response to a sender that is not a registered peer. If it cannot be sent immediately, it is dropped,
    /// and the sender retransmits its request. Source addresses of requests may be forged, and the kernel holds
    /// responses to hosts that do not exist for seconds. So no response is queued, and half of the socket's buffer
    /// space is reserved for peers.
    #[cold]
    fn reply_to_unknown(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        let to = addresses.dst().into();
        let parts = [IoSlice::new(bytes)];
        let from = self.source_of(addresses);
        let message = Outgoing { to: &to, from, parts: &parts, segment: None, ip_fields: PackedIpFields::NONE };
        let socket = self.lanes[self.lane_of(addresses.dst().ip())].sender();
        let (mut is_sent, mut tries) = (false, 0);
        while socket.is_half_free() && !is_sent && tries < DEFERRED_ERROR_RETRIES {
            tries += 1;
            match socket.send(&[message]) {
                Ok(_) => is_sent = true,
                // The error may have been caused by an earlier datagram.
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

    /// Counts a packet that will not be acknowledged. If `is_safe`, it can no longer be lost and counts as arrived.
    #[inline]
    pub(crate) fn count_unacknowledged(&mut self, transmit: &Transmit, is_safe: bool) {
        let port = self.port_of(self.peers.get(transmit.peer), transmit.packet.dest_qpn);
        if is_safe {
            self.credits.arrived(transmit.peer);
        } else {
            self.credits.sent(transmit.peer, port);
        }
    }

    /// Returns the addresses for a response that is sent to `to` from the local address `from`.
    pub(crate) fn reply_addresses(&self, from: IpAddr, to: SocketAddr) -> Option<Addresses> {
        let port = self.lanes[self.lane_of(to.ip())].sender().local_addr().port();
        Addresses::new(SocketAddr::new(from, port), to).ok()
    }

    /// Returns whether too many datagrams are queued to create more responses to unknown senders.
    pub(crate) fn has_many_queued_responses(&self) -> bool {
        self.tx_backlog.len() >= QUEUED_RESPONSES_MAX
    }

    /// Queues a packet that is larger than the path MTU, if it may be fragmented.
    pub(crate) fn send_fragmentable(
        &mut self,
        now: Time,
        addresses: &Addresses,
        bytes: Vec<u8>,
        ip_fields: PackedIpFields,
    ) {
        if !self.may_fragment(addresses) {
            self.stats.datagrams_refused += 1;
            return;
        }
        self.capture_with_fields(now, addresses, &bytes, ip_fields);
        self.fragment_backlog.push_back(Datagram { addresses: *addresses, bytes, ip_fields });
    }

    /// Sends queued datagrams whose delay has expired, or which a ring or the kernel now accepts. Returns whether any
    /// datagram was sent.
    pub(crate) fn send_waiting(&mut self, now: Time) -> bool {
        let mut any = self.end_delays(now, now);
        // No batch may follow that would publish these packets.
        if let Some(bypass) = self.bypass.as_mut().filter(|_| any) {
            bypass.publish(now);
        }
        if !self.ring_backlog.is_empty() {
            any |= self.send_ring_backlog(now);
        }
        if !self.is_blocked_by_kernel() {
            return any;
        }
        any |= self.send_queue(now, false);
        if !self.fragment_backlog.is_empty() && self.lanes.iter_mut().all(|lane| lane.allow_fragments(true).is_ok()) {
            any |= self.send_queue(now, true);
            // If this fails, the error cannot be reported; later packets would then be fragmented unnecessarily.
            self.lanes.iter_mut().for_each(|lane| drop(lane.allow_fragments(false)));
        }
        any
    }

    /// Sends all queued packets, because the NIC will not be driven again. Packets delayed by impairment are sent
    /// immediately: on a real network these would be in flight, and would arrive after their sender has exited.
    pub(crate) fn send_all(&mut self, now: Time) {
        self.end_delays(now, Time::from_ps(u64::MAX));
        self.send_waiting(now);
        if let Some(bypass) = &mut self.bypass {
            bypass.publish(now);
        }
    }

    /// Queues a packet for another NIC of this machine because the ring to that NIC is full.
    #[cold]
    pub(crate) fn queue_for_ring(&mut self, now: Time, target: (PeerId, u16), bytes: Vec<u8>, kind: RecordKind) {
        self.ring_backlog.push_back(WaitingForRing { target, bytes, kind, since: now });
    }

    /// Retries packets whose ring was full; returns whether any was written.
    #[cold]
    fn send_ring_backlog(&mut self, now: Time) -> bool {
        let Self { bypass: Some(bypass), stats, ring_backlog, .. } = self else { return false };
        let mut any = false;
        while let Some(WaitingForRing { target, bytes, kind, since }) = ring_backlog.front() {
            let result = bypass.send_from_nic(now, *target, bytes, *kind);
            let is_late = now.since(*since) > RING_SPACE_TIMEOUT;
            match result {
                RingResult::Full if !is_late => break,
                RingResult::Full => bypass.stop_waiting_for_ring(*target),
                _ => {}
            }
            stats.count_bypass(if result == RingResult::Sent { result } else { RingResult::Dropped }, bytes.len());
            any |= result == RingResult::Sent;
            ring_backlog.pop_front();
        }
        bypass.publish(now);
        any
    }

    /// Sends the trains of a batch: each is a buffer of packets that the kernel splits (GSO). Packets for which the
    /// kernel has no buffer space are queued.
    pub(crate) fn send_trains(&mut self, now: Time, batch: &Batch<'_>) {
        if self.capture.is_some() {
            self.capture_trains(now, batch);
        }
        let (mut first, mut tries) = (0, 0);
        while first < batch.trains().len() {
            let train = batch.trains()[first];
            match self.submit_trains(batch, first) {
                Ok(count) => {
                    batch.trains()[first..first + count].iter().for_each(|train| self.count_sent(train));
                    self.stats.send_calls += 1;
                    (first, tries) = (first + count, 0);
                    continue;
                }
                Err(error) => match Refusal::of(&error, train.count > 1) {
                    Refusal::Full => {
                        batch.trains()[first..].iter().for_each(|train| self.hold_train(batch, train));
                        return;
                    }
                    // This port is below the range of ports that NICs use, so no NIC has it. The kernel refuses to
                    // send to it, and its error does not mean that the packet is too large.
                    Refusal::TooLarge if self.ports == Ports::OfQueuePair && !ports::is_port_of_nic(train.port) => {
                        self.stats.datagrams_refused += u64::from(train.count);
                    }
                    Refusal::TooLarge => self.queue_fragmentable(now, batch, &train),
                    Refusal::NoSegmentation => {
                        (self.segmentation, self.acks_share_trains) = (false, false);
                        self.notices.push(Notice::SegmentationRefused);
                        self.hold_train(batch, &train);
                    }
                    Refusal::Network if tries < DEFERRED_ERROR_RETRIES => {
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

    /// Submits as many trains (buffers of packets that the kernel splits) as possible to the kernel, starting with the
    /// one at index `first`.
    #[inline]
    fn submit_trains(&self, batch: &Batch<'_>, first: usize) -> io::Result<usize> {
        let lane_to = |train: &Train| (self.lane_of(self.peers.get(train.peer).addresses.dst().ip()), train.path);
        let trains = &batch.trains()[first..];
        let (lane, path) = lane_to(&trains[0]);
        let count = trains.iter().take_while(|train| lane_to(train) == (lane, path)).count();
        let trains = &trains[..count];
        let to: ArrayVec<socket2::SockAddr, MESSAGES_MAX> =
            trains.iter().map(|train| self.peers.get(train.peer).path(train.port).dst().into()).collect();
        let parts: ArrayVec<[IoSlice<'_>; 1], MESSAGES_MAX> =
            trains.iter().map(|train| [IoSlice::new(batch.bytes(train))]).collect();
        let mut messages = ArrayVec::<Outgoing<'_>, MESSAGES_MAX>::new();
        for ((train, to), parts) in trains.iter().zip(&to).zip(&parts) {
            let segment = (train.count > 1).then_some(train.segment as u16);
            let from = self.peers.get(train.peer).from;
            messages.push(Outgoing { to, from, parts, segment, ip_fields: train.ip_fields });
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
    fn hold_train(&mut self, batch: &Batch<'_>, train: &Train) {
        let addresses = self.addresses_of(train.path());
        self.stats.datagrams_held += u64::from(train.count);
        let packets = self.separate_packets(batch, train);
        let ip_fields = train.ip_fields;
        self.tx_backlog.extend(packets.into_iter().map(|bytes| Datagram { addresses, bytes, ip_fields }));
    }

    /// Returns whether packets larger than the path MTU may be fragmented. Adapters never fragment packets. The
    /// kernel chooses the identification of an IPv4 packet that may be fragmented, and the ICRC of RoCEv2 covers the
    /// identification, so no RoCEv2 peer would accept such a packet.
    fn may_fragment(&self, addresses: &Addresses) -> bool {
        self.ports != Ports::RoceV2 || addresses.ip_version() == IpVersion::V6
    }

    /// Queues the packets of `train` that are larger than the path MTU as datagrams that may be fragmented.
    #[cold]
    fn queue_fragmentable(&mut self, now: Time, batch: &Batch<'_>, train: &Train) {
        self.mark_path_mtu_small(now, train.peer);
        let addresses = self.addresses_of(train.path());
        if !self.may_fragment(&addresses) {
            self.stats.datagrams_refused += u64::from(train.count);
            return;
        }
        let packets = self.separate_packets(batch, train);
        let ip_fields = train.ip_fields;
        self.fragment_backlog.extend(packets.into_iter().map(|bytes| Datagram { addresses, bytes, ip_fields }));
    }

    /// Records that the path MTU to `peer` is too small for its packets.
    fn mark_path_mtu_small(&mut self, now: Time, peer: PeerId) {
        let may_fragment = self.may_fragment(&self.peers.get(peer).addresses);
        let peer = self.peers.get_mut(peer);
        if peer.fragmenting.replace(now).is_none() {
            self.stats.path_mtu_reductions += 1;
            let to = peer.addresses.dst();
            self.notices.push(if may_fragment {
                Notice::PathMtuTooSmall(to)
            } else {
                Notice::PathMtuExceeded(to.ip())
            });
        }
    }

    fn capture_trains(&mut self, now: Time, batch: &Batch<'_>) {
        for train in batch.trains() {
            let addresses = self.addresses_of(train.path());
            batch.packets(train).for_each(|bytes| self.capture_with_fields(now, &addresses, bytes, train.ip_fields));
        }
    }

    /// Returns the source and destination addresses of packets that are sent on `path`.
    pub(crate) fn addresses_of(&self, path: SendPath) -> Addresses {
        let SendPath { peer, port, path, .. } = path;
        let addresses = self.peers.get(peer).path(port);
        if path == 0 {
            return addresses;
        }
        let port = self.lanes[self.lane_of(addresses.dst().ip())].sender_on(path).local_addr().port();
        let source = SocketAddr::new(addresses.src().ip(), port);
        Addresses::new(source, addresses.dst()).expect("the IP versions are those of a peer")
    }

    /// Sends the queued datagrams, or if `fragmentable`, those that may be fragmented; returns whether any datagram was
    /// sent.
    fn send_queue(&mut self, now: Time, fragmentable: bool) -> bool {
        let (mut any, mut tries) = (false, 0);
        loop {
            let queue = if fragmentable { &mut self.fragment_backlog } else { &mut self.tx_backlog };
            let Some(path) = queue.front().map(|datagram| datagram.addresses) else { return any };
            let lane = self.lanes.iter().find(|lane| lane.carries(path.dst().ip())).unwrap_or(&self.lanes[0]);
            let socket = lane.sender_on(lane.path_from(path.src().port()));
            let error = match submit_datagrams(socket, queue, self.is_wildcard) {
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
            if error == Refusal::Network && tries < DEFERRED_ERROR_RETRIES {
                self.has_pending_errors = true;
                tries += 1;
                continue;
            }
            tries = 0;
            match queue.pop_front() {
                Some(datagram) if error == Refusal::TooLarge && !fragmentable => {
                    let path = datagram.addresses;
                    if let Some(peer) = self.peers.find(self.peer_at(path.dst()), path.src().ip()) {
                        self.mark_path_mtu_small(now, peer);
                    }
                    if self.may_fragment(&path) {
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

    /// Processes the delayed network errors: marks the peers whose path MTU is too small, and returns the addresses
    /// that cannot be reached.
    pub(crate) fn read_error_queue(&mut self, now: Time) -> ArrayVec<Unreachable, DEFERRED_ERRORS_PER_CALL> {
        let mut unreachable = ArrayVec::new();
        for _ in 0..DEFERRED_ERRORS_PER_CALL {
            let Some(DeferredError { to, errno, quoted }) = self.lanes.iter().find_map(Lane::next_deferred_error)
            else {
                self.has_pending_errors = false;
                break;
            };
            let Some(to) = to else { continue };
            if errno == libc::EMSGSIZE {
                let peers: Vec<PeerId> = self.peers.at(self.peer_at(to)).collect();
                peers.into_iter().for_each(|peer| self.mark_path_mtu_small(now, peer));
            } else if is_network_error(errno) {
                self.stats.network_errors += 1;
                unreachable.push(Unreachable { address: to, errno, quoted });
            }
        }
        unreachable
    }

    /// Returns whether packets to `peer` must still be fragmented; checks from time to time whether the path MTU has
    /// increased.
    pub(crate) fn exceeds_path_mtu(&mut self, now: Time, peer: PeerId, len: u32) -> bool {
        let peer = self.peers.get_mut(peer);
        let Some(since) = peer.fragmenting else { return false };
        if now.since(since) < PATH_MTU_CHECK_INTERVAL {
            return true;
        }
        let ip_len = peer.addresses.ip_version().header_len() + rnic_wire::net::UDP_LEN;
        let fits = crate::sys::route(peer.addresses.src(), peer.addresses.dst())
            .is_ok_and(|route| ip_len + len <= route.mtu_bytes);
        if fits {
            peer.fragmenting = None;
            self.notices.push(Notice::PathMtuRestored(peer.addresses.dst()));
        } else {
            peer.fragmenting = Some(now);
        }
        !fits
    }
}

/// A report that a sent datagram cannot be delivered. Any host can forge such a report: it must be verified with
/// `quoted`.
#[derive(Clone, Debug)]
pub(crate) struct Unreachable {
    /// Destination of the datagram.
    pub(crate) address: SocketAddr,
    pub(crate) errno: i32,
    /// Start of the datagram, as quoted in the report.
    pub(crate) quoted: Quoted,
}

/// Submits datagrams from the front of `queue` to the kernel, up to the first one with another IP version or source
/// port.
fn submit_datagrams(socket: &UdpSocket, queue: &VecDeque<Datagram>, is_wildcard: bool) -> io::Result<usize> {
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
            Outgoing { to, from, parts, segment: None, ip_fields: datagram.ip_fields }
        })
        .collect();
    socket.send(&messages)
}

/// Time that a packet waits for another NIC of this machine to read its ring: a scheduler tick of a busy machine. All
/// other packets wait too, so the time is limited; later packets do not wait again for a NIC that has not read its ring
/// in this time.
const RING_SPACE_TIMEOUT: Duration = Duration::from_ms(5);

/// Number of queued datagrams at which no more responses to unknown senders are created; a sender that gets no
/// response retransmits its request.
const QUEUED_RESPONSES_MAX: usize = 64;

/// Maximum number of lanes (sockets of one IP version): one for each IP version.
const LANES_MAX: usize = 2;

/// Number of immediate retries after network errors, which may have been caused by earlier datagrams.
const DEFERRED_ERROR_RETRIES: u32 = 4;

/// Maximum number of delayed errors that are read per call, so that a flood of ICMP messages does not block the NIC.
const DEFERRED_ERRORS_PER_CALL: usize = 16;

/// Time between two checks of a path with a small MTU: routes change in seconds, and a check costs a few system calls.
const PATH_MTU_CHECK_INTERVAL: Duration = Duration::from_secs(10);
