//! A link that is down for a while.

use rnic_base::Time;

use super::{Fault, Passing, Verdict};

/// Loses every packet that starts to leave in an interval.
#[derive(Debug)]
pub struct Down {
    from: Time,
    until: Time,
}

impl Down {
    /// Down from `from`, up again at `until`.
    pub fn new(from: Time, until: Time) -> Self {
        Self { from, until }
    }
}

impl Fault for Down {
    fn judge(&mut self, packet: &Passing) -> Verdict {
        if self.from <= packet.now && packet.now < self.until { Verdict::Drop } else { Verdict::Pass }
    }
}
