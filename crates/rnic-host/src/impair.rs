//! Simulated network faults: loss, duplication, corruption, reordering, delay and a slow link, packet by packet.
//!
//! The impairment is applied between the engine and the socket, on the sending side, to each packet separately. The
//! position matters: a fault behind segmentation offload would hit trains of packets and measure something else (verbs
//! study, section 3.10). Both directions of a connection are impaired when both ends are configured so; each generates
//! its own random numbers.
//!
//! Every setting uses its own random stream, once per packet, so that the fate of the n-th packet to the m-th peer
//! depends on the seed and the NIC's name alone, and enabling one setting does not change the others. Which packet *is*
//! the n-th one depends on the machine's timing; in the fabric, it does not.
//!
//! The order of events on the way: loss, corruption, duplication; then the queue of the slow link, delay and jitter; a
//! packet that is reordered waits, besides, until some later ones have passed.

mod line;

use rnic_base::{BitRate, Duration, Probability, RandomStream, RandomStreams, Time};
use rnic_wire::net;

use arrayvec::ArrayVec;

pub(crate) use line::DelayLine;

/// Faults applied to the packets that this NIC sends. The default is none.
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
    /// Maximum time that it is held for this.
    pub reorder_hold: Duration,
    /// Delay added to every packet.
    pub delay: Duration,
    /// Maximum of a further, uniformly distributed delay. Packets overtake each other when it exceeds their distance.
    pub jitter: Duration,
    /// Rate of the slowest link on the path, Ethernet framing included; `None` adds no such link.
    pub rate: Option<BitRate>,
    /// Bytes that may wait for that link; packets that find it full are lost.
    pub rate_queue_bytes: u64,
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
        }
    }
}

impl Impairment {
    /// Returns whether it has no effect.
    pub fn is_none(&self) -> bool {
        let chances = [self.loss, self.corrupt, self.duplicate, self.reorder];
        chances.iter().all(|chance| chance.is_never())
            && self.delay == Duration::ZERO
            && self.jitter == Duration::ZERO
            && self.rate.is_none()
    }
}

/// Counters of the faults applied so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImpairmentStats {
    /// Packets processed.
    pub packets: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets lost because the slow link's queue was full.
    pub queue_full: u64,
    /// Packets sent with a flipped bit.
    pub corrupted: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets held back so that later ones overtake them.
    pub reordered: u64,
}

/// Decision about one packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fate {
    /// True when the packet is sent now, unchanged.
    pub(crate) passes: bool,
    /// Copies that are sent later, in addition or instead.
    pub(crate) copies: ArrayVec<LateCopy, 2>,
}

/// A copy of a packet that is sent later, possibly corrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LateCopy {
    /// Time at which it is sent.
    pub(crate) due: Time,
    /// Index of the bit to flip, modulo the packet's length.
    pub(crate) flip: Option<u64>,
    /// Number of later packets after which it is sent earlier than `due`.
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
    /// Time at which the slow link is free.
    link_free: Time,
    /// Keys in the delay line of packets that wait to be overtaken, with the number of packets still to pass.
    pub(crate) waiting: Vec<(line::Key, u32)>,
}

impl PeerImpairment {
    /// Creates the state for the `number`-th peer of the NIC called `nic`.
    pub(crate) fn new(config: &Impairment, nic: &str, number: u64) -> Box<Self> {
        let streams = RandomStreams::new(config.seed);
        let stream = |knob: &str| streams.stream(&format!("impair/{nic}/peer-{number}/{knob}"));
        Box::new(Self {
            config: *config,
            loss: stream("loss"),
            corrupt: stream("corrupt"),
            duplicate: stream("duplicate"),
            reorder: stream("reorder"),
            jitter: stream("jitter"),
            link_free: Time::ZERO,
            waiting: Vec::new(),
        })
    }

    /// Decides about the next packet: `udp_payload_len` bytes over `ip`.
    pub(crate) fn judge(
        &mut self,
        now: Time,
        ip: net::IpVersion,
        udp_payload_len: u32,
        stats: &mut ImpairmentStats,
    ) -> Fate {
        let config = self.config;
        stats.packets += 1;
        // Each setting draws a random number for each packet, independently of the others.
        let lost = self.loss.chance(config.loss);
        let flip = self.corrupt.chance(config.corrupt).then(|| self.corrupt.bits());
        let twice = self.duplicate.chance(config.duplicate);
        let overtaken_by = self.reorder.chance(config.reorder).then_some(config.reorder_packets);
        let mut fate = Fate::default();
        if lost {
            stats.lost += 1;
            return fate;
        }
        let Some(link_delay) = self.queue_on_link(now, net::link_len(ip, udp_payload_len)) else {
            stats.queue_full += 1;
            return fate;
        };
        stats.corrupted += u64::from(flip.is_some());
        stats.duplicated += u64::from(twice);
        stats.reordered += u64::from(overtaken_by.is_some());
        let mut delay = || link_delay + config.delay + self.draw_jitter();
        let first = delay();
        if twice {
            fate.copies.push(LateCopy { due: now + delay(), flip: None, overtaken_by: None });
        }
        fate.passes = flip.is_none() && overtaken_by.is_none() && first == Duration::ZERO;
        if !fate.passes {
            let hold = if overtaken_by.is_some() { config.reorder_hold } else { Duration::ZERO };
            fate.copies.push(LateCopy { due: now + first + hold, flip, overtaken_by });
        }
        fate
    }

    /// Returns the time that the packet spends on the slow link and in the queue before it; `None` when the queue is
    /// full.
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
