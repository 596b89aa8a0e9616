//! A search for schedules that end in a deadlock: with all of Falcon's mechanisms against resource deadlocks there are
//! none; without any one of them there are (F-4, F-32, F-33; rank 19 of the targets).
//!
//! The setup has tiny pools and windows, two to eight connections between two NICs, and a network that loses,
//! duplicates and reorders packets. A schedule is a few hundred random steps; then nothing more is submitted except the
//! rest of messages that have started, nothing more is lost, and all pending work must complete with all resources
//! free.
//!
//! An upper layer can be limited to one Pull at a time. With Pushes and Pulls ([`Sort::Mixed`]), the initiator enforces
//! this, as RDMA's limit on outstanding Reads does. With Pulls alone ([`Sort::Pulls`]), the target may enforce it, by
//! being busy. The search found that it may not when there are Pushes: they share a window with Pull Data, so Pushes
//! that find no space because of waiting Pulls close the window for the very data that those Pulls wait for
//! ([`UpperLayer::pull`](rnic_falcon::transaction::UpperLayer::pull)).
//!
//! [`Sort::Messages`] is [`Sort::Mixed`] with messages of several Pushes, each of which needs a receive that the
//! connections of its target share, and which is returned when the message is complete. First Pushes that wait for
//! receives may hold all contexts; then the rest of the messages that have the receives finds none, unless there is a
//! [reserve](ResourceConfig::reserve). The reserve belongs to a part: where parts share a pool there is none.
//!
//! The limits on the resources of a connection ([`Shares`]) can block further packets, Pull Data too, so each world
//! exists with each type of isolation. With dynamic thresholds, shares are set at random in the middle of schedules, to
//! any value that an engine could give.

pub mod net;
pub mod ulp;

#[cfg(test)]
mod tests;

use net::{Net, World};
use rnic_base::{Duration, RandomStreams};
use rnic_falcon::resources::cost::{Transaction, Units};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::zone::Zones;
use rnic_falcon::resources::{Amount, Carving, ResourceConfig, Resources};
use rnic_falcon::transaction::{Ordering, TransactionConfig};
use rnic_wire::falcon::UlpProtocol;
use serde::Deserialize;
use ulp::Manners;

use crate::{Nature, Trial, read, within};

/// The deadlock search trial.
pub const TRIAL: Trial = Trial {
    name: "deadlock",
    nature: Nature::Searched,
    numbers: &["schedules", "deadlocks", "held", "transactions"],
    cost: |arguments| checked(arguments).map(|search| search.schedules * SCHEDULE_BYTES),
    run: |arguments, seed| {
        let search = checked(arguments)?;
        // Searches of equal length with other seeds run other schedules.
        let first = seed.wrapping_mul(search.schedules);
        let found = look(search.world(), first, search.schedules);
        Ok(serde_json::json!({
            "schedules": found.schedules,
            "deadlocks": found.deadlocks,
            "held": found.held,
            "transactions": found.transactions,
            // Schedule number with which a test can replay it.
            "first_deadlock": found.first,
        }))
    },
};

/// Arguments of a search: the traffic, the number of schedules, and the mechanisms in use against deadlocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Traffic of the upper layers.
    pub traffic: Sort,
    /// Delivery order of connections.
    pub ordering: Order,
    /// Number of schedules.
    pub schedules: u64,
    /// Parts of the resources that have pools of their own.
    #[serde(default)]
    pub carving: Carved,
    /// True when, if resources are scarce, only requests at the head of the line are admitted.
    #[serde(default = "yes")]
    pub head_of_line: bool,
    /// True when the two windows have separate sequence spaces.
    #[serde(default = "yes")]
    pub separate_spaces: bool,
    /// True when a context is reserved for messages that have started; has no effect where the parts share a pool.
    #[serde(default = "yes")]
    pub reserve: bool,
    /// Isolation mechanism that limits the resources of a connection.
    #[serde(default)]
    pub isolation: Shares,
}

fn yes() -> bool {
    true
}

/// Traffic of the upper layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Pushes and Pulls.
    Mixed,
    /// Pulls only.
    Pulls,
    /// Pulls, and Pushes of messages that need receives.
    Messages,
}

/// Delivery order of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Requests are delivered in order.
    Ordered,
    /// Requests are delivered in any order.
    Unordered,
}

/// [`Carving`], with the names used in arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carved {
    /// Each part has a pool of its own.
    #[default]
    Full,
    /// Sending and receiving share a pool.
    SharedDirections,
    /// Requests and responses share a pool.
    SharedClasses,
    /// All parts share one pool.
    None,
}

/// [`Isolation`], with the names used in arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// No limit.
    #[default]
    None,
    /// Two packets for each connection.
    Static,
    /// A share of the free resources, which changes at random.
    Dynamic,
}

impl Shares {
    /// All types of isolation.
    pub const ALL: [Self; 3] = [Self::None, Self::Static, Self::Dynamic];
}

impl Search {
    /// Returns a search with all mechanisms against deadlocks.
    pub const fn new(traffic: Sort, ordering: Order, schedules: u64) -> Self {
        let (carving, head_of_line, separate_spaces, reserve) = (Carved::Full, true, true, true);
        let isolation = Shares::None;
        Self { traffic, ordering, schedules, carving, head_of_line, separate_spaces, reserve, isolation }
    }

    /// Returns the world in which the search runs.
    pub fn world(&self) -> World {
        let world = match self.traffic {
            Sort::Mixed => MIXED,
            Sort::Pulls => PULLS,
            Sort::Messages => MESSAGES,
        };
        let carving = match self.carving {
            Carved::Full => Carving::Full,
            Carved::SharedDirections => Carving::SharedDirections,
            Carved::SharedClasses => Carving::SharedClasses,
            Carved::None => Carving::None,
        };
        let ordering = match self.ordering {
            Order::Ordered => Ordering::Ordered,
            Order::Unordered => Ordering::Unordered,
        };
        let isolation = match self.isolation {
            Shares::None => Isolation::None,
            Shares::Static => Isolation::Static { tx: STATIC, rx: STATIC },
            Shares::Dynamic => Isolation::Dynamic,
        };
        let zones = Zones { head_of_line_only: self.head_of_line, ..world.resources.zones };
        let has_reserve = self.reserve && self.carving == Carved::Full;
        let reserve = if has_reserve { world.resources.reserve } else { Transaction::NONE };
        World {
            resources: ResourceConfig { carving, zones, reserve, ..world.resources },
            transactions: TransactionConfig { ordering, isolation, ..world.transactions },
            shared_space: !self.separate_spaces,
            ..world
        }
    }
}

fn checked(arguments: &toml::Table) -> Result<Search, String> {
    let search: Search = read(arguments)?;
    within("schedules", search.schedules, 1, SCHEDULES_MAX)?;
    Ok(search)
}

/// Results of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
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

/// Runs `schedules` schedules from number `first` on.
pub fn look(world: World, first: u64, schedules: u64) -> Found {
    let mut found = Found::default();
    for nth in 0..schedules {
        let number = first.wrapping_add(nth);
        let (ends, net) = schedule(world, number);
        let completions = net.ends.iter().flatten().map(|end| end.ulp.completions.len() as u64);
        found.schedules += 1;
        found.transactions += completions.sum::<u64>();
        found.held += u64::from(!net.nics.iter().all(Resources::is_idle));
        if !ends {
            found.deadlocks += 1;
            found.first.get_or_insert(number);
        }
    }
    found
}

/// Returns whether the schedule `number` completes.
pub fn ends(world: World, number: u64) -> bool {
    schedule(world, number).0
}

fn schedule(world: World, number: u64) -> (bool, Net) {
    // A few connections complete all work quickly; deadlocks between many connections need many.
    let more = RandomStreams::new(number).stream("connections").below(world.connections as u64 - 1);
    let mut net = Net::new(World { connections: 2 + more as usize, ..world }, number);
    // The record of sent packets is not read.
    net.keeps_sent = false;
    let steps = STEPS_MIN + net.random.below(STEPS_MORE);
    (0..steps).for_each(|_| net.step(MTU));
    (net.settle(), net)
}

/// MTU in bytes: two buffers per packet.
const MTU: u16 = 512;
const UNITS: Units = Units { tx: 256, rx: 256 };

/// Amount of each part that a connection may hold, with static shares.
const STATIC: Amount = Amount { packets: 2, buffers: 4 };

/// The world for mixed traffic: four contexts for requests, and one in reserve.
const MIXED: World = World {
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
    manners: Manners { done_at_once: 300, not_ready: 50, in_error: 20, pulls_held: 0 },
    connections: 8,
    pushes: 500,
    pulls_out: 1,
    message: 1,
    receives: 0,
    window: 2,
    shared_space: false,
    diligence: 250,
    lost: 50,
    doubled: 20,
};

const PULLS: World = World { pushes: 0, pulls_out: 0, manners: Manners { pulls_held: 1, ..MIXED.manners }, ..MIXED };

/// The world for messages. A Push of a message is not completed in error: the handling of the rest is up to the upper
/// layer, and not a matter of resources.
const MESSAGES: World = World { manners: Manners { in_error: 0, ..MIXED.manners }, message: 4, receives: 2, ..MIXED };

const STEPS_MIN: u64 = 60;
const STEPS_MORE: u64 = 400;
/// Cost of a schedule in bytes: the fabric simulates about 8 GB per second on a core, and here it is 20 thousand
/// schedules per second.
const SCHEDULE_BYTES: u64 = 400_000;
/// Largest number of schedules: about a day's search.
const SCHEDULES_MAX: u64 = 1 << 32;
