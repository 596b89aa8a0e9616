//! Work requests that the NIC fetches from the host's memory.
//!
//! On demand, a queue pair holds at most one batch in use and one being fetched: the next batch is requested when the
//! previous one has been fetched and its first request is consumed. So a queue pair that sends small messages is
//! limited to one batch per bus latency: 8 in 1.2 us, about the 6.8 million per second that FaSR V-D1 derives (R-R9,
//! The engine may consume requests before they have been fetched; a request that is posted before the read of
//! its batch begins is read with it.

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
    current: Batch,
    /// The batch that is fetched next.
    next: Option<Batch>,
}

/// Requests that are fetched together.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    count: u32,
    /// Time at which their read begins: one batch is read at a time.
    begins: Time,
    /// Time at which they are available.
    ready: Time,
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
        let queue = self.queue(qpn);
        let fetches = queue.take(now, batch, bus);
        let ready = queue.current.ready;
        self.fetches += fetches;
        ready.max(now)
    }

    /// Removes the state of a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        *self.queue(qpn) = WorkQueue::default();
    }
}

impl WorkQueue {
    /// Consumes a request; returns the number of reads that this requires.
    fn take(&mut self, now: Time, batch: u32, bus: &mut Bus) -> u64 {
        let mut fetches = 0;
        if let Some(next) = &mut self.next {
            next.join(now, batch, &mut self.posted, bus);
        }
        if self.remaining == 0 {
            self.remaining = match self.next.take() {
                Some(next) => {
                    self.current = next;
                    next.count
                }
                None => self.current.join(now, batch, &mut self.posted, bus),
            };
        }
        if self.remaining == 0 {
            fetches += 1;
            self.current = self.fetch_batch(now, batch, bus);
            self.remaining = self.current.count;
        }
        self.remaining -= 1;
        if self.next.is_none() && self.posted > 0 {
            fetches += 1;
            self.next = Some(self.fetch_batch(now, batch, bus));
        }
        fetches
    }

    fn fetch_batch(&mut self, now: Time, batch: u32, bus: &mut Bus) -> Batch {
        // Work that the caller posts itself is not counted in `posted`.
        let count = self.posted.clamp(1, batch);
        self.posted = self.posted.saturating_sub(count);
        // One fetch at a time: this one is requested when the previous one has completed. Its bus time is reserved
        // now, because reads complete in the order in which they are registered.
        let begins = self.current.ready.max(now);
        Batch { count, begins, ready: bus.read(now, u64::from(count) * WQE_BYTES) + begins.since(now) }
    }
}

impl Batch {
    /// Adds `posted` requests while the read of the batch has not begun and it is not full; returns their number.
    fn join(&mut self, now: Time, batch: u32, posted: &mut u32, bus: &mut Bus) -> u32 {
        let more = if self.begins > now { (*posted).min(batch - self.count) } else { 0 };
        if more > 0 {
            bus.read(now, u64::from(more) * WQE_BYTES);
            self.count += more;
            *posted -= more;
        }
        more
    }
}

/// Size of a work request in network adapters: 64 bytes (IRN section 6.1).
const WQE_BYTES: u64 = 64;
