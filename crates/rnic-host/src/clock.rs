//! The engine's time in a process on a real machine.

use rnic_base::Time;

use crate::sys::monotonic_ns;

/// A clock that starts at zero when it is created. It uses the monotonic clock, so it never runs backwards and is not
/// affected by changes of the date.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    zero_ns: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { zero_ns: monotonic_ns() }
    }

    #[inline]
    pub(crate) fn now(self) -> Time {
        // 64 bits of nanoseconds last 584 years; of picoseconds, the unit of `Time`, 213 days.
        let elapsed_ns = monotonic_ns().saturating_sub(self.zero_ns);
        Time::from_ps(elapsed_ns.saturating_mul(1_000))
    }

    /// Returns the monotonic time, in nanoseconds, at which the clock was started: all processes read the same
    /// monotonic clock.
    pub(crate) fn zero_ns(self) -> u64 {
        self.zero_ns
    }
}
