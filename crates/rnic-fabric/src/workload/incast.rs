//! Many to one.
//!
//! Source: IRN (SIGCOMM'18) section 4.4.3: a request of so many bytes, striped over M randomly chosen senders, to one
//! fixed destination; what counts is when the last flow is done. Starts are spread over a few microseconds (targets
//! 2.D-10).

use std::sync::Arc;

use rnic_base::{Duration, RandomStreams, Time};

use super::{FlowSpec, Traffic};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) senders: u32,
    pub(super) bytes: u64,
    pub(super) to: u32,
    pub(super) jitter: Duration,
}

/// The flows of `repeats` requests, one every `interval`.
pub(super) fn flows(
    hosts: u32,
    shape: &Shape,
    repeats: u32,
    interval: Duration,
    traffic: &Arc<Traffic>,
    streams: &RandomStreams,
) -> Vec<FlowSpec> {
    let mut stream = streams.stream("workload/incast");
    let mut flows = Vec::new();
    for repeat in 0..repeats {
        let mut others: Vec<u32> = (0..hosts).filter(|host| *host != shape.to).collect();
        stream.shuffle(&mut others);
        let senders = u64::from(shape.senders);
        for (src, index) in others.into_iter().zip(0..senders) {
            // Every byte is sent by somebody: the first few send one more.
            let bytes = shape.bytes / senders + u64::from(index < shape.bytes % senders);
            let jitter = Duration::from_ps(stream.between(0, shape.jitter.as_ps()));
            let start = Time::ZERO + interval * u64::from(repeat) + jitter;
            flows.push(FlowSpec { start, src, dst: shape.to, bytes, traffic: Arc::clone(traffic) });
        }
    }
    flows
}
