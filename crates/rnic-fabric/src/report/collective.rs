//! Results of collectives and of execution traces.

use serde::Serialize;

use crate::workload::collective::CollectivePlan;

/// Bandwidth of a collective, defined as in NCCL's tests (`doc/PERFORMANCE.md` there), from the average time of the
/// collectives after the warm-up. The size is that of the largest buffer of a rank: of the result of an all-gather, of
/// the input of a reduce-scatter, of either for an all-reduce and an all-to-all.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct CollectiveFigures {
    /// Size of the largest buffer of a rank in bytes: the size that NCCL's tests print.
    pub bytes: u64,
    /// Algorithm bandwidth: the size divided by the time, in 10^9 bytes per second.
    pub algbw_gbytes_per_s: f64,
    /// Bus bandwidth: that, times 2(n-1)/n for an all-reduce among n ranks and (n-1)/n for the others, in 10^9 bytes
    /// per second. It can be compared with the rate of a host's link, for any number of ranks.
    pub busbw_gbytes_per_s: f64,
}

impl CollectiveFigures {
    /// Returns the bandwidths of a collective that takes `time_us` on average.
    pub(crate) fn of(collective: &CollectivePlan, time_us: f64) -> Self {
        let algbw = collective.bytes as f64 / time_us / 1e3;
        let busbw = algbw * collective.kind.bus_factor(collective.ranks);
        Self { bytes: collective.bytes, algbw_gbytes_per_s: algbw, busbw_gbytes_per_s: busbw }
    }
}

/// Results of execution traces.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ExecutionFigures {
    /// Number of nodes that have ended, of all ranks.
    pub nodes: u64,
    /// Number of nodes that had not ended at the end of the run.
    pub nodes_unfinished: u64,
    /// Number of collectives that have ended.
    pub collectives: u64,
    /// Time at which the last node ended, in microseconds.
    pub time_us: f64,
    /// The same in a network that takes no time, in microseconds: the longest path of computations.
    pub compute_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Operation;
    use crate::workload::collective::CollectiveKind;

    /// 8 MB among 8 ranks in 1000 us: 8 GB/s; on the bus 14/8 of that for an all-reduce, 7/8 for the others.
    #[test]
    fn bandwidths_are_those_of_nccls_tests() {
        for (kind, bus) in [
            (CollectiveKind::AllReduce, 14.0),
            (CollectiveKind::AllGather, 7.0),
            (CollectiveKind::ReduceScatter, 7.0),
            (CollectiveKind::AllToAll, 7.0),
        ] {
            let op = Operation::WriteImmediate;
            let plan =
                CollectivePlan { kind, ranks: 8, bytes: 8_000_000, count: 3, connections: 2, shuffle: false, op };
            let figures = CollectiveFigures::of(&plan, 1_000.0);
            assert_eq!((figures.bytes, figures.algbw_gbytes_per_s, figures.busbw_gbytes_per_s), (8_000_000, 8.0, bus));
        }
    }
}
