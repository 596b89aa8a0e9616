//! What goes wrong on links, by small rules.
//!
//! A rule looks at one packet that starts to leave a port and says what becomes of it: a [`Verdict`]. Rules stand in
//! the plan in an order, and each link has its own copies of those that are meant for it; a packet passes through them
//! one after another until one loses it. Every copy of a rule draws from a random stream of its own, named after the
//! rule's place in the plan and the link's direction: no rule changes what another one does, on this link or elsewhere.
//! Pause frames are never touched: what they would do to lossless networks is a different experiment.
//!
//! # Adding a rule
//!
//! 1. A file in `fault/` with a type that holds the rule's parameters and state, and its [`Fault::judge`].
//! 2. A variant of [`FaultKind`] with its parameters, and the line in [`FaultKind::build`]; a test in `fault/tests.rs`
//!    that the rule does what it says.
//! 3. Its keys in `plan/raw.rs` and `plan/faults.rs`, with the line in the table of keys of [`crate::plan`].

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
pub use drop::{Corrupt, Drop, Duplicate};
pub use reorder::Reorder;
pub use slow::Slow;

/// What a rule sees of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passing {
    /// When it starts to leave.
    pub now: Time,
    /// When its last bit would arrive.
    pub arrival: Time,
    /// Bytes of the frame.
    pub frame_len: u32,
}

/// What a rule makes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing.
    Pass,
    /// It never arrives.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives with some bits flipped.
    Corrupt,
    /// It arrives so much later.
    Delay(Duration),
}

/// A rule.
pub trait Fault: fmt::Debug + Send {
    /// Says what becomes of a packet.
    fn judge(&mut self, packet: &Passing) -> Verdict;

    /// The most that the link carries at `now`, where that is the rule's business.
    fn rate(&self, _now: Time) -> Option<BitRate> {
        None
    }
}

/// Which packets a rule is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// All but acknowledgements.
    Data,
    /// Acknowledgements of every kind, and notifications.
    Acks,
    /// All.
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

/// A rule's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// See [`Drop`].
    Drop(Probability),
    /// See [`Burst`].
    Burst {
        /// That a burst begins with a packet.
        begin: Probability,
        /// That it ends after a packet.
        end: Probability,
        /// That a packet inside it is lost.
        loss: Probability,
    },
    /// See [`Burst::of_length`].
    BurstOfLength {
        /// That a burst begins with a packet.
        begin: Probability,
        /// Packets that it takes.
        packets: u32,
    },
    /// See [`Reorder`].
    Reorder {
        /// That a packet is held back.
        probability: Probability,
        /// How long.
        delay: Duration,
    },
    /// See [`Duplicate`].
    Duplicate(Probability),
    /// See [`Corrupt`].
    Corrupt(Probability),
    /// See [`Delay`].
    Delay {
        /// What every packet gets.
        fixed: Duration,
        /// The most that is added to it at random.
        jitter: Duration,
    },
    /// See [`Down`].
    Down {
        /// When the link goes down.
        from: Time,
        /// When it is up again.
        until: Time,
    },
    /// See [`Slow`].
    Slow {
        /// The rate that is left.
        rate: BitRate,
        /// From when on.
        from: Time,
        /// When it is whole again; `None`: never.
        until: Option<Time>,
    },
}

impl FaultKind {
    /// The rule, drawing from `stream`.
    pub fn build(&self, stream: RandomStream) -> Box<dyn Fault> {
        match *self {
            Self::Drop(probability) => Box::new(Drop::new(probability, stream)),
            Self::Burst { begin, end, loss } => Box::new(Burst::new(begin, end, loss, stream)),
            Self::BurstOfLength { begin, packets } => Box::new(Burst::of_length(begin, packets, stream)),
            Self::Reorder { probability, delay } => Box::new(Reorder::new(probability, delay, stream)),
            Self::Duplicate(probability) => Box::new(Duplicate::new(probability, stream)),
            Self::Corrupt(probability) => Box::new(Corrupt::new(probability, stream)),
            Self::Delay { fixed, jitter } => Box::new(Delay::new(fixed, jitter, stream)),
            Self::Down { from, until } => Box::new(Down::new(from, until)),
            Self::Slow { rate, from, until } => Box::new(Slow::new(rate, from, until)),
        }
    }
}

/// A rule in a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// What it does.
    pub kind: FaultKind,
    /// To which packets.
    pub target: Target,
    /// On which links: a pattern for the names of directions, such as `host-*>*`; `*` stands for anything. Several
    /// patterns stand with commas between them.
    pub links: String,
}

impl FaultPlan {
    /// Whether the rule holds on the direction called `name`.
    pub fn is_for(&self, name: &str) -> bool {
        self.patterns().any(|pattern| matches(pattern, name))
    }

    /// The patterns, one by one.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &str> {
        self.links.split(',').map(str::trim)
    }
}

/// Whether `text` fits `pattern`, in which `*` stands for any run of characters.
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
    /// Which bits a corrupt packet has flipped: apart from the rules, so that a run in which packets are bytes makes
    /// the same decisions as one in which they are not.
    flips: RandomStream,
}

/// What the rules together make of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fate {
    pub(crate) lost: bool,
    pub(crate) corrupt: bool,
    pub(crate) copies: u32,
    pub(crate) delay: Duration,
}

impl FaultChain {
    pub(crate) fn new(rules: Vec<(Target, Box<dyn Fault>)>, flips: RandomStream) -> Self {
        Self { rules, flips }
    }

    /// No rule does anything any more.
    pub(crate) fn end(&mut self) {
        self.rules.clear();
    }

    /// The most that the link carries at `now`, where rules say less than its rate.
    pub(crate) fn rate(&self, now: Time) -> Option<BitRate> {
        self.rules.iter().filter_map(|(_, rule)| rule.rate(now)).min()
    }

    /// Asks the rules, in order, until one loses the packet that would arrive at `arrival`.
    pub(crate) fn judge(&mut self, now: Time, arrival: Time, entry: &Entry) -> Fate {
        let mut fate = Fate::default();
        let is_ack = entry.has(Flags::ACK);
        for (_, rule) in self.rules.iter_mut().filter(|(target, _)| target.includes(is_ack)) {
            let arrival = arrival + fate.delay;
            let passing = Passing { now, arrival, frame_len: u32::from(entry.frame_len) };
            match rule.judge(&passing) {
                Verdict::Pass => {}
                Verdict::Drop => return Fate { lost: true, ..fate },
                Verdict::Duplicate => fate.copies += 1,
                Verdict::Corrupt => fate.corrupt = true,
                Verdict::Delay(delay) => fate.delay += delay,
            }
        }
        fate
    }

    /// Damages `packet`, whose bytes `bytes_of` it are. One that is damaged stays as it is: its bits might be put right
    /// again, which a run without bytes could not know.
    pub(crate) fn damage<'b>(&mut self, packet: &mut Entry, bytes_of: impl FnOnce(&Entry) -> &'b mut [u8]) {
        if !packet.has(Flags::CORRUPT) {
            packet.set(Flags::CORRUPT);
            self.flip_bits(bytes_of(packet));
        }
    }

    /// Flips one to three bits of a datagram: few enough for a 32-bit CRC to find them always.
    pub(crate) fn flip_bits(&mut self, datagram: &mut [u8]) {
        if datagram.len() <= UNPROTECTED_BYTE {
            return;
        }
        let mut flipped = [usize::MAX; 3];
        let count = 1 + self.flips.below(3) as usize;
        for place in 0..count {
            let bit = self.flips.below(datagram.len() as u64 * 8) as usize;
            if bit / 8 != UNPROTECTED_BYTE && !flipped.contains(&bit) {
                flipped[place] = bit;
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
        }
        if flipped == [usize::MAX; 3] {
            datagram[0] ^= 1;
        }
    }
}

/// The byte of the base transport header that switches may change and the ICRC therefore leaves out (FECN, BECN,
/// reserved bits; InfiniBand Architecture annex A17).
const UNPROTECTED_BYTE: usize = 4;

#[cfg(test)]
#[path = "fault/tests.rs"]
mod tests;
