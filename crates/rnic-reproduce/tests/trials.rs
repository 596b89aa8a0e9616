//! Experiments whose runs are trials: what is searched, what is measured, what is refused.

mod common;

use common::{all, catalogue, mistakes, refusal, report, run};
use rnic_reproduce::judge::Samples;
use rnic_reproduce::{Origin, RunSpec, Size, Verdict, machine};

/// A search that finds something without the reserve and nothing with it.
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

/// Two rates, and how one changes by how the other does.
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

#[test]
fn a_search_is_the_same_however_many_jobs_share_it() {
    let catalogue = catalogue(SEARCH).expect("it is sound");
    let work = all(&catalogue, Size::Fast);
    assert_eq!(work.runs.len(), 2 * 2 * 3);
    assert!(work.runs.values().all(|spec| !spec.is_alone()), "its numbers tell nothing of the machine");
    let reports = |samples: &Samples| -> Vec<_> { samples.values().map(|sample| sample.report.clone()).collect() };
    let samples = run(&work, 2);
    assert_eq!(reports(&samples), reports(&run(&work, 1)));
    let report = report(&work, &samples);
    let rows = report.rows().concat();
    assert!(rows.iter().all(|row| row.verdict == Verdict::Inside && row.origin == Origin::Searched), "{rows:?}");
    let page = report.html();
    assert!(page.contains("found, counted in a search") && page.contains("<svg") && !page.contains("found, simulated"));
    assert!(page.contains("Every number of ours on this page is counted in a search of many cases. Beside"));
    let table = report.markdown();
    assert!(table.contains("All numbers of ours are counted in a search; in brackets"), "{table}");
    assert!(rows_with(&table, " (searched) |") == 2 && page.contains(" (searched)"), "{table}");
    let mut csv = Vec::new();
    report.write_csv(&mut csv).expect("memory does not fail");
    let csv = String::from_utf8(csv).expect("text");
    let counted = csv.lines().filter(|line| line.contains(",deadlocks,") && line.ends_with(",searched"));
    assert_eq!(counted.count(), 12, "each run's once");
    let full = all(&catalogue, Size::Full);
    assert!(full.runs.keys().all(|key| !work.runs.contains_key(key)), "other arguments are other runs");
}

#[test]
fn what_is_measured_says_where_and_runs_alone() {
    let catalogue = catalogue(RATE).expect("it is sound");
    let work = all(&catalogue, Size::Full);
    assert_eq!(work.runs.len(), 2 * 2 * 3);
    assert!(work.runs.values().all(RunSpec::is_alone));
    let samples = run(&work, 4);
    let report = report(&work, &samples);
    let rows = report.rows().concat();
    assert!(rows.iter().all(|row| row.verdict == Verdict::Inside && row.origin == Origin::Measured), "{rows:?}");
    let page = report.html();
    assert!(page.contains("found, measured on this machine") && !page.contains("simulated"), "nothing is");
    let table = report.markdown();
    assert!(rows_with(&table, " (measured) |") == 2 && page.contains(" (measured)"), "{table}");

    let of = |state: usize, subject: &str| -> Vec<f64> {
        let rate = |seed: u64| {
            let is_it = |spec: &&RunSpec| {
                let plan = &spec.task.plan;
                spec.seed == seed && plan.contains(subject) && plan.contains(&format!("state = {state}\n"))
            };
            let spec = work.runs.values().find(is_it).expect("it has run");
            samples[&spec.key].report["million_events_per_s"].as_f64().expect("a number")
        };
        [1, 2, 3].map(rate).to_vec()
    };
    let [a, b, c, d] = [of(128, "table"), of(64, "table"), of(128, "memory"), of(64, "memory")];
    let mean = (0..3).map(|seed| a[seed] / b[seed] / (c[seed] / d[seed])).sum::<f64>() / 3.0;
    assert!(rows[1].value.is_some_and(|stat| (stat.mean / mean - 1.0).abs() < 1e-9), "{:?}, {mean}", rows[1]);
}

fn rows_with(table: &str, end: &str) -> usize {
    table.lines().filter(|line| line.starts_with("| T-") && line.contains(end)).count()
}

/// Samples may be days old when a report is written: it tells of the machine as it was then.
#[test]
fn a_report_says_how_busy_the_machine_was_when_it_was_measured() {
    let catalogue = catalogue(RATE).expect("it is sound");
    let work = all(&catalogue, Size::Full);
    let mut samples = run(&work, 1);
    for (sample, load) in samples.values_mut().zip(0..) {
        sample.load_average = Some(0.25 + f64::from(load));
    }
    let here = machine::here();
    assert!(here.contains(machine::BUILD), "a rate of another build is another rate: {here}");
    let conditions = format!("{here}, load average 0.25 to 11.25 before the runs");
    let report_of = |samples: &Samples| {
        let report = report(&work, samples);
        (report.conditions(), report.markdown(), report.html())
    };
    let (said, table, page) = report_of(&samples);
    assert_eq!(said.as_ref(), Some(&conditions));
    assert!(table.contains(&format!("All numbers of ours are measured on {conditions};")), "{table}");
    assert!(page.contains(&format!("<dt>measured on</dt><dd>{conditions}</dd>")));
    assert!(page.contains(&format!("<strong>measured</strong> on {conditions}. Beside")));
    samples.values_mut().for_each(|sample| sample.load_average = None);
    assert_eq!(report_of(&samples).0, Some(here), "where the system does not tell, nothing is said");
    let searched = common::catalogue(SEARCH).expect("it is sound");
    let work = all(&searched, Size::Fast);
    assert_eq!(report(&work, &Samples::new()).conditions(), None);
}

/// Trials are told of in the documentation alone.
#[test]
fn the_documentation_has_every_trial_with_its_numbers() {
    let page = std::fs::read_to_string(common::root().join("docs/reproduce.md")).expect("the page");
    for trial in rnic_trials::TRIALS {
        let line = page.lines().find(|line| line.starts_with(&format!("| `{}` |", trial.name))).expect(trial.name);
        let numbers: Vec<String> = trial.numbers.iter().map(|number| format!("`{number}`")).collect();
        assert!(line.ends_with(&format!("| {} |", numbers.join(", "))), "{line}");
    }
}

/// Samples of earlier commands had no load average.
#[test]
fn a_sample_without_load_average_is_read() {
    let catalogue = catalogue(SEARCH).expect("it is sound");
    let sample = all(&catalogue, Size::Fast).runs.values().next().expect("there are some").run();
    let mut json = serde_json::to_value(&sample).expect("a sample is JSON");
    assert!(json.as_object_mut().is_some_and(|fields| fields.remove("load_average").is_some()));
    assert_eq!(serde_json::from_value::<rnic_reproduce::Sample>(json).ok(), Some(sample));
}

/// What was measured on another processor is another result, and is not measured here in its name.
#[test]
fn a_measurement_belongs_to_its_processor() {
    let catalogue = catalogue(RATE).expect("it is sound");
    let work = all(&catalogue, Size::Full);
    let here = work.runs.values().next().expect("there are some");
    let mut task = here.task.clone();
    task.measured_on = Some("another processor".to_owned());
    let elsewhere = RunSpec::new(task, here.seed);
    assert_ne!(elsewhere.key, here.key);
    let failure = elsewhere.run().failure.expect("not here");
    assert!(failure.starts_with("it was to be measured on another processor, and this is "), "{failure}");
    let line = serde_json::to_string(here).expect("a line");
    assert_eq!(serde_json::from_str::<RunSpec>(&line).ok().as_ref(), Some(here), "a line holds all of it");
}

#[test]
fn mistakes_in_trials_are_one_line_with_the_variant() {
    let search = [
        ("trial = \"deadlock\"", "trial = \"lock\"", "trial: there is no trial `lock`; there are: fae, deadlock"),
        ("trial = \"deadlock\"", "trial = \"deadlock\"\nplan = \"a.toml\"", "plan: a trial has arguments instead"),
        ("seeds = [1, 2, 3]", "seeds = [1]", "seeds: give 3 seeds at least"),
        (
            "field = \"deadlocks\"",
            "field = \"goodput_gbps\"",
            "measure[0].field: no run of this trial has a number `goodput_gbps`; the most alike: schedules",
        ),
        ("per = [\"schedules\"]", "per = [\"bytes\"]", "measure[0].per: no run of this trial has a number"),
        ("kind = \"bars\"\nmeasures = [\"share\"]", "kind = \"cdf\"\nmeasures = [\"fct_us\"]", "no distributions"),
        ("reserve = false", "resrve = false", "variant `without` at order ordered: resrve: unknown field `resrve`"),
        ("schedules = 300", "", "variant `with` at order ordered: missing field `schedules`"),
        ("\"ordered\", \"unordered\"]", "\"ordered\", \"weak\"]", "at order weak: ordering: unknown variant `weak`"),
    ];
    mistakes(SEARCH, refusal, &search);
    let rate = [
        ("values = [64, 128]", "values = [64, 65, 128]", "at state 65: state: 65 bytes; there are states of"),
        ("connections = 10", "connections = 0", "connections: 0 does not lie between 1 and"),
        ("to_at = { state = \"64\" }", "", "check[1].value.to_at: say from where it changes"),
    ];
    mistakes(RATE, refusal, &rate);
}
