//! Falcon on the fabric: the same plan and seed give the same trace; its guarantees under faults; paths, hops,
//! captures.

mod common;

use common::*;
use rnic_fabric::{FalconFigures, FalconFlow};

/// Completions in order, on ordered and unordered connections; one path and several; the adaptive engine without
/// latency and with latency, with a table and without.
const FALCONS: [&str; 5] = [
    "{ name = \"falcon\" }",
    "{ name = \"falcon\", ordering = \"weak\", flows = 2 }",
    "{ name = \"falcon\", flows = 4, recovery = \"ooo-distance\" }",
    "{ name = \"falcon\", flows = 2, fae_form = \"stateless\", fae_work = \"66ns\" }",
    "{ name = \"falcon\", flows = 8, fae_interface = \"234ns\", fae_work = \"66ns\", out_of_window = \"drop\" }",
];

/// Faults of every kind.
const FAULTS: (&str, &str) = (
    "fault",
    r#"[
        { kind = "drop", probability = "1%" },
        { kind = "burst", probability = "0.1%", length = 4, packets = "data" },
        { kind = "reorder", probability = "1%", displacement = 3 },
        { kind = "duplicate", probability = "1%" },
        { kind = "corrupt", probability = "1%" },
        { kind = "delay", jitter = "300ns", packets = "acks" },
        { kind = "down", from = "20us", until = "40us", links = "host-1>*" },
        { kind = "slow", rate = "20Gbps", from = "30us", until = "60us", links = "host-1>*" },
    ]"#,
);

fn cases() -> Vec<Case> {
    let ecn = ("switch.ecn", r#"{ kmin = "5KB", kmax = "50KB", pmax = "10%" }"#);
    let shared = ("switch", r#"{ model = "shared-buffer", buffer = "300KB", alpha = "1/2" }"#);
    let loop_of = |op: &'static str| ("workload", op);
    vec![
        ("wire", WIRE, vec![]),
        ("wire with faults", WIRE, vec![FAULTS]),
        (
            "reads with faults",
            WIRE,
            vec![FAULTS, loop_of(r#"{ kind = "closed-loop", op = "read", message = "10KB", depth = 4, count = 50 }"#)],
        ),
        (
            "sends with faults",
            WIRE,
            vec![FAULTS, loop_of(r#"{ kind = "closed-loop", op = "send", message = "1KB", depth = 9, count = 400 }"#)],
        ),
        (
            "atomics with faults",
            WIRE,
            vec![FAULTS, loop_of(r#"{ kind = "closed-loop", op = "fetch-add", depth = 3, count = 100 }"#)],
        ),
        ("star that drops", STAR, vec![ecn]),
        ("star with faults", STAR, vec![FAULTS]),
        ("star with a shared buffer", STAR, vec![shared, ecn]),
        ("tree", TREE, vec![("workload.duration", "300us")]),
    ]
}

fn each(mut check: impl FnMut(&str, &str, &[(&'static str, &'static str)])) {
    for (name, text, overrides) in cases() {
        for transport in FALCONS {
            let with = [&overrides[..], &[("transport", transport)]].concat();
            check(&format!("{name}, {transport}"), text, &with);
        }
    }
}

#[test]
fn a_run_repeats_itself() {
    each(|name, text, with| {
        let first = run(text, with, 7);
        let second = run(text, with, 7);
        assert_eq!(first.trace_hash, second.trace_hash, "{name}");
        assert_eq!(first.to_json(), second.to_json(), "{name}");
        assert_ne!(first.trace_hash, run(text, with, 8).trace_hash, "{name}: another seed, another run");
    });
}

#[test]
fn the_order_of_nodes_does_not_matter() {
    each(|name, text, with| assert_independent_of_order_and_parts(&run(text, with, 7), text, with, 7, name));
}

/// Checks that the simulation uses no information that the wire does not carry; with payload, every byte is compared.
#[test]
fn bytes_on_the_wire_change_nothing() {
    each(|name, text, with| {
        let plain = run(text, with, 7).trace_hash;
        for more in
            [&[("wire", "encoded")][..], &[("payload", "checked")], &[("payload", "checked"), ("wire", "encoded")]]
        {
            let other = run(text, &[with, more].concat(), 7);
            assert_eq!(plain, other.trace_hash, "{name} with {more:?}");
        }
    });
}

/// Falcon (SIGCOMM'25) section 6.1.1, without loss: one queue pair fills a link of 200 Gbit/s with 8 KB operations.
/// Of a full packet's 4270 bytes and 20 more on the link, 4096 are payload; 8192 bytes take two packets.
#[test]
fn one_queue_pair_fills_a_link() {
    for op in ["write", "send", "read"] {
        let workload = r#"{ kind = "closed-loop", op = "write", message = "8KiB", depth = 128, count = 3000 }"#;
        let with = [
            ("workload", workload),
            ("workload.op", op),
            ("mtu", "4096"),
            ("links.rate", "200Gbps"),
            ("transport", FALCONS[0]),
        ];
        let report = run(WIRE, &with, 1);
        assert!(report.goodput_gbps > 0.98 * 200.0 * 4_096.0 / 4_290.0, "{op}: {}", report.goodput_gbps);
        assert_eq!((report.packets_retransmitted, report.packets_dropped), (0, 0), "{op}");
        let figures = report.falcon.expect("the transport is Falcon");
        let (pulls, pushes) = (figures.pull_requests + figures.pull_data, figures.push_data);
        assert_eq!((pulls, pushes), if op == "read" { (12_000, 0) } else { (0, 6_000) }, "{op}: F-2");
        assert!(figures.acks + figures.extended_acks < 2_000, "{op}: acknowledgements are coalesced");
    }
}

/// Four flows of one connection over four spines: all of them carry packets, in proportion to their windows; with one
/// spine cut, no packet is lost permanently, and the flow on that spine moves to another one (PRR).
#[test]
fn f24_f26_f30_flows_spread_over_paths_and_leave_a_failed_one() {
    let text = r#"
        name = "four paths"
        mtu = 4096
        topology = { kind = "leaf-spine", spines = 4, leaves = 2, hosts_per_leaf = 1 }
        links = { rate = "200Gbps", delay = "1us" }
        switch = { model = "shared-buffer", buffer = "9MB" }
        transport = { name = "falcon", flows = 4 }
        workload = { kind = "closed-loop", op = "write", message = "64KiB", depth = 16, duration = "8ms", to = 1 }
    "#;
    let whole = run(text, &[], 2);
    let figures = whole.falcon.expect("the transport is Falcon");
    assert!(figures.idlest_flow_share > 0.03 && figures.busiest_flow_share < 0.6, "{figures:?}");
    let sum = |figures: &FalconFigures, of: fn(&FalconFlow) -> u64| figures.flows.iter().map(of).sum::<u64>();
    let all = figures.pull_requests + figures.pull_data + figures.push_data + figures.resyncs;
    assert_eq!((figures.flows.len(), sum(&figures, |flow| flow.packets)), (4, all));
    let down = r#"[{ kind = "down", links = "leaf-*>spine-1, spine-1>leaf-*", from = "500us", until = "1s" }]"#;
    for seed in 0..3 {
        let cut = run(text, &[("fault", down)], seed);
        assert!(cut.goodput_gbps > 0.7 * whole.goodput_gbps, "{} of {}", cut.goodput_gbps, whole.goodput_gbps);
        let latency = cut.latency_us.expect("a closed loop has latencies");
        assert!(latency.max < 2_500.0, "an operation took {} us", latency.max);
        let figures = cut.falcon.expect("the transport is Falcon");
        assert!(figures.path_changes > 0);
        assert_eq!(sum(&figures, |flow| flow.path_changes), figures.path_changes);
        assert_eq!(sum(&figures, |flow| flow.packets_retransmitted), cut.packets_retransmitted);
    }
}

/// Checks that every override that the head of `plans/falcon.toml` offers has its described effect.
#[test]
fn every_override_offered_by_the_falcon_plan_has_its_effect() {
    const PLAN: &str = include_str!("../../../plans/falcon.toml");
    let unchanged = run(PLAN, &[], 1).trace_hash;
    let offers = PLAN.lines().filter_map(|line| line.strip_prefix("#   ")?.split_once("  "));
    let mut seen = Vec::new();
    for (name, overrides) in offers {
        let overrides: Vec<_> = overrides.trim().split("   ").filter(|part| !part.is_empty()).collect();
        let overrides: Vec<_> = overrides.iter().map(|part| part.trim().split_once('=').expect("key=value")).collect();
        let report = run(PLAN, &overrides, 1);
        let flows = if name == "an all-to-all" { 16 * 15 } else { 16 };
        assert_eq!((report.flows, report.flows_unfinished), (flows, 0), "{name}: {report:?}");
        let kinds = [report.drops.fault > 0, report.timeouts > 0, report.falcon.is_none()];
        seen.push((name, report.trace_hash != unchanged, kinds));
    }
    assert!(seen.iter().all(|(_, differs, _)| *differs), "an override changes nothing: {seen:?}");
    let of = |wanted: &str| seen.iter().find(|(name, ..)| *name == wanted).expect(wanted).2;
    assert_eq!((of("1 % of data is lost")[0], of("a spine is cut off")[1]), (true, true));
    assert_eq!(["RoCE, selective", "RoCE, PFC", "IRN"].map(|name| of(name)[2]), [true; 3]);
}

/// A receiver's memory accepts half of the rate of the link. Its buffers fill, acknowledgements report that, and
/// ncwnd shrinks: goodput equals the rate of the memory, and hardly any packet is refused.
#[test]
fn f18_a_slow_host_limits_its_senders() {
    let text = r#"
        name = "slow host"
        mtu = 4096
        topology = { kind = "star", hosts = 2 }
        links = { rate = "200Gbps", delay = "2us" }
        switch = { model = "shared-buffer", buffer = "9MB" }
        transport = { name = "falcon" }
        slow_host = { hosts = "host-1", rate = "100Gbps" }
        workload = { kind = "closed-loop", op = "write", message = "64KiB", depth = 32, duration = "6ms", to = 1 }
        run = { warmup = "2ms" }
    "#;
    let report = run(text, &[], 1);
    let (goodput, figures) = (
        report.steady_goodput_gbps.expect("the workload has a duration"),
        report.falcon.expect("the transport is Falcon"),
    );
    assert!((92.0..101.0).contains(&goodput), "{goodput} Gbit/s, memory takes 100: {figures:?}");
    assert!(figures.host_backlog_max_bytes > 100_000, "{figures:?}");
    assert!(figures.resource_nacks * 1_000 < report.packets_sent, "{figures:?}");
    let whole = run(text, &[("slow_host.until", "1us")], 1).steady_goodput_gbps.expect("the workload has a duration");
    assert!(whole > 180.0, "{whole}");
    // A sender that ignores this is refused instead, and the report shows it: receivers send as many NACKs as senders
    // receive.
    let unthrottled = run(text, &[("transport.rx_target", "32")], 1);
    let refused = unthrottled.falcon.expect("the transport is Falcon");
    assert!(refused.resource_nacks > 500 && refused.buffers_max_share > 0.9, "{refused:?}");
    assert!(
        (refused.resource_nacks - 100..=refused.resource_nacks).contains(&unthrottled.nacks),
        "{} of {refused:?}",
        unthrottled.nacks
    );
}
