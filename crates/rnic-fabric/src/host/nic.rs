//! What a NIC keeps beside its host, and what it costs to reach the rest: an optional model in front of the engine.
//!
//! Without a `[nic]` table in the plan none of this exists: packets enter the engine when they arrive and leave it when
//! the port is free. With it, each host has
//!
//! * a *context cache* ([`contexts`]): every packet, sent or received, needs the context of its queue pair; one that is
//!   not there is read over the bus;
//! * a *bus* ([`bus`]): a latency, a rate each way, and so many reads under way, so that misses overlap;
//! * *work requests* in the host's memory, fetched in batches: when a queue pair needs one (SRNIC, FaSR section IV-A),
//!   or ahead;
//! * *payload* that is read over the bus before a packet leaves and written over it when one has come;
//! * a *pipeline* that takes one packet a cycle, both ways together. Where bitmaps lie in the host's memory
//!   ([`rnic_policy::profile::Store::Host`]), it waits for the answer whenever one decides what to do: a repaired hole
//!   at the receiver (the next expected number), a packet to be sent again at the sender (its number). Recording an
//!   early packet is a posted write and does not wait (FaSR sections II-A and V-D2). While it waits nothing in it
//!   moves: what is in front of the port does not leave either.
//!
//! Sources: FaSR (2025) sections II-A, IV and V-A for what is modelled and for latencies and sizes; PCI Express 3.0 for
//! the bus. Deviations, and what is left out: receive work requests, completions and address translation cost nothing;
//! the replacement of contexts is by chance (nothing is published; a cyclic order of queue pairs, which loops make, is
//! the worst case of least-recently-used, and would weaken the baselines); the prefetch buffer for packets that leave
//! is as large as two bus latencies need.

pub(crate) mod bus;
pub(crate) mod contexts;
mod drive;
mod falcon;
mod work;

use std::collections::VecDeque;

use rnic_base::{BitRate, Duration, RandomStream, Time};
use serde::Serialize;

use crate::entry::Entry;
use crate::plan::{NicPlan, SlowHostPlan};

use bus::Bus;
use contexts::Contexts;
pub(super) use drive::WithNic;
pub(super) use falcon::WithFalconAndNic;
use work::WorkQueues;

/// What the memory of all NICs has done.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct NicFigures {
    /// Contexts that fit into a cache; zero when all do.
    pub contexts_fit: u32,
    /// Bytes of one.
    pub context_bytes: u64,
    /// Packets whose context was there.
    pub context_hits: u64,
    /// Those whose context came from the second level.
    pub context_second_hits: u64,
    /// Those whose context was read over the bus.
    pub context_misses: u64,
    /// Misses, of all.
    pub miss_share: f64,
    /// Reads of work requests; each brings a batch.
    pub work_fetches: u64,
    /// Questions to bitmaps in the host's memory.
    pub bitmap_queries: u64,
    /// Time that pipelines waited for their answers, microseconds.
    pub bitmap_wait_us: f64,
    /// Packets dropped because too much waited for the pipeline.
    pub dropped: u64,
    /// The most bytes that have waited.
    pub receive_buffer_max_bytes: u64,
}

impl NicFigures {
    /// Adds those of another NIC.
    pub(crate) fn add(&mut self, nic: &Nic) {
        let (plan, stats, contexts) = (&nic.plan, &nic.stats, &nic.contexts);
        self.contexts_fit = plan.contexts.unwrap_or(0);
        self.context_bytes = plan.context_bytes;
        self.context_hits += contexts.hits;
        self.context_second_hits += contexts.second_hits;
        self.context_misses += contexts.misses;
        let asked = self.context_hits + self.context_second_hits + self.context_misses;
        self.miss_share = self.context_misses as f64 / asked.max(1) as f64;
        self.work_fetches += nic.work.fetches;
        self.bitmap_queries += stats.bitmap_queries;
        self.bitmap_wait_us += stats.bitmap_wait.as_us_f64();
        self.dropped += stats.dropped;
        self.receive_buffer_max_bytes = self.receive_buffer_max_bytes.max(stats.most_waiting);
    }
}

/// Counters of one NIC.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    bitmap_queries: u64,
    bitmap_wait: Duration,
    dropped: u64,
    most_waiting: u64,
}

/// A packet that has come in.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    entry: Entry,
    /// When its context is there.
    ready: Time,
}

/// A packet that is to leave.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    entry: Entry,
    payload: u32,
    /// When what it waits for is there: first context and work request, then its payload.
    ready: Time,
}

/// The model of one host.
#[derive(Debug)]
pub(crate) struct Nic {
    plan: NicPlan,
    contexts: Contexts,
    bus: Bus,
    work: WorkQueues,
    /// When the pipeline takes the next packet.
    pipeline: Time,
    /// Until then it waits for an answer, and nothing in it moves.
    frozen: Time,
    arrived: VecDeque<Arrived>,
    arrived_bytes: u64,
    paused_neighbour: bool,
    /// Acknowledgements go around everything that waits for the bus (FaSR section IV-C).
    acks: VecDeque<Entry>,
    /// Wait for context and work request, in order.
    described: VecDeque<Leaving>,
    /// Wait for their payload, in order.
    loading: VecDeque<Leaving>,
    /// Bytes of both.
    ahead: u64,
    ahead_max: u64,
    /// With Falcon, instead of all that waits above.
    falcon: falcon::Waiting,
    stats: Stats,
}

impl Nic {
    /// An empty one, for a link of `rate`; `stream` chooses which contexts make room.
    pub(crate) fn new(plan: &NicPlan, rate: BitRate, largest_frame: u64, stream: RandomStream) -> Self {
        Self {
            plan: *plan,
            contexts: Contexts::new(plan.contexts, plan.second, plan.context_bytes, stream),
            bus: Bus::new(&plan.bus),
            work: WorkQueues::new(plan.work),
            pipeline: Time::ZERO,
            frozen: Time::ZERO,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            paused_neighbour: false,
            acks: VecDeque::new(),
            described: VecDeque::new(),
            loading: VecDeque::new(),
            ahead: 0,
            // One latency for the context or the work request, one for the payload; and packets at both ends.
            ahead_max: rate.bytes_in(plan.bus.latency * 2) + 4 * largest_frame,
            falcon: falcon::Waiting::default(),
            stats: Stats::default(),
        }
    }

    /// The pipeline takes a packet at `now`; a bitmap in the host's memory is asked first, if `asks`.
    fn occupy(&mut self, now: Time, asks: bool) {
        self.pipeline = now + self.plan.cycle;
        if let Some(latency) = self.plan.bitmap.filter(|_| asks) {
            self.pipeline += latency;
            self.frozen = self.pipeline;
            self.stats.bitmap_queries += 1;
            self.stats.bitmap_wait += latency;
        }
    }

    /// Its host's memory is slow now and then.
    pub(crate) fn set_slow(&mut self, slow: Option<SlowHostPlan>) {
        self.bus.slow = slow;
    }

    /// A queue pair is no more.
    pub(crate) fn forget(&mut self, qpn: rnic_wire::Qpn) {
        self.contexts.forget(qpn);
        self.work.forget(qpn);
        self.falcon.forget(qpn);
    }
}

#[cfg(test)]
#[path = "nic/tests.rs"]
mod tests;
