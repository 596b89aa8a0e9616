//! Transport programs (Tonic) in simulated networks, beside the policies written by hand.

mod common;

use std::path::Path;

use common::*;
use rnic_fabric::{Report, Simulation};
use rnic_transports::programs;

/// The six programs, with timeouts that suit small networks.
const PROGRAMS: [&str; 6] = [
    "{ name = \"tonic-reno\", rto_min = \"100us\", rto_max = \"1ms\" }",
    "{ name = \"tonic-new-reno\", rto_min = \"100us\", rto_max = \"1ms\" }",
    "{ name = \"tonic-sack\", rto_min = \"100us\", rto_max = \"1ms\" }",
    "{ name = \"tonic-ndp\", rto = \"100us\" }",
    "{ name = \"tonic-dcqcn\", rto = \"100us\" }",
    "{ name = \"tonic-irn\", cap = 64, rto_low = \"50us\", rto_high = \"200us\" }",
];

/// Runs a plan to its end; asserts that all checks pass and every flow is complete.
fn run(text: &str, overrides: &[(&str, &str)], seed: u64) -> Report {
    let report = finish(Simulation::new(&plan(text, overrides), seed).expect("the plan is valid"));
    report.check().unwrap_or_else(|failure| panic!("{overrides:?}: {failure}"));
    assert_eq!(report.flows_unfinished, 0, "{overrides:?}");
    report
}

#[test]
fn t28_every_program_delivers_everything_under_faults_of_every_kind() {
    for transport in PROGRAMS {
        for seed in 1..=3 {
            run(WIRE, &[("transport", transport), FAULTS], seed);
        }
        run(STAR, &[("transport", transport)], 1);
    }
}

/// The responder sends the data of Reads by a window of its own, with a program of its own (appendix A).
#[test]
fn t27_writes_sends_reads_and_atomics_run_over_every_program() {
    for transport in PROGRAMS {
        for op in ["\"write\"", "\"send\"", "\"read\"", "\"fetch-add\""] {
            let message = if op == "\"fetch-add\"" { "\"8B\"" } else { "\"10KB\"" };
            let overrides = [("transport", transport), ("workload.op", op), ("workload.message", message), FAULTS];
            run(WIRE, &overrides, 2);
        }
    }
}

/// Several flows for messages in any order, under faults of every kind; the checks of the fabric hold, and the result
/// does not depend on the order of nodes.
#[test]
fn t27_every_program_delivers_everything_over_several_flows() {
    for transport in PROGRAMS {
        for (op, flows) in [("\"write\"", 4), ("\"read\"", 2), ("\"write-imm\"", 8)] {
            let transport = transport.replacen(',', &format!(", flows = {flows},"), 1);
            let overrides = [("transport", &*transport), ("workload.op", op), FAULTS];
            let report = run(WIRE, &overrides, 2);
            assert_independent_of_order_and_parts(&report, WIRE, &overrides, 2, &transport);
        }
    }
}

/// With 1 % loss a program that halves its window at each loss delays all messages of a queue pair behind it; over four
/// flows only those of one. The 99th percentile of the time from arrival to completion falls to less than two thirds,
/// although completions are reported in order.
#[test]
fn t27_several_flows_shorten_the_tail_of_messages_at_one_percent_loss() {
    let text = r#"
        name = "several flows"
        mtu = 4096
        topology = { kind = "point-to-point" }
        links = { rate = "100Gbps", delay = "5us" }
        transport = { name = "tonic-new-reno" }
        workload = { kind = "open-loop", op = "write", message = "16KB", depth = 1024, load = "30%", duration = "10ms" }
        fault = [{ kind = "drop", packets = "data", probability = "1%" }]
    "#;
    for name in ["tonic-reno", "tonic-new-reno"] {
        let tail = |flows: u8| {
            let transport = format!("{{ name = \"{name}\", rto_min = \"100us\", rto_max = \"1ms\", flows = {flows} }}");
            let reports = (1..=3).map(|seed| run(text, &[("transport", &transport)], seed));
            reports.map(|report| report.latency_us.expect("an open loop measures it").p99).sum::<f64>() / 3.0
        };
        let (one, four) = (tail(1), tail(4));
        assert!(four < one * 2.0 / 3.0, "{name}: {four} us over four flows, {one} us over one");
    }
}

/// Equal decisions in every event, or the hashes of the traces would differ: the program and the hand-written policy,
/// with the same cap and timeouts (multiples of a program's tick of 160 ns), under loss, reordering and bursts.
#[test]
fn t28_irn_as_a_program_decides_as_the_policy_written_by_hand() {
    let by_hand = "{ name = \"irn\", cap_packets = 64, rto_low = \"80us\", rto_high = \"240us\" }";
    let program = "{ name = \"tonic-irn\", cap_packets = 64, cap = 64, rto_low = \"80us\", rto_high = \"240us\" }";
    for text in [WIRE, STAR, TREE] {
        for seed in 1..=4 {
            let [one, other] = [by_hand, program].map(|transport| run(text, &[("transport", transport), FAULTS], seed));
            assert!(one.packets_retransmitted > 0, "nothing was repeated, so that nothing was compared");
            assert_eq!(
                one.trace_hash, other.trace_hash,
                "seed {seed}: {} and {} timeouts",
                one.timeouts, other.timeouts
            );
        }
    }
}

/// Without congestion notifications, the program is go-back-N as written by hand.
#[test]
fn t28_dcqcn_without_notifications_decides_as_go_back_n() {
    for seed in 1..=4 {
        let faults = ("fault", "[{ kind = \"drop\", packets = \"data\", probability = \"1%\" }]");
        let [one, other] = ["roce-gbn", "tonic-dcqcn"].map(|name| {
            let transport = format!("{{ name = \"{name}\", rto = \"100us\" }}");
            run(WIRE, &[("transport", &transport), faults], seed)
        });
        assert!(one.packets_retransmitted > 0);
        assert_eq!(one.trace_hash, other.trace_hash, "seed {seed}");
    }
}

/// Two flows share a link of 40 Gbit/s with ECN: both controllers divide it, and their rates agree.
#[test]
fn t28_dcqcn_as_a_program_shares_a_link_as_the_controller_written_by_hand() {
    let text = r#"
        name = "two into one"
        mtu = 1024
        topology = { kind = "star", hosts = 3 }
        links = { rate = "40Gbps", delay = "1us" }
        switch = { model = "input-queued", buffer = "500KB", ecn = { kmin = "5KB", kmax = "200KB", pmax = "1%" } }
        transport = { name = "roce-gbn" }
        workload = { kind = "incast", senders = 2, bytes = "20MB" }
    "#;
    let by_hand =
        "{ name = \"roce-gbn\", control = \"dcqcn\", cap_packets = 128, rto = \"1ms\", rate_min = \"100Mbps\" }";
    let program = "{ name = \"tonic-dcqcn\", rto = \"1ms\" }";
    // A mark more or less halves a rate, so single runs differ by a fifth.
    let times = [by_hand, program].map(|transport| {
        let reports = (1..=6).map(|seed| run(text, &[("transport", transport)], seed));
        let times = reports.map(|report| if report.cnps > 0 { report.elapsed_us } else { f64::NAN });
        times.sum::<f64>() / 6.0
    });
    assert!((times[0] / times[1] - 1.0).abs() < 0.1, "{times:?} us until both flows are complete, or no notification");
}

/// A program that was loaded from its file decides as its native code: equal traces.
#[test]
#[expect(clippy::disallowed_methods, reason = "a program file is an input of the run")]
fn t19_a_program_from_its_file_sends_the_same_packets() {
    for (number, (transport, program)) in PROGRAMS.iter().zip(programs::all()).enumerate() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{number}.rnicp"));
        std::fs::write(&path, programs::to_file(program).expect("it has graphs")).expect("it is written");
        let from_file = transport.replacen(',', &format!(", program = \"{}\",", path.display()), 1);
        let [native, loaded] =
            [*transport, &from_file].map(|transport| run(WIRE, &[("transport", transport), FAULTS], 3));
        assert!(native.packets_retransmitted > 0, "nothing was repeated, so that nothing was compared");
        assert_eq!(native.trace_hash, loaded.trace_hash, "{from_file}");
        assert!(native.program.is_none() && loaded.program.is_some(), "the report does not tell them apart");
    }
}
