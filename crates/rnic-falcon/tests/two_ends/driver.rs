//! State of a driver of Falcon's connections: that which the connections of a NIC share, and events in order of time.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, Time};
use rnic_fae::{ErasedPolicy, Filter, ProcessorConfig, StateLocation};
use rnic_falcon::adaptive::{AdaptiveEngine, Location, Placement};
use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::{Arrival, Departure};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::{Ordering, TransactionConfig, UpperLayer};
use rnic_policy::{Configured, ControlPolicy, Params};
use rnic_wire::falcon::UlpProtocol;

/// The control policy called `name`, with its defaults but for these parameters.
pub fn control(name: &str, options: &[(&str, &str)]) -> Configured<ControlPolicy> {
    let policy = rnic_transports::control::find(name).expect("a registered control policy");
    let mut params = Params::defaults(policy.params);
    for (name, value) in options {
        assert_eq!(params.set(policy.params, name, value), Ok(true), "{name}");
    }
    Configured { policy, params }
}

/// An adaptive engine that runs `program`; `queue` events can wait.
pub fn engine(
    program: Configured<ControlPolicy>,
    form: StateLocation,
    location: Location,
    queue: usize,
) -> AdaptiveEngine {
    let config = ProcessorConfig { form, connections: 0, line_rate: BitRate::gbps(200), mtu: 4_096 };
    let placement = Placement { location, queue, filter: Filter::open(queue) };
    AdaptiveEngine::new(ErasedPolicy(program), &config, &placement).expect("the policy runs in this form and location")
}

/// The usual transactions of RDMA, of at most 4 KB.
pub const TRANSACTIONS: TransactionConfig = TransactionConfig {
    ordering: Ordering::Ordered,
    protocol: UlpProtocol::Rdma,
    mtu: 4_096,
    outstanding: 64,
    timeout: Duration::from_secs(5),
    isolation: Isolation::None,
};

/// State that the connections of a NIC share.
#[derive(Debug)]
pub struct Nic {
    pub resources: Resources,
    pub adaptive: AdaptiveEngine,
    /// When the link takes the next packet.
    pub free_at: Time,
}

impl Nic {
    /// A NIC with the resources of 200 Gbit/s.
    pub fn new(adaptive: AdaptiveEngine) -> Self {
        Self { resources: Resources::new(ResourceConfig::GBPS_200), adaptive, free_at: Time::ZERO }
    }

    /// The packet of `end` that leaves now, if any; what that tells of is reported.
    pub fn transmit(&mut self, now: Time, end: &mut Connection, ulp: &mut impl UpperLayer) -> Option<Departure> {
        let departure = end.transmit(now, &mut self.resources, ulp);
        end.report_to_fae(now, &self.resources, &mut self.adaptive);
        departure
    }

    /// A packet arrives for `end`, and is reported.
    pub fn receive(&mut self, now: Time, end: &mut Connection, ulp: &mut impl UpperLayer, arrival: &Arrival<'_>) {
        end.receive(now, arrival, &mut self.resources, ulp);
        end.report_to_fae(now, &self.resources, &mut self.adaptive);
    }

    /// `end` does what is due now, and reports it.
    pub fn expire(&mut self, now: Time, end: &mut Connection, ulp: &mut impl UpperLayer) {
        end.expire(now, &mut self.resources, ulp);
        end.report_to_fae(now, &self.resources, &mut self.adaptive);
    }

    /// When `end` has something to do. What is due may be an acknowledgement, which waits for the link.
    pub fn wake(&self, end: &Connection) -> Option<Time> {
        let due = [end.timeout(), end.departure()].into_iter().flatten().min();
        due.map(|at| at.max(self.free_at))
    }
}

/// Events in order of time; those of one time, in the order in which they were scheduled.
#[derive(Debug)]
pub struct Timeline<E> {
    events: BTreeMap<(Time, u64), E>,
    count: u64,
}

impl<E> Timeline<E> {
    pub fn new() -> Self {
        Self { events: BTreeMap::new(), count: 0 }
    }

    pub fn schedule(&mut self, at: Time, event: E) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// When the next event happens.
    pub fn next_at(&self) -> Option<Time> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next event.
    pub fn pop(&mut self) -> Option<E> {
        self.events.pop_first().map(|(_, event)| event)
    }

    /// How many events were scheduled.
    pub fn count(&self) -> u64 {
        self.count
    }
}
