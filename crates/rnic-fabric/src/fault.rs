//! Faults on links, as a set of small rules.
//!
//! A rule is applied to one packet that starts to be transmitted at a port and returns a [`Verdict`]. The rules are
//! ordered as in the plan, and each link has its own copies of the rules that apply to it; a packet is passed to them
//! one after another until one drops it. Every copy of a rule has its own random stream, named after the rule's
//! position in the plan and the link's direction: no rule changes the outcome of another one, on this link or
//! elsewhere. Pause frames are never affected: faults on them in lossless networks would be a different experiment.
//!
//! # Adding a rule
//!
//! 1. Add a file in `fault/` with a type that holds the rule's parameters and state, and its [`Fault::judge`].
//! 2. Add a variant of [`FaultKind`] with its parameters, and the line in [`FaultKind::build`]; a test in
//!    `fault/tests.rs` of the rule's effect.
//! 3. Add its keys in `plan/raw/network.rs` and `plan/faults.rs`.

mod burst;
mod delay;
mod down;
mod drop;
mod reorder;
mod slow;

use core::fmt;

use rnic_base::{BitRate, Duration, Probability, RandomStream, Time};

use crate::entry::{Entry, Flags};

pub use burst::Burst;
pub use delay::Delay;
pub use down::Down;
pub use drop::{Corrupt, Drop, Duplicate, Mark};
pub use reorder::Reorder;
pub use slow::Slow;

/// The properties of a packet that a rule receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketInfo {
    /// Time at which transmission starts.
    pub now: Time,
    /// Time at which its last bit would arrive.
    pub arrival: Time,
    /// Length of the frame in bytes.
    pub frame_len: u32,
}

/// The effect of a rule on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet is not affected.
    Pass,
    /// The packet is lost.
    Drop,
    /// The packet arrives twice.
    Duplicate,
    /// The packet arrives with some bits flipped.
    Corrupt,
    /// The packet arrives with a congestion mark.
    Mark,
    /// The packet arrives later by this duration.
    Delay(Duration),
}

/// A fault rule.
pub trait Fault: fmt::Debug + Send {
    /// Returns the effect of the rule on a packet.
    fn judge(&mut self, packet: &PacketInfo) -> Verdict;

    /// Returns the largest rate that the link has at `now`, when this rule limits it.
    fn rate(&self, _now: Time) -> Option<BitRate> {
        None
    }
}

/// The packets that a rule applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// All packets except acknowledgements.
    Data,
    /// Acknowledgements of every type, and notifications.
    Acks,
    /// All packets are affected.
    All,
}

impl Target {
    fn includes(self, is_ack: bool) -> bool {
        match self {
            Self::Data => !is_ack,
            Self::Acks => is_ack,
            Self::All => true,
        }
    }
}

/// The type of a fault rule, with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// See [`Drop`].
    Drop(Probability),
    /// Losses in bursts, by a two-state model; see [`Burst`].
    Burst {
        /// Probability per packet that a burst starts.
        begin: Probability,
        /// Probability, per packet of a burst, that the burst ends after that packet.
        end: Probability,
        /// Probability that a packet in a burst is lost.
        loss: Probability,
    },
    /// See [`Burst::of_length`].
    BurstOfLength {
        /// Probability per packet that a burst starts.
        begin: Probability,
        /// Length of a burst in packets; all packets of a burst are lost.
        packets: u32,
    },
    /// See [`Reorder`].
    Reorder {
        /// Probability that a packet is held back.
        probability: Probability,
        /// Delay of a packet that is held back.
        delay: Duration,
    },
    /// See [`Duplicate`].
    Duplicate(Probability),
    /// See [`Corrupt`].
    Corrupt(Probability),
    /// See [`Mark`].
    Mark(Probability),
    /// See [`Delay`].
    Delay {
        /// Delay of every packet.
        fixed: Duration,
        /// Upper bound of the random delay added to it.
        jitter: Duration,
    },
    /// See [`Down`].
    Down {
        /// Time at which the link goes down.
        from: Time,
        /// Time at which the link is restored.
        until: Time,
    },
    /// See [`Slow`].
    Slow {
        /// Rate of the link while it is degraded.
        rate: BitRate,
        /// Time at which the degradation starts.
        from: Time,
        /// Time at which the full rate returns; `None`: never.
        until: Option<Time>,
    },
}

impl FaultKind {
    /// Builds the rule, which draws its random numbers from `stream`.
    pub fn build(&self, stream: RandomStream) -> Box<dyn Fault> {
        match *self {
            Self::Drop(probability) => Box::new(Drop::new(probability, stream)),
            Self::Burst { begin, end, loss } => Box::new(Burst::new(begin, end, loss, stream)),
            Self::BurstOfLength { begin, packets } => Box::new(Burst::of_length(begin, packets, stream)),
            Self::Reorder { probability, delay } => Box::new(Reorder::new(probability, delay, stream)),
            Self::Duplicate(probability) => Box::new(Duplicate::new(probability, stream)),
            Self::Corrupt(probability) => Box::new(Corrupt::new(probability, stream)),
            Self::Mark(probability) => Box::new(Mark::new(probability, stream)),
            Self::Delay { fixed, jitter } => Box::new(Delay::new(fixed, jitter, stream)),
            Self::Down { from, until } => Box::new(Down::new(from, until)),
            Self::Slow { rate, from, until } => Box::new(Slow::new(rate, from, until)),
        }
    }
}

/// A fault rule as given in a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// The type of the fault.
    pub kind: FaultKind,
    /// The packets that it applies to.
    pub target: Target,
    /// The links that it applies to: a pattern for the names of link directions, such as `host-*>*`, in which `*`
    /// matches any characters. Several patterns are separated by commas.
    pub links: String,
}

impl FaultPlan {
    /// Returns whether the rule applies to the link direction named `name`.
    pub fn is_for(&self, name: &str) -> bool {
        self.patterns().any(|pattern| matches(pattern, name))
    }

    /// Returns an iterator over the patterns.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &str> {
        self.links.split(',').map(str::trim)
    }
}

/// Returns whether `text` matches `pattern`, in which `*` matches any number of characters.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').collect::<Vec<_>>();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

/// The rules of one direction of a link.
#[derive(Debug)]
pub(crate) struct FaultChain {
    rules: Vec<(Target, Box<dyn Fault>)>,
    /// Chooses the bits that are flipped in a corrupt packet. It is separate from the streams of the rules, so that a
    /// run in which packets are encoded to bytes makes the same decisions as one in which they are not.
    flip_stream: RandomStream,
}

/// The combined effect of all rules on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FaultOutcome {
    pub(crate) lost: bool,
    pub(crate) corrupt: bool,
    pub(crate) marked: bool,
    pub(crate) copies: u32,
    pub(crate) delay: Duration,
}

impl FaultChain {
    pub(crate) fn new(rules: Vec<(Target, Box<dyn Fault>)>, flip_stream: RandomStream) -> Self {
        Self { rules, flip_stream }
    }

    /// Removes all rules.
    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Returns the largest rate that the link has at `now`, when a rule limits it.
    pub(crate) fn rate(&self, now: Time) -> Option<BitRate> {
        self.rules.iter().filter_map(|(_, rule)| rule.rate(now)).min()
    }

    /// Applies the rules, in order, to the packet that would arrive at `arrival`, until one drops it.
    pub(crate) fn judge(&mut self, now: Time, arrival: Time, entry: &Entry) -> FaultOutcome {
        let mut outcome = FaultOutcome::default();
        let is_ack = entry.has(Flags::ACK);
        for (_, rule) in self.rules.iter_mut().filter(|(target, _)| target.includes(is_ack)) {
            let arrival = arrival + outcome.delay;
            let info = PacketInfo { now, arrival, frame_len: u32::from(entry.frame_len) };
            match rule.judge(&info) {
                Verdict::Pass => {}
                Verdict::Drop => return FaultOutcome { lost: true, ..outcome },
                Verdict::Duplicate => outcome.copies += 1,
                Verdict::Corrupt => outcome.corrupt = true,
                Verdict::Mark => outcome.marked |= !is_ack,
                Verdict::Delay(delay) => outcome.delay += delay,
            }
        }
        outcome
    }

    /// Corrupts `packet`, whose bytes `bytes_of` returns. A packet that is already corrupt is not changed: flipping
    /// the same bits again could restore it, and a run without bytes would then differ.
    pub(crate) fn damage<'b>(&mut self, packet: &mut Entry, bytes_of: impl FnOnce(&Entry) -> &'b mut [u8]) {
        if !packet.has(Flags::CORRUPT) {
            packet.set(Flags::CORRUPT);
            self.flip_bits(bytes_of(packet));
        }
    }

    /// Flips one to three bits of a datagram: few enough that a 32-bit CRC always detects them.
    pub(crate) fn flip_bits(&mut self, datagram: &mut [u8]) {
        if datagram.len() <= UNPROTECTED_BYTE {
            return;
        }
        let mut flipped = [usize::MAX; 3];
        let count = 1 + self.flip_stream.below(3) as usize;
        for index in 0..count {
            let bit = self.flip_stream.below(datagram.len() as u64 * 8) as usize;
            if bit / 8 != UNPROTECTED_BYTE && !flipped.contains(&bit) {
                flipped[index] = bit;
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
        }
        if flipped == [usize::MAX; 3] {
            datagram[0] ^= 1;
        }
    }
}

/// Offset of the byte of the base transport header that switches may change and that the ICRC therefore does not cover
/// (FECN, BECN, reserved bits; InfiniBand Architecture annex A17).
const UNPROTECTED_BYTE: usize = 4;

#[cfg(test)]
#[path = "fault/tests.rs"]
mod tests;
