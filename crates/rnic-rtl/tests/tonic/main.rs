//! Tonic's circuit and its model, cycle by cycle: every output in every cycle, and the state of a flow after each.

mod bench;
mod credit;
mod memories;
mod mutants;
#[path = "../../../rnic-tonic/tests/mechanisms/network.rs"]
#[allow(dead_code, reason = "the tests of the model use all of it")]
mod network;
mod nic;
mod receiver;
mod wheel;
mod wild;
mod wire;
