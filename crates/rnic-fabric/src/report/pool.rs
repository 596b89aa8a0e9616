//! Counters of the pools that FaSR's queue pairs share.

use rnic_engine::PoolStats;
use serde::Serialize;

/// Counters of pools: sums over all hosts, except for the largest numbers in use, which are those of the pool with
/// the largest number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PoolFigures {
    /// Out-of-order and gap-filling packets that needed no bitmap.
    pub fast_path: u64,
    /// Out-of-order and gap-filling packets that needed a bitmap.
    pub slow_path: u64,
    /// Receivers' recoveries in which the 3-bit loss counter overflowed.
    pub overflows: u64,
    /// Receivers' recoveries that completed.
    pub recoveries: u64,
    /// Of these, recoveries that never used a bitmap.
    pub recoveries_without_blocks: u64,
    /// Number of times that a queue pair fell back to go-back-N because a pool was empty.
    pub fallbacks: u64,
    /// Selective acknowledgements that a sender could not record because no block was free.
    pub unrecorded: u64,
    /// Packets dropped because a retransmission before them was lost (the receiver responds with an FNACK).
    pub misplaced: u64,
    /// Accesses that had to walk a list of blocks to a block in its middle.
    pub traversals: u64,
    /// Blocks read to find the next missing packet.
    pub blocks_visited: u64,
    /// Maximum number of units in use in one pool.
    pub units_in_use_max: u64,
    /// Maximum number of blocks in use in one pool.
    pub blocks_in_use_max: u64,
}

impl PoolFigures {
    /// Adds the counters of the pool of one host; has no effect for a host that has no pool or has never used it.
    pub(crate) fn add(figures: &mut Option<Self>, of_host: &PoolStats) {
        if of_host.units_in_use_max == 0 && of_host.fallbacks == 0 {
            return;
        }
        let sum = figures.get_or_insert_default();
        sum.fast_path += of_host.fast_path;
        sum.slow_path += of_host.slow_path;
        sum.overflows += of_host.overflows;
        sum.recoveries += of_host.losses_per_recovery.iter().sum::<u64>();
        sum.recoveries_without_blocks += of_host.recoveries_without_blocks;
        sum.fallbacks += of_host.fallbacks;
        sum.unrecorded += of_host.unrecorded;
        sum.misplaced += of_host.misplaced;
        sum.traversals += of_host.traversals;
        sum.blocks_visited += of_host.blocks_visited;
        sum.units_in_use_max = sum.units_in_use_max.max(of_host.units_in_use_max);
        sum.blocks_in_use_max = sum.blocks_in_use_max.max(of_host.blocks_in_use_max);
    }
}
