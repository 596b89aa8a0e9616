//! A search for schedules that end in a deadlock: with all of Falcon's mechanisms against resource deadlocks there are
//! none; without any one of them there are (Falcon mechanisms F-4, F-32, F-33; rank 19 of the targets).
//!
//! The setup has tiny pools and windows, two to eight connections between two NICs, and a network that loses,
//! duplicates and reorders packets. A schedule is a few hundred random steps; then nothing more is submitted except the
//! rest of messages that have started, nothing more is lost, and all pending work must complete with all resources
//! free. `rnic reproduce falcon/deadlock` counts the schedules that do not.
//!
//! An upper layer can be limited to one Pull at a time. With Pushes and Pulls ([`Scenario::MIXED`]), the initiator
//! enforces this, as RDMA's limit on outstanding Reads does. With Pulls alone ([`Scenario::PULLS`]), the target may
//! enforce it, by being busy. The search found that it may not when there are Pushes: they share a window with Pull
//! Data, so Pushes that find no space because of waiting Pulls close the window for the very data that those Pulls wait
//! for ([`UpperLayer::pull`](crate::transaction::UpperLayer::pull)).
//!
//! [`Scenario::MESSAGES`] is [`Scenario::MIXED`] with messages of several Pushes, each of which needs a receive that
//! the connections of its target share, and which is returned when the message is complete. First Pushes that wait for
//! receives may hold all contexts; then the rest of the messages that have the receives finds none, unless there is a
//! [reserve](ResourceConfig::reserve). The reserve belongs to a part: where parts share a pool there is none.
//!
//! The limits on the resources of a connection ([`Isolation`]) can block further packets, Pull Data too, so each
//! scenario exists with each type of isolation. With dynamic thresholds, shares are set at random in the middle of
//! schedules, to any value that an engine could give.

pub mod net;
pub mod ulp;

use net::{Net, Scenario};
use rnic_base::{Duration, RandomStreams};
use rnic_wire::falcon::UlpProtocol;
use ulp::UpperLayerBehaviour;

use crate::resources::cost::{Transaction, Units};
use crate::resources::threshold::Isolation;
use crate::resources::zone::Zones;
use crate::resources::{Amount, Carving, ResourceConfig, Resources};
use crate::transaction::{Ordering, TransactionConfig};

impl Scenario {
    /// Pushes and Pulls on ordered connections: four contexts for requests, and one in reserve.
    pub const MIXED: Self = Self {
        resources: ResourceConfig {
            capacity: [
                Amount { packets: 5, buffers: 10 },
                Amount { packets: 2, buffers: 4 },
                Amount { packets: 12, buffers: 20 },
                Amount { packets: 3, buffers: 6 },
            ],
            carving: Carving::Full,
            zones: Zones { green: Amount { packets: 2, buffers: 4 }, head_of_line_only: true },
            reserve: UNITS.push(MTU as u32),
            units: UNITS,
        },
        transactions: TransactionConfig {
            ordering: Ordering::Ordered,
            protocol: UlpProtocol::Rdma,
            mtu: MTU,
            outstanding: 8,
            timeout: Duration::from_secs(1_000),
            isolation: Isolation::None,
        },
        manners: UpperLayerBehaviour { done_at_once: 300, not_ready: 50, in_error: 20, pulls_held: 0 },
        connections: 8,
        pushes: 500,
        pulls_out: 1,
        message: 1,
        receives: 0,
        window: 2,
        shared_space: false,
        work_probability: 250,
        lost: 50,
        doubled: 20,
    };

    /// Pulls only.
    pub const PULLS: Self = Self {
        pushes: 0,
        pulls_out: 0,
        manners: UpperLayerBehaviour { pulls_held: 1, ..Self::MIXED.manners },
        ..Self::MIXED
    };

    /// Pulls, and Pushes of messages that need receives. A Push that belongs to a message is never completed in error
    /// here: what happens to the message's remaining Pushes is decided by the upper layer, and is not what this search
    /// tests.
    pub const MESSAGES: Self = Self {
        manners: UpperLayerBehaviour { in_error: 0, ..Self::MIXED.manners },
        message: 4,
        receives: 2,
        ..Self::MIXED
    };

    /// All types of isolation; with static shares, a connection may hold two packets of each part.
    pub const ISOLATIONS: [Isolation; 3] =
        [Isolation::None, Isolation::Static { tx: STATIC_SHARE, rx: STATIC_SHARE }, Isolation::Dynamic];

    /// Returns this scenario with connections of this delivery order.
    #[must_use]
    pub const fn with_ordering(mut self, ordering: Ordering) -> Self {
        self.transactions.ordering = ordering;
        self
    }

    /// Returns this scenario with this isolation of connections.
    #[must_use]
    pub const fn with_isolation(mut self, isolation: Isolation) -> Self {
        self.transactions.isolation = isolation;
        self
    }

    /// Returns this scenario with resources divided into pools by `carving`; if parts share a pool, there is no
    /// reserve.
    #[must_use]
    pub fn with_carving(mut self, carving: Carving) -> Self {
        self.resources.carving = carving;
        if carving == Carving::Full { self } else { self.without_reserve() }
    }

    /// Returns this scenario with no context reserved for messages that have started.
    #[must_use]
    pub const fn without_reserve(mut self) -> Self {
        self.resources.reserve = Transaction::NONE;
        self
    }

    /// Returns this scenario with requests admitted regardless of their position in the queue, even when resources are
    /// scarce.
    #[must_use]
    pub const fn without_head_of_line(mut self) -> Self {
        self.resources.zones.head_of_line_only = false;
        self
    }
}

/// Results of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SearchResults {
    /// Number of schedules run.
    pub schedules: u64,
    /// Number of schedules that never completed.
    pub deadlocks: u64,
    /// Number of schedules after which resources were held.
    pub held: u64,
    /// Number of the first schedule that never completed.
    pub first: Option<u64>,
    /// Transactions completed, in all schedules.
    pub transactions: u64,
}

/// Runs `count` schedules, starting with number `first`, and counts the deadlocks.
pub fn run_schedules(scenario: Scenario, first: u64, count: u64) -> SearchResults {
    let mut found = SearchResults::default();
    for nth in 0..count {
        let number = first.wrapping_add(nth);
        let (completes, net) = run_schedule(scenario, number);
        let completions = net.ends.iter().flatten().map(|end| end.ulp.completions.len() as u64);
        found.schedules += 1;
        found.transactions += completions.sum::<u64>();
        found.held += u64::from(!net.nics.iter().all(Resources::is_idle));
        if !completes {
            found.deadlocks += 1;
            found.first.get_or_insert(number);
        }
    }
    found
}

/// Returns whether the schedule `number` completes.
pub fn completes(scenario: Scenario, number: u64) -> bool {
    run_schedule(scenario, number).0
}

fn run_schedule(scenario: Scenario, number: u64) -> (bool, Net) {
    // A few connections complete all work quickly; deadlocks between many connections need many.
    let extra_connections = RandomStreams::new(number).stream("connections").below(scenario.connections as u64 - 1);
    let mut net = Net::new(Scenario { connections: 2 + extra_connections as usize, ..scenario }, number);
    let steps = STEPS_MIN + net.random.below(STEPS_RANDOM_MAX);
    (0..steps).for_each(|_| net.step(MTU));
    (net.settle(), net)
}

/// MTU in bytes: two buffers per packet.
const MTU: u16 = 512;
const UNITS: Units = Units { tx: 256, rx: 256 };

/// Amount of each resource that a connection may hold, with static shares.
const STATIC_SHARE: Amount = Amount { packets: 2, buffers: 4 };

const STEPS_MIN: u64 = 60;
const STEPS_RANDOM_MAX: u64 = 400;
