//! rdma-core's own tests, from the package of the distribution: each ends as a table says that it does.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's package `rdma-core` has them; most files are compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// What is not simply expected to pass.
const TABLE: &str = include_str!("pyverbs/expected.txt");

/// Tests that pass on a machine that has nothing which the table calls optional.
const PASSING_MIN: usize = 118;

/// Where the tests run: on this machine, or in another root, which `RNIC_PYVERBS_ROOT` names
/// (`scripts/pyverbs-newest`).
struct Place(Option<PathBuf>);

impl Place {
    fn find() -> Self {
        Self(std::env::var_os("RNIC_PYVERBS_ROOT").map(PathBuf::from))
    }

    /// Returns the name that `path` there has here.
    fn outside(&self, path: &str) -> PathBuf {
        self.0.as_ref().map_or_else(|| path.into(), |root| root.join(path.trim_start_matches('/')))
    }

    /// `line` as a command that runs there.
    fn run(&self, line: &[&str]) -> Command {
        let mut command = Command::new(if self.0.is_some() { "unshare" } else { line[0] });
        match &self.0 {
            Some(root) => command.arg("--root").arg(root).args(line),
            None => command.args(&line[1..]),
        };
        command
    }
}

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

/// Runs the tests at `place`; answers the lines of their report, and what was said.
fn run(place: &Place) -> (String, String) {
    let dir = tempfile::tempdir_in(place.outside("/tmp")).expect("a temporary directory");
    let copy = |from: &Path| {
        let copied = Command::new("cp").arg("-a").arg(from).arg(dir.path()).status();
        assert!(copied.is_ok_and(|status| status.success()), "{} can be copied", from.display());
    };
    copy(&place.outside(TESTS));
    let unpack = Command::new("sh").current_dir(dir.path()).args(["-c", "gunzip tests/*.gz"]).status();
    assert!(unpack.is_ok_and(|status| status.success()), "the tests can be unpacked");
    copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pyverbs/run.py").as_ref());
    copy(common::libraries());

    // The error of iproute2's `rdma link` where the kernel has no such device; where it has no such module, it fails.
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).expect("a new folder");
    std::fs::write(programs.join("rdma"), "#!/bin/sh\necho '[]'\n").expect("a new file");
    std::fs::set_permissions(programs.join("rdma"), PermissionsExt::from_mode(0o755)).expect("our own file");

    let name = Path::new("/tmp").join(dir.path().file_name().expect("a name"));
    let inside = |file: &str| name.join(file).to_str().expect("a name").to_owned();
    let [driver, suite, report, libraries] = ["run.py", "tests", "report", "rnic"].map(inside);
    let (path, mut shim) = (format!("LD_LIBRARY_PATH={libraries}"), format!("LD_PRELOAD={libraries}/librnic-shim.so"));
    if place.0.is_some() {
        // Newer tests ask programs for what the device's files say, as under `rnic run`.
        shim += &format!(":{libraries}/libibverbs.so.1");
    }
    let timeout = ["timeout", "--kill-after=5", "400"];
    let programs = inside("programs");
    let search = format!("PATH={programs}:/usr/bin:/usr/sbin");
    let line = [&["env", &search, &path, &shim][..], &timeout[..], &["/usr/bin/python3", &driver, &suite, &report][..]]
        .concat();
    let output = place.run(&line).output().expect("it starts");
    let said = common::said(&output);
    assert!(output.status.success(), "{said}");
    (std::fs::read_to_string(dir.path().join("report")).expect("a report"), said)
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
    let place = Place::find();
    let has_pyverbs = || place.run(&["/usr/bin/python3", "-c", "import pyverbs"]).status().is_ok_and(|it| it.success());
    if !place.outside(TESTS).join("run_tests.py").is_file() || !has_pyverbs() {
        return common::skip("python3-pyverbs and the tests of the package rdma-core are not installed");
    }
    let (report, said) = run(&place);
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
