//! Permutation: every host sends to one host and receives from another.

use std::sync::Arc;

use rnic_base::{RandomStreams, Time};

use super::{FlowSpec, Traffic};

/// Returns flows of `bytes` from every host, to the host after it in `cycles` random cycles: no host sends to itself,
/// and every host receives once in each cycle (Sattolo's cycle).
pub(super) fn flows(
    hosts: u32,
    bytes: u64,
    cycles: u32,
    traffic: &Arc<Traffic>,
    streams: &RandomStreams,
) -> Vec<FlowSpec> {
    let mut stream = streams.stream("workload/permutation");
    let mut cycle: Vec<u32> = (0..hosts).collect();
    let mut flows = Vec::new();
    for _ in 0..cycles {
        stream.shuffle(&mut cycle);
        let next = cycle.iter().cycle().skip(1);
        flows.extend(cycle.iter().zip(next).map(|(src, dst)| {
            let traffic = Arc::clone(traffic);
            FlowSpec {
                start: Time::ZERO,
                src: *src,
                dst: *dst,
                bytes,
                traffic,
                request: None,
                arrivals: None,
                membership: None,
                lengths: None,
            }
        }));
    }
    flows.sort_by_key(|flow| flow.src);
    flows
}
