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

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a Linux system has it");
    for words in [&["list"][..], &["perf", "--wire", "sim", "--count", "2", "--json"]] {
        let output = common::command(words).stdout(full.try_clone().expect("a copy")).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("rnic: standard output: "), "{words:?}: {said}");
    }
}

#[test]
fn peers_of_other_makes_are_on_other_machines_and_speak_rocev2() {
    let with = |words: &[&str], says: &str| {
        rnic(&[&["perf", "--peers", "roce"], words].concat()).refused(2, &["--peers roce", says]);
    };
    with(&[], "name the one that listens");
    with(&["10.0.0.1", "--transport", "irn"], "roce-gbn, not irn");
    with(&["10.0.0.1:99"], "port 4791, not 99");
    with(&["--wire", "sim"], "simulation");
    with(&["10.0.0.1", "--key", "/dev/null"], "--key");
    with(&["--listen", "127.0.0.1:4791"], "leave ADDR:PORT out");
}

#[test]
fn all_packets_lost_is_not_what_anybody_means() {
    for all in ["1", "100%"] {
        rnic(&["perf", "--wire", "sim", "--loss", all]).refused(2, &["--loss", "1%"]);
    }
}

#[test]
fn a_mistyped_option_is_not_a_program() {
    rnic(&["run", "--losss", "1%", "--", "true"]).refused(2, &["--losss", "--loss"]);
    rnic(&["run", "--json", "true"]).refused(2, &["--json"]);
}

#[test]
fn a_port_that_cannot_be_is_called_so() {
    rnic(&["perf", "127.0.0.1:99999"]).refused(2, &["127.0.0.1:99999", "port", "65535"]);
}
