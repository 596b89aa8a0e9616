//! PFC: no packet is lost, pauses spread to the senders, and traffic continues afterwards.

mod common;

use common::*;

const PFC: (&str, &str) = ("switch.pfc.enabled", "true");

#[test]
fn no_packet_is_dropped_with_buffer_for_the_bytes_in_flight() {
    for (rate, delay) in [("100Gbps", "1us"), ("40Gbps", "5us"), ("400Gbps", "500ns"), ("10Gbps", "20us")] {
        for mtu in ["1024", "4096"] {
            for switch in [
                r#"{ model = "input-queued", buffer = "250KB", pfc = {} }"#,
                r#"{ model = "shared-buffer", buffer = "900KB", alpha = "1/4", pfc = {} }"#,
            ] {
                let with = [
                    ("links.rate", rate),
                    ("links.delay", delay),
                    ("mtu", mtu),
                    ("switch", switch),
                    ("transport", r#"{ name = "roce-gbn", rto = 0 }"#),
                    ("workload", r#"{ kind = "incast", senders = 5, bytes = "5MB", jitter = 0 }"#),
                ];
                let report = run(STAR, &with, 2);
                assert_eq!(report.packets_dropped, 0, "{rate} {delay} {mtu} {switch}");
                assert_eq!(report.packets_retransmitted, 0, "{rate} {delay} {mtu} {switch}");
                assert!(report.pauses > 5, "{rate} {delay} {mtu} {switch}: {} pauses", report.pauses);
            }
        }
    }
}

/// Two senders of 16 packets: half of what each sends waits. The queue of each sender's input exceeds 5 KB once,
/// which pauses that sender; it resumes when two packets have left.
#[test]
fn pauses_and_their_time_are_counted() {
    let with = [
        ("switch.pfc", r#"{ threshold = "5KB" }"#),
        ("workload", r#"{ kind = "incast", senders = 2, bytes = "32KiB", jitter = 0 }"#),
        ("transport", r#"{ name = "roce-gbn", rto = 0 }"#),
    ];
    let report = run(STAR, &with, 1);
    assert_eq!(report.pauses, 2);
    assert!((3.0..4.0).contains(&report.pause_time_us), "two of some 1.7 us: {}", report.pause_time_us);
}

/// The buffer is no larger than necessary: a few packets less with the same threshold, and packets are lost.
#[test]
fn a_smaller_buffer_drops_packets() {
    let drops = |buffer: &str| {
        let with = [
            ("switch.buffer", buffer),
            ("switch.pfc", r#"{ threshold = "20KB" }"#),
            ("workload.bytes", "5MB"),
            ("workload.jitter", "0"),
        ];
        finish(simulation(STAR, &with, 2)).drops.buffer
    };
    assert_eq!(drops("48KB"), 0, "20 KB, 25 KB in flight, three packets");
    assert!(drops("40KB") > 0);
}

#[test]
fn without_pfc_the_same_load_is_dropped() {
    let report = run(STAR, &[("workload.bytes", "5MB")], 2);
    assert!(report.drops.buffer > 0 && report.pauses == 0);
}

/// All hosts of one pod send to one host of another: the pause must travel from its edge switch over the aggregation
/// and core switches back to the senders.
#[test]
fn pauses_cascade_to_the_senders() {
    let mut lines = String::from("start,src,dst,bytes\n").replace("start,src,dst,bytes", "# start,src,dst,bytes");
    for src in [0, 1, 2, 3, 8, 9] {
        lines.push_str(&format!("0,{src},15,1MB\n"));
    }
    // A flow to another destination shares links with the paused ones: congestion spreads.
    lines.push_str("20us,3,14,10KB\n");
    let run_with = |pfc: &str| {
        let plan = rnic_fabric::Plan::from_toml_with(
            TREE,
            &[
                ("workload", r#"{ kind = "trace", file = "flows.csv" }"#),
                ("switch.pfc.enabled", pfc),
                ("transport", r#"{ name = "irn", cap_packets = 0, rto_low = "5ms", rto_high = "5ms" }"#),
            ],
            &mut |name| if name == "flows.csv" { Ok(lines.clone()) } else { Err("no such file".to_owned()) },
        );
        let report =
            finish(rnic_fabric::Simulation::new(&plan.expect("the plan is valid"), 1).expect("the plan is valid"));
        report.check().expect("no checked property is violated");
        report
    };
    let (paused, dropped) = (run_with("true"), run_with("false"));
    assert_eq!((paused.packets_dropped, dropped.pauses), (0, 0));
    assert!(dropped.packets_dropped > 0);
    assert!(paused.pauses > 20 && paused.pause_time_us > 500.0, "{} {}", paused.pauses, paused.pause_time_us);
    let uncongested_flow = |report: &rnic_fabric::Report| {
        report.records.iter().find(|flow| flow.dst == 14).expect("the flow is complete").slowdown()
    };
    assert!(
        uncongested_flow(&paused) > 10.0,
        "the flow was not delayed behind paused packets: {}",
        uncongested_flow(&paused)
    );
}

/// A paused host sends nothing: its packets wait in the engine, not in the network.
#[test]
fn a_paused_host_sends_nothing() {
    let with = [PFC, ("workload.bytes", "10MB"), ("transport", r#"{ name = "roce-gbn", rto = 0 }"#)];
    let report = run(STAR, &with, 1);
    // Five hosts share one link: each must be paused most of the time, four of five microseconds with fair shares.
    let pause_share = report.pause_time_us / report.elapsed_us;
    assert!((2.5..4.2).contains(&pause_share), "{} of {}", report.pause_time_us, report.elapsed_us);
    assert!(report.queue_max_bytes <= 5 * 60_000);
}

/// Round robin among inputs: equal shares although one input has far more to send.
#[test]
fn inputs_share_an_output_evenly() {
    let with = [
        PFC,
        ("workload", r#"{ kind = "incast", senders = 5, bytes = "5MB", jitter = 0 }"#),
        ("transport", r#"{ name = "roce-gbn", rto = 0 }"#),
    ];
    let report = run(STAR, &with, 3);
    let ends: Vec<f64> = report.records.iter().map(|flow| flow.fct.as_us_f64()).collect();
    let (first, last) = (ends.iter().copied().fold(f64::MAX, f64::min), ends.iter().copied().fold(0.0, f64::max));
    assert!(last / first < 1.02, "equal flows do not end together: {ends:?}");
}

#[test]
fn marks_slow_dcqcn_down() {
    let ecn = ("switch.ecn", r#"{ kmin = "5KB", kmax = "40KB", pmax = "20%" }"#);
    let bytes = ("workload.bytes", "20MB");
    let plain = run(STAR, &[ecn, PFC, bytes], 1);
    let slowed = run(STAR, &[ecn, PFC, bytes, ("transport", r#"{ name = "irn", control = "dcqcn" }"#)], 1);
    assert!(plain.ecn_marks > 0 && slowed.ecn_marks > 0);
    assert!(slowed.pauses < plain.pauses / 2, "{} and {} pauses", slowed.pauses, plain.pauses);
}

/// Inputs that share an output: each holds a part of the packets that wait for that output, so fewer packets are
/// marked if marking depends on the virtual queue. As all packets wait for one output, an input's buffer is its
/// virtual queue.
#[test]
fn virtual_queues_are_marked_later_than_outputs() {
    let marks = |depth: &str| {
        let ecn = format!(r#"{{ kmin = "5KB", kmax = "200KB", pmax = "1%"{depth} }}"#);
        run(STAR, &[("switch.ecn", &ecn), PFC], 1).ecn_marks
    };
    let [plain, output] = ["", r#", depth = "output""#].map(marks);
    let [virtual_queue, input] = [r#", depth = "virtual-queue""#, r#", depth = "input""#].map(marks);
    assert!(plain == output && virtual_queue == input, "{plain} {output}, {virtual_queue} {input}");
    assert!(0 < virtual_queue && virtual_queue < output / 2, "{virtual_queue} of {output}");
}

/// Forty hosts send 16 MB each to one at 10 Gbit/s through a deep buffer: packets wait for milliseconds because of
/// pauses. If the plan sets no timeout, nothing is retransmitted; if it sets the transport's own, the report says
/// what is wrong.
#[test]
fn with_pfc_nothing_is_retransmitted_by_default() {
    let text = r#"
        name = "deep"
        mtu = 1000
        topology = { kind = "star", hosts = 41 }
        links = { rate = "10Gbps", delay = "1us" }
        transport = "irn"
        workload = { kind = "incast", senders = 40, bytes = "16MB" }
        [switch]
        model = "shared-buffer"
        buffer = "8MB"
        pfc = {}
        ecn = { kmin = "20KB", kmax = "80KB", pmax = "20%" }
    "#;
    for transport in [r#"{ name = "roce-gbn", control = "dcqcn" }"#, "roce-gbn", "roce-sr", "irn", "fasr"] {
        let report = run(text, &[("transport", transport)], 1);
        assert_eq!((report.packets_dropped, report.timeouts, report.packets_retransmitted), (0, 0, 0), "{transport}");
        assert!(report.warnings.is_empty(), "{transport}: {:?}", report.warnings);
        // With IRN's cap, fewer packets are in flight than the buffer holds.
        assert_eq!(report.pauses > 0, transport != "irn", "{transport}");
    }
    let set = run(text, &[("transport", r#"{ name = "roce-gbn", rto = "320us" }"#)], 1);
    assert!(set.timeouts > 0 && set.packets_dropped == 0);
    let warnings = set.warnings.join("; ");
    assert!(
        warnings.contains("transport.rto is 320 us") && warnings.contains("although no packet was lost"),
        "{warnings}"
    );
}

/// PFC with too little headroom loses packets, and the report says how much headroom it needs.
#[test]
fn pfc_with_too_little_headroom_reports_the_bytes_needed() {
    let switch = r#"{ model = "shared-buffer", buffer = "900KB", alpha = "1/4", pfc = { headroom = "1KB" } }"#;
    let workload = r#"{ kind = "incast", senders = 5, bytes = "6MB" }"#;
    let report = run(STAR, &[("switch", switch), ("workload", workload), ("transport", "roce-gbn")], 1);
    assert!(report.drops.buffer > 0);
    let warnings = report.warnings.join("; ");
    assert!(
        warnings.contains("switch.pfc.headroom reserves only 1000 B") && warnings.contains("although PFC is on"),
        "{warnings}"
    );
}
