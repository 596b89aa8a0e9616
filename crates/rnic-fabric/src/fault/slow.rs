//! A degraded link: part of its rate is gone.

use rnic_base::{BitRate, Time};

use super::{Fault, Passing, Verdict};

/// Carries less than its link could, from some instant to another: lanes that are lost, a cable that negotiates down.
/// What waits then waits before the link, as before any slow one.
#[derive(Debug)]
pub struct Slow {
    rate: BitRate,
    from: Time,
    until: Option<Time>,
}

impl Slow {
    /// `rate` from `from` on, until `until`, if ever.
    pub fn new(rate: BitRate, from: Time, until: Option<Time>) -> Self {
        Self { rate, from, until }
    }
}

impl Fault for Slow {
    fn judge(&mut self, _: &Passing) -> Verdict {
        Verdict::Pass
    }

    fn rate(&self, now: Time) -> Option<BitRate> {
        let lasts = self.from <= now && self.until.is_none_or(|until| now < until);
        lasts.then_some(self.rate)
    }
}
