//! Checks that invalid arguments are refused, and that a search is a function of its arguments and its seed.

use super::*;

fn arguments(text: &str) -> toml::Table {
    text.parse().expect("the text is TOML")
}

const VALID: &str = "traffic = \"messages\"\nordering = \"ordered\"\nschedules = 20";

#[test]
fn equal_seeds_give_equal_results_and_other_seeds_other_schedules() {
    let run =
        |seed| TRIAL.run(&arguments(&format!("{VALID}\nreserve = false")), seed).expect("the arguments are valid");
    assert_eq!(run(1), run(1));
    assert_ne!(run(1)["transactions"], run(2)["transactions"]);
    for number in TRIAL.numbers {
        assert!(run(1)[number].is_u64(), "{number}");
    }
    assert!(TRIAL.run(&arguments(VALID), u64::MAX).is_ok(), "the largest seed is refused");
}

/// Each argument changes the world in its own way, so no two combinations search the same one.
#[test]
fn every_argument_changes_the_world() {
    let sets: [&[&str]; 7] = [
        &["traffic = \"mixed\"", "traffic = \"pulls\"", "traffic = \"messages\""],
        &["ordering = \"ordered\"", "ordering = \"unordered\""],
        &["", "carving = \"shared-directions\"", "carving = \"shared-classes\"", "carving = \"none\""],
        &["", "isolation = \"static\"", "isolation = \"dynamic\""],
        &["", "head_of_line = false"],
        &["", "separate_spaces = false"],
        &["", "reserve = false"],
    ];
    let all = sets.iter().fold(vec!["schedules = 3".to_owned()], |texts, set| {
        texts.iter().flat_map(|text| set.iter().map(move |more| format!("{text}\n{more}"))).collect()
    });
    let scenarios: std::collections::BTreeSet<String> = all
        .iter()
        .map(|text| {
            let search = checked(&arguments(text)).expect(text);
            assert_eq!(run_schedules(search.scenario(), 0, 1).schedules, 1, "{text}");
            format!("{:?}", search.scenario())
        })
        .collect();
    // Where parts share a pool, the reserve makes no difference.
    assert_eq!((all.len(), scenarios.len()), (3 * 2 * 4 * 3 * 8, 3 * 2 * (2 + 3) * 3 * 4));
}

#[test]
fn invalid_arguments_are_one_line_errors() {
    let cases = [
        ("\"messages\"", "\"letters\"", "traffic: unknown word `letters`"),
        ("schedules = 20", "", "the key `schedules` is missing"),
        ("= 20", "= 0", "schedules: 0 does not lie between 1 and 4294967296"),
        ("= 20", "= 20\ncarvings = \"none\"", "unknown key `carvings`"),
        ("= 20", "= 20\nreserve = \"no\"", "reserve: must be true or false"),
        ("= 20", "= 20\nisolation = \"some\"", "isolation: unknown word `some`"),
    ];
    for (from, to, expected) in cases {
        let text = VALID.replace(from, to);
        assert_ne!(text, VALID, "{from} is not in the arguments");
        let error = TRIAL.cost(&arguments(&text)).expect_err(to);
        assert!(error.contains(expected) && !error.contains('\n'), "{to}: {error}");
    }
    assert_eq!(TRIAL.cost(&arguments(VALID)), Ok(20 * SCHEDULE_BYTES));
}
