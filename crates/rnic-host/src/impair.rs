//! Simulated network faults: loss, duplication, corruption, reordering, delay and a slow link, packet by packet; and
//! what switches do to packets that they forward: cut their payload, mark them.
//!
//! The impairment is applied between the engine and the socket, on the sending side, to each packet separately. This
//! position matters: a fault after segmentation offload would affect trains of packets instead, and the measurements
//! would not be comparable (verbs study, section 3.10). Both directions of a connection are impaired when both ends
//! are configured so; each generates its own random numbers.
//!
//! Every setting uses its own random stream, and draws once per packet. So the faults of the n-th packet to the m-th
//! peer depend only on the seed and the NIC's name, and enabling one setting does not change the effect of the
//! others. The content of the n-th packet depends on the machine's timing here, but not in the simulated fabric.
//!
//! The faults are applied in this order: loss, corruption, duplication; then the queue of the slow link, delay and
//! jitter. A packet that is reordered also waits until some later packets have been sent.
//!
//! Where packets leave from several source ports, faults can be limited to some of them ([`PathSet`]).
//!
//! Trimming and marks are applied on the receiving side instead, to all packets with payload that pass the checks of
//! their headers, as if the last switch of the path had made the change: the sending side would have to take packets
//! apart that the kernel sends as one train. Where packets arrive through shared memory, it is the same.

mod line;
mod paths;

use rnic_base::{BitRate, Duration, Probability, RandomStream, RandomStreams, Time};
use rnic_wire::{Decoded, net};

use arrayvec::ArrayVec;

pub(crate) use line::DelayLine;
pub use paths::PathSet;

/// Faults applied to the packets that this NIC sends, and, where stated, receives. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Impairment {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Probability that a packet is lost.
    pub loss: Probability,
    /// Probability that one bit of a packet is flipped; the receiver's ICRC detects it.
    pub corrupt: Probability,
    /// Probability that a packet arrives twice.
    pub duplicate: Probability,
    /// Probability that a packet is overtaken.
    pub reorder: Probability,
    /// Number of later packets to the same peer that overtake it.
    pub reorder_packets: u32,
    /// Maximum time that the packet is held back for this.
    pub reorder_hold: Duration,
    /// Delay added to every packet.
    pub delay: Duration,
    /// Maximum of an additional, uniformly distributed delay. Packets overtake each other when the difference of their
    /// delays exceeds the time between them.
    pub jitter: Duration,
    /// Rate of the slowest link on the path, counting Ethernet framing; `None` adds no such link.
    pub rate: Option<BitRate>,
    /// Number of bytes that may wait for that link; packets that find the queue full are lost.
    pub rate_queue_bytes: u64,
    /// Paths whose packets are impaired.
    pub paths: PathSet,
    /// Probability that a received packet arrives without its payload. Packets of IRN's format only.
    pub trim: Probability,
    /// Probability that a received packet with payload arrives with a congestion mark (ECN).
    pub mark: Probability,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            seed: 1,
            loss: Probability::NEVER,
            corrupt: Probability::NEVER,
            duplicate: Probability::NEVER,
            reorder: Probability::NEVER,
            reorder_packets: 3,
            reorder_hold: Duration::from_ms(1),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            rate_queue_bytes: 256 << 10,
            paths: PathSet::ALL,
            trim: Probability::NEVER,
            mark: Probability::NEVER,
        }
    }
}

impl Impairment {
    /// Returns whether no faults are configured.
    pub fn is_none(&self) -> bool {
        let chances = [self.loss, self.corrupt, self.duplicate, self.reorder, self.trim, self.mark];
        chances.iter().all(|chance| chance.is_never())
            && self.delay == Duration::ZERO
            && self.jitter == Duration::ZERO
            && self.rate.is_none()
    }
}

/// Counters of the faults applied so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImpairmentStats {
    /// Packets that impairment has processed, whether or not it changed anything for them.
    pub packets: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets lost because the slow link's queue was full.
    pub queue_full: u64,
    /// Packets sent with a flipped bit.
    pub corrupted: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets held back so that later packets overtake them.
    pub reordered: u64,
    /// Packets received whose payload was cut.
    pub trimmed: u64,
    /// Packets received that were marked.
    pub marked: u64,
}

/// Decision about one packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ImpairmentOutcome {
    /// True when the packet is sent immediately and unchanged.
    pub(crate) passes: bool,
    /// Copies that are sent later, in addition to the packet or instead of it.
    pub(crate) copies: ArrayVec<DelayedCopy, 2>,
}

/// A copy of a packet that is sent later, possibly corrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DelayedCopy {
    /// Time at which it is sent.
    pub(crate) due: Time,
    /// Index of the bit to flip, modulo the packet's length.
    pub(crate) flip: Option<u64>,
    /// Number of later packets after which the copy is sent even if `due` has not been reached.
    pub(crate) overtaken_by: Option<u32>,
}

/// State of the path to one peer.
#[derive(Debug)]
pub(crate) struct PeerImpairment {
    config: Impairment,
    loss: RandomStream,
    corrupt: RandomStream,
    duplicate: RandomStream,
    reorder: RandomStream,
    jitter: RandomStream,
    trim: RandomStream,
    mark: RandomStream,
    /// Time at which the slow link has sent all its packets.
    link_free: Time,
    /// Keys in the delay line of packets that wait to be overtaken, each with the number of later packets that must
    /// still overtake the packet.
    pub(crate) waiting: Vec<(line::Key, u32)>,
}

impl PeerImpairment {
    /// Creates the state for the `number`-th peer of the NIC called `nic`.
    pub(crate) fn new(config: &Impairment, nic: &str, number: u64) -> Box<Self> {
        let streams = RandomStreams::new(config.seed);
        let stream = |setting: &str| streams.stream(&format!("impair/{nic}/peer-{number}/{setting}"));
        Box::new(Self {
            config: *config,
            loss: stream("loss"),
            corrupt: stream("corrupt"),
            duplicate: stream("duplicate"),
            reorder: stream("reorder"),
            jitter: stream("jitter"),
            trim: stream("trim"),
            mark: stream("mark"),
            link_free: Time::ZERO,
            waiting: Vec::new(),
        })
    }

    /// Returns whether packets on this path are impaired.
    pub(crate) fn concerns(&self, path: u8) -> bool {
        self.config.paths.contains(path)
    }

    /// Decides the faults of the next packet, which has `udp_payload_len` bytes and is sent over `ip`.
    pub(crate) fn decide_faults(
        &mut self,
        now: Time,
        ip: net::IpVersion,
        udp_payload_len: u32,
        stats: &mut ImpairmentStats,
    ) -> ImpairmentOutcome {
        let config = self.config;
        stats.packets += 1;
        // Each setting draws a random number for each packet, independently of the others.
        let lost = self.loss.chance(config.loss);
        let flip = self.corrupt.chance(config.corrupt).then(|| self.corrupt.bits());
        let is_duplicated = self.duplicate.chance(config.duplicate);
        let overtaken_by = self.reorder.chance(config.reorder).then_some(config.reorder_packets);
        let mut outcome = ImpairmentOutcome::default();
        if lost {
            stats.lost += 1;
            return outcome;
        }
        let Some(link_delay) = self.queue_on_link(now, net::link_len(ip, udp_payload_len)) else {
            stats.queue_full += 1;
            return outcome;
        };
        stats.corrupted += u64::from(flip.is_some());
        stats.duplicated += u64::from(is_duplicated);
        stats.reordered += u64::from(overtaken_by.is_some());
        let mut delay = || link_delay + config.delay + self.draw_jitter();
        let delay_of_original = delay();
        if is_duplicated {
            outcome.copies.push(DelayedCopy { due: now + delay(), flip: None, overtaken_by: None });
        }
        outcome.passes = flip.is_none() && overtaken_by.is_none() && delay_of_original == Duration::ZERO;
        if !outcome.passes {
            let hold = if overtaken_by.is_some() { config.reorder_hold } else { Duration::ZERO };
            outcome.copies.push(DelayedCopy { due: now + delay_of_original + hold, flip, overtaken_by });
        }
        outcome
    }

    /// Applies the faults of received packets to `decoded`, whose payload may be trimmed; returns whether the packet is
    /// congestion-marked.
    pub(crate) fn receive(&mut self, decoded: &mut Decoded, stats: &mut ImpairmentStats) -> bool {
        let is_marked = self.marks(decoded.packet.payload_len, stats);
        let is_trimmed = self.trim.chance(self.config.trim);
        if is_trimmed && let Some(trimmed) = decoded.packet.trimmed(decoded.format) {
            stats.trimmed += 1;
            decoded.packet = trimmed;
            decoded.payload.end = decoded.payload.start;
        }
        is_marked
    }

    /// Returns whether a received packet with `payload_len` bytes of payload is marked.
    pub(crate) fn marks(&mut self, payload_len: u32, stats: &mut ImpairmentStats) -> bool {
        let is_marked = self.mark.chance(self.config.mark) && payload_len > 0;
        stats.marked += u64::from(is_marked);
        is_marked
    }

    /// Returns the time that the packet spends in the queue of the slow link and on the link; `None` when the queue
    /// is full.
    fn queue_on_link(&mut self, now: Time, bytes: u32) -> Option<Duration> {
        let Some(rate) = self.config.rate else { return Some(Duration::ZERO) };
        let backlog = self.link_free.since(now);
        if rate.bytes_in(backlog) > self.config.rate_queue_bytes {
            return None;
        }
        self.link_free = self.link_free.max(now) + rate.serialize(u64::from(bytes));
        Some(self.link_free.since(now))
    }

    fn draw_jitter(&mut self) -> Duration {
        match self.config.jitter.as_ps() {
            0 => Duration::ZERO,
            most => Duration::from_ps(self.jitter.between(0, most)),
        }
    }
}

#[cfg(test)]
mod tests;
