//! FaSR's shared pool: selective retransmission for all queue pairs of a NIC from one small memory.
//!
//! Source: FaSR (2025) sections III-B (fast and slow path), III-C (the two levels), III-D (compression, exhaustion,
//! head and tail, overflow). Mechanisms.
//!
//! * Level 1: *units*. A queue pair that recovers holds one, by a pointer that is null otherwise; in it a [`Lane`] for
//!   each bitmap that IRN would keep for the queue pair. A map says which units are taken.
//! * Level 2: *blocks* of a few bits in singly linked lists, with head and tail in the lane: early packets append at
//!   the tail, repaired holes release from the head, so neither walks the list. A map says which blocks are taken.
//! * *Fast path*: one packet is missing, so the highest packet that is here says all; the lane has no block.
//! * *Compression*: packets right behind the hole that came in one after the other are one number.
//!
//! Deviations and choices, where the paper is silent:
//!
//! * a lane keeps whole sequence numbers, where hardware keeps 24 bits of them; what the paper's layout costs in bits
//!   is the footprint's business;
//! * two of the paper's five bitmaps are lanes. Answers to Reads are packets of the responder's own sequence space
//!   so that those of responses are never used. Which early packets act when their turn has come (the second
//!   half of IRN's 2-bitmap) stands in the host's memory beside the data that waits there, on either path: on
//!   the fast path there would be no bitmap for it;
//! * room is asked for before a packet is placed: a packet that finds none is dropped whole, and the queue pair goes
//!   back to go-back-N until this recovery is over; what is recorded stays (section III-D). Without a unit it is the
//!   gap itself that must close;
//! * a sender that finds no block goes on without a record of what was selectively acknowledged; it then sends more
//!   again than it must.

mod bits;
mod lane;

use rnic_policy::PoolShape;

use crate::stats::PoolStats;
pub(crate) use bits::{Bits, RxClass};
pub(crate) use lane::Lost;
use lane::{Blocks, Lane, Slots};

/// Which of a queue pair's bitmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LaneId {
    /// Requests that have arrived early.
    RequestsIn,
    /// Requests that have been selectively acknowledged.
    RequestsOut,
}

/// Lanes of a unit.
pub(crate) const LANES: usize = 2;

/// A queue pair's way to its unit: null when nothing is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SrPointer(u16);

impl SrPointer {
    /// To no pool.
    pub(crate) const NULL: Self = Self(POOLS_MAX << UNIT_BITS);

    /// Whether a unit is held.
    #[inline]
    pub(crate) fn is_held(self) -> bool {
        self.0 & UNITS_MAX != 0
    }

    /// The unit that is held.
    fn unit(self) -> Option<usize> {
        usize::from(self.0 & UNITS_MAX).checked_sub(1)
    }

    fn point(&mut self, unit: Option<u16>) {
        self.0 = self.0 & !UNITS_MAX | unit.map_or(0, |unit| unit + 1);
    }

    fn pool(self) -> Option<usize> {
        let pool = self.0 >> UNIT_BITS;
        (pool < POOLS_MAX).then_some(usize::from(pool))
    }
}

/// Bits of a pointer that name a unit, counted from 1; the paper's pool of 20 needs five of its byte.
const UNIT_BITS: u32 = 12;
const UNITS_MAX: u16 = (1 << UNIT_BITS) - 1;

/// Shapes of pools in one engine: the others of the sixteen values say that there is none.
const POOLS_MAX: u16 = 15;

const _: () = assert!(rnic_policy::profile::POOL_UNITS_MAX <= UNITS_MAX as u32);

/// The pools of an engine: one, unless transports of different shapes share it.
#[derive(Debug, Default)]
pub(crate) struct Pools(Vec<Pool>);

impl Pools {
    /// The bits of one window: in the pool when there is a shape, else in rings of its own.
    pub(crate) fn bits<'a>(&'a mut self, shape: Option<PoolShape>, at: &'a mut SrPointer, lane: LaneId) -> Bits<'a> {
        let pool = shape.map(|shape| {
            let index = at.pool().unwrap_or_else(|| self.find(shape, at));
            &mut self.0[index]
        });
        Bits { pool, at, lane: lane as usize }
    }

    #[cold]
    fn find(&mut self, shape: PoolShape, at: &mut SrPointer) -> usize {
        let known = self.0.iter().position(|pool| pool.shape == shape);
        let index = known.unwrap_or_else(|| {
            self.0.push(Pool::new(shape));
            self.0.len() - 1
        });
        let few = u16::try_from(index).ok().filter(|index| *index < POOLS_MAX);
        *at = SrPointer(few.expect("an engine has few shapes of pools") << UNIT_BITS);
        index
    }

    /// The queue pair forgets everything: its unit and blocks are free.
    #[cold]
    pub(crate) fn release(&mut self, at: &mut SrPointer) {
        if let Some(pool) = at.pool().filter(|_| at.is_held()) {
            let pool = &mut self.0[pool];
            for lane in 0..LANES {
                pool.close(at, lane);
            }
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.0.iter().fold(PoolStats::default(), |sum, pool| sum.plus(&pool.stats()))
    }
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    shape: PoolShape,
    units: Vec<[Lane; LANES]>,
    units_taken: Slots,
    blocks: Blocks,
    counted: PoolStats,
}

impl Pool {
    fn new(shape: PoolShape) -> Self {
        Self {
            shape,
            units: vec![[Lane::CLOSED; LANES]; shape.units as usize],
            units_taken: Slots::new(shape.units),
            blocks: Blocks::new(shape.blocks, shape.block_bits),
            counted: PoolStats::default(),
        }
    }

    fn stats(&self) -> PoolStats {
        PoolStats {
            units_in_use: self.units_taken.taken().into(),
            units_in_use_max: self.units_taken.taken_max().into(),
            blocks_in_use: self.blocks.taken.taken().into(),
            blocks_in_use_max: self.blocks.taken.taken_max().into(),
            ..self.counted
        }
    }

    /// The unit that `at` points to; a new one, if it points to none.
    fn unit(&mut self, at: &mut SrPointer) -> &mut [Lane; LANES] {
        if !at.is_held() {
            at.point(Some(self.units_taken.take().expect("the caller has looked for room")));
        }
        &mut self.units[at.unit().expect("just taken")]
    }

    /// Ends a recovery; the last one of a queue pair frees its unit.
    fn close(&mut self, at: &mut SrPointer, lane: usize) {
        let Some(unit) = at.unit() else { return };
        let lanes = &mut self.units[unit];
        lanes[lane].release_blocks(&mut self.blocks);
        lanes[lane] = Lane::CLOSED;
        if !lanes.iter().any(Lane::is_open) {
            self.units_taken.free(unit as u16);
            at.point(None);
        }
    }
}

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
