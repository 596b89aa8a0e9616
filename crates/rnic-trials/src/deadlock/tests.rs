//! What is refused, and that a search is a function of its arguments and its seed.

use super::*;

fn arguments(text: &str) -> toml::Table {
    text.parse().expect("TOML")
}

const SOUND: &str = "traffic = \"messages\"\nordering = \"ordered\"\nschedules = 20";

#[test]
fn equal_seeds_find_the_same_and_others_look_elsewhere() {
    let run = |seed| TRIAL.run(&arguments(&format!("{SOUND}\nreserve = false")), seed).expect("sound");
    assert_eq!(run(1), run(1));
    assert_ne!(run(1)["transactions"], run(2)["transactions"]);
    for number in TRIAL.numbers {
        assert!(run(1)[number].is_u64(), "{number}");
    }
    assert!(TRIAL.run(&arguments(SOUND), u64::MAX).is_ok(), "any seed");
}

#[test]
fn a_search_is_that_of_its_schedules() {
    let search = Search { reserve: false, ..Search::new(Sort::Messages, Order::Ordered, 200) };
    let found = look(search.world(), 0, search.schedules);
    let by_itself = (0..search.schedules).find(|number| !ends(search.world(), *number));
    assert_eq!(found.first, by_itself);
    assert_eq!(found.deadlocks > 0, by_itself.is_some());
    assert_eq!(found.schedules, search.schedules);
    assert!(found.held <= found.deadlocks, "what ends holds nothing");
}

/// Whatever is taken away: each search is one that can be made.
#[test]
fn everything_can_be_taken_away_in_every_world() {
    let booleans = [true, false];
    for traffic in [Sort::Mixed, Sort::Pulls, Sort::Messages] {
        for ordering in [Order::Ordered, Order::Unordered] {
            for carving in [Carved::Full, Carved::SharedDirections, Carved::SharedClasses, Carved::None] {
                for (head_of_line, separate_spaces, reserve) in
                    booleans.into_iter().flat_map(|a| booleans.map(|b| booleans.map(|c| (a, b, c)))).flatten()
                {
                    let search = Search::new(traffic, ordering, 3);
                    for isolation in Shares::ALL {
                        let search = Search { carving, head_of_line, separate_spaces, reserve, isolation, ..search };
                        assert_eq!(look(search.world(), 0, 3).schedules, 3, "{search:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn arguments_without_sense_are_one_line() {
    let cases = [
        ("\"messages\"", "\"letters\"", "traffic: unknown variant `letters`"),
        ("schedules = 20", "", "missing field `schedules`"),
        ("= 20", "= 0", "schedules: 0 does not lie between 1 and 4294967296"),
        ("= 20", "= 20\ncarvings = \"none\"", "unknown field `carvings`"),
        ("= 20", "= 20\nreserve = \"no\"", "reserve: invalid type"),
        ("= 20", "= 20\nisolation = \"some\"", "isolation: unknown variant `some`"),
    ];
    for (from, to, expected) in cases {
        let text = SOUND.replace(from, to);
        assert_ne!(text, SOUND, "{from} is there");
        let said = TRIAL.cost(&arguments(&text)).expect_err(to);
        assert!(said.contains(expected) && !said.contains('\n'), "{to}: {said}");
    }
    assert_eq!(TRIAL.cost(&arguments(SOUND)), Ok(20 * SCHEDULE_BYTES));
}
