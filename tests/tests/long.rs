//! The long runs of the semantics fuzz: ten million packets and more per transport on the fabric, a million on sockets.
//! Run by `make long-test`.
//!
//! Falcon's runs alone, ten million packets for each order on each network: `make fuzz-falcon`.

use rnic_conformance::Place;
use rnic_conformance::campaign::{Campaign, LOOSE, ORDERINGS};

fn run(place: Place, transport: &str, packets: u64) {
    run_with(place, transport, None, packets);
}

fn run_with(place: Place, transport: &str, ordering: Option<&str>, packets: u64) {
    let (transport, ordering) = (transport.to_owned(), ordering.map(str::to_owned));
    let (seed, runs, packets_per_run, capture) = (1 << 32, u64::MAX, 40_000, None);
    let campaign = Campaign { place, transport, ordering, flows: None, seed, runs, packets, packets_per_run, capture };
    let summary = campaign.run(|_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    assert!(summary.packets >= packets, "{summary:?}");
    println!("{summary:?}");
}

/// With RNR, individually failing requests, and small pools that reject packets.
fn falcon_without_verbs_errors(place: Place) {
    ORDERINGS.iter().for_each(|ordering| run_with(place, LOOSE, Some(ordering), 10_000_000));
}

fn falcon_with_verbs_errors(place: Place) {
    ["ordered", "weak"].iter().for_each(|ordering| run_with(place, "falcon", Some(ordering), 10_000_000));
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_between_engines() {
    falcon_with_verbs_errors(Place::Engines);
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_between_engines_with_requests_that_fail_alone() {
    falcon_without_verbs_errors(Place::Engines);
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_on_the_fabric() {
    falcon_with_verbs_errors(Place::Fabric);
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_on_the_fabric_with_requests_that_fail_alone() {
    falcon_without_verbs_errors(Place::Fabric);
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_on_sockets() {
    falcon_with_verbs_errors(Place::Sockets);
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_on_sockets_with_requests_that_fail_alone() {
    falcon_without_verbs_errors(Place::Sockets);
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_through_memory() {
    falcon_with_verbs_errors(Place::Memory);
}

#[test]
#[ignore = "ten million packets an order; run by `make fuzz-falcon`"]
fn falcon_through_memory_with_requests_that_fail_alone() {
    falcon_without_verbs_errors(Place::Memory);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn irn_through_memory() {
    run(Place::Memory, "irn", 1_000_000);
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

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_reno_on_the_fabric() {
    run(Place::Fabric, "tonic-reno", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_reno_on_sockets() {
    run(Place::Sockets, "tonic-reno", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_new_reno_on_the_fabric() {
    run(Place::Fabric, "tonic-new-reno", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_new_reno_on_sockets() {
    run(Place::Sockets, "tonic-new-reno", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_sack_on_the_fabric() {
    run(Place::Fabric, "tonic-sack", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_sack_on_sockets() {
    run(Place::Sockets, "tonic-sack", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_ndp_on_the_fabric() {
    run(Place::Fabric, "tonic-ndp", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_ndp_on_sockets() {
    run(Place::Sockets, "tonic-ndp", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_dcqcn_on_the_fabric() {
    run(Place::Fabric, "tonic-dcqcn", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_dcqcn_on_sockets() {
    run(Place::Sockets, "tonic-dcqcn", 1_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_irn_on_the_fabric() {
    run(Place::Fabric, "tonic-irn", 10_000_000);
}

#[test]
#[ignore = "minutes; see `make long-test`"]
fn t27_tonic_irn_on_sockets() {
    run(Place::Sockets, "tonic-irn", 1_000_000);
}
