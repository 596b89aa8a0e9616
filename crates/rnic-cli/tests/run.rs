//! Checks that `rnic run` sets the environment that it documents and then replaces itself with the program.

mod common;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use common::{command, finish, first_line};
use rustix::process::{Pid, Signal, kill_process};

/// Creates a folder with libraries that have the names of ours but do nothing.
fn libraries() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for name in ["libibverbs.so.1", "librdmacm.so.1", "librnic-shim.so", "librnic_sockets.so"] {
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(folder.path().join(name));
        assert!(compiler.status().expect("there is a compiler").success());
    }
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> common::CommandOutput {
    finish(start(folder, arguments))
}

fn start(folder: &Path, arguments: &[&str]) -> std::process::Child {
    let mut run = command(&[&["run"], arguments].concat());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RNIC_") {
            run.env_remove(name);
        }
    }
    run.env("RNIC_LIBRARY_DIR", folder).env("RNIC_SEED", "3").spawn().expect("the command starts")
}

#[test]
fn the_program_gets_the_settings_and_the_libraries() {
    let libraries = libraries();
    let folder = libraries.path().to_str().expect("a plain name");
    let options = ["--loss", "1%", "--set", "rto_high=2ms", "--set", "rto_low=1ms", "--pcap", "a.pcap", "--quiet"];
    let output = run(libraries.path(), &[&options[..], &["--", "env"]].concat()).ok();
    let pcap = format!("RNIC_PCAP={}/a.pcap", common::root().canonicalize().expect("the tree").display());
    for line in [
        "RNIC_LOSS=1%",
        "RNIC_SET=rto_high=2ms,rto_low=1ms",
        "RNIC_QUIET=on",
        "RNIC_SEED=3",
        &format!("LD_LIBRARY_PATH={folder}"),
        &format!("LD_PRELOAD={folder}/librnic-shim.so:{folder}/libibverbs.so.1"),
    ] {
        assert!(output.out.lines().any(|shown| shown.starts_with(line)), "{line}: {output:#?}");
    }
    let has_pcap = |line: &str| line.strip_prefix("RNIC_PCAP=").is_some_and(|path| Path::new(path).is_absolute());
    assert!(output.out.lines().any(has_pcap), "{pcap}: {output:#?}");
    assert!(output.err.is_empty(), "{output:#?}");
}

#[test]
fn the_process_becomes_the_program() {
    let libraries = libraries();
    // It also works without `--`, and with options of the program itself.
    let child = start(libraries.path(), &["sh", "-c", "echo $$; exit 7"]);
    let pid = child.id();
    let output = finish(child);
    assert_eq!((output.status.code(), output.out.trim()), (Some(7), pid.to_string().as_str()));
    let output = run(libraries.path(), &["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn signals_are_delivered_to_the_program() {
    let libraries = libraries();
    // Not SIGINT: when the tests run in the background, SIGINT may be ignored, and a shell cannot trap a signal that
    // was ignored when it started.
    let script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = start(libraries.path(), &["--", "sh", "-c", script]);
    let mut out = child.stdout.take().expect("it is captured");
    assert_eq!(first_line(&mut out), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!((child.wait().expect("it ends").code(), rest.trim()), (Some(3), "caught"));
    // An ignored signal stays ignored (as with nohup): no process in between may have installed a handler for it.
    let ignoring = format!("trap '' HUP; exec {} run -- sh -c 'kill -HUP $$; echo alive'", env!("CARGO_BIN_EXE_rnic"));
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &ignoring]).env("RNIC_LIBRARY_DIR", libraries.path()).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "alive", "{output:?}");
}

/// With a recording, the command waits for the program, and ends as it does.
#[test]
fn a_recorded_program_ends_as_without_a_recording() {
    let libraries = libraries();
    let file = libraries.path().join("record.parquet");
    let record = ["--record", file.to_str().expect("a plain name"), "--loss", "1%", "--", "sh", "-c"];
    let output = run(libraries.path(), &[&record[..], &["echo $RNIC_LOSS; exit 7"]].concat());
    assert_eq!((output.status.code(), output.out.trim()), (Some(7), "1%"), "{output:#?}");
    assert!(output.err.contains("recorded 0 values in "), "{output:#?}");
    assert!(std::fs::read(&file).expect("a file without rows").starts_with(b"PAR1"));
    assert!(run(libraries.path(), &[&record[..], &["true"]].concat()).status.success());
    assert_eq!(run(libraries.path(), &[&record[..], &["kill -TERM $$"]].concat()).status.signal(), Some(15));
    let script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = start(libraries.path(), &[&record[..], &[script]].concat());
    assert_eq!(first_line(child.stdout.as_mut().expect("it is captured")), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let output = finish(child);
    assert_eq!((output.status.code(), output.out.trim()), (Some(3), "caught"), "{output:#?}");
    let missing = ["--record", "/dev/null/record.parquet", "--", "true"];
    run(libraries.path(), &missing).assert_refused(2, &["/dev/null"]);
}

#[test]
fn a_nested_run_uses_the_inner_settings() {
    let libraries = libraries();
    let inner = env!("CARGO_BIN_EXE_rnic");
    let output = run(libraries.path(), &["--loss", "1%", "--", inner, "run", "--loss", "2%", "--", "env"]).ok();
    assert!(output.out.lines().any(|line| line == "RNIC_LOSS=2%"), "{output:#?}");
    let preload = output.out.lines().find(|line| line.starts_with("LD_PRELOAD=")).expect("it is set");
    assert_eq!(preload.matches("libibverbs.so.1").count(), 1, "{preload}");
}

#[test]
fn the_variables_that_run_sets_can_be_shown_and_used() {
    let libraries = libraries();
    let output = run(libraries.path(), &["--loss", "1%", "--show"]).ok();
    assert!(output.out.lines().any(|line| line == "RNIC_LOSS=1%"), "{output:#?}");
    assert_eq!(output.out.lines().filter(|line| line.starts_with("LD_")).count(), 2, "{output:#?}");
}

/// Checks that the key file is found whatever folder is current when the program opens the device.
#[test]
fn a_relative_key_path_is_made_absolute() {
    let libraries = libraries();
    std::fs::write(libraries.path().join("secret"), [7; 32]).expect("a file can be written");
    for (given, found) in [("secret", "RNIC_KEY=/"), ("esp:secret", "RNIC_KEY=esp:/")] {
        let mut shown = command(&["run", "--transport", "falcon", "--key", given, "--show"]);
        shown.current_dir(libraries.path()).env("RNIC_LIBRARY_DIR", libraries.path());
        let output = finish(shown.spawn().expect("the command starts")).ok();
        assert!(output.out.lines().any(|line| line.starts_with(found) && line.ends_with("/secret")), "{output:#?}");
    }
}

#[test]
fn errors_are_one_line() {
    let libraries = libraries();
    let folder = libraries.path();
    run(folder, &["--loss", "1x", "--", "true"]).assert_refused(2, &["RNIC_LOSS=1x", "probability"]);
    run(folder, &["--transport", "falcon", "--key", "", "--", "true"])
        .assert_refused(2, &["RNIC_KEY=: no file with a secret"]);
    run(folder, &["--transport", "quic", "--", "true"]).assert_refused(2, &["quic", "roce-gbn", "rnic list"]);
    run(folder, &["--set", "control=swift-rate", "--", "true"])
        .assert_refused(2, &["`swift-rate` needs probes", "--messages on"]);
    run(folder, &["--", "no-such-program"]).assert_refused(2, &["no-such-program", "PATH"]);
    run(folder, &["--", "/etc"]).assert_refused(2, &["/etc", "folder"]);
    run(folder, &[]).assert_refused(2, &["PROGRAM"]);
    let empty = tempfile::tempdir().expect("a folder for the test");
    run(empty.path(), &["--", "true"]).assert_refused(2, &["libibverbs.so.1", "make build", "RNIC_LIBRARY_DIR"]);
    std::fs::copy(folder.join("libibverbs.so.1"), empty.path().join("libibverbs.so.1")).expect("a copy");
    run(empty.path(), &["--", "true"]).assert_refused(2, &["librnic-shim.so", "missing"]);
    let folder_with_blank = folder.join("a b");
    std::fs::create_dir(&folder_with_blank).expect("a folder");
    for name in ["libibverbs.so.1", "librdmacm.so.1", "librnic-shim.so", "librnic_sockets.so"] {
        std::fs::copy(folder.join(name), folder_with_blank.join(name)).expect("a copy");
    }
    run(&folder_with_blank, &["--", "true"]).assert_refused(2, &["a b", "LD_PRELOAD", "spaces"]);
}

#[test]
fn a_mistyped_variable_is_reported_before_the_program_runs() {
    let libraries = libraries();
    let mut run = command(&["run", "--", "true"]);
    let child = run.env("RNIC_LIBRARY_DIR", libraries.path()).env("RNIC_LOS", "1%").spawn();
    finish(child.expect("the command starts")).assert_refused(2, &["RNIC_LOS;", "RNIC_LOSS"]);
}
