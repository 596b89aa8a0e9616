//! Queue pairs that carry messages of one type, between hosts and their peers.
//!
//! In a closed loop a message is posted when one completes; in an open loop messages arrive by a separate Poisson
//! process for each queue pair, independently of earlier messages (Falcon, SIGCOMM'25, sections 6.1.1 and 6.2: Writes
//! with Poisson arrivals; Reads from many connections at varying bandwidths). An open loop ends only at a given time:
//! messages that have arrived by then are still carried, so that the latencies of an overload are complete.

use std::sync::Arc;

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Time};

use super::{FlowSpec, Operation, Traffic};

/// The hosts that post, and their peers. Queue pairs are distributed over the clients, and the queue pairs of a client
/// over the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Between {
    /// The first host that posts.
    pub from: u32,
    /// Number of hosts that post: `from` and the hosts with the next numbers.
    pub clients: u32,
    /// The first host at the remote end.
    pub to: u32,
    /// Number of hosts at the remote end: `to` and the hosts with the next numbers.
    pub servers: u32,
    /// Total number of queue pairs of all clients.
    pub queue_pairs: u32,
}

impl Between {
    /// Returns the host that posts on queue pair `index`, and its peer.
    pub(super) fn ends(&self, index: u32) -> (u32, u32) {
        (self.from + index % self.clients, self.to + index / self.clients % self.servers)
    }
}

/// Arrival times of the messages of a flow: the gaps are exponentially distributed.
#[derive(Clone, Debug)]
pub struct Arrivals {
    stream: RandomStream,
    mean_gap: Duration,
    until: Time,
}

impl Arrivals {
    /// Creates arrivals before `until`, with gaps of `mean_gap` on average.
    pub(super) fn new(stream: RandomStream, mean_gap: Duration, until: Time) -> Self {
        Self { stream, mean_gap, until }
    }

    /// Returns the arrival time of the message after the one at `now`, if there is another.
    pub(crate) fn after(&mut self, now: Time) -> Option<Time> {
        let at = now + self.stream.exponential(self.mean_gap);
        (at < self.until).then_some(at)
    }
}

/// Returns the flows of a closed loop; each has `count` messages.
pub(super) fn closed(
    between: &Between,
    jitter: Duration,
    alternate: Option<Operation>,
    count: u32,
    traffic: &Traffic,
    streams: &RandomStreams,
) -> Vec<FlowSpec> {
    let bytes = traffic.message_bytes * u64::from(count);
    let kind = |op| Arc::new(Traffic { op, count: Some(count), ..*traffic });
    let kinds = [kind(traffic.op), kind(alternate.unwrap_or(traffic.op))];
    let mut stream = streams.stream("workload/closed-loop");
    let flow = |index: u32| {
        let (src, dst) = between.ends(index);
        FlowSpec {
            start: Time::ZERO + Duration::from_ps(stream.between(0, jitter.as_ps())),
            src,
            dst,
            bytes,
            // Every client has both operations with every server: the operation changes only after all clients and
            // servers have been used.
            traffic: Arc::clone(&kinds[(index / between.clients / between.servers % 2) as usize]),
            request: None,
            arrivals: None,
            membership: None,
            lengths: None,
        }
    };
    (0..between.queue_pairs).map(flow).collect()
}

/// Returns the flows of an open loop that offers `load_ppm` of `rate` until the end of `traffic`; only queue pairs
/// for which a message arrives have a flow.
pub(super) fn open(
    between: &Between,
    rate: BitRate,
    load_ppm: u64,
    traffic: &Traffic,
    streams: &RandomStreams,
) -> Vec<FlowSpec> {
    // Mean gap: bytes * 8 * queue pairs / (rate * load), in picoseconds.
    let bits = u128::from(traffic.message_bytes) * 8 * u128::from(between.queue_pairs);
    let gap = bits * 1_000_000_000_000 * 1_000_000 / (u128::from(rate.as_bps()) * u128::from(load_ppm));
    let mean_gap = Duration::from_ps(u64::try_from(gap).unwrap_or(u64::MAX));
    let until = traffic.until.unwrap_or(Time::ZERO);
    let traffic = Arc::new(*traffic);
    let flow = |index: u32| {
        let stream = streams.stream(&format!("workload/open-loop-{index}"));
        let mut arrivals = Arrivals::new(stream, mean_gap, until);
        let ((src, dst), start) = (between.ends(index), arrivals.after(Time::ZERO)?);
        let bytes = traffic.message_bytes * u64::from(u32::MAX);
        let traffic = Arc::clone(&traffic);
        Some(FlowSpec {
            start,
            src,
            dst,
            bytes,
            traffic,
            request: None,
            arrivals: Some(arrivals),
            membership: None,
            lengths: None,
        })
    };
    (0..between.queue_pairs).filter_map(flow).collect()
}
