//! Work requests on their way from the host's memory.
//!
//! On demand, a queue pair holds at most one batch that is in use and one that is on its way: the next batch is asked
//! for when the one before has come and is taken from. So a queue pair that sends small messages is bounded by one
//! batch a bus latency: 8 in 1.2 us, the 6.7 million a second of FaSR section V-D1 (R-R9, R-22).

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

/// What the NIC has of one send queue.
#[derive(Clone, Copy, Debug, Default)]
struct WorkQueue {
    /// Posted, and not asked for.
    posted: u32,
    /// Of the present batch, not taken.
    left: u32,
    /// When the present batch is there.
    since: Time,
    /// The batch that was asked for after it: how many, and when it is there.
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

    /// The host has posted a request.
    pub(crate) fn posted(&mut self, qpn: Qpn) {
        self.queue(qpn).posted += 1;
    }

    /// When the next request of `qpn`, which is wanted at `now`, is there.
    pub(crate) fn take(&mut self, now: Time, qpn: Qpn, bus: &mut Bus) -> Time {
        let WorkFetch::OnDemand { batch } = self.fetch else {
            bus.read(now, WQE_BYTES);
            self.fetches += 1;
            return now;
        };
        let mut fetches = 0;
        let queue = self.queue(qpn);
        if queue.left == 0 {
            (queue.left, queue.since) = queue.next.take().unwrap_or_else(|| {
                fetches += 1;
                queue.ask(now, batch, bus)
            });
        }
        queue.left -= 1;
        if queue.next.is_none() && queue.posted > 0 {
            fetches += 1;
            queue.next = Some(queue.ask(now, batch, bus));
        }
        let since = queue.since;
        self.fetches += fetches;
        since.max(now)
    }

    /// A queue pair is no more.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        *self.queue(qpn) = WorkQueue::default();
    }
}

impl WorkQueue {
    fn ask(&mut self, now: Time, batch: u32, bus: &mut Bus) -> (u32, Time) {
        // Work that was posted by hand is not announced.
        let count = self.posted.clamp(1, batch);
        self.posted = self.posted.saturating_sub(count);
        // One fetch at a time: this one is asked for when the one before has come. Its bytes are set aside now: reads
        // are answered in the order in which they are made known.
        let later = self.since.max(now).since(now);
        (count, bus.read(now, u64::from(count) * WQE_BYTES) + later)
    }
}

/// A work request as adapters lay it out: 64 bytes (IRN section 6.1).
const WQE_BYTES: u64 = 64;
