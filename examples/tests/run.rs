//! Every example runs, and prints what its documentation states.
#![expect(clippy::disallowed_types, reason = "it runs the examples")]

use std::process::Command;

/// Runs an example; returns its output.
fn run(program: &str) -> String {
    let output = Command::new(program).output().expect("the example starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}: {}\n{out}{err}", output.status);
    out.into_owned()
}

#[test]
fn two_hosts_move_a_megabyte_through_losses() {
    let out = run(env!("CARGO_BIN_EXE_two-hosts"));
    assert!(out.contains("1048576 bytes written by irn, every byte compared"), "{out}");
}

#[test]
fn the_same_plan_and_seed_give_the_same_simulation() {
    let out = run(env!("CARGO_BIN_EXE_simulate"));
    assert!(["roce-gbn", "irn", "falcon"].iter().all(|transport| out.contains(transport)), "{out}");
    assert_eq!(out, run(env!("CARGO_BIN_EXE_simulate")), "the same plan and seed");
}

#[test]
fn a_custom_controller_keeps_queues_short() {
    let out = run(env!("CARGO_BIN_EXE_own-controller"));
    let queue = |transport: &str, control: &str| -> f64 {
        let line = out.lines().find(|line| line.starts_with(transport) && line.contains(control)).expect("a table row");
        line.split_whitespace().rev().nth(2).and_then(|text| text.parse().ok()).expect("the row has a mean queue")
    };
    assert!(queue("irn", "delay-target") < queue("irn", "line-rate") / 2.0, "{out}");
    assert!(queue("falcon", "delay-target") < queue("falcon", "swift"), "{out}");
}

#[test]
fn calls_of_a_custom_upper_layer_end_with_results_or_its_own_errors() {
    let out = run(env!("CARGO_BIN_EXE_own-upper-layer"));
    for line in ["square 12 = 144", "bits 255 = 8", "square 1000000 = 1000000000000"] {
        assert!(out.contains(&format!("result: {line}\n")), "{out}");
    }
    assert!(out.contains("call 2 failed: no such method") && out.contains("call 3 failed: bad argument"), "{out}");
    assert!(!out.contains("\n0 packets lost"), "{out}");
}

#[test]
fn blocks_written_by_nvme_are_read_back() {
    let out = run(env!("CARGO_BIN_EXE_nvme"));
    assert!(out.contains("128 blocks of 512 bytes written and read back"), "{out}");
    assert!(out.contains("LBA out of range"), "{out}");
}
