//! An optional model, in front of the engine, of the state that a NIC stores on the chip and of the cost of accessing
//! state in the host's memory.
//!
//! Without a `[nic]` table in the plan, none of this is simulated: packets enter the engine when they arrive and are
//! sent when the port is free. With it, each host has
//!
//! * a *context cache* ([`cache`]): every packet, sent or received, needs the context of its queue pair; a missing
//!   context is read over the bus;
//! * a *bus* ([`bus`]): a latency, a rate in each direction, and a limit of reads in flight, so that misses overlap;
//! * *work requests* in the host's memory, fetched in batches: when a queue pair needs one (SRNIC, FaSR section
//!   IV-A), or in advance;
//! * *payload* that is read over the bus before a packet is sent and written over it after a packet was received;
//! * a *pipeline* that processes one packet per cycle, both directions together. Where bitmaps are stored in the
//!   host's memory ([`rnic_policy::profile::Store::Host`]), it waits for the result whenever a bitmap decides the
//!   next action: a filled gap at the receiver (the next expected number), a retransmission at the sender (its
//!   number). Recording an out-of-order packet is a posted write and does not wait (FaSR sections II-A and V-D2).
//!   While the pipeline waits, no packet in it advances: packets that wait for the port are not sent either.
//!
//! Sources: FaSR (2025) sections II-A, IV and V-A for the modelled mechanisms and for latencies and sizes; PCI
//! Express 3.0 for the bus. Deviations and omissions: receive work requests have no cost, and completions and address
//! translation only with the caches of [`tables`]; the replacement of contexts is random (no policy is published; a
//! cyclic order of queue pairs, which loops produce, is the worst case for least-recently-used replacement and would
//! put the baselines at a disadvantage); the prefetch buffer for packets to be sent is large enough for two bus
//! latencies.

pub(in crate::host) mod buffer;
pub(crate) mod bus;
pub(crate) mod cache;
mod drive;
mod falcon;
mod tables;
mod work;

use core::ops::Range;
use std::collections::VecDeque;

use rnic_base::{BitRate, Duration, RandomStream, Time};
use rnic_engine::messages::exchange::HostLoad;
use serde::Serialize;

use crate::entry::Entry;
use crate::plan::{NicPlan, SlowHostPlan};

use buffer::PacketBuffer;
use bus::{Bus, Utilisation};
use cache::Cache;
pub(super) use drive::WithNic;
pub(super) use falcon::WithFalconAndNic;
use tables::Tables;
use work::WorkQueues;

/// Statistics of the memory accesses of all NICs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct NicFigures {
    /// Number of contexts that fit into a cache; zero when all do.
    pub contexts_fit: u32,
    /// Size of one context in bytes.
    pub context_bytes: u64,
    /// Packets whose context was on the chip.
    pub context_hits: u64,
    /// Packets whose context was in the second cache level.
    pub context_second_hits: u64,
    /// Packets whose context was read over the bus.
    pub context_misses: u64,
    /// Misses as a share of all accesses.
    pub miss_share: f64,
    /// Number of reads of work requests; when fetched on demand, each read fetches a batch.
    pub work_fetches: u64,
    /// Number of times that a bitmap in the host's memory was queried.
    pub bitmap_queries: u64,
    /// Time that pipelines waited for the results of bitmap queries, in microseconds.
    pub bitmap_wait_us: f64,
    /// Packets dropped because the receive buffer in front of the pipeline was full.
    pub dropped: u64,
    /// Maximum number of bytes that waited in a receive buffer.
    pub receive_buffer_max_bytes: u64,
    /// Caches of tables, when the plan bounds one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<TableFigures>,
    /// Packet buffers, when the plan has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_buffer: Option<PacketBufferFigures>,
}

/// Statistics of the caches of all NICs for translations and contexts of completion queues.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct TableFigures {
    /// With `translation_entries`: payloads whose translation was on the chip.
    pub translation_hits: u64,
    /// Payloads whose translation was read over the bus.
    pub translation_misses: u64,
    /// Misses of translations as a share of all accesses.
    pub translation_miss_share: f64,
    /// With `cq_entries`: packets that could complete a request and whose completion queue's context was on the chip.
    pub cq_hits: u64,
    /// Such packets for which that context was read over the bus.
    pub cq_misses: u64,
    /// Misses of contexts of completion queues as a share of all accesses.
    pub cq_miss_share: f64,
}

/// Statistics of the packet buffers of all NICs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct PacketBufferFigures {
    /// Packets that arrived out of order and waited on the NIC for an earlier one.
    pub kept: u64,
    /// Of these, packets for which there was no space on the chip and that were written to DRAM.
    pub kept_in_dram: u64,
    /// Packets refused because no buffer was free.
    pub refused: u64,
    /// Maximum number of bytes that waited on the chip of a NIC.
    pub chip_max_bytes: u64,
    /// Maximum number of bytes in the DRAM of a NIC.
    pub dram_max_bytes: u64,
}

impl NicFigures {
    /// Adds the statistics of another NIC.
    pub(crate) fn add(&mut self, nic: &NicModel) {
        let (plan, stats, contexts) = (&nic.plan, &nic.stats, &nic.contexts);
        self.contexts_fit = plan.contexts.unwrap_or(0);
        self.context_bytes = plan.context_bytes;
        self.context_hits += contexts.hits;
        self.context_second_hits += contexts.second_hits;
        self.context_misses += contexts.misses;
        let accesses = self.context_hits + self.context_second_hits + self.context_misses;
        self.miss_share = self.context_misses as f64 / accesses.max(1) as f64;
        if let Some(Tables { translations, cqs, .. }) = &nic.tables {
            let sum = self.tables.get_or_insert_default();
            sum.translation_hits += translations.hits;
            sum.translation_misses += translations.misses;
            sum.translation_miss_share = Cache::miss_share(sum.translation_hits, sum.translation_misses);
            sum.cq_hits += cqs.hits;
            sum.cq_misses += cqs.misses;
            sum.cq_miss_share = Cache::miss_share(sum.cq_hits, sum.cq_misses);
        }
        self.work_fetches += nic.work.fetches;
        self.bitmap_queries += stats.bitmap_queries;
        self.bitmap_wait_us += stats.bitmap_wait.as_us_f64();
        self.dropped += stats.dropped;
        self.receive_buffer_max_bytes = self.receive_buffer_max_bytes.max(stats.waiting_max);
        if let Some(PacketBuffer { stats, .. }) = &nic.buffer {
            let sum = self.packet_buffer.get_or_insert_default();
            sum.kept += stats.kept;
            sum.kept_in_dram += stats.kept_in_dram;
            sum.refused += stats.refused;
            sum.chip_max_bytes = sum.chip_max_bytes.max(stats.chip_bytes_max);
            sum.dram_max_bytes = sum.dram_max_bytes.max(stats.dram_bytes_max);
        }
    }
}

/// Counters of one NIC.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    bitmap_queries: u64,
    bitmap_wait: Duration,
    dropped: u64,
    waiting_max: u64,
}

/// A received packet that waits for the pipeline.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    entry: Entry,
    at: Time,
    /// Time at which its context is available.
    ready: Time,
}

/// A packet that waits to be sent.
#[derive(Clone, Copy, Debug)]
struct PendingDeparture {
    entry: Entry,
    payload: u32,
    /// Time at which the data that it waits for is available: first its context and work request, then its payload.
    ready: Time,
}

/// The NIC model of one host.
#[derive(Debug)]
pub(crate) struct NicModel {
    plan: NicPlan,
    contexts: Cache,
    /// Caches of translations and of contexts of completion queues, when the plan bounds one of them.
    tables: Option<Tables>,
    bus: Bus,
    work: WorkQueues,
    /// Time at which the pipeline accepts the next packet.
    pipeline_free_at: Time,
    /// Share of the time in which the pipeline processes packets.
    pipeline_use: Utilisation,
    /// Time until which the pipeline waits for the result of a bitmap query and no packet in it advances.
    stalled_until: Time,
    arrived: VecDeque<Arrived>,
    arrived_bytes: u64,
    /// When a received payload was last written, and its delay from arrival to the end of the write.
    last_write: (Time, Duration),
    paused_neighbour: bool,
    /// Messages between NICs, which are sent before all waiting packets. Their receivers drop messages that arrive out
    /// of order.
    messages: VecDeque<Entry>,
    /// Acknowledgements, which bypass all packets that wait for the bus (FaSR section IV-C).
    acks: VecDeque<Entry>,
    /// Packets that wait for context and work request, in order.
    awaiting_context: VecDeque<PendingDeparture>,
    /// Packets that wait for their payload, in order.
    awaiting_payload: VecDeque<PendingDeparture>,
    /// Bytes of the frames in `awaiting_context` and `awaiting_payload`.
    queued_bytes: u64,
    queued_bytes_max: u64,
    /// Waiting packets of a Falcon host, which uses this instead of the queues above.
    falcon: falcon::Waiting,
    /// Buffers for packets that arrive out of order, when the plan has them; only for Falcon.
    pub(super) buffer: Option<PacketBuffer>,
    stats: Stats,
}

impl NicModel {
    /// Returns the number of packets dropped because the receive buffer was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.stats.dropped
    }

    /// Creates an empty NIC for a link of `rate`; `stream` returns the random choices of a cache, by its name.
    pub(crate) fn new(
        plan: &NicPlan,
        rate: BitRate,
        largest_frame: u64,
        stream: impl Fn(&str) -> RandomStream,
    ) -> Self {
        let tables = |plan| Tables::new(plan, ["/translations", "/cqs"].map(&stream));
        Self {
            plan: *plan,
            contexts: Cache::new(plan.contexts, plan.context_bytes, stream("")).with_second(plan.second),
            tables: plan.tables.as_ref().map(tables),
            bus: Bus::new(&plan.bus),
            work: WorkQueues::new(plan.work),
            pipeline_free_at: Time::ZERO,
            pipeline_use: Utilisation::default(),
            stalled_until: Time::ZERO,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            last_write: (Time::ZERO, Duration::ZERO),
            paused_neighbour: false,
            messages: VecDeque::new(),
            acks: VecDeque::new(),
            awaiting_context: VecDeque::new(),
            awaiting_payload: VecDeque::new(),
            queued_bytes: 0,
            // Space for one bus latency for the context or the work request and one for the payload, and for packets
            // at both ends.
            queued_bytes_max: rate.bytes_in(plan.bus.latency * 2) + 4 * largest_frame,
            falcon: falcon::Waiting::default(),
            buffer: plan.packet_buffer.as_ref().map(PacketBuffer::new),
            stats: Stats::default(),
        }
    }

    /// Processes a packet in the pipeline at `now`; when `queries_bitmap` is set, a bitmap in the host's memory is
    /// queried first.
    fn occupy(&mut self, now: Time, queries_bitmap: bool) {
        self.pipeline_free_at = now + self.plan.cycle;
        self.pipeline_use.add(self.plan.cycle);
        if let Some(latency) = self.plan.bitmap.filter(|_| queries_bitmap) {
            self.pipeline_free_at += latency;
            self.stalled_until = self.pipeline_free_at;
            self.stats.bitmap_queries += 1;
            self.stats.bitmap_wait += latency;
        }
    }

    /// Sets the intervals in which the host's memory is slow.
    pub(crate) fn set_slow_intervals(&mut self, slow: Option<SlowHostPlan>) {
        self.bus.slow = slow;
    }

    /// Starts measuring the bus traffic in `measured`.
    pub(crate) fn measure_bus(&mut self, measured: Range<Time>) {
        self.bus.measured = measured;
    }

    /// Returns the traffic of the bus in the measured time.
    pub(crate) fn bus_counts(&self) -> bus::BusCounts {
        self.bus.counts()
    }

    /// Returns the load of the bus and of the pipeline at `now`, for messages between NICs (SCR mechanism S-4). The
    /// reported latency of the bus is the longer of two: that of a read, and that of the last write including the time
    /// that its packet waited before.
    pub(super) fn host_load(&mut self, now: Time) -> HostLoad {
        let (written_at, delay) = self.last_write;
        let write = if now.since(written_at) <= LOAD_RECENT { delay } else { Duration::ZERO };
        HostLoad {
            bus_latency: self.bus.latency(now).max(write),
            bus_use: self.bus.utilisation(now),
            nic_use: self.pipeline_use.share(now),
            context_misses: self.contexts.misses,
        }
    }

    /// Writes the payload of a packet that arrived at `arrived_at` to memory.
    fn write_payload(&mut self, now: Time, arrived_at: Time, payload: u64) {
        self.bus.write(now, payload);
        self.last_write = (now, self.bus.written().since(arrived_at));
    }

    /// Removes the state of a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, qpn: rnic_wire::Qpn) {
        self.contexts.forget(qpn.get());
        if let Some(tables) = &mut self.tables {
            tables.forget(qpn);
        }
        self.work.forget(qpn);
        self.falcon.forget(qpn);
    }
}

/// Time for which the delay of the last write counts as that of the bus.
const LOAD_RECENT: Duration = Duration::from_us(10);

#[cfg(test)]
#[path = "nic/tests.rs"]
mod tests;
