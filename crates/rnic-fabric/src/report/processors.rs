//! Work of the threads on which schedulers run.

use rnic_base::Duration;
use rnic_engine::KindCounters;
use serde::Serialize;

/// Work of the threads on which schedulers run, over all hosts.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ProcessorFigures {
    /// Number of records taken by threads per second.
    pub events_per_s: f64,
    /// Number of recorded packets sent per second.
    pub packets_per_s: f64,
    /// Share of the packets sent, retransmissions included, that were recorded.
    pub recorded_share: f64,
    /// Mean number of bytes on the wire per record.
    pub bytes_per_event: f64,
    /// Share of the bytes sent whose records have been taken by a thread.
    pub processed_share: f64,
    /// Share of the records for which the scheduler did not run, because the rate was stable.
    pub folded_share: f64,
}

impl ProcessorFigures {
    /// Returns the figures of `counters` of all hosts, which sent `packets` in a run of `length`; `None` without
    /// processors.
    pub(crate) fn of(counters: impl Iterator<Item = KindCounters>, packets: u64, length: Duration) -> Option<Self> {
        let add = |sum: KindCounters, other: KindCounters| KindCounters {
            pushed: sum.pushed + other.pushed,
            pushed_bytes: sum.pushed_bytes + other.pushed_bytes,
            events: sum.events + other.events,
            folded: sum.folded + other.folded,
            bytes: sum.bytes + other.bytes,
            forgotten: sum.forgotten + other.forgotten,
        };
        let sum = counters.reduce(add)?;
        let seconds = length.as_us_f64() / 1e6;
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Some(Self {
            events_per_s: sum.events as f64 / seconds,
            packets_per_s: sum.pushed as f64 / seconds,
            recorded_share: ratio(sum.pushed, packets),
            bytes_per_event: ratio(sum.bytes, sum.events),
            processed_share: ratio(sum.bytes, sum.pushed_bytes),
            folded_share: ratio(sum.folded, sum.events),
        })
    }
}
