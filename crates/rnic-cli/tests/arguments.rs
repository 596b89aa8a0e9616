//! Bad command lines are refused with one line and exit code 2; help teaches.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use common::rnic;

#[test]
fn unknown_words_are_refused() {
    rnic(&["fly"]).refused(2, &["fly"]);
    rnic(&["list", "--jsn"]).refused(2, &["--jsn", "--json"]);
}

#[test]
fn words_that_are_not_text_are_refused_like_others() {
    let not_text = OsStr::from_bytes(b"--j\xff");
    rnic(&[OsStr::new("list"), not_text]).refused(2, &["--j"]);
    rnic(&[OsStr::new("list"), OsStr::new("--jsn"), not_text]).refused(2, &["--jsn"]);
    rnic(&[OsStr::new("perf"), OsStr::new("--loss"), OsStr::new("-1%"), not_text])
        .refused(2, &["--loss -1%: no value here is below zero"]);
}

#[test]
fn a_number_below_zero_behind_what_takes_none_is_just_too_much() {
    let said = rnic(&["perf", "--json", "-5"]);
    assert!(!said.err.contains("below zero"), "{said:#?}");
    said.refused(2, &["'-5'"]);
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
