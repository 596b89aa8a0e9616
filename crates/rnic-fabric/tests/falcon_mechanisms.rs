//! Falcon's mechanisms as a network and several transports show them: F-24, F-39, F-43.

mod common;

use common::*;
use rnic_fabric::{Plan, Simulation};

/// F-24: flows of one queue pair have labels that switches send over different uplinks. One host sends to another pod,
/// over links that take a tenth of what the host could send.
#[test]
fn f24_labels_of_one_queue_pair_take_several_uplinks() {
    let goodput = |flows: &str| {
        let transport = format!("{{ name = \"falcon\", flows = {flows}, paths = \"largest-window\" }}");
        let with = [
            ("links", r#"{ rate = "100Gbps", delay = "1us", fabric = { rate = "10Gbps" } }"#),
            ("switch", r#"{ model = "shared-buffer", buffer = "2MB" }"#),
            ("transport", transport.as_str()),
            (
                "workload",
                r#"{ kind = "closed-loop", op = "write", message = "64KB", depth = 16, duration = "3ms", to = 12 }"#,
            ),
            ("run", r#"{ warmup = "1ms" }"#),
        ];
        run(TREE, &with, 1).steady_goodput_gbps.expect("it ends by the clock")
    };
    let (one, eight) = (goodput("1"), goodput("8"));
    assert!((7.5..10.0).contains(&one), "one label is one path of 10 Gbit/s: {one}");
    assert!(eight > 12.0, "eight labels find more than one: {eight} Gbit/s");
}

/// Microseconds that 8 MB from host 0 to host 1 take beside other flows of the same NIC to host 2, of whose packets
/// `lost` do not arrive; and how often anybody had to wait for a timeout.
fn beside_others(lost: &str) -> (f64, u64) {
    let mut lines = "0us,0,1,8MB\n".to_owned();
    (0..64).for_each(|_| lines.push_str("0us,0,2,4KB\n"));
    let fault = format!("[{{ kind = \"drop\", links = \"switch-0>host-2\", probability = \"{lost}\" }}]");
    let with = [
        ("workload", r#"{ kind = "trace", file = "flows.csv" }"#),
        // Without probes, so that there are timeouts.
        ("transport", r#"{ name = "falcon", recovery = "ooo-distance" }"#),
        ("switch.buffer", "1MB"),
        ("fault", fault.as_str()),
    ];
    let plan = Plan::from_toml_with(STAR, &with, &mut |_| Ok(lines.clone())).expect("sound");
    let report = finish(Simulation::new(&plan, 1).expect("sound"));
    report.check().expect("every promise is kept");
    assert_eq!(report.flows_unfinished, 0);
    let clean = report.records.iter().find(|flow| flow.dst == 1).expect("it is done");
    (clean.fct.as_ns() as f64 / 1_000.0, report.timeouts)
}

/// F-39: half of what other connections of a NIC send is lost, again and again; one that loses nothing does not notice.
#[test]
fn f39_a_connection_in_trouble_slows_no_other() {
    let (quiet, timeouts) = beside_others("0%");
    assert_eq!(timeouts, 0);
    let (stormy, timeouts) = beside_others("50%");
    println!("{stormy} us beside connections in trouble ({timeouts} timeouts), {quiet} beside quiet ones");
    assert!(timeouts > 20, "the others do wait for timeouts: {timeouts}");
    assert!(stormy < quiet * 1.05, "{stormy} us beside connections in trouble, {quiet} beside quiet ones");
}

/// F-35: shares of what is free do not hold back who is alone, with the defaults. (Reads are bounded by how many may be
/// outstanding.)
#[test]
fn f35_a_lone_connection_has_the_link() {
    for (op, least) in [("write", 185.0), ("send", 185.0), ("read", 90.0)] {
        let goodput = |transport: &str| {
            let workload = format!(
                "{{ kind = \"closed-loop\", op = \"{op}\", message = \"8KB\", depth = 256, duration = \"2ms\" }}"
            );
            let with = [
                ("mtu", "4096"),
                ("links", r#"{ rate = "200Gbps", delay = "5us" }"#),
                ("transport", transport),
                ("workload", workload.as_str()),
                ("run", r#"{ warmup = "1ms" }"#),
            ];
            run(WIRE, &with, 1).steady_goodput_gbps.expect("it ends by the clock")
        };
        let (shares, alone) =
            (goodput(r#"{ name = "falcon" }"#), goodput(r#"{ name = "falcon", isolation = "none" }"#));
        assert!(shares > least && shares > 0.99 * alone, "{op}: {shares} of 200 Gbit/s, {alone} without shares");
    }
}

/// F-43: a program that uses verbs does not know what carries them: the same work, the same bytes, the same
/// completions, over four transports and a network that loses, doubles and reorders.
#[test]
fn f43_the_same_program_over_every_transport() {
    const FAULTS: &str = r#"[{ kind = "drop", packets = "data", probability = "1%" },
        { kind = "duplicate", probability = "1%" }, { kind = "reorder", probability = "2%", displacement = 3 }]"#;
    let falcon = [r#"{ name = "falcon" }"#, r#"{ name = "falcon", flows = 4, ordering = "weak" }"#];
    for op in ["write", "write-imm", "send", "read", "fetch-add"] {
        let message = if op == "fetch-add" { "8B" } else { "20KB" };
        let workload =
            format!("{{ kind = \"closed-loop\", op = \"{op}\", message = \"{message}\", depth = 4, count = 60 }}");
        for transport in TRANSPORTS.into_iter().chain(falcon) {
            let with = [("workload", &*workload), ("transport", transport), ("payload", "checked"), ("fault", FAULTS)];
            let report = run(WIRE, &with, 3);
            assert_eq!(
                (report.messages, report.bytes),
                (60, 60 * if op == "fetch-add" { 8 } else { 20_000 }),
                "{op}: {transport}"
            );
        }
    }
}
