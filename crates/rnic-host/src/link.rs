//! The line between the NIC and the kernel: what is sent leaves here, or is kept until it can.
//!
//! Nothing that the engine hands out is lost here. When the kernel has no room, what it did not take is kept, and the
//! engine is not asked for more until that has left. Packets that are kept have been copied, because the program may
//! take their memory back meanwhile.
//!
//! The kernel cuts a train into packets with consecutive IPv4 identifications, starting at 0. To NICs of ours the ICRC
//! of each is computed for identification 0, and that is what they check; a capture taken outside of us may therefore
//! call the ICRC of all but the first packet of a train wrong. Captures that we write are right. To real RoCEv2 peers
//! the ICRC is computed for what leaves ([`numbered`]).

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

use batch::{Acks, Batch, Train, Way};
use lane::Lane;

/// The sending side of a NIC, and what both sides share.
#[derive(Debug)]
pub(crate) struct Link {
    /// At least one; with several, one for each IP version.
    pub(crate) lanes: ArrayVec<Lane, LANES_MAX>,
    /// Packets must say where they come from: the sockets are bound to all addresses.
    is_wildcard: bool,
    /// How a peer's UDP port is found.
    pub(crate) ports: Ports,
    pub(crate) peers: Peers,
    /// What unreliable packets wait for.
    pub(crate) credits: Credits,
    pub(crate) hellos: Hellos,
    /// Identifications of packets from real RoCEv2 peers over IPv4.
    identifications: Option<Box<Identifications>>,
    /// The kernel cuts trains.
    pub(crate) segmentation: bool,
    /// Held by a NIC at one address that it has among NICs that share the port.
    pub(crate) claim: Option<UnixDatagram>,
    /// Connection management with real RoCEv2 peers.
    pub(crate) gsi: Option<Arc<GsiPort>>,
    /// The wire within this machine.
    pub(crate) bypass: Option<Box<Bypass>>,
    /// Ready to go through memory that has no room, oldest first.
    crowded: VecDeque<Crowded>,
    /// Ready to leave, oldest first.
    held: VecDeque<Datagram>,
    /// Ready to leave, too large for their path.
    wide: VecDeque<Datagram>,
    /// Not ready to leave.
    line: DelayLine,
    /// Buffers of datagrams that have left the line, to be used again.
    spare: Vec<Vec<u8>>,
    /// The network has reported errors that nobody has looked at.
    pub(crate) has_late_errors: bool,
    /// Answers about credit are ready to leave.
    pub(crate) has_answers: bool,
    pub(crate) capture: Option<CaptureTo>,
    pub(crate) stats: NicStats,
    pub(crate) notices: Notices,
}

/// A packet that waits for room in memory.
#[derive(Debug)]
struct Crowded {
    target: (PeerId, u16),
    bytes: Vec<u8>,
    kind: Kind,
    since: Time,
}

/// How a peer's UDP port is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ports {
    /// Each peer has one.
    OfPeer,
    /// Each queue pair's number names one ([`crate::ports`]).
    OfQueuePair,
    /// All have that of RoCEv2.
    RoceV2,
}

/// What an error of the kernel means for the datagram or train that it was asked to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// No room now.
    Full,
    /// Too large for the path.
    TooLarge,
    /// Trains cannot be cut on this way.
    NoSegmentation,
    /// Perhaps about an earlier datagram, perhaps for good.
    Network,
    /// For good.
    Never,
}

impl Refusal {
    fn of(error: &io::Error, is_train: bool) -> Self {
        match error.raw_os_error() {
            // With errors reported, ENOBUFS also says that a queue of the interface was full and the packet is gone.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Self::Full,
            Some(libc::EMSGSIZE) => Self::TooLarge,
            // What the kernel says to segments that do not fit the path.
            Some(libc::EINVAL) if is_train => Self::TooLarge,
            Some(libc::EIO) if is_train => Self::NoSegmentation,
            Some(errno) if is_network_error(errno) => Self::Network,
            _ => Self::Never,
        }
    }
}

/// Whether `errno` is what ICMP messages and routing are reported as.
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
            crowded: VecDeque::new(),
            claim: None,
            gsi: None,
            bypass: None,
            held: VecDeque::new(),
            wide: VecDeque::new(),
            line: DelayLine::default(),
            spare: Vec::new(),
            has_late_errors: false,
            has_answers: false,
            capture: None,
            stats: NicStats::default(),
            notices: Notices::default(),
        }
    }

    /// No queue pair is connected to `target` any more: the ring there is given up, unless packets wait for room in it.
    pub(crate) fn release_ring(&mut self, now: Time, target: (PeerId, u16)) {
        if let Some(bypass) = &mut self.bypass
            && !self.crowded.iter().any(|waiting| waiting.target == target)
        {
            bypass.release(now, target);
        }
    }

    /// Whether something is ready to leave that there was no room for.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.is_held_by_kernel() || !self.crowded.is_empty()
    }

    /// Whether it is the kernel that had no room.
    #[inline]
    pub(crate) fn is_held_by_kernel(&self) -> bool {
        !self.held.is_empty() || !self.wide.is_empty()
    }

    /// When the next delayed packet leaves.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.line.next_due()
    }

    /// Packets that are delayed are lost.
    pub(crate) fn lose_delayed(&mut self) {
        self.line.clear();
    }

    /// Own address and port.
    #[inline]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.lanes[0].local_addr()
    }

    /// The lane to `ip`. A NIC at one address knows peers of its IP version only.
    #[inline]
    pub(crate) fn lane_of(&self, ip: IpAddr) -> usize {
        self.lanes.iter().position(|lane| lane.carries(ip)).unwrap_or(0)
    }

    /// The UDP port of `peer` that `dest_qpn` lives on.
    #[inline]
    pub(crate) fn port_of(&self, peer: &Peer, dest_qpn: Qpn) -> u16 {
        match self.ports {
            Ports::OfQueuePair => ports::port_of(dest_qpn),
            Ports::OfPeer | Ports::RoceV2 => peer.addresses.dst().port(),
        }
    }

    /// How the peer that sends from `source` is called.
    #[inline]
    pub(crate) fn peer_at(&self, source: SocketAddr) -> SocketAddr {
        if self.ports == Ports::OfPeer { source } else { SocketAddr::new(source.ip(), UDP_PORT) }
    }

    /// Our address that a socket bound to all of them must name.
    pub(crate) fn source_of(&self, addresses: &Addresses) -> Option<IpAddr> {
        self.is_wildcard.then(|| addresses.src().ip())
    }

    /// Adds a datagram to the capture, if there is one.
    #[inline]
    pub(crate) fn capture(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        self.capture_marked(now, addresses, bytes, Marking::NONE);
    }

    /// The same for one that is marked.
    #[inline]
    pub(crate) fn capture_marked(&mut self, now: Time, addresses: &Addresses, bytes: &[u8], marking: Marking) {
        if self.capture.is_some() {
            let fields = IpFields { identification: self.identification_of(addresses, bytes), ..marking.fields() };
            record(&mut self.capture, &mut self.stats, &mut self.notices, now, addresses, fields, bytes);
        }
    }

    /// Decides what impairment does to a packet of `len` bytes on `way`. `copy` makes the datagram when one is needed,
    /// in a buffer that may hold an old one. Answers whether the packet leaves now.
    ///
    /// # Errors
    /// When `copy` fails: nothing was done to the packet then.
    pub(crate) fn impair(
        &mut self,
        now: Time,
        way: Way,
        len: u32,
        copy: impl FnOnce(&Addresses, &mut Vec<u8>) -> Result<(), MemoryFault>,
    ) -> Result<bool, MemoryFault> {
        let addresses = self.addresses_of(way);
        let Self { peers, line, spare, stats, .. } = self;
        let peer = peers.get_mut(way.peer);
        let Some(impairment) = &mut peer.impairment else { return Ok(true) };
        let fate: Fate = impairment.judge(now, peer.addresses.ip_version(), len, &mut stats.impairment);
        line.overtake(impairment, now);
        if let Some((last, others)) = fate.copies.split_last() {
            let mut bytes = spare.pop().unwrap_or_default();
            copy(&addresses, &mut bytes)?;
            let datagram = Datagram { addresses, bytes, marking: way.marking };
            let mut insert = |late, datagram| {
                stats.impairment.queue_full += u64::from(!line.insert(late, datagram, impairment));
            };
            others.iter().for_each(|late| insert(late, datagram.clone()));
            insert(last, datagram);
        }
        Ok(fate.passes)
    }

    /// Adds datagrams whose delay is over to the batch: on the wire they are behind the packets that are there already,
    /// and cost the kernel no more than those. What goes through memory, has an ICRC for leaving by itself, or finds no
    /// room, leaves later ([`Self::send_waiting`]).
    pub(crate) fn join_delayed(&mut self, now: Time, batch: &mut Batch<'_>, acks: &Acks) {
        while let Some((way, marking)) = self.line.first_due(now).map(|datagram| (datagram.addresses, datagram.marking))
            && batch.has_room(acks)
            && let Some(peer) = self.peers.find(self.peer_at(way.dst()), way.src().ip())
            && !self.peers.get(peer).is_local
            && !self.is_numbered(peer)
            && let Some(Datagram { bytes, .. }) = self.line.pop_due(now)
        {
            let path = self.lanes[self.lane_of(way.dst().ip())].path_from(way.src().port());
            let way = Way { peer, port: way.dst().port(), path, marking };
            let copied = batch.add_with(way, bytes.len() as u32, self.segmentation, |out| {
                out.copy_from_slice(&bytes);
                Ok(())
            });
            copied.expect("a copy of our own cannot be gone");
            self.reuse(bytes);
        }
    }

    fn reuse(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }

    /// Sends `bytes`, a whole datagram, soon: it goes through impairment like any other.
    pub(crate) fn send_soon(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
        let peer = self.peers.find(self.peer_at(addresses.dst()), addresses.src().ip());
        let Some(peer) = peer else { return self.answer_stranger(now, addresses, bytes) };
        let way = Way { peer, port: addresses.dst().port(), path: 0, marking: Marking::NONE };
        let passes = self.impair(now, way, bytes.len() as u32, |_, copy| {
            copy.clear();
            copy.extend_from_slice(bytes);
            Ok(())
        });
        if passes.expect("a copy of our own cannot be gone") {
            self.capture(now, addresses, bytes);
            self.held.push_back(Datagram { addresses: *addresses, bytes: bytes.to_vec(), marking: Marking::NONE });
        }
    }

    /// Sends a datagram to somebody who is no peer, now or never: whoever asks in vain asks again. Questions may come
    /// in other names than the asker's own, and the kernel keeps answers to hosts that are not there for seconds. So
    /// nothing waits for room for them, and half of the socket's is left to peers.
    #[cold]
    fn answer_stranger(&mut self, now: Time, addresses: &Addresses, bytes: &[u8]) {
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
                // Perhaps about an earlier datagram.
                Err(error) if Refusal::of(&error, false) == Refusal::Network => self.has_late_errors = true,
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

    /// Counts a packet that nobody will acknowledge; one that cannot be lost any more has as good as arrived.
    #[inline]
    pub(crate) fn count_unacknowledged(&mut self, transmit: &Transmit, is_safe: bool) {
        let port = self.port_of(self.peers.get(transmit.peer), transmit.packet.dest_qpn);
        if is_safe {
            self.credits.arrived(transmit.peer);
        } else {
            self.credits.sent(transmit.peer, port);
        }
    }

    /// Where a datagram comes from that answers somebody at `to`, and is to come from our address `from`.
    pub(crate) fn way_back(&self, from: IpAddr, to: SocketAddr) -> Option<Addresses> {
        let port = self.lanes[self.lane_of(to.ip())].sender().local_addr().port();
        Addresses::new(SocketAddr::new(from, port), to).ok()
    }

    /// Whether so many datagrams are ready to leave that no more should be made for strangers.
    pub(crate) fn is_crowded_by_answers(&self) -> bool {
        self.held.len() >= ANSWERS_MAX
    }

    /// Keeps a packet for a peer whose path is too narrow for it.
    pub(crate) fn send_fragmentable(&mut self, now: Time, addresses: &Addresses, bytes: Vec<u8>, marking: Marking) {
        if !self.may_fragment(addresses) {
            self.stats.datagrams_refused += 1;
            return;
        }
        self.capture_marked(now, addresses, &bytes, marking);
        self.wide.push_back(Datagram { addresses: *addresses, bytes, marking });
    }

    /// Sends datagrams that have waited and need not wait any longer; answers whether any left.
    pub(crate) fn send_waiting(&mut self, now: Time) -> bool {
        let mut any = self.end_delays(now, now);
        if !self.crowded.is_empty() {
            any |= self.send_crowded(now);
        }
        if !self.is_held_by_kernel() {
            return any;
        }
        any |= self.send_queue(now, false);
        if !self.wide.is_empty() && self.lanes.iter_mut().all(|lane| lane.allow_fragments(true).is_ok()) {
            any |= self.send_queue(now, true);
            // When this fails nobody can be told; packets would be fragmented where they need not.
            self.lanes.iter_mut().for_each(|lane| drop(lane.allow_fragments(false)));
        }
        any
    }

    /// Sends everything that waits: nobody will be there to send it later. What an impairment delays would be under way
    /// on a real network, and arrive although its sender has gone.
    pub(crate) fn send_all(&mut self, now: Time) {
        self.end_delays(now, Time::from_ps(u64::MAX));
        self.send_waiting(now);
        if let Some(bypass) = &mut self.bypass {
            bypass.publish(now);
        }
    }

    /// Takes datagrams that are due by `due` from the delay line; answers whether any left.
    fn end_delays(&mut self, now: Time, due: Time) -> bool {
        let mut any = false;
        while let Some(datagram) = self.line.pop_due(due) {
            self.capture_marked(now, &datagram.addresses, &datagram.bytes, datagram.marking);
            if self.send_sealed(now, &datagram) {
                any = true;
            } else {
                self.held.push_back(datagram);
            }
        }
        any
    }

    /// Sends a whole datagram through memory, if its peer is there; answers whether it is gone.
    fn send_sealed(&mut self, now: Time, datagram: &Datagram) -> bool {
        let way = &datagram.addresses;
        let called = self.peer_at(way.dst());
        let Self { bypass: Some(bypass), peers, stats, crowded, .. } = self else { return false };
        let Some(peer) = peers.find(called, way.src().ip()).filter(|peer| peers.get(*peer).is_local) else {
            return false;
        };
        let (bytes, target) = (&datagram.bytes, (peer, way.dst().port()));
        let kind = Kind { is_sealed: true, marking: datagram.marking };
        let taken = bypass.send_own(now, target, bytes, kind);
        stats.count_bypass(taken, bytes.len());
        if taken == Taken::Full {
            crowded.push_back(Crowded { target, bytes: bytes.clone(), kind, since: now });
        }
        taken != Taken::No
    }

    /// Keeps a packet for another NIC of this machine whose memory has no room.
    #[cold]
    pub(crate) fn wait_for_room(&mut self, now: Time, target: (PeerId, u16), bytes: Vec<u8>, kind: Kind) {
        self.crowded.push_back(Crowded { target, bytes, kind, since: now });
    }

    /// Puts packets into memory that had no room; answers whether any found some.
    #[cold]
    fn send_crowded(&mut self, now: Time) -> bool {
        let Self { bypass: Some(bypass), stats, crowded, .. } = self else { return false };
        let mut any = false;
        while let Some(Crowded { target, bytes, kind, since }) = crowded.front() {
            let taken = bypass.send_own(now, *target, bytes, *kind);
            let is_late = now.since(*since) > ROOM_WAIT;
            match taken {
                Taken::Full if !is_late => break,
                Taken::Full => bypass.stop_waiting_for(*target),
                _ => {}
            }
            stats.count_bypass(if taken == Taken::Yes { taken } else { Taken::Lost }, bytes.len());
            any |= taken == Taken::Yes;
            crowded.pop_front();
        }
        bypass.publish(now);
        any
    }

    /// Sends the trains of a batch. What the kernel has no room for is kept.
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
                    // No port is below those of NICs: the kernel does not send there, whatever it says of the size.
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
                        self.has_late_errors = true;
                        tries += 1;
                        continue;
                    }
                    Refusal::Network | Refusal::Never => self.stats.datagrams_refused += u64::from(train.count),
                },
            }
            (first, tries) = (first + 1, 0);
        }
    }

    /// Offers the trains from `first` on to the kernel.
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
        self.held.extend(packets.into_iter().map(|bytes| Datagram { addresses, bytes, marking }));
    }

    /// Returns whether packets that do not fit the path may be cut on it. Adapters never do so, and the ICRC of RoCEv2
    /// covers the identification, which the kernel chooses for an IPv4 packet that may be cut: no peer would take it.
    fn may_fragment(&self, addresses: &Addresses) -> bool {
        self.ports != Ports::RoceV2 || addresses.ip_version() == IpVersion::V6
    }

    /// The packets of a train do not fit the path: they are sent in a way that lets the network cut them.
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
        self.wide.extend(packets.into_iter().map(|bytes| Datagram { addresses, bytes, marking }));
    }

    /// Notes that the path to `peer` is too narrow.
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

    /// From which port to which packets on `way` go.
    fn addresses_of(&self, way: Way) -> Addresses {
        let Way { peer, port, path, .. } = way;
        let way = self.peers.get(peer).way(port);
        if path == 0 {
            return way;
        }
        let port = self.lanes[self.lane_of(way.dst().ip())].sender_on(path).local_addr().port();
        Addresses::new(SocketAddr::new(way.src().ip(), port), way.dst()).expect("the IP versions are those of a peer")
    }

    /// Sends what is ready, or what is ready and may be fragmented; answers whether anything left.
    fn send_queue(&mut self, now: Time, fragmentable: bool) -> bool {
        let (mut any, mut tries) = (false, 0);
        loop {
            let queue = if fragmentable { &mut self.wide } else { &mut self.held };
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
                self.has_late_errors = true;
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
                        self.wide.push_back(datagram);
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

    /// Takes the late errors of the network: marks peers whose path is narrow and answers which addresses cannot be
    /// reached.
    pub(crate) fn heed_late_errors(&mut self, now: Time) -> ArrayVec<Unreachable, LATE_ERRORS_AT_ONCE> {
        let mut unreachable = ArrayVec::new();
        for _ in 0..LATE_ERRORS_AT_ONCE {
            let Some(DeferredError { to, errno, quoted }) = self.lanes.iter().find_map(Lane::take_deferred_error)
            else {
                self.has_late_errors = false;
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

    /// Looks whether the path to a peer whose packets are fragmented has become wider, once in a while.
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

/// A report that a datagram of ours cannot be delivered. Anybody can make one: `quoted` has to prove it.
#[derive(Clone, Debug)]
pub(crate) struct Unreachable {
    /// Where the datagram was going.
    pub(crate) address: SocketAddr,
    pub(crate) errno: i32,
    /// How the datagram began, as the report says.
    pub(crate) quoted: Quoted,
}

/// Offers datagrams of one IP version and from one port, from the front of `queue`, to the kernel.
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

/// How long a packet waits for a NIC of this machine to read what is there: a tick of a busy machine. Everything else
/// waits with it, so one that does not read is not waited for again.
const ROOM_WAIT: Duration = Duration::from_ms(5);

/// Answers that wait for the kernel, at most: whoever asks in vain asks again.
const ANSWERS_MAX: usize = 64;

/// Buffers that wait to be used again, at most: what a bad network holds back of a window.
const SPARE_MAX: usize = 64;

/// IP versions.
const LANES_MAX: usize = 2;

/// Times that an error of the network may be about something earlier, and sending is tried again at once.
const LATE_ERRORS_MAX: u32 = 4;

/// Late errors that are read at a time: a flood of ICMP messages must not keep us from our work.
const LATE_ERRORS_AT_ONCE: usize = 16;

/// How long a narrow path is taken for narrow: routes change in seconds, and looking costs a few system calls.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
