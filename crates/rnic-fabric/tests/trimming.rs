//! Switches that trim, and receivers that pull: an incast loses no packet, only payload.
//!
//! Source: NDP (SIGCOMM'17) sections 3.1 and 3.2; Tonic (NSDI'20) mechanisms T-14, T-16 and T-25.

mod common;

use common::*;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rnic_base::RandomStreams;
use rnic_fabric::{NodeOrder, Report, Simulation};

/// An incast of eight senders, in a network whose switch trims.
const INCAST: &str = r#"
    name = "trimmed incast"
    mtu = 1024
    topology = { kind = "star", hosts = 9 }
    links = { rate = "100Gbps", delay = "1us" }
    switch = { model = "input-queued", buffer = "240KB", trim = {} }
    transport = { name = "tonic-ndp" }
    workload = { kind = "incast", senders = 8, bytes = "800KB" }
"#;

/// Runs the plan with receivers that pull; asserts that all checks pass and every flow is complete.
fn run_pulled(overrides: &[(&str, &str)], seed: u64) -> Report {
    let plan = plan(INCAST, overrides);
    let report = finish(Simulation::new(&plan, seed).expect("the plan is valid"));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.flows_unfinished, 0);
    report
}

/// Nothing is lost but payload, no timer expires, and the receiver's link is busy from the first to the last byte: the
/// incast takes hardly longer than the transmission of its bytes.
#[test]
fn t25_an_incast_loses_payload_only_and_takes_the_ideal_time() {
    let report = run_pulled(&[], 1);
    assert_eq!((report.packets_dropped, report.timeouts), (0, 0));
    assert!(report.trimmed > 50, "{} packets trimmed", report.trimmed);
    assert_eq!(report.packets_retransmitted, report.trimmed, "a packet was sent again although its payload arrived");
    // 800 KB in packets of 1024 bytes, 1122 with headers, preamble and gap: 70.1 us; two links of 1 us.
    let ideal_us = 72.1;
    assert!(report.elapsed_us < ideal_us * 1.1, "{} us", report.elapsed_us);
    // Eight packets wait in the switch at most.
    assert!(report.queue_max_bytes <= 8 * 1_102, "{} bytes waited", report.queue_max_bytes);
}

/// Without trimming, the same incast loses packets and waits for timeouts.
#[test]
fn without_trimming_the_incast_loses_packets() {
    let switch = r#"{ model = "input-queued", buffer = "12KB" }"#;
    let report = run_pulled(&[("switch", switch)], 1);
    assert!(report.trimmed == 0 && report.drops.buffer > 0 && report.timeouts > 0, "{report:?}");
}

/// The trace does not depend on the representation of packets, and bytes arrive as they were sent.
#[test]
fn trimmed_packets_are_the_same_encoded_and_in_any_order() {
    let faults = r#"[{ kind = "drop", probability = "1%" }, { kind = "corrupt", probability = "1%" },
        { kind = "duplicate", probability = "1%" }, { kind = "reorder", probability = "1%", displacement = 3 }]"#;
    for (op, faults) in [("write-imm", "[]"), ("send", "[]"), ("read", "[]"), ("send", faults), ("read", faults)] {
        let workload = format!(
            r#"{{ kind = "closed-loop", op = "{op}", message = "60KB", depth = 3, count = 12, from = 1, clients = 7,
                to = 0, queue_pairs = 7 }}"#
        );
        let overrides = [("workload", workload.as_str()), ("fault", faults)];
        let direct = run_pulled(&overrides, 7);
        if op != "read" {
            assert!(direct.trimmed > 100, "{op}: {} packets trimmed", direct.trimmed);
        }
        let with_bytes = [("payload", "checked"), ("wire", "encoded")];
        for extra in [&with_bytes[..1], &with_bytes[1..], &with_bytes[..]] {
            let encoded = run_pulled(&[&overrides[..], extra].concat(), 7);
            assert_eq!(encoded.trace_hash, direct.trace_hash, "{op} {faults} {extra:?}");
        }
        let plan = plan(INCAST, &overrides);
        let mut backwards = Simulation::new(&plan, 7).expect("the plan is valid");
        backwards.set_node_order(NodeOrder::Backward);
        assert_eq!(finish(backwards).to_json(), direct.to_json(), "{op}");
        let mut in_parts = Simulation::in_parts(&plan, 7, 3).expect("the plan is valid");
        in_parts.set_runner(Box::new(Threads));
        assert_eq!(finish(in_parts).to_json(), direct.to_json(), "{op}");
    }
}

/// A modelled NIC sends pulls and NACKs as it sends acknowledgements.
#[test]
fn t25_pulls_pass_through_a_modelled_nic() {
    let nic = r#"{ qpc_entries = 4, bus_reads = 16 }"#;
    let report = run_pulled(&[("nic", nic), ("payload", "checked")], 1);
    assert!(report.trimmed > 50 && report.timeouts == 0, "{} trimmed, {} timeouts", report.trimmed, report.timeouts);
    assert_eq!(report.drops.buffer, 0);
}

/// A read from many hosts at once is an incast of responses.
#[test]
fn t25_an_incast_of_responses_loses_payload_only() {
    let workload = r#"{ kind = "closed-loop", op = "read", message = "100KB", depth = 1, count = 4, from = 0,
        to = 1, servers = 8, queue_pairs = 8 }"#;
    let report = run_pulled(&[("workload", workload), ("payload", "checked")], 3);
    assert!(report.trimmed > 50, "{} packets trimmed", report.trimmed);
    assert_eq!((report.packets_dropped, report.timeouts, report.packets_retransmitted), (0, 0, report.trimmed));
}

/// A thousand packets at once lose payload only: the queue of headers holds almost as many.
#[test]
fn t25_a_wide_incast_loses_payload_only() {
    let overrides = [
        ("topology", r#"{ kind = "star", hosts = 65 }"#),
        ("workload", r#"{ kind = "incast", senders = 64, bytes = "6.4MB" }"#),
    ];
    let report = run_pulled(&overrides, 1);
    assert_eq!((report.packets_dropped, report.timeouts, report.packets_retransmitted), (0, 0, report.trimmed));
    assert!(report.trimmed > 900, "{} trimmed", report.trimmed);
    // 6.4 MB take 561.0 us, and two links 2 us.
    assert!(report.elapsed_us < 563.0 * 1.1, "{} us", report.elapsed_us);
}

/// The queue of headers has a bound: many first windows at once exceed it. What is lost is found by timeouts.
#[test]
fn a_full_queue_of_headers_drops_them() {
    let overrides = [
        ("topology", r#"{ kind = "star", hosts = 65 }"#),
        ("switch.trim", r#"{ queue = 2, headers = "2KB" }"#),
        ("workload", r#"{ kind = "incast", senders = 64, bytes = "1.6MB" }"#),
    ];
    let report = run_pulled(&overrides, 1);
    assert!(report.drops.buffer > 0 && report.trimmed > 0 && report.timeouts > 0, "{:?}", report.drops);
}

/// Packets of formats without trimmed packets are dropped when the queue is full.
#[test]
fn packets_of_other_formats_are_not_trimmed() {
    let report = run(INCAST, &[("transport", r#"{ name = "roce-gbn", rto = "100us" }"#)], 1);
    assert!(report.trimmed == 0 && report.drops.buffer > 0, "{:?}", report.drops);
}

const TOPOLOGIES: [&str; 3] = [
    "{ kind = \"star\", hosts = 9 }",
    "{ kind = \"fat-tree\", k = 4 }",
    "{ kind = \"leaf-spine\", spines = 2, leaves = 3, hosts_per_leaf = 3 }",
];

const SWITCHES: [&str; 3] = [
    "{ model = \"input-queued\", buffer = \"30KB\", trim = { queue = 3, headers = \"2KB\" } }",
    "{ model = \"shared-buffer\", buffer = \"200KB\", alpha = \"1/2\", trim = {} }",
    "{ model = \"input-queued\", buffer = \"240KB\", trim = {} }",
];

const WORKLOADS: [&str; 8] = [
    "{ kind = \"closed-loop\", op = \"write-imm\", message = \"9KB\", depth = 8, count = 30, from = 1, clients = 7, \
       to = 0, queue_pairs = 14 }",
    "{ kind = \"closed-loop\", op = \"send\", message = \"5KB\", depth = 4, count = 40, from = 1, clients = 7, to = 0, \
       queue_pairs = 7 }",
    "{ kind = \"closed-loop\", op = \"read\", message = \"70KB\", depth = 4, count = 10, from = 0, to = 1, \
       servers = 7, queue_pairs = 7 }",
    "{ kind = \"closed-loop\", op = \"fetch-add\", message = 8, depth = 20, count = 60, from = 1, clients = 7, to = 0, \
       queue_pairs = 7 }",
    "{ kind = \"closed-loop\", op = \"read-write\", message = \"6KB\", depth = 3, duration = \"60us\", from = 1, \
       clients = 7, to = 0, queue_pairs = 14 }",
    "{ kind = \"permutation\", bytes = \"150KB\", op = \"send\", message = \"40KB\", depth = 2 }",
    "{ kind = \"poisson\", load = \"60%\", size = \"60KB\", duration = \"100us\" }",
    "{ kind = \"collective\", collective = \"all-to-all\", bytes = \"400KB\", count = 2, connections = 2 }",
];

const FAULTS: [&str; 5] = [
    "[]",
    "[{ kind = \"drop\", probability = \"2%\" }]",
    "[{ kind = \"burst\", probability = \"0.2%\", length = 5 }, { kind = \"duplicate\", probability = \"3%\" }]",
    "[{ kind = \"reorder\", probability = \"2%\", displacement = 4 }, { kind = \"corrupt\", probability = \"1%\" }, \
      { kind = \"drop\", probability = \"10%\", packets = \"acks\" }]",
    "[{ kind = \"down\", from = \"15us\", until = \"45us\", links = \"host-1>*\" }]",
];

/// Random plans: whatever is trimmed or lost, every message arrives once and with its bytes, and encoding packets
/// makes no difference.
#[test]
fn every_message_arrives_once_in_random_plans() {
    (0..96u64).into_par_iter().for_each(|seed| {
        let mut random = RandomStreams::new(seed).stream("plans");
        let mut one_of = |choices: &[&'static str]| choices[random.below(choices.len() as u64) as usize];
        let overrides = [
            ("topology", one_of(&TOPOLOGIES)),
            ("switch", one_of(&SWITCHES)),
            ("workload", one_of(&WORKLOADS)),
            ("fault", one_of(&FAULTS)),
        ];
        let direct = run_pulled(&overrides, seed);
        let encoded = run_pulled(&[&overrides[..], &[("payload", "checked"), ("wire", "encoded")]].concat(), seed);
        assert_eq!(direct.trace_hash, encoded.trace_hash, "seed {seed}: {overrides:?}");
    });
}
