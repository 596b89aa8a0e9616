//! A degraded link, which has only a fraction of its rate.

use rnic_base::{BitRate, Time};

use super::{Fault, PacketInfo, Verdict};

/// Limits the rate of the link for an interval, as failed lanes of the cable or a negotiated lower rate would. Packets
/// then queue in front of the link, as with any slow link.
#[derive(Debug)]
pub struct Slow {
    rate: BitRate,
    from: Time,
    until: Option<Time>,
}

impl Slow {
    /// Creates a rule that limits the rate to `rate` from `from` until `until`, or indefinitely.
    pub fn new(rate: BitRate, from: Time, until: Option<Time>) -> Self {
        Self { rate, from, until }
    }
}

impl Fault for Slow {
    fn judge(&mut self, _: &PacketInfo) -> Verdict {
        Verdict::Pass
    }

    fn rate(&self, now: Time) -> Option<BitRate> {
        let lasts = self.from <= now && self.until.is_none_or(|until| now < until);
        lasts.then_some(self.rate)
    }
}
