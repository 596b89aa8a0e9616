//! A separate port of the connection manager: sockets, messages, and the protocol behind them.
//!
//! Programs that use verbs name a UDP port for connection management, as they would for TCP; the kernel reports whether
//! it is free. Only connection management messages use this port, in the format of RoCEv2's port: management datagrams
//! with ICRC. A socket belongs to one IP version; an endpoint bound to all addresses of both has two sockets.
//!
//! No call blocks, and there is no thread here: the owner calls [`Endpoint::receive`] when a socket is readable,
//! [`Endpoint::tick`] when [`Endpoint::next_timeout`] has passed, and [`Endpoint::flush`] after everything else.
//!
//! With real RoCEv2 peers the sockets only reserve the port: nothing is received on them. Messages are sent through the
//! host's general services interface ([`GsiPort`]) and received from there, for whichever endpoint they concern.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rnic_base::limits::MTU_MAX;
use rnic_base::{Duration, Psn, Time};
use rnic_wire::cm::{LookupReply, LookupRequest, Mad, RejectInfo, RejectReason, Reply, Request, ServiceId};
use rnic_wire::{Addresses, IpVersion, Qpn, cm, gsi, icrc};
use socket2::SockAddr;

use super::{CmEvent, ConnectionId, GsiPort, Manager, ServiceKind, gsi_way};
use crate::marking::Marking;
use crate::mtu;
use crate::secrets::Secrets;
use crate::sys::{self, Incoming, Outgoing, ReceiveBatch, SocketOptions, UdpSocket};

/// A socket address, and whether an IPv6 one excludes IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Address to bind; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// True when a binding to all IPv6 addresses does not include those of IPv4.
    pub only_v6: bool,
}

/// Receive buffers, shared by the endpoints of one thread.
pub struct Inbox(ReceiveBatch);

impl Default for Inbox {
    fn default() -> Self {
        Self(ReceiveBatch::new(RECEIVED_AT_ONCE))
    }
}

/// Counters of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndpointStats {
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Datagrams that are not management datagrams, or have a wrong ICRC.
    pub malformed: u64,
    /// Management datagrams that are not connection management messages.
    pub unknown: u64,
    /// Messages that matched no connection.
    pub strays: u64,
    /// Reported errors that quoted no message of this endpoint, so that any host may have forged them.
    pub unproven: u64,
}

/// A connection management port.
#[derive(Debug)]
pub struct Endpoint {
    sockets: ArrayVec<UdpSocket, 2>,
    manager: Manager,
    psn: Psn,
    stats: EndpointStats,
    /// The general services interface through which messages are sent, when they are not sent from the port itself.
    gsi: Option<Arc<GsiPort>>,
}

impl Endpoint {
    /// Creates an endpoint without a port: it responds to messages on the general services interface that belong to no
    /// other endpoint.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn without_owner(gsi: Arc<GsiPort>) -> io::Result<Self> {
        let secrets = Secrets::draw()?;
        let psn = Psn::new(secrets.stream("datagrams").bits() as u32);
        let manager = Manager::new(secrets.stream("connection manager"));
        Ok(Self { sockets: ArrayVec::new(), manager, psn, stats: EndpointStats::default(), gsi: Some(gsi) })
    }

    /// Binds a port. With `gsi`, messages are sent through that interface.
    ///
    /// # Errors
    /// The error of the kernel: `AddrInUse`, `PermissionDenied`, `AddrNotAvailable`.
    pub fn bind(binding: &Binding, gsi: Option<Arc<GsiPort>>) -> io::Result<Self> {
        let drops_all_input = gsi.is_some();
        let secrets = Secrets::draw()?;
        let both = binding.address.ip().is_unspecified() && binding.address.is_ipv6() && !binding.only_v6;
        let mut sockets = ArrayVec::new();
        for _ in 0..BIND_TRIES {
            let first = open(binding.address, drops_all_input)?;
            if !both {
                sockets.push(first);
                break;
            }
            // IPv4 gets the same port. One that the kernel chose may be in use there: then the kernel chooses again.
            let port = first.local_addr().port();
            match open(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), drops_all_input) {
                Ok(second) => {
                    sockets.extend([first, second]);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && binding.address.port() == 0 => {}
                Err(error) => return Err(error),
            }
        }
        if sockets.is_empty() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let psn = Psn::new(secrets.stream("datagrams").bits() as u32);
        let mut manager = Manager::new(secrets.stream("connection manager"));
        manager.patience_with_listeners = PATIENCE_WITH_LISTENERS;
        Ok(Self { sockets, manager, psn, stats: EndpointStats::default(), gsi })
    }

    /// Returns the bound address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.sockets[0].local_addr()
    }

    /// Returns the descriptors to poll for reading.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> {
        self.sockets.iter().filter(|_| self.gsi.is_none()).map(AsRawFd::as_raw_fd)
    }

    /// Returns whether a message on `way`, from the general services interface, is for this endpoint.
    #[must_use]
    pub fn knows(&self, way: &Addresses, mad: &Mad) -> bool {
        let to = way.dst().ip();
        let is_bound_to =
            |own: IpAddr| own.to_canonical() == to || own.is_unspecified() && own.is_ipv4() == to.is_ipv4();
        self.manager.knows(way, mad, self.sockets.iter().any(|socket| is_bound_to(socket.local_addr().ip())))
    }

    /// Processes a message from the general services interface.
    pub fn take_in(&mut self, now: Time, way: &Addresses, mad: Mad) {
        self.stats.received += 1;
        self.manager.receive(now, way, mad);
    }

    /// Handles a network error that reports `address` as unreachable and quotes the message that was sent there.
    pub fn note_unreachable(&mut self, now: Time, address: SocketAddr, errno: i32, quoted: &[u8]) {
        if let Some(id) = self.manager.sender_of(address, quoted) {
            self.manager.unreachable(now, id, errno);
        }
    }

    /// Returns the addresses that messages between these two use.
    fn way(&self, addresses: Addresses) -> Addresses {
        if self.gsi.is_some() { gsi_way(&addresses) } else { addresses }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { strays: self.manager.strays, ..self.stats }
    }

    /// Returns whether a service listens or a connection exists here.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.manager.services() > 0 || self.manager.has_exchanges()
    }

    /// Starts listening for requests; returns false when `service` has a listener already.
    pub fn listen(&mut self, service: ServiceId, kind: ServiceKind, backlog: usize) -> bool {
        self.manager.listen(service, kind, backlog)
    }

    /// Stops listening.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.manager.unlisten(service);
    }

    /// Returns the addresses of a connection, from the local to the remote end, while it is known.
    #[must_use]
    pub fn addresses(&self, id: ConnectionId) -> Option<Addresses> {
        self.manager.get(id).map(|exchange| exchange.addresses)
    }

    /// Requests a connection; the local communication id is filled in. Returns `None` when there are too many.
    pub fn connect(
        &mut self,
        now: Time,
        addresses: Addresses,
        request: Request,
        patience: Duration,
    ) -> Option<ConnectionId> {
        self.manager.connect(now, self.way(addresses), request, patience)
    }

    /// Accepts a request; both communication ids are filled in. Returns false when the request is no longer pending.
    pub fn accept(&mut self, now: Time, id: ConnectionId, reply: Reply, patience: Duration) -> bool {
        self.manager.accept(now, id, reply, patience)
    }

    /// Rejects a request or a reply; returns false when it is no longer pending.
    pub fn reject(&mut self, id: ConnectionId, reason: RejectReason, info: RejectInfo, data: &[u8]) -> bool {
        self.manager.reject(id, reason, info, data)
    }

    /// Confirms that the program has its connection: the remote end may be notified (RTU).
    pub fn confirm(&mut self, id: ConnectionId) {
        self.manager.confirm(id);
    }

    /// Marks a connection as established because the remote end uses it, even if its RTU was lost.
    pub fn establish(&mut self, id: ConnectionId) {
        self.manager.establish(id);
    }

    /// Ends an established connection; returns false when there is none.
    pub fn disconnect(&mut self, now: Time, id: ConnectionId, remote_qpn: Qpn) -> bool {
        self.manager.disconnect(now, id, remote_qpn)
    }

    /// Removes a connection without notifying the remote end.
    pub fn forget(&mut self, id: ConnectionId) {
        self.manager.forget(id);
    }

    /// Requests the queue pair that serves datagrams; the local id of the request is filled in. Returns `None` when
    /// there are too many.
    pub fn look_up(
        &mut self,
        now: Time,
        addresses: Addresses,
        request: LookupRequest,
        patience: Duration,
    ) -> Option<ConnectionId> {
        self.manager.look_up(now, self.way(addresses), request, patience)
    }

    /// Responds to such a request; the ids are filled in. Returns false when it is no longer pending.
    pub fn answer(&mut self, now: Time, id: ConnectionId, reply: LookupReply) -> bool {
        self.manager.answer(now, id, reply)
    }

    /// Returns the next event.
    pub fn poll_happening(&mut self) -> Option<CmEvent> {
        self.manager.poll_happening()
    }

    /// Returns the time at which [`Endpoint::tick`] has something to do next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.manager.next_timeout()
    }

    /// Retransmits, or abandons, the messages that are due.
    pub fn tick(&mut self, now: Time) {
        self.manager.tick(now);
    }

    /// Probes whether the remote ends of established connections still have their ports.
    pub fn probe(&mut self) {
        // An adapter's port does not depend on its programs, so a probe would show nothing.
        if self.gsi.is_none() {
            self.manager.probe();
        }
    }

    /// Returns whether a connection is established here, so that probing is useful.
    #[must_use]
    pub fn has_connections(&self) -> bool {
        self.manager.has_exchanges()
    }

    /// Processes received messages, and errors that the network reports about sent ones.
    pub fn receive(&mut self, now: Time, inbox: &mut Inbox) {
        let Self { sockets, manager, stats, .. } = self;
        for socket in sockets.iter() {
            for _ in 0..RECEIVE_CALLS {
                match socket.receive(&mut inbox.0, RECEIVED_AT_ONCE) {
                    Ok(0) => break,
                    Ok(_) => {}
                    // An error about a sent datagram; the details are in the error queue of the socket.
                    Err(_) => continue,
                }
                for (incoming, bytes) in inbox.0.iter() {
                    take_in(manager, stats, now, socket.local_addr(), incoming, bytes);
                }
            }
            for _ in 0..LATE_ERRORS_AT_ONCE {
                let Some(error) = socket.take_deferred_error() else { break };
                let Some(to) = error.to else { continue };
                let to = SocketAddr::new(to.ip().to_canonical(), to.port());
                let Some(id) = manager.sender_of(to, &error.quoted) else {
                    stats.unproven += 1;
                    continue;
                };
                manager.unreachable(now, id, error.errno);
                if error.errno == libc::ECONNREFUSED {
                    manager.refused(now, id);
                }
            }
        }
    }

    /// Sends pending messages. A message for which the kernel has no buffer space is lost, as on any network; it is
    /// retransmitted if needed.
    pub fn flush(&mut self) {
        while let Some((addresses, mad)) = self.manager.poll_message() {
            self.psn = self.psn.plus(1);
            let packet = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: self.psn, mad: &cm::emit(&mad) };
            let bytes = packet.encode(&addresses);
            if let Some(gsi) = &self.gsi {
                self.stats.sent += u64::from(gsi.send(&addresses, &bytes));
                continue;
            }
            let of_version = |socket: &&UdpSocket| socket.local_addr().is_ipv4() == addresses.src().is_ipv4();
            let Some(socket) = self.sockets.iter().find(of_version) else { continue };
            let to = SockAddr::from(addresses.dst());
            let is_wildcard = socket.local_addr().ip().is_unspecified();
            let from = Some(addresses.src().ip()).filter(|ip| is_wildcard && !ip.is_unspecified());
            let parts = [IoSlice::new(&bytes)];
            let message = Outgoing { to: &to, from, parts: &parts, segment: None, marking: Marking::NONE };
            // The first error may be a delayed one about an earlier datagram.
            if (0..SEND_TRIES).any(|_| socket.send(&[message]).is_ok()) {
                self.stats.sent += 1;
            }
        }
    }
}

fn take_in(
    manager: &mut Manager,
    stats: &mut EndpointStats,
    now: Time,
    local: SocketAddr,
    incoming: &Incoming,
    bytes: &[u8],
) {
    let here = SocketAddr::new(incoming.local.unwrap_or(local.ip()), local.port());
    let way = Addresses::new(incoming.source, here);
    let (Ok(way), false) = (way, incoming.truncated) else {
        stats.malformed += 1;
        return;
    };
    let Some(packet) = gsi::decode(bytes).ok().filter(|_| icrc::verify(&way, bytes)) else {
        stats.malformed += 1;
        return;
    };
    match cm::parse(packet.mad) {
        Ok(mad) => {
            stats.received += 1;
            manager.receive(now, &way, mad);
        }
        Err(_) => stats.unknown += 1,
    }
}

fn open(bind: SocketAddr, drops_all_input: bool) -> io::Result<UdpSocket> {
    UdpSocket::open(&SocketOptions { drops_all_input, ..SocketOptions::at(bind, BUFFER_BYTES, BUFFER_BYTES, false) })
}

/// Returns the source address of packets to `to`.
///
/// # Errors
/// The error of the kernel: `NetworkUnreachable`, `HostUnreachable`.
pub fn source_towards(to: IpAddr, from: Option<IpAddr>) -> io::Result<IpAddr> {
    let unspecified: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = SocketAddr::new(from.unwrap_or(unspecified), 0);
    Ok(sys::route(local, SocketAddr::new(to, rnic_wire::net::UDP_PORT))?.source)
}

/// Returns the payload bytes of a full packet to `to`, as real RoCEv2 peers count: the largest MTU of InfiniBand that
/// the path carries.
///
/// # Errors
/// As [`source_towards`].
pub fn roce_mtu_towards(to: IpAddr, from: IpAddr) -> io::Result<u32> {
    let route = sys::route(SocketAddr::new(from, 0), SocketAddr::new(to, rnic_wire::net::UDP_PORT))?;
    let version = if to.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
    Ok(mtu::ib_mtu(mtu::wire_mtu(route.mtu_bytes, version, MTU_MAX).unwrap_or_default()))
}

/// Datagrams received by one call.
const RECEIVED_AT_ONCE: usize = 8;

/// Consecutive receive calls for one socket, so that a flood at one port does not delay others.
const RECEIVE_CALLS: usize = 16;

/// Reported errors that are processed in a row, limited for the same reason.
const LATE_ERRORS_AT_ONCE: usize = 64;

/// Several delayed errors may be queued on one socket; after this many attempts the datagram is dropped.
const SEND_TRIES: usize = 4;

/// Number of times that the kernel may choose a port for both IP versions.
const BIND_TRIES: usize = 16;

/// Socket buffer size in bytes: space for some hundred messages in the kernel's accounting. A thousand programs that
/// connect at the same moment do not fill it before the thread runs, or recover by retransmission.
const BUFFER_BYTES: usize = 256 << 10;

/// Time for which a missing listener is tolerated. A program that is started together with its peer, or listens again
/// for each connection (perftest), starts to listen some hundred milliseconds late; on a busy machine, more.
const PATIENCE_WITH_LISTENERS: Duration = Duration::from_ms(2_000);
