//! `rnic demo`, end to end with a small file.

mod common;

use std::fs;

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
    let options = ["--link-rate", "200Mbps", "--duration", "300ms", "--json"];
    let output =
        rnic(&[&["demo", "noisy-neighbour", "--out", out.to_str().expect("a plain path")], &options[..]].concat());
    for shown in ["scheduler", "alone", "greedy", "round-robin", "noisy-neighbour.html"] {
        assert!(output.err.contains(shown), "{shown} is not shown: {output:#?}");
    }
    let neighbours = output.json();
    assert!(neighbours["alone"]["p50_us"].as_f64() > Some(0.0), "{neighbours}");
    for case in neighbours["cases"].as_array().expect("schedulers") {
        // Payload and headers are less than the link carries; NICs make up for 20 ms.
        let bulk = case["bulk_gbps"].as_f64().expect("a number");
        assert!(bulk > 0.0 && bulk < 0.21, "{case}");
        assert!(case["small"]["messages_per_s"].as_f64() > Some(0.0), "the small messages starved: {case}");
    }
    assert!(fs::read_to_string(out.join("noisy-neighbour.html")).expect("the chart").contains("<svg"));
}
