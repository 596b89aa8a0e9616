//! A run slice by slice: how what hosts get changes with time.

use std::collections::BTreeMap;

use serde::Serialize;

/// What whole slices of a run brought; the rest after the last one is left out. What arrives is counted to the
/// picosecond; queues are measured at the end of the simulation's window in which a slice's time is over, so up to the
/// least delay of a link late.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Slices {
    /// How long each is, microseconds.
    pub slice_us: f64,
    /// By the names of hosts.
    pub hosts: BTreeMap<String, HostSlices>,
}

/// Those of one host: a value for each slice, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct HostSlices {
    /// Payload that arrived at it in this slice, Gbit/s, each byte once. A Read brings it to who posts.
    pub goodput_gbps: Vec<f64>,
    /// Bytes that waited in its switch for its link, on average over the slice; 0 without a switch.
    pub queue_mean_bytes: Vec<f64>,
}
