//! Fairness between the processes that share a link.

use super::snapshot::{ShareSnapshot, Snapshot};

/// Jain's index of the processes that share a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fairness {
    /// Number of processes that send payload.
    pub senders: usize,
    /// Jain's index of their payload rates, each divided by the weight of its process: 1 when all are equal, and 1/n
    /// when one of n gets everything (Jain, Chiu and Hawe, DEC-TR-301, 1984).
    pub jain: f64,
}

/// Returns the fairness between the processes of `snapshots` that share a link and send payload; none when there are
/// none. Processes that only receive are not counted.
pub fn fairness(snapshots: &[Snapshot]) -> Option<Fairness> {
    let sending = |share: &ShareSnapshot| share.link_gbps.is_some() && share.payload_gbps > SENDS_GBPS;
    let shares = snapshots.iter().filter_map(|snapshot| snapshot.share).filter(sending);
    let rates: Vec<f64> = shares.map(|share| share.payload_gbps / f64::from(share.weight.max(1))).collect();
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    let senders = rates.len();
    (senders > 0).then(|| Fairness { senders, jain: sum * sum / (senders as f64 * squares) })
}

/// A process that sends more payload than this, in Gbit/s, takes part in the comparison: others answer at most.
const SENDS_GBPS: f64 = 1e-5;

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(payload_gbps: f64, weight: u32) -> Snapshot {
        let share = ShareSnapshot { weight, link_gbps: Some(2.0), payload_gbps, ..ShareSnapshot::default() };
        Snapshot { share: Some(share), ..Snapshot::default() }
    }

    #[test]
    fn jains_index_compares_payload_rates_by_weight() {
        let jain = |snapshots: &[Snapshot]| fairness(snapshots).map(|found| (found.senders, found.jain));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[Snapshot::default(), snapshot(0.0, 1)]), None);
        assert_eq!(jain(&[snapshot(1.0, 1), snapshot(1.0, 1), snapshot(0.0, 1)]), Some((2, 1.0)));
        assert_eq!(jain(&[snapshot(1.5, 3), snapshot(0.5, 1)]), Some((2, 1.0)));
        let (senders, unequal) = jain(&[snapshot(1.5, 1), snapshot(0.5, 1)]).expect("two senders");
        assert_eq!((senders, (unequal * 1_000.0).round()), (2, 800.0));
    }
}
