//! Flow control for packets that are not acknowledged, between OpenRNIC NICs.
//!
//! Programs that use unreliable services are written for lossless fabrics, but a socket drops packets for which its
//! receive buffer has no space. Therefore unreliable packets use the peer's credit like all others
//! ([`rnic_engine::Engine::settle`]), and this NIC occasionally sends the peer's NIC a credit request, a management
//! datagram ([`rnic_wire::credit`]) on the same path as the packets. A socket is read in order: when the peer has
//! read the request, it has read all packets before it as well. So the peer needs no state and no counters; its
//! response only identifies the request. Packets that overtook the request have already been read, and lost packets
//! never reached the buffer.
//!
//! A request or its response may be lost: the request is retransmitted with increasing intervals, and a response also
//! covers all requests before the one it identifies. A peer that never responds (a real adapter, a process that has
//! exited) is assumed not to support this protocol: its packets then count as arrived when they are sent, and it is
//! probed again after a large number of them. Responses to old requests are still processed, so a process that was
//! merely stopped is recognized again.
//!
//! Only the peer, or a host that sees the packets to it, can grant credit: requests contain random cookies, and each
//! cookie is accepted once. A peer that responds too early only overruns its own buffer.
//!
//! This is a state machine without a socket, like the connection manager. It increments counters for each packet, and
//! does no other work per packet.

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_engine::PeerId;

/// A credit request to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CreditRequest {
    pub(crate) peer: PeerId,
    pub(crate) port: u16,
    pub(crate) cookie: u64,
}

/// Flow control state for all peers to which unreliable packets are sent.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    /// Peers, indexed by their number.
    peers: Vec<Option<Box<Peer>>>,
    /// Peers to which packets were sent since the last call of [`Credits::create_requests`].
    changed: Vec<PeerId>,
    /// Credit requests to be sent.
    requests: Vec<CreditRequest>,
    /// Numbers of packets, per peer, that no longer count against the peer's limit.
    settled: Vec<(PeerId, u64)>,
    /// Lower bound of the time of the next timeout.
    due: Option<Time>,
    /// Number of times that a target was declared unresponsive because neither a request nor any later one was
    /// answered.
    pub(crate) abandoned: u64,
}

/// Flow control state for one host.
#[derive(Debug, Default)]
struct Peer {
    targets: Vec<CreditTarget>,
    /// Index of the target to which the last packet was sent.
    latest: usize,
    /// Number of packets to all targets that are not covered by a request yet.
    uncovered: u64,
    /// Time at which a request for credit for these packets is sent at the latest, even if they are few.
    request_by: Option<Time>,
    is_changed: bool,
}

/// A UDP port of a host. Each port is used by one NIC.
#[derive(Debug)]
struct CreditTarget {
    port: u16,
    /// Number of packets that are not covered by a request yet.
    uncovered: u64,
    /// Requests to which a response may still arrive, oldest first.
    pending: ArrayVec<PendingRequest, PENDING_REQUESTS_MAX>,
    /// Number of consecutive timeouts.
    tries: u32,
    /// Time of the next timeout.
    deadline: Option<Time>,
    credit_support: CreditSupport,
    /// Round-trip time of the last response.
    round_trip: Duration,
}

/// A credit request that has been sent.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    cookie: u64,
    /// Number of packets that this request covers and the previous request does not.
    packets: u64,
    at: Time,
}

/// Knowledge about a NIC's support of the credit protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CreditSupport {
    /// There has been no response and no timeout yet.
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
            Some(target) if target.port == port => target.uncovered += 1,
            _ => match known.find(port) {
                Some(target) => target.uncovered += 1,
                None => return self.arrived(peer),
            },
        }
        known.uncovered += 1;
        if !known.is_changed {
            known.is_changed = true;
            self.changed.push(peer);
        }
    }

    /// Counts a packet to `peer` that is treated as received immediately, because its path is lossless or its target is
    /// not tracked.
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

    /// Returns whether [`Credits::create_requests`] or a `pop` function has messages to create or to send.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.changed.is_empty() || !self.settled.is_empty() || !self.requests.is_empty()
    }

    /// Returns the time at which [`Credits::tick`] must be called next; it may be earlier than necessary.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due
    }

    /// Returns the next request to be sent.
    pub(crate) fn pop_request(&mut self) -> Option<CreditRequest> {
        self.requests.pop()
    }

    /// Returns the next peer with packets that no longer count against its limit, and their number.
    pub(crate) fn pop_settled(&mut self) -> Option<(PeerId, u64)> {
        self.settled.pop()
    }

    /// Creates the requests that are needed. `limit` returns the in-flight limit of a peer; no requests are sent to
    /// peers without a limit.
    pub(crate) fn create_requests(
        &mut self,
        now: Time,
        limit: impl Fn(PeerId) -> Option<u64>,
        mut cookie: impl FnMut() -> u64,
    ) {
        while let Some(id) = self.changed.pop() {
            let Some(peer) = self.peers[id.0 as usize].as_deref_mut() else { continue };
            peer.is_changed = false;
            let mut arrived = 0;
            let is_due = match limit(id) {
                Some(limit) => {
                    peer.uncovered >= limit / REQUESTS_PER_LIMIT || peer.request_by.is_some_and(|due| due <= now)
                }
                None => {
                    arrived += peer.take_uncovered();
                    false
                }
            };
            for target in &mut peer.targets {
                let sends_request = match &mut target.credit_support {
                    CreditSupport::Unresponsive(packets_since_request) => {
                        let packets = std::mem::take(&mut target.uncovered);
                        peer.uncovered -= packets;
                        arrived += packets;
                        *packets_since_request += packets;
                        *packets_since_request >= PROBE_PACKETS && std::mem::take(packets_since_request) > 0
                    }
                    _ => is_due && target.uncovered > 0 && target.covering_requests() < REQUESTS_PER_LIMIT as usize,
                };
                if sends_request {
                    peer.uncovered -= target.uncovered;
                    self.requests.push(target.create_request(now, id, cookie()));
                    self.due = earlier(self.due, target.deadline);
                }
            }
            peer.request_by =
                (peer.uncovered > 0).then(|| peer.request_by.filter(|due| *due > now).unwrap_or(now + DELAY_MAX));
            self.due = earlier(self.due, peer.request_by);
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
                    peer.uncovered -= target.uncovered;
                    target.tries += 1;
                    if target.tries >= target.tries_max() {
                        self.abandoned += 1;
                        arrived += target.abandon();
                    } else {
                        self.requests.push(target.create_request(now, id, cookie()));
                    }
                }
                self.due = earlier(self.due, target.deadline);
            }
            let is_due = peer.request_by.is_some_and(|due| due <= now);
            if is_due && !peer.is_changed {
                peer.is_changed = true;
                self.changed.push(id);
            }
            self.due = earlier(self.due, peer.request_by.filter(|_| !is_due));
            if arrived > 0 {
                self.settle(id, arrived);
            }
        }
    }

    /// Processes a response from `peer`; returns false when it matches no request.
    pub(crate) fn on_response(&mut self, now: Time, peer: PeerId, cookie: u64) -> bool {
        let Some(known) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_deref_mut) else { return false };
        let Some(packets) = known.targets.iter_mut().find_map(|target| target.on_response(now, cookie)) else {
            return false;
        };
        // Another request may be permitted, now that one has been answered.
        if !known.is_changed {
            known.is_changed = true;
            self.changed.push(peer);
        }
        self.settle(peer, packets);
        true
    }

    /// Removes a peer, because its number may be reused for another one.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer.0 as usize).and_then(Option::take) else { return };
        let packets = known.targets.iter().map(|target| target.uncovered + target.packets_covered()).sum();
        self.changed.retain(|id| *id != peer);
        self.requests.retain(|request| request.peer != peer);
        self.settle(peer, packets);
    }
}

impl Peer {
    /// Returns the target at `port`, and remembers it for the next packet; returns `None` when too many targets are
    /// tracked.
    #[cold]
    fn find(&mut self, port: u16) -> Option<&mut CreditTarget> {
        let is_idle = |target: &CreditTarget| target.uncovered == 0 && target.packets_covered() == 0;
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

    fn take_uncovered(&mut self) -> u64 {
        self.targets.iter_mut().for_each(|target| target.uncovered = 0);
        std::mem::take(&mut self.uncovered)
    }
}

impl CreditTarget {
    fn new(port: u16) -> Self {
        let (pending, round_trip) = (ArrayVec::new(), Duration::ZERO);
        Self {
            port,
            uncovered: 0,
            pending,
            tries: 0,
            deadline: None,
            credit_support: CreditSupport::Unknown,
            round_trip,
        }
    }

    /// Returns the number of outstanding requests that cover packets.
    fn covering_requests(&self) -> usize {
        self.pending.iter().filter(|pending| pending.packets > 0).count()
    }

    fn packets_covered(&self) -> u64 {
        self.pending.iter().map(|pending| pending.packets).sum()
    }

    fn tries_max(&self) -> u32 {
        if self.credit_support == CreditSupport::Supported { TRIES_OF_RESPONSIVE } else { TRIES }
    }

    /// Creates a request that covers all packets sent so far.
    fn create_request(&mut self, now: Time, peer: PeerId, cookie: u64) -> CreditRequest {
        if self.pending.is_full() {
            // The list is full: the oldest request is merged into the next one, whose response covers both.
            let oldest = self.pending.remove(0);
            self.pending[0].packets += oldest.packets;
        }
        self.pending.push(PendingRequest { cookie, packets: std::mem::take(&mut self.uncovered), at: now });
        let timeout = TIMEOUT.max(self.round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS)).min(TIMEOUT_MAX);
        let awaits_response = !matches!(self.credit_support, CreditSupport::Unresponsive(_));
        if awaits_response && (self.tries > 0 || self.deadline.is_none()) {
            self.deadline = Some(now + timeout.saturating_mul(1 << self.tries));
        }
        CreditRequest { peer, port: self.port, cookie }
    }

    /// Processes a response: returns the number of packets that it covers, or `None` if it matches no request.
    fn on_response(&mut self, now: Time, cookie: u64) -> Option<u64> {
        let index = self.pending.iter().position(|pending| pending.cookie == cookie)?;
        self.round_trip = now.since(self.pending[index].at);
        let packets = self.pending.drain(..=index).map(|pending| pending.packets).sum();
        self.tries = 0;
        self.credit_support = CreditSupport::Supported;
        let timeout = TIMEOUT.max(self.round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS)).min(TIMEOUT_MAX);
        let awaits = self.pending.iter().any(|pending| pending.packets > 0);
        self.deadline = awaits.then(|| now + timeout);
        Some(packets)
    }

    /// Stops waiting for responses: returns the number of packets that waited for one. The requests are kept, because
    /// a response may still arrive.
    fn abandon(&mut self) -> u64 {
        let packets = self.uncovered + self.packets_covered();
        self.uncovered = 0;
        self.pending.iter_mut().for_each(|pending| pending.packets = 0);
        (self.tries, self.deadline, self.credit_support) = (0, None, CreditSupport::Unresponsive(0));
        packets
    }
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    [one, other].into_iter().flatten().min()
}

/// Number of requests per in-flight limit of a peer: enough that sending never has to wait for a round trip, and few
/// enough to cost little.
const REQUESTS_PER_LIMIT: u64 = 4;

/// Maximum number of ports of one host that are tracked at the same time. Packets to further ports are not tracked.
const TARGETS_MAX: usize = 64;

/// Maximum number of sent requests per port that are stored to match responses: the requests of one round trip, and the
/// maximum number of retransmissions.
const PENDING_REQUESTS_MAX: usize = REQUESTS_PER_LIMIT as usize + TRIES_OF_RESPONSIVE as usize + 1;

/// Longest response time of a process that is running on a core. After this time, the request is retransmitted.
const TIMEOUT: Duration = Duration::from_ms(4);

/// Timeout on slow paths, in round trips.
const TIMEOUT_ROUND_TRIPS: u64 = 2;

/// Upper bound of the timeout on any path.
const TIMEOUT_MAX: Duration = Duration::from_ms(500);

/// Number of requests to a NIC that has never responded. They take 60 ms, because each timeout is twice as long as
/// the one before.
const TRIES: u32 = 4;

/// Number of requests to a NIC that has responded before. They take half a second, because on a busy machine the
/// process may be off its core for that long.
const TRIES_OF_RESPONSIVE: u32 = 7;

/// Number of packets after which an unresponsive NIC is probed again: probes are a thousandth of the traffic.
const PROBE_PACKETS: u64 = 1_024;

/// Maximum time between a packet and the request that covers it, when no more packets follow.
const DELAY_MAX: Duration = Duration::from_ms(10);

#[cfg(test)]
#[path = "credit/tests.rs"]
mod tests;
