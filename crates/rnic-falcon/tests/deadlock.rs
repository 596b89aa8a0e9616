//! Rank 19 of the targets: with carving, admission at the head of the line, separate sequence spaces and a reserve, no
//! schedule ends in a deadlock; take any of the four away, and one is found.
//!
//! [`rnic_falcon::search`] describes the schedules. A schedule that fails is replayed with
//! `RNIC_FALCON_SEED=<number> cargo test -p rnic-falcon --test deadlock replay`.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

use rnic_falcon::resources::Carving;
use rnic_falcon::search::net::Scenario;
use rnic_falcon::search::{completes, run_schedules};
use rnic_falcon::transaction::Ordering;

const SCENARIOS: [Scenario; 3] = [Scenario::MIXED, Scenario::PULLS, Scenario::MESSAGES];
const ORDERINGS: [Ordering; 2] = [Ordering::Ordered, Ordering::Unordered];

/// All scenarios that must be free of deadlocks: every kind of shares, every mix of transactions, ordered and
/// unordered.
fn scenarios() -> Vec<Scenario> {
    let both = SCENARIOS.into_iter().flat_map(|scenario| ORDERINGS.map(|ordering| scenario.with_ordering(ordering)));
    Scenario::ISOLATIONS
        .into_iter()
        .flat_map(|shares| both.clone().map(move |scenario| scenario.with_isolation(shares)))
        .collect()
}

fn first_deadlock(scenario: Scenario, numbers: std::ops::Range<u64>) -> Option<u64> {
    numbers.into_iter().find(|number| !completes(scenario, *number))
}

fn holds(schedules: u64) {
    for (index, scenario) in scenarios().into_iter().enumerate() {
        if let Some(number) = first_deadlock(scenario, 0..schedules) {
            panic!("scenario {index}: RNIC_FALCON_SEED={number} cargo test -p rnic-falcon --test deadlock replay");
        }
    }
}

fn finds(scenario: Scenario) -> bool {
    first_deadlock(scenario, 0..SEARCH).is_some()
}

/// Number of schedules within which each ablation must lead to a deadlock.
const SEARCH: u64 = 20_000;

#[test]
fn f32_no_schedule_ends_in_a_deadlock() {
    holds(4_000);
}

/// Takes some minutes; run it with `cargo test --release -p rnic-falcon --test deadlock -- --ignored`.
#[test]
#[ignore = "long: more than a million schedules"]
fn f32_no_schedule_of_a_million_ends_in_a_deadlock() {
    holds(250_000);
}

#[test]
fn f32_without_carving_a_deadlock_is_found() {
    assert!(finds(Scenario::MIXED.with_carving(Carving::SharedDirections)), "sending and receiving share");
    assert!(finds(Scenario::PULLS.with_carving(Carving::SharedClasses)), "requests and responses share");
    assert!(finds(Scenario::MIXED.with_carving(Carving::None)), "all share");
}

#[test]
fn f32_without_admission_at_the_head_of_line_a_deadlock_is_found() {
    assert!(finds(Scenario::MIXED.without_head_of_line()));
}

#[test]
fn f4_with_one_sequence_space_a_deadlock_is_found() {
    assert!(finds(Scenario { shared_space: true, ..Scenario::PULLS }));
}

/// Receives are assigned to messages whose remaining packets find no context, since others hold those while they wait
/// for receives.
#[test]
fn f32_without_the_reserve_a_deadlock_is_found() {
    for ordering in ORDERINGS {
        assert!(finds(Scenario::MESSAGES.with_ordering(ordering).without_reserve()), "{ordering:?}");
    }
}

/// This shows that the deadlock of [`f32_without_carving_a_deadlock_is_found`] comes from the missing carving, not
/// from the reserve that is removed with it.
#[test]
fn f32_without_the_reserve_no_deadlock_is_found_with_messages_of_one_packet() {
    for (scenario, name) in [(Scenario::MIXED, "mixed"), (Scenario::PULLS, "Pulls")] {
        assert_eq!(first_deadlock(scenario.without_reserve(), 0..SEARCH / 4), None, "{name}");
    }
}

#[test]
fn a_target_that_delays_pulls_beside_pushes_causes_a_deadlock() {
    assert!(finds(Scenario { pushes: 500, ..Scenario::PULLS }));
}

#[test]
fn replay() {
    let Ok(number) = std::env::var("RNIC_FALCON_SEED") else { return };
    let number = number.parse().expect("the seed is a number");
    for (index, scenario) in scenarios().into_iter().enumerate() {
        assert!(completes(scenario, number), "scenario {index}: schedule {number} ends in a deadlock");
    }
}

#[test]
fn a_search_finds_the_deadlocks_of_its_schedules() {
    let (scenario, schedules) = (Scenario::MESSAGES.without_reserve(), 200);
    let found = run_schedules(scenario, 0, schedules);
    let by_itself = first_deadlock(scenario, 0..schedules);
    assert_eq!(found.first, by_itself);
    assert_eq!(found.deadlocks > 0, by_itself.is_some());
    assert_eq!(found.schedules, schedules);
    assert!(found.held <= found.deadlocks, "a completed schedule holds resources");
}

/// Each mechanism can be removed from each scenario, and the search still runs.
#[test]
fn every_ablation_of_every_world_can_be_searched() {
    let carvings = [Carving::Full, Carving::SharedDirections, Carving::SharedClasses, Carving::None];
    let variants = |scenario: Scenario| {
        carvings
            .map(|carving| scenario.with_carving(carving))
            .into_iter()
            .flat_map(|scenario| [scenario, scenario.without_reserve()])
            .flat_map(|scenario| [scenario, scenario.without_head_of_line()])
            .flat_map(|scenario| [scenario, Scenario { shared_space: true, ..scenario }])
    };
    for scenario in scenarios().into_iter().flat_map(variants) {
        assert_eq!(run_schedules(scenario, 0, 3).schedules, 3, "{scenario:?}");
    }
}
