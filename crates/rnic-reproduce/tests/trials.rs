//! Experiments whose runs are trials: what they search, what they measure, what is rejected.

mod common;

use common::{all, assert_errors, catalogue, refusal, report, run};
use rnic_reproduce::judge::Samples;
use rnic_reproduce::{Origin, RunSpec, Size, Verdict, machine};

/// A search that finds a deadlock without the reserve and none with it.
const SEARCH: &str = r#"
question = "Does the reserve matter?"
figure = "an example"
caption = "Deadlocks."
trial = "deadlock"
seeds = [1, 2, 3]
[base]
traffic = "messages"
ordering = "ordered"
schedules = 300
[fast]
set = { schedules = 200 }
[[variant]]
name = "with"
label = "with"
[[variant]]
name = "without"
label = "without"
set = { reserve = false }
[[axis]]
name = "order"
label = "order"
key = "ordering"
values = ["ordered", "unordered"]
[[measure]]
name = "share"
label = "share"
field = "deadlocks"
per = ["schedules"]
[[check]]
row = "T-1"
what = "with"
paper = "nothing"
value = { kind = "measure", measures = ["share"], of = "with", over = ["order"], take = "max" }
band = { max = 0 }
why = "None."
[[check]]
row = "T-2"
what = "without"
paper = "nothing"
value = { kind = "measure", measures = ["share"], of = "without", over = ["order"], take = "min" }
band = { min = 0.001 }
why = "Some."
[[plot]]
title = "Deadlocks"
kind = "bars"
measures = ["share"]
axis = "order"
"#;

/// Two rates, and how one changes relative to the other.
const RATE: &str = r#"
question = "How fast?"
figure = "an example"
caption = "Events."
trial = "fae"
seeds = [1, 2, 3]
[base]
connections = 10
state = 64
rounds = 1
batches = 2
[[variant]]
name = "table"
label = "table"
set = { subject = "table" }
[[variant]]
name = "memory"
label = "memory"
set = { subject = "memory" }
[[axis]]
name = "state"
label = "state"
key = "state"
values = [64, 128]
[[measure]]
name = "rate"
label = "rate"
field = "million_events_per_s"
unit = "M/s"
[[check]]
row = "T-3"
what = "rate"
paper = "nothing"
value = { kind = "measure", measures = ["rate"], of = "table", at = { state = "64" } }
band = { min = 0 }
why = "It is a rate."
[[check]]
row = "T-4"
what = "change"
paper = "nothing"
band = { min = 0 }
why = "It is a ratio."
[check.value]
kind = "change"
measures = ["rate"]
of = "table"
to = "memory"
at = { state = "128" }
to_at = { state = "64" }
"#;

/// Windows of a flow of NewReno on both sides, over time.
const TRACES: &str = r#"
question = "How do windows go?"
figure = "an example"
caption = "Windows."
trial = "tonic-new-reno"
seeds = [1, 2, 3]
[base]
loss = "0.5%"
rto_min = "1ms"
first_window = 10
[base.network]
senders = 1
flows = 1
rate = "10Gbps"
delay = "2500ns"
buffer = "5500KB"
jitter = "0ns"
segment = 1000
duration = "2ms"
sample = "10us"
skip = 10
cycle = "100ns"
template = 16
queue = 16
trace = "1ms"
[fast]
set = { "network.duration" = "1ms" }
[[variant]]
name = "new-reno"
label = "NewReno"
[[measure]]
name = "tonic"
label = "the window of Tonic"
field = "slices.tonic_window"
[[measure]]
name = "tcp"
label = "the window of TCP"
field = "slices.independent_window"
[[measure]]
name = "early"
label = "the first window"
field = "slices.tonic_window"
between = ["0us", "10us"]
[[check]]
row = "T-5"
what = "window"
paper = "nothing"
value = { kind = "measure", measures = ["early"], of = "new-reno" }
band = { min = 10, max = 10 }
why = "The first window has ten segments."
[[plot]]
title = "Windows"
kind = "traces"
measures = ["tonic", "tcp"]
"#;

#[test]
fn series_of_a_trial_are_judged_and_drawn_with_a_line_for_each() {
    let catalogue = catalogue(TRACES).expect("the experiment is valid");
    let work = all(&catalogue, Size::Full);
    let mut samples = run(&work, 2);
    let report_of = |samples: &Samples| {
        let report = report(&work, samples);
        (report.rows().concat(), report.html())
    };
    let (rows, page) = report_of(&samples);
    assert!(rows[0].verdict == Verdict::Inside && rows[0].origin == Origin::Simulated, "{rows:?}");
    assert!(page.contains("the window of Tonic") && page.contains("the window of TCP"), "a line has no name");
    let lines = |page: &str| page.matches("<path class=\"line\"").count();
    let drawn = lines(&page);
    assert!(drawn >= 2, "{drawn} lines");
    for sample in samples.values_mut() {
        sample.report["slices"]["independent_window"] = serde_json::Value::Null;
    }
    assert_eq!(lines(&report_of(&samples).1), drawn - 1, "a missing series is drawn");
    assert_errors(
        TRACES,
        refusal,
        &[
            ("slices.independent_window", "slices.other", "measure[1].field: no run of this trial has a number"),
            (
                "slices.tonic_window\"\nbetween",
                "tonic_gbps\"\nbetween",
                "measure[2].between: applies only to the series",
            ),
            (
                "measures = [\"tonic\", \"tcp\"]",
                "measures = [\"tonic\", \"tpc\"]",
                "plot[0].measures: there is no measure",
            ),
            ("trace = \"1ms\"", "trace = \"3ms\"", "trace: 3 ms does not lie between"),
        ],
    );
}

#[test]
fn a_search_does_not_depend_on_the_number_of_jobs() {
    let catalogue = catalogue(SEARCH).expect("the experiment is valid");
    let work = all(&catalogue, Size::Fast);
    assert_eq!(work.runs.len(), 2 * 2 * 3);
    assert!(work.runs.values().all(|spec| !spec.needs_idle_machine()), "a search needs an idle machine");
    let reports = |samples: &Samples| -> Vec<_> { samples.values().map(|sample| sample.report.clone()).collect() };
    let samples = run(&work, 2);
    assert_eq!(reports(&samples), reports(&run(&work, 1)));
    let report = report(&work, &samples);
    let rows = report.rows().concat();
    assert!(rows.iter().all(|row| row.verdict == Verdict::Inside && row.origin == Origin::Searched), "{rows:?}");
    let page = report.html();
    assert!(page.contains("found, counted in a search") && page.contains("<svg") && !page.contains("found, simulated"));
    assert!(page.contains("Every number of OpenRNIC's on this page is counted in a search of many cases. Beside"));
    let table = report.markdown();
    assert!(table.contains("All of OpenRNIC's numbers are counted in a search; in brackets"), "{table}");
    assert!(rows_with(&table, " (searched) |") == 2 && page.contains(" (searched)"), "{table}");
    let mut csv = Vec::new();
    report.write_csv(&mut csv).expect("writing to memory succeeds");
    let csv = String::from_utf8(csv).expect("the CSV is UTF-8");
    let counted = csv.lines().filter(|line| line.contains(",deadlocks,") && line.ends_with(",searched"));
    assert_eq!(counted.count(), 12, "not one line per run");
    let full = all(&catalogue, Size::Full);
    assert!(full.runs.keys().all(|key| !work.runs.contains_key(key)), "other arguments have the same key");
}

#[test]
fn measured_runs_name_their_machine_and_run_alone() {
    let catalogue = catalogue(RATE).expect("the experiment is valid");
    let work = all(&catalogue, Size::Full);
    assert_eq!(work.runs.len(), 2 * 2 * 3);
    assert!(work.runs.values().all(RunSpec::needs_idle_machine));
    let samples = run(&work, 4);
    let report = report(&work, &samples);
    let rows = report.rows().concat();
    assert!(rows.iter().all(|row| row.verdict == Verdict::Inside && row.origin == Origin::Measured), "{rows:?}");
    let page = report.html();
    assert!(page.contains("found, measured on this machine") && !page.contains("simulated"), "the page says simulated");
    let table = report.markdown();
    assert!(rows_with(&table, " (measured) |") == 2 && page.contains(" (measured)"), "{table}");

    let rates = |state: usize, subject: &str| -> Vec<f64> {
        let rate = |seed: u64| {
            let matches = |spec: &&RunSpec| {
                let plan = &spec.task.plan;
                spec.seed == seed && plan.contains(subject) && plan.contains(&format!("state = {state}\n"))
            };
            let spec = work.runs.values().find(matches).expect("the run exists");
            samples[&spec.key].report["million_events_per_s"].as_f64().expect("the rate is a number")
        };
        [1, 2, 3].map(rate).to_vec()
    };
    let [a, b, c, d] = [rates(128, "table"), rates(64, "table"), rates(128, "memory"), rates(64, "memory")];
    let mean = (0..3).map(|seed| a[seed] / b[seed] / (c[seed] / d[seed])).sum::<f64>() / 3.0;
    assert!(rows[1].value.is_some_and(|stat| (stat.mean / mean - 1.0).abs() < 1e-9), "{:?}, {mean}", rows[1]);
}

fn rows_with(table: &str, end: &str) -> usize {
    table.lines().filter(|line| line.starts_with("| T-") && line.contains(end)).count()
}

/// Samples may be days old when a report is written: the report describes the machine's load at the time of the
/// measurement.
#[test]
fn a_report_contains_the_load_average_of_the_measurement() {
    let catalogue = catalogue(RATE).expect("the experiment is valid");
    let work = all(&catalogue, Size::Full);
    let mut samples = run(&work, 1);
    for (sample, load) in samples.values_mut().zip(0..) {
        sample.load_average = Some(0.25 + f64::from(load));
    }
    let here = machine::processor_and_build();
    assert!(here.contains(machine::BUILD), "the build is not named: {here}");
    let conditions = format!("{here}, load average 0.25 to 11.25 before the runs");
    let report_of = |samples: &Samples| {
        let report = report(&work, samples);
        (report.conditions(), report.markdown(), report.html())
    };
    let (conditions_line, table, page) = report_of(&samples);
    assert_eq!(conditions_line.as_ref(), Some(&conditions));
    assert!(table.contains(&format!("All of OpenRNIC's numbers are measured on {conditions};")), "{table}");
    assert!(page.contains(&format!("<dt>measured on</dt><dd>{conditions}</dd>")));
    assert!(page.contains(&format!("<strong>measured</strong> on {conditions}. Beside")));
    samples.values_mut().for_each(|sample| sample.load_average = None);
    assert_eq!(report_of(&samples).0, Some(here), "an unknown load average is reported");
    let searched = common::catalogue(SEARCH).expect("the experiment is valid");
    let work = all(&searched, Size::Fast);
    assert_eq!(report(&work, &Samples::new()).conditions(), None);
}

/// Trials are described only in the documentation.
#[test]
fn the_documentation_has_every_trial_with_its_numbers() {
    let page =
        std::fs::read_to_string(common::root().join("docs/reproduce.md")).expect("docs/reproduce.md is readable");
    for trial in rnic_reproduce::trial::TRIALS {
        let line = page.lines().find(|line| line.starts_with(&format!("| `{}` |", trial.name))).expect(trial.name);
        let numbers: Vec<String> = trial.numbers.iter().map(|number| format!("`{number}`")).collect();
        assert!(line.ends_with(&format!("| {} |", numbers.join(", "))), "{line}");
    }
}

/// Samples of earlier commands had no load average.
#[test]
fn a_sample_without_load_average_is_read() {
    let catalogue = catalogue(SEARCH).expect("the experiment is valid");
    let sample = all(&catalogue, Size::Fast).runs.values().next().expect("there are runs").run();
    let mut json = serde_json::to_value(&sample).expect("a sample is written as JSON");
    assert!(json.as_object_mut().is_some_and(|fields| fields.remove("load_average").is_some()));
    assert_eq!(serde_json::from_value::<rnic_reproduce::Sample>(json).ok(), Some(sample));
}

/// A measurement on another processor is a different result, and this processor cannot produce it.
#[test]
fn a_measurement_belongs_to_its_processor() {
    let catalogue = catalogue(RATE).expect("the experiment is valid");
    let work = all(&catalogue, Size::Full);
    let here = work.runs.values().next().expect("there are runs");
    let mut task = here.task.clone();
    task.measured_on = Some("another processor".to_owned());
    let elsewhere = RunSpec::new(task, here.seed);
    assert_ne!(elsewhere.key, here.key);
    let failure = elsewhere.run().failure.expect("another processor is refused");
    assert!(failure.starts_with("this run must be measured on another processor, but this machine is "), "{failure}");
    let line = serde_json::to_string(here).expect("a run is written as JSON");
    assert_eq!(serde_json::from_str::<RunSpec>(&line).ok().as_ref(), Some(here), "the run does not survive JSON");
}

#[test]
fn errors_in_trials_are_one_line_with_the_variant() {
    let search = [
        ("trial = \"deadlock\"", "trial = \"lock\"", "trial: there is no trial `lock`; there are: fae, deadlock"),
        ("trial = \"deadlock\"", "trial = \"deadlock\"\nplan = \"a.toml\"", "plan: does not apply to a trial"),
        ("seeds = [1, 2, 3]", "seeds = [1]", "seeds: must have at least 3 seeds"),
        (
            "field = \"deadlocks\"",
            "field = \"goodput_gbps\"",
            "measure[0].field: no run of this trial has a number `goodput_gbps`; the most similar names are schedules",
        ),
        ("per = [\"schedules\"]", "per = [\"bytes\"]", "measure[0].per: no run of this trial has a number"),
        (
            "kind = \"bars\"\nmeasures = [\"share\"]\naxis = \"order\"",
            "kind = \"cdf\"\nmeasures = [\"share\"]\nat = { order = \"ordered\" }",
            "plot[0].measures: `share` has one value per run",
        ),
        (
            "kind = \"bars\"\nmeasures = [\"share\"]\naxis = \"order\"",
            "kind = \"traces\"\nmeasures = [\"share\"]\nat = { order = \"ordered\" }",
            "plot[0].measures: `share` has one value per run; the series over time are none",
        ),
        ("reserve = false", "resrve = false", "variant `without` at order ordered: resrve: unknown key `resrve`"),
        ("schedules = 300", "", "variant `with` at order ordered: the key `schedules` is missing"),
        ("\"ordered\", \"unordered\"]", "\"ordered\", \"weak\"]", "at order weak: ordering: unknown word `weak`"),
    ];
    assert_errors(SEARCH, refusal, &search);
    let rate = [
        ("values = [64, 128]", "values = [64, 65, 128]", "at state 65: state: 65 bytes; there are states of"),
        ("connections = 10", "connections = 0", "connections: 0 does not lie between 1 and"),
        ("to_at = { state = \"64\" }", "", "check[1].value.to_at: is missing; name the axis values"),
    ];
    assert_errors(RATE, refusal, &rate);
}
