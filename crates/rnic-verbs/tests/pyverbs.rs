//! rdma-core's own tests, from the package of the distribution: each ends as a table says that it does.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Where Debian's package `rdma-core` has them; most files are compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// What is not simply expected to pass.
const TABLE: &str = include_str!("pyverbs/expected.txt");

/// Tests that pass on a machine that has nothing which the table calls optional.
const PASSING_MIN: usize = 118;

/// What the table says of the test called `name`: how it may end, and why.
fn expected(name: &str) -> (&'static str, &'static str) {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let parsed = rows.map(|line| {
        let (how, rest) = line.split_once(' ').expect("a word and the rest");
        let (beginning, why) = rest.trim_start().split_once(' ').expect("a beginning and a reason");
        (how, beginning, why.trim_start())
    });
    let found = parsed.filter(|(_, beginning, _)| name.starts_with(beginning)).max_by_key(|(_, at, _)| at.len());
    found.map_or(("pass", "it must"), |(how, _, why)| (how, why))
}

/// Whether a test that `ended` so has done what the table says.
fn is_as_expected(name: &str, ended: &str) -> bool {
    match expected(name).0 {
        "may" => ended == "pass" || ended == "skip",
        only => ended == only,
    }
}

#[test]
fn the_longest_beginning_counts() {
    assert_eq!(expected("tests.test_qp.QPTest.test_create_rc_qp").0, "pass");
    assert_eq!(expected("tests.test_rdmacm.CMTestCase.test_rdmacm_async_read").0, "may");
    assert_eq!(expected("tests.test_rdmacm.CMTestCase.test_rdmacm_async_ex_multicast_traffic").0, "skip");
    assert!(!is_as_expected("tests.test_flow.FlowTest.test_eth", "pass"), "a row that is no longer true is noticed");
    assert!(!is_as_expected("tests.test_odp.OdpTestCase.test_odp_rc_huge_traffic", "fail"));
    assert!(!is_as_expected("tests.test_odp.OdpTestCase.test_odp_rc_traffic", "skip"));
}

#[test]
fn the_tests_of_rdma_core_end_as_the_table_says() {
    let python = "/usr/bin/python3";
    let has_pyverbs = || Command::new(python).args(["-c", "import pyverbs"]).status().is_ok_and(|it| it.success());
    if !Path::new(TESTS).join("run_tests.py").is_file() || !has_pyverbs() {
        return common::skip("python3-pyverbs and the tests of the package rdma-core are not installed");
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let copy = Command::new("cp").arg("-r").arg(TESTS).arg(dir.path()).status();
    assert!(copy.is_ok_and(|status| status.success()), "the tests can be copied");
    let unpack = Command::new("sh").current_dir(dir.path()).args(["-c", "gunzip tests/*.gz"]).status();
    assert!(unpack.is_ok_and(|status| status.success()), "the tests can be unpacked");

    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pyverbs/run.py");
    let (suite, report) = (dir.path().join("tests"), dir.path().join("report"));
    let line = [python, driver, suite.to_str().expect("a name"), report.to_str().expect("a name")];
    let shim = common::libraries().join("librnic-shim.so");
    let output = common::command(&line, 400).env("LD_PRELOAD", shim).output().expect("timeout(1) starts");
    let said = common::said(&output);
    assert!(output.status.success(), "{said}");
    let report = std::fs::read_to_string(&report).expect("a report");
    let results = report.lines().map(|line| {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or("");
        (next(), next(), next())
    });
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, ended, why) in results {
        *counts.entry(ended).or_insert(0) += 1;
        if !is_as_expected(name, ended) {
            let (how, reason) = expected(name);
            wrong.push(format!("{name}: {ended} ({why}), expected: {how} ({reason})"));
        }
    }
    eprintln!("rdma-core's tests: {counts:?}");
    assert!(wrong.is_empty(), "{}\n{said}", wrong.join("\n"));
    assert!(counts.get("pass").is_some_and(|passed| *passed >= PASSING_MIN), "{counts:?}: {said}");
}
