//! Distances between the distribution of a run and a reference distribution.
//!
//! A run keeps its distributions as values at the shares of [`levels`], and the reference is a list of such points, so
//! each distribution is known only between two neighbouring shares. At a point of the reference, a share `p` with its
//! value `x`, at least `p` of the reference's values are at most `x`, and less than `p` are below `x`. What a run has
//! too little at `x`, and what it has too much below `x`, are differences; the largest of all counts. Shares of the
//! run are rounded so that a distance is never too small: by at most a hundredth up to the 90th percentile, and a
//! thousandth above. A value that occurs often, a step of both distributions, is no difference.

use super::{Samples, for_each_seed, largest};
use crate::run::levels;
use crate::work::{AxisPosition, Layout};

/// The distribution with which runs are compared.
pub(super) struct Reference<'d> {
    /// Shares with their values, ascending.
    pub(super) points: &'d [(f64, f64)],
    /// Share by which a value may differ without counting.
    pub(super) slack: f64,
}

/// Returns the distance of the distribution called `sample` of `variant` from `reference`, for each seed.
pub(super) fn distances(
    layout: &Layout<'_>,
    samples: &Samples,
    (sample, variant): (&str, &str),
    position: &AxisPosition,
    reference: &Reference<'_>,
) -> Result<Vec<f64>, String> {
    for_each_seed(layout, samples, variant, position, |run| {
        let quantiles = run.quantiles.get(sample).ok_or_else(|| format!("the run has no distribution `{sample}`"))?;
        Ok(reference.distance(&levels(), quantiles))
    })
}

impl Reference<'_> {
    /// Returns the distance of a distribution that has the values `quantiles` at the shares `levels`.
    fn distance(&self, levels: &[f64], quantiles: &[f64]) -> f64 {
        // The least share whose value is not below `x`: no more can lie below `x`.
        let below = |x: f64| {
            let index = quantiles.partition_point(|value| *value < x);
            levels.get(index).copied().unwrap_or(1.0)
        };
        // The largest share whose value is at most `x`.
        let at_most = |x: f64| {
            let count = quantiles.partition_point(|value| *value <= x);
            if count == 0 { 0.0 } else { levels[count - 1] }
        };
        let difference = |(share, value): &(f64, f64)| {
            let (low, high) = (value * (1.0 - self.slack), value * (1.0 + self.slack));
            (share - at_most(high)).max(below(low) - share).max(0.0)
        };
        largest(self.points.iter().map(difference)).unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of tenths.
    fn tenths() -> Vec<f64> {
        (0..=10).map(|tenth| f64::from(tenth) / 10.0).collect()
    }

    fn distance(points: &[(f64, f64)], slack: f64, quantiles: &[f64]) -> f64 {
        Reference { points, slack }.distance(&tenths(), quantiles)
    }

    /// A uniform distribution from 0 to 10 at its tenths, and one from `from` to `from + 10`.
    #[test]
    fn a_shifted_distribution_is_as_far_as_it_is_shifted() {
        let uniform = |from: f64| tenths().iter().map(|share| from + share * 10.0).collect::<Vec<_>>();
        let points: Vec<(f64, f64)> = (1..=10).map(|tenth| (f64::from(tenth) / 10.0, f64::from(tenth))).collect();
        assert!(distance(&points, 0.0, &uniform(0.0)) < 1e-9);
        assert!((distance(&points, 0.0, &uniform(3.0)) - 0.3).abs() < 1e-9, "larger values");
        assert!((distance(&points, 0.0, &uniform(-3.0)) - 0.3).abs() < 1e-9, "smaller values");
        assert!((distance(&points, 0.0, &uniform(20.0)) - 1.0).abs() < 1e-9, "no overlap");
    }

    /// Half of all values are 5, in both distributions.
    #[test]
    fn steps_of_both_distributions_are_no_difference() {
        let quantiles = [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0, 6.0, 7.0];
        let points: Vec<(f64, f64)> = tenths().into_iter().zip(quantiles).skip(1).collect();
        assert!(distance(&points, 0.0, &quantiles) < 1e-9);
        // The step 1 % later: half of all values are too large, unless the slack is more than that.
        let later: Vec<f64> = quantiles.iter().map(|value| if *value == 5.0 { 5.05 } else { *value }).collect();
        assert!((distance(&points, 0.0, &later) - 0.5).abs() < 1e-9);
        assert!(distance(&points, 0.011, &later) < 1e-9);
    }

    /// A distance is never too small: shares between two levels are rounded to the farther one.
    #[test]
    fn shares_between_two_levels_are_rounded_outwards() {
        let quantiles: Vec<f64> = tenths().iter().map(|share| share * 10.0).collect();
        assert!((distance(&[(0.25, 2.5)], 0.0, &quantiles) - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_missing_reference_is_not_a_distance_of_zero() {
        assert!(distance(&[], 0.0, &[1.0; 11]).is_nan());
    }
}
