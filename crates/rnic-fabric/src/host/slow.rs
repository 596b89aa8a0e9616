//! A host whose memory accepts received data slowly: a bus, a memory or a translation unit that is busy with other work
//! (Falcon, SIGCOMM'25, section 4.2, figure 14; the paper does not describe its set-up).
//!
//! The slow part is the path of received payload into memory. A Falcon NIC stores the payload in receive buffers
//! until it has been written ([`rnic_engine::Engine::set_falcon_backlog`]); a modelled NIC of the RoCE family stores
//! received packets until they are processed ([`super::nic`]). Completions do not wait for the write: otherwise they
//! would be later by the time to write the waiting bytes. An out-of-order packet of an ordered Falcon connection
//! counts as being written from its arrival, although it is written only when its predecessors have arrived.

use rnic_base::Time;

use crate::plan::SlowHostPlan;

/// The path into the memory of one host.
#[derive(Debug)]
pub(crate) struct SlowMemory {
    plan: SlowHostPlan,
    /// Time at which all bytes are written.
    written: Time,
    /// Maximum number of bytes that were in flight to memory.
    pub(crate) bytes_max: u64,
}

impl SlowMemory {
    pub(crate) fn new(plan: &SlowHostPlan) -> Self {
        Self { plan: plan.clone(), written: Time::ZERO, bytes_max: 0 }
    }

    /// Returns the number of bytes in flight to memory at `now`.
    pub(crate) fn backlog(&self, now: Time) -> u64 {
        self.plan.rate.bytes_in(self.written.since(self.written.min(now)))
    }

    /// Adds `bytes` to those being written; returns the number of bytes in flight to memory.
    pub(crate) fn write(&mut self, now: Time, bytes: u64) -> u64 {
        if let Some(rate) = self.plan.rate(now) {
            self.written = self.written.max(now) + rate.serialize(bytes);
        }
        let backlog = self.backlog(now);
        self.bytes_max = self.bytes_max.max(backlog);
        backlog
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::BitRate;

    use super::*;

    /// At 8 Gbit/s a byte takes one nanosecond.
    #[test]
    fn the_backlog_exists_only_while_memory_is_slow_and_drains_at_its_rate() {
        let (from, until) = (Time::from_us(10), Some(Time::from_us(20)));
        let plan = SlowHostPlan { hosts: "*".to_owned(), rate: BitRate::gbps(8), from, until, every: None };
        let mut memory = SlowMemory::new(&plan);
        assert_eq!(memory.write(Time::from_us(9), 5_000), 0, "a backlog before the slow interval");
        assert_eq!((memory.write(Time::from_us(10), 3_000), memory.write(Time::from_us(11), 3_000)), (3_000, 5_000));
        assert_eq!((memory.backlog(Time::from_us(14)), memory.backlog(Time::from_us(16))), (2_000, 0));
        assert_eq!(
            (memory.write(Time::from_us(20), 5_000), memory.bytes_max),
            (0, 5_000),
            "a backlog after the slow interval"
        );
    }
}
