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

/// Options that make the built-in plan `point-to-point-loss` short.
const SHORT: [&str; 4] = ["--set", "workload.count=40", "--set", "workload.message=16KiB"];

/// Returns the result of a trace of the built-in plan with loss, and the waves.
fn traced(transport: &str, out: &std::path::Path) -> (serde_json::Value, Vec<u8>) {
    let transport = format!("transport={transport}");
    let out = out.to_str().expect("UTF-8");
    let fixed = ["rtl", "trace", "--json", "--plan", "point-to-point-loss", "--out", out, "--set", &transport];
    let result = rnic(&[&fixed[..], &SHORT].concat()).ok().json();
    (result, fs::read(out).expect("the waves"))
}

#[test]
fn i22_a_plans_packets_are_shown_in_irns_modules_which_answer_as_the_engines() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().join("irn.fst");
    let (result, waves) = traced("{ name = \"irn\", cap_packets = 64 }", &out);
    assert_eq!((&result["circuit"], &result["transport"]), (&"irn_connection".into(), &"irn".into()));
    let kinds = &result["kinds"];
    let count = |kind: &str| kinds[kind].as_u64().expect("a number");
    // 160 packets of 4 KiB, and those that were lost once more.
    assert!(count("packets sent") > 160 && count("packets received") == 160, "{result}");
    assert!(count("acknowledgements") == 160, "{result}");
    let [events, cycles, compared] =
        ["events", "cycles", "compared"].map(|key| result[key].as_u64().expect("a number"));
    assert!(events > 480 && cycles > events && compared > 4 * events, "{result}");
    assert!(waves.len() > 2_000 && waves[..9] == [0, 0, 0, 0, 0, 0, 0, 1, 0x49], "{} bytes", waves.len());
    // A timer that is never extended, as in the plan itself.
    let (result, _) = traced("{ name = \"irn\", cap_packets = 64, rto_low = \"8us\", rto_high = \"8us\" }", &out);
    assert!(result["kinds"]["timeouts"].as_u64() > Some(0), "{result}");
    let save = fs::read_to_string(out.with_extension("gtkw")).expect("the save file");
    assert!(save.contains("irn.fst\"") && save.contains("TOP.psn_o[23:0]"), "{save}");
}

#[test]
fn r17_a_plans_packets_are_shown_in_fasrs_modules_which_answer_as_the_engines() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().join("fasr.fst");
    let (result, waves) = traced("{ name = \"fasr\", cap_packets = 64 }", &out);
    assert_eq!((&result["circuit"], &result["transport"]), (&"fasr_connection".into(), &"fasr".into()));
    let count = |kind: &str| result["kinds"][kind].as_u64().expect("a number");
    // 160 packets of 4 KiB, each acknowledged, and those that were lost once more.
    assert!(count("packets sent") > 160 && count("packets received") >= 160, "{result}");
    assert!(count("acknowledgements") >= 160, "{result}");
    assert!(waves.len() > 2_000 && waves[..9] == [0, 0, 0, 0, 0, 0, 0, 1, 0x49], "{} bytes", waves.len());
}

#[test]
fn t28_a_plans_packets_are_shown_in_a_programs_circuit_which_decides_as_the_engine() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().join("new-reno.fst");
    let (result, waves) = traced("{ name = \"tonic-new-reno\", rto_min = \"100us\" }", &out);
    assert_eq!((&result["circuit"], &result["transport"]), (&"new_reno_flow".into(), &"tonic-new-reno".into()));
    let kinds = &result["kinds"];
    assert!(kinds["packets sent"].as_u64() > Some(160) && kinds["calls for packets"].as_u64() > Some(100), "{result}");
    assert!(waves.len() > 2_000, "{} bytes", waves.len());
}

#[test]
fn flows_that_no_circuit_shows_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().join("waves.fst");
    let out = out.to_str().expect("UTF-8");
    let command = |more: &[&str]| {
        let fixed = ["rtl", "trace", "--plan", "point-to-point-loss", "--out", out];
        common::command(&[&fixed[..], &SHORT, more].concat())
    };
    let refused = |more: &[&str], parts: &[&str]| {
        common::finish(command(more).spawn().expect("the command starts")).assert_refused(2, parts);
    };
    refused(&["--set", "transport={name=\"roce-gbn\"}"], &["roce-gbn", "fasr, irn, tonic-reno, tonic-new-reno"]);
    refused(&["--set", "transport={name=\"irn\", sack_bitmap=false}"], &["sack_bitmap"]);
    refused(&["--set", "transport={name=\"fasr\", pool_blocks=8}"], &["fasr", "pool_blocks"]);
    refused(&["--set", "workload.op=read"], &["Writes and Sends"]);
    refused(&["--flow", "1"], &["no flow 1", "the plan has 1"]);
    refused(&["--program", "reno"], &["--set 'transport={name=\"tonic-reno\"}'"]);
    let without = command(&[]).env("PATH", folder.path()).spawn().expect("the command starts");
    common::finish(without).assert_refused(2, &["verilator", "apt-get install verilator"]);
}
