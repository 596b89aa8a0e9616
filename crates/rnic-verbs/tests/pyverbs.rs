//! rdma-core's own tests, from the package of the distribution: nothing may fail, and skips need a reason.

mod common;

use std::path::Path;
use std::process::Command;

/// Where Debian's package `rdma-core` has them; most files are compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Tests that must at least run and pass: fewer would mean that something is skipped that was not.
const PASSING_MIN: usize = 80;

#[test]
fn the_tests_of_rdma_core_pass() {
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

    let line = [python, "tests/run_tests.py", "--dev", "rnic0", "-v"];
    let output = common::command(&line, 300).current_dir(dir.path()).output().expect("timeout(1) starts");
    let said = common::said(&output);
    assert!(output.status.success(), "{said}");
    let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    let (passed, skipped) = (count("... ok"), count("... skipped '") + count("... skipped \""));
    assert!(passed >= PASSING_MIN, "{passed} passed, {skipped} were skipped: {said}");
    assert!(passed + skipped >= 250, "{passed} passed, {skipped} were skipped: {said}");
}
