//! Independent loss, duplication and corruption, decided at random for every packet.

use rnic_base::{Probability, RandomStream};

use super::{Fault, Passing, Verdict};

/// Drops each packet with the same probability.
#[derive(Debug)]
pub struct Drop(Coin);

/// Duplicates each packet with the same probability; the copy follows immediately.
#[derive(Debug)]
pub struct Duplicate(Coin);

/// Flips bits of each packet with the same probability. When packets are encoded to bytes, the checksum must detect it;
/// otherwise the receiving NIC drops packets marked as corrupt.
#[derive(Debug)]
pub struct Corrupt(Coin);

#[derive(Debug)]
struct Coin {
    probability: Probability,
    stream: RandomStream,
}

impl Coin {
    fn toss(&mut self, verdict: Verdict) -> Verdict {
        if self.stream.chance(self.probability) { verdict } else { Verdict::Pass }
    }
}

/// Defines one of the three rules, which differ only in their verdict.
macro_rules! coin_rule {
    ($rule:ident => $verdict:expr) => {
        impl $rule {
            /// Creates the rule, which affects packets with `probability`.
            pub fn new(probability: Probability, stream: RandomStream) -> Self {
                Self(Coin { probability, stream })
            }
        }

        impl Fault for $rule {
            fn judge(&mut self, _: &Passing) -> Verdict {
                self.0.toss($verdict)
            }
        }
    };
}

coin_rule!(Drop => Verdict::Drop);
coin_rule!(Duplicate => Verdict::Duplicate);
coin_rule!(Corrupt => Verdict::Corrupt);
