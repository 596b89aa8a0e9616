//! The same-host wire: NICs of one user on one machine exchange packets through memory instead of sockets.
//!
//! Each direction of each pair of NICs (and pair of addresses) has a ring of its own ([`ring`]). The sender makes it
//! and offers it: a letter to the abstract unix socket that is named after the other NIC's UDP port, with the memory in
//! it. Before that it asks who has that socket ([`asking`]). Until the other end has attached, and whenever it does
//! not, packets take UDP. Nothing stands in the file system, and the kernel takes everything back from a process that
//! is killed.
//!
//! Packets are those of the UDP wire without the ICRC, or Falcon's check value: memory does not flip bits. Impairment
//! stands in front of it; what impairment has delayed or corrupted travels *sealed*, with its check value, which is
//! looked at. So do Falcon's packets under a key.
//!
//! Both ends are processes of one user: the kernel says so of each letter, and [`crate::user`] of which users it can
//! say so. A ring is about two addresses of this machine, and comes from the owner of the letterbox that it names. A
//! letter that does not fit is ignored; its sender goes on with UDP. Names can be taken by anybody, so there are a few
//! of each: who finds all taken goes without.
//!
//! A reader that wants to sleep says so in the ring, and is sent an empty letter when something comes; while it polls,
//! no packet costs a call of the kernel. A reader that does not read is sent one now and then too: that is how a
//! process that has died is found out, and its ring given up.
//!
//! **Why copy twice** (into the ring, out of it) and not once, from the sender's memory, with `process_vm_readv`? Both
//! copies run at once, on two processors, through a ring that stays in their caches; the one copy runs on one, behind a
//! call of the kernel that looks up every page (12.7 GB/s at 64 KB in the verbs study). It would need the right to
//! trace the other process, which many systems refuse, and would tie a buffer to a reader that may never come.

mod asking;
mod letters;
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
    unix::{self, Letter},
};
use crate::user::is_own_user;

use asking::Questions;
use letters::{Nonce, Offer, Place, Ticket, Words};
pub(crate) use ring::{Broken, Kind, Record};
use ring::{Consumer, DATA_BYTES, Producer, State, Writer, record_bytes};

/// The rings of a NIC.
#[derive(Debug)]
pub(crate) struct Bypass {
    /// Where our letterbox is.
    place: Place,
    letterbox: UnixDatagram,
    questions: Questions,
    nonces: SecretStream,
    /// Makes tickets.
    ticket_key: Zeroizing<[u8; KEY_BYTES]>,
    /// Rings that we write.
    channels: Vec<Option<Channel>>,
    /// Rings that we write, or tried to, by peer and port. Never iterated.
    targets: HashMap<(PeerId, u16), Target>,
    /// The peer and port of each connected queue pair.
    joined: HashMap<Qpn, (PeerId, u16)>,
    /// Connected queue pairs of each peer and port.
    ends: HashMap<(PeerId, u16), u32>,
    /// Where the last packet went: most often where the next one goes.
    latest: Option<((PeerId, u16), usize)>,
    /// Rings with packets that their readers do not know of.
    unpublished: Vec<usize>,
    /// Rings that we read.
    pub(crate) incoming: Vec<Incoming>,
    is_asleep: bool,
    /// Turns since the letterbox was looked at.
    skipped: u32,
    /// Turns in which a letter is likely to come.
    expectant: u32,
    /// Of the rings that we read, whose writer is asked for next, and when.
    visit: (usize, Time),
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Channel(usize),
    /// Nobody is there who reads; ask again then.
    Nobody(Time),
}

/// A ring that we write.
#[derive(Debug)]
struct Channel {
    target: (PeerId, u16),
    producer: Producer,
    /// Wakes the reader.
    bell: UnixDatagram,
    /// How far the reader was, and since when it has been there.
    read: (u64, Time),
    is_listed: bool,
    /// Nobody has read for so long that packets are not kept for it.
    is_stuck: bool,
}

/// A ring that we read.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) consumer: Consumer,
    /// Whom packets come from: an address of this machine, and the port that they would have left from.
    pub(crate) source: SocketAddr,
    /// Which address of ours they come to.
    pub(crate) local: IpAddr,
    /// The NIC that writes.
    writer: Place,
    /// Nothing has been read yet: what was sent over UDP before must be taken in first.
    pub(crate) is_fresh: bool,
}

impl Incoming {
    /// Whether there is nothing to read and never will be: nobody has the letterbox of its writer.
    fn is_abandoned(&self) -> bool {
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.consumer.is_empty() && unix::connect_letterbox(&self.writer.socket_name()).is_err_and(is_gone)
    }
}

/// What became of a packet that was to take the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// It is in the ring.
    Yes,
    /// The ring is full: it may wait.
    Full,
    /// The ring is full, and has been for too long: it is lost.
    Lost,
    /// There is no ring: it takes another way.
    No,
}

impl NicStats {
    /// Counts what became of a packet of `bytes`.
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
    /// Opens the letterbox of the NIC that receives on `port`. What nobody may guess is drawn from `secret`.
    ///
    /// # Errors
    /// What the kernel says; `AddrInUse` when somebody has taken all its names.
    pub(crate) fn open(port: u16, mut secret: SecretStream) -> io::Result<Self> {
        let bind = |place: Place| unix::bind_letterbox(&place.socket_name()).map(|letterbox| (place, letterbox));
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let mut bound = Place::all(port).map(bind).filter(|bound| !bound.as_ref().is_err_and(is_taken));
        let (place, letterbox) = bound.next().unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))?;
        Ok(Self {
            place,
            letterbox,
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

    /// Becomes readable when a peer has something for a NIC that sleeps.
    pub(crate) fn fd(&self) -> RawFd {
        self.letterbox.as_raw_fd()
    }

    /// Asks the NIC behind `port` of `peer` whether it takes a ring, unless there is one. `way` is from us to it.
    pub(crate) fn prepare(&mut self, now: Time, peer: PeerId, way: &Addresses) {
        let target = (peer, way.dst().port());
        match self.targets.get(&target) {
            Some(Target::Channel(_)) => return,
            Some(Target::Nobody(until)) if now < *until => return,
            _ => {}
        }
        if self.targets.len() >= CHANNELS_MAX {
            // Where nobody was is worth a place while it keeps us from asking again.
            self.targets.retain(|_, known| !matches!(known, Target::Nobody(until) if *until <= now));
        }
        if self.targets.len() >= CHANNELS_MAX && !self.targets.contains_key(&target) {
            return;
        }
        // Until there is an answer.
        let until = now + ASK_AGAIN_AFTER;
        self.targets.insert(target, Target::Nobody(until));
        let ways = (way.src(), way.dst().ip());
        if self.questions.ask(now, self.place, target, ways, (self.nonces.bytes(), until)) {
            // Until the answer is here, packets take the long way.
            self.expectant = EXPECTANT_TURNS;
        }
    }

    /// Counts queue pair `qpn`, which has been connected to `target`.
    pub(crate) fn join(&mut self, qpn: Qpn, target: (PeerId, u16)) {
        if self.joined.insert(qpn, target).is_none() {
            *self.ends.entry(target).or_default() += 1;
        }
    }

    /// Counts queue pair `qpn` no more. Returns its peer and port when no other queue pair is connected to them; `None`
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

    /// A process of this user has answered a question, from the socket called `name`: it gets its ring.
    fn offer(&mut self, now: Time, name: &[u8], nonce: Nonce, ticket: Ticket) {
        let Some((question, bell)) = self.questions.answered(&nonce, name) else { return };
        let Ok(producer) = Producer::create() else { return };
        let offer = Offer { from: self.place, source: question.source, to: question.to };
        let words = Words::Offer { offer, nonce, ticket };
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
        self.targets.insert(target, Target::Channel(index));
    }

    /// A process of this user asks whether its ring is welcome.
    fn answer(&mut self, from: Place, nonce: Nonce) {
        self.expectant = EXPECTANT_TURNS;
        let words = Words::Answer { nonce, ticket: self.ticket_for(from, &nonce) };
        // It may have gone, or be so busy that it will ask again.
        let _ = unix::send_letter(&self.letterbox, &from.socket_name(), &words.emit());
    }

    fn ticket_for(&self, from: Place, nonce: &Nonce) -> Ticket {
        secrets::tag(&self.ticket_key, &[&from.port.to_be_bytes(), &[from.name], nonce])
    }

    /// Puts a packet of `len` bytes into the ring to the NIC behind UDP port `port` of `peer`; `write` writes it.
    ///
    /// # Errors
    /// When `write` fails: nothing has been put there then.
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
                // Whoever reads must know of everything, or there will never be room.
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

    /// As [`Self::send`], for bytes of our own.
    pub(crate) fn send_own(&mut self, now: Time, target: (PeerId, u16), bytes: &[u8], kind: Kind) -> Taken {
        let taken = self.send(now, target, bytes.len(), kind, |writer| {
            writer.put(bytes);
            Ok(())
        });
        taken.expect("what is ours is not gone")
    }

    /// Whether somebody reads a ring to `target`.
    pub(crate) fn reaches(&mut self, now: Time, target: (PeerId, u16)) -> bool {
        self.attached(now, target).is_some()
    }

    /// The ring to `target`, if somebody reads it.
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

    /// Packets to it are lost from now on when there is no room, until there is.
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
        let Some(Target::Channel(index)) = self.targets.get(&target).copied() else { return None };
        self.latest = Some((target, index));
        Some(index)
    }

    /// Lets readers know of what has been written, and wakes those that sleep.
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

    /// Rings at a reader that has not read for a while: one that has died does not hear it.
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
            // Others have rung so often that there is no room for another time.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.forget(now, index),
            _ => {}
        }
    }

    /// Gives up a ring that we write.
    #[cold]
    fn forget(&mut self, now: Time, index: usize) {
        if let Some(channel) = self.channels[index].take() {
            self.targets.insert(channel.target, Target::Nobody(now + ASK_AGAIN_AFTER));
            self.latest = None;
        }
    }

    /// Nobody is at `target` any more.
    pub(crate) fn give_up(&mut self, now: Time, target: (PeerId, u16)) {
        if let Some(index) = self.find(target) {
            self.forget(now, index);
        }
    }

    /// No queue pair is connected to `target` any more: the ring goes as soon as it has been read. Datagrams that go
    /// there make another.
    pub(crate) fn release(&mut self, now: Time, target: (PeerId, u16)) {
        self.publish(now);
        self.questions.forget(|asked| *asked == target);
        if let Some(Target::Channel(index)) = self.targets.remove(&target) {
            self.channels[index] = None;
        }
        self.latest = None;
    }

    /// Nothing is sent to `peer` any more.
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

    /// Rings that are written, and read at the other end.
    pub(crate) fn rings(&self) -> usize {
        let attached = |channel: &&Channel| channel.producer.state() == State::Attached;
        self.channels.iter().flatten().filter(attached).count()
    }

    /// Whether some ring is read.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Looks for letters, now and then, or now if `at_once`; answers whether there were any.
    #[inline]
    pub(crate) fn look_for_letters(&mut self, now: Time, at_once: bool) -> bool {
        self.skipped += 1;
        let every = if self.expectant > 0 { LETTERS_SOON } else { LETTERS_EVERY };
        self.expectant = self.expectant.saturating_sub(1);
        if !at_once && self.skipped < every {
            return false;
        }
        self.skipped = 0;
        self.read_letters(now)
    }

    #[cold]
    fn read_letters(&mut self, now: Time) -> bool {
        self.incoming.retain(|incoming| !incoming.consumer.is_closed() || !incoming.consumer.is_empty());
        if now >= self.visit.1 {
            self.visit_writer(now);
        }
        let mut any = false;
        for _ in 0..LETTERS_AT_ONCE {
            let mut bytes = [0; Words::BYTES + 1];
            let Some(letter) = unix::receive_letter(&self.letterbox, &mut bytes) else { break };
            any = true;
            if let Some(words) = Words::parse(&bytes[..letter.len]).filter(|_| letter.uid.is_some_and(is_own_user)) {
                self.heed(now, words, &letter);
            }
        }
        any
    }

    /// Acts on a letter of a process of this user. A signal handler does so too.
    fn heed(&mut self, now: Time, words: Words, letter: &Letter) {
        match (words, &letter.from) {
            (Words::Ask { from, nonce }, _) => self.answer(from, nonce),
            (Words::Answer { nonce, ticket }, Some(name)) => self.offer(now, name, nonce, ticket),
            (Words::Answer { .. }, None) => {}
            (Words::Offer { offer, nonce, ticket }, _) => {
                let is_invited = ticket == self.ticket_for(offer.from, &nonce);
                if is_invited && sys::is_own(offer.source.ip()) && sys::is_own(offer.to) {
                    self.attach(&offer, letter);
                }
            }
        }
    }

    /// Looks whether the process that writes one of the rings is still there: one that was killed closes nothing.
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

    fn attach(&mut self, offer: &Offer, letter: &Letter) {
        let Offer { from: writer, source, to: local } = *offer;
        // A NIC that has gone may have been followed by another with the same port. One that has closed a ring and made
        // another has had its reasons for what is left in the first.
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
        let Some(file) = &letter.file else { return };
        if let Ok(consumer) = Consumer::attach(file.as_fd()) {
            consumer.set_sleeping(self.is_asleep);
            self.incoming.push(Incoming { consumer, source, local, writer, is_fresh: true });
        }
    }

    /// Says to all writers that they must wake this NIC; answers whether something has come already.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.is_asleep = true;
        self.incoming.iter().for_each(|incoming| incoming.consumer.set_sleeping(true));
        // Writers look after they have published; what was published before is seen here.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.incoming.iter().any(|incoming| !incoming.consumer.is_empty())
    }

    /// Somebody is awake; answers whether it was said that nobody is. To writers it stays said, until each has woken us
    /// once: another thread may sleep on, and the one that is awake may go away without a word.
    #[inline]
    pub(crate) fn wake_up(&mut self) -> bool {
        std::mem::take(&mut self.is_asleep)
    }
}

/// Whether `ip` is an address of this machine.
pub(crate) fn is_own_address(ip: IpAddr) -> bool {
    ip.is_loopback() || local_addresses().is_ok_and(|own| own.iter().any(|own| own.ip == ip))
}

/// Packets of up to `mtu` bytes that may be under way through one ring: three quarters of it, which leaves room for
/// acknowledgements.
pub(crate) fn ring_window(mtu: u32) -> u32 {
    (DATA_BYTES / 4 * 3 / record_bytes(crate::mtu::roce_datagram_bytes(mtu) as usize)) as u32
}

/// Rings of a NIC in each direction, at most: a megabyte each. Further peers take UDP.
const CHANNELS_MAX: usize = 256;

/// Letters that are read at a time: whoever floods the letterbox must not keep us from our work.
const LETTERS_AT_ONCE: usize = 16;

/// Turns between two looks into the letterbox while nobody sleeps: looking is a call of the kernel.
const LETTERS_EVERY: u32 = 64;

/// Turns between two looks while a letter is likely to come, and for how many turns it is, after the last one.
const LETTERS_SOON: u32 = 4;
const EXPECTANT_TURNS: u32 = 1_024;

/// A reader learns of packets when so many bytes are there, or with the end of a batch.
const PUBLISH_BYTES: u64 = 32 << 10;

/// A reader that has not read anything for so long may have died: ticks of a busy machine, and no retry count is used
/// up.
const LOOK_AFTER: Duration = Duration::from_ms(20);

/// How often one of the rings that we read is asked whether its writer is still there: a few calls of the kernel.
const VISIT_EVERY: Duration = Duration::from_ms(10);

/// A NIC that has no letterbox is not likely to get one.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "bypass/tests.rs"]
mod tests;
