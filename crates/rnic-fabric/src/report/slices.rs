//! Results per time slice: the change of goodput and queues of hosts over time.

use std::collections::BTreeMap;

use serde::Serialize;

/// Results of the complete slices of a run; an incomplete slice at the end is not included. Received bytes are
/// assigned to slices with picosecond precision; queues are measured at the end of the simulation window in which a
/// slice ends, so the measurement is late by at most the shortest link delay.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Slices {
    /// Length of a slice in microseconds.
    pub slice_us: f64,
    /// Results of each host, by its name.
    pub hosts: BTreeMap<String, HostSlices>,
    /// Results of each tenant, by its name, when the workload has tenants.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, TenantSlices>,
    /// Results of each queue pair of a tenant, by the tenant's name, `-`, and the queue pair's index in the tenant.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_pairs: BTreeMap<String, QueuePairSlices>,
    /// Sum of the tenants, and the fairness between them, when the workload has tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<FairnessSlices>,
}

/// Results of one tenant: one value per slice, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct TenantSlices {
    /// Goodput of the tenant in each slice, in Gbit/s: payload received, without duplicates.
    pub goodput_gbps: Vec<f64>,
}

/// Results of one queue pair of a tenant: one value per slice, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct QueuePairSlices {
    /// Payload of the queue pair that arrived in this slice, in Gbit/s; duplicates are not counted.
    pub goodput_gbps: Vec<f64>,
    /// Dequeue rate in force at the end of the slice, at the NIC that sends the payload, in Gbit/s, when the queue pair
    /// ever had one; 0 in slices without one. Measured as late as queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dequeue_gbps: Option<Vec<f64>>,
    /// Rate of congestion control at the end of the slice, as with `dequeue_gbps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_gbps: Option<Vec<f64>>,
    /// 1 in slices in which the path label of the queue pair that sends changed, 0 in others, when the plan has
    /// messages between NICs. Measured as late as queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_changes: Option<Vec<f64>>,
    /// Round trips that probes of the queue pair have measured, on any path, when there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeSlices>,
}

/// Round trips by probes whose answers arrived in a slice, in microseconds; 0 in slices without an answer. One value
/// per slice, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ProbeSlices {
    /// Longest round trip.
    pub max_us: Vec<f64>,
    /// Mean.
    pub mean_us: Vec<f64>,
    /// Median; of an even number, the lower one of the middle two.
    pub median_us: Vec<f64>,
    /// Shortest round trip.
    pub min_us: Vec<f64>,
    /// Difference between the longest and the shortest: of paths, when several are probed.
    pub spread_us: Vec<f64>,
}

impl ProbeSlices {
    /// Computes the values of each slice from the round trips in it, in picoseconds; sorts them.
    pub(crate) fn of(slices: &mut [Vec<u64>]) -> Self {
        let mut all = Self::default();
        for round_trips in slices {
            round_trips.sort_unstable();
            let us = |ps: u64| ps as f64 / 1e6;
            let (min, max) = (round_trips.first().copied().unwrap_or(0), round_trips.last().copied().unwrap_or(0));
            let median = round_trips.get(round_trips.len().saturating_sub(1) / 2).copied().unwrap_or(0);
            let mean = us(round_trips.iter().sum()) / round_trips.len().max(1) as f64;
            all.max_us.push(us(max));
            all.mean_us.push(mean);
            all.median_us.push(us(median));
            all.min_us.push(us(min));
            all.spread_us.push(us(max - min));
        }
        all
    }
}

/// Results of all tenants together: one value per slice, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct FairnessSlices {
    /// Payload of all tenants that arrived in this slice, in Gbit/s.
    pub goodput_gbps: Vec<f64>,
    /// Jain's index as in `fairness`, over the queue pairs that had joined before the slice and did not stop in it: 1
    /// when there are none, 0 when nothing arrived for any of them.
    pub jain_queue_pairs: Vec<f64>,
    /// The same over the tenants of these queue pairs.
    pub jain_tenants: Vec<f64>,
}

/// Results of one host: one value per slice, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct HostSlices {
    /// Payload that arrived at the host in this slice, in Gbit/s; duplicates are not counted. The payload of a Read
    /// arrives at the host that posts the Read.
    pub goodput_gbps: Vec<f64>,
    /// Number of bytes that waited for the host's link in its switch, averaged over the slice; 0 without a switch.
    pub queue_mean_bytes: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_of_a_slice_are_summed_up() {
        let mut slices = [vec![4_000_000, 1_000_000, 2_000_000, 5_000_000], Vec::new(), vec![7_000_000]];
        let found = ProbeSlices::of(&mut slices);
        assert_eq!(found.min_us, [1.0, 0.0, 7.0]);
        assert_eq!(found.median_us, [2.0, 0.0, 7.0]);
        assert_eq!(found.mean_us, [3.0, 0.0, 7.0]);
        assert_eq!(found.max_us, [5.0, 0.0, 7.0]);
        assert_eq!(found.spread_us, [4.0, 0.0, 0.0]);
    }
}
