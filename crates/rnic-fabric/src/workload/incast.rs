//! Incast: many hosts send to one.
//!
//! Source: IRN (SIGCOMM'18) section 4.4.3: a request of a given number of bytes, striped over M randomly chosen
//! senders, to one fixed destination; the measured time ends when the last flow is done. Starts are distributed over
//! a few microseconds (OpenRNIC's choice).

use std::sync::Arc;

use rnic_base::{Duration, RandomStreams, Time};

use super::{FlowSpec, Traffic};

/// Parameters of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) senders: u32,
    pub(super) bytes: u64,
    pub(super) to: u32,
    pub(super) jitter: Duration,
}

/// Times of the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) first: Time,
    pub(super) repeats: u32,
    pub(super) interval: Duration,
}

/// Returns the flows of all requests.
pub(super) fn flows(
    hosts: u32,
    shape: &Shape,
    times: &Times,
    traffic: &Arc<Traffic>,
    streams: &RandomStreams,
) -> Vec<FlowSpec> {
    let mut stream = streams.stream("workload/incast");
    let mut flows = Vec::new();
    for repeat in 0..times.repeats {
        let mut others: Vec<u32> = (0..hosts).filter(|host| *host != shape.to).collect();
        stream.shuffle(&mut others);
        let senders = u64::from(shape.senders);
        for (src, index) in others.into_iter().zip(0..senders) {
            // The remainder of the division is distributed: the first senders send one byte more.
            let bytes = shape.bytes / senders + u64::from(index < shape.bytes % senders);
            let jitter = Duration::from_ps(stream.between(0, shape.jitter.as_ps()));
            let start = times.first + times.interval * u64::from(repeat) + jitter;
            let (dst, traffic) = (shape.to, Arc::clone(traffic));
            flows.push(FlowSpec {
                start,
                src,
                dst,
                bytes,
                traffic,
                request: Some(repeat),
                arrivals: None,
                membership: None,
                lengths: None,
            });
        }
    }
    flows
}
