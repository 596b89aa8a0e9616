//! rdma-core's own tests, from the distribution's package: the result of each must be the one in a table.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's package `rdma-core` has them; most files are compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Tests that are not required to pass.
const TABLE: &str = include_str!("pyverbs/expected.txt");

/// Number of tests that pass on a machine without any of the features that the table calls optional.
const PASSING_MIN: usize = 118;

/// Where the tests run: on this machine, or in another root directory, given by `RNIC_PYVERBS_ROOT`
/// (`scripts/pyverbs-newest`).
struct TestRoot(Option<PathBuf>);

impl TestRoot {
    fn find() -> Self {
        Self(std::env::var_os("RNIC_PYVERBS_ROOT").map(PathBuf::from))
    }

    /// Returns the path outside that root directory for `path` inside it.
    fn outside(&self, path: &str) -> PathBuf {
        self.0.as_ref().map_or_else(|| path.into(), |root| root.join(path.trim_start_matches('/')))
    }

    /// Returns `line` as a command that runs in that root directory.
    fn run(&self, line: &[&str]) -> Command {
        let mut command = Command::new(if self.0.is_some() { "unshare" } else { line[0] });
        match &self.0 {
            Some(root) => command.arg("--root").arg(root).args(line),
            None => command.args(&line[1..]),
        };
        command
    }
}

/// Returns the permitted result of the test `name` in the table, and the reason.
fn expected(name: &str) -> (&'static str, &'static str) {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let parsed = rows.map(|line| {
        let (permitted, rest) = line.split_once(' ').expect("a row starts with a word");
        let (prefix, why) = rest.trim_start().split_once(' ').expect("a row has a prefix and a reason");
        (permitted, prefix, why.trim_start())
    });
    let found = parsed.filter(|(_, prefix, _)| name.starts_with(prefix)).max_by_key(|(_, at, _)| at.len());
    found.map_or(("pass", "every test not in the table must pass"), |(permitted, _, why)| (permitted, why))
}

/// Returns `true` if the result `result` of a test is permitted by the table.
fn is_as_expected(name: &str, result: &str) -> bool {
    match expected(name).0 {
        "may" => result == "pass" || result == "skip",
        only => result == only,
    }
}

/// Runs the tests at `root_dir`; returns the lines of their report, and their output.
fn run(root_dir: &TestRoot) -> (String, String) {
    let dir = tempfile::tempdir_in(root_dir.outside("/tmp")).expect("a temporary directory");
    let copy = |from: &Path| {
        let copied = Command::new("cp").arg("-a").arg(from).arg(dir.path()).status();
        assert!(copied.is_ok_and(|status| status.success()), "{} can be copied", from.display());
    };
    copy(&root_dir.outside(TESTS));
    let unpack = Command::new("sh").current_dir(dir.path()).args(["-c", "gunzip tests/*.gz"]).status();
    assert!(unpack.is_ok_and(|status| status.success()), "the tests can be unpacked");
    copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pyverbs/run.py").as_ref());
    copy(common::libraries());

    // Replaces iproute2's `rdma link`: it prints an empty list, as if the kernel had no such device; without the
    // kernel module the real one would fail.
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).expect("a new folder");
    std::fs::write(programs.join("rdma"), "#!/bin/sh\necho '[]'\n").expect("a new file");
    std::fs::set_permissions(programs.join("rdma"), PermissionsExt::from_mode(0o755)).expect("our own file");

    let name = Path::new("/tmp").join(dir.path().file_name().expect("a name"));
    let inside = |file: &str| name.join(file).to_str().expect("a name").to_owned();
    let [driver, suite, report, libraries] = ["run.py", "tests", "report", "rnic"].map(inside);
    let (path, mut shim) = (format!("LD_LIBRARY_PATH={libraries}"), format!("LD_PRELOAD={libraries}/librnic-shim.so"));
    if root_dir.0.is_some() {
        // Newer tests run programs to read the device's files, so the library is preloaded as under `rnic run`.
        shim += &format!(":{libraries}/libibverbs.so.1");
    }
    let timeout = ["timeout", "--kill-after=5", "400"];
    let programs = inside("programs");
    let search = format!("PATH={programs}:/usr/bin:/usr/sbin");
    let line = [&["env", &search, &path, &shim][..], &timeout[..], &["/usr/bin/python3", &driver, &suite, &report][..]]
        .concat();
    let output = root_dir.run(&line).output().expect("the command starts");
    let said = common::output_text(&output);
    assert!(output.status.success(), "{said}");
    (std::fs::read_to_string(dir.path().join("report")).expect("a report"), said)
}

#[test]
fn the_longest_matching_prefix_applies() {
    assert_eq!(expected("tests.test_qp.QPTest.test_create_rc_qp").0, "pass");
    assert_eq!(expected("tests.test_rdmacm.CMTestCase.test_rdmacm_async_read").0, "may");
    assert_eq!(expected("tests.test_rdmacm.CMTestCase.test_rdmacm_async_ex_multicast_traffic").0, "skip");
    assert!(!is_as_expected("tests.test_flow.FlowTest.test_eth", "pass"), "an outdated row was not detected");
    assert!(!is_as_expected("tests.test_odp.OdpTestCase.test_odp_rc_huge_traffic", "fail"));
    assert!(!is_as_expected("tests.test_odp.OdpTestCase.test_odp_rc_traffic", "skip"));
}

#[test]
fn results_of_rdma_cores_tests_match_the_table() {
    let root_dir = TestRoot::find();
    let has_pyverbs =
        || root_dir.run(&["/usr/bin/python3", "-c", "import pyverbs"]).status().is_ok_and(|it| it.success());
    if !root_dir.outside(TESTS).join("run_tests.py").is_file() || !has_pyverbs() {
        return common::skip("python3-pyverbs and the tests of the package rdma-core are not installed");
    }
    let (report, said) = run(&root_dir);
    let results = report.lines().map(|line| {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or("");
        (next(), next(), next())
    });
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, result, why) in results {
        *counts.entry(result).or_insert(0) += 1;
        if !is_as_expected(name, result) {
            let (permitted, reason) = expected(name);
            wrong.push(format!("{name}: {result} ({why}), expected: {permitted} ({reason})"));
        }
    }
    eprintln!("rdma-core's tests: {counts:?}");
    assert!(wrong.is_empty(), "{}\n{said}", wrong.join("\n"));
    assert!(counts.get("pass").is_some_and(|passed| *passed >= PASSING_MIN), "{counts:?}: {said}");
}
