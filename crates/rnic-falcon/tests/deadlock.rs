//! Rank 19 of the targets: with carving, admission at the head of the line, separate sequence spaces and a reserve, no
//! schedule ends in a deadlock; take any of the four away, and one is found.
//!
//! What schedules are made of says [`rnic_trials::deadlock`]. A schedule that fails is replayed with
//! `RNIC_FALCON_SEED=<number> cargo test -p rnic-falcon --test deadlock replay`.

use rnic_trials::deadlock::net::World;
use rnic_trials::deadlock::{Carved, Order, Search, Shares, Sort, ends};

const fn search(sort: Sort) -> Search {
    Search::new(sort, Order::Ordered, SEARCH)
}

/// Everything that must hold: with all kinds of shares, of all sorts, in both orders.
fn worlds() -> Vec<World> {
    let sorts = [Sort::Mixed, Sort::Pulls, Sort::Messages];
    let both = sorts.into_iter().flat_map(|sort| [Order::Ordered, Order::Unordered].map(|order| (sort, order)));
    let search = |isolation, (sort, order)| Search { isolation, ..Search::new(sort, order, SEARCH) }.world();
    Shares::ALL.into_iter().flat_map(|shares| both.clone().map(move |of| search(shares, of))).collect()
}

fn first_deadlock(world: World, numbers: std::ops::Range<u64>) -> Option<u64> {
    numbers.into_iter().find(|number| !ends(world, *number))
}

fn holds(schedules: u64) {
    for (index, world) in worlds().into_iter().enumerate() {
        if let Some(number) = first_deadlock(world, 0..schedules) {
            panic!("world {index}: RNIC_FALCON_SEED={number} cargo test -p rnic-falcon --test deadlock replay");
        }
    }
}

fn finds(search: Search) -> bool {
    first_deadlock(search.world(), 0..search.schedules).is_some()
}

/// Schedules in which each ablation must show its deadlock.
const SEARCH: u64 = 20_000;

#[test]
fn f32_no_schedule_ends_in_a_deadlock() {
    holds(4_000);
}

/// `cargo test --release -p rnic-falcon --test deadlock -- --ignored`: some minutes.
#[test]
#[ignore = "long: more than a million schedules"]
fn f32_no_schedule_of_a_million_ends_in_a_deadlock() {
    holds(250_000);
}

#[test]
fn f32_without_carving_one_is_found() {
    let carved = |sort, carving| Search { carving, ..search(sort) };
    assert!(finds(carved(Sort::Mixed, Carved::SharedDirections)), "sending and receiving share");
    assert!(finds(carved(Sort::Pulls, Carved::SharedClasses)), "requests and responses share");
    assert!(finds(carved(Sort::Mixed, Carved::None)), "all share");
}

#[test]
fn f32_without_admission_at_the_head_of_line_one_is_found() {
    assert!(finds(Search { head_of_line: false, ..search(Sort::Mixed) }));
}

#[test]
fn f4_with_one_sequence_space_one_is_found() {
    assert!(finds(Search { separate_spaces: false, ..search(Sort::Pulls) }));
}

/// Receives are lent to messages whose rest finds no context, for others wait for receives.
#[test]
fn f32_without_the_reserve_one_is_found() {
    for ordering in [Order::Ordered, Order::Unordered] {
        assert!(finds(Search { ordering, reserve: false, ..search(Sort::Messages) }), "{ordering:?}");
    }
}

/// So it is the carving that [`f32_without_carving_one_is_found`] takes away, and not the reserve that goes with it.
#[test]
fn f32_without_the_reserve_alone_none_is_found_where_messages_are_one_packet() {
    for sort in [Sort::Mixed, Sort::Pulls] {
        let world = Search { reserve: false, ..search(sort) }.world();
        assert_eq!(first_deadlock(world, 0..SEARCH / 4), None, "{sort:?}");
    }
}

#[test]
fn a_target_that_keeps_pulls_waiting_beside_pushes_stops_a_connection() {
    assert!(first_deadlock(World { pushes: 500, ..search(Sort::Pulls).world() }, 0..SEARCH).is_some());
}

#[test]
fn replay() {
    let Ok(number) = std::env::var("RNIC_FALCON_SEED") else { return };
    let number = number.parse().expect("a number");
    for (index, world) in worlds().into_iter().enumerate() {
        assert!(ends(world, number), "world {index}: schedule {number} ends in a deadlock");
    }
}
