//! The bits of one window, independent of where they are stored: the operations that a window requires of its store.

use rnic_base::{Seq, SeqRange};

use super::lane::{Blocks, Lane, Lost};
use super::{Pool, SrPointer};
use crate::stats::PoolStats;

/// Relation of an out-of-order packet to the recorded packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RxClass {
    /// Higher than all received packets.
    New,
    /// Received already.
    Kept,
    /// Between the gap and the highest received packet, where only a retransmission can be.
    Between,
    /// The queue pair has fallen back to go-back-N: no out-of-order packets are kept.
    Refused,
}

/// The bits of one window. Without a pool they are in the window's own rings, and this holds none.
#[derive(Debug)]
pub(crate) struct Bits<'a> {
    pub(super) pool: Option<&'a mut Pool>,
    pub(super) at: &'a mut SrPointer,
    pub(super) lane: usize,
}

impl<'a> Bits<'a> {
    /// Returns the bits of a window that is never in a pool: IRN's responses.
    pub(crate) fn in_rings(at: &'a mut SrPointer) -> Self {
        Self { pool: None, at, lane: 0 }
    }
}

impl Bits<'_> {
    /// Returns whether the bits are in a pool.
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

    /// Opens the working lane if there is none; `hole` is the missing packet.
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

    /// Returns whether a unit is held or free.
    fn can_open(&self) -> bool {
        self.at.is_held() || self.pool.as_deref().is_none_or(|pool| pool.units_taken.free_count() > 0)
    }

    /// Returns the packets that the receiver currently misses.
    pub(crate) fn lost(&self) -> Lost {
        self.open_lane().map_or(Lost::default(), |(lane, _)| lane.lost)
    }

    /// Returns the relation of `seq`, which is later than the expected packet, to the received packets. Accesses no
    /// block.
    pub(crate) fn standing(&self, seq: Seq) -> RxClass {
        match self.open_lane() {
            Some((lane, _)) if seq > lane.high && lane.fallen_back => RxClass::Refused,
            Some((lane, _)) if seq > lane.high => RxClass::New,
            Some((lane, _)) if seq == lane.high || lane.is_fast() => RxClass::Kept,
            Some(_) => RxClass::Between,
            None => RxClass::New,
        }
    }

    /// Returns whether there is free space to record that `seq` was received although `expected` is missing.
    pub(crate) fn has_room(&self, expected: Seq, seq: Seq) -> bool {
        let Some(pool) = self.pool.as_deref() else { return true };
        let needed = match self.open_lane() {
            Some((lane, blocks)) => lane.blocks_for(seq, blocks.bits),
            None if !self.can_open() => return false,
            None => Lane::blocks_to_open(expected, seq, pool.blocks.bits),
        };
        needed <= u64::from(pool.blocks.taken.free_count())
    }

    /// Falls back to go-back-N until this recovery is over, because there was no free space.
    pub(crate) fn fall_back(&mut self) {
        if let Some((lane, _, _)) = self.working_lane() {
            lane.fallen_back = true;
        }
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.counted.fallbacks += 1;
        }
    }

    /// Counts a packet that was dropped because it is between the gap and the highest received packet.
    pub(crate) fn count_misplaced(&mut self) {
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.counted.misplaced += 1;
        }
    }

    /// Records that `seq` was received although `expected` is missing. The caller has checked that there is free space.
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
        // Not reached at FaSR's receiver, which drops such packets.
        let access = lane.set(seq, blocks);
        counted.traversals += u64::from(access.walked);
        if access.fresh {
            lane.count_repair();
            if lane.lost.is_one() && lane.speed_up(blocks) {
                counted.slow_to_fast += 1;
            }
        }
    }

    /// Returns whether `seq` was received. Counted as an access to its block.
    pub(crate) fn test(&self, seq: Seq) -> bool {
        self.open_lane().is_some_and(|(lane, blocks)| lane.test(seq, blocks))
    }

    /// Records that the missing packet was received, and that `expected` is the next one.
    pub(crate) fn repaired(&mut self, expected: Seq) {
        if let Some((lane, _, counted)) = self.working_lane() {
            *(if lane.is_fast() { &mut counted.fast_path } else { &mut counted.slow_path }) += 1;
            lane.count_repair();
            self.passed(expected);
        }
    }

    /// Records that everything before `expected` has been processed: frees its blocks, and the unit with the last of
    /// them.
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

    /// Returns the number of consecutive packets received from `from` on.
    pub(crate) fn run(&mut self, from: Seq) -> u64 {
        let Some((lane, blocks, counted)) = self.working_lane() else { return 0 };
        let (run, visited) = lane.run(from, blocks);
        counted.blocks_visited += visited;
        run
    }

    /// At a sender whose oldest outstanding packet is `una`: records that `seq` was selectively acknowledged by a
    /// receiver that misses `lost`. Returns whether the queue pair has a unit for selective recovery.
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
            // An older acknowledgement: it carries no information about packets received later.
            counted.traversals += u64::from(!lost.is_one() && lane.set(seq, blocks).walked);
        } else if lost.is_one() {
            lane.all_but_hole_up_to(seq, blocks);
        } else if !lane.note_higher(seq, blocks) {
            counted.unrecorded += 1;
        }
        true
    }

    /// At a sender: records that everything before `una` is acknowledged.
    pub(crate) fn acknowledged(&mut self, una: Seq) {
        let Some((lane, blocks, _)) = self.working_lane() else { return };
        if una > lane.high {
            return self.close();
        }
        lane.release_before(una, blocks);
        lane.move_hole(una);
    }

    /// At a sender: discards the record of selective acknowledgements.
    pub(crate) fn forget(&mut self) {
        self.close();
    }

    /// At a sender: calls `visit` with each packet of `range` that has no bit set to mark it as received. Without a
    /// bitmap no bit is set: the fast path retransmits everything that was requested.
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
