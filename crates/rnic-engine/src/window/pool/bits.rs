//! The bits of one window, independent of where they are stored: the operations that a window needs.

use rnic_base::{Seq, SeqRange};

use super::lane::{Blocks, Lane, Lost};
use super::{Pool, SrPointer};
use crate::stats::PoolStats;

/// Relation of an out-of-order packet to the recorded packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RxClass {
    /// Higher than all received packets.
    New,
    /// Received and recorded already.
    Kept,
    /// Between the gap and the highest received packet, where only a retransmission can be.
    Between,
    /// The queue pair has fallen back to go-back-N: no out-of-order packets are kept.
    Refused,
}

/// The bits of one window. If the transport has no pool, the bits are in the window's own rings, and this type stores
/// none.
#[derive(Debug)]
pub(crate) struct Bits<'a> {
    pub(super) pool: Option<&'a mut Pool>,
    pub(super) pointer: &'a mut SrPointer,
    pub(super) lane: usize,
}

impl<'a> Bits<'a> {
    /// Returns the bits of a window that is never in a pool: IRN's responses.
    pub(crate) fn in_rings(pointer: &'a mut SrPointer) -> Self {
        Self { pool: None, pointer, lane: 0 }
    }
}

impl Bits<'_> {
    /// Returns whether the bits are in a pool.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pool.is_some()
    }

    fn open_lane(&self) -> Option<(&Lane, &Blocks)> {
        let pool = self.pool.as_deref()?;
        let lane = &pool.units[self.pointer.unit()?][self.lane];
        lane.is_open().then_some((lane, &pool.blocks))
    }

    fn working_lane(&mut self) -> Option<(&mut Lane, &mut Blocks, &mut PoolStats)> {
        let unit = self.pointer.unit()?;
        let Pool { units, blocks, counters, .. } = self.pool.as_deref_mut()?;
        let lane = &mut units[unit][self.lane];
        lane.is_open().then_some((lane, blocks, counters))
    }

    /// Starts the bitmap (lane) of this window in the pool if it has not been started; `hole` is the missing packet.
    fn open(&mut self, hole: Seq) {
        if self.open_lane().is_none()
            && let Some(pool) = self.pool.as_deref_mut()
        {
            let lane = self.lane;
            pool.unit(self.pointer)[lane].open(hole);
            pool.counters.recoveries += 1;
        }
    }

    fn close(&mut self) {
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.close(self.pointer, self.lane);
        }
    }

    /// Returns whether the queue pair holds recovery state in the pool (a unit), or a unit is free.
    fn can_open(&self) -> bool {
        self.pointer.is_held() || self.pool.as_deref().is_none_or(|pool| pool.units_taken.free_count() > 0)
    }

    /// Returns the packets that the receiver currently misses.
    pub(crate) fn lost(&self) -> Lost {
        self.open_lane().map_or(Lost::default(), |(lane, _)| lane.lost)
    }

    /// Returns the relation of `seq`, which is later than the expected packet, to the received packets. Accesses no
    /// block.
    pub(crate) fn class_of(&self, seq: Seq) -> RxClass {
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
        let needed_blocks = match self.open_lane() {
            Some((lane, blocks)) => lane.blocks_for(seq, blocks.bits),
            None if !self.can_open() => return false,
            None => Lane::blocks_to_open(expected, seq, pool.blocks.bits),
        };
        needed_blocks <= u64::from(pool.blocks.taken.free_count())
    }

    /// Falls back to go-back-N until this recovery is over, because there was no free space (FaSR mechanism R-14).
    pub(crate) fn fall_back(&mut self) {
        if let Some((lane, _, _)) = self.working_lane() {
            lane.fallen_back = true;
        }
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.counters.fallbacks += 1;
        }
    }

    /// Counts a packet that was dropped because its number is above the tracked gap and below the highest received
    /// packet, where no bitmap can record it.
    pub(crate) fn count_misplaced(&mut self) {
        if let Some(pool) = self.pool.as_deref_mut() {
            pool.counters.misplaced += 1;
        }
    }

    /// Records that `seq` was received although `expected` is missing. The caller has checked that there is free space.
    pub(crate) fn keep(&mut self, expected: Seq, seq: Seq) {
        self.open(expected);
        let Some((lane, blocks, counters)) = self.working_lane() else { return };
        if seq > lane.high {
            let had_overflow = lane.lost.overflow;
            let is_fast_path = lane.extend(seq, blocks);
            *(if is_fast_path { &mut counters.fast_path } else { &mut counters.slow_path }) += 1;
            counters.overflows += u64::from(lane.lost.overflow && !had_overflow);
            return;
        }
        // A FaSR receiver never reaches this code, because it drops such packets.
        let access = lane.set(seq, blocks);
        counters.traversals += u64::from(access.walked);
        if access.fresh {
            lane.count_repair();
            if lane.lost.is_one() && lane.enter_fast_path(blocks) {
                counters.slow_to_fast += 1;
            }
        }
    }

    /// Returns whether `seq` was received. This is counted as an access to its block.
    pub(crate) fn test(&self, seq: Seq) -> bool {
        self.open_lane().is_some_and(|(lane, blocks)| lane.test(seq, blocks))
    }

    /// Records that the missing packet was received, and that `expected` is now the next one.
    pub(crate) fn repaired(&mut self, expected: Seq) {
        if let Some((lane, _, counters)) = self.working_lane() {
            *(if lane.is_fast() { &mut counters.fast_path } else { &mut counters.slow_path }) += 1;
            lane.count_repair();
            self.passed(expected);
        }
    }

    /// Records that all packets before `expected` have been processed: frees their blocks in the pool, and with the
    /// last block the queue pair's unit.
    pub(crate) fn passed(&mut self, expected: Seq) {
        let Some((lane, blocks, counters)) = self.working_lane() else { return };
        if expected > lane.high {
            let last = counters.losses_per_recovery.len() - 1;
            counters.losses_per_recovery[(lane.missed as usize).min(last)] += 1;
            counters.recoveries_without_blocks += u64::from(!lane.was_slow);
            return self.close();
        }
        lane.release_before(expected, blocks);
        if !lane.test(expected, blocks) {
            lane.move_hole(expected);
            if lane.lost.is_one() && lane.enter_fast_path(blocks) {
                counters.slow_to_fast += 1;
            }
        }
    }

    /// Returns the number of consecutive packets received from `from` on.
    pub(crate) fn run(&mut self, from: Seq) -> u64 {
        let Some((lane, blocks, counters)) = self.working_lane() else { return 0 };
        let (run, visited) = lane.run(from, blocks);
        counters.blocks_visited += visited;
        run
    }

    /// At a sender whose oldest outstanding packet is `una`: records that `seq` was selectively acknowledged by a
    /// receiver that misses `lost`. Returns whether the queue pair has recovery state (a unit) in the pool.
    pub(crate) fn note_selective(&mut self, una: Seq, seq: Seq, lost: Lost) -> bool {
        if !self.can_open() {
            if let Some(pool) = self.pool.as_deref_mut() {
                pool.counters.fallbacks += 1;
            }
            return false;
        }
        self.open(una);
        let Some((lane, blocks, counters)) = self.working_lane() else { return false };
        lane.move_hole(una);
        if seq <= lane.high {
            // This acknowledgement is older than others received: it carries no information about later packets.
            counters.traversals += u64::from(!lost.is_one() && lane.set(seq, blocks).walked);
        } else if lost.is_one() {
            lane.set_all_but_hole(seq, blocks);
        } else if !lane.note_higher(seq, blocks) {
            counters.unrecorded += 1;
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

    /// At a sender: calls `visit` with each packet of `range` that has no bit set to mark it as received. On the fast
    /// path there is no bitmap and so no bit is set: every requested packet is retransmitted.
    pub(crate) fn each_unacknowledged(&self, una: Seq, range: SeqRange, mut visit: impl FnMut(Seq)) {
        if let Some((lane, blocks)) = self.open_lane().filter(|(lane, _)| !lane.is_fast()) {
            if range.contains(una) {
                visit(una);
            }
            return lane.each_unmarked(range.start.max(una + 1), range.end, blocks, visit);
        }
        let mut seq = range.start;
        while seq < range.end {
            visit(seq);
            seq += 1;
        }
    }
}
