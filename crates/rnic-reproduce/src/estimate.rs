//! Estimates from few seeds: means with intervals, and differences that are significant.
//!
//! Seeds are independent, and a mean over them is nearly normal, so intervals and tests are Student's.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of intervals and tests.
pub const CONFIDENCE: f64 = 0.95;

/// A mean over seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Mean of the values.
    pub mean: f64,
    /// Half of the width of the 95 % confidence interval of the mean; `None` for one value.
    pub half_width: Option<f64>,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

impl Estimate {
    /// Returns the estimate from `values`; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (mean, variance) = moments(values)?;
        let count = values.len();
        let half_width = variance.map(|variance| {
            quantile((count - 1) as f64, 1.0 - (1.0 - CONFIDENCE) / 2.0) * (variance / count as f64).sqrt()
        });
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { mean, half_width, min, max, count })
    }
}

/// Returns the probability of a difference of means as large as that of `a` and `b`, or larger, if there were none:
/// of pairs when `paired` (`a[i]` and `b[i]` have the same seed), else after Welch. `None` with fewer than two values
/// each.
pub fn p_value(a: &[f64], b: &[f64], paired: bool) -> Option<f64> {
    let (difference, error, freedom) = if paired && a.len() == b.len() {
        let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
        let (mean, variance) = moments(&differences)?;
        (mean, (variance? / differences.len() as f64).sqrt(), differences.len() as f64 - 1.0)
    } else {
        let ((mean_a, variance_a), (mean_b, variance_b)) = (moments(a)?, moments(b)?);
        let (squared_a, squared_b) = (variance_a? / a.len() as f64, variance_b? / b.len() as f64);
        let freedom = (squared_a + squared_b).powi(2)
            / (squared_a.powi(2) / (a.len() as f64 - 1.0) + squared_b.powi(2) / (b.len() as f64 - 1.0));
        (mean_b - mean_a, (squared_a + squared_b).sqrt(), freedom)
    };
    if difference == 0.0 {
        return Some(1.0);
    }
    // Values that never vary: any difference is real.
    if error == 0.0 {
        return Some(0.0);
    }
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(2.0 * student.sf((difference / error).abs()))
}

/// Returns which of several tests are significant together (Holm 1979): the probability that any of them is wrong is at
/// most 5 %.
pub fn significant(p_values: &[Option<f64>]) -> Vec<bool> {
    let mut order: Vec<(f64, usize)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some(((*p)?, index))).collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut found = vec![false; p_values.len()];
    let count = order.len();
    for (rank, (p, index)) in order.into_iter().enumerate() {
        if p > (1.0 - CONFIDENCE) / (count - rank) as f64 {
            break;
        }
        found[index] = true;
    }
    found
}

/// Returns the mean, and the variance of one value if there are several.
fn moments(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (values.len() > 1).then(|| squares / (count - 1.0))))
}

fn quantile(freedom: f64, share: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Student's table: t(0.975; 2) = 4.303, t(0.975; 4) = 2.776.
    #[test]
    fn the_interval_is_student_s() {
        let three = Estimate::of(&[1.0, 2.0, 3.0]).expect("there are values");
        assert_eq!((three.mean, three.min, three.max, three.count), (2.0, 1.0, 3.0, 3));
        let half = three.half_width.expect("there are several values");
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-3, "{half}");
        let five = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).and_then(|five| five.half_width).expect("several values");
        assert!((five - 2.776 * (2.5f64 / 5.0).sqrt()).abs() < 1e-3, "{five}");
        assert_eq!(Estimate::of(&[7.0]).expect("there is a value").half_width, None);
        assert_eq!(Estimate::of(&[]), None);
    }

    /// The sleep data of Student (1908), as every textbook has it: paired p = 0.00283, Welch p = 0.0794.
    #[test]
    fn differences_are_tested_in_pairs_and_after_welch() {
        let a = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let b = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let p = |paired| p_value(&a, &b, paired).expect("there are values");
        assert!((p(true) - 0.002833).abs() < 1e-5, "{}", p(true));
        assert!((p(false) - 0.07939).abs() < 1e-4, "{}", p(false));
        assert_eq!(p_value(&[1.0], &[2.0], true), None, "one seed proves nothing");
        assert_eq!(p_value(&[1.0, 2.0], &[1.0, 2.0], true), Some(1.0));
        assert_eq!(p_value(&[1.0, 1.0], &[2.0, 2.0], false), Some(0.0));
    }

    #[test]
    fn many_tests_are_corrected_after_holm() {
        let p = [Some(0.01), Some(0.04), None, Some(0.03), Some(0.005)];
        // 0.005 <= 0.05 / 4, 0.01 <= 0.05 / 3, 0.03 > 0.05 / 2.
        assert_eq!(significant(&p), [true, false, false, false, true]);
        assert_eq!(significant(&[Some(0.05)]), [true]);
    }
}
