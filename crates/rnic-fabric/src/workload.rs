//! Workloads generate the flows of hosts from a description in the plan.
//!
//! A flow is a pair of queue pairs, created when the flow starts, that carries one message or a stream of them. A
//! workload is a [`Source`]: it returns the start of the next flow and its description. Every host has separate
//! random streams (`workload/host-3`), so that the flows of one host do not depend on the number of hosts.
//!
//! To add a workload, add a file with a type that implements [`Source`] (or a function that returns a list of flows),
//! a variant of [`WorkloadPlan`], and its keys in `plan/raw/workload.rs` and `plan/workloads.rs`.

pub mod chakra;
pub mod collective;
pub mod distribution;
mod flow_file;
pub mod groups;
mod incast;
mod loops;
mod merged;
pub mod nvme;
mod permutation;
mod poisson;
pub(crate) mod script;
pub mod tenants;
mod text;

use core::fmt;
use std::sync::Arc;

use rnic_base::limits::MESSAGE_BYTES_MAX;
use rnic_base::{BitRate, Duration, RandomStreams, Time};

use distribution::Distribution;

pub use flow_file::{
    FILE_BYTES_MAX, FLOWS_MAX, FlowFile, FlowFormat, TraceFlow, TriggerKind, TriggerLinks, Triggers, read_flows,
};
pub use loops::{Arrivals, Between};
pub use text::ReadError;

/// The operation of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// RDMA Write, without a completion at the receiver.
    Write,
    /// RDMA Write with immediate: the receiver's completion marks the end of the flow.
    WriteImmediate,
    /// Send into a posted receive.
    Send,
    /// RDMA Read: the data is transferred in the opposite direction.
    Read,
    /// Fetch and add of one, always on the same eight bytes.
    FetchAdd,
    /// Compare and swap that increments the same eight bytes.
    CompareSwap,
}

impl Operation {
    /// All operations, with their names in plans.
    pub const ALL: [(&'static str, Self); 6] = [
        ("write", Self::Write),
        ("write-imm", Self::WriteImmediate),
        ("send", Self::Send),
        ("read", Self::Read),
        ("fetch-add", Self::FetchAdd),
        ("compare-swap", Self::CompareSwap),
    ];

    /// Returns whether the operation consumes a receive at the remote end, so that the remote end gets a completion.
    pub fn consumes_receive(self) -> bool {
        matches!(self, Self::WriteImmediate | Self::Send)
    }

    /// Returns whether the posting side sends payload.
    pub fn carries_data(self) -> bool {
        matches!(self, Self::Write | Self::WriteImmediate | Self::Send)
    }

    /// Returns whether the operation is an atomic on eight bytes.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

/// The division of a flow's bytes into messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Operation of each message.
    pub op: Operation,
    /// Maximum number of bytes of a message.
    pub message_bytes: u64,
    /// Maximum number of messages in flight.
    pub depth: u32,
    /// Number of messages, all of `message_bytes`; `None`: as many as the flow's bytes need.
    pub count: Option<u32>,
    /// True when the time of each message, from post to completion, is recorded.
    pub latencies: bool,
    /// Time after which no new message is posted, even if some are left.
    pub until: Option<Time>,
    /// Time from the completion of a message to the post of the next one.
    pub think: Duration,
}

impl Traffic {
    /// Traffic of one Write with immediate, of any size.
    pub const ONE_MESSAGE: Self = Self {
        op: Operation::WriteImmediate,
        message_bytes: MESSAGE_BYTES_MAX,
        depth: 1,
        count: None,
        latencies: false,
        until: None,
        think: Duration::ZERO,
    };

    /// Returns the number of messages of a flow of `bytes`; at least one.
    pub fn messages(&self, bytes: u64) -> u32 {
        let needed = || u32::try_from(bytes.div_ceil(self.message_bytes.max(1)).max(1)).unwrap_or(u32::MAX);
        self.count.unwrap_or_else(needed)
    }

    /// Returns the number of bytes of message `index` of a flow of `bytes`.
    #[inline]
    pub fn message_len(&self, bytes: u64, index: u32) -> u32 {
        bytes.saturating_sub(u64::from(index) * self.message_bytes).min(self.message_bytes) as u32
    }

    /// Returns the size of the memory for a message in bytes, a multiple of eight.
    #[inline]
    pub fn slot_bytes(&self, bytes: u64) -> u64 {
        bytes.min(self.message_bytes).next_multiple_of(8)
    }
}

/// The description of a flow.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Time at which it starts.
    pub start: Time,
    /// The host that posts the messages.
    pub src: u32,
    /// Host at the other end of the flow.
    pub dst: u32,
    /// Total bytes of all its messages.
    pub bytes: u64,
    /// The division into messages.
    pub traffic: Arc<Traffic>,
    /// Number of the request that the flow is a part of, when the workload has requests: a request is complete when all
    /// its flows are.
    pub request: Option<u32>,
    /// Arrival times of the messages after the first one, which arrives at `start`; `None`: each message is posted as
    /// soon as the number in flight allows it.
    pub arrivals: Option<Arrivals>,
    /// The tenant that the flow belongs to, in the workload `tenants`.
    pub membership: Option<tenants::Membership>,
    /// Bytes of each message, for messages of different sizes; `traffic` has their number and the largest size.
    pub lengths: Option<Arc<[u32]>>,
}

/// A sequence of flows, in order of their start.
pub trait Source: fmt::Debug + Send {
    /// Returns the start of the next flow, if there is another one.
    fn next_start(&self) -> Option<Time>;

    /// Removes the next flow and returns it.
    ///
    /// # Panics
    /// May panic when there is none.
    fn next_flow(&mut self) -> FlowSpec;

    /// Returns the index of the group of traffic that the next flow belongs to; 0 in plans without groups.
    fn next_group(&self) -> u32 {
        0
    }

    /// Notes that a flow has completed at its sender, or has arrived at its receiver; flows are numbered from 0 in the
    /// order in which they were returned. All events before `now` have been processed, so a flow that starts because of
    /// it starts at `now` or later.
    fn ended(&mut self, flow: u32, is_at_receiver: bool, now: Time) {
        let _ = (flow, is_at_receiver, now);
    }
}

/// A description of the flows of a run.
#[derive(Clone, Debug)]
pub enum WorkloadPlan {
    /// No flows: the caller posts work itself.
    Manual,
    /// Flows arrive at each host at random, to random destinations.
    Poisson {
        /// Payload offered to each host's link, in millionths of the link's rate.
        load_ppm: u64,
        /// Sizes of flows.
        sizes: Arc<Distribution>,
        /// Time after which no flow starts.
        duration: Duration,
        /// Operation of each flow.
        op: Operation,
    },
    /// Several hosts send to one at the same time.
    Incast {
        /// Number of senders, chosen at random.
        senders: u32,
        /// Total bytes of a request, striped over the senders.
        bytes: u64,
        /// Host that receives from all others.
        to: u32,
        /// Interval over which the starts are distributed.
        jitter: Duration,
        /// Number of requests.
        repeats: u32,
        /// Interval from one request to the next.
        interval: Duration,
        /// Time of the first request.
        start: Duration,
        /// Other traffic at the same time.
        background: Option<Background>,
        /// Operation of each flow, of the other traffic too.
        op: Operation,
    },
    /// On each of its connections, every host sends to one other host; it receives on as many connections.
    Permutation {
        /// Bytes that each host sends, over all its connections.
        bytes: u64,
        /// Number of connections of each host. The connections with the same index form one random cycle through all
        /// hosts, in which each host sends to the next; each index has its own cycle.
        connections: u32,
        /// The division into messages.
        traffic: Traffic,
    },
    /// Queue pairs between two groups of hosts, each with a fixed number of messages in flight.
    ClosedLoop {
        /// Hosts and number of queue pairs.
        between: Between,
        /// Interval over which the starts of the queue pairs are distributed.
        jitter: Duration,
        /// Operation of every second queue pair, when it differs from that of `traffic`.
        alternate: Option<Operation>,
        /// Number of messages of each queue pair.
        count: u32,
        /// Operation and size of each message, and further parameters.
        traffic: Traffic,
    },
    /// Like a closed loop, but messages arrive at random, independently of the completion of earlier messages. A
    /// message that cannot be posted yet waits, and the wait is a part of its latency.
    OpenLoop {
        /// Hosts and number of queue pairs; each queue pair has the same share of the load.
        between: Between,
        /// Payload that all queue pairs offer together, in millionths of the rate of the first client's link.
        load_ppm: u64,
        /// Operation and size of each message, and further parameters; no message arrives after `until`.
        traffic: Traffic,
    },
    /// Hosts exchange data in steps; each host starts a step when it has received the data of the step before.
    Collective(collective::CollectivePlan),
    /// Groups of queue pairs with different sizes of messages share the NICs of their hosts.
    Tenants(tenants::TenantsPlan),
    /// Hosts read and write a drive of another host.
    Nvme(nvme::NvmePlan),
    /// Nodes of execution traces, each after those that it depends on.
    Chakra(chakra::ChakraPlan),
    /// Flows as listed in a file.
    Trace(Arc<FlowFile>),
    /// Several groups of traffic at the same time, ordered by name.
    Groups(Vec<groups::GroupPlan>),
}

/// Poisson traffic between all hosts, in addition to other flows.
#[derive(Clone, Debug)]
pub struct Background {
    /// Payload offered to each host's link, in millionths of the link's rate.
    pub load_ppm: u64,
    /// Sizes of flows.
    pub sizes: Arc<Distribution>,
    /// Time after which no flow starts.
    pub duration: Duration,
}

impl WorkloadPlan {
    /// Returns the time after which no message or command is posted, for workloads that end at a given time.
    pub(crate) fn until(&self) -> Option<Time> {
        match self {
            Self::ClosedLoop { traffic, .. } | Self::OpenLoop { traffic, .. } => traffic.until,
            Self::Nvme(nvme) => Some(nvme.until),
            Self::Tenants(tenants) => Some(tenants.until),
            Self::Groups(groups) => groups.iter().filter_map(|group| group.workload.until()).max(),
            _ => None,
        }
    }

    /// Returns the time after which no flow, message or command starts, for workloads with a duration.
    pub(crate) fn ends(&self) -> Option<Time> {
        match self {
            Self::Poisson { duration, .. } => Some(Time::ZERO + *duration),
            Self::Groups(groups) => groups.iter().filter_map(|group| group.workload.ends()).max(),
            _ => self.until(),
        }
    }

    /// Returns the latest scheduled start of a flow, message or command.
    pub(crate) fn latest_start(&self) -> Time {
        let latest = match self {
            Self::Incast { jitter, repeats, interval, start, background, .. } => {
                let last = *start + *interval * u64::from(repeats.saturating_sub(1)) + *jitter;
                Time::ZERO + background.as_ref().map_or(last, |background| last.max(background.duration))
            }
            Self::ClosedLoop { jitter, .. } => Time::ZERO + *jitter,
            Self::Trace(file) => file.flows.iter().map(|flow| flow.start).max().unwrap_or_default(),
            Self::Chakra(plan) => Time::ZERO + plan.script.shortest_time(),
            Self::Groups(groups) => groups.iter().map(|group| group.workload.latest_start()).max().unwrap_or_default(),
            _ => Time::ZERO,
        };
        latest.max(self.ends().unwrap_or_default())
    }

    /// Returns the groups of traffic; empty when the workload is the only one.
    pub(crate) fn groups(&self) -> &[groups::GroupPlan] {
        match self {
            Self::Groups(groups) => groups,
            _ => &[],
        }
    }

    /// Returns the collectives, which may be one of several groups, and the index of that group.
    pub(crate) fn collective(&self) -> Option<(&collective::CollectivePlan, u32)> {
        match self {
            Self::Collective(collective) => Some((collective, 0)),
            Self::Groups(groups) => {
                let of_group = |(group, index): (&groups::GroupPlan, u32)| match &group.workload {
                    Self::Collective(_) => Some(index),
                    _ => None,
                };
                let index = groups.iter().zip(0..).find_map(of_group)?;
                let (collective, _) = groups[index as usize].workload.collective()?;
                Some((collective, index))
            }
            _ => None,
        }
    }

    /// Returns the flows, for hosts whose links have these rates.
    pub(crate) fn source(&self, rates: &[BitRate], streams: &RandomStreams) -> Box<dyn Source> {
        let hosts = rates.len() as u32;
        let one = |op: &Operation| Arc::new(Traffic { op: *op, ..Traffic::ONE_MESSAGE });
        match self {
            Self::Manual | Self::Nvme(_) => Box::new(FlowList::new(Vec::new())),
            Self::Poisson { load_ppm, sizes, duration, op } => {
                let shape = poisson::Shape { load_ppm: *load_ppm, sizes: Arc::clone(sizes), duration: *duration };
                Box::new(poisson::Poisson::new(rates, shape, one(op), streams))
            }
            Self::Incast { senders, bytes, to, jitter, repeats, interval, start, background, op } => {
                let times = incast::Times { first: Time::ZERO + *start, repeats: *repeats, interval: *interval };
                let shape = incast::Shape { senders: *senders, bytes: *bytes, to: *to, jitter: *jitter };
                let requests = Box::new(FlowList::new(incast::flows(hosts, &shape, &times, &one(op), streams)));
                let Some(Background { load_ppm, sizes, duration }) = background else { return requests };
                let shape = poisson::Shape { load_ppm: *load_ppm, sizes: Arc::clone(sizes), duration: *duration };
                let flows = poisson::Poisson::new(rates, shape, one(op), streams);
                Box::new(merged::Merged::new(requests, Box::new(flows)))
            }
            Self::Permutation { bytes, connections, traffic } => {
                let bytes_per_connection = *bytes / u64::from(*connections);
                Box::new(FlowList::new(permutation::flows(
                    hosts,
                    bytes_per_connection,
                    *connections,
                    &Arc::new(*traffic),
                    streams,
                )))
            }
            Self::ClosedLoop { between, jitter, alternate, count, traffic } => {
                Box::new(FlowList::new(loops::closed(between, *jitter, *alternate, *count, traffic, streams)))
            }
            Self::OpenLoop { between, load_ppm, traffic } => {
                let rate = rates[between.from as usize];
                Box::new(FlowList::new(loops::open(between, rate, *load_ppm, traffic, streams)))
            }
            Self::Tenants(plan) => Box::new(FlowList::new(plan.flows(streams))),
            Self::Collective(plan) => Box::new(FlowList::new(plan.flows(streams))),
            Self::Chakra(plan) => Box::new(FlowList::new(plan.flows())),
            Self::Groups(groups) => Box::new(groups::Mixed::new(groups, rates, streams)),
            Self::Trace(file) => {
                let traffics = Operation::ALL.map(|(_, op)| Arc::new(Traffic { op, ..Traffic::ONE_MESSAGE }));
                let flow = |line: &TraceFlow| FlowSpec {
                    start: line.start,
                    src: line.src,
                    dst: line.dst,
                    bytes: line.bytes,
                    traffic: Arc::clone(&traffics[line.op as usize]),
                    request: None,
                    arrivals: None,
                    membership: None,
                    lengths: None,
                };
                let flows = file.flows.iter().map(flow).collect();
                match &file.triggers {
                    Some(triggers) => Box::new(flow_file::Triggered::new(triggers, flows)),
                    None => Box::new(FlowList::new(flows)),
                }
            }
        }
    }
}

/// Flows that are known in advance.
#[derive(Debug)]
struct FlowList {
    /// The flows, last one first.
    flows: Vec<FlowSpec>,
}

impl FlowList {
    fn new(mut flows: Vec<FlowSpec>) -> Self {
        // The sort is stable: the order of flows that start at the same time is preserved.
        flows.sort_by_key(|flow| flow.start);
        flows.reverse();
        Self { flows }
    }
}

impl Source for FlowList {
    fn next_start(&self) -> Option<Time> {
        self.flows.last().map(|flow| flow.start)
    }

    fn next_flow(&mut self) -> FlowSpec {
        self.flows.pop().expect("a flow is left")
    }
}

#[cfg(test)]
#[path = "workload/tests.rs"]
mod tests;
