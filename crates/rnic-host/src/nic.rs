//! The NIC: one engine, one socket, registered memory; one thread, which drives it by calling [`Nic::progress`].
//!
//! Nothing happens between calls. That is what latency needs: the packet that a program waits for is taken in by the
//! program's own thread, and no other thread must be woken.

mod connect;
mod credit;
mod falcon;
mod grants;
mod hello;
mod liveness;
mod open;
mod receive;
mod regions;
mod shared;
mod verbs;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use rnic_base::{Duration, Psn, Time};
use rnic_engine::{
    AsyncEvent, Departure, Engine, EngineConfig, EngineStats, MemoryFault, PeerId, Segment, Transmit, TransmitKind,
    Transport,
};
use rnic_wire::codec::encode_headers;
use rnic_wire::{Addresses, Format, HEADERS_MAX, ICRC_LEN, IcrcPrefix, Qpn};

use crate::background;
use crate::bypass::{Kind, Taken};
use crate::capture::CaptureTo;
use crate::clock::Clock;
use crate::cm::{ConnectionId, GsiNews, Manager};
use crate::config::NicConfig;
use crate::connection::ConnectionEvent;
use crate::error::NicError;
use crate::falcon::{Falcon, Repairs};
use crate::impair::{Impairment, PeerImpairment};
use crate::link::batch::{Acks, Batch, SLAB_BYTES, Way, Wrapping, marking_of, write_packet};
use crate::link::lane::Lane;
use crate::link::{Link, Unreachable};
use crate::memory::{Memory, Pieces};
use crate::notice::Notice;
use crate::presence::{Presence, Return};
use crate::secrets::{SecretStream, Secrets};
use crate::stats::NicStats;
use crate::sys::{self, Route, UdpSocket};
use crate::window;

use connect::Attached;
use liveness::Liveness;
use open::open_link;
use receive::Receiver;

/// A NIC on a UDP socket. See the crate documentation for how to use it.
#[derive(Debug)]
pub struct Nic {
    config: NicConfig,
    clock: Clock,
    engine: Engine,
    memory: Memory,
    rx: Receiver,
    link: Link,
    falcon: Falcon,
    /// Who drives it, and when.
    presence: Presence,
    /// Something has been posted since packets left last.
    has_posts: bool,
    /// Nothing but acknowledgements of what came in last can be ready to leave.
    acks_may_wait: bool,
    /// What Falcon's connections repair.
    repairs: Repairs,
    /// Where the packets of one batch are made.
    slab: Box<[u8]>,
    /// What the kernel granted as receive buffer, bytes.
    receive_buffer_bytes: usize,
    cm: Manager,
    attached: BTreeMap<ConnectionId, Attached>,
    /// Connections by queue pair. Never iterated.
    by_qpn: HashMap<Qpn, ConnectionId>,
    connection_events: VecDeque<ConnectionEvent>,
    /// Notices of the engine, for the program.
    events: VecDeque<AsyncEvent>,
    /// Which processes at the other ends still live.
    liveness: Liveness,
    /// Prepared transports, to be shared.
    transports: Vec<Arc<Transport>>,
    secret: Secret,
    /// Names this adapter in messages.
    guid: u64,
    gsi_psn: Psn,
}

/// What nobody shall guess, each from a stream of its own ([`crate::secrets`]).
#[derive(Debug)]
struct Secret {
    /// Keys of memory.
    keys: SecretStream,
    /// Numbers of queue pairs.
    numbers: SecretStream,
    /// First sequence numbers.
    psns: SecretStream,
    /// What comes back in answers: to questions for credit, to probes.
    cookies: SecretStream,
    /// What the programs of this crate draw.
    others: SecretStream,
}

impl Nic {
    /// Opens a NIC.
    ///
    /// # Errors
    /// When the address is taken, is not one of this machine, or a setting makes no sense.
    pub fn open(config: NicConfig) -> Result<Self, NicError> {
        config.check()?;
        let system = |doing| move |error| NicError::System { doing, error };
        let secrets = match config.secret {
            Some(seed) => Secrets::of_seed(seed),
            None => Secrets::draw().map_err(system("drawing random bits"))?,
        };
        let link = open_link(&config, &secrets)?;
        let granted = link.lanes.iter().flat_map(Lane::receivers).map(UdpSocket::granted_receive_buffer);
        let granted = granted.collect::<Result<Vec<_>, _>>().map_err(system("asking for the receive buffer"))?;
        let receive_buffer_bytes = granted.into_iter().min().unwrap_or_default();
        // These travel.
        let mut public = secrets.stream("public");
        let mut engine = Engine::new(EngineConfig {
            line_rate: config.line_rate,
            // Nothing that travels comes from it: keys and numbers are handed in.
            secret: secrets.stream("engine").bits(),
            adaptive_thread: Some(background::start_adaptive),
        });
        // Who has been heard is not asked whether he lives; and `rnic top` shows what unmodified programs do.
        engine.watch();
        Ok(Self {
            clock: Clock::start(),
            engine,
            memory: Memory::new(),
            rx: Receiver::new(),
            link,
            falcon: Falcon::new(config.protection.clone()),
            presence: Presence::default(),
            has_posts: false,
            acks_may_wait: false,
            repairs: Repairs::default(),
            slab: vec![0; SLAB_BYTES].into_boxed_slice(),
            receive_buffer_bytes,
            cm: Manager::new(secrets.stream("connection manager")),
            attached: BTreeMap::new(),
            by_qpn: HashMap::new(),
            connection_events: VecDeque::new(),
            events: VecDeque::new(),
            liveness: Liveness::default(),
            transports: Vec::new(),
            guid: public.bits(),
            gsi_psn: Psn::new(public.bits() as u32),
            secret: Secret {
                keys: secrets.stream("keys"),
                numbers: secrets.stream("numbers"),
                psns: secrets.stream("first sequence numbers"),
                cookies: secrets.stream("cookies"),
                others: secrets.stream("others"),
            },
            config,
        })
    }

    /// Packets that peers may have under way to us altogether, when full ones carry `wire_mtu_bytes`: as many as the
    /// receive buffer takes.
    pub fn receive_window(&self, wire_mtu_bytes: u32) -> u32 {
        window::receive_window(self.receive_buffer_bytes, crate::mtu::datagram_bytes(wire_mtu_bytes))
    }

    /// What it was opened with.
    pub fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Own address and port.
    pub fn local_addr(&self) -> SocketAddr {
        self.link.local_addr()
    }

    /// Time since it was opened: the engine's time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Whether the kernel cuts trains into packets for it.
    pub fn uses_segmentation(&self) -> bool {
        self.link.segmentation
    }

    /// What has been counted so far, below the engine.
    pub fn stats(&self) -> &NicStats {
        &self.link.stats
    }

    /// What the engine has counted so far.
    pub fn engine_stats(&self) -> &EngineStats {
        self.engine.stats()
    }

    /// Takes a notice, if there is one.
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.link.notices.pop()
    }

    /// From now on, writes what is sent and received to `output`, as pcap. Give it a buffered one.
    ///
    /// # Errors
    /// When the file header cannot be written.
    pub fn start_capture(&mut self, output: Box<dyn Write + Send>) -> Result<(), NicError> {
        self.link.capture = Some(CaptureTo::new(output)?);
        Ok(())
    }

    /// Ends the capture and gives its output back, if there is one.
    pub fn stop_capture(&mut self) -> Option<Box<dyn Write + Send>> {
        self.link.capture.take().map(CaptureTo::into_output)
    }

    /// The number of the peer at `address`, for queue pairs that are connected without the connection manager. It stays
    /// until [`Nic::release_peer`].
    ///
    /// # Errors
    /// When there is no way to it, or there are too many.
    pub fn acquire_peer(&mut self, address: SocketAddr) -> Result<PeerId, NicError> {
        let (addresses, _) = self.way_to(address)?;
        self.acquire_peer_at(&addresses)
    }

    /// Gives back what [`Nic::acquire_peer`] has given.
    ///
    /// # Panics
    /// When nobody holds it.
    pub fn release_peer(&mut self, peer: PeerId) {
        if self.link.peers.release(peer) {
            self.link.credits.forget_peer(peer);
            self.settle_credits();
            self.engine.set_peer_limit(peer, None);
            self.liveness.forget(peer);
            if let Some(bypass) = &mut self.link.bypass {
                bypass.forget_peer(peer);
            }
        }
    }

    /// See [`rnic_engine::Engine::set_peer_limit`].
    pub fn set_peer_limit(&mut self, peer: PeerId, packets: Option<u64>) {
        self.engine.set_peer_limit(peer, packets);
    }

    pub(crate) fn acquire_peer_at(&mut self, addresses: &Addresses) -> Result<PeerId, NicError> {
        let Self { link, config, .. } = self;
        let from = link.source_of(addresses);
        let make = |number| make_impairment(config, number);
        link.peers.acquire(addresses, from, make).ok_or(NicError::TooManyPeers)
    }

    /// From now on, does this to packets on the way to every peer. Packets that are delayed already stay so.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.config.impairment = impairment;
        self.link.peers.impair_all(|number| make_impairment(&self.config, number));
    }

    /// Loses the packets that are delayed: whom they were for is gone.
    pub(crate) fn lose_delayed(&mut self) {
        self.link.lose_delayed();
    }

    /// A number that nobody can guess.
    pub(crate) fn draw_number(&mut self) -> u64 {
        self.secret.others.bits()
    }

    /// Whether the connection manager still waits for somebody.
    pub(crate) fn has_open_exchanges(&self) -> bool {
        self.cm.is_busy()
    }

    /// The way to `address`: our and its address, and what the kernel knows of the path.
    pub(crate) fn way_to(&self, address: SocketAddr) -> Result<(Addresses, Route), NicError> {
        if self.config.shared && !self.config.real_roce_peers {
            return Err(NicError::Mode(
                "shares its machine has hosts as peers (acquire_host) and no connection manager; one that has \
                 an address of its own (NicConfig::at) has both",
            ));
        }
        let address = self.link.peer_at(address);
        let local = self.link.lanes[self.link.lane_of(address.ip())].sender().local_addr();
        if local.is_ipv4() != address.is_ipv4() {
            return Err(NicError::IpVersion(address));
        }
        let route = sys::route(local, address)
            .map_err(|error| NicError::System { doing: "looking for a way to the peer", error })?;
        let source = SocketAddr::new(route.source, local.port());
        let addresses = Addresses::new(source, address).map_err(|_| NicError::IpVersion(address))?;
        Ok((addresses, route))
    }

    /// Sends what is due, then takes in a batch of what has arrived; answers whether anything moved.
    ///
    /// In this order, what a program posts in answer to a completion, and the acknowledgements that the same packets
    /// call for, leave together with the next call: one trip through the kernel instead of two.
    pub fn progress(&mut self) -> bool {
        let now = self.clock.now();
        if let Some(bypass) = &mut self.link.bypass {
            let was_asleep = bypass.wake_up();
            if was_asleep {
                self.link.lanes.iter_mut().for_each(Lane::wake);
            }
            bypass.look_for_letters(now, was_asleep);
        }
        let Return { gap, absence } = self.presence.come_back(now);
        if absence > Duration::ZERO {
            self.engine.note_absence(now, absence);
            // Packets that arrived meanwhile wait at quiet sockets too.
            self.link.lanes.iter_mut().for_each(Lane::wake);
        }
        if self.engine.next_timeout().is_some_and(|due| due <= now) {
            if gap > LOOKED_LATELY {
                self.catch_up(now);
            }
            self.engine.tick(now);
        }
        if self.link.credits.next_due().is_some_and(|due| due <= now) {
            self.link.credits.tick(now, || self.secret.cookies.bits());
        }
        if self.link.hellos.next_due().is_some_and(|due| due <= now) {
            self.say_hello(now);
        }
        if self.liveness.is_due(now) {
            self.look_for_life(now);
        }
        // A packet or two that have just come in call for acknowledgements, which wait for one more look: the program
        // may be about to post something that they can leave with. After more than that the other side waits for them.
        let waits = std::mem::take(&mut self.acks_may_wait) && !self.has_posts && !self.link.credits.has_work();
        let sent = waits || self.flush(now);
        let before = self.engine.stats().packets_received;
        let received = self.receive_while_busy(now);
        if !received {
            self.engine.note_caught_up();
        }
        let few = self.engine.stats().packets_received - before <= FEW_PACKETS;
        self.acks_may_wait = received && few && !waits;
        if std::mem::take(&mut self.link.has_answers) {
            // Somebody waits for them.
            self.link.send_waiting(now);
        }
        if self.link.has_late_errors {
            self.heed_late_errors(now);
        }
        self.run_connections(now);
        if received || sent {
            self.presence.note_work();
        }
        received || sent
    }

    /// Takes in what has come while nobody drove the NIC: acknowledgements among it were in time, and what they
    /// acknowledge is not to be taken for lost because they were not looked at.
    #[cold]
    fn catch_up(&mut self, now: Time) {
        // Those that were quiet, too.
        self.link.lanes.iter_mut().for_each(Lane::wake);
        for _ in 0..CATCH_UP_LOOKS {
            if !self.receive_while_busy(now) {
                break;
            }
        }
    }

    /// Acts on what the network has reported about datagrams sent earlier.
    #[cold]
    fn heed_late_errors(&mut self, now: Time) {
        for Unreachable { address, errno, quoted } in self.link.heed_late_errors(now) {
            if let Some(gsi) = self.link.gsi.as_ref().filter(|gsi| gsi.is_managed()) {
                gsi.push(GsiNews::Unreachable(address, errno, quoted.to_vec()));
            }
            match self.cm.sender_of(address, &quoted) {
                Some(id) => self.cm.unreachable(now, id, errno),
                None if errno == libc::ECONNREFUSED => self.note_refusal(now, address, &quoted),
                None => {}
            }
        }
    }

    /// Sleeps until a packet arrives, something is due, or `at_most` is over. Call it when [`Nic::progress`] has
    /// answered false and there is nothing else to do.
    ///
    /// # Errors
    /// When the system does not let us wait.
    pub fn wait(&mut self, at_most: Duration) -> Result<(), NicError> {
        if self.wants_progress() {
            return Ok(());
        }
        let timeout = at_most.min(self.next_deadline().unwrap_or(Duration::MAX));
        if timeout == Duration::ZERO {
            return Ok(());
        }
        // Rounded up: waking too early would only mean waking twice.
        let timeout_ns = timeout.as_ps().div_ceil(1_000);
        let failed = |error| NicError::System { doing: "waiting for packets", error };
        let held_up = self.link.is_held_by_kernel();
        let has_errors = sys::wait(&self.raw_fds(), Some(timeout_ns), held_up).map_err(failed)?;
        self.link.has_late_errors |= has_errors;
        self.link.lanes.iter_mut().for_each(Lane::wake);
        Ok(())
    }

    /// Sends what is ready, up to a budget; answers whether anything left.
    fn flush(&mut self, now: Time) -> bool {
        self.memory.look_after(now);
        self.has_posts = false;
        self.send_messages(now);
        if self.link.credits.has_work() {
            self.heed_credits(now);
        }
        let mut any = self.link.send_waiting(now);
        let most = self.repairs.packets(self.engine.stamps_departures(), self.engine.stats().packets_retransmitted);
        let mut budget = most;
        while budget > 0 && !self.link.is_held_up() {
            let packets = self.send_batch(now, most);
            if self.link.credits.has_work() {
                self.heed_credits(now);
            }
            // Copies that are due at once leave with the packets that they are copies of.
            let waited = self.link.send_waiting(now);
            any |= packets > 0 || waited;
            if packets == 0 {
                break;
            }
            budget = budget.saturating_sub(packets);
        }
        any
    }

    /// Sends packets of the engine with one call of the kernel, at most `most`; answers how many the engine gave.
    ///
    /// Acknowledgements go to the end: behind data to the same peer one of them joins the train instead of beginning
    /// one. They are about the other direction, so that nobody can tell.
    fn send_batch(&mut self, now: Time, most: u32) -> u32 {
        let Self { engine, memory, link, slab, falcon, clock, .. } = self;
        let mut batch = Batch::new(slab);
        let mut acks = Acks::default();
        let mut given = 0;
        // Falcon's clocks are compared with those of others: they show when packets leave.
        let mut now = if engine.stamps_departures() { clock.now() } else { now };
        while batch.has_room(&acks) && given < most && !link.is_held_up() {
            let Some(departure) = engine.transmit(now) else { break };
            given += 1;
            let transmit = match departure {
                Departure::Roce(transmit) => *transmit,
                Departure::Falcon(transmit) => {
                    let transmit = *transmit;
                    falcon::Out { engine, memory, link, falcon, batch: &mut batch }.add_or_fault(now, &transmit);
                    link.join_delayed(now, &mut batch, &acks);
                    if given.is_multiple_of(PACKETS_A_LOOK) {
                        now = clock.now();
                    }
                    continue;
                }
            };
            if transmit.kind == TransmitKind::Ack {
                link.stats.acks_joined += u64::from(acks.push(transmit, link.segmentation));
                continue;
            }
            let added = add_packet(link, memory, &mut batch, now, &transmit, engine.segments());
            link.join_delayed(now, &mut batch, &acks);
            let Ok(is_safe) = added else {
                link.stats.payload_faults += 1;
                // What stands in its place has no payload.
                if let Some(instead) = engine.fault_payload().and_then(Departure::roce).copied() {
                    let _ = add_packet(link, memory, &mut batch, now, &instead, &[]);
                }
                continue;
            };
            if matches!(transmit.format, Format::UnreliableConnection | Format::UnreliableDatagram) {
                link.count_unacknowledged(&transmit, is_safe);
            }
        }
        link.stats.key_changes = falcon.key_changes;
        for ack in acks.iter() {
            add_packet(link, memory, &mut batch, now, ack, &[]).expect("an acknowledgement has no payload");
        }
        if !batch.is_empty() {
            link.send_trains(now, &batch);
        }
        if let Some(bypass) = &mut link.bypass {
            bypass.publish(now);
        }
        given
    }
}

/// Packets of Falcon's that leave with one look at the clock. They are on the wire together, in one train or two; a
/// look costs as much as a fortieth of a packet.
const PACKETS_A_LOOK: u32 = 8;

/// Adds a packet to the batch, unless something else becomes of it; answers whether it cannot be lost any more.
///
/// # Errors
/// When its payload is gone: then it does not leave.
#[inline]
fn add_packet(
    link: &mut Link,
    memory: &Memory,
    batch: &mut Batch<'_>,
    now: Time,
    transmit: &Transmit,
    payload: &[Segment],
) -> Result<bool, MemoryFault> {
    let len = transmit.packet.udp_payload_len(transmit.format);
    let peer = link.peers.get(transmit.peer);
    let port = link.port_of(peer, transmit.packet.dest_qpn);
    if peer.is_special() {
        let copy = |addresses: &Addresses, bytes: &mut Vec<u8>| copy_to(bytes, transmit, payload, memory, addresses);
        let way = Way { peer: transmit.peer, port, path: 0, marking: marking_of(transmit) };
        if !link.impair(now, way, len, copy)? {
            return Ok(false);
        }
    }
    if link.peers.get(transmit.peer).is_local && send_by_memory(link, memory, now, transmit, payload, port)? {
        return Ok(true);
    }
    if link.is_still_narrow(now, transmit.peer, len) {
        let addresses = link.peers.get(transmit.peer).way(port);
        let bytes = transmit_copy(transmit, payload, memory, &addresses)?;
        link.send_fragmentable(now, &addresses, bytes, marking_of(transmit));
        return Ok(false);
    }
    let prefix = link.peers.get_mut(transmit.peer).sent_prefix(len, port);
    let is_numbered = link.is_numbered(transmit.peer);
    batch.add(transmit, payload, memory, Wrapping { len, port, prefix, couple: link.segmentation, is_numbered })?;
    Ok(false)
}

/// Sends a packet to another NIC of this machine through memory; answers whether it is gone.
#[inline]
fn send_by_memory(
    link: &mut Link,
    memory: &Memory,
    now: Time,
    transmit: &Transmit,
    payload: &[Segment],
    port: u16,
) -> Result<bool, MemoryFault> {
    let Link { bypass: Some(bypass), peers, stats, .. } = link else { return Ok(false) };
    let len = transmit.packet.udp_payload_len(transmit.format) as usize - ICRC_LEN;
    let target = (transmit.peer, port);
    let kind = Kind { is_sealed: false, marking: marking_of(transmit) };
    let taken = bypass.send(now, target, len, kind, |writer| put_pieces(transmit, payload, memory, writer))?;
    stats.count_bypass(taken, len);
    if taken == Taken::No {
        bypass.prepare(now, transmit.peer, &peers.get(transmit.peer).way(port));
        return Ok(false);
    }
    if taken == Taken::Full {
        let mut bytes = Vec::with_capacity(len);
        put_pieces(transmit, payload, memory, &mut bytes)?;
        link.wait_for_room(now, target, bytes, kind);
    }
    if link.capture.is_some() {
        let addresses = link.peers.get(transmit.peer).way(port);
        // It has left: memory that has gone since is missing in the capture alone.
        if let Ok(copy) = transmit_copy(transmit, payload, memory, &addresses) {
            link.capture_marked(now, &addresses, &copy, kind.marking);
        }
    }
    Ok(true)
}

/// Puts a packet without its check value, piece by piece.
#[inline]
fn put_pieces(
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    out: &mut impl Pieces,
) -> Result<(), MemoryFault> {
    let mut headers = [0; HEADERS_MAX];
    let headers_len =
        encode_headers(transmit.format, &transmit.packet, &mut headers).expect("the engine keeps to the format");
    out.put(&headers[..headers_len]);
    payload.iter().try_for_each(|segment| out.fetch(memory.gather(*segment)))?;
    out.put(&[0; 3][..transmit.packet.pad_len() as usize]);
    Ok(())
}

impl Drop for Nic {
    fn drop(&mut self) {
        let now = self.clock.now();
        self.link.send_all(now);
    }
}

/// What happens to packets on the way to the `number`-th peer, if anything does.
fn make_impairment(config: &NicConfig, number: u64) -> Option<Box<PeerImpairment>> {
    let impairment = &config.impairment;
    (!impairment.is_none()).then(|| PeerImpairment::new(impairment, &config.name, number))
}

/// A packet in one piece.
fn transmit_copy(
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    addresses: &Addresses,
) -> Result<Vec<u8>, MemoryFault> {
    let mut bytes = Vec::new();
    copy_to(&mut bytes, transmit, payload, memory, addresses)?;
    Ok(bytes)
}

/// Makes `bytes` a packet in one piece.
fn copy_to(
    bytes: &mut Vec<u8>,
    transmit: &Transmit,
    payload: &[Segment],
    memory: &Memory,
    addresses: &Addresses,
) -> Result<(), MemoryFault> {
    let len = transmit.packet.udp_payload_len(transmit.format);
    bytes.resize(len as usize + HEADERS_MAX, 0);
    write_packet(bytes, transmit, payload, memory, IcrcPrefix::new(addresses, len))?;
    bytes.truncate(len as usize);
    Ok(())
}

/// Whoever has looked at the sockets within this time knows what has come: a timeout is a good deal longer.
const LOOKED_LATELY: Duration = Duration::from_us(20);

/// Looks at the sockets before timeouts are believed, at most: a full receive buffer takes fewer.
const CATCH_UP_LOOKS: u32 = 256;

/// What a program that waits for an answer gets: the answer, and an acknowledgement of the question.
const FEW_PACKETS: u64 = 2;

/// How long to sleep when the kernel has no room for packets and does not say when it will: a queue of an interface
/// drains in less.
const HELD_UP_WAIT: Duration = Duration::from_us(500);
