//! Execution traces run as they are written: each node after those that it depends on, collectives as in the workload
//! `collective`.

mod common;

use core::ops::ControlFlow;
use std::path::Path;

use common::traces::{collective, computation, plan_with, receive, send, trace, training};
use common::{STAR, Threads, run};
use rnic_fabric::{NodeOrder, Plan, Report, Simulation};

const CHAKRA: (&str, &str) = ("workload", r#"{ kind = "chakra", file = "run" }"#);
/// Enough buffer for everything.
const SWITCH: (&str, &str) = ("switch", r#"{ model = "shared-buffer", buffer = "64MB" }"#);

fn report_of(plan: &Plan) -> Report {
    let report = Simulation::new(plan, 1).expect("a valid plan").run(&mut |_| ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    report
}

fn carry_out(traces: &[Vec<u8>], overrides: &[(&str, &str)]) -> Report {
    let settings: Vec<_> = [CHAKRA, SWITCH].iter().chain(overrides).copied().collect();
    report_of(&plan_with(STAR, &settings, traces).unwrap_or_else(|error| panic!("{error}")))
}

/// The same collective takes the same time in a trace and in the workload `collective`.
#[test]
fn a_collective_takes_the_time_of_the_workload_collective() {
    // An all-gather's input is the part of a rank.
    for (name, kind, input) in [
        ("all-reduce", 0, 1_200_000),
        ("all-gather", 2, 200_000),
        ("all-to-all", 6, 1_200_000),
        ("reduce-scatter", 7, 1_200_000),
    ] {
        let workload = format!(r#"{{ kind = "collective", collective = "{name}", bytes = "1200000" }}"#);
        let expected = run(STAR, &[SWITCH, ("workload", &workload)], 1);
        let report = carry_out(&vec![trace(&[collective(1, &[], kind, input)]); 6], &[]);
        let [expected_us, found_us] = [&expected, &report].map(|report| report.rct_us.expect("it is timed").avg);
        assert!((found_us / expected_us - 1.0).abs() < 1e-6, "{name}: {found_us} us, not {expected_us}");
        assert_eq!((report.bytes, report.messages), (expected.bytes, expected.messages), "{name}");
    }
}

/// A chain of computations and messages between two ranks takes the sum of their times.
#[test]
fn nodes_start_when_those_that_they_depend_on_have_ended() {
    let first = trace(&[
        computation(1, &[], 100),
        send(2, &[1], 1, 1_000),
        receive(3, &[2], 1, 1_000_000),
        computation(4, &[3], 70),
        computation(5, &[], 20),
    ]);
    let second = trace(&[receive(1, &[], 0, 1_000), computation(2, &[1], 50), send(3, &[2], 0, 1_000_000)]);
    let report = carry_out(&[first, second], &[]);
    let figures = report.execution.expect("there are traces");
    assert_eq!((figures.nodes, figures.nodes_unfinished, figures.compute_us), (8, 0, 220.0));
    // Two links of 1 us each way, and a megabyte at 100 Gbit/s with its headers.
    let network_us = 2.0 * 2.0 + 1_000_000.0 * (1_024.0 + 100.0) / 1_024.0 * 80e-6;
    let extra_us = figures.time_us - 220.0 - network_us;
    assert!((0.0..2.0).contains(&extra_us), "{} us", figures.time_us);
}

/// A computation that is longer than the time without packets after which a run has failed is no failure.
#[test]
fn a_long_computation_is_no_stall() {
    let wait = trace(&[computation(1, &[], 300_000), send(2, &[1], 1, 1_000)]);
    let report = carry_out(&[wait, trace(&[receive(1, &[], 0, 1_000)])], &[("run.stall_after", "5ms")]);
    assert!(report.execution.expect("there are traces").time_us > 300_000.0);
}

/// Real bytes of messages of different sizes, with both operations and with losses; the result does not depend on the
/// order of nodes or on the parts.
#[test]
fn traces_are_complete_in_spite_of_loss_and_runs_repeat() {
    let loss = ("fault", r#"[{ kind = "drop", probability = "1%" }]"#);
    let transports = [r#"{ name = "irn", rto_high = "200us" }"#, r#"{ name = "falcon" }"#, r#"{ name = "tcp" }"#];
    for (transport, op) in transports.into_iter().zip(["write-imm", "send", "send"]) {
        let workload = format!(r#"{{ kind = "chakra", file = "traces", op = "{op}" }}"#);
        let settings =
            [("workload", workload.as_str()), SWITCH, loss, ("payload", "checked"), ("transport", transport)];
        let plan = plan_with(STAR, &settings, &training()).unwrap_or_else(|error| panic!("{error}"));
        let report = report_of(&plan);
        let figures = report.execution.expect("there are traces");
        assert_eq!((figures.nodes, figures.nodes_unfinished, figures.collectives), (4 * 7 + 6, 0, 4), "{transport}");
        assert!(report.packets_retransmitted > 0 && report.requests_unfinished == 0, "{transport}");
        let mut backward = Simulation::new(&plan, 1).expect("a valid plan");
        backward.set_node_order(NodeOrder::Backward);
        let mut parts = Simulation::in_parts(&plan, 1, 3).expect("a valid plan");
        parts.set_runner(Box::new(Threads));
        for mut other in [backward, parts] {
            assert_eq!(other.run(&mut |_| ControlFlow::Continue(())).to_json(), report.to_json(), "{transport}");
        }
    }
}

/// Traces are found by their folder or by the start of their names, and the wrong ones are refused in one line.
#[test]
fn traces_are_found_by_name() {
    let error = |file: &str, traces: usize| {
        let workload = format!(r#"{{ kind = "chakra", file = "{file}" }}"#);
        let traces = vec![trace(&[computation(1, &[], 1)]); traces];
        plan_with(STAR, &[("workload", &workload)], &traces)
            .map_or_else(|error| error.to_string(), |_| "none".to_owned())
    };
    assert_eq!((error("traces", 2), error("traces/run", 6)), ("none".to_owned(), "none".to_owned()));
    assert!(
        error("traces/other", 2).contains("there are no traces `traces/other.0.et`"),
        "{}",
        error("traces/other", 2)
    );
    assert!(error("nowhere/run", 2).contains("no such folder"));
    assert!(error("run", 7).contains("traces of 7 ranks, but the topology has 6 hosts"), "{}", error("run", 7));
    let read = [("workload", r#"{ kind = "chakra", file = "run", op = "read" }"#)];
    let error = plan_with(STAR, &read, &training()).expect_err("nobody is notified").to_string();
    assert!(error.contains("workload.op: must notify the receiving rank"), "{error}");
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chakra"))
}

/// The files in `tests/chakra` are those that `training` writes: a change of the format is noticed.
#[test]
#[expect(clippy::disallowed_methods, reason = "it reads files")]
fn the_files_are_those_that_the_test_writes() {
    for (rank, bytes) in training().iter().enumerate() {
        let file = std::fs::read(folder().join(format!("training.{rank}.et"))).expect("the file is here");
        assert_eq!(&file, bytes, "rank {rank}");
    }
}

#[test]
#[ignore = "writes tests/chakra"]
#[expect(clippy::disallowed_methods, reason = "it writes files")]
fn write_the_files() {
    for (rank, bytes) in training().iter().enumerate() {
        std::fs::write(folder().join(format!("training.{rank}.et")), bytes).expect("the file is written");
    }
}
