//! The device's files under /sys, as programs and scripts see them through calls of the C library.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `line` with the path shim and the library preloaded, as `rnic run` does it.
fn under(line: &[&str]) -> Output {
    let libraries = common::libraries();
    let preload = ["librnic-shim.so", "libibverbs.so.1"].map(|name| libraries.join(name).display().to_string());
    let mut command = common::command(&["env", &format!("LD_PRELOAD={}", preload.join(":"))], 60);
    command.args(line).output().expect("the command runs")
}

#[track_caller]
fn says(line: &[&str]) -> String {
    let output = under(line);
    assert!(output.status.success(), "{line:?}: {}", common::output_text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds a program of C that stands beside this test.
fn build(name: &str, into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tree").join(name).with_extension("c");
    let program = into.join(name);
    let output = Command::new("cc").args(["-O1", "-Wall", "-Wextra", "-o"]).arg(&program).arg(source).output();
    let output = output.expect("cc, which links the library too");
    assert!(output.status.success(), "{}", common::output_text(&output));
    program
}

#[test]
fn every_call_sees_the_same_tree() {
    let place = tempfile::tempdir().expect("a folder");
    let program = build("walk", place.path());
    let said = says(&[program.to_str().expect("a path")]);
    assert!(said.contains(" 0 wrong") && !said.contains("WRONG"), "{said}");
}

/// The operations of `ibdev2netdev` and similar scripts, in shells whose built-in commands make these calls.
#[test]
fn scripts_find_ports_and_network_interfaces() {
    let script = r#"
        for device in /sys/class/infiniband/*; do
            for port in "$device"/ports/*; do
                read -r state < "$port/state"
                for net in "$device"/device/net/*; do
                    printf '%s port %s (%s) ==> %s\n' "${device##*/}" "${port##*/}" "${state#* }" "${net##*/}"
                done
                cat "$port/gid_attrs/types/0" "$port/counters/port_xmit_data" "$port/../../device/vendor"
            done
        done"#;
    for shell in ["sh", "bash"] {
        if !common::is_installed(shell) {
            continue;
        }
        let said = says(&[shell, "-c", script]);
        assert!(said.contains("rnic0 port 1 (ACTIVE) ==> "), "{shell}: {said}");
        assert!(said.contains("RoCE v2\n") && said.contains("0x4f52\n"), "{shell}: {said}");
    }
}

#[test]
fn common_tools_read_the_tree() {
    assert!(says(&["ls", "/sys/class/infiniband"]).contains("rnic0"));
    let long = says(&["ls", "-l", "/sys/class/infiniband/"]);
    assert!(long.contains("rnic0 -> ../../devices/pci"), "{long}");
    let real = says(&["readlink", "-f", "/sys/class/infiniband/rnic0/device"]);
    assert!(real.starts_with("/sys/devices/pci"), "{real}");
    assert_eq!(says(&["cat", "/sys/class/infiniband/rnic0/ports/1/rate"]), "100 Gb/sec (4X EDR)\n");
    if common::is_installed("find") {
        let found = says(&["find", "/sys/class/infiniband/rnic0/", "-name", "port_rcv_*"]);
        assert!(found.lines().count() >= 5, "{found}");
    }
    if common::is_installed("python3") {
        let script = [
            "import os, glob, pathlib",
            "p = pathlib.Path('/sys/class/infiniband')",
            "print(sorted(os.listdir(p)), p.joinpath('rnic0').resolve().name, glob.glob(str(p) + '/*/ports/*'))",
            "print(open(p / 'rnic0/device/numa_node').read().strip(), os.path.realpath(str(p) + '/rnic0/../..'))",
        ]
        .join("\n");
        let said = says(&["python3", "-c", &script]);
        assert!(said.contains("['rnic0'] rnic0 ['/sys/class/infiniband/rnic0/ports/1']"), "{said}");
    }
}
