//! Tenants that share a NIC: their results, fairness, limits of rates, joins and stops, and determinism.

mod common;

use common::*;
use rnic_fabric::Report;
use rnic_fabric::report::TenantFigures;

/// Two tenants on one NIC: few large and many small messages.
const TENANTS: &str = r#"
    name = "two tenants"
    mtu = 1024
    topology = { kind = "star", hosts = 4 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "shared-buffer", buffer = "16MB" }
    transport = { name = "roce-gbn" }
    run = { warmup = "200us", slice = "50us", limit = "100ms" }
    [workload]
    kind = "tenants"
    duration = "1ms"
    [workload.tenant.large]
    message = "64KB"
    depth = 4
    jitter = "1us"
    [workload.tenant.small]
    message = "4KB"
    depth = 32
    queue_pairs = 2
"#;

/// Payload share of a packet of 1024 bytes on a link of 100 Gbit/s, in Gbit/s.
const LINE_GBPS: f64 = 100.0 * 1_024.0 / 1_102.0;

fn tenant(report: &Report, name: &str) -> TenantFigures {
    report.tenants.as_ref().expect("the workload has tenants")[name]
}

fn jain(report: &Report) -> (f64, f64) {
    let fairness = report.fairness.expect("the workload has tenants");
    (fairness.jain_queue_pairs, fairness.jain_tenants)
}

/// With turns of one packet, three queue pairs of equal packets have equal shares of the link; wire bytes include
/// headers, and slices and totals agree.
#[test]
fn queue_pairs_share_the_nic_of_their_host() {
    let report = run(TENANTS, &[], 1);
    let (large, small) = (tenant(&report, "large"), tenant(&report, "small"));
    assert_eq!((large.queue_pairs, small.queue_pairs, report.flows), (1, 2, 3));
    let sum = large.goodput_gbps + small.goodput_gbps;
    assert!((0.99..=1.0).contains(&(sum / LINE_GBPS)), "{sum} Gbit/s");
    assert!((large.goodput_gbps / sum - 1.0 / 3.0).abs() < 0.01, "{large:?} {small:?}");
    for figures in [large, small] {
        let ratio = figures.wire_gbps / figures.goodput_gbps;
        assert!((ratio / (1_102.0 / 1_024.0) - 1.0).abs() < 0.01, "{ratio}");
        // Little's law: messages in flight are those that complete in the time of one.
        let latency = figures.latency_us.expect("messages have completed");
        assert!(latency.p50 <= latency.p99 && latency.avg > 0.0, "{latency:?}");
    }
    let in_flight = small.completions as f64 / 800.0 * small.latency_us.expect("messages have completed").avg;
    assert!((in_flight / 64.0 - 1.0).abs() < 0.05, "{in_flight} messages in flight");
    let (pairs, tenants) = jain(&report);
    assert!(pairs > 0.999, "{pairs}");
    // Shares of 1 and 2: (1 + 2)^2 / (2 (1 + 4)).
    assert!((tenants - 0.9).abs() < 0.01, "{tenants}");

    let slices = report.slices.as_ref().expect("the plan has slices");
    // From 200 us, the end of the warm-up, to 1000 us.
    let mean = |values: &[f64]| values[4..20].iter().sum::<f64>() / 16.0;
    let of_tenant = mean(&slices.tenants["small"].goodput_gbps);
    assert!((of_tenant / small.goodput_gbps - 1.0).abs() < 0.001, "{of_tenant} and {}", small.goodput_gbps);
    let of_pairs: f64 = ["small-0", "small-1"].iter().map(|name| mean(&slices.queue_pairs[*name].goodput_gbps)).sum();
    assert!((of_pairs - of_tenant).abs() < 1e-6, "{of_pairs} and {of_tenant}");
    let fairness = slices.fairness.as_ref().expect("the workload has tenants");
    assert!((mean(&fairness.goodput_gbps) - sum).abs() < 0.1 && mean(&fairness.jain_queue_pairs) > 0.99);
    assert!(slices.queue_pairs.values().all(|pair| pair.dequeue_gbps.is_none()), "no queue pair has a dequeue rate");
    assert!(report.bus.is_none() && report.records.iter().all(|flow| flow.tenant.is_some()));
}

/// Weights divide goodputs before they are compared: what is fair without weights is not with them.
#[test]
fn fairness_is_weighted() {
    let report = run(TENANTS, &[("workload.tenant.small.weight", "3")], 1);
    let (pairs, tenants) = jain(&report);
    // Shares of 1, 1/3 and 1/3; of tenants 1 and 2/3.
    assert!((pairs - (5.0_f64 / 3.0).powi(2) / (3.0 * 11.0 / 9.0)).abs() < 0.01, "{pairs}");
    assert!((tenants - (5.0_f64 / 3.0).powi(2) / (2.0 * 13.0 / 9.0)).abs() < 0.01, "{tenants}");
}

/// A greedy scheduler prefers large messages; against turns of one packet only the schedule differs.
#[test]
fn s19_a_greedy_scheduler_favours_large_messages() {
    let greedy = r#"{ name = "roce-gbn", schedule = "greedy", calibration = "figure-11" }"#;
    let report = run(TENANTS, &[("transport", greedy)], 1);
    let (large, small) = (tenant(&report, "large"), tenant(&report, "small"));
    // 64 KB against 4 KB a turn, for each of the two small queue pairs.
    let ratio = large.goodput_gbps / (small.goodput_gbps / 2.0);
    assert!((12.0..20.0).contains(&ratio), "{ratio}");
    assert!(jain(&report).0 < 0.6, "{:?}", jain(&report));
}

/// S-1: the limit of a tenant holds on the wire for Writes at the sender and for Reads at the responder, and slices
/// show it.
#[test]
fn s1_a_tenant_keeps_to_its_rate_limit() {
    for op in ["write", "send", "read"] {
        let with = [
            ("workload.tenant.large.rate_limit", "20Gbps"),
            ("workload.tenant.large.op", op),
            ("workload.tenant.small.op", op),
        ];
        let report = run(TENANTS, &with, 1);
        let (large, small) = (tenant(&report, "large"), tenant(&report, "small"));
        assert!((large.wire_gbps / 20.0 - 1.0).abs() < 0.02, "{op}: {} Gbit/s", large.wire_gbps);
        assert!(small.goodput_gbps > 0.95 * (LINE_GBPS - large.goodput_gbps), "{op}: {} Gbit/s", small.goodput_gbps);
        let slices = report.slices.expect("the plan has slices");
        let limit = slices.queue_pairs["large-0"].dequeue_gbps.as_ref().expect("the queue pair has a rate");
        assert_eq!(limit.len(), slices.hosts["host-1"].goodput_gbps.len());
        assert!(limit[1..20].iter().all(|rate| *rate == 20.0), "{op}: {limit:?}");
        assert_eq!(slices.queue_pairs["small-0"].dequeue_gbps, None);
    }
}

/// Queue pairs join one after the other; when a tenant stops, its requests end and the others have the whole link.
#[test]
fn tenants_join_and_stop() {
    let with = [
        ("workload.tenant.large.stop", "600us"),
        ("workload.tenant.small.start", "300us"),
        ("workload.tenant.small.stagger", "200us"),
        ("run.warmup", "0"),
    ];
    let report = run(TENANTS, &with, 1);
    let slices = report.slices.as_ref().expect("the plan has slices");
    let of = |pair: &str, slice: usize| slices.queue_pairs[pair].goodput_gbps[slice];
    assert!(of("large-0", 4) > 0.98 * LINE_GBPS && of("small-0", 4) == 0.0);
    assert!((of("large-0", 8) / LINE_GBPS - 0.5).abs() < 0.02 && (of("small-0", 8) / LINE_GBPS - 0.5).abs() < 0.02);
    assert!(["large-0", "small-0", "small-1"].iter().all(|pair| (of(pair, 11) / LINE_GBPS - 1.0 / 3.0).abs() < 0.03));
    // Four messages of 64 KB were in flight when the tenant stopped; a third of the link carries them in 70 us.
    assert!(of("large-0", 14) == 0.0 && (of("small-0", 14) / LINE_GBPS - 0.5).abs() < 0.02);
    let fairness = slices.fairness.as_ref().expect("the workload has tenants");
    assert!([4, 8, 11, 14].iter().all(|slice| fairness.jain_queue_pairs[*slice] > 0.99), "{fairness:?}");
    // The large tenant is measured until its stop, the small one from its start.
    let large = tenant(&report, "large");
    let expected = (300.0 + 200.0 / 2.0 + 100.0 / 3.0) / 600.0 * LINE_GBPS;
    assert!((large.goodput_gbps / expected - 1.0).abs() < 0.03, "{large:?}, expected {expected}");
    assert_eq!(report.flows_unfinished, 0);
}

/// An open loop offers its rate; one that offers more than the link carries drops its backlog when it stops.
#[test]
fn an_open_loop_offers_its_rate_and_ends_when_it_stops() {
    let open = |rate: &'static str| {
        let with = [
            ("workload.tenant", r#"{ all = { message = "8KB", depth = 16, queue_pairs = 4 } }"#),
            ("workload.tenant.all.rate", rate),
            ("workload.duration", "4ms"),
            ("workload.tenant.all.stop", "3ms"),
        ];
        run(TENANTS, &with, 3)
    };
    let report = open("40Gbps");
    let goodput = tenant(&report, "all").goodput_gbps;
    assert!((goodput / 40.0 - 1.0).abs() < 0.05, "{goodput} Gbit/s");
    let report = open("400Gbps");
    let goodput = tenant(&report, "all").goodput_gbps;
    assert!(goodput > 0.98 * LINE_GBPS, "{goodput} Gbit/s");
    // 64 messages of 8 KB take 45 us.
    assert!(report.elapsed_us < 3_100.0, "the tenant sent until {} us", report.elapsed_us);
}

/// A rate at which messages of one byte would follow each other without any time between them.
#[test]
fn an_open_loop_far_above_the_link_ends() {
    let with = [
        ("workload.tenant", r#"{ all = { message = "1B", depth = 16 } }"#),
        ("workload.tenant.all.rate", "100000Gbps"),
        ("workload.duration", "50us"),
        ("run.warmup", "0us"),
    ];
    assert!(tenant(&run(TENANTS, &with, 3), "all").completions > 16);
}

/// Sizes of a list are repeated; sizes of a distribution depend on the seed and the queue pair, and not on other
/// tenants or on the number of queue pairs.
#[test]
fn sizes_are_listed_or_drawn_once_per_queue_pair() {
    let sizes = |tenants: &str, seed: u64| -> Vec<u64> {
        let report = run(TENANTS, &[("workload.tenant", tenants)], seed);
        // Payload of the queue pairs of tenant `a`, as the sizes of their messages times their number.
        let of_a = report.records.iter().filter(|flow| flow.tenant == Some(0));
        of_a.map(|flow| flow.bytes).collect()
    };
    let listed = sizes(r#"{ a = { messages = ["4KB", "5KB"], queue_pairs = 4 } }"#, 1);
    assert!(listed.iter().zip([4_000, 5_000, 4_000, 5_000]).all(|(bytes, size)| bytes % size == 0), "{listed:?}");
    let drawn = r#"{ a = { sizes = "uniform:4KB-1MB", queue_pairs = 4, rate_limit = "1Gbps", stop = "100us" } }"#;
    let more = r#"{ a = { sizes = "uniform:4KB-1MB", queue_pairs = 5, rate_limit = "1Gbps", stop = "100us" },
                    b = { message = "1KB", rate_limit = "1Gbps" } }"#;
    // In 100 us at 1 Gbit/s each queue pair sends one large message, so that its bytes are the size of a message or a
    // multiple of it, and the same in both runs.
    let (first, second) = (sizes(drawn, 1), sizes(more, 1));
    assert_eq!(first, second[..4]);
    assert_ne!(first, sizes(drawn, 2));
    assert!(first.iter().any(|bytes| *bytes != first[0]), "all queue pairs have the same size: {first:?}");
}

/// S-1: payload reads, bus traffic and what arrives follow the limit of a queue pair.
#[test]
fn s1_the_bus_follows_the_dequeue_rate() {
    let nic = r#"{ bus_latency = "600ns", bus_rate = "200Gbps", wqe_fetch = "ahead" }"#;
    let with = |limit: &'static str| {
        let tenants = r#"{ one = { message = "64KB", depth = 8 } }"#;
        let report =
            run(TENANTS, &[("nic", nic), ("workload.tenant", tenants), ("workload.tenant.one.rate_limit", limit)], 1);
        (tenant(&report, "one"), report.bus.expect("the plan models NICs"))
    };
    let ((slow, slow_bus), (fast, fast_bus)) = (with("10Gbps"), with("80Gbps"));
    for (what, slow, fast) in [
        ("received", slow.goodput_gbps, fast.goodput_gbps),
        ("read", slow_bus.read_gbps, fast_bus.read_gbps),
        ("written", slow_bus.write_gbps, fast_bus.write_gbps),
        ("payload", slow_bus.payload_read_gbps, fast_bus.payload_read_gbps),
        ("reads", slow_bus.payload_reads_per_s, fast_bus.payload_reads_per_s),
    ] {
        assert!((fast / slow / 8.0 - 1.0).abs() < 0.02, "{what}: {slow} and {fast}");
    }
    assert!((fast_bus.payload_read_gbps / fast.goodput_gbps - 1.0).abs() < 0.01);
}

/// The same plan and seed give the same run and the same report, in any order of nodes, number of parts, and
/// representation of packets, with every transport.
#[test]
fn tenants_are_deterministic() {
    let busy: &[(&str, &str)] = &[
        ("workload.duration", "400us"),
        ("run.warmup", "50us"),
        ("run.slice", "10us"),
        (
            "workload.tenant",
            r#"{
            a = { sizes = "uniform:1KB-64KB", queue_pairs = 5, clients = 2, to = 3, depth = 3, jitter = "20us" },
            b = { message = "16KB", op = "read", from = 3, to = 1, rate_limit = "7Gbps", stop = "300us" },
            c = { message = "4KB", op = "send", rate = "30Gbps", queue_pairs = 2, stagger = "30us", to = 2 },
        }"#,
        ),
    ];
    let greedy = r#"{ name = "roce-gbn", schedule = "greedy", rto = "100us" }"#;
    for transport in TRANSPORTS.into_iter().chain([greedy, r#"{ name = "falcon" }"#]) {
        let with =
            [busy, &[("transport", transport), ("fault", r#"[{ kind = "drop", probability = "0.1%" }]"#)]].concat();
        let report = run(TENANTS, &with, 7);
        assert_eq!(report.to_json(), run(TENANTS, &with, 7).to_json(), "{transport}");
        assert_ne!(report.trace_hash, run(TENANTS, &with, 8).trace_hash, "{transport}: another seed");
        assert_independent_of_order_and_parts(&report, TENANTS, &with, 7, transport);
        let both = [&with[..], &[("payload", "checked"), ("wire", "encoded")]].concat();
        assert_eq!(report.trace_hash, run(TENANTS, &both, 7).trace_hash, "{transport}: as bytes");
        let unsliced = [&with[..], &[("run", r#"{ limit = "100ms" }"#)]].concat();
        assert_eq!(
            report.trace_hash,
            run(TENANTS, &unsliced, 7).trace_hash,
            "{transport}: measurements change the run"
        );
        assert!(report.tenants.expect("tenants").values().all(|tenant| tenant.goodput_gbps > 0.0), "{transport}");
    }
}

/// Every packet becomes a record of the threads on which a scheduler runs, those that are retransmitted too. Two
/// senders at one receiver get notifications, and slices show the rate that congestion control then sets.
#[test]
fn signals_are_counted_by_kind() {
    let transport = ("transport", r#"{ name = "roce-gbn", control = "dcqcn", schedule = "water-filling" }"#);
    let marks = ("switch.ecn", r#"{ kmin = "20KB", kmax = "100KB", pmax = "10%" }"#);
    let processors = ("processors", r#"{ coalesce = "none" }"#);
    let other = ("workload.tenant.small.from", "2");
    let loss = ("fault", r#"[{ kind = "drop", packets = "data", probability = "0.1%" }]"#);
    let report = run(TENANTS, &[transport, marks, processors, other, loss], 1);
    let figures = report.processors.expect("the plan has processors");
    assert!((0.999..=1.0).contains(&figures.recorded_share), "{figures:?}");
    assert!(report.packets_retransmitted > 0 && report.nacks > 0, "no packet was lost");
    assert!(report.cnps > 0 && report.cnps < report.ecn_marks, "{} of {}", report.cnps, report.ecn_marks);
    let slices = report.slices.expect("the plan has slices");
    let rates = slices.queue_pairs["large-0"].control_gbps.as_ref().expect("notifications have set a rate");
    assert!(rates.iter().any(|rate| (1.0..90.0).contains(rate)), "{rates:?}");
    let alone = run(TENANTS, &[], 1);
    assert_eq!((alone.cnps, alone.processors), (0, None));
    let slices = alone.slices.expect("the plan has slices");
    let pair = &slices.queue_pairs["large-0"];
    assert_eq!((&pair.control_gbps, &pair.path_changes, &pair.probes), (&None, &None, &None));
}
