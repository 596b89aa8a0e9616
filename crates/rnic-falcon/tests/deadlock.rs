//! Rank 19 of the targets: with carving, admission at the head of the line and separate sequence spaces, no schedule
//! ends in a deadlock; take any of the three away, and one is found.
//!
//! Tiny pools and windows, three connections between two NICs, and a network that loses, doubles and reorders. A
//! schedule is a few hundred random steps; then nothing is handed in or lost any more, and everything under way must
//! end with all resources free.
//!
//! An upper layer can hold one Pull at a time. With Pushes and Pulls ([`MIXED`]), the initiator sees to that, as RDMA's
//! limit on outstanding Reads does. With Pulls alone ([`PULLS`]), the target may, by being busy. The search found that
//! it may not when there are Pushes: they share a window with Pull Data, so Pushes that find no room because of Pulls
//! that wait close the window for the very data that these wait for
//! ([`UpperLayer::pull`](rnic_falcon::transaction::UpperLayer::pull)).
//!
//! A seed that fails is replayed with `RNIC_FALCON_SEED=<seed> cargo test -p rnic-falcon --test deadlock replay`.

mod common;

use common::net::{Net, World};
use common::ulp::Manners;
use rnic_base::Duration;
use rnic_falcon::resources::cost::{Transaction, Units};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::zone::Zones;
use rnic_falcon::resources::{Amount, Carving, ResourceConfig};
use rnic_falcon::transaction::{Ordering, TransactionConfig};
use rnic_wire::falcon::UlpProtocol;

const MTU: u16 = 512;

const MIXED: World = World {
    resources: ResourceConfig {
        capacity: [
            Amount { packets: 4, buffers: 8 },
            Amount { packets: 2, buffers: 4 },
            Amount { packets: 12, buffers: 20 },
            Amount { packets: 3, buffers: 6 },
        ],
        carving: Carving::Full,
        zones: Zones { green: Amount { packets: 2, buffers: 4 }, head_of_line_only: true },
        reserve: Transaction::NONE,
        units: Units { tx: 256, rx: 256 },
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
    connections: 3,
    pushes: 500,
    pulls_out: 1,
    window: 2,
    shared_space: false,
    diligence: 250,
    lost: 50,
    doubled: 20,
};

const PULLS: World = World { pushes: 0, pulls_out: 0, manners: Manners { pulls_held: 1, ..MIXED.manners }, ..MIXED };

fn ordering(world: World, ordering: Ordering) -> World {
    World { transactions: TransactionConfig { ordering, ..world.transactions }, ..world }
}

/// Everything that must hold: of both sorts, in both orders.
fn worlds() -> [World; 4] {
    let both = |world| [ordering(world, Ordering::Ordered), ordering(world, Ordering::Unordered)];
    let ([a, b], [c, d]) = (both(MIXED), both(PULLS));
    [a, b, c, d]
}

/// Runs schedule `seed`; whether it ends.
fn ends(world: World, seed: u64) -> bool {
    let mut net = Net::new(world, seed);
    let steps = 60 + net.random.below(400);
    (0..steps).for_each(|_| net.step(MTU));
    net.settle()
}

fn first_deadlock(world: World, seeds: std::ops::Range<u64>) -> Option<u64> {
    seeds.into_iter().find(|seed| !ends(world, *seed))
}

fn holds(seeds: u64) {
    for (index, world) in worlds().into_iter().enumerate() {
        if let Some(seed) = first_deadlock(world, 0..seeds) {
            panic!("world {index}: RNIC_FALCON_SEED={seed} cargo test -p rnic-falcon --test deadlock replay");
        }
    }
}

fn finds(world: World) -> bool {
    first_deadlock(world, 0..SEARCH).is_some()
}

/// Schedules in which each ablation must show its deadlock.
const SEARCH: u64 = 20_000;

#[test]
fn f32_no_schedule_ends_in_a_deadlock() {
    holds(1_500);
}

/// `cargo test --release -p rnic-falcon --test deadlock -- --ignored`: some minutes.
#[test]
#[ignore = "long: a million schedules"]
fn f32_no_schedule_of_a_million_ends_in_a_deadlock() {
    holds(250_000);
}

#[test]
fn f32_without_carving_one_is_found() {
    let carved = |world: World, carving| World { resources: ResourceConfig { carving, ..world.resources }, ..world };
    assert!(finds(carved(MIXED, Carving::SharedDirections)), "sending and receiving share");
    assert!(finds(carved(PULLS, Carving::SharedClasses)), "requests and responses share");
    assert!(finds(carved(MIXED, Carving::None)), "all share");
}

#[test]
fn f32_without_admission_at_the_head_of_line_one_is_found() {
    let zones = Zones { head_of_line_only: false, ..MIXED.resources.zones };
    assert!(finds(World { resources: ResourceConfig { zones, ..MIXED.resources }, ..MIXED }));
}

#[test]
fn f4_with_one_sequence_space_one_is_found() {
    assert!(finds(World { shared_space: true, ..PULLS }));
}

#[test]
fn a_target_that_keeps_pulls_waiting_beside_pushes_stops_a_connection() {
    assert!(finds(World { pushes: 500, ..PULLS }));
}

#[test]
fn replay() {
    let Ok(seed) = std::env::var("RNIC_FALCON_SEED") else { return };
    let seed = seed.parse().expect("a number");
    for (index, world) in worlds().into_iter().enumerate() {
        assert!(ends(world, seed), "world {index}: seed {seed} ends in a deadlock");
    }
}
