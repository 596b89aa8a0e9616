//! `rnic sim`: reports, files, repeatable runs, and the arguments that it rejects.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::rnic;
use serde_json::Value;

/// A plan with two hosts, a link that loses one packet in a hundred, and a few hundred packets.
const PLAN: &str = r#"
name = "small"
mtu = 1024
[topology]
kind = "point-to-point"
[links]
rate = "100Gbps"
delay = "1us"
[transport]
name = "irn"
[workload]
kind = "closed-loop"
op = "write-imm"
message = "16KB"
depth = 4
count = 40
[[fault]]
kind = "drop"
probability = "1%"
"#;

/// Creates a folder that contains the plan.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let plan = folder.path().join("small.toml");
    fs::write(&plan, PLAN).expect("the plan is written");
    (folder, plan)
}

fn run(plan: &Path, more: &[&str]) -> common::CommandOutput {
    let mut arguments = vec!["sim", plan.to_str().expect("a plain path")];
    arguments.extend(more);
    rnic(&arguments)
}

#[test]
fn the_report_has_the_required_fields() {
    let (_folder, plan) = folder();
    let report = run(&plan, &["--seed", "7", "--json"]).json();
    for key in
        ["slowdown_avg", "fct_avg_us", "fct_p99_us", "packets_dropped", "pauses", "events", "packet_hops", "wall_s"]
    {
        assert!(report[key].is_number(), "{key}: {report}");
    }
    assert_eq!((&report["seed"], &report["flows"]), (&Value::from(7), &Value::from(1)));
    assert_eq!(report["trace_hash"].as_str().map(str::len), Some(16));
    assert!(report["packets_dropped"].as_u64() > Some(0), "{report}");
}

#[test]
fn the_same_plan_and_seed_give_the_same_run() {
    let (_folder, plan) = folder();
    let hash = |more: &[&str]| run(&plan, &[more, &["--json"]].concat()).json()["trace_hash"].clone();
    let first = hash(&["--seed", "3"]);
    assert_eq!(hash(&["--seed", "3"]), first);
    assert_ne!(hash(&["--seed", "4"]), first, "the seed has no effect");
    assert_ne!(hash(&["--seed", "3", "--set", "links.delay=2us"]), first, "the setting has no effect");
    assert_eq!(hash(&["--seed", "3", "--threads", "2"]), first, "the number of threads changes the run");
    assert_eq!(hash(&["--seed", "3", "--threads", "1000000"]), first, "the number of threads changes the run");
}

#[test]
fn the_default_output_is_a_summary() {
    let (_folder, plan) = folder();
    let output = run(&plan, &[]).ok();
    for shown in
        ["small: irn, seed 1 (simulated)", "slowdown", "flow completion time (FCT)", "trace hash", "checks", "passed"]
    {
        assert!(output.out.contains(shown), "{shown} is not shown: {output:#?}");
    }
}

/// Programs that read the summary need numbers that they can parse.
#[test]
fn the_title_names_the_policies_that_were_exchanged() {
    let (_folder, plan) = folder();
    let output = run(&plan, &["--set", "transport.control=aimd"]).ok();
    assert!(output.out.contains(": irn + aimd, seed 1"), "{}", output.out);
    let perf = rnic(&["perf", "--count", "10", "--transport", "roce-gbn", "--set", "control=dcqcn"]).ok();
    assert!(perf.out.starts_with("roce-gbn + dcqcn, "), "{}", perf.out);
}

#[test]
fn a_summary_that_is_piped_has_plain_digits() {
    let (_folder, plan) = folder();
    let output = run(&plan, &["--set", "workload.count=800"]).ok();
    assert!(!output.out.contains('\u{202f}'), "{output:#?}");
    let packets = output.out.lines().find(|line| line.trim_start().starts_with("packets ")).expect("a line");
    let sent = packets.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    assert!(sent.is_some_and(|sent| sent > 10_000), "{packets}");
}

#[test]
fn averages_without_flows_are_marked() {
    let (_folder, plan) = folder();
    let output = run(&plan, &["--set", "run.warmup=1s"]).ok();
    assert!(output.out.contains("before the end of the warm-up"), "{output:#?}");
}

#[test]
fn a_folder_gets_the_report_the_flows_and_a_page() {
    let (folder, plan) = folder();
    let out = folder.path().join("out/run");
    let output = run(&plan, &["--out", out.to_str().expect("a plain path"), "--json"]);
    assert!(output.err.contains("report.html"), "{output:#?}");
    let printed = output.json();
    let written: Value =
        serde_json::from_slice(&fs::read(out.join("report.json")).expect("report.json")).expect("JSON");
    assert_eq!(written["trace_hash"], printed["trace_hash"]);
    let parquet = fs::read(out.join("flows.parquet")).expect("flows.parquet");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let page = fs::read_to_string(out.join("report.html")).expect("report.html");
    assert!(page.contains("<svg") && page.contains("small") && page.contains("rnic sim"), "charts or command missing");
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("<script"), "external resources");
    let mut names: Vec<_> = fs::read_dir(&out).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["flows.parquet", "report.html", "report.json", "runs.json"], "unexpected files in the folder");
}

#[test]
fn a_capture_holds_packets() {
    let (folder, plan) = folder();
    let pcap = folder.path().join("run.pcap");
    run(&plan, &["--pcap", pcap.to_str().expect("a plain path")]).ok();
    assert!(fs::metadata(&pcap).expect("the capture").len() > 100_000, "the capture is too small");
}

/// The content of traces is tested where they are written.
#[test]
fn a_trace_is_written_and_a_full_disk_ends_it_with_one_line() {
    let (folder, plan) = folder();
    let hash = run(&plan, &["--json"]).json()["trace_hash"].clone();
    let path = folder.path().join("small.perfetto");
    let output = run(&plan, &["--trace", path.to_str().expect("a plain path"), "--json"]);
    assert_eq!(output.json()["trace_hash"], hash);
    let trace = fs::read(path).expect("it was written");
    assert!(trace.len() > 10_000 && trace[0] == 0x0a, "{} bytes", trace.len());
    let full = run(&plan, &["--trace", "/dev/full", "--json"]);
    let lines: Vec<_> = full.err.lines().filter(|line| line.starts_with("rnic: ")).collect();
    assert!(matches!(lines[..], [line] if line.starts_with("rnic: the trace ended before the run: ")), "{full:?}");
    assert_eq!(full.json()["trace_hash"], hash);
}

#[test]
fn a_log_of_signals_has_a_line_of_json_for_each() {
    let (folder, plan) = folder();
    let log = folder.path().join("signals.jsonl");
    let hash = run(&plan, &["--signals", log.to_str().expect("a plain path"), "--json"]).json()["trace_hash"].clone();
    assert_eq!(run(&plan, &["--json"]).json()["trace_hash"], hash);
    let text = fs::read_to_string(&log).expect("the log");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let count = |kind: &str| lines.iter().filter(|line| line["signal"] == kind).count();
    assert!(count("tx") > 100 && count("ack") > 10 && count("rx") > 0, "{} lines", lines.len());
    assert!(lines.iter().all(|line| line["host"].is_string() && line["queue_pair"].is_u64()), "{}", lines[0]);
    let refused = run(&plan, &["--signals", "/nowhere/at/all"]);
    refused.assert_refused(2, &["/nowhere/at/all", "No such file"]);
}

/// Only completed flows are counted, so a run that ends at its time limit says so beside the zeros.
#[test]
fn a_run_that_ends_at_its_limit_reports_that() {
    let (_folder, plan) = folder();
    let output = run(&plan, &["--set", "run.limit=10us"]).ok();
    assert!(
        output.out.contains("the run ended at its limit of 10.0 us (run.limit): 1 unfinished flows are not included"),
        "{output:#?}"
    );
    let later = r#"workload={ kind = "incast", senders = 1, bytes = "4KB", repeats = 2, interval = "5ms" }"#;
    let output = run(&plan, &["--set", later, "--set", "run.limit=1ms"]).ok();
    assert!(
        output.out.contains("(run.limit): flows that start later, the first at 5.00 ms, are not included"),
        "{output:#?}"
    );
    assert!(!run(&plan, &[]).ok().out.contains("cut off"));
}

#[test]
fn every_bad_plan_is_refused_with_one_line() {
    let (folder, plan) = folder();
    let cases: [(&[&str], &[&str]); 14] = [
        (&["--set", "links.rat=40Gbps"], &["links.rat", "unknown key", "did you mean `rate`?"]),
        (&["--set", "links.rate=40us"], &["links.rate", "40us", "Gbps"]),
        (&["--set", "links.delay=0us"], &["links.delay"]),
        (&["--set", "transport.name=quic"], &["quic", "roce-gbn, irn"]),
        (&["--set", "transport.rto_hihg=1ms"], &["rto_hihg", "did you mean `rto_high`?"]),
        (&["--set", "transport.name=roce-gnb"], &["roce-gnb", "did you mean `roce-gbn`?"]),
        (&["--set", "workload.kind=closed-lop"], &["closed-lop", "did you mean `closed-loop`?"]),
        (&["--set", "transport.rto_high=1KB"], &["rto_high", "1KB"]),
        (&["--set", "topology.kind=torus"], &["topology.kind", "torus", "fat-tree"]),
        (&["--set", "workload.kind=storm"], &["workload.kind", "storm", "poisson"]),
        (&["--set", "workload.load=70%"], &["workload.load"]),
        (&["--set", "links"], &["KEY=VALUE"]),
        (&["--seed", "many"], &["--seed", "many"]),
        (&["--pcap", "/nowhere/at/all.pcap"], &["/nowhere/at/all.pcap", "No such file"]),
    ];
    for (more, expected_texts) in cases {
        run(&plan, more).assert_refused(2, expected_texts);
    }
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    run(&write("syntax.toml", "[links\nrate = 1\n"), &[]).assert_refused(2, &["syntax.toml", "line 1"]);
    run(&write("empty.toml", ""), &[]).assert_refused(2, &["empty.toml", "topology"]);
    fs::write(folder.path().join("bytes.toml"), [0xff, 0xfe, 0]).expect("a file");
    run(&folder.path().join("bytes.toml"), &[]).assert_refused(2, &["bytes.toml", "UTF-8"]);
    run(&folder.path().join("gone.toml"), &[]).assert_refused(2, &["gone.toml", "No such file"]);
    run(folder.path(), &[]).assert_refused(2, &["directory"]);
    rnic(&["sim"]).assert_refused(2, &["<PLAN>"]);
    let file = write("a-file", "");
    run(&plan, &["--out", file.to_str().expect("a plain path")]).assert_refused(2, &["a-file"]);
}

#[test]
fn files_named_by_a_plan_are_relative_to_it() {
    let (folder, plan) = folder();
    fs::write(folder.path().join("flows.csv"), "0us,0,1,5000\n1us,1,0,7000\n").expect("a trace");
    let trace = ["--set", "workload={kind=\"trace\", file=\"flows.csv\"}"];
    assert_eq!(run(&plan, &[&trace[..], &["--json"]].concat()).json()["flows"], 2);
    let missing = ["--set", "workload={kind=\"trace\", file=\"gone.csv\"}"];
    run(&plan, &missing).assert_refused(2, &["gone.csv", "No such file"]);
    let traces = common::root().join("crates/rnic-fabric/tests/chakra");
    for rank in 0..2 {
        let name = format!("training.{rank}.et");
        fs::copy(traces.join(&name), folder.path().join(&name)).expect("a trace");
    }
    let trace = ["--set", "workload={kind=\"chakra\", file=\"training\"}"];
    // Two ranks of four: the second one sends to a rank that is not there.
    run(&plan, &trace).assert_refused(2, &["training", "rank 1", "there is no rank 2"]);
    run(&plan, &[&trace[..], &["--seeds", "2", "--out", "x"]].concat()).assert_refused(2, &["there is no rank 2"]);
}

/// A collective: its size and bandwidths are in the summary and on the page.
#[test]
fn a_collective_has_the_bandwidths_of_nccls_tests() {
    let (folder, plan) = folder();
    let collective = ["--set", "workload={kind=\"collective\", collective=\"all-reduce\", bytes=\"8MB\"}"];
    let summary = run(&plan, &collective).out;
    let line = summary.lines().find(|line| line.contains("algbw")).expect("the line");
    assert!(line.contains("8.00 MB a rank") && line.contains("busbw") && line.contains("GB/s"), "{line}");
    let out = folder.path().join("out");
    let report =
        run(&plan, &[&collective[..], &["--json", "--out", out.to_str().expect("a plain path")]].concat()).json();
    let figures = &report["collective"];
    // Of two ranks: 2 (n - 1) / n is one.
    assert_eq!(figures["algbw_gbytes_per_s"], figures["busbw_gbytes_per_s"], "{figures}");
    let expected = 8e6 / report["rct_us"]["avg"].as_f64().expect("a time") / 1e3;
    assert!((figures["algbw_gbytes_per_s"].as_f64().expect("a number") / expected - 1.0).abs() < 1e-9, "{figures}");
    assert!(fs::read_to_string(out.join("report.html")).expect("the page").contains("busbw"));
}

#[test]
fn a_run_that_fails_a_check_prints_the_command_to_repeat_it() {
    let (_folder, plan) = folder();
    // Every packet is lost, so the run stalls.
    let output = run(&plan, &["--seed", "5", "--set", "fault=[{kind=\"drop\", probability=\"100%\"}]"]);
    assert_eq!(output.status.code(), Some(1), "{output:#?}");
    let last = output.err.lines().last().expect("a line");
    assert!(last.contains("check failed") && last.contains("rnic sim") && last.contains("--seed 5"), "{output:#?}");
    assert!(last.contains("--set"), "{output:#?}");
}

#[test]
fn the_plans_of_the_repository_are_valid() {
    for entry in fs::read_dir(common::root().join("plans")).expect("the folder of plans").flatten() {
        let plan = entry.path();
        if plan.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        // With a limit of one microsecond the plan is read and built, and the run ends immediately.
        let output = run(&plan, &["--set", "run.limit=1us", "--json"]);
        assert!(serde_json::from_str::<Value>(&output.out).is_ok(), "{output:#?}");
    }
}

#[test]
fn an_unterminated_list_is_an_error() {
    let broken = "fault=[{kind=\"drop\", probability=\"1%\"";
    rnic(&["sim", "plans/point-to-point-loss.toml", "--set", broken]).assert_refused(2, &["fault", "probability"]);
}
