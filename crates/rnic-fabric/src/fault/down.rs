//! A link that is down for an interval.

use rnic_base::Time;

use super::{Fault, PacketInfo, Verdict};

/// Drops every packet whose transmission starts in an interval.
#[derive(Debug)]
pub struct Down {
    from: Time,
    until: Time,
}

impl Down {
    /// Creates a rule for a link that fails at `from` and is restored at `until`.
    pub fn new(from: Time, until: Time) -> Self {
        Self { from, until }
    }
}

impl Fault for Down {
    fn judge(&mut self, packet: &PacketInfo) -> Verdict {
        if self.from <= packet.now && packet.now < self.until { Verdict::Drop } else { Verdict::Pass }
    }
}
