//! Checks that each fault rule has its expected effect at the hosts.

mod common;

use common::*;

fn with_fault(fault: &str, transport: &str) -> rnic_fabric::Report {
    let workload = r#"{ kind = "closed-loop", op = "write-imm", message = "64KiB", depth = 4, count = 200 }"#;
    run(WIRE, &[("fault", fault), ("transport", transport), ("workload", workload), ("payload", "checked")], 5)
}

#[test]
fn packets_are_dropped_at_the_given_rate_and_retransmitted() {
    let report = with_fault(r#"[{ kind = "drop", packets = "data", probability = "1%" }]"#, TRANSPORTS[0]);
    let sent = report.packets_sent + report.packets_retransmitted;
    let rate = report.drops.fault as f64 / sent as f64;
    assert!((0.007..0.013).contains(&rate), "{rate}");
    assert_eq!(
        report.packets_retransmitted, report.drops.fault,
        "selective repeat retransmitted more or less than was lost"
    );
    let report = with_fault(r#"[{ kind = "drop", packets = "data", probability = "1%" }]"#, TRANSPORTS[1]);
    assert!(report.packets_retransmitted > 5 * report.drops.fault, "go-back-N retransmitted little");
    assert!(report.drops.unused > 5 * report.drops.fault, "the go-back-N receiver used out-of-order packets");
}

#[test]
fn lost_acknowledgements_cause_few_retransmissions() {
    let report = with_fault(r#"[{ kind = "drop", packets = "acks", probability = "5%" }]"#, TRANSPORTS[0]);
    assert!(report.drops.fault > 300);
    assert!(
        report.packets_retransmitted < 20,
        "later acknowledgements did not replace lost ones: {}",
        report.packets_retransmitted
    );
}

#[test]
fn duplicates_are_discarded() {
    for transport in TRANSPORTS {
        let report = with_fault(r#"[{ kind = "duplicate", probability = "10%" }]"#, transport);
        assert!(report.packet_hops < (report.packets_sent + report.acks_sent + report.packets_retransmitted) * 11 / 10);
        assert_eq!(report.packets_dropped, 0);
    }
}

#[test]
fn corrupt_packets_are_detected_with_and_without_bytes() {
    for transport in TRANSPORTS {
        let fault = ("fault", r#"[{ kind = "corrupt", probability = "2%" }]"#);
        let direct = run(WIRE, &[fault, ("transport", transport)], 5);
        let encoded = run(WIRE, &[fault, ("transport", transport), ("wire", "encoded")], 5);
        assert!(direct.drops.corrupt > 10);
        assert_eq!(direct.drops, encoded.drops, "the checksum did not find every corrupt packet");
    }
}

/// Marks reach the receiver as those of a switch do: DCQCN sends slower, with packets as bytes, too.
#[test]
fn marked_packets_slow_dcqcn_down() {
    let marks = r#"[{ kind = "mark", probability = "2%" }]"#;
    for wire in ["direct", "encoded"] {
        let workload = r#"{ kind = "closed-loop", op = "write-imm", message = "64KiB", depth = 4, count = 200 }"#;
        let run_with = |fault: &str| {
            let dcqcn = r#"{ name = "irn", control = "dcqcn", cap_packets = 64 }"#;
            run(WIRE, &[("fault", fault), ("transport", dcqcn), ("workload", workload), ("wire", wire)], 5)
        };
        let (marked, plain) = (run_with(marks), run_with("[]"));
        let share = marked.ecn_marks as f64 / marked.packets_sent as f64;
        assert!((0.013..0.027).contains(&share), "{share}");
        assert!(marked.cnps > 0 && marked.cnps <= marked.ecn_marks && plain.cnps == 0, "{}", marked.cnps);
        assert!(marked.goodput_gbps < plain.goodput_gbps * 0.7, "{} of {}", marked.goodput_gbps, plain.goodput_gbps);
        assert_eq!((marked.packets_retransmitted, marked.drops.fault), (0, 0));
    }
}

#[test]
fn reordering_is_treated_as_loss_unless_a_nack_threshold_is_set() {
    let fault = r#"[{ kind = "reorder", packets = "data", probability = "1%", displacement = 2 }]"#;
    let report = with_fault(fault, TRANSPORTS[0]);
    assert!(report.packets_retransmitted > 50 && report.packets_dropped == 0);
    let tolerant = r#"{ name = "irn", cap_packets = 64, nack_threshold = 5 }"#;
    let report = with_fault(fault, tolerant);
    assert!(report.packets_retransmitted < 10, "{}", report.packets_retransmitted);
}

#[test]
fn delay_is_added_to_every_packet() {
    let workload = ("workload", r#"{ kind = "closed-loop", op = "write", message = 64, count = 50 }"#);
    let plain = run(WIRE, &[workload], 1).latency_us.expect("the workload measures latencies");
    let fault = ("fault", r#"[{ kind = "delay", delay = "3us", links = "host-0>*" }]"#);
    let slow = run(WIRE, &[workload, fault], 1).latency_us.expect("the workload measures latencies");
    assert!((slow.p50 - plain.p50 - 3.0).abs() < 1e-6);
    let fault = ("fault", r#"[{ kind = "delay", jitter = "2us" }]"#);
    let jittered = run(WIRE, &[workload, fault], 1).latency_us.expect("the workload measures latencies");
    assert!(jittered.max > plain.max + 2.0 && jittered.max < plain.max + 4.0 && jittered.p50 > plain.p50 + 1.0);
}

#[test]
fn a_link_that_is_down_loses_every_packet_until_it_is_up() {
    let fault = r#"[{ kind = "down", from = "50us", until = "150us" }]"#;
    for transport in TRANSPORTS {
        let report = with_fault(fault, transport);
        let flow = &report.records[0];
        assert!(flow.fct.as_us_f64() > 1_100.0, "13 MB take 1.06 ms, and 0.1 ms are missing: {}", flow.fct);
        assert!(report.drops.fault > 0 && report.timeouts > 0);
    }
}

#[test]
fn a_fault_affects_only_its_links() {
    let fault = ("fault", r#"[{ kind = "drop", probability = "5%", links = "host-3>switch-0" }]"#);
    let report = run(STAR, &[fault, ("switch.buffer", "1MB")], 1);
    assert!(report.drops.fault > 0);
    for flow in &report.records {
        let expected = flow.src == 3;
        assert_eq!(flow.slowdown() > 9.0, expected, "host {}: {}", flow.src, flow.slowdown());
    }
}

#[test]
fn bursts_lose_the_given_number_of_packets() {
    // Of 12,800 packets and the retransmissions, one in 500 begins a burst of ten.
    let report =
        with_fault(r#"[{ kind = "burst", packets = "data", probability = "0.2%", length = 10 }]"#, TRANSPORTS[0]);
    let sent = report.packets_sent + report.packets_retransmitted;
    let rate = report.drops.fault as f64 / sent as f64;
    assert!((0.013..0.027).contains(&rate), "{rate}");
    assert!(report.drops.fault.is_multiple_of(10) || report.timeouts > 0, "{}", report.drops.fault);
}

/// A packet that leaves at 0, 100 and 200 us finds the link down; the one of 300 us arrives.
#[test]
fn every_timeout_is_counted() {
    let with = [
        ("fault", r#"[{ kind = "down", until = "250us", packets = "data" }]"#),
        ("transport", TRANSPORTS[1]),
        ("workload", r#"{ kind = "closed-loop", op = "write-imm", message = "1KB", count = 1 }"#),
    ];
    let report = run(WIRE, &with, 1);
    assert_eq!((report.timeouts, report.packets_sent, report.packets_retransmitted), (3, 1, 3));
    assert!(
        (302.0..302.2).contains(&report.latency_us.expect("the workload measures latencies").max),
        "{:?}",
        report.latency_us
    );
}

/// 12.5 MB at 100 Gbit/s take a millisecond; when the link runs at a tenth of its rate for one millisecond, they take
/// 0.9 ms longer.
#[test]
fn a_slow_link_carries_its_reduced_rate() {
    let workload = r#"{ kind = "closed-loop", op = "write-imm", message = "64KiB", depth = 4, count = 200 }"#;
    let elapsed = |fault: &str| run(WIRE, &[("fault", fault), ("workload", workload)], 5).elapsed_us;
    let whole = elapsed("[]");
    let slow = elapsed(r#"[{ kind = "slow", rate = "10Gbps", from = "100us", until = "600us", links = "host-0>*" }]"#);
    assert!((slow - whole - 450.0).abs() < 5.0, "{whole} and {slow}");
    let permanent = elapsed(r#"[{ kind = "slow", rate = "50Gbps", links = "host-0>*, host-1>*" }]"#);
    assert!((permanent / whole - 2.0).abs() < 0.02, "{whole} and {permanent}");
}

/// Flows that hash to the spine that is cut stop until it is back; the others are not affected.
#[test]
fn a_failed_spine_delays_only_the_flows_hashed_to_it() {
    let text = r#"
        name = "four paths"
        topology = { kind = "leaf-spine", spines = 4, leaves = 2, hosts_per_leaf = 8 }
        links = { rate = "100Gbps", delay = "1us" }
        switch = { model = "shared-buffer", buffer = "9MB" }
        transport = { name = "irn", cap_packets = 64, rto_low = "50us", rto_high = "100us" }
        workload = { kind = "permutation", bytes = "1MB" }
        fault = [{ kind = "down", links = "leaf-*>spine-1, spine-1>leaf-*", from = "20us", until = "1ms" }]
    "#;
    let report = run(text, &[], 2);
    let late = report.records.iter().filter(|flow| flow.fct.as_us_f64() > 1_000.0).count();
    let crossing = report.records.iter().filter(|flow| flow.src / 8 != flow.dst / 8).count();
    assert!(late > 0 && late < crossing, "{late} of {crossing} crossing flows wait for the spine");
    assert!(report.drops.fault > 0);
}
