//! Averages and percentiles.

use serde::Serialize;

/// Average and percentiles of a quantity.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spread {
    /// Number of values.
    pub count: u64,
    /// Average.
    pub avg: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    /// Returns average and percentiles of `values`, which are sorted in place; `None` when there are no values.
    /// Percentiles are nearest ranks: each is one of the values.
    pub fn of(values: &mut [f64]) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let max = *values.last()?;
        let rank = |per_mille: usize| values[(count * per_mille).div_ceil(1_000).max(1) - 1];
        let avg = values.iter().sum::<f64>() / count as f64;
        let (p50, p90, p95, p99, p999) = (rank(500), rank(900), rank(950), rank(990), rank(999));
        Some(Self { count: count as u64, avg, p50, p90, p95, p99, p999, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut values: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let spread = Spread::of(&mut values).expect("there are values");
        assert_eq!((spread.p50, spread.p99, spread.p999, spread.max), (500.0, 990.0, 999.0, 1_000.0));
        assert_eq!((spread.p90, spread.p95), (900.0, 950.0));
        assert_eq!((spread.count, spread.avg), (1_000, 500.5));
        let one = Spread::of(&mut [7.0]).expect("there is one");
        assert_eq!((one.p50, one.p999, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&mut []), None);
    }
}
