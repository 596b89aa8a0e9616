//! Circuits as the NICs of simulated hosts: the network sees the same packets at the same times as from the model.

use rnic_reproduce::trial::tonic::NicSpec;
use rnic_reproduce::trial::tonic::new_reno::{Arguments, checked};
use rnic_rtl::tonic::endpoint::CircuitNic;
use rnic_rtl::tonic::nic::Nic;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;

/// T-R10 in small: the plan that `rnic rtl trace` shows, for ten times as long.
fn arguments() -> Arguments {
    let mut plan: toml::Table = toml::from_str(include_str!("../../../rtl/plans/new-reno.toml")).expect("it is TOML");
    let network = plan["network"].as_table_mut().expect("the plan has a network");
    network.insert("duration".to_owned(), "20ms".into());
    network.insert("every_cycle".to_owned(), true.into());
    checked(&plan).expect("the arguments are valid")
}

fn nic(spec: &NicSpec) -> Nic {
    let NicSpec { program, parameters, link_rate, sizes, .. } = spec;
    Nic::new(program.description(), parameters.clone(), *link_rate, sizes.window, sizes.flows)
}

#[test]
fn t29_a_host_with_the_circuit_sends_the_packets_of_one_with_the_model() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let arguments = arguments();
    let by_model = arguments.tonic("new-reno", 1).expect("the model runs");
    let by_circuit = arguments.tonic_with("new-reno", 1, |spec| {
        let nic = nic(spec);
        let verilated = Verilated::build(&[nic.circuit("tonic", None)]).map_err(|error| error.to_string())?;
        Ok(CircuitNic::new(nic, verilated.start("tonic", 1).map_err(|error| error.to_string())?))
    });
    let by_circuit = by_circuit.expect("the circuit runs");
    assert!(by_model.repeats[0].len() > 20, "there are losses: {:?}", by_model.repeats);
    assert_eq!(by_circuit.repeats, by_model.repeats);
    assert_eq!(by_circuit.trace_hash, by_model.trace_hash, "the same packets at the same times");
}
