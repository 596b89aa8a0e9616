//! `rnic run` sets what it says and gets out of the way.

mod common;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use common::{command, finish, first_line};
use rustix::process::{Pid, Signal, kill_process};

/// A folder with libraries of our names that do nothing.
fn libraries() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for name in ["libibverbs.so.1", "librdmacm.so.1", "librnic-shim.so"] {
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(folder.path().join(name));
        assert!(compiler.status().expect("there is a compiler").success());
    }
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> common::Said {
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
fn the_program_gets_the_settings_and_our_libraries() {
    let libraries = libraries();
    let folder = libraries.path().to_str().expect("a plain name");
    let options = ["--loss", "1%", "--set", "rto_high=2ms", "--set", "rto_low=1ms", "--pcap", "a.pcap", "--quiet"];
    let said = run(libraries.path(), &[&options[..], &["--", "env"]].concat()).ok();
    let pcap = format!("RNIC_PCAP={}/a.pcap", common::root().canonicalize().expect("the tree").display());
    for line in [
        "RNIC_LOSS=1%",
        "RNIC_SET=rto_high=2ms,rto_low=1ms",
        "RNIC_QUIET=on",
        "RNIC_SEED=3",
        &format!("LD_LIBRARY_PATH={folder}"),
        &format!("LD_PRELOAD={folder}/librnic-shim.so:{folder}/libibverbs.so.1"),
    ] {
        assert!(said.out.lines().any(|said| said.starts_with(line)), "{line}: {said:#?}");
    }
    let has_pcap = |line: &str| line.strip_prefix("RNIC_PCAP=").is_some_and(|path| Path::new(path).is_absolute());
    assert!(said.out.lines().any(has_pcap), "{pcap}: {said:#?}");
    assert!(said.err.is_empty(), "{said:#?}");
}

#[test]
fn the_process_becomes_the_program() {
    let libraries = libraries();
    // Without `--` too, and with options of the program.
    let child = start(libraries.path(), &["sh", "-c", "echo $$; exit 7"]);
    let pid = child.id();
    let said = finish(child);
    assert_eq!((said.status.code(), said.out.trim()), (Some(7), pid.to_string().as_str()));
    let said = run(libraries.path(), &["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(said.status.signal(), Some(15));
}

#[test]
fn signals_go_to_the_program_as_they_would_without_us() {
    let libraries = libraries();
    // Not SIGINT: whoever runs the tests in the background may have it ignored, and then nobody can trap it.
    let script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = start(libraries.path(), &["--", "sh", "-c", script]);
    let mut out = child.stdout.take().expect("it is captured");
    assert_eq!(first_line(&mut out), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!((child.wait().expect("it ends").code(), rest.trim()), (Some(3), "caught"));
    // What is ignored stays ignored (nohup), for which nobody may have set a handler in between.
    let ignoring = format!("trap '' HUP; exec {} run -- sh -c 'kill -HUP $$; echo alive'", env!("CARGO_BIN_EXE_rnic"));
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &ignoring]).env("RNIC_LIBRARY_DIR", libraries.path()).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "alive", "{output:?}");
}

#[test]
fn a_run_inside_of_a_run_is_a_run() {
    let libraries = libraries();
    let inner = env!("CARGO_BIN_EXE_rnic");
    let said = run(libraries.path(), &["--loss", "1%", "--", inner, "run", "--loss", "2%", "--", "env"]).ok();
    assert!(said.out.lines().any(|line| line == "RNIC_LOSS=2%"), "{said:#?}");
    let preload = said.out.lines().find(|line| line.starts_with("LD_PRELOAD=")).expect("it is set");
    assert_eq!(preload.matches("libibverbs.so.1").count(), 1, "{preload}");
}

#[test]
fn what_it_sets_can_be_shown_and_used() {
    let libraries = libraries();
    let said = run(libraries.path(), &["--loss", "1%", "--show"]).ok();
    assert!(said.out.lines().any(|line| line == "RNIC_LOSS=1%"), "{said:#?}");
    assert_eq!(said.out.lines().filter(|line| line.starts_with("LD_")).count(), 2, "{said:#?}");
}

/// Whatever folder the program is in when it opens the device.
#[test]
fn a_key_is_found_from_any_folder() {
    let libraries = libraries();
    std::fs::write(libraries.path().join("secret"), [7; 32]).expect("a file can be written");
    for (given, found) in [("secret", "RNIC_KEY=/"), ("esp:secret", "RNIC_KEY=esp:/")] {
        let mut shown = command(&["run", "--transport", "falcon", "--key", given, "--show"]);
        shown.current_dir(libraries.path()).env("RNIC_LIBRARY_DIR", libraries.path());
        let said = finish(shown.spawn().expect("the command starts")).ok();
        assert!(said.out.lines().any(|line| line.starts_with(found) && line.ends_with("/secret")), "{said:#?}");
    }
}

#[test]
fn mistakes_are_one_line() {
    let libraries = libraries();
    let folder = libraries.path();
    run(folder, &["--loss", "1x", "--", "true"]).refused(2, &["RNIC_LOSS=1x", "probability"]);
    run(folder, &["--transport", "falcon", "--key", "", "--", "true"]).refused(2, &["RNIC_KEY=: names no file"]);
    run(folder, &["--transport", "quic", "--", "true"]).refused(2, &["quic", "roce-gbn", "rnic list"]);
    run(folder, &["--", "no-such-program"]).refused(2, &["no-such-program", "PATH"]);
    run(folder, &["--", "/etc"]).refused(2, &["/etc", "folder"]);
    run(folder, &[]).refused(2, &["PROGRAM"]);
    let empty = tempfile::tempdir().expect("a folder for the test");
    run(empty.path(), &["--", "true"]).refused(2, &["libibverbs.so.1", "make build", "RNIC_LIBRARY_DIR"]);
    std::fs::copy(folder.join("libibverbs.so.1"), empty.path().join("libibverbs.so.1")).expect("a copy");
    run(empty.path(), &["--", "true"]).refused(2, &["librnic-shim.so", "missing"]);
    let blank = folder.join("a b");
    std::fs::create_dir(&blank).expect("a folder");
    for name in ["libibverbs.so.1", "librdmacm.so.1", "librnic-shim.so"] {
        std::fs::copy(folder.join(name), blank.join(name)).expect("a copy");
    }
    run(&blank, &["--", "true"]).refused(2, &["a b", "LD_PRELOAD", "blank"]);
}

#[test]
fn a_mistyped_variable_of_the_environment_is_found_before_the_program_runs() {
    let libraries = libraries();
    let mut run = command(&["run", "--", "true"]);
    let said = finish(run.env("RNIC_LIBRARY_DIR", libraries.path()).env("RNIC_LOS", "1%").spawn().expect("it starts"));
    said.refused(2, &["RNIC_LOS ", "RNIC_LOSS"]);
}
