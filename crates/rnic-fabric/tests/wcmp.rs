//! Paths of different capacity: switches that choose among them by weight (WCMP), and senders that do so.

mod common;

use common::*;
use rnic_fabric::{Plan, Report, Simulation};

/// Two leaves of five hosts; the two spines together carry exactly what five hosts send, provided that they are used
/// in proportion to their rates.
const UNEQUAL_SPINES: &str = r#"
    name = "lopsided"
    mtu = 4096
    topology = { kind = "leaf-spine", spines = 2, leaves = 2, hosts_per_leaf = 5 }
    links = { rate = "25Gbps", delay = "1us", fabric = { rate = "100Gbps", spines = ["100Gbps", "25Gbps"] } }
    switch = { model = "shared-buffer", buffer = "9MB" }
    transport = { name = "falcon" }
    workload = { kind = "trace", file = "flows.csv" }
"#;

/// Hosts of one leaf send a thousand flows of 100 KB to those of the other: 89 Gbit/s of the 125 available.
fn across(text: &str, with: &[(&str, &str)], seed: u64) -> Report {
    let flow = |index: u32| format!("{}us,{},{},100KB\n", 9 * index, index % 5, 5 + (index / 5 + index) % 5);
    let lines: String = (0..1_000).map(flow).collect();
    let plan = Plan::from_toml_with(text, with, &mut |_| Ok(lines.clone())).expect("the plan is valid");
    let report = finish(Simulation::new(&plan, seed).expect("the plan is valid"));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.flows_unfinished, 0);
    println!("{with:?}: {:.1} us on average, {} dropped", report.fct_avg_us, report.packets_dropped);
    report
}

/// With ECMP half of all flows share a fifth of the capacity and queue there; by weight only a fifth of the flows is
/// there.
#[test]
fn flows_spread_by_weight_use_paths_of_different_capacity() {
    for seed in 0..3 {
        let [ecmp, wcmp] =
            ["ecmp", "wcmp"].map(|multipath| across(UNEQUAL_SPINES, &[("switch.multipath", multipath)], seed));
        assert!(wcmp.fct_avg_us * 3.0 < ecmp.fct_avg_us, "{} and {}", wcmp.fct_avg_us, ecmp.fct_avg_us);
    }
    let again = across(UNEQUAL_SPINES, &[("switch.multipath", "wcmp")], 0);
    assert_eq!(again.trace_hash, across(UNEQUAL_SPINES, &[("switch.multipath", "wcmp")], 0).trace_hash);
}

/// Runs a workload in which every host of one leaf writes continuously to all hosts of the other, with `depth`
/// messages in flight. Returns the goodput in Gbit/s.
fn steady(name: &str, (depth, duration): (u32, &str), with: &[(&str, &str)], seed: u64) -> f64 {
    let workload = format!(
        r#"{{ kind = "closed-loop", op = "write", message = "64KiB", depth = {depth}, duration = "{duration}",
            clients = 5, queue_pairs = 25, from = 0, to = 5, servers = 5 }}"#
    );
    let with = [with, &[("run", r#"{ warmup = "1ms" }"#), ("workload", &*workload)]].concat();
    let report = run(UNEQUAL_SPINES, &with, seed);
    println!("{name}: {:?} Gbit/s, {} dropped", report.steady_goodput_gbps, report.packets_dropped);
    report.steady_goodput_gbps.expect("the workload has a duration")
}

/// Returns the goodput with packets that are sprayed over many labels.
fn sprayed(multipath: &str, seed: u64) -> f64 {
    let transport = r#"{ name = "irn", paths = "spray", spray_paths = 256, nack_threshold = 500, control = "dctcp" }"#;
    let marking = ("switch.ecn", r#"{ kmin = "100KB", kmax = "400KB", pmax = "20%" }"#);
    let with = [("switch.multipath", multipath), ("transport", transport), marking];
    steady(multipath, (4, "4ms"), &with, seed)
}

/// Packets that are spread evenly over both paths reach twice the rate of the slower path; spread by weight, the rate
/// of both together.
#[test]
fn packets_spread_by_weight_reach_the_rate_of_both_paths() {
    for seed in 0..3 {
        let (ecmp, wcmp) = (sprayed("ecmp", seed), sprayed("wcmp", seed));
        assert!(ecmp < 55.0 && wcmp > 100.0, "{ecmp} and {wcmp} of 125 Gbit/s");
    }
}

/// With links that are all alike, weights change nothing.
#[test]
fn equal_weights_are_ecmp() {
    let even = ("links.fabric", r#"{ rate = "100Gbps" }"#);
    for (name, text, with) in
        [("leaves", UNEQUAL_SPINES, &[even][..]), ("tree", TREE, &[("workload.duration", "200us")])]
    {
        let hash = |multipath| {
            let with = [with, &[("switch.multipath", multipath)]].concat();
            if name == "tree" { run(text, &with, 4).trace_hash } else { across(text, &with, 4).trace_hash }
        };
        assert_eq!(hash("ecmp"), hash("wcmp"), "{name}");
    }
}

/// A list of rates must name all spines, and no spine may be faster than the plan allows.
#[test]
fn invalid_spine_rates_are_refused() {
    let refusal = |with: &[(&str, &str)]| {
        let plan = Plan::from_toml_with(UNEQUAL_SPINES, with, &mut |_| Ok("0us,0,5,1KB\n".to_owned()));
        plan.expect_err("the plan is refused").to_string()
    };
    for (spines, what) in [
        (r#"["100Gbps"]"#, "has 1 rates, but the topology has 2 spines"),
        (r#"["100Gbps", "200Gbps"]"#, "must be between 1Mbps and 100 Gbit/s"),
        (r#"["100Gbps", "1000bps"]"#, "must be between 1Mbps and 100 Gbit/s"),
    ] {
        let error = refusal(&[("links.fabric.spines", spines)]);
        assert!(error.starts_with("plan: links.fabric.spines: ") && error.contains(what), "{error}");
    }
    let error = refusal(&[("topology", r#"{ kind = "fat-tree", k = 4 }"#)]);
    assert!(error.contains("applies only to the leaf-spine topology"), "{error}");
}

/// Returns the goodput over eight Falcon flows, which switches spread evenly.
fn over_flows(paths: &str, seed: u64) -> f64 {
    let transport = format!("{{ name = \"falcon\", flows = 8, paths = \"{paths}\" }}");
    steady(paths, (8, "6ms"), &[("transport", &*transport)], seed)
}

/// The windows of flows show what their paths carry: a sender that divides its packets in proportion to them uses
/// both paths fully.
#[test]
fn a_sender_that_spreads_by_weight_uses_paths_of_different_capacity() {
    for seed in 0..3 {
        let [equal, weighted, widest] = ["spray", "weighted", "largest-window"].map(|paths| over_flows(paths, seed));
        assert!(weighted > 1.5 * equal && weighted > 0.9 * widest, "{equal}, {weighted}, {widest}");
    }
}
