//! Goodput of each queue pair (Falcon, SIGCOMM'25, section 6.1.2: goodput by queue pair within a host).

use serde::Serialize;

use super::Spread;

/// Goodput of the queue pairs of a loop that ends at a given time: each is measured from the first to the last message
/// that it completed in the measured time, so that messages in flight at either end do not cause an error. Queue pairs
/// that completed fewer than two messages are not included.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct QueuePairs {
    /// Goodput in Gbit/s, over the queue pairs of all hosts.
    pub goodput_gbps: Spread,
    /// Standard deviation between the queue pairs of one host, in percent of their mean: of the host for which it is
    /// largest.
    pub deviation_percent: f64,
}

impl QueuePairs {
    /// Returns the figures for the goodputs of each host's queue pairs; `None` when there are none.
    pub(crate) fn of(hosts: impl Iterator<Item = Vec<f64>>) -> Option<Self> {
        let (mut all, mut most) = (Vec::new(), 0.0_f64);
        for goodputs in hosts.filter(|goodputs| !goodputs.is_empty()) {
            most = most.max(deviation_percent(&goodputs));
            all.extend(goodputs);
        }
        Some(Self { goodput_gbps: Spread::of(&mut all)?, deviation_percent: most })
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
    fn the_worst_host_counts() {
        let found = QueuePairs::of([vec![4.0, 4.0], vec![], vec![1.0, 3.0]].into_iter()).expect("there are some");
        assert_eq!((found.goodput_gbps.count, found.goodput_gbps.avg, found.deviation_percent), (4, 3.0, 50.0));
        assert_eq!(QueuePairs::of([vec![]].into_iter()), None);
    }
}
