//! The long runs of the semantics fuzz: ten million packets and more per transport on the fabric, a million on sockets.
//! Run by `make long-test`.

use rnic_conformance::Place;
use rnic_conformance::campaign::{Campaign, LOOSE};

fn run(place: Place, transport: &str, packets: u64) {
    let transport = transport.to_owned();
    let campaign =
        Campaign { place, transport, seed: 1 << 32, runs: u64::MAX, packets, packets_per_run: 40_000, capture: None };
    let summary = campaign.run(|_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    assert!(summary.packets >= packets, "{summary:?}");
    println!("{summary:?}");
}

#[test]
#[ignore = "ten million packets; run by `make long-test`"]
fn falcon_between_engines() {
    run(Place::Engines, "falcon", 10_000_000);
}

#[test]
#[ignore = "ten million packets; run by `make long-test`"]
fn falcon_with_requests_that_fail_alone() {
    run(Place::Engines, LOOSE, 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn irn_on_the_fabric() {
    run(Place::Fabric, "irn", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn roce_gbn_on_the_fabric() {
    run(Place::Fabric, "roce-gbn", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn irn_on_sockets() {
    run(Place::Sockets, "irn", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn roce_gbn_on_sockets() {
    run(Place::Sockets, "roce-gbn", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn fasr_on_the_fabric() {
    run(Place::Fabric, "fasr", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn srnic_on_the_fabric() {
    run(Place::Fabric, "srnic", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn roce_sr_on_the_fabric() {
    run(Place::Fabric, "roce-sr", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn fasr_on_sockets() {
    run(Place::Sockets, "fasr", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn roce_ar_on_the_fabric() {
    run(Place::Fabric, "roce-ar", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn tcp_on_the_fabric() {
    run(Place::Fabric, "tcp", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn roce_sr_on_sockets() {
    run(Place::Sockets, "roce-sr", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn tcp_on_sockets() {
    run(Place::Sockets, "tcp", 1_000_000);
}
