//! Independent loss, duplication, corruption and marking, decided at random for every packet.

use rnic_base::{Probability, RandomStream};

use super::{Fault, PacketInfo, Verdict};

/// Drops each packet with the same probability.
#[derive(Debug)]
pub struct Drop(RandomLoss);

/// Duplicates each packet with the same probability; the copy follows immediately.
#[derive(Debug)]
pub struct Duplicate(RandomLoss);

/// Flips bits of each packet with the same probability. When packets are encoded to bytes, the checksum must detect
/// the damage; otherwise the receiving NIC drops packets marked as corrupt.
#[derive(Debug)]
pub struct Corrupt(RandomLoss);

/// Marks each packet with the same probability, as a switch with a full queue does (ECN); acknowledgements carry no
/// mark.
#[derive(Debug)]
pub struct Mark(RandomLoss);

#[derive(Debug)]
struct RandomLoss {
    probability: Probability,
    stream: RandomStream,
}

impl RandomLoss {
    fn draw(&mut self, verdict: Verdict) -> Verdict {
        if self.stream.chance(self.probability) { verdict } else { Verdict::Pass }
    }
}

/// Defines one of the four rules, which differ only in their verdict.
macro_rules! random_rule {
    ($rule:ident => $verdict:expr) => {
        impl $rule {
            /// Creates the rule, which affects packets with `probability`.
            pub fn new(probability: Probability, stream: RandomStream) -> Self {
                Self(RandomLoss { probability, stream })
            }
        }

        impl Fault for $rule {
            fn judge(&mut self, _: &PacketInfo) -> Verdict {
                self.0.draw($verdict)
            }
        }
    };
}

random_rule!(Drop => Verdict::Drop);
random_rule!(Duplicate => Verdict::Duplicate);
random_rule!(Corrupt => Verdict::Corrupt);
random_rule!(Mark => Verdict::Mark);
