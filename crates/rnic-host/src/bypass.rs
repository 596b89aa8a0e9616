//! The same-host wire: NICs of one user on one machine exchange packets through shared memory instead of sockets.
//!
//! Each direction of each pair of NICs (and pair of addresses) has its own ring ([`ring`]). The sender creates it and
//! offers it with a message to the other NIC's control socket, an abstract Unix socket that is named after that NIC's
//! UDP port; the message carries the memory's file descriptor. Before that it verifies which process owns that socket
//! ([`asking`]). Until the remote end has attached, and whenever it does not attach, packets are sent over UDP. Nothing
//! is stored in the file system, and the kernel reclaims everything from a process that is killed.
//!
//! Packets are those of the UDP wire without the ICRC, or without Falcon's check value: memory does not flip bits.
//! Impairment is applied before the ring; packets that impairment has delayed or corrupted travel *sealed*, with their
//! check value, which the reader verifies. Falcon packets protected with a key are sealed too.
//!
//! Both ends are processes of one user: the kernel reports the sender's user for each message on the control socket,
//! and [`crate::user`] describes for which users it can do so. A ring is bound to two addresses of this machine, and
//! comes from the owner of the control socket that it names. A message that does not fit is ignored; its sender goes on
//! with UDP. Any process can bind these names, so there are a few of each; a NIC that finds all of them bound works
//! without the bypass.
//!
//! A reader that is about to sleep sets a flag in the ring, and is sent an empty message when packets arrive; while it
//! polls, no packet costs a system call. A reader that does not read is sent such a message now and then too: this
//! detects a process that has died, and its ring is released.
//!
//! **Reason for copying twice** (into the ring, out of it) and not once, from the sender's memory, with
//! `process_vm_readv`: both copies run concurrently, on two processors, through a ring that stays in their caches; the
//! single copy runs on one, behind a system call that looks up every page (12.7 GB/s at 64 KB in the verbs study). It
//! would need permission to trace the other process, which many systems refuse, and would tie a buffer to a reader that
//! may never read it.

mod asking;
mod control_messages;
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

use asking::Questions;
use control_messages::{ControlText, Nonce, Offer, Place, Ticket};
pub(crate) use ring::{Broken, Kind, Record};
use ring::{Consumer, DATA_BYTES, Producer, State, Writer, record_bytes};

/// Shared-memory rings of a NIC.
#[derive(Debug)]
pub(crate) struct Bypass {
    /// Address of the local control socket.
    place: Place,
    control_socket: UnixDatagram,
    questions: Questions,
    nonces: SecretStream,
    /// Key from which tickets are computed.
    ticket_key: Zeroizing<[u8; KEY_BYTES]>,
    /// Rings that this NIC writes.
    channels: Vec<Option<Channel>>,
    /// Rings that this NIC writes, or tried to set up, by peer and port. Never iterated.
    targets: HashMap<(PeerId, u16), RingTarget>,
    /// The peer and port of each connected queue pair.
    joined: HashMap<Qpn, (PeerId, u16)>,
    /// Number of connected queue pairs of each peer and port.
    ends: HashMap<(PeerId, u16), u32>,
    /// RingTarget and ring of the last packet, cached because the next packet most often has the same target.
    latest: Option<((PeerId, u16), usize)>,
    /// Rings with packets that have not been published to their readers yet.
    unpublished: Vec<usize>,
    /// Rings that this NIC reads.
    pub(crate) incoming: Vec<Incoming>,
    is_asleep: bool,
    /// Turns since the control socket was last checked.
    skipped: u32,
    /// Remaining turns in which a control message is likely to arrive.
    expectant: u32,
    /// Index of the next incoming ring whose writer is checked for liveness, and the time of that check.
    visit: (usize, Time),
}

#[derive(Clone, Copy, Debug)]
enum RingTarget {
    Channel(usize),
    /// No process reads at this target; it is probed again at this time.
    Absent(Time),
}

/// A ring that this NIC writes.
#[derive(Debug)]
struct Channel {
    target: (PeerId, u16),
    producer: Producer,
    /// Socket to the reader's control socket, used to wake it.
    bell: UnixDatagram,
    /// Read position of the reader at the last check, and the time of that check.
    read: (u64, Time),
    is_listed: bool,
    /// Set while the reader has not read for so long that packets are dropped instead of waiting for space.
    is_stuck: bool,
}

/// A ring that this NIC reads.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) consumer: Consumer,
    /// Source of the packets: an address of this machine, and the port from which they would have been sent over UDP.
    pub(crate) source: SocketAddr,
    /// Local address to which the packets are sent.
    pub(crate) local: IpAddr,
    /// Control socket of the NIC that writes.
    writer: Place,
    /// True while nothing has been read from this ring: packets sent over UDP earlier must be processed first.
    pub(crate) is_fresh: bool,
}

impl Incoming {
    /// Returns whether the ring is empty and will stay so because no process owns the control socket of its writer any
    /// more.
    fn is_abandoned(&self) -> bool {
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.consumer.is_empty() && unix::connect_control_socket(&self.writer.socket_name()).is_err_and(is_gone)
    }
}

/// Result of sending a packet through the shared-memory wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// The packet is in the ring.
    Yes,
    /// The ring is full; the packet may wait.
    Full,
    /// The ring has been full for too long; the packet is dropped.
    Lost,
    /// There is no ring; the packet must take another path.
    No,
}

impl NicStats {
    /// Counts the result of sending a packet of `bytes`.
    #[inline]
    pub(crate) fn count_bypass(&mut self, taken: Taken, bytes: usize) {
        match taken {
            Taken::Yes => {
                self.bypass_sent += 1;
                self.bypass_bytes_sent += bytes as u64;
            }
            Taken::Full => self.bypass_held += 1,
            Taken::Lost => self.bypass_lost += 1,
            Taken::No => {}
        }
    }
}

impl Bypass {
    /// Opens the control socket of the NIC that receives on `port`. Values that must be unpredictable are generated
    /// from `secret`.
    ///
    /// # Errors
    /// The error of the kernel; `AddrInUse` when all names of the control socket are bound by other processes.
    pub(crate) fn open(port: u16, mut secret: SecretStream) -> io::Result<Self> {
        let bind = |place: Place| {
            unix::bind_control_socket(&place.socket_name()).map(|control_socket| (place, control_socket))
        };
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let mut bound = Place::all(port).map(bind).filter(|bound| !bound.as_ref().is_err_and(is_taken));
        let (place, control_socket) = bound.next().unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))?;
        Ok(Self {
            place,
            control_socket,
            questions: Questions::default(),
            ticket_key: Zeroizing::new(secret.bytes()),
            nonces: secret,
            channels: Vec::new(),
            targets: HashMap::new(),
            joined: HashMap::new(),
            ends: HashMap::new(),
            latest: None,
            unpublished: Vec::new(),
            incoming: Vec::new(),
            is_asleep: false,
            skipped: 0,
            expectant: 0,
            visit: (0, Time::ZERO),
        })
    }

    /// Returns the descriptor that becomes readable when a peer has packets for a NIC that sleeps.
    pub(crate) fn fd(&self) -> RawFd {
        self.control_socket.as_raw_fd()
    }

    /// Probes whether the NIC behind `port` of `peer` accepts a ring, unless there is one. `way` is from the local NIC
    /// to it.
    pub(crate) fn prepare(&mut self, now: Time, peer: PeerId, way: &Addresses) {
        let target = (peer, way.dst().port());
        match self.targets.get(&target) {
            Some(RingTarget::Channel(_)) => return,
            Some(RingTarget::Absent(until)) if now < *until => return,
            _ => {}
        }
        if self.targets.len() >= CHANNELS_MAX {
            // An entry for an absent peer is kept only while it prevents another probe.
            self.targets.retain(|_, known| !matches!(known, RingTarget::Absent(until) if *until <= now));
        }
        if self.targets.len() >= CHANNELS_MAX && !self.targets.contains_key(&target) {
            return;
        }
        // Valid until a response arrives.
        let until = now + ASK_AGAIN_AFTER;
        self.targets.insert(target, RingTarget::Absent(until));
        let ways = (way.src(), way.dst().ip());
        if self.questions.ask(now, self.place, target, ways, (self.nonces.bytes(), until)) {
            // Until the response arrives, packets are sent over UDP.
            self.expectant = EXPECTANT_TURNS;
        }
    }

    /// Counts queue pair `qpn`, which has been connected to `target`.
    pub(crate) fn join(&mut self, qpn: Qpn, target: (PeerId, u16)) {
        if self.joined.insert(qpn, target).is_none() {
            *self.ends.entry(target).or_default() += 1;
        }
    }

    /// Stops counting queue pair `qpn`. Returns its peer and port when no other queue pair is connected to them; `None`
    /// also for a queue pair that was never connected.
    pub(crate) fn part(&mut self, qpn: Qpn) -> Option<(PeerId, u16)> {
        let target = self.joined.remove(&qpn)?;
        let count = self.ends.get_mut(&target)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.ends.remove(&target);
        Some(target)
    }

    /// Handles an answer from a process of this user at the socket called `name`: creates the ring and offers it.
    fn offer(&mut self, now: Time, name: &[u8], nonce: Nonce, ticket: Ticket) {
        let Some((question, bell)) = self.questions.answered(&nonce, name) else { return };
        let Ok(producer) = Producer::create() else { return };
        let offer = Offer { from: self.place, source: question.source, to: question.to };
        let words = ControlText::Offer { offer, nonce, ticket };
        if unix::send_file(&bell, &words.emit(), producer.file()).is_err() {
            return;
        }
        let target = question.target;
        let channel = Channel { target, producer, bell, read: (0, now), is_listed: false, is_stuck: false };
        let free = self.channels.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.channels.push(None);
            self.channels.len() - 1
        });
        self.channels[index] = Some(channel);
        self.targets.insert(target, RingTarget::Channel(index));
    }

    /// Answers a process of this user that asks whether its ring is accepted.
    fn answer(&mut self, from: Place, nonce: Nonce) {
        self.expectant = EXPECTANT_TURNS;
        let words = ControlText::Answer { nonce, ticket: self.ticket_for(from, &nonce) };
        // The sender may have exited, or be so busy that it will ask again.
        let _ = unix::send_control_message(&self.control_socket, &from.socket_name(), &words.emit());
    }

    fn ticket_for(&self, from: Place, nonce: &Nonce) -> Ticket {
        secrets::tag(&self.ticket_key, &[&from.port.to_be_bytes(), &[from.name], nonce])
    }

    /// Puts a packet of `len` bytes into the ring to the NIC behind UDP port `port` of `peer`; `write` writes the
    /// packet.
    ///
    /// # Errors
    /// When `write` fails; nothing has been added to the ring then.
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Time,
        target: (PeerId, u16),
        len: usize,
        kind: Kind,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), MemoryFault>,
    ) -> Result<Taken, MemoryFault> {
        let Some(index) = self.attached(now, target) else { return Ok(Taken::No) };
        let Some(channel) = &mut self.channels[index] else { return Ok(Taken::No) };
        let mark = channel.producer.mark();
        match channel.producer.begin(len, kind) {
            Ok(Some(mut writer)) => {
                if let Err(fault) = write(&mut writer) {
                    channel.producer.take_back(mark);
                    return Err(fault);
                }
                channel.is_stuck = false;
            }
            Ok(None) => {
                let taken = if channel.is_stuck { Taken::Lost } else { Taken::Full };
                // Everything written must be published to the reader, or no space would ever be released.
                channel.producer.publish();
                self.look_after(now, index);
                return Ok(taken);
            }
            Err(_) => {
                self.forget(now, index);
                return Ok(Taken::No);
            }
        }
        if channel.producer.unpublished() >= PUBLISH_BYTES {
            channel.producer.publish();
        }
        if !channel.is_listed {
            channel.is_listed = true;
            self.unpublished.push(index);
        }
        Ok(Taken::Yes)
    }

    /// Sends like [`Self::send`], for bytes in the NIC's own memory.
    pub(crate) fn send_own(&mut self, now: Time, target: (PeerId, u16), bytes: &[u8], kind: Kind) -> Taken {
        let taken = self.send(now, target, bytes.len(), kind, |writer| {
            writer.put(bytes);
            Ok(())
        });
        taken.expect("what is ours is not gone")
    }

    /// Returns whether a ring to `target` has an attached reader.
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
    pub(crate) fn stop_waiting_for(&mut self, target: (PeerId, u16)) {
        if let Some(channel) = self.find(target).and_then(|index| self.channels[index].as_mut()) {
            channel.is_stuck = true;
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

    /// Publishes written packets to the readers, and wakes readers that sleep.
    #[inline]
    pub(crate) fn publish(&mut self, now: Time) {
        while let Some(index) = self.unpublished.pop() {
            let Some(channel) = &mut self.channels[index] else { continue };
            channel.is_listed = false;
            channel.producer.publish();
            if channel.producer.must_wake() {
                self.ring_at(now, index);
            }
            self.look_after(now, index);
        }
    }

    /// Sends a wake-up to a reader that has not read for a while; the send fails if the reader has died.
    #[inline]
    fn look_after(&mut self, now: Time, index: usize) {
        let Some(channel) = &mut self.channels[index] else { return };
        if now.since(channel.read.1) < LOOK_AFTER {
            return;
        }
        let read = channel.producer.read_so_far();
        let stuck = read == channel.read.0 && !channel.producer.is_drained();
        channel.read = (read, now);
        if stuck {
            self.ring_at(now, index);
        }
    }

    #[cold]
    fn ring_at(&mut self, now: Time, index: usize) {
        let Some(channel) = &self.channels[index] else { return };
        match channel.bell.send(&[]) {
            // `WouldBlock`: so many wake-ups are queued already that there is no space for another.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.forget(now, index),
            _ => {}
        }
    }

    /// Releases a ring that this NIC writes.
    #[cold]
    fn forget(&mut self, now: Time, index: usize) {
        if let Some(channel) = self.channels[index].take() {
            self.targets.insert(channel.target, RingTarget::Absent(now + ASK_AGAIN_AFTER));
            self.latest = None;
        }
    }

    /// Releases the ring to `target`, where no process exists any more.
    pub(crate) fn give_up(&mut self, now: Time, target: (PeerId, u16)) {
        if let Some(index) = self.find(target) {
            self.forget(now, index);
        }
    }

    /// Releases the ring to `target`, to which no queue pair is connected any more: it is destroyed as soon as it has
    /// been read. Datagrams sent there later create another ring.
    pub(crate) fn release(&mut self, now: Time, target: (PeerId, u16)) {
        self.publish(now);
        self.questions.forget(|asked| *asked == target);
        if let Some(RingTarget::Channel(index)) = self.targets.remove(&target) {
            self.channels[index] = None;
        }
        self.latest = None;
    }

    /// Removes everything about `peer`, to which no more packets are sent.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        self.questions.forget(|(asked, _)| *asked == peer);
        self.joined.retain(|_, (known, _)| *known != peer);
        self.ends.retain(|(known, _), _| *known != peer);
        self.targets.retain(|(known, _), _| *known != peer);
        for channel in &mut self.channels {
            channel.take_if(|channel| channel.target.0 == peer);
        }
        self.latest = None;
    }

    /// Returns the number of rings that this NIC writes and that have an attached reader.
    pub(crate) fn rings(&self) -> usize {
        let attached = |channel: &&Channel| channel.producer.state() == State::Attached;
        self.channels.iter().flatten().filter(attached).count()
    }

    /// Returns whether this NIC reads any ring.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Checks the control socket for messages, once every few turns, or now if `at_once`; returns whether there were
    /// any.
    #[inline]
    pub(crate) fn poll_control_socket(&mut self, now: Time, at_once: bool) -> bool {
        self.skipped += 1;
        let every = if self.expectant > 0 { LETTERS_SOON } else { LETTERS_EVERY };
        self.expectant = self.expectant.saturating_sub(1);
        if !at_once && self.skipped < every {
            return false;
        }
        self.skipped = 0;
        self.read_control_socket(now)
    }

    #[cold]
    fn read_control_socket(&mut self, now: Time) -> bool {
        self.incoming.retain(|incoming| !incoming.consumer.is_closed() || !incoming.consumer.is_empty());
        if now >= self.visit.1 {
            self.visit_writer(now);
        }
        let mut any = false;
        for _ in 0..LETTERS_AT_ONCE {
            let mut bytes = [0; ControlText::BYTES + 1];
            let Some(message) = unix::receive_control_message(&self.control_socket, &mut bytes) else { break };
            any = true;
            if let Some(words) =
                ControlText::parse(&bytes[..message.len]).filter(|_| message.uid.is_some_and(is_own_user))
            {
                self.process(now, words, &message);
            }
        }
        any
    }

    /// Processes a control message from a process of this user. Called from a signal handler too.
    fn process(&mut self, now: Time, words: ControlText, message: &UnixMessage) {
        match (words, &message.from) {
            (ControlText::Ask { from, nonce }, _) => self.answer(from, nonce),
            (ControlText::Answer { nonce, ticket }, Some(name)) => self.offer(now, name, nonce, ticket),
            (ControlText::Answer { .. }, None) => {}
            (ControlText::Offer { offer, nonce, ticket }, _) => {
                let is_invited = ticket == self.ticket_for(offer.from, &nonce);
                if is_invited && sys::is_own(offer.source.ip()) && sys::is_own(offer.to) {
                    self.attach(&offer, message);
                }
            }
        }
    }

    /// Checks whether the process that writes one of the rings still exists: one that was killed does not close its
    /// rings.
    fn visit_writer(&mut self, now: Time) {
        let (turn, _) = self.visit;
        self.visit = (turn.wrapping_add(1), now + VISIT_EVERY);
        if !self.incoming.is_empty() {
            let index = turn % self.incoming.len();
            if self.incoming[index].is_abandoned() {
                self.incoming.remove(index);
            }
        }
    }

    fn attach(&mut self, offer: &Offer, message: &UnixMessage) {
        let Offer { from: writer, source, to: local } = *offer;
        // A destroyed NIC may have been replaced by another with the same port; its rings are dropped. When a NIC has
        // closed a ring and created another, the packets left in the first are still to be read.
        self.incoming.retain(|known| {
            let is_other = (known.writer.port, known.source.ip(), known.local) != (writer.port, source.ip(), local);
            is_other || (known.consumer.is_closed() && !known.consumer.is_empty())
        });
        if self.incoming.len() >= CHANNELS_MAX {
            self.incoming.retain(|known| !known.is_abandoned());
        }
        if self.incoming.len() >= CHANNELS_MAX {
            return;
        }
        let Some(file) = &message.file else { return };
        if let Ok(consumer) = Consumer::attach(file.as_fd()) {
            consumer.set_sleeping(self.is_asleep);
            self.incoming.push(Incoming { consumer, source, local, writer, is_fresh: true });
        }
    }

    /// Signals to all writers that they must wake this NIC; returns whether packets have arrived already.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.is_asleep = true;
        self.incoming.iter().for_each(|incoming| incoming.consumer.set_sleeping(true));
        // Writers check this flag after they have published; packets published before are seen here.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.incoming.iter().any(|incoming| !incoming.consumer.is_empty())
    }

    /// Records that a thread of this NIC is awake; returns whether the NIC was marked asleep. The flag towards writers
    /// stays set until each has sent one wake-up: another thread may still sleep, and the awake one may stop polling
    /// without notice.
    #[inline]
    pub(crate) fn wake_up(&mut self) -> bool {
        std::mem::take(&mut self.is_asleep)
    }
}

/// Returns whether `ip` is an address of this machine.
pub(crate) fn is_own_address(ip: IpAddr) -> bool {
    ip.is_loopback() || local_addresses().is_ok_and(|own| own.iter().any(|own| own.ip == ip))
}

/// Returns the number of packets of up to `mtu` bytes that may be in flight through one ring: three quarters of it,
/// which leaves space for acknowledgements.
pub(crate) fn ring_window(mtu: u32) -> u32 {
    (DATA_BYTES / 4 * 3 / record_bytes(crate::mtu::roce_datagram_bytes(mtu) as usize)) as u32
}

/// Maximum number of rings of a NIC in each direction, of one megabyte each. Further peers use UDP.
const CHANNELS_MAX: usize = 256;

/// Control messages that are read per call, so that a process that floods the control socket does not block the NIC.
const LETTERS_AT_ONCE: usize = 16;

/// Turns between two checks of the control socket while no thread sleeps, because each check costs a system call.
const LETTERS_EVERY: u32 = 64;

/// Turns between two checks while a control message is likely to arrive, and the number of turns for which it is
/// considered likely after the last one.
const LETTERS_SOON: u32 = 4;
const EXPECTANT_TURNS: u32 = 1_024;

/// Written packets are published to the reader when they reach this number of bytes, or at the end of a batch.
const PUBLISH_BYTES: u64 = 32 << 10;

/// A reader that has not read anything for this long may have died: several scheduler ticks of a busy machine, but
/// shorter than any exhaustion of a retry count.
const LOOK_AFTER: Duration = Duration::from_ms(20);

/// Interval at which the writer of one of the incoming rings is checked for liveness; each check costs a few system
/// calls.
const VISIT_EVERY: Duration = Duration::from_ms(10);

/// Time before a target without a control socket is probed again; such a NIC is unlikely to open one.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "bypass/tests.rs"]
mod tests;
