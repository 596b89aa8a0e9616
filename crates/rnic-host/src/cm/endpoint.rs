//! A port of the connection manager: its sockets, its messages, and the state machine that processes them.
//!
//! Programs that use verbs name a UDP port for connection management, as they would for TCP; the kernel reports
//! whether it is free. Only connection management messages use this port, in the same format as on RoCEv2's port:
//! management datagrams with an ICRC. A socket belongs to one IP version; an endpoint bound to all addresses of both
//! versions has two sockets.
//!
//! No call blocks, and the endpoint has no thread: its owner calls [`Endpoint::receive`] when a socket is readable,
//! [`Endpoint::tick`] when [`Endpoint::next_timeout`] has passed, and [`Endpoint::flush`] after all other calls.
//!
//! With real RoCEv2 peers the sockets only reserve the port: no message is received on them. Messages are sent
//! through the host's general services interface ([`GsiPort`]) and are received from it, for all endpoints.

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

use super::{CmEvent, ConnectionId, GsiPort, Manager, ServiceKind, gsi_addresses};
use crate::ip_fields::PackedIpFields;
use crate::mtu;
use crate::secrets::Secrets;
use crate::sys::{self, Incoming, Outgoing, ReceiveBatch, SocketOptions, UdpSocket};

/// A socket address, and whether a binding to IPv6 excludes IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Address to bind; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// True if a binding to all IPv6 addresses does not include all IPv4 addresses.
    pub only_v6: bool,
}

/// Receive buffers, shared by the endpoints of one thread.
pub struct Inbox(ReceiveBatch);

impl Default for Inbox {
    fn default() -> Self {
        Self(ReceiveBatch::new(DATAGRAMS_PER_CALL))
    }
}

/// Counters of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndpointStats {
    /// Connection management messages received.
    pub received: u64,
    /// Connection management messages sent.
    pub sent: u64,
    /// Datagrams that are not management datagrams, or that have a wrong ICRC.
    pub malformed: u64,
    /// Management datagrams that are not connection management messages.
    pub unknown: u64,
    /// Messages that belong to no connection.
    pub strays: u64,
    /// Network errors that did not quote a message of this endpoint and may therefore be forged by any host.
    pub unproven: u64,
}

/// A connection management port.
#[derive(Debug)]
pub struct Endpoint {
    sockets: ArrayVec<UdpSocket, 2>,
    manager: Manager,
    psn: Psn,
    stats: EndpointStats,
    /// General services interface through which messages are sent; `None` if messages are sent from the NIC's own port.
    gsi: Option<Arc<GsiPort>>,
}

impl Endpoint {
    /// Creates an endpoint without a port: it responds to messages on the general services interface that belong to
    /// no other endpoint.
    ///
    /// # Errors
    /// Returns an error if the system provides no random numbers.
    pub fn without_port(gsi: Arc<GsiPort>) -> io::Result<Self> {
        let secrets = Secrets::draw()?;
        let psn = Psn::new(secrets.stream("datagrams").bits() as u32);
        let manager = Manager::new(secrets.stream("connection manager"));
        Ok(Self { sockets: ArrayVec::new(), manager, psn, stats: EndpointStats::default(), gsi: Some(gsi) })
    }

    /// Binds a port. With `gsi`, messages are sent through that interface.
    ///
    /// # Errors
    /// Returns the kernel's error: `AddrInUse`, `PermissionDenied`, `AddrNotAvailable`.
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
            // IPv4 uses the same port. If the kernel chose a port that is in use for IPv4, it is asked to choose
            // again.
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
        manager.listener_grace = LISTENER_GRACE;
        Ok(Self { sockets, manager, psn, stats: EndpointStats::default(), gsi })
    }

    /// Returns the address to which the socket is bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.sockets[0].local_addr()
    }

    /// Returns the descriptors to poll for reading.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> {
        self.sockets.iter().filter(|_| self.gsi.is_none()).map(AsRawFd::as_raw_fd)
    }

    /// Returns `true` if the message `mad` with the addresses `path`, from the general services interface, is for this
    /// endpoint.
    #[must_use]
    pub fn handles(&self, path: &Addresses, mad: &Mad) -> bool {
        let to = path.dst().ip();
        let is_bound_to =
            |own: IpAddr| own.to_canonical() == to || own.is_unspecified() && own.is_ipv4() == to.is_ipv4();
        self.manager.handles(path, mad, self.sockets.iter().any(|socket| is_bound_to(socket.local_addr().ip())))
    }

    /// Processes a message from the general services interface.
    pub fn receive_message(&mut self, now: Time, path: &Addresses, mad: Mad) {
        self.stats.received += 1;
        self.manager.receive(now, path, mad);
    }

    /// Handles a network error that reports `address` as unreachable; `quoted` is the message quoted by the error.
    pub fn note_unreachable(&mut self, now: Time, address: SocketAddr, errno: i32, quoted: &[u8]) {
        if let Some(id) = self.manager.sender_of(address, quoted) {
            self.manager.unreachable(now, id, errno);
        }
    }

    /// Returns the addresses that messages of a connection with these `addresses` use.
    fn path(&self, addresses: Addresses) -> Addresses {
        if self.gsi.is_some() { gsi_addresses(&addresses) } else { addresses }
    }

    /// Returns the counters of connection management.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { strays: self.manager.strays, ..self.stats }
    }

    /// Returns `true` if this endpoint has a listener or a connection.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.manager.services() > 0 || self.manager.has_exchanges()
    }

    /// Starts listening for requests; returns `false` if `service` already has a listener.
    pub fn listen(&mut self, service: ServiceId, kind: ServiceKind, backlog: usize) -> bool {
        self.manager.listen(service, kind, backlog)
    }

    /// Stops listening for connection requests to `service`.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.manager.unlisten(service);
    }

    /// Returns the addresses of a connection, from the local to the remote end; `None` if the connection is unknown.
    #[must_use]
    pub fn addresses(&self, id: ConnectionId) -> Option<Addresses> {
        self.manager.get(id).map(|exchange| exchange.addresses)
    }

    /// Requests a connection; the local communication id is filled in. Returns `None` if there are too many
    /// connections.
    pub fn connect(
        &mut self,
        now: Time,
        addresses: Addresses,
        request: Request,
        timeout: Duration,
    ) -> Option<ConnectionId> {
        self.manager.connect(now, self.path(addresses), request, timeout)
    }

    /// Accepts a request; both communication ids are filled in. Returns `false` if the request is no longer pending.
    pub fn accept(&mut self, now: Time, id: ConnectionId, reply: Reply, timeout: Duration) -> bool {
        self.manager.accept(now, id, reply, timeout)
    }

    /// Rejects a request or a reply; returns `false` if it is no longer pending.
    pub fn reject(&mut self, id: ConnectionId, reason: RejectReason, info: RejectInfo, data: &[u8]) -> bool {
        self.manager.reject(id, reason, info, data)
    }

    /// Confirms that the program has been notified of its connection: the remote end may be notified too (RTU).
    pub fn confirm(&mut self, id: ConnectionId) {
        self.manager.confirm(id);
    }

    /// Marks a connection as established because the remote end already uses it; its RTU may be lost.
    pub fn establish(&mut self, id: ConnectionId) {
        self.manager.establish(id);
    }

    /// Ends an established connection; returns `false` if there is none.
    pub fn disconnect(&mut self, now: Time, id: ConnectionId, remote_qpn: Qpn) -> bool {
        self.manager.disconnect(now, id, remote_qpn)
    }

    /// Removes a connection without notifying the remote end.
    pub fn forget(&mut self, id: ConnectionId) {
        self.manager.forget(id);
    }

    /// Requests the number of the queue pair that serves datagrams; the local id of the request is filled in. Returns
    /// `None` if there are too many requests.
    pub fn look_up(
        &mut self,
        now: Time,
        addresses: Addresses,
        request: LookupRequest,
        timeout: Duration,
    ) -> Option<ConnectionId> {
        self.manager.look_up(now, self.path(addresses), request, timeout)
    }

    /// Responds to a request for the queue pair that serves datagrams; the ids are filled in. Returns `false` if the
    /// request is no longer pending.
    pub fn answer(&mut self, now: Time, id: ConnectionId, reply: LookupReply) -> bool {
        self.manager.answer(now, id, reply)
    }

    /// Returns the next event of connection management, if there is one.
    pub fn poll_cm_event(&mut self) -> Option<CmEvent> {
        self.manager.poll_cm_event()
    }

    /// Returns the time at which [`Endpoint::tick`] must be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.manager.next_timeout()
    }

    /// Retransmits or abandons the requests that are due.
    pub fn tick(&mut self, now: Time) {
        self.manager.tick(now);
    }

    /// Probes whether the ports of the remote ends of established connections are still open.
    pub fn probe(&mut self) {
        // An adapter's port remains open without its programs, so probing it would be useless.
        if self.gsi.is_none() {
            self.manager.probe();
        }
    }

    /// Returns `true` if this endpoint has an established connection, so that probing is useful.
    #[must_use]
    pub fn has_connections(&self) -> bool {
        self.manager.has_exchanges()
    }

    /// Processes received messages, and network errors about messages that were sent.
    pub fn receive(&mut self, now: Time, inbox: &mut Inbox) {
        let Self { sockets, manager, stats, .. } = self;
        for socket in sockets.iter() {
            for _ in 0..RECEIVE_CALLS {
                match socket.receive(&mut inbox.0, DATAGRAMS_PER_CALL) {
                    Ok(0) => break,
                    Ok(_) => {}
                    // This is an error about a datagram sent earlier; the details are in the error queue of the
                    // socket.
                    Err(_) => continue,
                }
                for (incoming, bytes) in inbox.0.iter() {
                    receive_message(manager, stats, now, socket.local_addr(), incoming, bytes);
                }
            }
            for _ in 0..DEFERRED_ERRORS_PER_CALL {
                let Some(error) = socket.next_deferred_error() else { break };
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

    /// Sends pending messages. A message for which the kernel has no buffer space is lost, as it could be on any
    /// network, and is retransmitted if needed.
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
            let message = Outgoing { to: &to, from, parts: &parts, segment: None, ip_fields: PackedIpFields::NONE };
            // The first error may be a deferred one about an earlier datagram.
            if (0..SEND_TRIES).any(|_| socket.send(&[message]).is_ok()) {
                self.stats.sent += 1;
            }
        }
    }
}

fn receive_message(
    manager: &mut Manager,
    stats: &mut EndpointStats,
    now: Time,
    local: SocketAddr,
    incoming: &Incoming,
    bytes: &[u8],
) {
    let destination = SocketAddr::new(incoming.local.unwrap_or(local.ip()), local.port());
    let path = Addresses::new(incoming.source, destination);
    let (Ok(path), false) = (path, incoming.truncated) else {
        stats.malformed += 1;
        return;
    };
    let Some(packet) = gsi::decode(bytes).ok().filter(|_| icrc::verify(&path, bytes)) else {
        stats.malformed += 1;
        return;
    };
    match cm::parse(packet.mad) {
        Ok(mad) => {
            stats.received += 1;
            manager.receive(now, &path, mad);
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
/// Returns the kernel's error: `NetworkUnreachable`, `HostUnreachable`.
pub fn source_address_for(to: IpAddr, from: Option<IpAddr>) -> io::Result<IpAddr> {
    let unspecified: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = SocketAddr::new(from.unwrap_or(unspecified), 0);
    Ok(sys::route(local, SocketAddr::new(to, rnic_wire::net::UDP_PORT))?.source)
}

/// Returns the payload bytes of a full packet to `to`, as defined for real RoCEv2 peers: the largest InfiniBand MTU
/// that fits into the MTU of the path.
///
/// # Errors
/// See [`source_address_for`].
pub fn roce_mtu_towards(to: IpAddr, from: IpAddr) -> io::Result<u32> {
    let route = sys::route(SocketAddr::new(from, 0), SocketAddr::new(to, rnic_wire::net::UDP_PORT))?;
    let version = if to.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
    Ok(mtu::ib_mtu(mtu::wire_mtu(route.mtu_bytes, version, MTU_MAX).unwrap_or_default()))
}

/// Maximum number of datagrams received by one call.
const DATAGRAMS_PER_CALL: usize = 8;

/// Maximum number of consecutive receive calls for one socket, so that a flood at one port does not delay others.
const RECEIVE_CALLS: usize = 16;

/// Maximum number of network errors processed in a row, limited for the same reason.
const DEFERRED_ERRORS_PER_CALL: usize = 64;

/// Maximum number of attempts to send a datagram, each of which may report a deferred error; the datagram is then
/// dropped.
const SEND_TRIES: usize = 4;

/// Maximum number of attempts to find a port that is free for both IP versions.
const BIND_TRIES: usize = 16;

/// Socket buffer size in bytes: space for several hundred messages in the kernel's accounting. If a thousand programs
/// connect at the same moment, the messages usually fit until the thread runs; otherwise retransmission recovers.
const BUFFER_BYTES: usize = 256 << 10;

/// Time for which a missing listener is tolerated. A program that is started together with its peer, or listens again
/// for each connection (perftest), starts to listen some hundred milliseconds too late, or even later on a busy
/// machine.
const LISTENER_GRACE: Duration = Duration::from_ms(2_000);
