//! The NIC: one engine, one socket, registered memory; one thread, which drives it by calling [`Nic::progress`].
//!
//! No work is done between calls. This minimizes latency: the packet for which a program waits is received by the
//! program's own thread, and no other thread must be woken.
//!
//! | module | contents |
//! |---|---|
//! | `device` | engine, memory, peers, sockets: used by packets in both directions and by [`Verbs`] |
//! | `connect` | the connection manager and its connections |
//! | `receive` | buffers of the receive path |
//! | `drive` | the main loop: timers, sending, receiving, sleeping |

mod connect;
mod credit;
mod device;
mod drive;
mod falcon;
mod hello;
mod hint;
mod keepalive;
mod memory_grants;
mod messages;
mod open;
mod peers;
mod receive;
mod regions;
mod share;
mod transmit;
mod verbs;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rnic_base::Time;
use rnic_engine::{
    CqId, Engine, EngineConfig, EngineStats, PeerId, PostError, QpInfo, QpSnapshot, SendRequest, SrqId, SrqInfo,
};
use rnic_wire::Qpn;
use rnic_wire::cm::ServiceId;

use crate::capture::CaptureTo;
use crate::cm::{ConnectionId, GsiPort};
use crate::config::NicConfig;
use crate::connection::{Connection, ConnectionConfig, ConnectionEvent};
use crate::defaults::TransportChoice;
use crate::error::{ConnectError, ListenError, NicError};
use crate::impair::Impairment;
use crate::link::lane::Lane;
use crate::memory::Region;
use crate::notice::Notice;
use crate::presence::Presence;
use crate::secrets::{SecretStream, Secrets};
use crate::stats::NicStats;

use connect::Connections;
use device::Device;
pub(crate) use device::latency_histogram;
pub use messages::{host_delay_of, messages_of};
use receive::Receiver;
pub(crate) use share::measured_capacity;
pub use verbs::Verbs;

/// A NIC on a UDP socket. See the crate documentation for how to use it.
#[derive(Debug)]
pub struct Nic {
    device: Device,
    connections: Connections,
    rx: Receiver,
    /// Tracks when the NIC is driven, to distinguish silence of the network from scheduling delays of the process.
    presence: Presence,
    /// True while the only packets that can be ready to send are acknowledgements of the packets received last.
    acks_may_wait: bool,
    /// Random numbers for the programs of this crate.
    numbers: SecretStream,
}

impl Nic {
    /// Opens a NIC.
    ///
    /// # Errors
    /// When the address is in use or does not belong to this machine, or a setting is invalid.
    pub fn open(config: NicConfig) -> Result<Self, NicError> {
        config.check()?;
        let secrets = match config.secret {
            Some(seed) => Secrets::of_seed(seed),
            None => Secrets::draw()
                .map_err(|error| NicError::System { doing: "reading random bits from the system", error })?,
        };
        Ok(Self {
            device: Device::open(config, &secrets)?,
            connections: Connections::new(&secrets),
            rx: Receiver::new(),
            presence: Presence::default(),
            acks_may_wait: false,
            numbers: secrets.stream("others"),
        })
    }

    /// Returns the interface for verbs programs: queues, queue pairs, requests, completions and registered memory.
    #[inline]
    pub fn verbs(&mut self) -> Verbs<'_> {
        Verbs { device: &mut self.device }
    }

    /// Returns the bytes of a region.
    ///
    /// # Panics
    /// When the region belongs to another NIC.
    pub fn bytes(&self, region: &Region) -> &[u8] {
        self.device.memory.region(region)
    }

    /// Returns mutable access to the bytes of a region.
    ///
    /// # Panics
    /// When the region belongs to another NIC.
    pub fn bytes_mut(&mut self, region: &Region) -> &mut [u8] {
        self.device.memory.region_mut(region)
    }

    /// Returns the state and attributes of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        self.device.engine.query_qp(qpn)
    }

    /// Returns every queue pair, with the address of its peer if it has one.
    pub fn queue_pairs(&self) -> impl Iterator<Item = (QpSnapshot, Option<SocketAddr>)> {
        self.device.engine.queue_pairs().map(|view| {
            let peer = self.device.link.peers.address_of(view.peer);
            (view, peer)
        })
    }

    /// See [`rnic_engine::Engine::send_queue_space`].
    pub fn send_queue_space(&self, qpn: Qpn) -> Option<u32> {
        self.device.engine.send_queue_space(qpn)
    }

    /// See [`rnic_engine::Objects::cq_level`].
    pub fn cq_level(&self, cq: CqId) -> Option<(usize, bool)> {
        self.device.engine.objects().cq_level(cq)
    }

    /// See [`rnic_engine::Objects::query_srq`].
    pub fn query_srq(&self, srq: SrqId) -> Option<SrqInfo> {
        self.device.engine.objects().query_srq(srq)
    }

    /// See [`rnic_engine::Engine::check_send`].
    ///
    /// # Errors
    /// The same as [`Verbs::post_send`].
    pub fn check_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.device.engine.check_send(qpn, request)
    }

    /// Returns whether memory windows are bound to a region.
    pub fn has_windows(&self, region: &Region) -> bool {
        self.device.engine.objects().has_windows(region.key)
    }

    /// Returns the number of packets that all peers together may have in flight to this NIC if full packets carry
    /// `wire_mtu_bytes`: as many as fit in the receive buffer.
    pub fn receive_window(&self, wire_mtu_bytes: u32) -> u32 {
        self.device.receive_window(wire_mtu_bytes)
    }

    /// Returns the settings with which the NIC was opened.
    pub fn config(&self) -> &NicConfig {
        &self.device.config
    }

    /// Returns the local address and port.
    pub fn local_addr(&self) -> SocketAddr {
        self.device.link.local_addr()
    }

    /// Returns the time since the NIC was opened, which is the engine's time.
    pub fn now(&self) -> Time {
        self.device.clock.now()
    }

    /// Returns whether the kernel splits large buffers into packets (GSO) for this NIC.
    pub fn uses_segmentation(&self) -> bool {
        self.device.link.segmentation
    }

    /// Returns the counters of the layers below the engine.
    pub fn stats(&self) -> &NicStats {
        &self.device.link.stats
    }

    /// Returns the counters of the engine.
    pub fn engine_stats(&self) -> &EngineStats {
        self.device.engine.stats()
    }

    /// Removes and returns a notice, if there is one.
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.device.link.notices.pop()
    }

    /// Starts writing sent and received packets to `output`, as pcap. The output should be buffered.
    ///
    /// # Errors
    /// When the file header cannot be written.
    pub fn start_capture(&mut self, output: Box<dyn Write + Send>) -> Result<(), NicError> {
        let link = &mut self.device.link;
        link.capture = Some(CaptureTo::new(output)?);
        if let Some(reason) = &link.source_port_refusal {
            link.notices.push(Notice::SourcePortInUse { port: link.local_addr().port(), reason: reason.clone() });
        }
        Ok(())
    }

    /// Stops the capture and returns its output, if there is one.
    pub fn stop_capture(&mut self) -> Option<Box<dyn Write + Send>> {
        self.device.link.capture.take().map(CaptureTo::into_output)
    }

    /// See [`rnic_engine::Engine::set_peer_limit`].
    pub fn set_peer_limit(&mut self, peer: PeerId, packets: Option<u64>) {
        self.device.engine.set_peer_limit(peer, packets);
    }

    /// Discards the packets that are delayed by impairment, because their receiver no longer exists.
    pub(crate) fn drop_delayed(&mut self) {
        self.device.link.drop_delayed();
    }

    /// Returns an unpredictable random number.
    pub(crate) fn draw_number(&mut self) -> u64 {
        self.numbers.bits()
    }

    /// Returns whether the connection manager still waits for a response.
    pub(crate) fn has_open_exchanges(&self) -> bool {
        self.connections.is_busy()
    }

    /// Returns the payload bytes of a full packet on the path to a peer from [`Nic::acquire_host`]: the largest that
    /// its route could carry when the peer was first acquired, at most [`crate::NicConfig::mtu_max_bytes`]. Both ends
    /// must compute the same value, so they must see the same path MTU and have the same setting. With real RoCEv2
    /// peers it is the maximum for the path, and programs specify the value on which they have agreed.
    pub fn wire_mtu_to(&self, peer: PeerId) -> u32 {
        self.device.link.peers.get(peer).wire_mtu
    }

    /// Returns the UDP port on which packets for this NIC arrive.
    pub fn port(&self) -> u16 {
        self.device.port()
    }

    /// Returns the maximum number of queue pairs of this NIC. If other NICs run on the same machine, each NIC uses only
    /// the queue pair numbers that encode its own UDP port, and this is their number.
    pub fn queue_pairs_max(&self) -> u32 {
        self.device.queue_pairs_max()
    }

    /// Returns the general services interface: with real RoCEv2 peers, it receives the connection management messages.
    pub fn gsi_port(&self) -> Option<&Arc<GsiPort>> {
        self.device.link.gsi.as_ref()
    }

    /// Returns the number of NICs of this machine to which packets are currently sent through shared memory.
    pub fn bypass_rings(&self) -> usize {
        self.device.link.bypass.as_ref().map_or(0, |bypass| bypass.rings())
    }

    /// Returns the descriptors for an external event loop: when one is readable, or reports an error, [`Nic::progress`]
    /// has work. Call [`Nic::wants_progress`] immediately before waiting.
    pub fn raw_fds(&self) -> ArrayVec<RawFd, RAW_FDS_MAX> {
        let sockets = self.device.link.lanes.iter().flat_map(Lane::receivers).map(AsRawFd::as_raw_fd);
        sockets.chain(self.device.link.bypass.as_ref().map(|bypass| bypass.fd())).collect()
    }

    /// Returns the number of the peer at `address`, for queue pairs that are connected without the connection
    /// manager. It is valid until [`Nic::release_peer`].
    ///
    /// # Errors
    /// When there is no route to the peer, or there are too many peers.
    pub fn acquire_peer(&mut self, address: SocketAddr) -> Result<PeerId, NicError> {
        self.device.acquire_peer(address)
    }

    /// Returns the number of the peer that has the address `remote`, for queue pairs that are connected without the
    /// connection manager; packets to the peer are sent from the local address `local`, or if that is `None`, from
    /// the one that the system chooses. It is valid until [`Nic::release_peer`].
    ///
    /// The ends do not negotiate: both derive the wire MTU from the path ([`Nic::wire_mtu_to`]), and each assumes
    /// that the other has the same settings ([`crate::Notice::PeerSettingsDiffer`] reports when it does not). The
    /// limit of packets in flight to a peer is the capacity of this NIC's own receive buffer, divided among its
    /// current peers. If the peer has a smaller buffer, or many more peers, packets are lost and retransmitted.
    ///
    /// # Errors
    /// When there is no route to the peer, `local` is not an address of this machine, there are too many peers, or
    /// this NIC is bound to a single address.
    pub fn acquire_host(&mut self, remote: IpAddr, local: Option<IpAddr>) -> Result<PeerId, NicError> {
        self.device.acquire_host(remote, local)
    }

    /// Releases a peer from [`Nic::acquire_peer`].
    ///
    /// # Panics
    /// When the peer is not acquired.
    pub fn release_peer(&mut self, peer: PeerId) {
        self.device.release_peer(peer);
    }

    /// Applies this impairment to all packets that are sent from now on. Packets that are already delayed stay
    /// delayed.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.device.set_impairment(impairment);
    }

    /// Starts listening for connections to the service with the number `port`. Up to `backlog` requests may wait for
    /// a decision.
    ///
    /// # Errors
    /// When the service has a listener already, or there are too many services.
    pub fn listen(&mut self, port: u16, backlog: usize) -> Result<ServiceId, ListenError> {
        self.connections.listen(port, backlog)
    }

    /// Stops listening for connections to `service`.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.connections.unlisten(service);
    }

    /// Requests a connection to the service with the number `port` at `to`, and waits for the response.
    ///
    /// The next [`Nic::progress`] notifies the remote end that the connection is established, and the remote end may
    /// then send, so receives must be posted before that.
    ///
    /// # Errors
    /// When the connection cannot be made. Events of other connections remain queued for
    /// [`Nic::poll_connection_event`].
    pub fn connect(
        &mut self,
        to: SocketAddr,
        port: u16,
        config: &ConnectionConfig,
    ) -> Result<Connection, ConnectError> {
        let id = self.start_connect(to, port, config)?;
        let is_ours = |event: &ConnectionEvent| match event {
            ConnectionEvent::Established(connection) => connection.id == id,
            ConnectionEvent::Failed { id: failed, .. } => *failed == id,
            _ => false,
        };
        loop {
            while self.progress() {}
            match self.connections.take_event(is_ours) {
                Some(ConnectionEvent::Established(connection)) => return Ok(connection),
                Some(ConnectionEvent::Failed { error, .. }) => return Err(error),
                Some(_) => return Err(ConnectError::Gone),
                None => self.wait(config.timeout)?,
            }
        }
    }

    /// Requests a connection; the result is reported by [`Nic::poll_connection_event`].
    ///
    /// # Errors
    /// When the request cannot be sent.
    pub fn start_connect(
        &mut self,
        to: SocketAddr,
        port: u16,
        config: &ConnectionConfig,
    ) -> Result<ConnectionId, ConnectError> {
        self.connections.start_connect(&mut self.device, to, port, config)
    }

    /// Accepts a connection. The next [`Nic::progress`] sends the reply, and the remote end may then send, so
    /// receives must be posted before that. The connection may be used for sending after
    /// [`ConnectionEvent::Established`].
    ///
    /// # Errors
    /// When the connection cannot be accepted: the remote end has then been notified, and the request no longer
    /// exists.
    pub fn accept(&mut self, id: ConnectionId, config: &ConnectionConfig) -> Result<Connection, ConnectError> {
        self.connections.accept(&mut self.device, id, config)
    }

    /// Rejects a connection request, with a text for the requesting program.
    ///
    /// # Errors
    /// When the request is no longer pending.
    pub fn reject(&mut self, id: ConnectionId, detail: &str) -> Result<(), ConnectError> {
        self.connections.reject(id, detail)
    }

    /// Ends a connection: posted requests are flushed, and the remote end is notified.
    /// [`ConnectionEvent::Disconnected`] is reported when the remote end has responded or the time for a response has
    /// expired.
    ///
    /// # Errors
    /// When the connection is not established.
    pub fn disconnect(&mut self, id: ConnectionId) -> Result<(), ConnectError> {
        self.connections.disconnect(&mut self.device, id)
    }

    /// Releases all resources of a connection. A connection that is still established is disconnected first.
    pub fn close(&mut self, id: ConnectionId) {
        self.connections.close(&mut self.device, id);
    }

    /// Returns the next event of the connection manager.
    pub fn poll_connection_event(&mut self) -> Option<ConnectionEvent> {
        self.connections.poll_event()
    }
}

/// Returns the largest wire MTU that the path to `to` carries with any of `transports`.
pub(crate) fn path_mtu(nic: &Nic, to: SocketAddr, transports: &[TransportChoice]) -> Result<u32, ConnectError> {
    connect::path_to(&nic.device, to, transports).map(|(_, mtu)| mtu)
}

/// Counts a stream that has been established.
pub(crate) fn note_stream(nic: &mut Nic, is_in_software: bool) {
    let stats = &mut nic.device.link.stats;
    stats.streams_opened += 1;
    stats.streams_in_software += u64::from(is_in_software);
}

/// Closes a NIC and returns its engine as the NIC has configured it, for a caller that drives it without sockets: for
/// instance, with calls that an observer has recorded.
impl From<Nic> for Engine {
    fn from(mut nic: Nic) -> Self {
        std::mem::replace(&mut nic.device.engine, Self::new(EngineConfig::default()))
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        let now = self.device.clock.now();
        self.device.link.send_all(now);
    }
}

/// Maximum number of sockets on which packets for a NIC arrive: one for each combination of two IP versions and two
/// ports.
const RAW_FDS_MAX: usize = 4;
