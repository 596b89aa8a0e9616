//! Losses in bursts.
//!
//! Source: the Gilbert-Elliott model (Gilbert 1960, Elliott 1963): a link is either in a good or in a bad state,
//! changes between them with a given probability per packet, and loses packets only in the bad state. Bursts of a
//! fixed length are a variant for packet scripts.

use rnic_base::{Probability, RandomStream};

use super::{Fault, PacketInfo, Verdict};

/// Loses packets in bursts.
#[derive(Debug)]
pub struct Burst {
    begin: Probability,
    end: BurstEnd,
    loss: Probability,
    bad: bool,
    stream: RandomStream,
}

#[derive(Debug)]
enum BurstEnd {
    /// A burst ends after each packet with this probability.
    ByChance(Probability),
    /// A burst ends after the first number of packets; the second number counts the packets of the current burst.
    AfterPackets(u32, u32),
}

impl Burst {
    /// Creates a rule whose bursts start and end at random; each packet in a burst is lost with probability `loss`.
    pub fn new(begin: Probability, end: Probability, loss: Probability, stream: RandomStream) -> Self {
        Self { begin, end: BurstEnd::ByChance(end), loss, bad: false, stream }
    }

    /// Creates a rule with bursts of `packets` lost packets.
    pub fn of_length(begin: Probability, packets: u32, stream: RandomStream) -> Self {
        let end = BurstEnd::AfterPackets(packets, 0);
        Self { begin, end, loss: Probability::ALWAYS, bad: false, stream }
    }
}

impl Fault for Burst {
    fn judge(&mut self, _: &PacketInfo) -> Verdict {
        if !self.bad {
            self.bad = self.stream.chance(self.begin);
        }
        if !self.bad {
            return Verdict::Pass;
        }
        let lost = self.stream.chance(self.loss);
        match &mut self.end {
            BurstEnd::ByChance(end) => self.bad = !self.stream.chance(*end),
            BurstEnd::AfterPackets(packets, so_far) => {
                *so_far += 1;
                if *so_far >= *packets {
                    (self.bad, *so_far) = (false, 0);
                }
            }
        }
        if lost { Verdict::Drop } else { Verdict::Pass }
    }
}
