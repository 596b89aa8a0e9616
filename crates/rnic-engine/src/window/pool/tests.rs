//! Tests of the pool in isolation: counters, fast and slow path, compression, lists, exhaustion, leaks.

use rnic_base::{Psn, RandomStreams, Seq, SeqRange};

use super::*;

const PAPER: PoolShape = PoolShape::FASR;

struct World {
    pools: Pools,
    shape: PoolShape,
    ends: Vec<SrPointer>,
}

impl World {
    fn new(shape: PoolShape, ends: usize) -> Self {
        Self { pools: Pools::default(), shape, ends: vec![SrPointer::NULL; ends] }
    }

    fn bits(&mut self, end: usize) -> Bits<'_> {
        self.pools.bits(Some(self.shape), &mut self.ends[end], LaneId::RequestsIn)
    }

    /// Records `packets`, received out of order while `expected` is missing.
    fn keep(&mut self, end: usize, expected: u64, packets: impl IntoIterator<Item = u64>) {
        for packet in packets {
            assert!(self.bits(end).has_room(seq(expected), seq(packet)), "no space for {packet}");
            self.bits(end).keep(seq(expected), seq(packet));
        }
    }

    /// Records the arrival of the missing packet `hole`; returns the next missing packet.
    fn repair(&mut self, end: usize, hole: u64) -> u64 {
        let mut bits = self.bits(end);
        bits.repaired(seq(hole + 1));
        let run = bits.run(seq(hole + 1));
        bits.passed(seq(hole + 1 + run));
        hole + 1 + run
    }

    fn lost(&mut self, end: usize) -> (u8, bool) {
        let Lost { count, overflow } = self.bits(end).lost();
        (count, overflow)
    }
}

fn seq(index: u64) -> Seq {
    Seq::start(Psn::new(0xff_fff0)) + index
}

/// lost-cnt grows by PSN - RCV-NXT on the first gap, by the gap to sack-high on later ones, and falls by 1 for
/// each repair.
#[test]
fn r1_lost_cnt_counts_the_missing_packets() {
    let mut world = World::new(PAPER, 1);
    world.keep(0, 5, [7]);
    assert_eq!(world.lost(0), (2, false), "5 and 6 are missing");
    world.keep(0, 5, [8, 10, 11]);
    assert_eq!(world.lost(0), (3, false), "9 is missing too");
    assert_eq!(world.repair(0, 5), 6);
    assert_eq!(world.lost(0), (2, false));
    assert_eq!(world.repair(0, 6), 9);
    assert_eq!(world.lost(0), (1, false));
    assert_eq!(world.repair(0, 9), 12);
    assert_eq!(world.lost(0), (0, false));
    assert!(!world.ends[0].is_held());
}

/// R-1 over random traces: unless it overflows, the counter equals the number of missing packets.
#[test]
fn r1_lost_cnt_equals_the_missing_packets_in_random_traces() {
    let mut random = RandomStreams::new(1).stream("holes");
    let mut world = World::new(PoolShape { units: 1, blocks: 400, block_bits: 10 }, 1);
    let (mut hole, mut received) = (0, vec![]);
    let (mut overflowed, mut compared) = (false, 0);
    for _ in 0..50_000 {
        let high = received.last().copied().unwrap_or(hole);
        if (random.below(4) == 0 || high > hole + 900) && !received.is_empty() {
            let next = world.repair(0, hole);
            let expected_next = (hole + 1..).find(|packet| received.binary_search(packet).is_err());
            assert_eq!(Some(next), expected_next);
            hole = next;
            received.retain(|packet| *packet > hole);
        } else if random.below(2) == 0 || !received.is_empty() {
            let packet = high + 1 + u64::from(random.below(5) == 0);
            world.keep(0, hole, [packet]);
            received.push(packet);
        } else {
            hole += 1;
        }
        let holes = received.last().map_or(0, |high| high - hole + 1 - received.len() as u64);
        overflowed = !received.is_empty() && (overflowed || holes > 7);
        let expected_lost = if overflowed { (7, true) } else { (holes as u8, false) };
        assert_eq!(world.lost(0), expected_lost);
        compared += u64::from(holes > 1 && !overflowed);
    }
    assert!(compared > 1_000, "{compared}");
    assert_eq!(world.pools.stats().traversals, 0, "R-11: a block other than head and tail was read");
}

/// while only one packet is missing, no block is used, however many packets have arrived after it.
#[test]
fn r2_a_single_loss_takes_no_block() {
    let mut world = World::new(PAPER, 1);
    world.keep(0, 3, 4..900);
    assert_eq!(world.repair(0, 3), 900);
    let stats = world.pools.stats();
    assert_eq!((stats.blocks_in_use_max, stats.blocks_visited, stats.slow_path), (0, 0, 0));
    assert_eq!((stats.fast_path, stats.units_in_use_max, stats.units_in_use), (897, 1, 0));
    assert_eq!((stats.recoveries_without_blocks, stats.losses_per_recovery[1]), (1, 1));
}

/// with two packets missing, blocks are used; when only one is still missing, they are freed, and the fast
/// path is used again.
#[test]
fn r3_r4_blocks_are_freed_when_one_packet_is_missing() {
    let mut world = World::new(PAPER, 1);
    world.keep(0, 0, (1..5).chain(6..40));
    let stats = world.pools.stats();
    assert_eq!((stats.blocks_in_use, stats.slow_path, stats.slow_to_fast), (4, 34, 0));
    assert_eq!(world.repair(0, 0), 5);
    let stats = world.pools.stats();
    assert_eq!((stats.blocks_in_use, stats.slow_to_fast), (0, 1));
    world.keep(0, 5, 40..200);
    assert_eq!(world.pools.stats().blocks_in_use, 0, "the lane is not on the fast path");
    assert_eq!(world.repair(0, 5), 200);
    assert_eq!(world.pools.stats().units_in_use, 0);
}

/// on the switch from the fast to the slow path, a long run remains stored as one number and the blocks begin
/// after it; a short run is not compressed.
#[test]
fn r13_with_compression_the_slow_path_starts_with_one_block() {
    for (run, blocks) in [(300, 1), (10, 1), (9, 2), (8, 1), (1_023, 1), (1_024, 1), (1_040, 2)] {
        let mut world = World::new(PAPER, 1);
        world.keep(0, 0, 1..=run);
        assert_eq!(world.pools.stats().blocks_in_use, 0);
        world.keep(0, 0, [run + 2]);
        assert_eq!(world.pools.stats().blocks_in_use, blocks, "after a run of {run}");
        assert_eq!(world.repair(0, 0), run + 1);
        assert_eq!(world.repair(0, run + 1), run + 3);
    }
}

/// with many gaps, blocks are released from the head while others are appended, and the list is never
/// walked.
#[test]
fn r10_r11_head_and_tail_pointers_suffice_without_a_list_walk() {
    let mut world = World::new(PAPER, 1);
    let (mut hole, mut high) = (0, 0);
    for _ in 0..100_000 {
        while high < hole + 100 {
            high += if (high + 1) % 9 == 0 { 2 } else { 1 };
            world.keep(0, hole, [high]);
        }
        hole = world.repair(0, hole);
    }
    let stats = world.pools.stats();
    assert_eq!((stats.traversals, stats.units_in_use), (0, 1));
    assert!(stats.blocks_in_use_max <= 12, "{stats:?}");
    assert!(stats.overflows > 0);
}

/// R-24, as far as software can test it: the work per packet in the pool has a bound that does not depend on the
/// window. An out-of-order packet reads no block and allocates only those for its own gap; a repair reads one block,
/// plus one for each block that it frees.
#[test]
fn r24_the_work_per_packet_is_bounded() {
    let mut random = RandomStreams::new(3).stream("work");
    let mut world = World::new(PoolShape { units: 1, blocks: 400, block_bits: 10 }, 1);
    let (mut hole, mut high, mut blocks_taken_max, mut repairs, mut visited) = (0, 0, 0, 0, 0);
    for _ in 0..50_000 {
        let before = world.pools.stats();
        if random.below(3) == 0 && high > hole || high > hole + 900 {
            hole = world.repair(0, hole);
            high = high.max(hole);
            let after = world.pools.stats();
            let (blocks_read, blocks_freed) =
                (after.blocks_visited - before.blocks_visited, before.blocks_in_use - after.blocks_in_use);
            assert!(blocks_read <= blocks_freed + 1, "{blocks_read} blocks read, {blocks_freed} freed");
            (repairs, visited) = (repairs + 1, visited + blocks_read);
        } else {
            let gap = u64::from(random.below(4) == 0) * random.below(40);
            high += 1 + gap;
            world.keep(0, hole, [high]);
            let after = world.pools.stats();
            let blocks_taken = after.blocks_in_use - before.blocks_in_use;
            assert_eq!((after.blocks_visited, after.traversals), (before.blocks_visited, 0));
            // The first gap after a run also needs the block in which the run ends.
            assert!(blocks_taken <= gap / 10 + 2, "{blocks_taken} blocks allocated for a gap of {gap}");
            blocks_taken_max = blocks_taken_max.max(blocks_taken);
        }
    }
    assert!(repairs > 1_000 && visited > repairs && blocks_taken_max > 1, "{repairs} {visited} {blocks_taken_max}");
}

/// with more than seven packets missing, the counter no longer changes until the recovery ends, the queue pair
/// does not return to the fast path, and the next missing packet is still found.
#[test]
fn r16_an_overflow_lasts_until_the_recovery_ends() {
    let mut world = World::new(PAPER, 1);
    world.keep(0, 0, (1..10).map(|pair| pair * 2));
    assert_eq!(world.lost(0), (7, true));
    assert_eq!(world.repair(0, 0), 1);
    for hole in (1..17).step_by(2) {
        assert_eq!(world.lost(0), (7, true));
        assert_eq!(world.repair(0, hole), hole + 2);
    }
    assert!(world.pools.stats().blocks_in_use > 0, "the overflow has ended too early");
    assert_eq!(world.repair(0, 17), 19);
    let stats = world.pools.stats();
    assert_eq!((world.lost(0), stats.overflows, stats.slow_to_fast, stats.units_in_use), ((0, false), 1, 0, 0));
    assert_eq!(stats.losses_per_recovery[10], 1);
}

/// each queue pair in recovery holds one unit; none is in use when no queue pair is in recovery.
#[test]
fn r9_units_are_held_only_by_queue_pairs_in_recovery() {
    let mut world = World::new(PAPER, 30);
    for end in 0..20 {
        world.keep(end, 0, [1]);
        assert_eq!(world.pools.stats().units_in_use, end as u64 + 1);
    }
    assert!(!world.bits(20).has_room(seq(0), seq(1)), "the pool does not have twenty free units");
    world.repair(7, 0);
    assert!(world.bits(20).has_room(seq(0), seq(1)));
    world.keep(20, 0, [1]);
    for end in (0..21).filter(|end| *end != 7) {
        world.repair(end, 0);
    }
    assert_eq!(world.pools.stats().units_in_use, 0);
}

/// without a free block the queue pair falls back; recorded state is kept, and no further packets are kept
/// until its recovery is over.
#[test]
fn r14_exhaustion_lasts_until_the_recovery_ends() {
    let mut world = World::new(PoolShape { units: 2, blocks: 2, block_bits: 10 }, 2);
    world.keep(0, 0, [2, 20]);
    assert_eq!(world.pools.stats().blocks_in_use, 2);
    assert!(!world.bits(0).has_room(seq(0), seq(21)));
    world.bits(0).fall_back();
    assert_eq!(world.bits(0).class_of(seq(21)), RxClass::Refused);
    assert!(world.bits(1).has_room(seq(0), seq(1)), "a single loss needs no block");
    assert!(!world.bits(1).has_room(seq(0), seq(2)));
    assert_eq!(world.repair(0, 0), 1);
    assert_eq!(world.repair(0, 1), 3);
    for hole in 3..19 {
        assert_eq!(world.bits(0).class_of(seq(21)), RxClass::Refused);
        assert_eq!(world.repair(0, hole), hole + 1);
    }
    assert_eq!(world.repair(0, 19), 21);
    assert_eq!(world.bits(0).class_of(seq(23)), RxClass::New);
    let stats = world.pools.stats();
    assert_eq!((stats.fallbacks, stats.units_in_use, stats.blocks_in_use), (1, 0, 0));
}

/// At a sender: with one packet missing, no bits are recorded; with more, they are; acknowledged packets are removed.
#[test]
fn a_sender_records_bits_only_on_the_slow_path() {
    let mut world = World::new(PAPER, 1);
    let lost = |count| Lost { count, overflow: false };
    let unacknowledged = |world: &mut World, una: u64, end: u64| {
        let mut all = vec![];
        let range = SeqRange::new(seq(una), seq(end));
        world.bits(0).each_unacknowledged(seq(una), range, |packet| all.push(packet.since(seq(0))));
        all
    };
    for packet in 6..20 {
        assert!(world.bits(0).note_selective(seq(5), seq(packet), lost(1)));
    }
    assert_eq!(world.pools.stats().blocks_in_use, 0);
    assert_eq!(unacknowledged(&mut world, 5, 8), [5, 6, 7], "the fast path has no bitmap");
    world.bits(0).note_selective(seq(5), seq(22), lost(3));
    assert_eq!(unacknowledged(&mut world, 5, 24), [5, 20, 21, 23]);
    world.bits(0).acknowledged(seq(20));
    assert_eq!(unacknowledged(&mut world, 20, 24), [20, 21, 23]);
    world.bits(0).note_selective(seq(20), seq(40), lost(3));
    assert_eq!(unacknowledged(&mut world, 20, 24), [20, 21, 23]);
    world.bits(0).acknowledged(seq(41));
    let stats = world.pools.stats();
    assert_eq!((stats.units_in_use, stats.blocks_in_use, stats.traversals), (0, 0, 0));
}

/// queue pairs that are created, recover and are destroyed at random leak no units or blocks.
#[test]
fn r10_no_leak_after_a_million_events() {
    const ENDS: usize = 12;
    let mut random = RandomStreams::new(2).stream("leak");
    let mut world = World::new(PoolShape { units: 6, blocks: 10, block_bits: 10 }, ENDS);
    let mut state = [(0u64, 0u64); ENDS];
    for _ in 0..1_000_000 {
        let end = random.below(ENDS as u64) as usize;
        let (hole, high) = &mut state[end];
        match random.below(100) {
            0 => {
                let World { pools, ends, .. } = &mut world;
                pools.release(&mut ends[end]);
                *hole = (*high).max(*hole) + 1;
                *high = *hole;
            }
            1..30 if *high > *hole => {
                let next = world.repair(end, *hole);
                let (hole, high) = &mut state[end];
                *hole = next;
                *high = (*high).max(*hole);
            }
            _ => {
                let packet = *high + 1 + u64::from(random.below(10) == 0);
                let (hole, end_of_window) = (*hole, *hole + 500);
                if packet < end_of_window && world.bits(end).has_room(seq(hole), seq(packet)) {
                    world.keep(end, hole, [packet]);
                    state[end].1 = packet;
                }
            }
        }
    }
    let stats = world.pools.stats();
    assert!(stats.blocks_in_use_max == 10 && stats.units_in_use_max == 6, "{stats:?}");
    let World { pools, ends, .. } = &mut world;
    ends.iter_mut().for_each(|at| pools.release(at));
    let stats = pools.stats();
    assert_eq!((stats.units_in_use, stats.blocks_in_use, stats.traversals), (0, 0, 0));
}
