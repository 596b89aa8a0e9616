//! Upper tails of distributions, and completion times and slowdowns of a subset of the flows.

use serde::Serialize;

use super::{FlowRecord, Spread};

/// A point of a distribution function.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TailPoint {
    /// Percentage of the values that are at most `us`.
    pub percent: f64,
    /// Value of the distribution at `percent`, in microseconds.
    pub us: f64,
}

/// Returns the distribution function of `sorted` from 90 % to 99.9 %: nearest ranks, as in [`Spread`].
pub(super) fn upper_tail(sorted: &[f64]) -> Vec<TailPoint> {
    let rank = |per_mille: usize| sorted[(sorted.len() * per_mille).div_ceil(1_000).max(1) - 1];
    let point = |per_mille: usize| TailPoint { percent: per_mille as f64 / 10.0, us: rank(per_mille) };
    let points = (900..990).step_by(10).chain(990..1_000);
    if sorted.is_empty() { Vec::new() } else { points.map(point).collect() }
}

/// Completion times and slowdowns of a subset of the flows.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FlowFigures {
    /// Number of flows.
    pub flows: u64,
    /// Slowdown: completion time divided by ideal time.
    pub slowdown: Spread,
    /// Completion times in microseconds.
    pub fct_us: Spread,
    /// Completion times of the flows of one packet, in microseconds.
    pub single_packet_fct_us: Option<Spread>,
}

impl FlowFigures {
    /// Returns the result for `flows`; `None` when there are no flows. A full packet has `packet_bytes` bytes.
    pub(super) fn of<'f>(flows: impl Iterator<Item = &'f FlowRecord> + Clone, packet_bytes: u64) -> Option<Self> {
        let spread = |value: fn(&FlowRecord) -> f64| Spread::of(&mut flows.clone().map(value).collect::<Vec<_>>());
        let slowdown = spread(FlowRecord::slowdown)?;
        let fct_us = spread(|flow| flow.fct.as_us_f64())?;
        let singles = flows.clone().filter(|flow| flow.bytes <= packet_bytes).map(|flow| flow.fct.as_us_f64());
        let single_packet_fct_us = Spread::of(&mut singles.collect::<Vec<_>>());
        Some(Self { flows: slowdown.count, slowdown, fct_us, single_packet_fct_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I-R14: the curve of figure 8 of IRN.
    #[test]
    fn the_tail_goes_from_90_to_999_per_mille() {
        let values: Vec<f64> = (1..=2_000).map(f64::from).collect();
        let tail = upper_tail(&values);
        assert_eq!(tail.len(), 9 + 10);
        assert_eq!(tail.first(), Some(&TailPoint { percent: 90.0, us: 1_800.0 }));
        assert_eq!(tail[9], TailPoint { percent: 99.0, us: 1_980.0 });
        assert_eq!(tail.last(), Some(&TailPoint { percent: 99.9, us: 1_998.0 }));
        assert_eq!(upper_tail(&[]), []);
        assert!(upper_tail(&[7.0]).iter().all(|point| point.us == 7.0));
    }
}
