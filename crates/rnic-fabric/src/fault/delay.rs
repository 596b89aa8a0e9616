//! Additional delay on a link, fixed and random.

use rnic_base::{Duration, RandomStream, Time};

use super::{Fault, PacketInfo, Verdict};

/// Delays every packet by a fixed time and a uniformly distributed random time, without changing their order: a
/// packet never arrives before the one sent before it. ([`super::Reorder`] changes the order.)
#[derive(Debug)]
pub struct Delay {
    fixed: Duration,
    jitter: Duration,
    last_arrival: Time,
    stream: RandomStream,
}

impl Delay {
    /// Creates a rule that delays packets by `fixed` plus up to `jitter`.
    pub fn new(fixed: Duration, jitter: Duration, stream: RandomStream) -> Self {
        Self { fixed, jitter, last_arrival: Time::ZERO, stream }
    }
}

impl Fault for Delay {
    fn judge(&mut self, packet: &PacketInfo) -> Verdict {
        let extra = Duration::from_ps(self.stream.between(0, self.jitter.as_ps()));
        let arrival = (packet.arrival + self.fixed + extra).max(self.last_arrival);
        self.last_arrival = arrival;
        Verdict::Delay(arrival.since(packet.arrival))
    }
}
