//! Circuits as the NICs of simulated hosts: the network sees the same packets at the same times as from the model.

use rnic_reproduce::trial::tonic::NicSpec;
use rnic_reproduce::trial::tonic::new_reno::Arguments;
use rnic_rtl::tonic::endpoint::CircuitNic;
use rnic_rtl::tonic::nic::Nic;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;

/// One flow over a link of 10 Gbit/s, with losses by position: T-R10 in small.
const NETWORK: &str = r#"
loss = "0.5%"
rto_min = "1ms"
first_window = 10
[network]
senders = 1
flows = 2
rate = "10Gbps"
delay = "2500ns"
buffer = "5500KB"
jitter = "0ns"
segment = 1000
duration = "20ms"
sample = "10us"
skip = 10
cycle = "100ns"
template = 16
queue = 16
trace = "1ms"
every_cycle = true
"#;

fn nic(spec: &NicSpec) -> Nic {
    let NicSpec { program, parameters, link_rate, sizes, .. } = spec;
    Nic::new(program.description(), parameters.clone(), *link_rate, sizes.window, sizes.flows)
}

#[test]
fn t29_a_host_with_the_circuit_sends_the_packets_of_one_with_the_model() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let arguments: Arguments = toml::from_str(NETWORK).expect("the arguments are valid");
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
