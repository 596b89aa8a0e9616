//! Bad command lines are refused with one line and exit code 2; help teaches.

mod common;

use common::rnic;

#[test]
fn unknown_words_are_refused() {
    rnic(&["fly"]).refused(2, &["fly"]);
    rnic(&["list", "--jsn"]).refused(2, &["--jsn", "--json"]);
}

#[test]
fn no_word_at_all_shows_help_and_is_no_success() {
    let said = rnic::<&str>(&[]);
    assert_eq!(said.status.code(), Some(2));
    assert!(said.err.contains("Usage: rnic"), "{said:#?}");
}

#[test]
fn help_names_units_and_exit_codes() {
    let said = rnic(&["--help"]).ok();
    for taught in ["list", "64KiB", "100Gbps", "Exit codes", "--json"] {
        assert!(said.out.contains(taught), "help does not mention {taught}");
    }
}
