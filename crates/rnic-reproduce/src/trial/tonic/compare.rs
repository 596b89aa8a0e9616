//! Comparisons of two sides: traces and distributions.

/// Returns the mean of `values`; zero without any.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Returns the mean absolute difference of two traces of equal times, in percent of the mean of `reference`.
pub fn trace_difference(reference: &[f64], other: &[f64]) -> f64 {
    let differences: Vec<f64> = reference.iter().zip(other).map(|(one, two)| (one - two).abs()).collect();
    // One trace may be longer than the other.
    100.0 * mean(&differences) / mean(&reference[..differences.len()]).max(f64::MIN_POSITIVE)
}

/// Returns the largest distance of two distributions (Kolmogorov and Smirnov), 0 to 1.
pub fn distance(one: &[f64], other: &[f64]) -> f64 {
    let below = |values: &[f64], limit: f64| {
        values.iter().filter(|value| **value <= limit).count() as f64 / values.len().max(1) as f64
    };
    let limits = one.iter().chain(other);
    limits.map(|limit| (below(one, *limit) - below(other, *limit)).abs()).fold(0.0, f64::max)
}

/// Returns the share of the members of either set that are members of both, in percent; 100 when both are empty.
pub fn common(one: &[u64], other: &[u64]) -> f64 {
    let set = |values: &[u64]| values.iter().copied().collect::<std::collections::BTreeSet<_>>();
    let (one, other) = (set(one), set(other));
    let all = one.union(&other).count();
    if all == 0 { 100.0 } else { 100.0 * one.intersection(&other).count() as f64 / all as f64 }
}

/// Returns the coefficient of variation of `values`.
pub fn variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - mean).powi(2)).collect();
    self::mean(&squares).sqrt() / mean.max(f64::MIN_POSITIVE)
}

/// Returns the largest deviation of a value from the mean of all, in percent of it.
pub fn spread(values: &[f64]) -> f64 {
    let mean = mean(values);
    100.0 * values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max) / mean.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_definitions() {
        assert_eq!(trace_difference(&[10.0, 20.0, 30.0], &[10.0, 22.0, 26.0]), 10.0);
        assert_eq!(distance(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0]), 0.0);
        assert_eq!(distance(&[1.0, 2.0, 3.0, 4.0], &[3.0, 4.0, 5.0, 6.0]), 0.5);
        assert_eq!(distance(&[1.0], &[2.0]), 1.0);
        assert_eq!(common(&[1, 2, 3, 3], &[2, 3, 4]), 50.0);
        assert_eq!((common(&[], &[]), common(&[1], &[])), (100.0, 0.0));
        assert_eq!(variation(&[5.0, 5.0]), 0.0);
        assert_eq!((variation(&[0.0, 2.0]), spread(&[9.0, 10.0, 11.0])), (1.0, 10.0));
    }
}
