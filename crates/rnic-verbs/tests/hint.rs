//! S-9 in a program of C, which is built with the header and not linked with the library.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rnic_host::observe::{self, Snapshot};

/// Builds the program.
fn build(into: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = into.join("hint");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(here.join("include"));
    cc.arg(here.join("tests/hint/hint.c")).arg("-o").arg(&program).args(["-ldl", "-lpthread"]);
    let output = cc.output().expect("cc, which links the library too");
    assert!(output.status.success(), "{}", common::output_text(&output));
    program
}

/// Observes the process `pid` until `is_reached` is true.
fn observe_until(pid: u32, is_reached: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let endpoints = observe::endpoints().expect("the list can be read");
        let endpoint = endpoints.into_iter().find(|endpoint| endpoint.pid == pid).expect("the device is observable");
        let snapshot = observe::fetch(&endpoint, Duration::from_secs(20)).expect("it responds");
        if is_reached(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < deadline, "{:?}, {:?}", snapshot.share, snapshot.counters);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The thread that writes the hint is ended by the kernel if it makes a system call.
#[test]
fn s9_a_program_of_c_writes_hints_without_a_system_call() {
    let place = tempfile::tempdir().expect("a folder");
    let program = build(place.path());
    let mut child = Command::new(program)
        .env("LD_PRELOAD", common::libraries().join("libibverbs.so.1"))
        .env("RNIC_WEIGHT", "2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (pid, mut input) = (child.id(), child.stdin.take().expect("a pipe"));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("it says something").expect("it can be read");
    assert_eq!(next(), "written");
    let snapshot = observe_until(pid, |snapshot| snapshot.counters.hints_applied == 1);
    assert_eq!(snapshot.share.expect("it takes part").weight, 7);
    input.write_all(b"\n").expect("it reads");
    assert_eq!(next(), "invalid");
    let snapshot = observe_until(pid, |snapshot| snapshot.counters.hints_rejected == 1);
    assert_eq!(snapshot.share.expect("it takes part").weight, 7);
    input.write_all(b"\n").expect("it reads");
    assert_eq!(next(), "done");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn s9_a_program_with_hints_runs_without_the_library() {
    let place = tempfile::tempdir().expect("a folder");
    let output = Command::new(build(place.path())).env_remove("LD_PRELOAD").output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "absent\n", "{}", common::output_text(&output));
    assert!(output.status.success());
}
