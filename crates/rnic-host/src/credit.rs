//! Flow control for packets that are not acknowledged, between OpenRNIC NICs.
//!
//! Programs that use unreliable services are written for lossless fabrics; a socket drops packets for which its receive
//! buffer has no space. So unreliable packets use the peer's credit like all others ([`rnic_engine::Engine::settle`]),
//! and the peer's NIC is asked now and then whether it has received them: by a management datagram
//! ([`rnic_wire::credit`]) on the path that the packets took. A socket is read in order. So the peer keeps no state and
//! counts nothing: when the request has been read, everything before it has been read as well, and a response that only
//! names the request reports that. Packets that overtook the request or were lost on the way have left the buffer or
//! never reached it.
//!
//! A request or its response may be lost: the request is retransmitted, with growing intervals, and any response also
//! covers all requests before its own. A peer that never responds (a real adapter, a process that has exited) is
//! assumed not to support this protocol: its packets then count as arrived when they are sent, and it is probed again
//! after a large number of them. Responses to old requests are still processed, so a process that was merely stopped is
//! recognized again.
//!
//! Only the peer, or a host that sees its packets, can grant credit: cookies are random, and each counts once. A peer
//! that responds too early only overruns itself.
//!
//! This is a state machine without a socket, as the connection manager is. Its work per packet is a counter update.

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_engine::PeerId;

/// A credit request to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) peer: PeerId,
    pub(crate) port: u16,
    pub(crate) cookie: u64,
}

/// Flow control state of all peers to which unreliable packets are sent.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    /// Peers by number.
    peers: Vec<Option<Box<Peer>>>,
    /// Peers with changes since the last call of [`Credits::ask`].
    touched: Vec<PeerId>,
    /// Credit requests to be sent.
    asks: Vec<Ask>,
    /// Packets that no longer count against their peer's limit.
    settled: Vec<(PeerId, u64)>,
    /// Lower bound of the time of the next timeout.
    due: Option<Time>,
    /// Number of times that a target was given up because neither a request nor any later one was answered.
    pub(crate) given_up: u64,
}

/// Flow control state of a host.
#[derive(Debug, Default)]
struct Peer {
    targets: Vec<CreditTarget>,
    /// Index of the target of the last packet.
    latest: usize,
    /// Packets to all targets that no request covers yet.
    fresh: u64,
    /// Time by which a request is sent for them, however few they are.
    ask_by: Option<Time>,
    is_touched: bool,
}

/// A UDP port of a host, used by one NIC.
#[derive(Debug)]
struct CreditTarget {
    port: u16,
    /// Packets that no request covers yet.
    fresh: u64,
    /// Requests that may still be answered, oldest first.
    asked: ArrayVec<Asked, ASKED_MAX>,
    /// Number of consecutive timeouts.
    tries: u32,
    /// Time of the next timeout.
    deadline: Option<Time>,
    speaks: CreditSupport,
    /// Round-trip time of the last response.
    round_trip: Duration,
}

/// A sent request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    cookie: u64,
    /// Packets that this request covers and the one before does not.
    packets: u64,
    at: Time,
}

/// Knowledge of whether a NIC supports the credit protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CreditSupport {
    /// No response and no timeout so far.
    Unknown,
    /// The NIC has responded.
    Supported,
    /// The NIC does not respond; with the number of packets sent to it since the last request.
    Unresponsive(u64),
}

impl Credits {
    /// Records that a packet is sent to `port` of `peer`.
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

    /// Records a packet to `peer` that counts as arrived immediately, because its path is lossless or its target is not
    /// tracked.
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

    /// Returns whether [`Credits::ask`] or one of the `pop` functions has work.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.touched.is_empty() || !self.settled.is_empty() || !self.asks.is_empty()
    }

    /// Returns the time at which [`Credits::tick`] has something to do; may be earlier than needed.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due
    }

    /// Returns the next request to be sent.
    pub(crate) fn pop_ask(&mut self) -> Option<Ask> {
        self.asks.pop()
    }

    /// Returns a peer and the number of its packets that no longer count.
    pub(crate) fn pop_settled(&mut self) -> Option<(PeerId, u64)> {
        self.settled.pop()
    }

    /// Creates the requests that are needed, for the in-flight limit that `limit` returns for each peer: peers without
    /// one are not asked.
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
                    CreditSupport::Unresponsive(unasked) => {
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

    /// Processes all timeouts that are due.
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

    /// Processes a response from `peer`; returns false when it matches no request.
    pub(crate) fn answered(&mut self, now: Time, peer: PeerId, cookie: u64) -> bool {
        let Some(known) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_deref_mut) else { return false };
        let Some(packets) = known.targets.iter_mut().find_map(|target| target.answered(now, cookie)) else {
            return false;
        };
        // There may be another request to send, now that one has been answered.
        if !known.is_touched {
            known.is_touched = true;
            self.touched.push(peer);
        }
        self.settle(peer, packets);
        true
    }

    /// Removes a peer: its number may be reused for another.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer.0 as usize).and_then(Option::take) else { return };
        let packets = known.targets.iter().map(|target| target.fresh + target.packets_asked()).sum();
        self.touched.retain(|id| *id != peer);
        self.asks.retain(|ask| ask.peer != peer);
        self.settle(peer, packets);
    }
}

impl Peer {
    /// Returns the target at `port`, and caches it for the next packet; returns `None` when there are too many.
    #[cold]
    fn find(&mut self, port: u16) -> Option<&mut CreditTarget> {
        let is_idle = |target: &CreditTarget| target.fresh == 0 && target.packets_asked() == 0;
        self.latest = match self.targets.iter().position(|target| target.port == port) {
            Some(index) => index,
            None if self.targets.len() < TARGETS_MAX => {
                self.targets.push(CreditTarget::new(port));
                self.targets.len() - 1
            }
            None => {
                let index = self.targets.iter().position(is_idle)?;
                self.targets[index] = CreditTarget::new(port);
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

impl CreditTarget {
    fn new(port: u16) -> Self {
        let (asked, round_trip) = (ArrayVec::new(), Duration::ZERO);
        Self { port, fresh: 0, asked, tries: 0, deadline: None, speaks: CreditSupport::Unknown, round_trip }
    }

    /// Returns the number of requests that cover packets.
    fn covered(&self) -> usize {
        self.asked.iter().filter(|asked| asked.packets > 0).count()
    }

    fn packets_asked(&self) -> u64 {
        self.asked.iter().map(|asked| asked.packets).sum()
    }

    fn tries_max(&self) -> u32 {
        if self.speaks == CreditSupport::Supported { TRIES_OF_SPEAKER } else { TRIES }
    }

    /// Creates a request that covers everything sent so far.
    fn ask(&mut self, now: Time, peer: PeerId, cookie: u64) -> Ask {
        if self.asked.is_full() {
            // A response to a later request covers this one too.
            let oldest = self.asked.remove(0);
            self.asked[0].packets += oldest.packets;
        }
        self.asked.push(Asked { cookie, packets: std::mem::take(&mut self.fresh), at: now });
        let patience = TIMEOUT.max(self.round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS)).min(TIMEOUT_MAX);
        let is_awaited = !matches!(self.speaks, CreditSupport::Unresponsive(_));
        if is_awaited && (self.tries > 0 || self.deadline.is_none()) {
            self.deadline = Some(now + patience.saturating_mul(1 << self.tries));
        }
        Ask { peer, port: self.port, cookie }
    }

    /// Processes a response: returns the number of packets that it covers, or `None` if it matches no request.
    fn answered(&mut self, now: Time, cookie: u64) -> Option<u64> {
        let index = self.asked.iter().position(|asked| asked.cookie == cookie)?;
        self.round_trip = now.since(self.asked[index].at);
        let packets = self.asked.drain(..=index).map(|asked| asked.packets).sum();
        self.tries = 0;
        self.speaks = CreditSupport::Supported;
        let patience = TIMEOUT.max(self.round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS)).min(TIMEOUT_MAX);
        let awaits = self.asked.iter().any(|asked| asked.packets > 0);
        self.deadline = awaits.then(|| now + patience);
        Some(packets)
    }

    /// Gives up waiting for responses: returns the number of packets that no longer wait for one. The requests are
    /// kept, in case a response arrives after all.
    fn give_up(&mut self) -> u64 {
        let packets = self.fresh + self.packets_asked();
        self.fresh = 0;
        self.asked.iter_mut().for_each(|asked| asked.packets = 0);
        (self.tries, self.deadline, self.speaks) = (0, None, CreditSupport::Unresponsive(0));
        packets
    }
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    [one, other].into_iter().flatten().min()
}

/// Requests per in-flight limit of a peer: enough that sending never pauses for a round trip, and few enough to cost
/// little.
const ASKS_IN_LIMIT: u64 = 4;

/// Ports of one host that are tracked at a time. Packets to further ports are not tracked.
const TARGETS_MAX: usize = 64;

/// Sent requests that are kept per port to match responses: those of one round trip, and the maximum number of
/// retransmissions.
const ASKED_MAX: usize = ASKS_IN_LIMIT as usize + TRIES_OF_SPEAKER as usize + 1;

/// Longest response time of a process that has its core. After that, the request is retransmitted.
const TIMEOUT: Duration = Duration::from_ms(4);

/// Timeout on slow paths, in round trips.
const TIMEOUT_ROUND_TRIPS: u64 = 2;

/// Upper bound of the timeout on any path.
const TIMEOUT_MAX: Duration = Duration::from_ms(500);

/// Requests to a NIC that has never responded: 60 ms, each timeout twice as long as the one before.
const TRIES: u32 = 4;

/// Requests to a NIC that has responded before: half a second, for which a busy machine may keep the process from its
/// core.
const TRIES_OF_SPEAKER: u32 = 7;

/// Packets after which a NIC that does not respond is probed again: a thousandth of the traffic.
const PROBE_PACKETS: u64 = 1_024;

/// Maximum time that packets stay without a request when no more follow.
const FRESH_MAX: Duration = Duration::from_ms(10);

#[cfg(test)]
#[path = "credit/tests.rs"]
mod tests;
