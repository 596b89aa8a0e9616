//! `rnic demo`, end to end with a small file.

mod common;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::rnic;

/// Writes a file of two megabytes whose content does not repeat.
fn file(folder: &tempfile::TempDir) -> String {
    let bytes: Vec<u8> = (0u32..500_000).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let path = folder.path().join("a file");
    fs::write(&path, bytes).expect("a file");
    path.to_str().expect("a plain path").to_owned()
}

#[test]
fn a_file_arrives_six_times_and_a_chart_is_written() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (file, out) = (file(&folder), folder.path().join("out"));
    let output = rnic(&["demo", "--file", &file, "--out", out.to_str().expect("a plain path"), "--json"]);
    for shown in ["a file", "roce-gbn", "Gbit/s", "retransmitted", "p50 / p99", "yes", "demo.html"] {
        assert!(output.err.contains(shown), "{shown} is not shown: {output:#?}");
    }
    let comparison = output.json();
    assert_eq!((&comparison["bytes"], &comparison["loss"]), (&2_000_000.into(), &0.01.into()));
    let runs = comparison["runs"].as_array().expect("runs");
    let names: Vec<_> = runs.iter().map(|run| (run["transport"].as_str(), run["wire"].as_str())).collect();
    let pairs = ["udp", "sim"].map(|wire| ["roce-gbn", "irn", "falcon"].map(|transport| (Some(transport), Some(wire))));
    assert_eq!(names, pairs.concat());
    for run in runs {
        assert_eq!(run["verified"], true, "{run}");
        assert!(run["packets_sent"].as_u64() >= Some(489) && run["goodput_gbps"].as_f64() > Some(0.0), "{run}");
        assert!(run["latency_us"]["p50"].as_f64() <= run["latency_us"]["p99"].as_f64(), "{run}");
        let last = run["delivered"].as_array().and_then(|points| points.last()).expect("the run has points");
        assert_eq!(last[1], 2_000_000, "the last point lacks the last byte: {run}");
    }
    for run in &runs[..3] {
        let all = run["goodputs_gbps"].as_array().expect("the run lists the goodput of every transfer");
        assert!(all.len() > 1 && all.contains(&run["goodput_gbps"]), "{run}");
    }
    let again = |index: usize| runs[index]["packets_retransmitted"].as_u64().expect("a number");
    assert!(again(3) > again(4), "go-back-N retransmits no more than IRN: {} and {}", again(3), again(4));
    assert!(again(3) > again(5), "go-back-N retransmits no more than Falcon: {} and {}", again(3), again(5));
    let page = fs::read_to_string(out.join("demo.html")).expect("the chart");
    assert!(page.contains("<svg") && page.contains("a file") && page.contains("Simulated"));
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("<script"), "external resources");
    assert!(fs::read_to_string(out.join("demo.json")).expect("the figures").contains("\"goodput_gbps\""));
}

#[test]
fn without_loss_nothing_is_retransmitted_on_the_simulated_link() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (file, out) = (file(&folder), folder.path().join("out"));
    let out = out.to_str().expect("a plain path");
    let comparison = rnic(&["demo", "--file", &file, "--out", out, "--loss", "0", "--reorder", "0", "--json"]).json();
    for run in comparison["runs"].as_array().expect("runs").iter().filter(|run| run["wire"] == "sim") {
        assert_eq!((&run["packets_retransmitted"], &run["verified"]), (&0.into(), &true.into()), "{run}");
    }
}

#[test]
fn unsuitable_files_and_folders_are_refused() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    fs::write(path("empty"), "").expect("a file");
    let large = fs::File::create(path("large")).expect("a file");
    large.set_len(3 << 30).expect("a sparse file can be created");
    let out = path("out");
    for (file, error) in [("gone", "No such file"), ("empty", "empty"), ("large", "at most 1 GiB"), (".", "regular")] {
        let file = path(file);
        rnic(&["demo", "--file", &file, "--out", &out]).assert_refused(2, &[&file, error]);
    }
    let (empty, file) = (path("empty"), file(&folder));
    rnic(&["demo", "--file", &file, "--out", &empty]).assert_refused(2, &[&empty]);
    rnic(&["demo", "--loss", "lots"]).assert_refused(2, &["--loss", "lots"]);
}

#[test]
fn two_tenants_share_a_link_under_every_scheduler() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().join("out");
    let options = ["--link-rate", "200Mbps", "--duration", "200ms", "--json"];
    let all = [&["demo", "noisy-neighbour", "--out", out.to_str().expect("a plain path")], &options[..]].concat();
    // Settings of the user's programs, with which none would start.
    let mut command = common::command(&all);
    command.env("RNIC_SEGMENTATION", "perhaps").env("RNIC_WEIGHT", "0");
    let output = common::finish(command.spawn().expect("the command starts"));
    for shown in ["scheduler", "alone", "greedy", "round-robin", "water-filling", "noisy-neighbour.html"] {
        assert!(output.err.contains(shown), "{shown} is not shown: {output:#?}");
    }
    let neighbours = output.json();
    assert!(neighbours["alone"]["p50_us"].as_f64() > Some(0.0), "{neighbours}");
    assert_eq!(neighbours["command"], "rnic demo noisy-neighbour --link-rate 200Mbps --duration 200ms");
    let cases = neighbours["cases"].as_array().expect("schedulers");
    assert_eq!(cases.len(), 3);
    for case in cases {
        // Payload and headers are less than the link carries; NICs make up for 20 ms.
        let bulk = case["bulk_gbps"].as_f64().expect("a number");
        assert!(bulk > 0.0 && bulk < 0.21, "{case}");
        assert!(case["small"]["messages_per_s"].as_f64() > Some(0.0), "the small messages starved: {case}");
        let rounds: Vec<f64> = serde_json::from_value(case["rounds_p50_us"].clone()).expect("numbers");
        assert!(rounds.len() == 3 && rounds.contains(&case["small"]["p50_us"].as_f64().expect("a number")), "{case}");
    }
    assert!(fs::read_to_string(out.join("noisy-neighbour.html")).expect("the chart").contains("<svg"));
    // The queue is 4 ms long, and rates keep it short. Both processors may be busy with other tests.
    let p50_us = |index: usize| cases[index]["small"]["p50_us"].as_f64().expect("a number");
    assert!(p50_us(2) <= p50_us(0) / 2.0, "water-filling does not help: {neighbours}");
}

/// Returns the processes that `pid` has started, and those that they have started.
fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .expect("it is mounted")
        .filter_map(|entry| {
            let child: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
            Some((child, parent))
        })
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(of) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(child, _)| *child));
        next += 1;
    }
    found.split_off(1)
}

/// The tenants of the demonstration share a separate link, which the user's programs do not use, and end with it.
#[test]
fn the_tenants_of_a_killed_demonstration_end() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().join("out");
    let all = ["demo", "noisy-neighbour", "--duration", "100s", "--out", out.to_str().expect("a plain path")];
    let mut demo = common::command(&all).spawn().expect("the command starts");
    let link = format!("-demo-{}", demo.id());
    let wait = |what: &str, is_done: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < common::COMMAND_TIMEOUT, "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    };
    let id = demo.id();
    let is_sharing = || {
        let sockets = fs::read("/proc/net/unix").expect("it is mounted");
        descendants(id).len() >= 2 && String::from_utf8_lossy(&sockets).contains(&link)
    };
    wait("the tenant shares no link of the demonstration", &is_sharing);
    let tenants = descendants(id);
    demo.kill().expect("it runs");
    demo.wait().expect("it was a child");
    let runs = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        name.starts_with("Name:\trnic\n") && !name.contains("State:\tZ")
    };
    wait("a tenant survives the demonstration", &|| !tenants.iter().any(runs));
}
