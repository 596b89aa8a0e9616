//! A bad network, made at home: loss, duplication, corruption, reordering, delay and a slow link, packet by packet.
//!
//! It stands between the engine and the socket, on the sending side, and judges every packet by itself. Where it stands
//! matters: a fault behind segmentation offload would hit trains of packets and measure something else (verbs study,
//! section 3.10). Both directions of a connection are impaired when both ends are configured so; each draws its own
//! numbers.
//!
//! Every knob draws from a stream of its own, once per packet, so that the fate of the n-th packet to the m-th peer
//! depends on the seed and the NIC's name alone, and switching one knob on does not move the others. What *is* the n-th
//! packet depends on the machine's timing; in the fabric, it does not.
//!
//! The order of events on the way: loss, corruption, duplication; then the queue of the slow link, delay and jitter; a
//! packet that is reordered waits, besides, until some later ones have passed.

mod line;

use rnic_base::{BitRate, Duration, Probability, RandomStream, RandomStreams, Time};
use rnic_wire::net;

use arrayvec::ArrayVec;

pub(crate) use line::DelayLine;

/// What shall happen to packets that this NIC sends. The default is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Impairment {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Packets that vanish.
    pub loss: Probability,
    /// Packets that arrive with one bit wrong; the receiver's ICRC finds them.
    pub corrupt: Probability,
    /// Packets that arrive twice.
    pub duplicate: Probability,
    /// Packets that are overtaken.
    pub reorder: Probability,
    /// By how many later packets to the same peer.
    pub reorder_packets: u32,
    /// But not for longer than this.
    pub reorder_hold: Duration,
    /// How much later every packet arrives.
    pub delay: Duration,
    /// How much later besides, at most; uniformly distributed. Packets overtake each other when it exceeds their
    /// distance.
    pub jitter: Duration,
    /// Rate of the slowest link on the way, Ethernet framing included; `None` adds no such link.
    pub rate: Option<BitRate>,
    /// Bytes that may wait for that link; what comes when it is full is lost.
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
    /// Whether it changes nothing.
    pub fn is_none(&self) -> bool {
        let chances = [self.loss, self.corrupt, self.duplicate, self.reorder];
        chances.iter().all(|chance| chance.is_never())
            && self.delay == Duration::ZERO
            && self.jitter == Duration::ZERO
            && self.rate.is_none()
    }
}

/// What has been done to packets so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImpairmentStats {
    /// Packets judged.
    pub packets: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because the slow link's queue was full.
    pub queue_full: u64,
    /// Sent with a wrong bit.
    pub corrupted: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back for later ones to pass.
    pub reordered: u64,
}

/// What happens to one packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fate {
    /// It leaves now, as if nothing were.
    pub(crate) passes: bool,
    /// What leaves besides, or instead.
    pub(crate) copies: ArrayVec<LateCopy, 2>,
}

/// A copy of a packet that goes its own way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LateCopy {
    /// When it leaves.
    pub(crate) due: Time,
    /// Flip this bit, modulo its length.
    pub(crate) flip: Option<u64>,
    /// Leave earlier, when so many later packets have passed.
    pub(crate) overtaken_by: Option<u32>,
}

/// The state of one peer's way.
#[derive(Debug)]
pub(crate) struct PeerImpairment {
    config: Impairment,
    loss: RandomStream,
    corrupt: RandomStream,
    duplicate: RandomStream,
    reorder: RandomStream,
    jitter: RandomStream,
    /// When the slow link is free.
    link_free: Time,
    /// Keys in the delay line of packets that wait to be overtaken, and by how many still.
    pub(crate) waiting: Vec<(line::Key, u32)>,
}

impl PeerImpairment {
    /// For the `number`-th peer of the NIC called `nic`.
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
        // Each knob draws for each packet, whatever the others say.
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

    /// How long the packet is on the slow link and in the queue before it; `None` when the queue is full.
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
