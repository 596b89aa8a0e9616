//! Falcon's adaptive engine with connections of a simulated network: the forms in which it stores their state (F-40).

mod common;

use common::*;
use rnic_fabric::Plan;

/// Returns the transport with `options` in addition to `rest`.
fn falcon(rest: &str, options: &str) -> String {
    format!("{{ name = \"falcon\"{rest}{options} }}")
}

/// Keys of the plan, and the values that replace them.
type Overrides = &'static [(&'static str, &'static str)];

const LOSS: (&str, &str) = (
    "fault",
    r#"[{ kind = "drop", probability = "1%" }, { kind = "reorder", probability = "1%", displacement = 3 },
        { kind = "down", from = "20us", until = "400us", links = "host-1>*" }]"#,
);
const TABLE: &str = ", fae_form = \"table\"";
const STATELESS: &str = ", fae_form = \"stateless\"";
const PREFETCHING: &str = ", fae_form = \"prefetching\"";

/// No latency, the hardware's latency, and a latency at which events queue up.
const LATENCIES: [&str; 3] = [
    "",
    ", fae_interface = \"234ns\", fae_work = \"66ns\"",
    ", fae_interface = \"2us\", fae_work = \"500ns\", fae_queue = 8, fae_throttle = 50",
];

/// Prefetching table entries does not change the results of a table: the traces are the same. For a connection with
/// one flow the messages carry all state, so the stateless form gives the same traces too, including PLB, PRR and
/// shares of resources.
#[test]
fn f40_every_form_of_state_gives_the_same_trace() {
    let plans: [(&str, &str, Overrides); 3] =
        [("wire", WIRE, &[LOSS]), ("star", STAR, &[LOSS]), ("tree", TREE, &[("workload.duration", "300us")])];
    for (name, text, with) in plans {
        for latency in LATENCIES {
            for (flows, forms) in [("1", &[PREFETCHING, STATELESS][..]), ("4", &[PREFETCHING])] {
                let rest = format!(", flows = {flows}, plb_rounds = 2{latency}");
                let hash =
                    |form: &str| run(text, &[with, &[("transport", &*falcon(&rest, form))]].concat(), 5).trace_hash;
                let table = hash(TABLE);
                for form in forms {
                    assert_eq!(hash(form), table, "{name}{rest}{form}");
                }
            }
        }
    }
}

/// Four hosts with `pairs` connections each, of `flows` flows, write to a fifth behind four spines. Returns the
/// goodput in Gbit/s.
fn incast(pairs: &str, flows: &str, form: &str) -> f64 {
    let text = r#"
        name = "incast"
        mtu = 4096
        topology = { kind = "leaf-spine", spines = 4, leaves = 2, hosts_per_leaf = 4 }
        links = { rate = "200Gbps", delay = "1us" }
        switch = { model = "shared-buffer", buffer = "9MB" }
        run = { warmup = "2ms" }

        [workload]
        kind = "closed-loop"
        op = "write"
        message = "64KiB"
        depth = 4
        duration = "6ms"
        clients = 4
        to = 4
    "#;
    let transport = falcon(&format!(", flows = {flows}"), form);
    let report = run(text, &[("transport", &transport), ("workload.queue_pairs", pairs)], 3);
    println!(
        "{pairs} connections, {flows} flows{form}: {:?} Gbit/s, {} dropped, {} again",
        report.steady_goodput_gbps, report.packets_dropped, report.packets_retransmitted
    );
    report.steady_goodput_gbps.expect("the workload has a duration")
}

/// With several flows, each message carries only the state of its own flow. The window towards the NIC applies to all
/// flows, so none of it is lost. The windows and round-trip times of the other flows are lost, from which a
/// connection's gap, its timeouts and its shares are computed: with windows below one packet it sends more slowly
/// than necessary. The goodput of flows that share a bottleneck is unchanged.
#[test]
fn f40_stateless_flows_reach_nearly_the_goodput_of_a_table() {
    for pairs in ["4", "64", "512"] {
        for flows in ["1", "2", "4", "8"] {
            let (table, stateless) = (incast(pairs, flows, TABLE), incast(pairs, flows, STATELESS));
            assert!(flows != "1" || table == stateless, "one flow: {table} and {stateless}");
            let part = stateless / table;
            assert!((0.9..1.1).contains(&part), "{pairs} connections of {flows} flows: {part}");
        }
    }
}

/// Traffic to a drive uses the same engine.
#[test]
fn f40_nvme_gives_the_same_trace_with_every_form_of_state() {
    let hash = |form: &str| {
        let workload = r#"{ kind = "nvme", op = "read", message = "16KiB", depth = 16, from = 0, to = 1,
            duration = "1ms", drive = { read_rate = "26Gbps", read_latency = "60us", write_rate = "12Gbps",
            write_latency = "15us", queue_depth = 128 } }"#;
        let transport = falcon(", ordering = \"unordered\"", form);
        run(WIRE, &[("mtu", "4096"), ("transport", &transport), ("workload", workload), LOSS], 3).trace_hash
    };
    let table = hash(TABLE);
    assert_eq!((hash(PREFETCHING), hash(STATELESS)), (table.clone(), table));
}

/// Checks that options that a simulation does not support are refused in one line that gives the reason.
#[test]
fn unsupported_adaptive_engine_options_are_refused() {
    let refusal = |options: &str| {
        let transport = falcon("", options);
        let plan = Plan::from_toml_with(WIRE, &[("transport", &transport)], &mut |_| Err("no files".to_owned()));
        let text = plan.expect_err(options).to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    for (options, expected) in [
        (", fae_place = \"thread\"", "plan: transport.fae_place: must be `datapath` in a simulation"),
        (
            ", fae_place = \"thread\", fae_work = \"66ns\"",
            "fae_interface and fae_work have no effect when the adaptive engine runs on a thread",
        ),
        (", fae_form = \"stateless\", control = \"fixed-window\"", "`fixed-window` needs memory for its state"),
        (", fae_form = \"nowhere\"", "parameter `fae_form`"),
    ] {
        let text = refusal(options);
        assert!(text.contains(expected), "{text}");
    }
}
