//! Several groups of traffic in one plan, each with its own transport.

mod common;

use common::*;
use rnic_fabric::{Plan, Report};

/// A star in which every host is used by each of two groups.
const MIXED: &str = r#"
    name = "mixed"
    mtu = 1024
    topology = { kind = "star", hosts = 6 }
    links = { rate = "40Gbps", delay = "1us" }
    switch = { model = "input-queued", buffer = "150KB", pfc = { enabled = false } }
    transport = { name = "irn" }
    [traffic.requests]
    kind = "poisson"
    load = "30%"
    sizes = "irn-heavy-tail"
    duration = "300us"
    [traffic.steps]
    kind = "collective"
    collective = "all-reduce"
    bytes = "600KB"
    count = 2
"#;

/// Transports of the two groups.
const PAIRS: [[&str; 2]; 5] = [
    ["\"irn\"", "\"roce-gbn\""],
    ["\"irn\"", "{ name = \"falcon\", flows = 4 }"],
    ["\"falcon\"", "{ name = \"roce-gbn\", rto = \"100us\" }"],
    ["\"fasr\"", "\"falcon\""],
    ["{ name = \"roce-gbn\", control = \"dcqcn\" }", "\"irn\""],
];

fn with<'v>(pair: &[&'v str; 2], more: &[(&'v str, &'v str)]) -> Vec<(&'v str, &'v str)> {
    [&[("traffic.requests.transport", pair[0]), ("traffic.steps.transport", pair[1])], more].concat()
}

fn group<'r>(report: &'r Report, name: &str) -> &'r rnic_fabric::report::GroupFigures {
    &report.groups.as_ref().expect("the plan has groups")[name]
}

/// Two transports on the same hosts complete every message exactly once, and the run is the same in both orders of
/// nodes and in several parts on threads, also when packets are lost, reordered and damaged.
#[test]
fn two_transports_side_by_side_complete_every_message() {
    for pair in &PAIRS {
        for more in [&[][..], &[FAULTS], &[("switch.pfc.enabled", "true")], &[("topology", TREE_OF_16)]] {
            let overrides = with(pair, more);
            let report = run(MIXED, &overrides, 3);
            let (requests, steps) = (group(&report, "requests"), group(&report, "steps"));
            assert_eq!(report.flows, requests.flows + steps.flows, "{pair:?}");
            assert!(requests.flows > 20 && requests.flows_unfinished == 0 && steps.flows > 0, "{pair:?}: {requests:?}");
            assert_eq!(steps.rct_us.expect("there are collectives").count, 2, "{pair:?}");
            assert_independent_of_order_and_parts(&report, MIXED, &overrides, 3, &format!("{pair:?}, {more:?}"));
        }
    }
}

const TREE_OF_16: &str = r#"{ kind = "fat-tree", k = 4 }"#;

/// The simulation of several transports uses no information that the wire does not carry.
#[test]
fn bytes_on_the_wire_change_nothing_for_several_transports() {
    for pair in &PAIRS {
        let plain = run(MIXED, &with(pair, &[FAULTS]), 7).trace_hash;
        let checked = run(MIXED, &with(pair, &[FAULTS, ("payload", "checked"), ("wire", "encoded")]), 7);
        assert_eq!(plain, checked.trace_hash, "{pair:?}");
    }
}

/// The counters of groups add up to those of the run.
#[test]
fn retransmissions_are_those_of_the_groups() {
    for pair in &PAIRS {
        let report = run(MIXED, &with(pair, &[FAULTS]), 5);
        let sum = |value: fn(&rnic_fabric::report::GroupFigures) -> u64| {
            report.groups.iter().flatten().map(|(_, group)| value(group)).sum::<u64>()
        };
        assert!(report.packets_retransmitted > 0);
        assert_eq!(sum(|group| group.packets_retransmitted), report.packets_retransmitted, "{pair:?}");
        assert_eq!(sum(|group| group.packets_sent), report.packets_sent, "{pair:?}");
        assert_eq!(sum(|group| group.bytes), report.bytes, "{pair:?}");
    }
}

/// A group's flows do not change when another group is added: they have random numbers of their own.
#[test]
fn a_group_has_the_same_flows_beside_others() {
    let flows = |overrides: &[(&str, &str)]| {
        let report = run(MIXED, overrides, 9);
        let groups: Vec<_> = report.groups.iter().flatten().map(|(name, _)| name.clone()).collect();
        let is_request = |flow: &&rnic_fabric::report::FlowRecord| {
            flow.group.is_some_and(|group| groups[group as usize] == "requests")
        };
        report.records.iter().filter(is_request).map(|flow| (flow.start, flow.src, flow.dst, flow.bytes)).collect()
    };
    let both: Vec<_> = flows(&[]);
    let alone = r#"{ requests = { kind = "poisson", load = "30%", sizes = "irn-heavy-tail", duration = "300us" } }"#;
    assert_eq!(both, flows(&[("traffic", alone)]));
}

/// Flows of all kinds of workloads that can be groups, at the same time.
#[test]
fn all_kinds_of_groups_share_a_network() {
    let groups = r#"{
        a = { kind = "poisson", load = "10%", size = "20KB", duration = "200us" },
        b = { kind = "incast", senders = 4, bytes = "200KB", to = 2, repeats = 3, interval = "50us" },
        c = { kind = "permutation", bytes = "100KB", connections = 2 },
        d = { kind = "closed-loop", op = "read", message = "16KB", depth = 4, duration = "200us", from = 3, to = 1 },
        e = { kind = "open-loop", op = "send", message = "4KB", load = "10%", duration = "200us", from = 3, to = 1 },
        f = { kind = "collective", collective = "all-to-all", bytes = "60KB", ranks = 5 },
        g = { kind = "incast", senders = 2, bytes = "100KB", transport = "falcon" },
    }"#;
    let overrides = [("traffic", groups), ("payload", "checked")];
    let report = run(MIXED, &overrides, 1);
    for (name, group) in report.groups.iter().flatten() {
        assert!(group.flows > 0 && group.flows_unfinished == 0 && group.goodput_gbps > 0.0, "{name}: {group:?}");
    }
    assert_eq!(group(&report, "b").rct_us.expect("there are requests").count, 3);
    assert!(group(&report, "d").latency_us.is_some() && group(&report, "e").latency_us.is_some());
    assert_independent_of_order_and_parts(&report, MIXED, &overrides, 1, "all kinds");
}

/// Plans whose groups cannot be combined are refused with one line that names the key.
#[test]
fn groups_that_cannot_be_combined_are_refused() {
    let poisson = r#"kind = "poisson", load = "10%", size = "20KB", duration = "200us""#;
    let refused = |overrides: &[(&str, &str)], expected: &str| {
        let error = Plan::from_toml_with(MIXED, overrides, &mut |_| Err("no file".to_owned()));
        let error = error.map(|_| ()).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains(char::is_control), "{overrides:?}: {error}");
    };
    let tables = |text: &str| text.replace("POISSON", poisson);
    refused(&[("workload", r#"{ kind = "manual" }"#)], "traffic: cannot be combined with `workload`");
    refused(&[("traffic", "{}")], "traffic: must have 1 to 64 groups");
    for kind in ["manual", "nvme", "tenants", "chakra"] {
        let expected = format!("traffic.steps.kind: `{kind}` cannot be a group of traffic");
        refused(&[("traffic.steps", &format!("{{ kind = \"{kind}\" }}"))], &expected);
    }
    let second = r#"{ kind = "collective", collective = "all-gather", bytes = "1MB" }"#;
    refused(
        &[("traffic.again", second)],
        "traffic.steps.kind: a plan has at most one group of collectives, and `again`",
    );
    refused(&[("traffic.steps.ranks", "7")], "traffic.steps.ranks");
    refused(&[("traffic.requests.load", "0%")], "traffic.requests.load: must be above 0");
    refused(&[("traffic.requests.bytes", "1KB")], "traffic.requests.bytes: does not apply to the workload `poisson`");
    refused(&[("traffic.requests.colour", "1")], "traffic.requests.colour: unknown key");
    refused(&[("traffic.requests.durration", "1")], "unknown key `durration`; did you mean `duration`?");
    refused(&[("traffic.steps.class", "7")], "traffic.steps.class: ");
    refused(&[("traffic.steps", r#"{ load = "1%" }"#)], "traffic.steps: the key `kind` is missing");
    refused(&[("traffic.requests.transport", "carrier-pigeon")], "traffic.requests.transport: ");
    refused(&[("traffic.requests.transport", r#"{ name = "irn", colour = 1 }"#)], "traffic.requests.transport: ");
    refused(&[("traffic", &tables("{ \"a b\" = { POISSON } }"))], "1 to 32 letters, digits, `-` and `_`");
    let headers = r#"{ a = { POISSON, transport = { name = "irn", extra_header = 16 } }, b = { POISSON } }"#;
    refused(&[("traffic", &tables(headers))], "traffic.b.transport: `extra_header` must be that of group `a`");
    let falcons = r#"{ a = { POISSON, transport = "falcon" },
        b = { POISSON, transport = { name = "falcon", flows = 4 } } }"#;
    refused(&[("traffic", &tables(falcons))], "traffic.b.transport: the options of Falcon must be those of group `a`");
    for table in ["nic", "scr", "processors"] {
        let expected = format!("{table}: needs one transport for all groups of traffic");
        refused(
            &[
                (table, "{}"),
                ("traffic.steps.transport", r#"{ name = "irn", schedule = "water-filling" }"#),
                ("transport", r#"{ name = "irn", schedule = "water-filling", control = "aimd" }"#),
            ],
            &expected,
        );
    }
}
