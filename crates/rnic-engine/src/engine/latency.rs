//! Access to the times of send requests.

use rnic_base::Time;

use super::Engine;
use crate::latency::{LatencyHistogram, OperationTimers, OperationTimes};

/// Access to the times of the send requests of an engine, from post to completion; collecting them changes no
/// decision of the engine.
#[derive(Debug)]
pub struct Latencies<'e> {
    engine: &'e mut Engine,
}

impl<'e> Latencies<'e> {
    /// Returns access to the times of `engine`.
    pub fn of(engine: &'e mut Engine) -> Self {
        Self { engine }
    }

    /// Starts to collect the times of the requests that are posted from now on: the sums of each queue pair
    /// ([`crate::QpSnapshot::latency`]), and the last `records_max` requests until they are taken.
    pub fn collect(self, records_max: usize) {
        self.engine.core.times = Some(Box::new(OperationTimers::new(records_max)));
    }

    /// Announces that requests posted from now on are posted at `now`: without it, the time of a post is that of the
    /// last input.
    #[inline]
    pub fn set_clock(self, now: Time) {
        if let Some(times) = &mut self.engine.core.times {
            times.clock = now;
        }
    }

    /// Returns the times of the requests that have completed since the last call, in the order of their completion.
    pub fn take(self) -> impl Iterator<Item = OperationTimes> {
        self.engine.core.times.as_mut().map(|times| core::mem::take(&mut times.done)).unwrap_or_default().into_iter()
    }

    /// Returns the number of completed requests whose times were lost, because they were not taken in time.
    pub fn lost(self) -> u64 {
        self.engine.core.times.as_ref().map_or(0, |times| times.lost)
    }
}

impl LatencyHistogram {
    /// Returns the histogram of `engine`, if it collects the times of requests.
    pub fn of(engine: &Engine) -> Option<&Self> {
        engine.core.times.as_ref().map(|times| &times.histogram)
    }
}
