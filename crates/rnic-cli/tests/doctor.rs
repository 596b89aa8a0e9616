//! Checks that `rnic doctor` reports what works, in its output and in its exit code.

mod common;

use std::path::Path;
use std::process::Command;

use common::{command, finish};

/// Builds libraries with the file names that programs load, which export the functions `names`.
fn libraries(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let source = folder.path().join("a.c");
    let text: String = names.iter().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    std::fs::write(&source, text).expect("it is written");
    for name in ["libibverbs.so.1", "librdmacm.so.1", "librnic-shim.so", "librnic_sockets.so"] {
        let mut compiler = Command::new("cc");
        compiler.arg("-shared").arg("-o").arg(folder.path().join(name)).arg(&source);
        assert!(compiler.status().expect("there is a compiler").success());
    }
    folder
}

fn run_doctor(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> common::CommandOutput {
    let mut doctor = command(&[&["doctor"], arguments].concat());
    doctor.env("RNIC_LIBRARY_DIR", folder).envs(variables.iter().copied());
    finish(doctor.spawn().expect("the command starts"))
}

const NAMES: &[&str] =
    &["ibv_get_device_list", "ibv_open_device", "ibv_reg_mr_iova2", "rdma_create_event_channel", "rnic_look"];

#[test]
fn a_working_machine_is_described() {
    let libraries = libraries(NAMES);
    let output = run_doctor(libraries.path(), &[("RNIC_LOSS", "1%"), ("RNIC_SEED", "7")], &[]).ok();
    for text in ["rnic0", "not hardware", "loss 1%, seed 7", "UDP port 4791", "127.0.0.1", "RNIC_JITTER", "Works"] {
        assert!(output.out.contains(text), "{text}: {output:#?}");
    }
    assert!(output.out.starts_with("Works: try `rnic run -- ibv_devinfo`.\n"), "the verdict is not first: {output:#?}");
    assert!(output.out.lines().all(|line| line.chars().count() <= 120), "{output:#?}");
}

#[test]
fn the_json_output_has_every_check_with_its_state() {
    let libraries = libraries(NAMES);
    let all = run_doctor(libraries.path(), &[("RNIC_LOSS", "1%")], &["--json"]).json();
    assert_eq!((&all["works"], &all["device"]), (&true.into(), &"rnic0".into()));
    let checks = all["checks"].as_array().expect("a list");
    for name in ["libraries", "dynamic linker", "settings", "addresses", "UDP port 4791", "offloads", "receive buffer"]
    {
        let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {all}"));
        assert!(check["state"] == "ok" || check["advice"].is_string(), "{check}");
    }
    let gids = all["gids"].as_array().expect("a list");
    assert!(gids.iter().any(|gid| gid["gid"] == "::ffff:127.0.0.1" && gid["wire_mtu_bytes"].is_u64()), "{all}");
    let settings = all["settings"].as_array().expect("a list");
    let loss = settings.iter().find(|setting| setting["name"] == "RNIC_LOSS").expect("RNIC_LOSS is a setting");
    assert_eq!((&loss["value"], &loss["default"]), (&"1%".into(), &"0".into()));
}

#[test]
fn failed_checks_are_reported_with_a_remedy() {
    let empty = tempfile::tempdir().expect("a folder for the test");
    let fails = |folder: &Path, variables: &[(&str, &str)], expected_texts: &[&str]| {
        let output = run_doctor(folder, variables, &[]);
        assert_eq!(output.status.code(), Some(1), "{output:#?}");
        for text in expected_texts {
            assert!(output.out.contains(text), "{text}: {output:#?}");
        }
        assert_eq!(output.err.lines().count(), 1, "{output:#?}");
    };
    fails(empty.path(), &[], &["FAILS", "make build", "Does not work"]);
    let some = libraries(&["ibv_get_device_list"]);
    fails(some.path(), &[], &["lacks ibv_open_device", "link-verbs"]);
    let complete = libraries(NAMES);
    fails(complete.path(), &[("RNIC_LOSS", "much")], &["RNIC_LOSS=much", "correct or unset"]);
    std::fs::write(complete.path().join("librnic-shim.so"), "not a library").expect("it is written");
    fails(complete.path(), &[], &["dynamic linker", "librnic-shim.so"]);
}
