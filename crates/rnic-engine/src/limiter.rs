//! The dequeue rate of a queue pair: the rate at which the NIC takes its data out of memory.
//!
//! Source: SCR (NSDI'25) section 4.2, mechanism S-1. This one number bounds what a queue pair sends, what it reads over
//! the host bus, and what its receiver has to take. The scheduler, the program, the operator and, by messages
//! ([`crate::messages`]), the peer may each set a limit; the lowest is in force. It is separate from the rate of
//! congestion control, and a packet has to wait for both.
//!
//! The limiter counts bytes on the wire: payload and [`OVERHEAD_BYTES`]. A queue pair that had nothing to send may then
//! send a *burst*. One that had work and was late, because the link was busy or its driver slept, may catch up what it
//! missed; otherwise the rates of queue pairs that share a link would add up to less than the link. Requests, responses
//! to the peer's Reads, and retransmissions are charged. Acknowledgements never wait.

use rnic_base::{BitRate, Duration, Time};

use crate::ready::Half;
use crate::timer::Deadline;

/// Number of bytes that a packet occupies on the wire besides its payload: Ethernet preamble and gap 20, header and FCS
/// 18, IPv4 20, UDP 8, BTH 12.
pub(crate) const OVERHEAD_BYTES: u64 = 78;

/// Minimum dequeue rate.
pub const RATE_LIMIT_MIN: BitRate = rnic_policy::schedule::RATE_MIN;

/// Origin of a limit that a user has set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitSource {
    /// The program that uses the queue pair (`ibv_modify_qp_rate_limit`).
    Program,
    /// The operator of the machine (`rnic limit`), whose limit the program cannot remove.
    Operator,
    /// The program, for all queue pairs of its NIC, by a hint in shared memory (SCR mechanism S-9).
    Hint,
}

impl LimitSource {
    /// Number of sources.
    pub const COUNT: usize = 3;
    /// All sources, in the order of their numbers.
    pub(crate) const ALL: [Self; Self::COUNT] = [Self::Program, Self::Operator, Self::Hint];
}

/// Limit of a queue pair, set by a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Bits per second on the wire.
    pub rate: BitRate,
    /// Bytes that may be sent at once after a pause; `None` for the engine's default.
    pub burst_bytes: Option<u32>,
}

/// Rate limits of a queue pair, and the time from which its next packet may be sent.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Limiter {
    /// Limits of users, by [`LimitSource`].
    users: [Option<RateLimit>; LimitSource::COUNT],
    scheduler: Option<BitRate>,
    /// Limit set by messages of the peer: grants and back-pressure.
    peer: Option<BitRate>,
    /// The lowest of the limits, which applies.
    in_force: Option<InForce>,
    /// Time at which the packets sent so far will have drained at the current rate (the theoretical arrival time of
    /// GCRA).
    paid_at: Time,
    /// Time at which a packet that had to wait may be sent.
    wake_at: Deadline,
    /// True for each half ([`Half`]) that has packets to send. Only then does not sending count as falling behind the
    /// permitted rate.
    has_work: [bool; 2],
    /// True for each half ([`Half`]) that has had to wait since it last sent.
    is_waiting: [bool; 2],
    /// Half that sent last.
    last_half: usize,
    /// Number of waits.
    waits: u64,
}

/// A rate, and durations derived from it.
#[derive(Clone, Copy, Debug)]
struct InForce {
    rate: BitRate,
    /// Duration of a burst at the rate.
    burst: Duration,
    /// Maximum time for which a queue pair that was held up may send above its rate to catch up; not less than `burst`.
    catch_up: Duration,
    /// Additional time that a queue pair waits once it has to wait, so that it then sends several packets together.
    train: Duration,
}

/// Burst size of rate-limited queue pairs whose user sets none: by default two full packets, with each packet that has
/// to wait sent as soon as the rate permits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BurstDefault {
    /// Bytes that may be sent at once; at least two full packets are allowed in any case.
    pub bytes: u32,
    /// Number of bytes that a queue pair accumulates when it has to wait. With zero, each packet is sent as soon as it
    /// may be; drivers that pass several packets to the kernel in one call (GSO) use more.
    pub train_bytes: u32,
    /// Maximum time for which a queue pair that was held up may send above its rate to catch up, if this is more than a
    /// burst.
    pub catch_up: Duration,
}

impl Limiter {
    /// Sets or removes a user's limit, which takes effect with [`Self::update`].
    pub(crate) fn set_user(&mut self, source: LimitSource, limit: Option<RateLimit>) {
        self.users[source as usize] = limit;
    }

    /// Sets or removes the scheduler's limit; returns whether it changed, so that [`Self::update`] has to be called.
    pub(crate) fn set_scheduler(&mut self, rate: Option<BitRate>) -> bool {
        std::mem::replace(&mut self.scheduler, rate) != rate
    }

    /// Returns whether the scheduler's limit is the lowest: otherwise another limit applies whatever the scheduler
    /// sets.
    pub(crate) fn is_scheduler_in_force(&self) -> bool {
        let others = self.users.iter().flatten().map(|limit| limit.rate).chain(self.peer).min();
        self.scheduler.is_some_and(|rate| others.is_none_or(|other| rate < other))
    }

    /// Sets or removes the limit by messages of the peer; returns whether it changed, as [`Self::set_scheduler`] does.
    pub(crate) fn set_peer(&mut self, rate: Option<BitRate>) -> bool {
        std::mem::replace(&mut self.peer, rate) != rate
    }

    /// Applies the lowest of the limits. `mtu` is the payload length of a full packet.
    pub(crate) fn update(&mut self, now: Time, mtu: u32, default: BurstDefault) {
        let lowest = self.users.iter().flatten().min_by_key(|limit| limit.rate);
        let user = lowest.map(|limit| limit.rate);
        let Some(rate) = [user, self.scheduler, self.peer].into_iter().flatten().min() else {
            *self = Self { waits: self.waits, ..Self::default() };
            return;
        };
        let packet_bytes = u64::from(mtu) + OVERHEAD_BYTES;
        // With several users, no user gets a longer burst than the others allow.
        let bursts = self.users.iter().flatten().map(|limit| limit.burst_bytes.unwrap_or(default.bytes));
        let burst_bytes = bursts.min().unwrap_or(default.bytes);
        let burst = rate.serialize(u64::from(burst_bytes).max(2 * packet_bytes));
        let train = rate.serialize(u64::from(default.train_bytes)).min(TRAIN_MAX).min(burst / 2);
        let catch_up = default.catch_up.max(burst);
        self.in_force = Some(InForce { rate, burst, catch_up, train });
        // Packets charged at a lower rate delay the next one by no more than a packet at the new rate.
        self.paid_at = self.paid_at.min(now + rate.serialize(packet_bytes));
        self.wake_at = Deadline::NEVER;
    }

    /// Returns a limiter with the rate limits set by users and by the peer, but no scheduler limit.
    pub(crate) fn without_scheduler(&self) -> Self {
        Self { users: self.users, peer: self.peer, ..Self::default() }
    }

    /// Returns the limit by messages of the peer.
    pub(crate) fn peer(&self) -> Option<BitRate> {
        self.peer
    }

    /// Returns the limits of users, by [`LimitSource`].
    pub(crate) fn users(&self) -> [Option<RateLimit>; LimitSource::COUNT] {
        self.users
    }

    /// Returns the number of times that a packet had to wait.
    pub(crate) fn waits(&self) -> u64 {
        self.waits
    }

    /// Returns the rate limit that applies.
    pub(crate) fn rate(&self) -> Option<BitRate> {
        self.in_force.map(|limit| limit.rate)
    }

    /// Returns the time from which the next packet of `half` (requester or responder) may be sent, or `None` if it may
    /// be sent now. When both halves had to wait, they alternate.
    pub(crate) fn blocked_until(&mut self, now: Time, half: Half) -> Option<Time> {
        let (own, other) = (half as usize, 1 - half as usize);
        if let Some(until) = self.rate_blocks_until(now) {
            self.is_waiting[own] = true;
            return Some(until);
        }
        if self.last_half == own && std::mem::take(&mut self.is_waiting[other]) {
            return Some(now);
        }
        (self.is_waiting[own], self.last_half) = (false, own);
        None
    }

    fn rate_blocks_until(&mut self, now: Time) -> Option<Time> {
        let limit = self.in_force.as_ref()?;
        if self.wake_at.is_set() && !self.wake_at.is_due(now) {
            return self.wake_at.time();
        }
        if self.paid_at <= now {
            self.wake_at = Deadline::NEVER;
            return None;
        }
        let wake_at = self.paid_at + limit.train;
        (self.wake_at, self.waits) = (Deadline::at(wake_at), self.waits + 1);
        Some(wake_at)
    }

    /// Charges a packet with `payload_len` bytes of payload that is sent at `now`.
    #[inline]
    pub(crate) fn charge(&mut self, now: Time, payload_len: u32) {
        if let Some(paid_at) = self.paid_after(now, payload_len) {
            self.paid_at = paid_at;
        }
    }

    /// Records whether `half` has more packets to send.
    pub(crate) fn note_work(&mut self, half: Half, has_work: bool) {
        self.has_work[half as usize] = has_work;
    }

    /// Returns whether the queue pair has to wait after a packet with `payload_len` bytes that is sent at `now`.
    pub(crate) fn blocks_after(&self, now: Time, payload_len: u32) -> bool {
        self.paid_after(now, payload_len).is_some_and(|paid_at| paid_at > now)
    }

    /// Returns the time at which all packets up to one that is sent at `now` are paid for.
    fn paid_after(&self, now: Time, payload_len: u32) -> Option<Time> {
        let limit = self.in_force.as_ref()?;
        let memory = if self.has_work.contains(&true) { limit.catch_up } else { limit.burst };
        let earliest = Time::from_ps(now.as_ps().saturating_sub(memory.as_ps()));
        Some(self.paid_at.max(earliest) + limit.rate.serialize(u64::from(payload_len) + OVERHEAD_BYTES))
    }

    /// Returns the time after `now` at which a packet that has to wait may be sent, if one is known to wait.
    #[inline]
    pub(crate) fn wake_after(&self, now: Time) -> Deadline {
        if self.wake_at.is_due(now) { Deadline::NEVER } else { self.wake_at }
    }
}

/// Maximum time that a queue pair waits to accumulate packets that the driver passes to the kernel in one call (a
/// train).
const TRAIN_MAX: Duration = Duration::from_us(500);
