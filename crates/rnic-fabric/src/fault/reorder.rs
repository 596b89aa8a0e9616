//! Packets that are overtaken.

use rnic_base::{Duration, Probability, RandomStream};

use super::{Fault, Passing, Verdict};

/// Holds a packet back with some probability: those sent within the delay overtake it. A plan may give the delay as a
/// number of full packets, which is then how many overtake it on a busy link.
#[derive(Debug)]
pub struct Reorder {
    probability: Probability,
    delay: Duration,
    stream: RandomStream,
}

impl Reorder {
    /// Holds packets back for `delay`.
    pub fn new(probability: Probability, delay: Duration, stream: RandomStream) -> Self {
        Self { probability, delay, stream }
    }
}

impl Fault for Reorder {
    fn judge(&mut self, _: &Passing) -> Verdict {
        if self.stream.chance(self.probability) { Verdict::Delay(self.delay) } else { Verdict::Pass }
    }
}
