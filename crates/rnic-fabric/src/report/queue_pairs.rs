//! Goodput of each queue pair (Falcon, SIGCOMM'25, section 6.1.2: goodput by queue pair within a host).

use serde::Serialize;

use super::Spread;

/// Goodput of the queue pairs of a loop that ends at a given time: each queue pair is measured from the first to the
/// last message that it completed in the measured time, so that messages in flight at either end do not cause an
/// error. Queue pairs that completed fewer than two messages are not included.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct QueuePairs {
    /// Goodput in Gbit/s, over the queue pairs of all hosts.
    pub goodput_gbps: Spread,
    /// Standard deviation of the goodput of one host's queue pairs, in percent of their mean, for the host where it
    /// is largest.
    pub deviation_percent: f64,
}

impl QueuePairs {
    /// Returns the result for the goodputs of each host's queue pairs; `None` when there are no queue pairs.
    pub(crate) fn of(hosts: impl Iterator<Item = Vec<f64>>) -> Option<Self> {
        let (mut all, mut deviation_max) = (Vec::new(), 0.0_f64);
        for goodputs in hosts.filter(|goodputs| !goodputs.is_empty()) {
            deviation_max = deviation_max.max(deviation_percent(&goodputs));
            all.extend(goodputs);
        }
        Some(Self { goodput_gbps: Spread::of(&mut all)?, deviation_percent: deviation_max })
    }
}

fn deviation_percent(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    100.0 * variance.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_with_the_largest_deviation_is_reported() {
        let found =
            QueuePairs::of([vec![4.0, 4.0], vec![], vec![1.0, 3.0]].into_iter()).expect("there are queue pairs");
        assert_eq!((found.goodput_gbps.count, found.goodput_gbps.avg, found.deviation_percent), (4, 3.0, 50.0));
        assert_eq!(QueuePairs::of([vec![]].into_iter()), None);
    }
}
