//! The same plan and seed give the same trace: run twice, in two node orders, with packets as structures and as
//! bytes.

mod common;

use common::*;

#[test]
fn a_run_repeats_itself() {
    for (name, text, overrides) in cases() {
        for transport in TRANSPORTS {
            let with = [&overrides[..], &[("transport", transport)]].concat();
            let first = run(text, &with, 7);
            let second = run(text, &with, 7);
            assert_eq!(first.trace_hash, second.trace_hash, "{name}, {transport}");
            assert_eq!(first.to_json(), second.to_json(), "{name}, {transport}");
            assert_ne!(first.trace_hash, run(text, &with, 8).trace_hash, "{name}: another seed, another run");
        }
    }
}

#[test]
fn the_order_of_nodes_does_not_matter() {
    for (name, text, overrides) in cases() {
        for transport in TRANSPORTS {
            let with = [&overrides[..], &[("transport", transport)]].concat();
            assert_independent_of_order_and_parts(
                &run(text, &with, 7),
                text,
                &with,
                7,
                &format!("{name}, {transport}"),
            );
        }
    }
}

/// Checks that the simulation uses no information that the wire does not carry.
#[test]
fn bytes_on_the_wire_change_nothing() {
    for (name, text, overrides) in cases() {
        for transport in TRANSPORTS {
            let with =
                |more: &[(&'static str, &'static str)]| [&overrides[..], &[("transport", transport)], more].concat();
            let plain = run(text, &with(&[]), 7).trace_hash;
            let encoded = run(text, &with(&[("wire", "encoded")]), 7);
            assert_eq!(plain, encoded.trace_hash, "{name}, {transport}: encoded");
            let checked = run(text, &with(&[("payload", "checked")]), 7);
            assert_eq!(plain, checked.trace_hash, "{name}, {transport}: with payload");
            let both = run(text, &with(&[("payload", "checked"), ("wire", "encoded")]), 7);
            assert_eq!(plain, both.trace_hash, "{name}, {transport}: both");
        }
    }
}

/// With many connections or links, nodes are prefetched before their turn, in forward order only: no result may depend
/// on it. Tested with both families of transports, two kinds of switches, with and without paced queue pairs, and in a
/// network of 2000 hosts.
#[test]
fn prefetching_changes_no_result() {
    let falcon = ("transport", r#"{ name = "falcon" }"#);
    let many_connections = ("workload", r#"{ kind = "permutation", bytes = "600KB", connections = 30 }"#);
    // Windows are below one packet, so most packets are paced.
    let incast = r#"{ kind = "closed-loop", op = "write", message = "16KB", clients = 5, from = 1, to = 0,
        queue_pairs = 200, jitter = "300us", duration = "500us" }"#;
    let shared = ("switch", r#"{ model = "shared-buffer", buffer = "300KB", alpha = "1/2" }"#);
    let irn = ("transport", r#"{ name = "irn", cap_packets = "bdp", rto_high = "auto" }"#);
    let large = ("topology", r#"{ kind = "fat-tree", k = 20 }"#);
    let short = ("workload", r#"{ kind = "permutation", bytes = "20KB" }"#);
    let small_buffers = ("switch", r#"{ model = "input-queued", buffer = "20KB" }"#);
    let cases = [
        (TREE, vec![irn, many_connections, FAULTS]),
        (TREE, vec![irn, large, short, small_buffers]),
        (TREE, vec![falcon, large, short, small_buffers]),
        (TREE, vec![falcon, many_connections]),
        (TREE, vec![falcon, many_connections, FAULTS]),
        (TREE, vec![falcon, many_connections, shared]),
        (STAR, vec![falcon, shared, ("workload", incast)]),
    ];
    for (text, overrides) in cases {
        assert_independent_of_order_and_parts(
            &run(text, &overrides, 7),
            text,
            &overrides,
            7,
            &format!("{overrides:?}"),
        );
    }
}

/// In a capture the packets of several parts are ordered by time, those of the same instant by host.
#[test]
fn a_capture_is_the_same_in_parts() {
    let plan = plan(TREE, &[FAULTS, ("payload", "checked"), ("workload.duration", "100us")]);
    let captured = |parts| {
        let mut simulation = rnic_fabric::Simulation::in_parts(&plan, 7, parts).expect("the plan is valid");
        simulation.set_runner(Box::new(Threads));
        let file = Shared::default();
        simulation.capture_to(file.clone()).expect("writing to memory succeeds");
        (finish(simulation).trace_hash, file.bytes())
    };
    let (whole, parts) = (captured(1), captured(4));
    assert!(whole.1.len() > 10_000 && whole == parts, "{} and {} bytes", whole.1.len(), parts.1.len());
}

/// A network with more parts than hosts is divided into as many parts as it has hosts.
#[test]
fn a_network_has_no_more_parts_than_hosts() {
    let parts = |text, parts| {
        rnic_fabric::Simulation::in_parts(&plan(text, &[]), 1, parts).expect("the plan is valid").part_count()
    };
    assert_eq!((parts(WIRE, 64), parts(TREE, 64), parts(TREE, 11), parts(TREE, 0)), (2, 16, 11, 1));
}

/// Checks runs that end at their limit, and a run with a slow host.
#[test]
fn truncated_runs_are_the_same_in_parts() {
    let falcon = ("transport", r#"{ name = "falcon", flows = 4 }"#);
    let slow = ("slow_host", r#"{ hosts = "host-0", rate = "1Gbps", from = "10us", until = "900us" }"#);
    let all_links_down = ("fault", r#"[{ kind = "down", from = "10us", until = "10s" }]"#);
    let cases = [
        (TREE, vec![FAULTS, ("run.limit", "150us")]),
        (STAR, vec![falcon, FAULTS, ("payload", "checked"), ("wire", "encoded"), ("run.limit", "33us")]),
        (STAR, vec![falcon, slow]),
        (STAR, vec![all_links_down, ("run", r#"{ stall_after = "1ms", limit = "20ms" }"#)]),
    ];
    for (text, overrides) in cases {
        let report = finish(simulation(text, &overrides, 7));
        assert_independent_of_order_and_parts(&report, text, &overrides, 7, &format!("{overrides:?}"));
    }
}
