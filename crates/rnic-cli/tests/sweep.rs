//! `rnic sweep`, `rnic sim --seeds` and `rnic compare`; time series of `rnic sim`.

mod common;

use std::fs;
use std::path::Path;

use common::{CommandOutput, rnic};
use parquet::file::reader::{FileReader, SerializedFileReader};

/// A sweep of a second: two losses, two transports, two seeds.
fn sweep(out: &Path, more: &[&str]) -> CommandOutput {
    let out = out.to_str().expect("a plain path");
    let mut arguments =
        vec!["sweep", "point-to-point-loss", "--set", "workload.count=50", "--seeds", "2", "--out", out];
    arguments.extend(["--vary", "transport=irn,roce-gbn", "--vary", "workload.depth=4,8"]);
    arguments.extend(more);
    rnic(&arguments)
}

fn seeds(out: &Path, transport: &str, seeds: &str) -> CommandOutput {
    let out = out.to_str().expect("a plain path");
    let transport = format!("transport={transport}");
    let size = "workload.count=50";
    rnic(&["sim", "point-to-point-loss", "--seeds", seeds, "--out", out, "--set", &transport, "--set", size])
}

/// Every combination has a row with an interval; the second time no run is executed; the files are complete.
#[test]
fn a_sweep_has_a_row_for_each_combination_and_reuses_its_runs() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let first = sweep(folder.path(), &["--json"]);
    let json = first.json();
    let points = json["points"].as_array().expect("a list of points");
    assert_eq!(points.len(), 4);
    let at = |point: usize| format!("{}", points[point]["at"]);
    assert_eq!(at(1), r#"[["transport","irn"],["workload.depth","8"]]"#);
    for point in points {
        assert_eq!(point["seeds"], 2);
        let goodput = &point["estimates"][0];
        assert!(goodput["mean"].as_f64() > Some(0.1) && goodput["half_width"].is_number(), "{goodput}");
    }
    let again = sweep(folder.path(), &[]);
    assert!(again.err.contains("8 runs are available from earlier commands, 0 remain"), "{}", again.err);
    assert!(again.out.contains("the mean over 2 seeds, with half of the 95 % confidence interval; 8 runs"));
    let page = fs::read_to_string(folder.path().join("report.html")).expect("there is a page");
    assert!(page.contains("transport and workload.depth over 2 seeds") && page.contains("roce-gbn"));
    let file = fs::File::open(folder.path().join("runs.parquet")).expect("there is a table");
    let table = SerializedFileReader::new(file).expect("it is a Parquet file");
    let columns = table.metadata().file_metadata().schema_descr().columns();
    let names: Vec<_> = columns.iter().map(|column| column.name()).collect();
    assert_eq!(names, ["transport", "workload_depth", "seed", "field", "value"]);
    assert!(table.metadata().file_metadata().num_rows() > 8 * 30);
}

/// Execution traces of a training job are swept like other workloads; the command may run in another folder than that
/// of the plan.
#[test]
fn execution_traces_are_swept() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let traces = folder.path().join("chakra");
    fs::create_dir(&traces).expect("a folder");
    let given = concat!(env!("CARGO_MANIFEST_DIR"), "/../rnic-fabric/tests/chakra");
    let name = |rank: usize| format!("training.{rank}.et");
    for rank in 0..4 {
        fs::copy(Path::new(given).join(name(rank)), traces.join(name(rank))).expect("it is copied");
    }
    let plan = folder.path().join("plan.toml");
    let text = r#"
        mtu = 4096
        topology = { kind = "star", hosts = 8 }
        links = { rate = "100Gbps", delay = "1us" }
        switch = { model = "shared-buffer", buffer = "8MB" }
        transport = { name = "irn" }
        workload = { kind = "chakra", file = "chakra/training" }
    "#;
    fs::write(&plan, text).expect("it is written");
    let [plan, out] = [plan, folder.path().join("out")].map(|path| path.display().to_string());
    let sweep = || {
        let vary = ["--vary", "links.rate=100Gbps,400Gbps", "--vary", "workload.op=write-imm,send"];
        let arguments = ["sweep", &plan, "--seeds", "2", "--field", "execution.time_us", "--out", &out, "--json"];
        rnic(&[&arguments[..], &vary].concat())
    };
    let json = sweep().json();
    let time = |point: usize| json["points"][point]["estimates"][0]["mean"].as_f64().expect("a time");
    assert_eq!(json["points"].as_array().map(Vec::len), Some(4));
    assert!(time(0) > time(2) && time(2) > 0.0, "{json}");
    assert!(sweep().err.contains("8 runs are available from earlier commands, 0 remain"));
    fs::copy(traces.join(name(0)), traces.join("other.0.et")).expect("it is copied");
    assert!(sweep().err.contains("0 remain"));
    fs::copy(traces.join(name(1)), traces.join(name(4))).expect("it is copied");
    sweep().assert_refused(2, &["workload.file: chakra/training: rank 4: "]);
    fs::remove_file(traces.join(name(4))).expect("it is removed");
    // Seeds of a single plan are a sweep, too.
    rnic(&["sim", &plan, "--seeds", "2", "--out", &out]).ok();
    fs::remove_dir_all(&traces).expect("it is removed");
    sweep().assert_refused(2, &["workload.file: chakra/training: "]);
}

/// A sweep that was killed runs only the rest.
#[test]
fn a_killed_sweep_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    sweep(folder.path(), &[]).ok();
    let samples =
        || fs::read_dir(folder.path().join("runs")).expect("runs are stored").map(|file| file.expect("a file"));
    // As after a kill: some samples are not there, and one is incomplete.
    let all: Vec<_> = samples().map(|file| file.path()).collect();
    assert_eq!(all.len(), 8);
    all[..3].iter().for_each(|path| fs::remove_file(path).expect("the sample is removed"));
    fs::write(&all[3], "{\"key\":").expect("the sample is cut");
    let again = sweep(folder.path(), &[]);
    assert!(again.err.contains("4 runs are available from earlier commands, 4 remain"), "{}", again.err);
    assert_eq!(samples().count(), 8);
}

/// A plan of one's own without its ending is not found, but named.
#[test]
fn the_file_of_a_plan_is_named_when_its_ending_is_missing() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    fs::write(folder.path().join("own.toml"), "").expect("it is written");
    let mut sweep = common::command(&["sweep", "own", "--vary", "mtu=256,512"]);
    let output = common::finish(sweep.current_dir(folder.path()).spawn().expect("the command starts"));
    output.assert_refused(2, &["own: neither a built-in plan nor a file; did you mean `own.toml`?"]);
}

#[test]
fn bad_sweeps_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for (more, reason) in [
        (&["--vary", "workload.dept=1"][..], "unknown key `dept`"),
        (&["--vary", "mtu=512,512"], "the value 512 is given twice"),
        (&["--vary", "mtu"], "expected KEY=VALUE"),
        (&["--field", "goodput_gbp"], "did you mean `goodput_gbps`?"),
        (&["--field", "rct.p99"], "no such number; did you mean `rct_us.p99`?"),
        (&["--field", "nonsense"], "no such number; report.json of `rnic sim --out DIR` has all of a plan"),
        (&["--jobs", "0"], "number would be zero for non-zero type"),
    ] {
        sweep(folder.path(), more).assert_refused(2, &[reason]);
    }
}

/// A clear difference is significant, the key that causes it is named, and the page draws both distributions.
#[test]
fn two_simulations_are_compared() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let [a, b] = ["irn", "roce-gbn"].map(|name| folder.path().join(name));
    seeds(&a, "irn", "4").ok();
    seeds(&b, "roce-gbn", "4").ok();
    let words = |out: &str| {
        let [a, b] = [&a, &b].map(|path| path.to_str().expect("a plain path").to_owned());
        ["compare".to_owned(), a, b, "--out".to_owned(), folder.path().join(out).display().to_string()]
    };
    let words = words("page");
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = rnic(&arguments);
    assert!(text.out.contains("transport") && text.out.contains("significant at 95 %"), "{}", text.out);
    let row = text.out.lines().find(|line| line.contains("packets_retransmitted")).expect("a row of retransmissions");
    assert!(row.trim_end().ends_with('*'), "{row}");
    let page = fs::read_to_string(folder.path().join("page/compare.html")).expect("there is a page");
    assert!(page.contains("numbers differ significantly") && page.contains("Flow completion time"));
    let same = rnic(&["compare", arguments[1], arguments[1]]);
    assert!(same.out.contains("Plan and build are the same."), "{}", same.out);
    assert!(!same.out.lines().any(|line| line.contains("goodput") && line.contains('*')), "{}", same.out);
    for (field, reason) in
        [("fct_p9_us", "; did you mean `fct_p99_us`?"), ("elsewhere", "; those of both are: acks_sent")]
    {
        rnic(&["compare", arguments[1], arguments[2], "--field", field]).assert_refused(2, &[field, reason]);
    }
}

#[test]
fn runs_that_have_nothing_in_common_are_refused() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let [sim, swept, empty] = ["sim", "swept", "empty"].map(|name| folder.path().join(name));
    seeds(&sim, "irn", "1").ok();
    sweep(&swept, &[]).ok();
    fs::create_dir(&empty).expect("a folder");
    let refused = |a: &Path, b: &Path, reason: &str| {
        let [a, b] = [a, b].map(|path| path.to_str().expect("a plain path"));
        rnic(&["compare", a, b]).assert_refused(2, &[reason]);
    };
    refused(&sim, &swept, "one varies nothing, the other transport, workload.depth");
    refused(&sim, &empty, "has no runs.json; it must be a folder that `rnic sim --out`");
    fs::write(empty.join("runs.json"), r#"{"format":1}"#).expect("a file");
    refused(&sim, &empty, "runs.json: missing field");
}

/// The plan's time series are in the folder, and in the page, with the library that draws them.
#[test]
fn time_series_are_written_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().to_str().expect("a plain path");
    let arguments = ["sim", "incast", "--set", "workload.repeats=2", "--set", "record.interval=50us"];
    let without = rnic(&arguments);
    assert!(without.err.contains("the plan records time series, which need a folder: add --out DIR"));
    let with = rnic(&[&arguments[..], &["--out", out]].concat());
    assert!(with.err.contains("series.parquet"), "{}", with.err);
    let page = fs::read_to_string(folder.path().join("report.html")).expect("there is a page");
    assert!(page.contains("Links over time") && page.contains("var uPlot="));
    let file = fs::File::open(folder.path().join("series.parquet")).expect("there are series");
    let table = SerializedFileReader::new(file).expect("it is a Parquet file");
    assert!(table.metadata().file_metadata().num_rows() > 10_000);

    // Another run over it; a file that is no recording is one line.
    let other = folder.path().join("other");
    let other = other.to_str().expect("a plain path");
    rnic(&[&arguments[..], &["--set", "record.interval=20us", "--seed", "2", "--out", other]].concat()).ok();
    let compare = ["compare", out, other, "--out", other];
    rnic(&compare).ok();
    let page = fs::read_to_string(folder.path().join("other/compare.html")).expect("there is a page");
    assert!(page.contains("One seed: what is significant cannot be judged"));
    for part in ["Links over time", "\"highest, A\"", "\"mean, B\"", "\"shown\":4", "var uPlot="] {
        assert!(page.contains(part), "{part}");
    }
    fs::write(folder.path().join("other/series.parquet"), "time,value").expect("a file");
    rnic(&compare).assert_refused(2, &["series.parquet", "is not a recording of `rnic sim`"]);
}
