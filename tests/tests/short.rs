//! A short run of the semantics fuzz, with fixed seeds, and its own checks.
//!
//! To see that the fuzz finds what it is there for, break something in `rnic-engine` and run this: let a duplicate
//! Write be placed again, acknowledge a packet too many, forget a fence, flush in another order.

use rnic_conformance::campaign::{Campaign, LOOSE, Summary};
use rnic_conformance::{Body, Place};
use rnic_fabric::NodeOrder;

const TRANSPORTS: [&str; 7] = ["irn", "roce-gbn", "roce-sr", "roce-ar", "tcp", "fasr", "srnic"];

fn campaign(place: Place, transport: &str, seed: u64, runs: u64) -> Campaign {
    let transport = transport.to_owned();
    Campaign { place, transport, seed, runs, packets: u64::MAX, packets_per_run: 2_000, capture: None }
}

fn run(place: Place, seed: u64, runs: u64) -> Vec<Summary> {
    let run = |transport| campaign(place, transport, seed, runs).run(|_, _| {});
    TRANSPORTS.iter().map(|transport| run(transport).unwrap_or_else(|what| panic!("{what}"))).collect()
}

#[test]
fn the_fabric_keeps_what_verbs_promise() {
    let summaries = run(Place::Fabric, 5_000, 60);
    for summary in &summaries {
        assert!(summary.packets > 50_000 && summary.packets_repeated > 1_000, "{summary:?}");
        assert!(summary.requests > 5_000 && summary.receives > 1_000, "{summary:?}");
        assert!(summary.requests_failed > 50 && summary.connections_failed > 5, "{summary:?}");
        assert!(summary.connections_again > 0 && summary.drained > 20, "{summary:?}");
    }
    // Every kind of failure has been met.
    for status in ["LocalProtection", "RemoteAccess", "RemoteInvalidRequest", "RetryExceeded", "WrFlushed"] {
        assert!(summaries.iter().any(|summary| summary.failures.contains_key(status)), "no {status}: {summaries:?}");
    }
}

#[test]
fn sockets_keep_what_verbs_promise() {
    for summary in run(Place::Sockets, 2_000, 12) {
        assert!(summary.packets > 5_000 && summary.requests > 500 && summary.receives > 50, "{summary:?}");
    }
}

#[test]
fn engines_alone_keep_what_verbs_promise() {
    for transport in ["irn", "falcon"] {
        let run =
            || campaign(Place::Engines, transport, 9_000, 30).run(|_, _| {}).unwrap_or_else(|what| panic!("{what}"));
        let summary = run();
        assert!(summary.packets > 20_000 && summary.packets_repeated > 1_000, "{summary:?}");
        assert!(summary.requests > 3_000 && summary.receives > 500, "{summary:?}");
        assert!(summary.requests_failed > 20 && summary.connections_failed > 0, "{summary:?}");
    }
    let campaign = campaign(Place::Engines, "falcon", 0, 1);
    let hash = |seed| campaign.run_one(seed).unwrap_or_else(|what| panic!("{what}")).trace_hash;
    assert_eq!(hash(3), hash(3), "the same seed gives the same trace");
    assert_ne!(hash(3), hash(4), "and another one another");
}

/// Requests that fail alone, in every order of Falcon.
#[test]
fn falcon_keeps_what_it_promises_without_verbs_order_and_errors() {
    let run = || campaign(Place::Engines, LOOSE, 100, 40).run(|_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    let summary = run();
    assert!(summary.packets > 20_000 && summary.packets_repeated > 1_000, "{summary:?}");
    assert!(summary.requests > 3_000 && summary.receives > 500 && summary.requests_failed > 500, "{summary:?}");
    assert_eq!(summary, run(), "the same seeds give the same");
}

#[test]
fn the_same_seed_gives_the_same_trace_on_the_fabric() {
    for transport in TRANSPORTS {
        let campaign = campaign(Place::Fabric, transport, 0, 1);
        let hashes = |seed| {
            let run = || campaign.run_one(seed).unwrap_or_else(|what| panic!("{what}"));
            [run(), run()]
        };
        let first: Vec<_> = (1..=6).map(hashes).collect();
        assert!(first.iter().all(|[one, again]| one == again && one.trace_hash.is_some()), "{first:?}");
        assert!(first.windows(2).all(|pair| pair[0][0].trace_hash != pair[1][0].trace_hash), "another seed differs");
    }
}

/// The order in which the fabric takes its nodes makes no difference to anybody.
#[test]
fn the_order_of_nodes_makes_no_difference() {
    for transport in TRANSPORTS {
        for seed in 7_000..7_008 {
            let scenario = campaign(Place::Fabric, transport, 0, 1).scenario(seed);
            let run = |order| {
                let mut fabric = rnic_conformance::fabric(&scenario).expect("a plan that can be run");
                fabric.simulation().set_node_order(order);
                Body::run(&mut fabric, &scenario).unwrap_or_else(|what| panic!("seed {seed}: {what}"))
            };
            assert_eq!(run(NodeOrder::Forward), run(NodeOrder::Backward), "{transport}, seed {seed}");
        }
    }
}

#[test]
fn the_replay_command_names_the_run() {
    let command = campaign(Place::Fabric, "irn", 0, 1).replay(77);
    assert!(
        command.ends_with("--backend fabric --transport irn --seed 77 --runs 1 --packets-per-run 2000"),
        "{command}"
    );
}
