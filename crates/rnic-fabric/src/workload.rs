//! What hosts do: flows, from a description in the plan.
//!
//! A flow is one queue pair pair, made when the flow starts, that carries one message or a stream of them. A workload
//! is a [`Source`]: it says when the next flow starts and what it is. Every host draws from streams of its own
//! (`workload/host-3`), so that the flows of one do not depend on how many others there are.
//!
//! To add one: a file with a type that implements [`Source`] (or a function that gives a list of flows), a variant of
//! [`WorkloadPlan`], its keys in `plan/raw.rs` and
//! `plan/workloads.rs`.

pub mod collective;
pub mod distribution;
mod incast;
mod loops;
mod merged;
pub mod nvme;
mod permutation;
mod poisson;
mod trace_file;

use core::fmt;
use std::sync::Arc;

use rnic_base::limits::MESSAGE_BYTES_MAX;
use rnic_base::{BitRate, Duration, RandomStreams, Time};

use distribution::Distribution;

pub use loops::{Arrivals, Between};
pub use trace_file::{TraceError, read_trace};

/// What one message does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// RDMA Write; the receiver does not hear of it.
    Write,
    /// RDMA Write with immediate: the receiver's completion marks the end of the flow.
    WriteImmediate,
    /// Send into a posted receive.
    Send,
    /// RDMA Read: the bytes go the other way.
    Read,
    /// Fetch and add, by one, always on the same eight bytes.
    FetchAdd,
    /// Compare and swap that counts on the same eight bytes.
    CompareSwap,
}

impl Operation {
    /// All, with their names in plans.
    pub const ALL: [(&'static str, Self); 6] = [
        ("write", Self::Write),
        ("write-imm", Self::WriteImmediate),
        ("send", Self::Send),
        ("read", Self::Read),
        ("fetch-add", Self::FetchAdd),
        ("compare-swap", Self::CompareSwap),
    ];

    /// Whether the far end uses a receive, and so hears when it is done.
    pub fn consumes_receive(self) -> bool {
        matches!(self, Self::WriteImmediate | Self::Send)
    }

    /// Whether the side that posts sends its own bytes.
    pub fn carries_data(self) -> bool {
        matches!(self, Self::Write | Self::WriteImmediate | Self::Send)
    }

    /// Whether it works on eight bytes.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

/// How a flow's bytes are cut into messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// What each message does.
    pub op: Operation,
    /// Bytes of a message, at most.
    pub message_bytes: u64,
    /// Messages under way at once.
    pub depth: u32,
    /// So many messages, all of `message_bytes`; otherwise as many as the flow's bytes need.
    pub count: Option<u32>,
    /// Record how long each message takes, from posting to completion.
    pub latencies: bool,
    /// Post nothing new from then on, whatever is left.
    pub until: Option<Time>,
}

impl Traffic {
    /// One Write with immediate, whatever its size.
    pub const ONE_MESSAGE: Self = Self {
        op: Operation::WriteImmediate,
        message_bytes: MESSAGE_BYTES_MAX,
        depth: 1,
        count: None,
        latencies: false,
        until: None,
    };

    /// Messages of a flow of `bytes`; at least one.
    pub fn messages(&self, bytes: u64) -> u32 {
        let needed = || u32::try_from(bytes.div_ceil(self.message_bytes.max(1)).max(1)).unwrap_or(u32::MAX);
        self.count.unwrap_or_else(needed)
    }

    /// Bytes of message `index` of a flow of `bytes`.
    #[inline]
    pub fn message_len(&self, bytes: u64, index: u32) -> u32 {
        bytes.saturating_sub(u64::from(index) * self.message_bytes).min(self.message_bytes) as u32
    }

    /// Memory for a message, a multiple of eight bytes.
    #[inline]
    pub fn slot_bytes(&self, bytes: u64) -> u64 {
        bytes.min(self.message_bytes).next_multiple_of(8)
    }
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// When it starts.
    pub start: Time,
    /// The host that posts.
    pub src: u32,
    /// The host at the other end.
    pub dst: u32,
    /// Bytes of all its messages.
    pub bytes: u64,
    /// How they are cut.
    pub traffic: Arc<Traffic>,
    /// Which request it is a part of, where the workload has any: a request is done when all its flows are.
    pub request: Option<u32>,
    /// When its messages come after the first, at `start`; otherwise each follows when there is room for it.
    pub arrivals: Option<Arrivals>,
}

/// Where flows come from, in order of their start.
pub trait Source: fmt::Debug + Send {
    /// When the next flow starts, if there is another one.
    fn next_start(&self) -> Option<Time>;

    /// That flow.
    ///
    /// # Panics
    /// May panic when there is none.
    fn take(&mut self) -> FlowSpec;
}

/// A description of the flows of a run.
#[derive(Clone, Debug)]
pub enum WorkloadPlan {
    /// None: the caller posts work by hand.
    Manual,
    /// Flows arrive at each host at random, to random others.
    Poisson {
        /// Payload bits offered to each host's link, in millionths of its rate.
        load_ppm: u64,
        /// How large flows are.
        sizes: Arc<Distribution>,
        /// No flow starts after this.
        duration: Duration,
    },
    /// Several hosts send to one at once.
    Incast {
        /// How many, drawn at random.
        senders: u32,
        /// Bytes in all, striped over the senders.
        bytes: u64,
        /// The receiver.
        to: u32,
        /// Starts are spread over so long.
        jitter: Duration,
        /// How often.
        repeats: u32,
        /// From one to the next.
        interval: Duration,
        /// When the first one is.
        start: Duration,
        /// Other traffic at the same time.
        background: Option<Background>,
    },
    /// Every host sends to one other and receives from one other.
    Permutation {
        /// Bytes that each sends, of all its connections.
        bytes: u64,
        /// Connections of each: so many circles.
        connections: u32,
        /// In messages of this kind.
        traffic: Traffic,
    },
    /// Some queue pairs between some hosts and others, each with so many messages under way all the time.
    ClosedLoop {
        /// Which queue pairs.
        between: Between,
        /// Their starts are spread over so long.
        jitter: Duration,
        /// Every other queue pair does this instead.
        alternate: Option<Operation>,
        /// Messages of each queue pair.
        count: u32,
        /// Bytes of each message, and so on.
        traffic: Traffic,
    },
    /// The same, but messages come at random, whether those before them are done or not. What finds no room waits, and
    /// the time that it waits is a part of its latency.
    OpenLoop {
        /// Which queue pairs; each has the same share of the load.
        between: Between,
        /// Payload bits that all offer together, in millionths of the rate of one host's link.
        load_ppm: u64,
        /// Bytes of each message, and so on; none comes after its end.
        traffic: Traffic,
    },
    /// Hosts exchange data in steps, each when what it needs of the step before has come.
    Collective(collective::CollectivePlan),
    /// Hosts read and write a drive of another host.
    Nvme(nvme::NvmePlan),
    /// Flows as listed.
    Trace(Arc<[TraceFlow]>),
}

/// Poisson traffic between all hosts, beside something else.
#[derive(Clone, Debug)]
pub struct Background {
    /// Payload bits offered to each host's link, in millionths of its rate.
    pub load_ppm: u64,
    /// How large flows are.
    pub sizes: Arc<Distribution>,
    /// No flow starts after this.
    pub duration: Duration,
}

/// A line of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceFlow {
    /// When it starts.
    pub start: Time,
    /// From which host.
    pub src: u32,
    /// To which host.
    pub dst: u32,
    /// How many bytes.
    pub bytes: u64,
}

impl WorkloadPlan {
    /// When nothing more is posted, where the clock ends it.
    pub(crate) fn until(&self) -> Option<Time> {
        match self {
            Self::ClosedLoop { traffic, .. } | Self::OpenLoop { traffic, .. } => traffic.until,
            Self::Nvme(nvme) => Some(nvme.until),
            _ => None,
        }
    }

    /// When nothing more begins, where a duration says so.
    pub(crate) fn ends(&self) -> Option<Time> {
        match self {
            Self::Poisson { duration, .. } => Some(Time::ZERO + *duration),
            _ => self.until(),
        }
    }

    /// The last instant at which it may begin something by the clock.
    pub(crate) fn latest_start(&self) -> Time {
        let begins = match self {
            Self::Incast { jitter, repeats, interval, start, background, .. } => {
                let last = *start + *interval * u64::from(repeats.saturating_sub(1)) + *jitter;
                Time::ZERO + background.as_ref().map_or(last, |background| last.max(background.duration))
            }
            Self::ClosedLoop { jitter, .. } => Time::ZERO + *jitter,
            Self::Trace(flows) => flows.iter().map(|flow| flow.start).max().unwrap_or_default(),
            _ => Time::ZERO,
        };
        begins.max(self.ends().unwrap_or_default())
    }

    /// The flows, for `hosts` hosts whose links have `rate`.
    pub(crate) fn source(&self, hosts: u32, rate: BitRate, streams: &RandomStreams) -> Box<dyn Source> {
        let one = || Arc::new(Traffic::ONE_MESSAGE);
        match self {
            Self::Manual | Self::Nvme(_) => Box::new(List::new(Vec::new())),
            Self::Poisson { load_ppm, sizes, duration } => {
                Box::new(poisson::Poisson::new(hosts, rate, *load_ppm, Arc::clone(sizes), *duration, streams))
            }
            Self::Incast { senders, bytes, to, jitter, repeats, interval, start, background } => {
                let times = incast::Times { first: Time::ZERO + *start, repeats: *repeats, interval: *interval };
                let shape = incast::Shape { senders: *senders, bytes: *bytes, to: *to, jitter: *jitter };
                let requests = Box::new(List::new(incast::flows(hosts, &shape, &times, &one(), streams)));
                let Some(Background { load_ppm, sizes, duration }) = background else { return requests };
                let flows = poisson::Poisson::new(hosts, rate, *load_ppm, Arc::clone(sizes), *duration, streams);
                Box::new(merged::Merged::new(requests, Box::new(flows)))
            }
            Self::Permutation { bytes, connections, traffic } => {
                let each = *bytes / u64::from(*connections);
                Box::new(List::new(permutation::flows(hosts, each, *connections, &Arc::new(*traffic), streams)))
            }
            Self::ClosedLoop { between, jitter, alternate, count, traffic } => {
                Box::new(List::new(loops::closed(between, *jitter, *alternate, *count, traffic, streams)))
            }
            Self::OpenLoop { between, load_ppm, traffic } => {
                Box::new(List::new(loops::open(between, rate, *load_ppm, traffic, streams)))
            }
            Self::Collective(plan) => Box::new(List::new(plan.flows(streams))),
            Self::Trace(lines) => {
                let flow = |line: &TraceFlow| FlowSpec {
                    start: line.start,
                    src: line.src,
                    dst: line.dst,
                    bytes: line.bytes,
                    traffic: one(),
                    request: None,
                    arrivals: None,
                };
                Box::new(List::new(lines.iter().map(flow).collect()))
            }
        }
    }
}

/// Flows known beforehand.
#[derive(Debug)]
struct List {
    /// Last one first.
    flows: Vec<FlowSpec>,
}

impl List {
    fn new(mut flows: Vec<FlowSpec>) -> Self {
        // Stable: flows that start together stay in their order.
        flows.sort_by_key(|flow| flow.start);
        flows.reverse();
        Self { flows }
    }
}

impl Source for List {
    fn next_start(&self) -> Option<Time> {
        self.flows.last().map(|flow| flow.start)
    }

    fn take(&mut self) -> FlowSpec {
        self.flows.pop().expect("there is another flow")
    }
}

#[cfg(test)]
#[path = "workload/tests.rs"]
mod tests;
