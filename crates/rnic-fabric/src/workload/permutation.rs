//! Everybody to somebody, and from somebody else.

use std::sync::Arc;

use rnic_base::{RandomStreams, Time};

use super::{FlowSpec, Traffic};

/// One flow of `bytes` from every host, to the host after it in a random circle: nobody sends to itself, everybody
/// receives once (Sattolo's cycle).
pub(super) fn flows(hosts: u32, bytes: u64, traffic: &Arc<Traffic>, streams: &RandomStreams) -> Vec<FlowSpec> {
    let mut circle: Vec<u32> = (0..hosts).collect();
    streams.stream("workload/permutation").shuffle(&mut circle);
    let next = circle.iter().cycle().skip(1);
    let pairs = circle.iter().zip(next);
    let mut flows: Vec<FlowSpec> = pairs
        .map(|(src, dst)| {
            let traffic = Arc::clone(traffic);
            FlowSpec { start: Time::ZERO, src: *src, dst: *dst, bytes, traffic, request: None }
        })
        .collect();
    flows.sort_by_key(|flow| flow.src);
    flows
}
