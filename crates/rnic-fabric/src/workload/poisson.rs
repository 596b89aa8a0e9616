//! Flows arrive at each host in a Poisson process, with random destinations.
//!
//! Source: IRN (SIGCOMM'18) section 4.1: Poisson arrivals per host, destinations chosen at random among the others,
//! sizes from a distribution. The load counts payload alone, without headers; this is OpenRNIC's choice (20.8
//! thousand flows per second and host for 70 % of 40 Gbit/s).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams, Time};

use super::distribution::Distribution;
use super::{FlowSpec, Source, Traffic};

/// Parameters of the arrivals.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Payload offered to each host's link, in millionths of the link's rate.
    pub(super) load_ppm: u64,
    pub(super) sizes: Arc<Distribution>,
    /// Time after which no flow starts.
    pub(super) duration: Duration,
}

/// Poisson arrivals at every host.
#[derive(Debug)]
pub(super) struct Poisson {
    sizes: Arc<Distribution>,
    end: Time,
    /// Mean time between arrivals, and random numbers, of each host.
    hosts: Vec<(Duration, RandomStream)>,
    /// Time of the next arrival at each host.
    next: BinaryHeap<Reverse<(Time, u32)>>,
    traffic: Arc<Traffic>,
}

impl Poisson {
    /// Creates arrivals at hosts whose links have these rates.
    pub(super) fn new(rates: &[BitRate], shape: Shape, traffic: Arc<Traffic>, streams: &RandomStreams) -> Self {
        let Shape { load_ppm, sizes, duration } = shape;
        // Mean gap: bytes * 8 / (rate * load), in picoseconds.
        let numerator = u128::from(sizes.mean_milli_bytes()) * 8 * 1_000_000_000 * 1_000_000;
        let host = |(rate, host): (&BitRate, u32)| {
            let gap = numerator / (u128::from(rate.as_bps()) * u128::from(load_ppm));
            let stream = streams.stream(&format!("workload/host-{host}"));
            (Duration::from_ps(u64::try_from(gap).unwrap_or(u64::MAX)), stream)
        };
        let hosts: Vec<_> = rates.iter().zip(0..).map(host).collect();
        let count = hosts.len() as u32;
        let mut source = Self { sizes, end: Time::ZERO + duration, hosts, next: BinaryHeap::new(), traffic };
        (0..count).for_each(|host| source.schedule(Time::ZERO, host));
        source
    }

    fn schedule(&mut self, after: Time, host: u32) {
        let (mean_gap, stream) = &mut self.hosts[host as usize];
        let start = after + stream.exponential(*mean_gap);
        if start < self.end {
            self.next.push(Reverse((start, host)));
        }
    }
}

impl Source for Poisson {
    fn next_start(&self) -> Option<Time> {
        self.next.peek().map(|Reverse((start, _))| *start)
    }

    fn next_flow(&mut self) -> FlowSpec {
        let Reverse((start, src)) = self.next.pop().expect("a flow is left");
        let others = self.hosts.len() as u64 - 1;
        let (_, stream) = &mut self.hosts[src as usize];
        let random_index = stream.below(others) as u32;
        let dst = if random_index < src { random_index } else { random_index + 1 };
        let bytes = self.sizes.draw(stream);
        self.schedule(start, src);
        FlowSpec {
            start,
            src,
            dst,
            bytes,
            traffic: Arc::clone(&self.traffic),
            request: None,
            arrivals: None,
            membership: None,
            lengths: None,
        }
    }
}
