//! Results per time slice: the change of goodput and queues of hosts over time.

use std::collections::BTreeMap;

use serde::Serialize;

/// Results of the complete slices of a run; an incomplete slice at the end is not included. Received bytes are assigned
/// to slices with picosecond precision; queues are measured at the end of the simulation window in which a slice ends,
/// and so up to the shortest link delay late.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Slices {
    /// Length of a slice in microseconds.
    pub slice_us: f64,
    /// Results by the names of hosts.
    pub hosts: BTreeMap<String, HostSlices>,
}

/// Results of one host: one value per slice, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct HostSlices {
    /// Payload that arrived at the host in this slice, in Gbit/s; duplicates are not counted. For a Read it arrives at
    /// the host that posts.
    pub goodput_gbps: Vec<f64>,
    /// Bytes that waited in the host's switch for its link, averaged over the slice; 0 without a switch.
    pub queue_mean_bytes: Vec<f64>,
}
