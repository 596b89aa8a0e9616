//! `rnic reproduce`: verdicts, exit codes, files, and runs that are carried elsewhere.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::{Said, command, finish, rnic};

/// Two hosts, two variants, one row that holds.
const EXPERIMENT: &str = r#"
question = "Does a lossy link cost go-back-N more than IRN?"
figure = "a test"
caption = "Goodput at 1 % loss."
seeds = [1, 2, 3]

[base]
mtu = 1024
topology = { kind = "point-to-point" }
links = { rate = "100Gbps", delay = "10us" }
transport = { name = "irn", cap_packets = 512, rto_high = "200us" }
workload = { kind = "closed-loop", op = "write", message = "16KB", depth = 64, count = 400 }
fault = [{ kind = "drop", packets = "data", probability = "1%" }]

[[variant]]
name = "irn"
label = "IRN"

[[variant]]
name = "gbn"
label = "go-back-N"
set = { transport = { name = "roce-gbn", rto = "200us" } }

[[measure]]
name = "goodput"
label = "goodput"
field = "goodput_gbps"
unit = "Gbit/s"

[[check]]
row = "T-1"
what = "goodput of IRN by go-back-N's"
paper = "more"
value = { kind = "ratio", measures = ["goodput"], of = "irn", to = "gbn" }
band = { min = 1 }
why = "The order alone."

[[plot]]
title = "Goodput"
kind = "bars"
measures = ["goodput"]
"#;

/// A folder with the experiment, with one piece of it replaced.
fn folder(from: &str, to: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let place = folder.path().join("experiments/test/small");
    fs::create_dir_all(&place).expect("folders are made");
    fs::write(place.join("experiment.toml"), EXPERIMENT.replace(from, to)).expect("it is written");
    folder
}

fn reproduce(folder: &Path, words: &[&str]) -> Said {
    let child = command(&[&["reproduce"], words].concat()).current_dir(folder).spawn();
    finish(child.expect("the command starts"))
}

#[test]
fn a_row_inside_its_band_is_a_success_and_leaves_a_report() {
    let folder = folder("", "");
    let said = reproduce(folder.path(), &["T-1", "--json"]).ok();
    let json = said.json();
    assert_eq!((&json["rows"][0]["row"], &json["rows"][0]["verdict"]), (&"T-1".into(), &"inside".into()), "{json}");
    assert_eq!(json["rows"][0]["value"]["count"], 3);
    let out = folder.path().join("out/reproduce");
    for name in ["report.html", "report.json", "verdicts.md", "runs.csv", "runs.parquet"] {
        assert!(fs::metadata(out.join(name)).is_ok_and(|file| file.len() > 0), "{name}");
    }
    let again = reproduce(folder.path(), &["T-1"]).ok();
    assert!(again.err.contains("6 runs are there from earlier, 0 are left"), "{again:#?}");
    let fresh = reproduce(folder.path(), &["T-1", "--fresh"]).ok();
    assert!(!fresh.err.contains("from earlier"), "{fresh:#?}");
}

#[test]
fn a_row_outside_its_band_ends_with_1_and_says_so() {
    let folder = folder("band = { min = 1 }", "band = { max = 0.5 }");
    let said = reproduce(folder.path(), &["test/small"]);
    assert_eq!(said.status.code(), Some(1), "{said:#?}");
    assert!(said.out.contains("OUTSIDE") && said.err.contains("check failed: 1 of 1 rows: T-1 of test/small"));
    let page = fs::read_to_string(folder.path().join("out/reproduce/report.html")).expect("the report");
    assert!(page.contains("OUTSIDE"), "the report does not hide it");
    let table = fs::read_to_string(folder.path().join("out/reproduce/verdicts.md")).expect("the table");
    assert!(table.contains("| T-1 | test/small |") && table.contains("**OUTSIDE** |"), "{table}");
}

#[test]
fn a_folder_without_experiments_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("plain");
    rnic(&["reproduce", "--list", "--experiments", place]).refused(2, &[place, "no experiments"]);
}

/// Of the adaptive engine, for a moment.
const MEASURED: &str = r#"
question = "How fast?"
figure = "a test"
caption = "Events."
trial = "fae"
seeds = [1, 2, 3]
base = { subject = "table", connections = 10, state = 64, rounds = 1, batches = 2 }
variant = [{ name = "table", label = "table" }]
measure = [{ name = "rate", label = "rate", field = "million_events_per_s", unit = "M/s" }]
[[check]]
row = "T-2"
what = "rate"
paper = "nothing"
value = { kind = "measure", measures = ["rate"], of = "table" }
band = { min = 0 }
why = "It is a rate."
"#;

#[test]
fn what_is_measured_says_where_and_does_not_travel() {
    let folder = folder("", "");
    let place = folder.path().join("experiments/test/rate");
    fs::create_dir_all(&place).expect("folders are made");
    fs::write(place.join("experiment.toml"), MEASURED).expect("it is written");
    let said = reproduce(folder.path(), &["T-2"]).ok();
    assert!(said.out.contains(" (measured)") && said.out.contains("; measured on "), "{said:#?}");
    assert!(said.out.contains("(opt-level ") && said.out.contains(" before the runs, 3 runs"), "{said:#?}");
    assert!(!said.out.contains("simulated"), "{said:#?}");
    let written = reproduce(folder.path(), &["all", "--fresh", "--write-runs", "runs.jsonl"]).ok();
    assert!(written.err.contains("wrote 6 runs to runs.jsonl; 3 runs are measured and stay here"), "{written:#?}");
    let runs = fs::read_to_string(folder.path().join("runs.jsonl")).expect("the runs");
    assert_eq!(runs.lines().count(), 6, "those of the simulation");
}

#[test]
fn bad_input_ends_with_2_and_one_line() {
    let folder = folder("of = \"irn\"", "of = \"tcp\"");
    for (words, expected) in [
        (&["all"][..], "experiments/test/small/experiment.toml: check[0].value.of: there is no variant `tcp`"),
        (&["all", "--experiments", "nowhere"], "nowhere"),
    ] {
        let said = reproduce(folder.path(), words);
        assert_eq!((said.status.code(), said.err.lines().count()), (Some(2), 1), "{said:#?}");
        assert!(said.err.contains(expected), "{said:#?}");
    }
    let said = rnic(&["reproduce", "irn/no-such-figure"]);
    assert_eq!(said.status.code(), Some(2), "{said:#?}");
}

/// Away and back, by a worker's hands, gives what running here gives.
#[test]
fn runs_can_be_done_elsewhere() {
    let folder = folder("", "");
    reproduce(folder.path(), &["all", "--write-runs", "runs.jsonl"]).ok();
    let runs = fs::File::open(folder.path().join("runs.jsonl")).expect("the runs");
    let results = fs::File::create(folder.path().join("results.jsonl")).expect("a file");
    let mut worker = command(&["reproduce", "--run-lines"]);
    let status = worker.stdin(runs).stdout(results).status().expect("the worker starts");
    assert!(status.success());
    let brought = reproduce(folder.path(), &["all", "--read-results", "results.jsonl", "--json"]).ok();
    assert!(brought.err.contains("6 runs are there from earlier, 0 are left"), "{brought:#?}");
    let here = reproduce(folder.path(), &["all", "--fresh", "--json"]).ok();
    assert_eq!(brought.json()["rows"], here.json()["rows"]);
    let text = fs::read_to_string(folder.path().join("results.jsonl")).expect("the results");
    let foreign = text.replacen("\"sources\":\"", "\"sources\":\"0", 1);
    fs::write(folder.path().join("foreign.jsonl"), foreign).expect("it is written");
    let said = reproduce(folder.path(), &["all", "--read-results", "foreign.jsonl"]);
    assert_eq!(said.status.code(), Some(2), "{said:#?}");
    assert!(said.err.contains("foreign.jsonl: line 1") && said.err.contains("other sources"), "{said:#?}");
}

#[test]
fn the_list_names_experiments_and_rows() {
    let said = rnic(&["reproduce", "--list"]).ok();
    assert!(said.out.contains("irn/fig1") && said.out.contains("I-R2"), "{said:#?}");
    let list = rnic(&["reproduce", "--list", "--json"]).ok().json();
    for experiment in list["experiments"].as_array().expect("a list") {
        let rows: Vec<&str> =
            experiment["rows"].as_array().expect("rows").iter().filter_map(|row| row.as_str()).collect();
        let different: BTreeSet<&str> = rows.iter().copied().collect();
        assert_eq!(rows.len(), different.len(), "each row once: {experiment}");
    }
    assert!(rnic(&["reproduce", "--quantities"]).ok().out.contains("stall-goodput"));
}

#[test]
fn a_folder_of_experiments_that_is_not_here_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let elsewhere = command(&["reproduce", "falcon/fig19"]).current_dir(folder.path()).spawn().expect("it starts");
    finish(elsewhere).refused(2, &["experiments: no such folder", "--experiments DIR"]);
}
