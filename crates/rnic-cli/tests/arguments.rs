//! Checks that invalid command lines are rejected with one line and exit code 2, and that `--help` explains the
//! usage.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use common::rnic;

#[test]
fn unknown_arguments_are_refused() {
    rnic(&["fly"]).assert_refused(2, &["fly"]);
    rnic(&["reprodcue"]).assert_refused(2, &["reprodcue", "'reproduce'"]);
    rnic(&["perf", "--transport", "facon"]).assert_refused(2, &["facon", "did you mean `falcon`?"]);
    rnic(&["list", "--jsn"]).assert_refused(2, &["--jsn", "--json"]);
}

#[test]
fn arguments_that_are_not_utf8_are_refused() {
    let not_text = OsStr::from_bytes(b"--j\xff");
    rnic(&[OsStr::new("list"), not_text]).assert_refused(2, &["--j"]);
    rnic(&[OsStr::new("list"), OsStr::new("--jsn"), not_text]).assert_refused(2, &["--jsn"]);
    rnic(&[OsStr::new("perf"), OsStr::new("--loss"), OsStr::new("-1%"), not_text])
        .assert_refused(2, &["--loss -1%: the value must not be negative"]);
}

#[test]
fn a_negative_number_after_a_flag_is_an_unexpected_argument() {
    let output = rnic(&["perf", "--json", "-5"]);
    assert!(!output.err.contains("negative"), "{output:#?}");
    output.assert_refused(2, &["'-5'"]);
}

#[test]
fn without_arguments_help_is_shown_and_the_exit_code_is_2() {
    let output = rnic::<&str>(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.err.contains("Usage: rnic"), "{output:#?}");
}

#[test]
fn help_names_units_and_exit_codes() {
    let output = rnic(&["--help"]).ok();
    for shown in ["list", "64KiB", "100Gbps", "Exit codes", "--json"] {
        assert!(output.out.contains(shown), "help does not mention {shown}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a Linux system has it");
    for arguments in [&["list"][..], &["perf", "--wire", "sim", "--count", "2", "--json"]] {
        let output = common::command(arguments).stdout(full.try_clone().expect("a copy")).output().expect("it runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains("rnic: cannot write to standard output: "), "{arguments:?}: {message}");
    }
}

#[test]
fn real_roce_peers_require_another_host_and_rocev2() {
    let refused_with = |arguments: &[&str], expected_text: &str| {
        rnic(&[&["perf", "--peers", "roce"], arguments].concat()).assert_refused(2, &["--peers roce", expected_text]);
    };
    refused_with(&[], "name the listening host");
    refused_with(&["10.0.0.1", "--transport", "irn"], "roce-gbn, not irn");
    refused_with(&["10.0.0.1:99"], "port 4791, not 99");
    refused_with(&["--wire", "sim"], "simulation");
    refused_with(&["10.0.0.1", "--key", "/dev/null"], "--key");
    refused_with(&["--listen", "127.0.0.1:4791"], "omit ADDR:PORT");
}

#[test]
fn a_loss_of_100_percent_is_refused() {
    for all in ["1.0", "100%"] {
        rnic(&["perf", "--wire", "sim", "--loss", all]).assert_refused(2, &["--loss", "1%"]);
    }
}

#[test]
fn a_loss_of_1_is_refused_with_both_readings() {
    let readings = &["ambiguous", "1%", "1.0 (all)"];
    rnic(&["perf", "--wire", "sim", "--loss", "1"]).assert_refused(2, readings);
    rnic(&["demo", "--loss", "1"]).assert_refused(2, readings);
    let plan = "plans/point-to-point-loss.toml";
    for value in ["1", "\"1\""] {
        let fault = format!("fault=[{{kind=\"drop\", probability={value}}}]");
        rnic(&["sim", plan, "--set", &fault]).assert_refused(2, readings);
    }
    rnic(&["run", "--loss", "1", "--", "true"]).assert_refused(2, &["RNIC_LOSS=1", "1%", "1.0 (all)"]);
    let all = "fault=[{kind=\"drop\", probability=1.0}]";
    let output = rnic(&["sim", plan, "--set", all, "--set", "run.limit=10us"]);
    assert!(!output.err.contains("ambiguous"), "{output:#?}");
}

#[test]
fn a_mistyped_option_is_not_a_program() {
    rnic(&["run", "--losss", "1%", "--", "true"]).assert_refused(2, &["--losss", "--loss"]);
    rnic(&["run", "--json", "true"]).assert_refused(2, &["--json"]);
}

#[test]
fn an_invalid_port_is_reported() {
    rnic(&["perf", "127.0.0.1:99999"]).assert_refused(2, &["127.0.0.1:99999", "port", "65535"]);
}
