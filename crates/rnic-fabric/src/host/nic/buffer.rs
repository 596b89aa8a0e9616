//! Buffers of a Falcon NIC for packets that arrive out of order: memory on the chip, with optional DRAM of the NIC's
//! own behind it (Falcon mechanism F-37).
//!
//! Source: Falcon (SIGCOMM'25) section 5.2, "On-NIC Resources": the packet buffer has the size of a bandwidth-delay
//! product, and overflows into external DRAM on the NIC. On an ordered connection, requests that arrive after a lost
//! one wait here until it has arrived; the engine counts them in its resources, whose capacity for requests from the
//! network is that of chip and DRAM together ([`rnic_engine::EngineConfig::falcon_receive_bytes`]), and refuses those
//! for which there is none.
//!
//! A payload that does not fit on the chip when it arrives is written to DRAM, and read from there when it is
//! delivered. Writes and reads share the DRAM's rate, in the order in which they are requested. Until it has been read,
//! a payload occupies its buffer, which the driver reports to the engine, as for payload on its way to a slow host
//! ([`rnic_engine::Engine::set_falcon_backlog`]). A completion does not wait for the read.
//!
//! Nothing else occupies these buffers here: payload to be sent remains in the host's memory until its packet is sent,
//! and is read again for a retransmission; responses are placed in the memory of their Read, in any order; packets of
//! unordered connections are delivered when they arrive.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::Time;
use rnic_engine::{Dma, MemoryFault, Segment};

use crate::plan::PacketBufferPlan;

/// The packet buffers of one NIC.
#[derive(Debug)]
pub(in crate::host) struct PacketBuffer {
    plan: PacketBufferPlan,
    /// Payload that waits for an earlier packet, by the engine's identifiers.
    kept: BTreeMap<u64, Kept>,
    chip_bytes: u64,
    /// Bytes in DRAM, including those that are being read.
    dram_bytes: u64,
    /// Time at which the DRAM has completed all writes and reads.
    dram_free_at: Time,
    /// Reads of delivered payload from DRAM: the time of their end, and their bytes.
    reads: VecDeque<(Time, u32)>,
    /// Bytes of `reads`.
    reading_bytes: u64,
    pub(super) stats: BufferStats,
}

/// Counters of the packet buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BufferStats {
    pub(super) kept: u64,
    pub(super) kept_in_dram: u64,
    pub(super) refused: u64,
    pub(super) chip_bytes_max: u64,
    pub(super) dram_bytes_max: u64,
}

/// A payload that waits.
#[derive(Clone, Copy, Debug)]
struct Kept {
    bytes: u32,
    is_in_dram: bool,
    is_placed: bool,
}

impl PacketBuffer {
    pub(super) fn new(plan: &PacketBufferPlan) -> Self {
        Self {
            plan: *plan,
            kept: BTreeMap::new(),
            chip_bytes: 0,
            dram_bytes: 0,
            dram_free_at: Time::ZERO,
            reads: VecDeque::new(),
            reading_bytes: 0,
            stats: BufferStats::default(),
        }
    }

    /// Returns the number of delivered bytes that have not been read from DRAM at `now`.
    pub(in crate::host) fn backlog(&mut self, now: Time) -> u64 {
        while let Some((_, bytes)) = self.reads.pop_front_if(|(end, _)| *end <= now) {
            self.reading_bytes -= u64::from(bytes);
            self.dram_bytes -= u64::from(bytes);
        }
        self.reading_bytes
    }

    /// Counts a packet that was refused because no buffer was free.
    pub(in crate::host) fn note_refusal(&mut self) {
        self.stats.refused += 1;
    }

    /// Returns the target for a packet that arrives at `now` with `payload_len` bytes and is written by `inner`.
    pub(in crate::host) fn target<D: Dma>(&mut self, now: Time, payload_len: u32, inner: D) -> BufferedTarget<'_, D> {
        BufferedTarget { buffer: self, now, payload_len, inner }
    }

    /// Transfers `bytes` to or from DRAM after all earlier transfers; returns the time of its end.
    fn transfer(&mut self, now: Time, bytes: u32) -> Time {
        let Some(dram) = &self.plan.dram else { return now };
        self.dram_free_at = self.dram_free_at.max(now) + dram.rate.serialize(u64::from(bytes));
        self.dram_free_at + dram.latency
    }

    fn keep(&mut self, now: Time, handle: u64, bytes: u32) {
        let is_in_dram = self.plan.dram.is_some() && self.chip_bytes + u64::from(bytes) > self.plan.chip_bytes;
        let before = self.kept.insert(handle, Kept { bytes, is_in_dram, is_placed: false });
        assert!(before.is_none(), "the engine keeps two payloads as {handle:#x}");
        self.stats.kept += 1;
        if is_in_dram {
            self.transfer(now, bytes);
            self.dram_bytes += u64::from(bytes);
            self.stats.kept_in_dram += 1;
            self.stats.dram_bytes_max = self.stats.dram_bytes_max.max(self.dram_bytes);
        } else {
            self.chip_bytes += u64::from(bytes);
            self.stats.chip_bytes_max = self.stats.chip_bytes_max.max(self.chip_bytes);
        }
    }

    /// Frees a payload; when it was placed in the host's memory, it is read from DRAM first.
    fn release(&mut self, now: Time, handle: u64) {
        let Some(Kept { bytes, is_in_dram, is_placed }) = self.kept.remove(&handle) else { return };
        if !is_in_dram {
            self.chip_bytes -= u64::from(bytes);
        } else if is_placed {
            let end = self.transfer(now, bytes);
            self.reads.push_back((end, bytes));
            self.reading_bytes += u64::from(bytes);
        } else {
            self.dram_bytes -= u64::from(bytes);
        }
    }
}

/// Target of a received payload, for a NIC with packet buffers.
pub(in crate::host) struct BufferedTarget<'b, D> {
    buffer: &'b mut PacketBuffer,
    now: Time,
    payload_len: u32,
    inner: D,
}

impl<D: Dma> Dma for BufferedTarget<'_, D> {
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        self.inner.place(offset, target)
    }

    fn has_ipv4_header(&self) -> bool {
        self.inner.has_ipv4_header()
    }

    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault> {
        self.inner.store(local, value)
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.inner.compare_swap(local, compare, swap)
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        self.inner.fetch_add(local, add)
    }

    fn keep(&mut self, handle: u64) {
        self.buffer.keep(self.now, handle, self.payload_len);
        self.inner.keep(handle);
    }

    fn place_kept(&mut self, handle: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        if let Some(kept) = self.buffer.kept.get_mut(&handle) {
            kept.is_placed = true;
        }
        self.inner.place_kept(handle, offset, target)
    }

    fn release(&mut self, handle: u64) {
        self.buffer.release(self.now, handle);
        self.inner.release(handle);
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::{BitRate, Duration};
    use rnic_engine::NoDma;

    use super::*;
    use crate::plan::DramPlan;

    const SEGMENT: Segment = Segment { local: 0, len: 1_000 };

    fn ns(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    /// 2000 bytes on the chip, and DRAM of one byte per nanosecond.
    fn buffer(has_dram: bool) -> PacketBuffer {
        let dram = DramPlan { bytes: 1 << 20, rate: BitRate::gbps(8), latency: Duration::from_ns(100) };
        PacketBuffer::new(&PacketBufferPlan { chip_bytes: 2_000, dram: has_dram.then_some(dram) })
    }

    fn keep(buffer: &mut PacketBuffer, at: u64, handles: core::ops::Range<u64>) {
        handles.for_each(|handle| buffer.target(ns(at), 1_000, NoDma).keep(handle));
    }

    fn deliver(buffer: &mut PacketBuffer, at: u64, handle: u64) {
        let mut target = buffer.target(ns(at), 1_000, NoDma);
        target.place_kept(handle, 0, SEGMENT).expect("nothing is written");
        target.release(handle);
    }

    /// F-37: what does not fit on the chip is written to DRAM and read from it, one transfer after the other.
    #[test]
    fn f37_payload_that_overflows_is_written_to_dram_and_read_from_it() {
        let mut buffer = buffer(true);
        keep(&mut buffer, 0, 0..4);
        assert_eq!((buffer.chip_bytes, buffer.dram_bytes), (2_000, 2_000));
        // The writes end at 1000 and 2000 ns, the reads at 3000 and 4000 ns, and 100 ns later is the data here.
        (0..4).for_each(|handle| deliver(&mut buffer, 500, handle));
        assert_eq!((buffer.chip_bytes, buffer.dram_bytes), (0, 2_000), "payload occupies DRAM until it has been read");
        let backlog = [500, 3_099, 3_100, 4_099, 4_100].map(|at| buffer.backlog(ns(at)));
        assert_eq!(backlog, [2_000, 2_000, 1_000, 1_000, 0]);
        assert_eq!(buffer.dram_bytes, 0);
        let stats = BufferStats { kept: 4, kept_in_dram: 2, chip_bytes_max: 2_000, dram_bytes_max: 2_000, refused: 0 };
        assert_eq!(buffer.stats, stats);
    }

    /// F-37: payload of a connection that has ended is not read; without DRAM everything is on the chip.
    #[test]
    fn f37_payload_that_is_not_delivered_costs_no_read() {
        let mut with_dram = buffer(true);
        keep(&mut with_dram, 0, 0..3);
        (0..3).for_each(|handle| with_dram.target(ns(10), 0, NoDma).release(handle));
        assert_eq!((with_dram.chip_bytes, with_dram.dram_bytes, with_dram.backlog(ns(10))), (0, 0, 0));
        let mut without = buffer(false);
        keep(&mut without, 0, 0..3);
        assert_eq!((without.chip_bytes, without.dram_bytes), (3_000, 0));
        deliver(&mut without, 10, 1);
        assert_eq!((without.chip_bytes, without.backlog(ns(10))), (2_000, 0));
    }
}
