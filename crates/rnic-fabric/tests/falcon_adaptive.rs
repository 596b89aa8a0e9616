//! Falcon's adaptive engine under connections of a simulated network: where its state lies (F-40).

mod common;

use common::*;
use rnic_fabric::Plan;

/// With `options` of the transport beside `rest`.
fn falcon(rest: &str, options: &str) -> String {
    format!("{{ name = \"falcon\"{rest}{options} }}")
}

/// Keys that are replaced.
type Overrides = &'static [(&'static str, &'static str)];

const LOSS: (&str, &str) = (
    "fault",
    r#"[{ kind = "drop", probability = "1%" }, { kind = "reorder", probability = "1%", displacement = 3 },
        { kind = "down", from = "20us", until = "400us", links = "host-1>*" }]"#,
);
const TABLE: &str = ", fae_form = \"table\"";
const STATELESS: &str = ", fae_form = \"stateless\"";
const PREFETCHING: &str = ", fae_form = \"prefetching\"";

/// At once, behind the hardware's latency, and behind one at which events wait for each other.
const PLACES: [&str; 3] = [
    "",
    ", fae_interface = \"234ns\", fae_work = \"66ns\"",
    ", fae_interface = \"2us\", fae_work = \"500ns\", fae_queue = 8, fae_throttle = 50",
];

/// A table whose lines are fetched ahead is a table: the same traces. Of a connection with one flow all state travels,
/// so there the stateless form gives the same traces too, PLB, PRR and shares of resources included.
#[test]
fn f40_every_form_of_state_gives_the_same_trace() {
    let plans: [(&str, &str, Overrides); 3] =
        [("wire", WIRE, &[LOSS]), ("star", STAR, &[LOSS]), ("tree", TREE, &[("workload.duration", "300us")])];
    for (name, text, with) in plans {
        for place in PLACES {
            for (flows, forms) in [("1", &[PREFETCHING, STATELESS][..]), ("4", &[PREFETCHING])] {
                let rest = format!(", flows = {flows}, plb_rounds = 2{place}");
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

/// Four hosts with `pairs` connections each, of `flows` flows, write to a fifth behind four spines: goodput in Gbit/s.
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
    report.steady_goodput_gbps.expect("it ends by the clock")
}

/// Of several flows each carries what it knows of itself. The window towards the NIC is in force for all, so nothing of
/// it is lost; what is, are the other flows' windows and round trips, from which a connection's gap, its timeouts and
/// its shares are made: with windows below a packet it sends more slowly than it might. The goodput of flows that share
/// a bottleneck stays.
#[test]
fn f40_flows_that_know_of_themselves_alone_come_close() {
    for pairs in ["4", "64", "512"] {
        for flows in ["1", "2", "4", "8"] {
            let (table, stateless) = (incast(pairs, flows, TABLE), incast(pairs, flows, STATELESS));
            assert!(flows != "1" || table == stateless, "one flow: {table} and {stateless}");
            let part = stateless / table;
            assert!((0.9..1.1).contains(&part), "{pairs} connections of {flows} flows: {part}");
        }
    }
}

/// Traffic to a drive takes the same engine.
#[test]
fn f40_a_drive_is_reached_with_every_form_of_state() {
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

/// What a simulation cannot have is refused in one line that says why.
#[test]
fn what_cannot_be_is_refused() {
    let refusal = |options: &str| {
        let transport = falcon("", options);
        let plan = Plan::from_toml_with(WIRE, &[("transport", &transport)], &mut |_| Err("no files".to_owned()));
        let text = plan.expect_err(options).to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    for (options, says) in [
        (", fae_place = \"thread\"", "plan: transport.fae_place: a thread answers when it will"),
        (
            ", fae_place = \"thread\", fae_work = \"66ns\"",
            "an adaptive engine on a thread takes the time that it takes",
        ),
        (", fae_form = \"stateless\", control = \"fixed-window\"", "`fixed-window` needs a memory for its state"),
        (", fae_form = \"nowhere\"", "parameter `fae_form`"),
    ] {
        let text = refusal(options);
        assert!(text.contains(says), "{text}");
    }
}
