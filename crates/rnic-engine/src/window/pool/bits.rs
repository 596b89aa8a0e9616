//! The bits of one window, wherever they are: what a window asks of its store.

use rnic_base::{Seq, SeqRange};

use super::lane::{Blocks, Lane, Lost};
use super::{Pool, SrPointer};
use crate::stats::PoolStats;

/// How an early packet stands to the bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RxClass {
    /// Higher than all that is here.
    New,
    /// Here already.
    Kept,
    /// Between the hole and the highest packet, where only what is sent again can come from.
    Between,
    /// The queue pair has fallen back to go-back-N: nothing early is kept.
    Refused,
}

/// The bits of one window. Without a pool they are in rings of the window's own, and this is empty.
#[derive(Debug)]
pub(crate) struct Bits<'a> {
    pub(super) pool: Option<&'a mut Pool>,
    pub(super) at: &'a mut SrPointer,
    pub(super) lane: usize,
}

impl<'a> Bits<'a> {
    /// Those of a window that never lies in a pool: IRN's responses.
    pub(crate) fn in_rings(at: &'a mut SrPointer) -> Self {
        Self { pool: None, at, lane: 0 }
    }
}

impl Bits<'_> {
    /// Whether they are in a pool.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pool.is_some()
    }

    fn open_lane(&self) -> Option<(&Lane, &Blocks)> {
        let pool = self.pool.as_deref()?;
        let lane = &pool.units[self.at.unit()?][self.lane];
        lane.is_open().then_some((lane, &pool.blocks))
    }

    fn working_lane(&mut self) -> Option<(&mut Lane, &mut Blocks, &mut PoolStats)> {
        let unit = self.at.unit()?;
        let Pool { units, blocks, counted, .. } = self.pool.as_deref_mut()?;
        let lane = &mut units[unit][self.lane];
        lane.is_open().then_some((lane, blocks, counted))
    }

    /// What the working lane is made from when there is none.
    fn open(&mut self, hole: Seq) {
        if self.open_lane().is_none()
            && let Some(pool) = self.pool.as_deref_mut()
        {
            let lane = self.lane;
            pool.unit(self.at)[lane].open(hole);
            pool.counted.recoveries += 1;
        }
    }

    fn close(&mut self) {
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.close(self.at, self.lane);
        }
    }

    /// Whether a unit is here or to be had.
    fn can_open(&self) -> bool {
        self.at.is_held() || self.pool.as_deref().is_none_or(|pool| pool.units_taken.free_count() > 0)
    }

    /// Packets that the receiver misses now.
    pub(crate) fn lost(&self) -> Lost {
        self.open_lane().map_or(Lost::default(), |(lane, _)| lane.lost)
    }

    /// How `seq`, behind the expected packet, stands to what is here. Looks into no block.
    pub(crate) fn standing(&self, seq: Seq) -> RxClass {
        match self.open_lane() {
            Some((lane, _)) if seq > lane.high && lane.fallen_back => RxClass::Refused,
            Some((lane, _)) if seq > lane.high => RxClass::New,
            Some((lane, _)) if seq == lane.high || lane.is_fast() => RxClass::Kept,
            Some(_) => RxClass::Between,
            None => RxClass::New,
        }
    }

    /// Whether there is room to remember that `seq` is here although `expected` is not.
    pub(crate) fn has_room(&self, expected: Seq, seq: Seq) -> bool {
        let Some(pool) = self.pool.as_deref() else { return true };
        let needed = match self.open_lane() {
            Some((lane, blocks)) => lane.blocks_for(seq, blocks.bits),
            None if !self.can_open() => return false,
            None => Lane::blocks_to_open(expected, seq, pool.blocks.bits),
        };
        needed <= u64::from(pool.blocks.taken.free_count())
    }

    /// There was no room: go-back-N until this recovery is over.
    pub(crate) fn fall_back(&mut self) {
        if let Some((lane, _, _)) = self.working_lane() {
            lane.fallen_back = true;
        }
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.counted.fallbacks += 1;
        }
    }

    /// A packet was dropped because it came between the hole and the highest one.
    pub(crate) fn count_misplaced(&mut self) {
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.counted.misplaced += 1;
        }
    }

    /// Remembers that `seq` is here although `expected` is not. Room has been found.
    pub(crate) fn keep(&mut self, expected: Seq, seq: Seq) {
        self.open(expected);
        let Some((lane, blocks, counted)) = self.working_lane() else { return };
        if seq > lane.high {
            let overflowed = lane.lost.overflow;
            let fast = lane.extend(seq, blocks);
            *(if fast { &mut counted.fast_path } else { &mut counted.slow_path }) += 1;
            counted.overflows += u64::from(lane.lost.overflow && !overflowed);
            return;
        }
        // Never at FaSR's receiver, which drops such packets.
        let access = lane.set(seq, blocks);
        counted.traversals += u64::from(access.walked);
        if access.fresh {
            lane.count_repair();
            if lane.lost.is_one() && lane.speed_up(blocks) {
                counted.slow_to_fast += 1;
            }
        }
    }

    /// Whether `seq` is here. Counted as an access to its block.
    pub(crate) fn test(&self, seq: Seq) -> bool {
        self.open_lane().is_some_and(|(lane, blocks)| lane.test(seq, blocks))
    }

    /// The packet that was missing has come, and `expected` is the next one.
    pub(crate) fn repaired(&mut self, expected: Seq) {
        if let Some((lane, _, counted)) = self.working_lane() {
            *(if lane.is_fast() { &mut counted.fast_path } else { &mut counted.slow_path }) += 1;
            lane.count_repair();
            self.passed(expected);
        }
    }

    /// Everything before `expected` is dealt with: its blocks go back, and with the last of them the unit.
    pub(crate) fn passed(&mut self, expected: Seq) {
        let Some((lane, blocks, counted)) = self.working_lane() else { return };
        if expected > lane.high {
            let last = counted.losses_per_recovery.len() - 1;
            counted.losses_per_recovery[(lane.missed as usize).min(last)] += 1;
            counted.recoveries_without_blocks += u64::from(!lane.was_slow);
            return self.close();
        }
        lane.release_before(expected, blocks);
        if !lane.test(expected, blocks) {
            lane.move_hole(expected);
            if lane.lost.is_one() && lane.speed_up(blocks) {
                counted.slow_to_fast += 1;
            }
        }
    }

    /// How many packets from `from` on are here in one run.
    pub(crate) fn run(&mut self, from: Seq) -> u64 {
        let Some((lane, blocks, counted)) = self.working_lane() else { return 0 };
        let (run, visited) = lane.run(from, blocks);
        counted.blocks_visited += visited;
        run
    }

    /// At a sender whose oldest packet is `una`: `seq` has been selectively acknowledged by a receiver that misses
    /// `lost`. Answers whether the queue pair has a unit to recover selectively with.
    pub(crate) fn note_selective(&mut self, una: Seq, seq: Seq, lost: Lost) -> bool {
        if !self.can_open() {
            if let Some(pool) = self.pool.as_deref_mut() {
                pool.counted.fallbacks += 1;
            }
            return false;
        }
        self.open(una);
        let Some((lane, blocks, counted)) = self.working_lane() else { return false };
        lane.move_hole(una);
        if seq <= lane.high {
            // An older one: it says nothing of what came later.
            counted.traversals += u64::from(!lost.is_one() && lane.set(seq, blocks).walked);
        } else if lost.is_one() {
            lane.all_but_hole_up_to(seq, blocks);
        } else if !lane.note_higher(seq, blocks) {
            counted.unrecorded += 1;
        }
        true
    }

    /// At a sender: everything before `una` is acknowledged.
    pub(crate) fn acknowledged(&mut self, una: Seq) {
        let Some((lane, blocks, _)) = self.working_lane() else { return };
        if una > lane.high {
            return self.close();
        }
        lane.release_before(una, blocks);
        lane.move_hole(una);
    }

    /// At a sender: what was selectively acknowledged does not count.
    pub(crate) fn forget(&mut self) {
        self.close();
    }

    /// At a sender: calls `visit` with each packet of `range` that no bit says has arrived. Where there is no bitmap
    /// there is no bit: the fast path sends again what it is told to.
    pub(crate) fn each_unacknowledged(&self, una: Seq, range: SeqRange, mut visit: impl FnMut(Seq)) {
        if let Some((lane, blocks)) = self.open_lane().filter(|(lane, _)| !lane.is_fast()) {
            if range.contains(una) {
                visit(una);
            }
            return lane.each_unnoted(range.start.max(una + 1), range.end, blocks, visit);
        }
        let mut seq = range.start;
        while seq < range.end {
            visit(seq);
            seq += 1;
        }
    }
}
