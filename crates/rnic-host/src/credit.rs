//! Flow control for packets that nobody acknowledges, between NICs of ours.
//!
//! Programs that use unreliable services are written for fabrics that lose nothing; a socket's receive buffer loses
//! whatever it has no room for. So unreliable packets count against the peer's room like all others
//! ([`rnic_engine::Engine::settle`]), and we ask the peer's NIC now and then whether it has taken them in: by a
//! management datagram ([`rnic_wire::credit`]) on the way that the packets took. A socket is read in order. So the peer
//! keeps nothing and counts nothing: when the request has been read, everything before it has been read as well, and
//! an answer that only names the request says so. What overtook the request or was lost on the way has left the buffer
//! or never got there.
//!
//! A request may be lost, or its answer: it is made again, later each time, and any answer speaks for all requests
//! before its own. A peer that never answers (a real adapter, a process that is gone) is taken for one that does not
//! speak this: its packets then count as arrived when they leave, and it is asked again after a great many of them.
//! Answers to old requests are still heeded, so a process that was merely stopped becomes known again.
//!
//! Nobody but the peer, and who hears its packets, can give credit: cookies are random, and each counts once. A peer
//! that answers too early only overruns itself.
//!
//! This is a state machine without a socket, as the connection manager is. For each packet it counts, and no more.

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_engine::PeerId;

/// A request to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) peer: PeerId,
    pub(crate) port: u16,
    pub(crate) cookie: u64,
}

/// What is known of all peers that unreliable packets go to.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    /// By number.
    peers: Vec<Option<Box<Peer>>>,
    /// Peers that [`Credits::ask`] has not looked at since something happened.
    touched: Vec<PeerId>,
    /// Requests to be sent.
    asks: Vec<Ask>,
    /// Packets that no longer count.
    settled: Vec<(PeerId, u64)>,
    /// Nothing is due earlier.
    due: Option<Time>,
    /// Requests that were never answered, nor any after them.
    pub(crate) given_up: u64,
}

/// A host.
#[derive(Debug, Default)]
struct Peer {
    targets: Vec<Target>,
    /// Which of them the last packet went to.
    latest: usize,
    /// Packets to all targets that no request covers.
    fresh: u64,
    /// When they are asked about, few as they may be.
    ask_by: Option<Time>,
    is_touched: bool,
}

/// A UDP port of a host: a NIC.
#[derive(Debug)]
struct Target {
    port: u16,
    /// Packets that no request covers.
    fresh: u64,
    /// Requests that may yet be answered, oldest first.
    asked: ArrayVec<Asked, ASKED_MAX>,
    /// Times in a row that no answer came in time.
    tries: u32,
    /// When the next one counts.
    deadline: Option<Time>,
    speaks: Speaks,
    /// What the last answer took.
    round_trip: Duration,
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    cookie: u64,
    /// What it covers and the one before does not.
    packets: u64,
    at: Time,
}

/// Whether a NIC answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speaks {
    /// Nobody knows yet.
    Perhaps,
    Yes,
    /// Not now, and so many packets have left since it was last asked.
    No(u64),
}

impl Credits {
    /// A packet for `port` of `peer` leaves.
    #[inline]
    pub(crate) fn sent(&mut self, peer: PeerId, port: u16) {
        let index = peer.0 as usize;
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        let known = self.peers[index].get_or_insert_default();
        match known.targets.get_mut(known.latest) {
            Some(target) if target.port == port => target.fresh += 1,
            _ => match known.find(port) {
                Some(target) => target.fresh += 1,
                None => return self.arrived(peer),
            },
        }
        known.fresh += 1;
        if !known.is_touched {
            known.is_touched = true;
            self.touched.push(peer);
        }
    }

    /// A packet for `peer` leaves on a way that loses nothing, or that nobody watches.
    #[inline]
    pub(crate) fn arrived(&mut self, peer: PeerId) {
        self.settle(peer, 1);
    }

    fn settle(&mut self, peer: PeerId, packets: u64) {
        match self.settled.last_mut() {
            Some((last, sum)) if *last == peer => *sum += packets,
            _ => self.settled.push((peer, packets)),
        }
    }

    /// Whether there is anything to do for [`Credits::ask`] and its like.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.touched.is_empty() || !self.settled.is_empty() || !self.asks.is_empty()
    }

    /// When [`Credits::tick`] has something to do; may be early.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due
    }

    /// A request to be sent.
    pub(crate) fn pop_ask(&mut self) -> Option<Ask> {
        self.asks.pop()
    }

    /// Packets that no longer count.
    pub(crate) fn pop_settled(&mut self) -> Option<(PeerId, u64)> {
        self.settled.pop()
    }

    /// Makes the requests that are called for, when peers have the limits that `limit` says: those without one are not
    /// asked.
    pub(crate) fn ask(&mut self, now: Time, limit: impl Fn(PeerId) -> Option<u64>, mut cookie: impl FnMut() -> u64) {
        while let Some(id) = self.touched.pop() {
            let Some(peer) = self.peers[id.0 as usize].as_deref_mut() else { continue };
            peer.is_touched = false;
            let mut arrived = 0;
            let is_due = match limit(id) {
                Some(limit) => peer.fresh >= limit / ASKS_IN_LIMIT || peer.ask_by.is_some_and(|due| due <= now),
                None => {
                    arrived += peer.give_up_fresh();
                    false
                }
            };
            for target in &mut peer.targets {
                let asks = match &mut target.speaks {
                    Speaks::No(unasked) => {
                        let packets = std::mem::take(&mut target.fresh);
                        peer.fresh -= packets;
                        arrived += packets;
                        *unasked += packets;
                        *unasked >= PROBE_PACKETS && std::mem::take(unasked) > 0
                    }
                    _ => is_due && target.fresh > 0 && target.covered() < ASKS_IN_LIMIT as usize,
                };
                if asks {
                    peer.fresh -= target.fresh;
                    self.asks.push(target.ask(now, id, cookie()));
                    self.due = earlier(self.due, target.deadline);
                }
            }
            peer.ask_by = (peer.fresh > 0).then(|| peer.ask_by.filter(|due| *due > now).unwrap_or(now + FRESH_MAX));
            self.due = earlier(self.due, peer.ask_by);
            if arrived > 0 {
                self.settle(id, arrived);
            }
        }
    }

    /// Lets everything act that is due.
    pub(crate) fn tick(&mut self, now: Time, mut cookie: impl FnMut() -> u64) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        for index in 0..self.peers.len() {
            let id = PeerId(index as u32);
            let Some(peer) = self.peers[index].as_deref_mut() else { continue };
            let mut arrived = 0;
            for target in &mut peer.targets {
                if target.deadline.is_some_and(|deadline| deadline <= now) {
                    peer.fresh -= target.fresh;
                    target.tries += 1;
                    if target.tries >= target.tries_max() {
                        self.given_up += 1;
                        arrived += target.give_up();
                    } else {
                        self.asks.push(target.ask(now, id, cookie()));
                    }
                }
                self.due = earlier(self.due, target.deadline);
            }
            let is_due = peer.ask_by.is_some_and(|due| due <= now);
            if is_due && !peer.is_touched {
                peer.is_touched = true;
                self.touched.push(id);
            }
            self.due = earlier(self.due, peer.ask_by.filter(|_| !is_due));
            if arrived > 0 {
                self.settle(id, arrived);
            }
        }
    }

    /// Takes an answer from `peer`; false when nobody has asked.
    pub(crate) fn answered(&mut self, now: Time, peer: PeerId, cookie: u64) -> bool {
        let Some(known) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_deref_mut) else { return false };
        let Some(packets) = known.targets.iter_mut().find_map(|target| target.answered(now, cookie)) else {
            return false;
        };
        // There may be more to ask, now that there is room for a request.
        if !known.is_touched {
            known.is_touched = true;
            self.touched.push(peer);
        }
        self.settle(peer, packets);
        true
    }

    /// A peer is gone: its number may be another's next.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer.0 as usize).and_then(Option::take) else { return };
        let packets = known.targets.iter().map(|target| target.fresh + target.packets_asked()).sum();
        self.touched.retain(|id| *id != peer);
        self.asks.retain(|ask| ask.peer != peer);
        self.settle(peer, packets);
    }
}

impl Peer {
    /// The target at `port`, which the next packet goes to as well; `None` when there are too many.
    #[cold]
    fn find(&mut self, port: u16) -> Option<&mut Target> {
        let is_idle = |target: &Target| target.fresh == 0 && target.packets_asked() == 0;
        self.latest = match self.targets.iter().position(|target| target.port == port) {
            Some(index) => index,
            None if self.targets.len() < TARGETS_MAX => {
                self.targets.push(Target::new(port));
                self.targets.len() - 1
            }
            None => {
                let index = self.targets.iter().position(is_idle)?;
                self.targets[index] = Target::new(port);
                index
            }
        };
        self.targets.get_mut(self.latest)
    }

    fn give_up_fresh(&mut self) -> u64 {
        self.targets.iter_mut().for_each(|target| target.fresh = 0);
        std::mem::take(&mut self.fresh)
    }
}

impl Target {
    fn new(port: u16) -> Self {
        let (asked, round_trip) = (ArrayVec::new(), Duration::ZERO);
        Self { port, fresh: 0, asked, tries: 0, deadline: None, speaks: Speaks::Perhaps, round_trip }
    }

    /// Requests that cover packets.
    fn covered(&self) -> usize {
        self.asked.iter().filter(|asked| asked.packets > 0).count()
    }

    fn packets_asked(&self) -> u64 {
        self.asked.iter().map(|asked| asked.packets).sum()
    }

    fn tries_max(&self) -> u32 {
        if self.speaks == Speaks::Yes { TRIES_OF_SPEAKER } else { TRIES }
    }

    /// Asks about everything that has left.
    fn ask(&mut self, now: Time, peer: PeerId, cookie: u64) -> Ask {
        if self.asked.is_full() {
            // An answer to a later one speaks for it.
            let oldest = self.asked.remove(0);
            self.asked[0].packets += oldest.packets;
        }
        self.asked.push(Asked { cookie, packets: std::mem::take(&mut self.fresh), at: now });
        let patience = TIMEOUT.max(self.round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS)).min(TIMEOUT_MAX);
        let is_awaited = !matches!(self.speaks, Speaks::No(_));
        if is_awaited && (self.tries > 0 || self.deadline.is_none()) {
            self.deadline = Some(now + patience.saturating_mul(1 << self.tries));
        }
        Ask { peer, port: self.port, cookie }
    }

    /// An answer has come: how many packets it speaks for, if it is one of ours.
    fn answered(&mut self, now: Time, cookie: u64) -> Option<u64> {
        let index = self.asked.iter().position(|asked| asked.cookie == cookie)?;
        self.round_trip = now.since(self.asked[index].at);
        let packets = self.asked.drain(..=index).map(|asked| asked.packets).sum();
        self.tries = 0;
        self.speaks = Speaks::Yes;
        let patience = TIMEOUT.max(self.round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS)).min(TIMEOUT_MAX);
        let awaits = self.asked.iter().any(|asked| asked.packets > 0);
        self.deadline = awaits.then(|| now + patience);
        Some(packets)
    }

    /// No answer will come: how many packets no longer wait for one. The requests are kept, in case one comes after
    /// all.
    fn give_up(&mut self) -> u64 {
        let packets = self.fresh + self.packets_asked();
        self.fresh = 0;
        self.asked.iter_mut().for_each(|asked| asked.packets = 0);
        (self.tries, self.deadline, self.speaks) = (0, None, Speaks::No(0));
        packets
    }
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    [one, other].into_iter().flatten().min()
}

/// Requests in what may be under way to a peer: so many that packets never stop for one round trip, and so few that
/// they cost little.
const ASKS_IN_LIMIT: u64 = 4;

/// Ports of one host that are watched at a time. Packets to more of them are not.
const TARGETS_MAX: usize = 64;

/// Requests to one port that an answer is known by: those of one round trip, and as many repetitions as there can be.
const ASKED_MAX: usize = ASKS_IN_LIMIT as usize + TRIES_OF_SPEAKER as usize + 1;

/// How long an answer takes at most, from a process that has its core. Without it, the request is repeated.
const TIMEOUT: Duration = Duration::from_ms(4);

/// On slow paths: round trips that it takes.
const TIMEOUT_ROUND_TRIPS: u64 = 2;

/// No path makes it longer.
const TIMEOUT_MAX: Duration = Duration::from_ms(500);

/// Times that a NIC is asked that has never answered: 60 ms, each twice as long as the one before.
const TRIES: u32 = 4;

/// The same for one that has answered: half a second, which a busy machine may keep it from its core.
const TRIES_OF_SPEAKER: u32 = 7;

/// Packets after which a NIC that does not answer is asked again: a thousandth of the traffic.
const PROBE_PACKETS: u64 = 1_024;

/// How long packets stay without a request when no more follow.
const FRESH_MAX: Duration = Duration::from_ms(10);

#[cfg(test)]
#[path = "credit/tests.rs"]
mod tests;
