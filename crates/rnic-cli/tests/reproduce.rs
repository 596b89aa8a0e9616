//! `rnic reproduce`: verdicts, exit codes, files, and runs that are executed on another machine.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::{CommandOutput, command, finish, rnic};

/// An experiment with two hosts, two variants and one row whose claim holds.
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

/// Creates a folder with the experiment, in which `from` is replaced with `to`.
fn folder(from: &str, to: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let experiment = folder.path().join("experiments/test/small");
    fs::create_dir_all(&experiment).expect("folders are made");
    fs::write(experiment.join("experiment.toml"), EXPERIMENT.replace(from, to)).expect("it is written");
    folder
}

fn reproduce(folder: &Path, arguments: &[&str]) -> CommandOutput {
    let child = command(&[&["reproduce"], arguments].concat()).current_dir(folder).spawn();
    finish(child.expect("the command starts"))
}

#[test]
fn a_row_inside_its_band_is_a_success_and_leaves_a_report() {
    let folder = folder("", "");
    let output = reproduce(folder.path(), &["T-1", "--json"]).ok();
    let json = output.json();
    assert_eq!((&json["rows"][0]["row"], &json["rows"][0]["verdict"]), (&"T-1".into(), &"inside".into()), "{json}");
    assert_eq!(json["rows"][0]["value"]["count"], 3);
    let out = folder.path().join("out/reproduce");
    for name in ["report.html", "report.json", "verdicts.md", "runs.csv", "runs.parquet"] {
        assert!(fs::metadata(out.join(name)).is_ok_and(|file| file.len() > 0), "{name}");
    }
    let again = reproduce(folder.path(), &["T-1"]).ok();
    assert!(again.err.contains("6 runs are available from earlier commands, 0 remain"), "{again:#?}");
    let repeated = reproduce(folder.path(), &["T-1", "--fresh"]).ok();
    assert!(!repeated.err.contains("from earlier"), "{repeated:#?}");
}

#[test]
fn a_row_that_is_known_to_lie_outside_is_shown_as_outside_and_is_no_failure() {
    let folder = folder("band = { min = 1 }", "known = \"notes.md: T-1\"\nband = { max = 0.5 }");
    let output = reproduce(folder.path(), &["test/small"]).ok();
    for part in ["OUTSIDE", "T-1: outside (known, see notes.md: T-1); the paper: more", "1 outside (1 of them known)"] {
        assert!(output.out.contains(part), "{part}: {output:#?}");
    }
    let page = fs::read_to_string(folder.path().join("out/reproduce/report.html")).expect("the report");
    assert!(page.contains("OUTSIDE") && page.contains("known, see notes.md: T-1"), "the report hides it");
}

#[test]
fn a_row_that_is_known_to_lie_outside_in_the_small_version_fails_at_full_size() {
    let folder = folder("band = { min = 1 }", "fast = { known = \"notes.md: T-1\" }\nband = { max = 0.5 }");
    let small = reproduce(folder.path(), &["test/small", "--fast"]).ok();
    assert!(small.out.contains("OUTSIDE") && small.out.contains("known, see notes.md: T-1"), "{small:#?}");
    assert_eq!(reproduce(folder.path(), &["test/small"]).status.code(), Some(1));
}

/// The report names a command that finds the same experiments from another folder, too.
#[test]
fn the_command_in_the_report_names_the_folder_of_experiments() {
    let folder = folder("", "");
    let experiments = folder.path().join("experiments");
    let elsewhere = tempfile::tempdir().expect("a folder for the test");
    let given = experiments.to_str().expect("UTF-8");
    reproduce(elsewhere.path(), &["T-1", "--fast", "--experiments", given]).ok();
    let table = fs::read_to_string(elsewhere.path().join("out/reproduce/verdicts.md")).expect("the table");
    assert!(table.contains(&format!("`rnic reproduce T-1 --fast --experiments {given}`")), "{table}");
}

#[test]
fn a_row_outside_its_band_ends_with_1_and_says_so() {
    let folder = folder("band = { min = 1 }", "band = { max = 0.5 }");
    let output = reproduce(folder.path(), &["test/small"]);
    assert_eq!(output.status.code(), Some(1), "{output:#?}");
    let failed = "check failed: 1 of 1 rows are outside their band without a known reason, or cannot be judged: T-1 of \
                  test/small";
    assert!(output.out.contains("OUTSIDE") && output.err.contains(failed), "{output:#?}");
    let page = fs::read_to_string(folder.path().join("out/reproduce/report.html")).expect("the report");
    assert!(page.contains("OUTSIDE"), "the report does not show OUTSIDE");
    let table = fs::read_to_string(folder.path().join("out/reproduce/verdicts.md")).expect("the table");
    assert!(table.contains("| T-1 | test/small |") && table.contains("**OUTSIDE** |"), "{table}");
    assert!(table.contains("\n## Claim by claim\n") && table.contains("| 0 of 1 | test/small |"), "{table}");
    assert!(table.contains("\n## test\n") && table.contains("\nSources "), "{table}");
}

#[test]
fn sensitivity_judges_a_row_with_other_values_of_open_parameters() {
    let open = "[[open]]\nname = \"loss\"\nlabel = \"loss\"\nkey = \"fault\"\nvalues = [[]]\nwhy = \"None.\"\n[[plot]]";
    let folder = folder("[[plot]]", open);
    let output = reproduce(folder.path(), &["T-1", "--sensitivity"]).ok();
    for part in ["T-1 of test/small", "open parameter", "loss", "inside its band in 1 of 2 settings"] {
        assert!(output.out.contains(part), "{part}: {output:#?}");
    }
    let json = reproduce(folder.path(), &["T-1", "--sensitivity=morris", "--json"]).ok().json();
    assert_eq!(json["studies"][0]["findings"][0]["effects"][0]["changes"], 10, "{json}");
    let out = folder.path().join("out/reproduce");
    for name in ["sensitivity.html", "sensitivity.json", "sensitivity.md"] {
        assert!(fs::metadata(out.join(name)).is_ok_and(|file| file.len() > 0), "{name}");
    }
    let plain = self::folder("", "");
    let refused = reproduce(plain.path(), &["T-1", "--sensitivity"]);
    refused.assert_refused(2, &["test/small: no open parameters", "[[open]]"]);
}

#[test]
fn a_folder_without_experiments_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("plain");
    rnic(&["reproduce", "--list", "--experiments", path]).assert_refused(2, &[path, "no experiments"]);
}

/// A short experiment that is measured with the adaptive engine.
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
fn measured_runs_name_their_machine_and_are_not_exported() {
    let folder = folder("", "");
    let experiment = folder.path().join("experiments/test/rate");
    fs::create_dir_all(&experiment).expect("folders are made");
    fs::write(experiment.join("experiment.toml"), MEASURED).expect("it is written");
    let output = reproduce(folder.path(), &["T-2"]).ok();
    assert!(output.out.contains(" (measured)") && output.out.contains("; measured on "), "{output:#?}");
    assert!(output.out.contains("(opt-level ") && output.out.contains(" before the runs, 3 runs"), "{output:#?}");
    assert!(!output.out.contains("simulated"), "{output:#?}");
    let written = reproduce(folder.path(), &["all", "--fresh", "--write-runs", "runs.jsonl"]).ok();
    assert!(written.err.contains("wrote 6 runs to runs.jsonl; 3 more runs measure this machine"), "{written:#?}");
    let runs = fs::read_to_string(folder.path().join("runs.jsonl")).expect("the runs");
    assert_eq!(runs.lines().count(), 6, "not exactly the simulated runs are exported");
}

#[test]
fn bad_input_ends_with_2_and_one_line() {
    let folder = folder("of = \"irn\"", "of = \"tcp\"");
    for (arguments, expected) in [
        (&["all"][..], "experiments/test/small/experiment.toml: check[0].value.of: there is no variant `tcp`"),
        (&["all", "--experiments", "nowhere"], "nowhere"),
    ] {
        let output = reproduce(folder.path(), arguments);
        assert_eq!((output.status.code(), output.err.lines().count()), (Some(2), 1), "{output:#?}");
        assert!(output.err.contains(expected), "{output:#?}");
    }
    rnic(&["reproduce", "irn/fgi1"]).assert_refused(2, &["irn/fgi1", "did you mean `irn/fig1`?"]);
    let output = rnic(&["reproduce", "irn/no-such-figure"]);
    assert_eq!(output.status.code(), Some(2), "{output:#?}");
}

/// Checks that runs that are written to a file, executed by a worker and read back give the same results as running
/// them here.
#[test]
fn runs_can_be_executed_by_a_remote_worker() {
    let folder = folder("", "");
    reproduce(folder.path(), &["all", "--write-runs", "runs.jsonl"]).ok();
    let runs = fs::File::open(folder.path().join("runs.jsonl")).expect("the runs");
    let results = fs::File::create(folder.path().join("results.jsonl")).expect("a file");
    let mut worker = command(&["reproduce", "--run-lines"]);
    let status = worker.stdin(runs).stdout(results).status().expect("the worker starts");
    assert!(status.success());
    let imported = reproduce(folder.path(), &["all", "--read-results", "results.jsonl", "--json"]).ok();
    assert!(imported.err.contains("6 runs are available from earlier commands, 0 remain"), "{imported:#?}");
    let local = reproduce(folder.path(), &["all", "--fresh", "--json"]).ok();
    assert_eq!(imported.json()["rows"], local.json()["rows"]);
    let text = fs::read_to_string(folder.path().join("results.jsonl")).expect("the results");
    let other_build = text.replacen("\"sources\":\"", "\"sources\":\"0", 1);
    fs::write(folder.path().join("foreign.jsonl"), other_build).expect("it is written");
    let output = reproduce(folder.path(), &["all", "--read-results", "foreign.jsonl"]);
    assert_eq!(output.status.code(), Some(2), "{output:#?}");
    assert!(output.err.contains("foreign.jsonl: line 1") && output.err.contains("other sources"), "{output:#?}");
}

#[test]
fn the_list_names_experiments_and_rows() {
    let output = rnic(&["reproduce", "--list"]).ok();
    assert!(output.out.contains("irn/fig1") && output.out.contains("I-R2"), "{output:#?}");
    let list = rnic(&["reproduce", "--list", "--json"]).ok().json();
    for experiment in list["experiments"].as_array().expect("a list") {
        let rows: Vec<&str> =
            experiment["rows"].as_array().expect("rows").iter().filter_map(|row| row.as_str()).collect();
        let different: BTreeSet<&str> = rows.iter().copied().collect();
        assert_eq!(rows.len(), different.len(), "a row is listed twice: {experiment}");
    }
    assert!(rnic(&["reproduce", "--quantities"]).ok().out.contains("stall-goodput"));
}

#[test]
fn experiments_are_built_in_and_a_missing_folder_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let in_folder = |arguments: &[&str]| reproduce(folder.path(), arguments);
    let listed = in_folder(&["--list"]).ok();
    assert_eq!(listed.out, rnic(&["reproduce", "--list"]).ok().out, "not those of the source tree");
    in_folder(&["--experiments", "gone", "falcon/fig19"]).assert_refused(2, &["gone", "No such file"]);
    // The plan of the first is in another folder, the second has files beside it, and the flows of the third are in
    // another folder.
    let ids = ["fasr/fig7a", "falcon/fig24", "cross/ndp-incast"];
    in_folder(&[&ids[..], &["--write-runs", "runs.jsonl"]].concat()).ok();
    let (runs, out) = (folder.path().join("tree.jsonl"), folder.path().join("out"));
    let [runs_text, out] = [&runs, &out].map(|path| path.to_str().expect("a plain path"));
    rnic(&[&["reproduce"], &ids[..], &["--write-runs", runs_text, "--out", out]].concat()).ok();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("the runs");
    assert!(read("tree.jsonl").lines().count() > 10 && read("tree.jsonl") == read("runs.jsonl"), "other runs");
}
