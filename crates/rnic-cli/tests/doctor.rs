//! `rnic doctor` says what works, and its exit code too.

mod common;

use std::path::Path;
use std::process::Command;

use common::{command, finish};

/// Libraries that have the names that programs ask for first.
fn libraries(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let source = folder.path().join("a.c");
    let text: String = names.iter().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    std::fs::write(&source, text).expect("it is written");
    for name in ["libibverbs.so.1", "librdmacm.so.1", "librnic-shim.so"] {
        let mut compiler = Command::new("cc");
        compiler.arg("-shared").arg("-o").arg(folder.path().join(name)).arg(&source);
        assert!(compiler.status().expect("there is a compiler").success());
    }
    folder
}

fn doctor(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> common::Said {
    let mut doctor = command(&[&["doctor"], arguments].concat());
    doctor.env("RNIC_LIBRARY_DIR", folder).envs(variables.iter().copied());
    finish(doctor.spawn().expect("the command starts"))
}

const NAMES: &[&str] =
    &["ibv_get_device_list", "ibv_open_device", "ibv_reg_mr_iova2", "rdma_create_event_channel", "rnic_look"];

#[test]
fn a_machine_that_works_is_described() {
    let libraries = libraries(NAMES);
    let said = doctor(libraries.path(), &[("RNIC_LOSS", "1%"), ("RNIC_SEED", "7")], &[]).ok();
    for part in ["rnic0", "not hardware", "loss 1%, seed 7", "UDP port 4791", "127.0.0.1", "RNIC_JITTER", "Works"] {
        assert!(said.out.contains(part), "{part}: {said:#?}");
    }
    assert!(said.out.lines().all(|line| line.chars().count() <= 120), "{said:#?}");
}

#[test]
fn programs_see_every_check_with_its_state() {
    let libraries = libraries(NAMES);
    let all = doctor(libraries.path(), &[("RNIC_LOSS", "1%")], &["--json"]).json();
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
    let loss = settings.iter().find(|setting| setting["name"] == "RNIC_LOSS").expect("it is one");
    assert_eq!((&loss["value"], &loss["default"]), (&"1%".into(), &"0".into()));
}

#[test]
fn what_stops_it_from_working_is_named_with_what_to_do() {
    let empty = tempfile::tempdir().expect("a folder for the test");
    let fails = |folder: &Path, variables: &[(&str, &str)], says: &[&str]| {
        let said = doctor(folder, variables, &[]);
        assert_eq!(said.status.code(), Some(1), "{said:#?}");
        for part in says {
            assert!(said.out.contains(part), "{part}: {said:#?}");
        }
        assert_eq!(said.err.lines().count(), 1, "{said:#?}");
    };
    fails(empty.path(), &[], &["FAILS", "make build", "Does not work"]);
    let some = libraries(&["ibv_get_device_list"]);
    fails(some.path(), &[], &["lacks ibv_open_device", "link-verbs"]);
    let whole = libraries(NAMES);
    fails(whole.path(), &[("RNIC_LOSS", "much")], &["RNIC_LOSS=much", "correct or unset"]);
    std::fs::write(whole.path().join("librnic-shim.so"), "not a library").expect("it is written");
    fails(whole.path(), &[], &["dynamic linker", "librnic-shim.so"]);
}
