//! Reordering of packets.

use rnic_base::{Duration, Probability, RandomStream};

use super::{Fault, PacketInfo, Verdict};

/// Delays a packet with a given probability, so that packets sent within the delay overtake it. A plan may give the
/// delay as a number of full packets, which is then the number of packets that overtake it on a busy link.
#[derive(Debug)]
pub struct Reorder {
    probability: Probability,
    delay: Duration,
    stream: RandomStream,
}

impl Reorder {
    /// Creates a rule that delays packets by `delay`.
    pub fn new(probability: Probability, delay: Duration, stream: RandomStream) -> Self {
        Self { probability, delay, stream }
    }
}

impl Fault for Reorder {
    fn judge(&mut self, _: &PacketInfo) -> Verdict {
        if self.stream.chance(self.probability) { Verdict::Delay(self.delay) } else { Verdict::Pass }
    }
}
