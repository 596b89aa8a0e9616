//! `rnic rtl trace`: waves of the circuit in a simulated network, and refused plans.

mod common;

use std::fs;

use common::{rnic, root};
use rnic_rtl::tools::are_installed;

fn plan(changes: &[(&str, &str)]) -> String {
    let mut text = fs::read_to_string(root().join("rtl/plans/new-reno.toml")).expect("the plan");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

#[test]
fn a_plan_becomes_waves_and_the_network_sees_the_packets_of_the_model() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (file, out) = (folder.path().join("plan.toml"), folder.path().join("waves.fst"));
    let changes = [("duration = \"2ms\"", "duration = \"500us\""), ("0.5%", "2%")];
    fs::write(&file, plan(&changes)).expect("a plan");
    let arguments = ["rtl", "trace", "--json", "--plan", file.to_str().expect("UTF-8"), "--out"];
    let result = rnic(&[&arguments[..], &[out.to_str().expect("UTF-8")]].concat()).ok().json();
    assert_eq!(result["cycles"], 5_000);
    let retransmissions = result["retransmissions"].as_array().expect("one a flow");
    assert!(retransmissions.iter().any(|count| count.as_u64() > Some(0)), "{result}");
    let waves = fs::read(&out).expect("the waves");
    assert!(waves.len() > 10_000, "{} bytes", waves.len());
    // The header block of FST: type 0, length 329.
    assert_eq!(waves[..9], [0, 0, 0, 0, 0, 0, 0, 1, 0x49]);
}

#[test]
fn plans_that_no_circuit_can_run_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("plan.toml");
    let refused = |text: &str, program: &str, parts: &[&str]| {
        fs::write(&file, text).expect("a plan");
        let (plan, out) = (file.to_str().expect("UTF-8"), folder.path().join("waves.fst"));
        let out = out.to_str().expect("UTF-8");
        rnic(&["rtl", "trace", "--plan", plan, "--program", program, "--out", out]).assert_refused(2, parts);
    };
    refused(&plan(&[("2ms", "10s")]), "new-reno", &["plan.toml", "100000000 cycles", "network.duration"]);
    refused(&plan(&[("senders = 1", "senders = 100")]), "new-reno", &["plan.toml", "senders"]);
    refused(&plan(&[("flows = 2\n", "flows = 2\nflow = 2\n")]), "new-reno", &["plan.toml", "flow"]);
    refused(&plan(&[]), "cubic", &["plan.toml", "cubic"]);
    refused(&plan(&[]), "ndp", &["plan.toml", "parameter"]);
    rnic(&["rtl", "trace", "--plan", "/nonexistent.toml", "--out", "x"]).assert_refused(2, &["/nonexistent.toml"]);
}
