//! Fairness between the processes that share a link.

use std::collections::BTreeMap;

use rnic_base::jain_f64;

use super::snapshot::{ShareSnapshot, Snapshot};

/// A link that processes of one user share.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedLink<'a> {
    /// User ID of the processes.
    pub user: u32,
    /// Number of the page through which the processes share the link; see [`ShareSnapshot::page`].
    pub page: u64,
    /// The processes, with their shares, in the order of the snapshots.
    pub members: Vec<(&'a Snapshot, &'a ShareSnapshot)>,
}

/// Jain's index of the processes that share a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fairness {
    /// Number of processes that send payload.
    pub senders: usize,
    /// Jain's index of their payload rates, each divided by the weight of its process: 1 when all are equal, and 1/n
    /// when one of n has everything ([`rnic_base::jain_f64`]).
    pub jain: f64,
}

/// Returns the links that the processes of `snapshots` share, in order of user and page.
pub fn shared_links(snapshots: &[Snapshot]) -> Vec<SharedLink<'_>> {
    let mut links: BTreeMap<(u32, u64), Vec<_>> = BTreeMap::new();
    for snapshot in snapshots {
        if let Some(share) = &snapshot.share {
            links.entry((snapshot.user, share.page)).or_default().push((snapshot, share));
        }
    }
    links.into_iter().map(|((user, page), members)| SharedLink { user, page, members }).collect()
}

impl SharedLink<'_> {
    /// Returns the fairness between the processes that draw from the link and send payload; `None` when there are none.
    /// Processes that only receive are not counted.
    pub fn fairness(&self) -> Option<Fairness> {
        let shares = self.members.iter().map(|(_, share)| *share);
        let sending = shares.filter(|share| share.link_gbps.is_some() && share.payload_gbps > SENDS_GBPS);
        let rates: Vec<f64> = sending.map(|share| share.payload_gbps / f64::from(share.weight.max(1))).collect();
        let senders = rates.len();
        (senders > 0).then(|| Fairness { senders, jain: jain_f64(rates.into_iter()) })
    }
}

/// Payload rate in Gbit/s above which a process is part of the comparison: others only send responses.
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
        let jain = |snapshots: &[Snapshot]| {
            let found = shared_links(snapshots).first().and_then(SharedLink::fairness);
            found.map(|found| (found.senders, found.jain))
        };
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[Snapshot::default(), snapshot(0.0, 1)]), None);
        assert_eq!(jain(&[snapshot(1.0, 1), snapshot(1.0, 1), snapshot(0.0, 1)]), Some((2, 1.0)));
        assert_eq!(jain(&[snapshot(1.5, 3), snapshot(0.5, 1)]), Some((2, 1.0)));
        let (senders, unequal) = jain(&[snapshot(1.5, 1), snapshot(0.5, 1)]).expect("two senders");
        assert_eq!((senders, (unequal * 1_000.0).round()), (2, 800.0));
    }

    #[test]
    fn users_and_pages_have_links_of_their_own() {
        let of = |user: u32, page: u64, gbps: f64| {
            let share = ShareSnapshot { page, ..snapshot(gbps, 1).share.expect("it takes part") };
            Snapshot { user, share: Some(share), ..Snapshot::default() }
        };
        let snapshots = [of(7, 1, 1.0), of(5, 2, 0.1), of(7, 1, 1.0), of(5, 1, 0.3), Snapshot::default()];
        let links = shared_links(&snapshots);
        let shape: Vec<_> = links.iter().map(|link| (link.user, link.page, link.members.len())).collect();
        assert_eq!(shape, [(5, 1, 1), (5, 2, 1), (7, 1, 2)]);
        assert_eq!(links[2].fairness(), Some(Fairness { senders: 2, jain: 1.0 }));
    }
}
