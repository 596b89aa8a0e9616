//! Work requests that the NIC fetches from the host's memory.
//!
//! On demand, a queue pair holds at most one batch in use and one being fetched: the next batch is requested when the
//! previous one has been fetched and its first request is consumed. So a queue pair that sends small messages is
//! limited to one batch per bus latency: 8 in 1.2 us, about the 6.8 million per second that FaSR V-D1 derives (R-R9,
//!

use rnic_base::Time;
use rnic_wire::Qpn;

use super::bus::Bus;
use crate::plan::WorkFetch;

/// The send queues of a NIC, by queue pair number.
#[derive(Debug)]
pub(crate) struct WorkQueues {
    fetch: WorkFetch,
    queues: Vec<WorkQueue>,
    pub(crate) fetches: u64,
}

/// State of one send queue on the NIC.
#[derive(Clone, Copy, Debug, Default)]
struct WorkQueue {
    /// Number of requests posted and not yet fetched.
    posted: u32,
    /// Number of unused requests of the current batch.
    remaining: u32,
    /// Time at which the current batch is available.
    since: Time,
    /// The batch that is fetched next: number of requests, and the time at which it is available.
    next: Option<(u32, Time)>,
}

impl WorkQueues {
    pub(crate) fn new(fetch: WorkFetch) -> Self {
        Self { fetch, queues: Vec::new(), fetches: 0 }
    }

    fn queue(&mut self, qpn: Qpn) -> &mut WorkQueue {
        let number = qpn.get() as usize;
        if self.queues.len() <= number {
            self.queues.resize(number + 1, WorkQueue::default());
        }
        &mut self.queues[number]
    }

    /// Counts a request that the host has posted.
    pub(crate) fn posted(&mut self, qpn: Qpn) {
        self.queue(qpn).posted += 1;
    }

    /// Consumes the next request of `qpn` at `now`; returns the time at which it is available.
    pub(crate) fn take(&mut self, now: Time, qpn: Qpn, bus: &mut Bus) -> Time {
        let WorkFetch::OnDemand { batch } = self.fetch else {
            bus.read(now, WQE_BYTES);
            self.fetches += 1;
            return now;
        };
        let mut fetches = 0;
        let queue = self.queue(qpn);
        if queue.remaining == 0 {
            (queue.remaining, queue.since) = queue.next.take().unwrap_or_else(|| {
                fetches += 1;
                queue.fetch_batch(now, batch, bus)
            });
        }
        queue.remaining -= 1;
        if queue.next.is_none() && queue.posted > 0 {
            fetches += 1;
            queue.next = Some(queue.fetch_batch(now, batch, bus));
        }
        let since = queue.since;
        self.fetches += fetches;
        since.max(now)
    }

    /// Removes the state of a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        *self.queue(qpn) = WorkQueue::default();
    }
}

impl WorkQueue {
    fn fetch_batch(&mut self, now: Time, batch: u32, bus: &mut Bus) -> (u32, Time) {
        // Work that the caller posts itself is not counted in `posted`.
        let count = self.posted.clamp(1, batch);
        self.posted = self.posted.saturating_sub(count);
        // One fetch at a time: this one is requested when the previous one has completed. Its bus time is reserved
        // now, because reads complete in the order in which they are registered.
        let wait = self.since.max(now).since(now);
        (count, bus.read(now, u64::from(count) * WQE_BYTES) + wait)
    }
}

/// Size of a work request in network adapters: 64 bytes (IRN section 6.1).
const WQE_BYTES: u64 = 64;
