//! FaSR's shared pool: selective retransmission for all queue pairs of a NIC from one small memory.
//!
//! Source: FaSR (2025) sections III-B (fast and slow path), III-C (the two levels), III-D (compression, exhaustion,
//! head and tail, overflow). Mechanisms.
//!
//! * Level 1: *units*. A queue pair in recovery holds one, through a pointer that is null otherwise; it contains a
//!   [`Lane`] for each bitmap that IRN would keep for the queue pair. A map records which units are in use.
//! * Level 2: *blocks* of a few bits in singly linked lists, with head and tail in the lane: out-of-order packets
//!   append blocks at the tail, and recovered gaps release them from the head, so neither operation walks the list. A
//!   map records which blocks are in use.
//! * *Fast path*: one packet is missing, so the highest received packet describes the complete state; the lane has no
//!   block.
//! * *Compression*: packets directly behind the gap that arrived consecutively are stored as one number.
//!
//! Deviations and choices, where the paper does not specify:
//!
//! * a lane stores full sequence numbers, of which hardware stores 24 bits; the cost of the paper's layout in bits is
//!   computed by the footprint;
//! * two of the paper's five bitmaps are lanes. Responses to Reads are request packets in the responder's sequence
//!   space (FaSR mechanism R-20), so the bitmaps for responses are never used. The record of which out-of-order packets
//!   require an action once they are in order (the second half of IRN's 2-bitmap) is kept in host memory, beside the
//!   data that waits there (FaSR mechanism R-26), on both paths: on the fast path there would be no bitmap for it;
//! * free space is checked before a packet is placed: a packet for which there is none is dropped completely, and the
//!   queue pair falls back to go-back-N until this recovery is over; recorded state is kept (section III-D). If no
//!   unit was free, the fallback ends when the gap itself is closed;
//! * a sender that finds no free block continues without a record of what was selectively acknowledged; it then
//!   retransmits more than necessary.

mod bits;
mod lane;

use rnic_policy::PoolShape;

use crate::stats::PoolStats;
pub(crate) use bits::{Bits, RxClass};
pub(crate) use lane::Lost;
use lane::{Blocks, Lane, Slots};

/// Selects one of a queue pair's bitmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LaneId {
    /// Requests that have arrived out of order.
    RequestsIn,
    /// Requests that have been selectively acknowledged.
    RequestsOut,
}

/// Number of bitmaps (lanes) in the recovery state of a queue pair (unit).
pub(crate) const LANES: usize = 2;

/// A queue pair's pointer to its unit (its recovery state in the pool): null while no packet is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SrPointer(u16);

impl SrPointer {
    /// Pointer to no pool.
    pub(crate) const NULL: Self = Self(POOLS_MAX << UNIT_BITS);

    /// Returns whether the queue pair holds recovery state (a unit) in the pool.
    #[inline]
    pub(crate) fn is_held(self) -> bool {
        self.0 & UNITS_MAX != 0
    }

    /// Returns the index of the queue pair's recovery state (unit) in the pool, if it holds one.
    fn unit(self) -> Option<usize> {
        usize::from(self.0 & UNITS_MAX).checked_sub(1)
    }

    fn set_unit(&mut self, unit: Option<u16>) {
        self.0 = self.0 & !UNITS_MAX | unit.map_or(0, |unit| unit + 1);
    }

    fn pool(self) -> Option<usize> {
        let pool = self.0 >> UNIT_BITS;
        (pool < POOLS_MAX).then_some(usize::from(pool))
    }
}

/// Number of pointer bits that identify a unit (recovery state of a queue pair), counted from 1; the paper's pool of 20
/// units needs five of its eight bits.
const UNIT_BITS: u32 = 12;
const UNITS_MAX: u16 = (1 << UNIT_BITS) - 1;

/// Maximum number of pool shapes in one engine: the sixteenth value means no pool.
const POOLS_MAX: u16 = 15;

const _: () = assert!(rnic_policy::profile::POOL_UNITS_MAX <= UNITS_MAX as u32);

/// The pools of an engine: one, unless transports with different pool shapes share the engine.
#[derive(Debug, Default)]
pub(crate) struct Pools(Vec<Pool>);

impl Pools {
    /// Returns the bits of one window: in the pool when there is a shape, otherwise in the window's own rings.
    pub(crate) fn bits<'a>(
        &'a mut self,
        shape: Option<PoolShape>,
        pointer: &'a mut SrPointer,
        lane: LaneId,
    ) -> Bits<'a> {
        let pool = shape.map(|shape| {
            let index = pointer.pool().unwrap_or_else(|| self.find(shape, pointer));
            &mut self.0[index]
        });
        Bits { pool, pointer, lane: lane as usize }
    }

    #[cold]
    fn find(&mut self, shape: PoolShape, pointer: &mut SrPointer) -> usize {
        let existing = self.0.iter().position(|pool| pool.shape == shape);
        let index = existing.unwrap_or_else(|| {
            self.0.push(Pool::new(shape));
            self.0.len() - 1
        });
        let small_index = u16::try_from(index).ok().filter(|index| *index < POOLS_MAX);
        *pointer = SrPointer(small_index.expect("there are fewer pool sizes than POOLS_MAX") << UNIT_BITS);
        index
    }

    /// Discards all recovery state of the queue pair, and frees its unit and blocks in the pool.
    #[cold]
    pub(crate) fn release(&mut self, pointer: &mut SrPointer) {
        if let Some(pool) = pointer.pool().filter(|_| pointer.is_held()) {
            let pool = &mut self.0[pool];
            for lane in 0..LANES {
                pool.close(pointer, lane);
            }
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.0.iter().fold(PoolStats::default(), |sum, pool| sum.plus(&pool.stats()))
    }
}

/// One pool: its units (recovery states of queue pairs, level 1), its blocks of bits (level 2) and their counters.
#[derive(Debug)]
pub(crate) struct Pool {
    shape: PoolShape,
    units: Vec<[Lane; LANES]>,
    units_taken: Slots,
    blocks: Blocks,
    counters: PoolStats,
}

impl Pool {
    fn new(shape: PoolShape) -> Self {
        Self {
            shape,
            units: vec![[Lane::CLOSED; LANES]; shape.units as usize],
            units_taken: Slots::new(shape.units),
            blocks: Blocks::new(shape.blocks, shape.block_bits),
            counters: PoolStats::default(),
        }
    }

    fn stats(&self) -> PoolStats {
        PoolStats {
            units_in_use: self.units_taken.taken().into(),
            units_in_use_max: self.units_taken.taken_max().into(),
            blocks_in_use: self.blocks.taken.taken().into(),
            blocks_in_use_max: self.blocks.taken.taken_max().into(),
            ..self.counters
        }
    }

    /// Returns the unit (recovery state of a queue pair) that `pointer` points to; allocates a new one if the pointer
    /// is null.
    fn unit(&mut self, pointer: &mut SrPointer) -> &mut [Lane; LANES] {
        if !pointer.is_held() {
            pointer.set_unit(Some(self.units_taken.take().expect("the caller has checked for free space")));
        }
        &mut self.units[pointer.unit().expect("a unit is held")]
    }

    /// Ends a recovery, which uses one bitmap (lane) of a queue pair's unit. The unit is freed with its last recovery.
    fn close(&mut self, pointer: &mut SrPointer, lane: usize) {
        let Some(unit) = pointer.unit() else { return };
        let lanes = &mut self.units[unit];
        lanes[lane].release_blocks(&mut self.blocks);
        lanes[lane] = Lane::CLOSED;
        if !lanes.iter().any(Lane::is_open) {
            self.units_taken.free(unit as u16);
            pointer.set_unit(None);
        }
    }
}

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
