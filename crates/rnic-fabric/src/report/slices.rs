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
    /// Payload of the tenant that arrived in this slice, in Gbit/s; duplicates are not counted.
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
