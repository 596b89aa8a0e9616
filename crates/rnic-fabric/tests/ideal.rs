//! An empty network takes exactly the ideal time; rates, loads and latencies have their expected values.

mod common;

use common::*;

/// A flow that is alone in the network takes its ideal time to the picosecond, whatever its size, path and transport.
#[test]
fn a_lone_flow_has_a_slowdown_of_one() {
    let networks =
        [r#"{ kind = "point-to-point" }"#, r#"{ kind = "star", hosts = 2 }"#, r#"{ kind = "fat-tree", k = 4 }"#];
    for topology in networks {
        for rates in [
            r#"{ rate = "40Gbps", delay = "2us" }"#,
            r#"{ rate = "100Gbps", delay = "1us", fabric = { rate = "25Gbps", delay = "3us" } }"#,
            r#"{ rate = "10Gbps", delay = "1us", fabric = { rate = "100Gbps" } }"#,
            // A byte is not a whole number of picoseconds.
            r#"{ rate = "3Gbps", delay = "1us", fabric = { rate = "7Gbps" } }"#,
        ] {
            // Without a cap, because the ideal time does not consider one. A single flow without NACKs needs no
            // acknowledgement either.
            for transport in [
                r#"{ name = "irn", cap_packets = 0, rto_high = "1s", rto_low = "1s" }"#,
                r#"{ name = "roce-gbn", rto = 0 }"#,
            ] {
                for bytes in ["32", "1024", "1025", "2048", "2049", "50000", "1MB"] {
                    let with = [
                        ("topology", topology),
                        ("links", rates),
                        ("transport", transport),
                        ("workload", r#"{ kind = "incast", senders = 1, bytes = 1, jitter = 0 }"#),
                        ("workload.bytes", bytes),
                        ("switch.buffer", "10MB"),
                    ];
                    let report = run(TREE, &with, 3);
                    let flow = &report.records[0];
                    assert_eq!(flow.fct, flow.ideal, "{topology} {rates} {transport} {bytes}");
                }
            }
        }
    }
}

#[test]
fn a_ping_pong_takes_a_round_trip() {
    let with = [
        ("workload", r#"{ kind = "closed-loop", op = "send", message = 64, count = 100 }"#),
        ("transport", TRANSPORTS[0]),
    ];
    let report = run(WIRE, &with, 1);
    let latency = report.latency_us.expect("a closed loop has latencies");
    // 2 us of propagation; 64 + 24 (headers) + 46 + 20 + 4 bytes one way, 86 + SACK on the way back, at 80 ps per
    // byte.
    assert_eq!((latency.count, report.messages), (100, 100));
    assert_eq!(latency.p50, latency.max);
    assert!((2.0..2.03).contains(&latency.p50), "{}", latency.p50);
}

#[test]
fn a_full_window_fills_the_link() {
    for transport in ["{ name = \"irn\", cap_packets = \"bdp\" }", "{ name = \"roce-gbn\" }"] {
        let workload = r#"{ kind = "closed-loop", op = "write", message = "64KiB", depth = 16, count = 500 }"#;
        let report = run(WIRE, &[("workload", workload), ("transport", transport), ("mtu", "4096")], 1);
        // 4096 of 4192 bytes (IRN), 4096 of 4176 (RoCE) are payload.
        assert!(report.goodput_gbps > 97.0, "{transport}: {}", report.goodput_gbps);
        assert_eq!((report.packets_retransmitted, report.bytes), (0, 500 * 65_536));
    }
}

#[test]
fn every_operation_works_in_a_closed_loop() {
    for op in ["write", "write-imm", "send", "read", "fetch-add", "compare-swap"] {
        for transport in TRANSPORTS {
            let message = if op.contains('-') && op != "write-imm" { "8" } else { "5000" };
            let with = [
                (
                    "workload",
                    r#"{ kind = "closed-loop", op = "x", message = 8, depth = 8, count = 100, queue_pairs = 3 }"#,
                ),
                ("workload.op", op),
                ("workload.message", message),
                ("transport", transport),
                ("payload", "checked"),
                ("wire", "encoded"),
            ];
            let report = run(WIRE, &[&with[..], &[]].concat(), 1);
            assert_eq!(report.messages, 300, "{op} {transport}");
            assert_eq!(report.latency_us.expect("the workload measures latencies").count, 300);
            let lossy = run(WIRE, &[&with[..], &[("fault", r#"[{ kind = "drop", probability = "3%" }]"#)]].concat(), 1);
            assert_eq!(lossy.messages, 300, "{op} {transport} with loss");
            assert!(lossy.packets_retransmitted > 0 && lossy.drops.fault > 0);
        }
    }
}

#[test]
fn a_closed_loop_may_end_at_a_given_time() {
    for op in ["write", "send"] {
        let workload = r#"{ kind = "closed-loop", op = "x", message = "4KB", depth = 4, duration = "200us" }"#;
        let report = run(WIRE, &[("workload", workload), ("workload.op", op)], 1);
        assert!((200.0..210.0).contains(&report.elapsed_us), "{op}: {}", report.elapsed_us);
        assert!(report.messages > 300, "{op}: {}", report.messages);
    }
}

/// At a hundredth of the load a Write takes the time that it takes alone; at half of the load some wait for others,
/// and everything that was posted is carried; above the capacity of the link, the last ones wait longest, and their
/// waiting time counts.
#[test]
fn messages_of_an_open_loop_arrive_independently_of_completions() {
    let latency = |op: &str, load: &str, with: &[(&str, &str)]| {
        let workload =
            r#"{ kind = "open-loop", op = "x", message = "4KB", depth = 64, duration = "4ms", load = "1%" }"#;
        let plan = [&[("workload", workload), ("workload.op", op), ("workload.load", load)], with].concat();
        let report = run(WIRE, &plan, 1);
        let (latency, goodput) =
            (report.latency_us.expect("the workload measures latencies"), report.steady_goodput_gbps);
        assert_eq!(report.messages, latency.count, "{op} {load}: all that came, and no more");
        (latency, goodput.expect("the workload has a duration"))
    };
    for op in ["write", "send", "read"] {
        let (alone, _) = latency(op, "1%", &[("payload", "checked")]);
        let (half, goodput) = latency(op, "50%", &[("payload", "checked")]);
        assert!(alone.p50 * 1.03 < half.avg && half.p99 < 20.0 * alone.p50, "{op}: {alone:?} {half:?}");
        assert!((48.0..52.0).contains(&goodput), "{op}: {goodput}");
    }
    let (more, goodput) = latency("write", "100%", &[]);
    // 1024 of 1120 bytes are payload: a tenth of what is posted is still queued at the end.
    assert!((88.0..93.0).contains(&goodput) && more.max > 200.0, "{goodput} {more:?}");
    let twelve = [("workload.queue_pairs", "12"), ("fault", r#"[{ kind = "drop", probability = "1%" }]"#)];
    let (lossy, goodput) = latency("write", "50%", &twelve);
    assert!((48.0..52.0).contains(&goodput) && lossy.max > 100.0, "{goodput} {lossy:?}");
}

/// In a loop with N messages of B bytes in flight each message takes N times B divided by the goodput (Little's law).
/// The last messages, during which no new ones are posted, are faster, and count only where there is no cooldown.
#[test]
fn messages_posted_in_the_cooldown_are_excluded() {
    let workload =
        r#"{ kind = "closed-loop", op = "write", message = "64KB", depth = 1, duration = "2ms", jitter = "270us" }"#;
    let mean = |cooldown: &str| {
        let with = [("workload", workload), ("workload.queue_pairs", "48"), ("run.warmup", "800us")];
        let report = run(WIRE, &[&with[..], &[("run.cooldown", cooldown)]].concat(), 1);
        let (latency, goodput) = (report.latency_us.expect("the workload has a duration"), report.steady_goodput_gbps);
        (latency, 48.0 * 64e3 * 8.0 / goodput.expect("the workload has a duration") / 1e3)
    };
    let ((all, _), (steady, law)) = (mean("0us"), mean("400us"));
    assert!((steady.avg / law - 1.0).abs() < 0.02, "{steady:?}, {law} by Little's law");
    assert!(all.avg < steady.avg * 0.97 && all.count > steady.count, "{all:?} {steady:?}");
}

/// Twelve queue pairs share a link evenly: each gets a twelfth, to within one message.
#[test]
fn goodput_is_reported_per_queue_pair() {
    let workload = r#"{ kind = "closed-loop", op = "write", message = "4KB", depth = 4, duration = "2ms" }"#;
    let with = [("workload", workload), ("workload.queue_pairs", "12"), ("run", r#"{ warmup = "200us" }"#)];
    let report = run(WIRE, &with, 1);
    let (found, all) = (
        report.queue_pairs.expect("the workload has a duration"),
        report.steady_goodput_gbps.expect("the workload has a duration"),
    );
    assert_eq!(found.goodput_gbps.count, 12);
    assert!((found.goodput_gbps.avg * 12.0 / all - 1.0).abs() < 0.01, "{found:?} of {all}");
    assert!(found.deviation_percent < 1.0, "{found:?}");
    assert!(run(WIRE, &[], 1).queue_pairs.is_none(), "a loop with a count has a measured interval");
}

#[test]
fn zero_byte_messages_complete() {
    let workload = r#"{ kind = "closed-loop", op = "write-imm", message = 0, depth = 2, count = 10 }"#;
    assert_eq!(run(WIRE, &[("workload", workload), ("payload", "checked")], 1).messages, 10);
}

/// Sixteen bytes more on every frame (I-R25) take their time on the link, and nothing else changes.
#[test]
fn i_r25_extra_headers_take_time_on_the_link() {
    let time = |extra: &str| {
        let with = [
            ("topology", r#"{ kind = "point-to-point" }"#),
            ("links", r#"{ rate = "40Gbps", delay = "2us" }"#),
            ("transport", r#"{ name = "irn", cap_packets = 0, rto_high = "1s", rto_low = "1s" }"#),
            ("transport.extra_header", extra),
            ("workload", r#"{ kind = "incast", senders = 1, bytes = 10240, jitter = 0 }"#),
            ("mtu", "1024"),
        ];
        run(TREE, &with, 3).records[0].fct
    };
    // 10 packets, 16 bytes each, at 200 ps a byte.
    assert_eq!(time("16B").as_ps() - time("0").as_ps(), 10 * 16 * 200);
}
