//! Independent loss, duplication and corruption: a coin for every packet.

use rnic_base::{Probability, RandomStream};

use super::{Fault, Passing, Verdict};

/// Loses each packet with the same probability.
#[derive(Debug)]
pub struct Drop(Coin);

/// Doubles each packet with the same probability; the copy follows at once.
#[derive(Debug)]
pub struct Duplicate(Coin);

/// Flips bits of each packet with the same probability. When packets travel as bytes the checksum must find it; when
/// they do not, the receiving NIC drops what is marked so.
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

/// The three rules differ in one word only.
macro_rules! coin_rule {
    ($rule:ident => $verdict:expr) => {
        impl $rule {
            /// The rule, for packets with `probability`.
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
