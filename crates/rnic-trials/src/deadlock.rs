//! Schedules that end in a deadlock, searched for: with everything that Falcon's resources have against it there is
//! none; without any one part of it there are (F-4, F-32, F-33; rank 19 of the targets).
//!
//! Tiny pools and windows, two to eight connections between two NICs, and a network that loses, doubles and reorders. A
//! schedule is a few hundred random steps; then nothing is handed in or lost any more but what ends messages that have
//! begun, and everything under way must end with all resources free.
//!
//! An upper layer can hold one Pull at a time. With Pushes and Pulls ([`Sort::Mixed`]), the initiator sees to that, as
//! RDMA's limit on outstanding Reads does. With Pulls alone ([`Sort::Pulls`]), the target may, by being busy. The
//! search found that it may not when there are Pushes: they share a window with Pull Data, so Pushes that find no room
//! because of Pulls that wait close the window for the very data that these wait for
//! ([`UpperLayer::pull`](rnic_falcon::transaction::UpperLayer::pull)).
//!
//! [`Sort::Messages`] is [`Sort::Mixed`] with messages of several Pushes, each of which needs a receive that the
//! connections of its target share, and which comes back when the message is done. First Pushes that wait for receives
//! may hold all contexts; then the rest of the messages that have the receives finds none, unless there is a
//! [reserve](ResourceConfig::reserve). That is of a part: where parts share a pool there is none.
//!
//! What a connection may hold of all that ([`Shares`]) lets further things wait, Pull Data too, so each world exists
//! with each kind of it. With dynamic thresholds shares are drawn anew in the middle of schedules, any that an engine
//! could give.

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

/// The trial.
pub const TRIAL: Trial = Trial {
    name: "deadlock",
    nature: Nature::Searched,
    numbers: &["schedules", "deadlocks", "held", "transactions"],
    cost: |arguments| checked(arguments).map(|search| search.schedules * SCHEDULE_BYTES),
    run: |arguments, seed| {
        let search = checked(arguments)?;
        // Searches of equal length with other seeds look at other schedules.
        let first = seed.wrapping_mul(search.schedules);
        let found = look(search.world(), first, search.schedules);
        Ok(serde_json::json!({
            "schedules": found.schedules,
            "deadlocks": found.deadlocks,
            "held": found.held,
            "transactions": found.transactions,
            // What the replay of a test asks for.
            "first_deadlock": found.first,
        }))
    },
};

/// What is searched, and with what against deadlocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// What upper layers do.
    pub traffic: Sort,
    /// In which order connections deliver.
    pub ordering: Order,
    /// How many schedules.
    pub schedules: u64,
    /// Which parts of the resources have room of their own.
    #[serde(default)]
    pub carving: Carved,
    /// Whether, where room is short, only requests at the head of their line are let in.
    #[serde(default = "yes")]
    pub head_of_line: bool,
    /// Whether the two windows have sequence spaces of their own.
    #[serde(default = "yes")]
    pub separate_spaces: bool,
    /// Whether a context is left for messages that have begun; never, where the parts share a pool.
    #[serde(default = "yes")]
    pub reserve: bool,
    /// How connections are kept from taking everything.
    #[serde(default)]
    pub isolation: Shares,
}

fn yes() -> bool {
    true
}

/// What upper layers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// They push and pull.
    Mixed,
    /// They pull.
    Pulls,
    /// They pull, and push messages that need receives.
    Messages,
}

/// In which order connections deliver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// In that of requests.
    Ordered,
    /// In any.
    Unordered,
}

/// [`Carving`], as arguments name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carved {
    /// Each part.
    #[default]
    Full,
    /// Sending and receiving share.
    SharedDirections,
    /// Requests and responses share.
    SharedClasses,
    /// One pool.
    None,
}

/// [`Isolation`], as arguments name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// They are not.
    #[default]
    None,
    /// Two packets each.
    Static,
    /// A share of what is free, which changes at random.
    Dynamic,
}

impl Shares {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::None, Self::Static, Self::Dynamic];
}

impl Search {
    /// One with everything against deadlocks.
    pub const fn new(traffic: Sort, ordering: Order, schedules: u64) -> Self {
        let (carving, head_of_line, separate_spaces, reserve) = (Carved::Full, true, true, true);
        let isolation = Shares::None;
        Self { traffic, ordering, schedules, carving, head_of_line, separate_spaces, reserve, isolation }
    }

    /// The world in which it searches.
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

/// What a search has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Schedules that were looked at.
    pub schedules: u64,
    /// Those that never ended.
    pub deadlocks: u64,
    /// Those after which resources were held.
    pub held: u64,
    /// The number of the first of them.
    pub first: Option<u64>,
    /// Transactions that have ended, of all schedules.
    pub transactions: u64,
}

/// Runs the schedules `first` and so many behind it.
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

/// Whether the schedule `number` ends.
pub fn ends(world: World, number: u64) -> bool {
    schedule(world, number).0
}

fn schedule(world: World, number: u64) -> (bool, Net) {
    // Few are soon through with everything; what many wait for each other with takes many.
    let more = RandomStreams::new(number).stream("connections").below(world.connections as u64 - 1);
    let mut net = Net::new(World { connections: 2 + more as usize, ..world }, number);
    // Nobody reads it.
    net.keeps_sent = false;
    let steps = STEPS_MIN + net.random.below(STEPS_MORE);
    (0..steps).for_each(|_| net.step(MTU));
    (net.settle(), net)
}

/// Two packets' worth of buffers.
const MTU: u16 = 512;
const UNITS: Units = Units { tx: 256, rx: 256 };

/// What a connection may hold of each part, with static shares.
const STATIC: Amount = Amount { packets: 2, buffers: 4 };

/// Four contexts for requests, and the one that is left.
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

/// A Push of a message is not completed in error: what becomes of the rest is the upper layer's business, not that of
/// resources.
const MESSAGES: World = World { manners: Manners { in_error: 0, ..MIXED.manners }, message: 4, receives: 2, ..MIXED };

const STEPS_MIN: u64 = 60;
const STEPS_MORE: u64 = 400;
/// What a schedule costs: the fabric moves some 8 GB in a second on a core, and here it is 20 thousand.
const SCHEDULE_BYTES: u64 = 400_000;
/// A day's search, about.
const SCHEDULES_MAX: u64 = 1 << 32;
