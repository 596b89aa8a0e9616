//! The same-host wire: NICs of one user on one machine exchange packets through shared memory instead of sockets.
//!
//! There is one ring ([`ring`]) for each direction of each pair of NICs (and pair of addresses). The sender creates
//! it and offers it with a message to the other NIC's control socket, an abstract Unix socket that is named after
//! that NIC's UDP port; the message carries the memory's file descriptor. Before that, it verifies which process owns
//! that socket ([`ownership_probes`]). Until the other NIC has attached the ring, and if it does not attach it,
//! packets are sent over UDP. Nothing is stored in the file system, and the kernel reclaims all resources of a
//! process that is killed.
//!
//! Packets have the same format as over UDP, but without the ICRC, or without Falcon's check value, because memory
//! does not flip bits. Impairment is applied before the ring; packets that impairment has delayed or corrupted travel
//! *sealed*, with their check value, which the reader verifies. Falcon packets protected with a key are sealed too.
//!
//! Both ends are processes of one user: the kernel reports the sender's user for each message on the control socket,
//! and [`crate::user`] describes for which users it can do so. The addresses of a ring must be two addresses of this
//! machine, and its offer must come from the owner of the control socket that the offer names. An invalid message is
//! ignored; its sender continues with UDP. Any process can bind such a name, so each NIC has a few to choose from; if
//! all of them are bound already, the NIC works without the bypass.
//!
//! A reader that is about to sleep sets a flag in the ring, and the writer sends it an empty message when packets
//! arrive; while the reader polls, no packet costs a system call. The writer also sends such a message from time to
//! time if the reader does not read: if the reader's process has exited, this fails, and the ring is released.
//!
//! **Reason for two copies** (into the ring and out of it) instead of one directly from the sender's memory with
//! `process_vm_readv`: the two copies run concurrently on two processors, through a ring that remains in their
//! caches. A single copy would run on one processor, in a system call that walks the page tables for every page (12.7
//! GB/s at 64 KB in the verbs study). It would also need permission to trace the other process, which many systems do
//! not grant, and the sender's buffer would be in use until the reader reads it, which may never happen.

mod control_messages;
mod ownership_probes;
mod ring;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;

use rnic_base::{Duration, Time};
use rnic_engine::{MemoryFault, PeerId};
use rnic_wire::{Addresses, Qpn};
use zeroize::Zeroizing;

use crate::addresses::local_addresses;
use crate::memory::Pieces;
use crate::secrets::{self, KEY_BYTES, SecretStream};
use crate::stats::NicStats;
use crate::sys::{
    self,
    unix::{self, UnixMessage},
};
use crate::user::is_own_user;

use control_messages::{ControlAddress, ControlMessage, Nonce, Offer, Ticket};
use ownership_probes::OwnershipProbes;
pub(crate) use ring::{Broken, Record, RecordKind};
use ring::{Consumer, DATA_BYTES, Producer, State, Writer, record_bytes};

/// The shared-memory rings of a NIC.
#[derive(Debug)]
pub(crate) struct Bypass {
    /// Address of the local control socket.
    address: ControlAddress,
    control_socket: UnixDatagram,
    ownership_probes: OwnershipProbes,
    nonces: SecretStream,
    /// Key from which tickets are computed.
    ticket_key: Zeroizing<[u8; KEY_BYTES]>,
    /// Rings that this NIC writes.
    channels: Vec<Option<Channel>>,
    /// Rings that this NIC writes or has tried to set up, by peer and port. Never iterated over.
    targets: HashMap<(PeerId, u16), RingTarget>,
    /// Peer and port to which each queue pair is connected.
    connected_qps: HashMap<Qpn, (PeerId, u16)>,
    /// Number of queue pairs connected to each peer and port.
    qps_per_target: HashMap<(PeerId, u16), u32>,
    /// Target and ring of the last packet, cached because the next packet usually has the same target.
    latest: Option<((PeerId, u16), usize)>,
    /// Rings with packets that are not published to their readers yet.
    unpublished: Vec<usize>,
    /// Rings that this NIC reads.
    pub(crate) incoming: Vec<Incoming>,
    is_asleep: bool,
    /// Number of iterations of the NIC's loop since the control socket was last checked.
    turns_since_check: u32,
    /// Number of further iterations of the NIC's loop in which a control message is considered likely to arrive.
    fast_poll_turns: u32,
    /// True when records in rings carry the time of their publication.
    stamps: bool,
    /// Index of the incoming ring whose writer is checked next for liveness, and the time of that check.
    checked_ring: (usize, Time),
}

#[derive(Clone, Copy, Debug)]
enum RingTarget {
    Channel(usize),
    /// No process at this target reads rings; it is probed again at this time.
    Absent(Time),
}

/// A ring that this NIC writes.
#[derive(Debug)]
struct Channel {
    target: (PeerId, u16),
    producer: Producer,
    /// Socket connected to the reader's control socket, used to wake the reader.
    wake_socket: UnixDatagram,
    /// Read position of the reader at the last check, and the time of that check.
    read: (u64, Time),
    is_listed: bool,
    /// Set when the reader has not read for so long that packets are dropped instead of waiting for space.
    is_reader_stalled: bool,
}

/// A ring that this NIC reads.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) consumer: Consumer,
    /// Source of the packets: an address of this machine, and the port from which they would have been sent over UDP.
    pub(crate) source: SocketAddr,
    /// Local address to which the packets are sent.
    pub(crate) local: IpAddr,
    /// Control socket of the NIC that writes the ring.
    writer: ControlAddress,
    /// True until the first packet is read from this ring: packets that were sent over UDP earlier must be processed
    /// first.
    pub(crate) is_fresh: bool,
    /// Time at which the ring was last found empty.
    pub(crate) empty_at: Time,
}

impl Incoming {
    /// Returns the port of the NIC that writes the ring.
    pub(crate) fn writer_port(&self) -> u16 {
        self.writer.port
    }

    /// Returns `true` if the ring is empty and will remain empty, because no process owns the control socket of its
    /// writer any more.
    fn is_orphaned(&self) -> bool {
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.consumer.is_empty() && unix::connect_control_socket(&self.writer.socket_name()).is_err_and(is_gone)
    }
}

/// Result of sending a packet through shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RingResult {
    /// The packet has been written to the ring.
    Sent,
    /// The ring is full; the packet may be sent later.
    Full,
    /// The ring has been full for too long; the packet is dropped.
    Dropped,
    /// There is no ring; the packet must be sent over UDP.
    NoRing,
}

impl NicStats {
    /// Counts the result of sending a packet with this number of `bytes`.
    #[inline]
    pub(crate) fn count_bypass(&mut self, result: RingResult, bytes: usize) {
        match result {
            RingResult::Sent => {
                self.bypass_sent += 1;
                self.bypass_bytes_sent += bytes as u64;
            }
            RingResult::Full => self.bypass_held += 1,
            RingResult::Dropped => self.bypass_lost += 1,
            RingResult::NoRing => {}
        }
    }
}

impl Bypass {
    /// Opens the control socket of the NIC that receives on `port`. Values that must be unpredictable are generated
    /// from `secret`.
    ///
    /// # Errors
    /// Returns the kernel's error; `AddrInUse` if other processes have bound all names of the control socket.
    pub(crate) fn open(port: u16, mut secret: SecretStream) -> io::Result<Self> {
        let bind = |address: ControlAddress| {
            unix::bind_control_socket(&address.socket_name()).map(|control_socket| (address, control_socket))
        };
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let mut bound = ControlAddress::all(port).map(bind).filter(|bound| !bound.as_ref().is_err_and(is_taken));
        let (address, control_socket) = bound.next().unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))?;
        Ok(Self {
            address,
            control_socket,
            ownership_probes: OwnershipProbes::default(),
            ticket_key: Zeroizing::new(secret.bytes()),
            nonces: secret,
            channels: Vec::new(),
            targets: HashMap::new(),
            connected_qps: HashMap::new(),
            qps_per_target: HashMap::new(),
            latest: None,
            unpublished: Vec::new(),
            incoming: Vec::new(),
            is_asleep: false,
            turns_since_check: 0,
            fast_poll_turns: 0,
            stamps: false,
            checked_ring: (0, Time::ZERO),
        })
    }

    /// Starts writing the time of publication into the records of rings.
    pub(crate) fn stamp_records(&mut self) {
        self.stamps = true;
    }

    /// Returns the file descriptor that becomes readable when a peer has packets for this NIC while it sleeps.
    pub(crate) fn fd(&self) -> RawFd {
        self.control_socket.as_raw_fd()
    }

    /// Unless there is a ring already, probes whether the NIC at `peer` and the destination port of `path` accepts
    /// one. `path` contains the addresses of packets from the local NIC to that NIC.
    pub(crate) fn prepare(&mut self, now: Time, peer: PeerId, path: &Addresses) {
        let target = (peer, path.dst().port());
        match self.targets.get(&target) {
            Some(RingTarget::Channel(_)) => return,
            Some(RingTarget::Absent(until)) if now < *until => return,
            _ => {}
        }
        if self.targets.len() >= CHANNELS_MAX {
            // An entry for an absent peer is needed only until the peer may be probed again.
            self.targets.retain(|_, known| !matches!(known, RingTarget::Absent(until) if *until <= now));
        }
        if self.targets.len() >= CHANNELS_MAX && !self.targets.contains_key(&target) {
            return;
        }
        // The target counts as absent until a response arrives.
        let until = now + PROBE_RETRY_INTERVAL;
        self.targets.insert(target, RingTarget::Absent(until));
        let addresses = (path.src(), path.dst().ip());
        if self.ownership_probes.probe(now, self.address, target, addresses, (self.nonces.bytes(), until)) {
            // Until the response arrives, packets are sent over UDP.
            self.fast_poll_turns = FAST_POLL_TURNS;
        }
    }

    /// Counts queue pair `qpn`, which has been connected to `target`.
    pub(crate) fn join(&mut self, qpn: Qpn, target: (PeerId, u16)) {
        if self.connected_qps.insert(qpn, target).is_none() {
            *self.qps_per_target.entry(target).or_default() += 1;
        }
    }

    /// Stops counting queue pair `qpn`. Returns its peer and port if no other queue pair is connected to them any more,
    /// otherwise `None`; also `None` for a queue pair that was never connected.
    pub(crate) fn remove_user(&mut self, qpn: Qpn) -> Option<(PeerId, u16)> {
        let target = self.connected_qps.remove(&qpn)?;
        let count = self.qps_per_target.get_mut(&target)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.qps_per_target.remove(&target);
        Some(target)
    }

    /// Handles an answer to a probe, from a process of this user whose socket has this `name`: creates the ring and
    /// offers it.
    fn offer(&mut self, now: Time, name: &[u8], nonce: Nonce, ticket: Ticket) {
        let Some((probe, wake_socket)) = self.ownership_probes.on_reply(&nonce, name) else { return };
        let Ok(mut producer) = Producer::create() else { return };
        if self.stamps {
            producer.stamp_records();
        }
        let offer = Offer { from: self.address, source: probe.source, to: probe.to };
        let text = ControlMessage::Offer { offer, nonce, ticket };
        if unix::send_file(&wake_socket, &text.emit(), producer.file()).is_err() {
            return;
        }
        let target = probe.target;
        let channel =
            Channel { target, producer, wake_socket, read: (0, now), is_listed: false, is_reader_stalled: false };
        let free = self.channels.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.channels.push(None);
            self.channels.len() - 1
        });
        self.channels[index] = Some(channel);
        self.targets.insert(target, RingTarget::Channel(index));
    }

    /// Answers a probe from a process of this user that is about to offer a ring.
    fn reply_to_probe(&mut self, from: ControlAddress, nonce: Nonce) {
        self.fast_poll_turns = FAST_POLL_TURNS;
        let text = ControlMessage::ProbeReply { nonce, ticket: self.ticket_for(from, &nonce) };
        // Errors are ignored: the prober may have exited, or be so busy that its socket is full; it will probe again.
        let _ = unix::send_control_message(&self.control_socket, &from.socket_name(), &text.emit());
    }

    fn ticket_for(&self, from: ControlAddress, nonce: &Nonce) -> Ticket {
        secrets::tag(&self.ticket_key, &[&from.port.to_be_bytes(), &[from.name], nonce])
    }

    /// Adds a packet of `len` bytes to the ring to `target`, given as peer and UDP port; `write` writes the packet.
    ///
    /// # Errors
    /// Returns the error of `write`; no packet is added to the ring then.
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Time,
        target: (PeerId, u16),
        len: usize,
        kind: RecordKind,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), MemoryFault>,
    ) -> Result<RingResult, MemoryFault> {
        let Some(index) = self.attached(now, target) else { return Ok(RingResult::NoRing) };
        let Some(channel) = &mut self.channels[index] else { return Ok(RingResult::NoRing) };
        let mark = channel.producer.mark();
        match channel.producer.begin(len, kind) {
            Ok(Some(mut writer)) => {
                if let Err(fault) = write(&mut writer) {
                    channel.producer.rewind(mark);
                    return Err(fault);
                }
                channel.is_reader_stalled = false;
            }
            Ok(None) => {
                let taken = if channel.is_reader_stalled { RingResult::Dropped } else { RingResult::Full };
                // All written packets must be published to the reader now, or no space would ever be released.
                channel.producer.publish();
                self.check_reader(now, index);
                return Ok(taken);
            }
            Err(_) => {
                self.forget(now, index);
                return Ok(RingResult::NoRing);
            }
        }
        if channel.producer.unpublished() >= PUBLISH_BYTES {
            channel.producer.publish();
        }
        if !channel.is_listed {
            channel.is_listed = true;
            self.unpublished.push(index);
        }
        Ok(RingResult::Sent)
    }

    /// Same as [`Self::send`], for a packet in the NIC's own memory.
    pub(crate) fn send_from_nic(
        &mut self,
        now: Time,
        target: (PeerId, u16),
        bytes: &[u8],
        kind: RecordKind,
    ) -> RingResult {
        let taken = self.send(now, target, bytes.len(), kind, |writer| {
            writer.put(bytes);
            Ok(())
        });
        taken.expect("NIC memory is mapped")
    }

    /// Returns `true` if there is a ring to `target` to which a reader is attached.
    pub(crate) fn reaches(&mut self, now: Time, target: (PeerId, u16)) -> bool {
        self.attached(now, target).is_some()
    }

    /// Returns the ring to `target` if a reader is attached to it.
    #[inline]
    fn attached(&mut self, now: Time, target: (PeerId, u16)) -> Option<usize> {
        let index = self.find(target)?;
        match self.channels[index].as_ref()?.producer.state() {
            State::Attached => Some(index),
            State::Offered => None,
            State::Closed => {
                self.forget(now, index);
                None
            }
        }
    }

    /// From now on, drops packets to `target` while its ring has no space.
    pub(crate) fn stop_waiting_for_ring(&mut self, target: (PeerId, u16)) {
        if let Some(channel) = self.find(target).and_then(|index| self.channels[index].as_mut()) {
            channel.is_reader_stalled = true;
        }
    }

    #[inline]
    fn find(&mut self, target: (PeerId, u16)) -> Option<usize> {
        if let Some((latest, index)) = self.latest
            && latest == target
        {
            return Some(index);
        }
        let Some(RingTarget::Channel(index)) = self.targets.get(&target).copied() else { return None };
        self.latest = Some((target, index));
        Some(index)
    }

    /// Publishes the packets that have been written to rings, and wakes readers that sleep.
    #[inline]
    pub(crate) fn publish(&mut self, now: Time) {
        while let Some(index) = self.unpublished.pop() {
            let Some(channel) = &mut self.channels[index] else { continue };
            channel.is_listed = false;
            channel.producer.publish();
            if channel.producer.must_wake() {
                self.wake_reader(now, index);
            }
            self.check_reader(now, index);
        }
    }

    /// Sends a wake-up to a reader that has not read for some time; this fails if the reader's process has exited.
    #[inline]
    fn check_reader(&mut self, now: Time, index: usize) {
        let Some(channel) = &mut self.channels[index] else { return };
        if now.since(channel.read.1) < READER_CHECK_AFTER {
            return;
        }
        let read = channel.producer.bytes_read();
        let is_stalled = read == channel.read.0 && !channel.producer.is_drained();
        channel.read = (read, now);
        if is_stalled {
            self.wake_reader(now, index);
        }
    }

    #[cold]
    fn wake_reader(&mut self, now: Time, index: usize) {
        let Some(channel) = &self.channels[index] else { return };
        match channel.wake_socket.send(&[]) {
            // `WouldBlock` means that so many wake-ups are queued already that there is no space for another one.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.forget(now, index),
            _ => {}
        }
    }

    /// Releases a ring that this NIC writes.
    #[cold]
    fn forget(&mut self, now: Time, index: usize) {
        if let Some(channel) = self.channels[index].take() {
            self.targets.insert(channel.target, RingTarget::Absent(now + PROBE_RETRY_INTERVAL));
            self.latest = None;
        }
    }

    /// Releases the ring to `target`, because the process at that address no longer exists.
    pub(crate) fn abandon(&mut self, now: Time, target: (PeerId, u16)) {
        if let Some(index) = self.find(target) {
            self.forget(now, index);
        }
    }

    /// Releases the ring to `target`, because no queue pair is connected to it any more: the ring is destroyed as soon
    /// as the reader has read it. If datagrams are sent to `target` later, another ring is created.
    pub(crate) fn release(&mut self, now: Time, target: (PeerId, u16)) {
        self.publish(now);
        self.ownership_probes.forget(|probed| *probed == target);
        if let Some(RingTarget::Channel(index)) = self.targets.remove(&target) {
            self.channels[index] = None;
        }
        self.latest = None;
    }

    /// Removes all state of `peer`, to which no more packets are sent.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        self.ownership_probes.forget(|(probed, _)| *probed == peer);
        self.connected_qps.retain(|_, (known, _)| *known != peer);
        self.qps_per_target.retain(|(known, _), _| *known != peer);
        self.targets.retain(|(known, _), _| *known != peer);
        for channel in &mut self.channels {
            channel.take_if(|channel| channel.target.0 == peer);
        }
        self.latest = None;
    }

    /// Returns the number of rings that this NIC writes and to which a reader is attached.
    pub(crate) fn rings(&self) -> usize {
        let attached = |channel: &&Channel| channel.producer.state() == State::Attached;
        self.channels.iter().flatten().filter(attached).count()
    }

    /// Returns `true` if this NIC reads any ring.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Checks the control socket for messages once in several iterations of the NIC's loop, or immediately if `at_once`
    /// is set; returns `true` if messages were received.
    #[inline]
    pub(crate) fn poll_control_socket(&mut self, now: Time, at_once: bool) -> bool {
        self.turns_since_check += 1;
        let every = if self.fast_poll_turns > 0 { CONTROL_POLL_TURNS_FAST } else { CONTROL_POLL_TURNS };
        self.fast_poll_turns = self.fast_poll_turns.saturating_sub(1);
        if !at_once && self.turns_since_check < every {
            return false;
        }
        self.turns_since_check = 0;
        self.read_control_socket(now)
    }

    #[cold]
    fn read_control_socket(&mut self, now: Time) -> bool {
        self.incoming.retain(|incoming| !incoming.consumer.is_closed() || !incoming.consumer.is_empty());
        if now >= self.checked_ring.1 {
            self.check_writer(now);
        }
        let mut any = false;
        for _ in 0..CONTROL_MESSAGES_PER_CALL {
            let mut bytes = [0; ControlMessage::BYTES + 1];
            let Some(message) = unix::receive_control_message(&self.control_socket, &mut bytes) else { break };
            any = true;
            if let Some(text) =
                ControlMessage::parse(&bytes[..message.len]).filter(|_| message.uid.is_some_and(is_own_user))
            {
                self.process(now, text, &message);
            }
        }
        any
    }

    /// Processes a control message from a process of this user. May be called from a signal handler.
    fn process(&mut self, now: Time, text: ControlMessage, message: &UnixMessage) {
        match (text, &message.from) {
            (ControlMessage::Probe { from, nonce }, _) => self.reply_to_probe(from, nonce),
            (ControlMessage::ProbeReply { nonce, ticket }, Some(name)) => self.offer(now, name, nonce, ticket),
            (ControlMessage::ProbeReply { .. }, None) => {}
            (ControlMessage::Offer { offer, nonce, ticket }, _) => {
                let is_invited = ticket == self.ticket_for(offer.from, &nonce);
                if is_invited && sys::is_own(offer.source.ip()) && sys::is_own(offer.to) {
                    self.attach(&offer, message);
                }
            }
        }
    }

    /// Checks whether the process that writes one of the incoming rings still exists: a process that is killed does
    /// not close its rings.
    fn check_writer(&mut self, now: Time) {
        let (position, _) = self.checked_ring;
        self.checked_ring = (position.wrapping_add(1), now + WRITER_CHECK_INTERVAL);
        if !self.incoming.is_empty() {
            let index = position % self.incoming.len();
            if self.incoming[index].is_orphaned() {
                self.incoming.remove(index);
            }
        }
    }

    fn attach(&mut self, offer: &Offer, message: &UnixMessage) {
        let Offer { from: writer, source, to: local } = *offer;
        // The NIC on this port may be a new one that has replaced a destroyed NIC, whose rings are dropped here. But
        // if a NIC has closed a ring and created another, the packets left in the closed ring must still be read.
        self.incoming.retain(|known| {
            let is_other = (known.writer.port, known.source.ip(), known.local) != (writer.port, source.ip(), local);
            is_other || (known.consumer.is_closed() && !known.consumer.is_empty())
        });
        if self.incoming.len() >= CHANNELS_MAX {
            self.incoming.retain(|known| !known.is_orphaned());
        }
        if self.incoming.len() >= CHANNELS_MAX {
            return;
        }
        let Some(file) = &message.file else { return };
        if let Ok(consumer) = Consumer::attach(file.as_fd()) {
            consumer.set_sleeping(self.is_asleep);
            self.incoming.push(Incoming { consumer, source, local, writer, is_fresh: true, empty_at: Time::ZERO });
        }
    }

    /// Sets the flag in all rings that requests a wake-up when packets are added; returns `true` if packets have
    /// already arrived.
    pub(crate) fn announce_sleep(&mut self) -> bool {
        self.is_asleep = true;
        self.incoming.iter().for_each(|incoming| incoming.consumer.set_sleeping(true));
        // Writers check this flag after publishing; packets that were published before the flag was set are found
        // here.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.incoming.iter().any(|incoming| !incoming.consumer.is_empty())
    }

    /// Records that a thread of this NIC is awake; returns `true` if the NIC was marked asleep. The flag in each ring
    /// remains set until its writer has sent one wake-up, because another thread may still sleep, and the awake
    /// thread may stop polling without notice.
    #[inline]
    pub(crate) fn wake_up(&mut self) -> bool {
        std::mem::take(&mut self.is_asleep)
    }
}

/// Returns `true` if `ip` is an address of this machine.
pub(crate) fn is_own_address(ip: IpAddr) -> bool {
    ip.is_loopback() || local_addresses().is_ok_and(|own| own.iter().any(|own| own.ip == ip))
}

/// Returns the number of packets of up to `mtu` bytes that may be in flight through one ring: three quarters of its
/// capacity, which leaves space for acknowledgements.
pub(crate) fn ring_window(mtu: u32) -> u32 {
    (DATA_BYTES / 4 * 3 / record_bytes(crate::mtu::roce_datagram_bytes(mtu) as usize)) as u32
}

/// Maximum number of rings of a NIC in each direction; a ring has one megabyte. Packets to and from further peers are
/// sent over UDP.
const CHANNELS_MAX: usize = 256;

/// Maximum number of control messages read per call, so that a process that floods the control socket does not block
/// the NIC.
const CONTROL_MESSAGES_PER_CALL: usize = 16;

/// Number of iterations of the NIC's loop between two checks of the control socket while no thread sleeps. Each check
/// costs a system call.
const CONTROL_POLL_TURNS: u32 = 64;

/// Number of iterations of the NIC's loop between two checks while a control message is likely to arrive, and number of
/// iterations for which that is assumed after a probe or a response was sent.
const CONTROL_POLL_TURNS_FAST: u32 = 4;
const FAST_POLL_TURNS: u32 = 1_024;

/// Number of bytes after which packets written to a ring are published to the reader; they are also published at the
/// end of each batch.
const PUBLISH_BYTES: u64 = 32 << 10;

/// Time without reading after which a reader is checked, because its process may have exited: several scheduler ticks
/// of a busy machine, but shorter than the time in which any retry count is exhausted.
const READER_CHECK_AFTER: Duration = Duration::from_ms(20);

/// Interval between liveness checks; each checks the writer of one incoming ring and costs a few system calls.
const WRITER_CHECK_INTERVAL: Duration = Duration::from_ms(10);

/// Time after which a target without a control socket is probed again; such a NIC is unlikely to open one later.
const PROBE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "bypass/tests.rs"]
mod tests;
