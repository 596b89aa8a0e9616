//! The engine's time on a real machine.

use std::time::Instant;

use rnic_base::Time;

/// Counts from its creation, by the monotonic clock: it never runs backwards and is not affected by changes of the
/// date.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn now(self) -> Time {
        // 64 bits of nanoseconds last 584 years; of picoseconds, the unit of `Time`, 213 days.
        let elapsed_ns = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::from_ps(elapsed_ns.saturating_mul(1_000))
    }
}
