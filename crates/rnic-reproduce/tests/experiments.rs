//! Experiment files: those of the source tree, the example in the documentation, and files that are rejected.

mod common;

use std::fs;

use common::{all, assert_errors, catalogue, example, read_error, refusal, report, root, run};
use rnic_reproduce::judge::Samples;
use rnic_reproduce::store::Store;
use rnic_reproduce::{Catalogue, Files, Size, Verdict, Work};

#[test]
fn every_experiment_of_the_tree_can_be_run_at_both_sizes() {
    let catalogue = Catalogue::read(Files::Disk, &root().join("experiments")).expect("the experiment files are valid");
    assert!(!catalogue.experiments.is_empty());
    for size in [Size::Full, Size::Fast] {
        assert!(!all(&catalogue, size).runs.is_empty());
    }
}

#[test]
fn the_example_of_the_documentation_runs_with_all_rows_inside() {
    let catalogue = catalogue(&example()).expect("the experiment is valid");
    let work = all(&catalogue, Size::Fast);
    assert_eq!(work.runs.len(), 2 * 2 * 3, "not two variants x two values x three seeds");
    let samples = run(&work, 2);
    assert_eq!(samples.len(), work.runs.len());
    let report = report(&work, &samples);
    let rows = report.rows().concat();
    assert_eq!((rows.len(), &rows[0].verdict), (1, &Verdict::Inside), "{rows:?}");
    assert_eq!(rows[0].value.map(|stat| stat.count), Some(3));
    let page = report.html();
    assert!(page.contains("<svg") && page.contains("simulated") && page.contains("E-1"));
    assert!(!page.contains("src=") && !page.contains("href=\"http"), "the page refers to other resources");
    let mut csv = Vec::new();
    report.write_csv(&mut csv).expect("writing to memory succeeds");
    let csv = String::from_utf8(csv).expect("the CSV is UTF-8");
    assert!(csv.starts_with("experiment,variant,point,seed,run,field,value,origin\n"));
    assert_eq!(csv.lines().filter(|line| line.contains(",goodput_gbps,")).count(), 12, "not one line per run");
    let mut parquet = Vec::new();
    report.write_parquet(&mut parquet).expect("writing to memory succeeds");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

/// Checks that the results do not depend on how many runs are executed at the same time, nor on how little memory
/// there is.
#[test]
fn the_number_of_parallel_runs_changes_no_result() {
    let catalogue = catalogue(&example()).expect("the experiment is valid");
    let work = all(&catalogue, Size::Fast);
    let hashes = |samples: &Samples| -> Vec<String> {
        samples.values().map(|sample| sample.report["trace_hash"].to_string()).collect()
    };
    assert_eq!(hashes(&run(&work, 1)), hashes(&run(&work, 4)));
}

#[test]
fn a_row_outside_its_band_fails_and_a_broken_run_cannot_be_judged() {
    let text = example().replace("min = 1.2, max = 20", "max = 0.5");
    let catalogue = catalogue(&text).expect("the experiment is valid");
    let work = all(&catalogue, Size::Fast);
    let mut samples = run(&work, 2);
    let row = |samples: &Samples| report(&work, samples).rows().concat().remove(0);
    assert_eq!((row(&samples).verdict, row(&samples).is_failure()), (Verdict::Outside, true));
    assert!(report(&work, &samples).html().contains("OUTSIDE"));
    for sample in samples.values_mut() {
        sample.failure = Some("a message was lost".to_owned());
    }
    let broken = row(&samples);
    let Verdict::Unjudged(reason) = &broken.verdict else { panic!("{broken:?}") };
    assert!(reason.contains("a message was lost"), "{broken:?}");
    assert!(broken.is_failure());
}

/// A link that is half as fast from the third millisecond on, and the time series of its throughput.
const SERIES: &str = r#"
question = "What does half of a link carry?"
figure = "an example"
caption = "Goodput over time."
seeds = [1, 2, 3]
[base]
topology = { kind = "point-to-point" }
links = { rate = "10Gbps", delay = "1us" }
transport = { name = "irn" }
workload = { kind = "closed-loop", op = "write", message = "8KB", depth = 8, duration = "4ms" }
fault = [{ kind = "slow", rate = "5Gbps", from = "2ms" }]
run = { slice = "250us" }
[[variant]]
name = "irn"
label = "IRN"
[[measure]]
name = "before"
label = "goodput before"
field = "slices.hosts.host-1.goodput_gbps"
between = ["1ms", "2ms"]
unit = "Gbit/s"
[[measure]]
name = "left"
label = "what is left of it"
field = "slices.hosts.host-1.goodput_gbps"
between = ["2250us", "4ms"]
relative_to = ["1ms", "2ms"]
scale = 100
unit = "%"
[[check]]
row = "S-1"
what = "before"
paper = "nothing"
value = { kind = "measure", measures = ["before"], of = "irn" }
band = { min = 9, max = 10 }
why = "The link's rate but for headers."
[[check]]
row = "S-2"
what = "left"
paper = "nothing"
value = { kind = "measure", measures = ["left"], of = "irn" }
band = { min = 49, max = 51 }
why = "Half."
[[plot]]
title = "Over time"
kind = "time"
measures = ["before"]
"#;

#[test]
fn measures_of_series_cover_their_time_span() {
    let catalogue = catalogue(SERIES).expect("the experiment is valid");
    let work = all(&catalogue, Size::Full);
    let mut samples = run(&work, 2);
    let rows = report(&work, &samples).rows().concat();
    assert!(rows.iter().all(|row| row.verdict == Verdict::Inside), "{rows:?}");
    let page = report(&work, &samples).html();
    assert!(page.contains("time (ms)") && page.contains("<path class=\"line\""), "no line is drawn");
    // A run without slices cannot be judged, and has no plot.
    samples.values_mut().for_each(|sample| sample.report["slices"] = serde_json::Value::Null);
    let broken = report(&work, &samples).rows().concat().remove(0).verdict;
    assert!(matches!(&broken, Verdict::Unjudged(reason) if reason.contains("`run.slice`")), "{broken:?}");
    assert!(report(&work, &samples).html().contains("No run of this panel"));
}

#[test]
fn errors_in_series_are_one_line() {
    let series = "field = \"slices.hosts.host-1.goodput_gbps\"";
    for (from, to, expected) in [
        (
            "between = [\"1ms\", \"2ms\"]",
            "between = [\"2ms\", \"1ms\"]",
            "the end of the time span must be after its start",
        ),
        ("between = [\"1ms\", \"2ms\"]", "between = [\"1ms\"]", "between"),
        ("between = [\"1ms\", \"2ms\"]", "between = [\"1ms\", \"2 moons\"]", "`2 moons`"),
        (series, "field = \"goodput_gbps\"", "measure[0].between: applies only to the series over time"),
        (series, "quantity = \"footprint\"", "measure[0].between: applies only to the series over time"),
        (
            series,
            "field = \"slices.hosts.host-1.goodput\"",
            "measure[0].between: applies only to the series over time, which are slices.fairness.goodput_gbps, ",
        ),
        ("unit = \"Gbit/s\"", "per = [\"packets_sent\"]", "measure[0].per: does not apply to a series"),
        ("kind = \"time\"", "kind = \"time\"\nrelative_to = \"irn\"", "plot[0].kind: is `time`, which allows"),
    ] {
        let error = catalogue(&SERIES.replacen(from, to, 1)).expect_err(to);
        assert!(error.contains(expected) && error.contains("paper/figure/experiment.toml"), "{to}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let number = format!("{SERIES}\n[[measure]]\nname = \"nacks\"\nlabel = \"NACKs\"\nfield = \"nacks\"\n")
        .replace("kind = \"time\"\nmeasures = [\"before\"]", "kind = \"time\"\nmeasures = [\"nacks\"]");
    let error = catalogue(&number).expect_err("the measure is not a series");
    assert!(error.contains("plot[0].measures: `nacks` has one value per run"), "{error}");
}

/// Memory of two transports over connections: a fixed part and one for each.
const QUANTITIES: &str = r#"
question = "Which takes less?"
figure = "an example"
caption = "Memory."
[base]
requests = 0
[[variant]]
name = "fasr"
label = "FaSR"
set = { transport = { name = "fasr", pool_units = 10 } }
[[variant]]
name = "srnic"
label = "SRNIC"
set = { transport = "srnic" }
[[axis]]
name = "queue-pairs"
label = "queue pairs"
key = "connections"
values = [1, 10, 1000]
[[measure]]
name = "memory"
label = "memory"
quantity = "footprint"
scale = 1000
unit = "bytes"
[[check]]
row = "Q-1"
what = "where FaSR takes less"
paper = "nothing"
value = { kind = "crossing", measure = "memory", of = "fasr", to = "srnic", axis = "queue-pairs" }
band = { min = 49.05, max = 49.15 }
why = "540 bytes (docs/memory.md, with 10 units) by 11."
[[check]]
row = "Q-2"
what = "with one"
paper = "nothing"
value = { kind = "measure", measures = ["memory"], of = "srnic", at = { queue-pairs = "1" } }
band = { min = 12, max = 12 }
why = "It is 12."
[[plot]]
title = "Memory"
kind = "lines"
measures = ["memory"]
axis = "queue-pairs"
"#;

/// Checks that quantities computed without a run work in axes, checks and plots like measured ones.
#[test]
fn quantities_work_like_measures() {
    let catalogue = catalogue(QUANTITIES).expect("the experiment is valid");
    for size in [Size::Full, Size::Fast] {
        let work = all(&catalogue, size);
        assert!(work.runs.is_empty(), "quantities need runs");
        let samples = Samples::new();
        let report = report(&work, &samples);
        let rows = report.rows().concat();
        assert!(rows.iter().all(|row| row.verdict == Verdict::Inside), "{rows:?}");
        assert_eq!(rows[1].value.map(|stat| (stat.mean, stat.count)), Some((12.0, 1)));
        assert!(report.html().contains("<svg") && !report.html().contains("No run of this panel"));
    }
}

#[test]
fn errors_in_quantities_are_one_line() {
    let cases = [
        ("quantity = \"footprint\"", "quantity = \"footprin\"", "measure[0].quantity: there is no quantity `footprin`"),
        ("requests = 0", "", "variant `fasr` at queue pairs 1: the argument `requests` is missing"),
        ("pool_units", "pool_unit", "pool_unit"),
        (
            "quantity = \"footprint\"",
            "quantity = \"footprint\"\nfield = \"bytes\"",
            "measure[0].field: is ambiguous or missing",
        ),
        (
            "[[check]]\nrow = \"Q-1\"",
            "[[measure]]\nname = \"run\"\nlabel = \"run\"\nfield = \"bytes\"\n[[check]]\nrow = \"Q-1\"",
            "seeds: must have at least 3",
        ),
        ("to = \"srnic\"", "to = \"irn\"", "check[0].value.to: there is no variant `irn`"),
    ];
    assert_errors(QUANTITIES, refusal, &cases);
    let both =
        QUANTITIES.replace("requests = 0", "requests = 0\n[[measure]]\nname = \"r\"\nlabel = \"r\"\nfield = \"bytes\"");
    let both = both.replace("question =", "seeds = [1, 2, 3]\nquestion =");
    let error = catalogue(&both).expect_err("quantities and fields cannot be combined");
    assert!(error.contains("measure[1].quantity: cannot be combined"), "{error}");
}

#[test]
fn a_size_without_the_value_leaves_the_row_out() {
    let text = example().replace("scale = \"log\"", "scale = \"log\"\nfast = [\"0.1%\"]");
    let catalogue = catalogue(&text).expect("the experiment is valid");
    let work = all(&catalogue, Size::Fast);
    let row = report(&work, &Samples::new()).rows().concat().remove(0);
    assert!(matches!(row.verdict, Verdict::LeftOut(_)) && !row.is_failure(), "{row:?}");
    let full = all(&catalogue, Size::Full);
    let row = report(&full, &Samples::new()).rows().concat().remove(0);
    assert!(matches!(row.verdict, Verdict::Unjudged(_)), "no run was executed, but the verdict is: {row:?}");
}

#[test]
fn runs_are_shared_stored_and_found_again() {
    let folder = tempfile::tempdir().expect("the test folder is created");
    for figure in ["one", "two"] {
        let dir = folder.path().join("paper").join(figure);
        fs::create_dir_all(&dir).expect("the folders are created");
        fs::write(dir.join("experiment.toml"), example()).expect("the file is written");
    }
    let catalogue = Catalogue::read(Files::Disk, folder.path()).expect("the experiment files are valid");
    let work = all(&catalogue, Size::Fast);
    assert_eq!((work.layouts.len(), work.runs.len()), (2, 12), "the figures do not share their runs");
    let store = Store::open(&folder.path().join("runs")).expect("the store opens");
    let run = work.runs.values().next().expect("there are runs");
    assert_eq!(store.get(&run.key), None);
    let sample = run.run();
    store.put(&sample).expect("the sample is stored");
    assert_eq!(store.get(&run.key).map(|found| found.key), Some(sample.key));
    let full = all(&catalogue, Size::Full);
    assert!(!full.runs.contains_key(&run.key), "the full plan has the same key");
}

/// An axis may change several variants, and one of its points may set a key that only one variant's transport has.
#[test]
fn a_point_may_set_keys_of_one_variant_only() {
    let only = |variant: &str| {
        let point = format!("{{ label = \"1%\", x = 1, only = {{ {variant} = {{ \"transport.cap_packets\" = 77 }} }},");
        example().replace("{ label = \"1%\", x = 1,", &point)
    };
    let text = only("irn");
    let catalogue_of_irn = catalogue(&text).expect("the experiment is valid");
    let work = all(&catalogue_of_irn, Size::Fast);
    let capped = work.runs.values().filter(|spec| spec.task.plan.contains("cap_packets = 77")).count();
    assert_eq!((capped, work.runs.len()), (3, 12), "not only the runs of one variant and value are capped");
    let error = catalogue(&only("iwarp")).expect_err("the variant does not exist");
    assert!(error.contains("axis[0].point.only: there is no variant `iwarp`"), "{error}");
}

#[test]
fn a_name_is_an_experiment_a_row_a_paper_or_all() {
    let catalogue = catalogue(&example()).expect("the experiment is valid");
    for name in ["paper/figure", "paper", "all", "E-1", "e-1"] {
        assert_eq!(catalogue.select(&[name.to_owned()]).map(|found| found.len()), Ok(1), "{name}");
    }
    let error = catalogue.select(&["fig9".to_owned()]).expect_err("nothing has this name").to_string();
    assert!(error.contains("`fig9`") && error.contains("--list"), "{error}");
}

/// Replaces something in the example in each case, and checks the error.
#[test]
fn errors_are_one_line_with_file_key_and_reason() {
    let cases = [
        ("seeds = [1, 2, 3]", "seeds = [1]", "seeds: must have at least 3 seeds"),
        ("question =", "qestion =", "unknown key `qestion`"),
        (
            "of = \"irn\"",
            "of = \"iwarp\"",
            "check[0].value.of: there is no variant `iwarp`; the valid names are: irn, gbn",
        ),
        ("measures = [\"goodput\"], of", "measures = [\"speed\"], of", "check[0].value.measures: there is no measure"),
        (", at = { loss = \"1%\" }", "", "check[0].value.at: names no value of axis `loss`"),
        (", at = { loss = \"1%\" }", ", over = [\"loss\"]", "check[0].value.take: is missing; several values"),
        (
            "at = { loss = \"1%\" }",
            "at = { loss = \"2%\" }",
            "there is no value of that axis `2%`; the valid names are: 0.1%, 1%",
        ),
        ("band = { min = 1.2, max = 20 }", "band = {}", "check[0].band: needs `min`, `max` or both"),
        ("kind = \"ratio\"", "kind = \"product\"", "check[0].value.kind: unknown word `product`"),
        ("name = \"gbn\"", "name = \"irn\"", "variant: `irn` is defined twice"),
        ("axis = \"loss\"", "axis = \"load\"", "plot[0].axis: there is no axis `load`"),
        ("mtu = 1024", "mtu = ", "not valid TOML"),
        (
            "field = \"goodput_gbps\"",
            "field = \"goodput\"",
            "measure[0].field: no report has a number `goodput`; the most similar names are goodput_gbps,",
        ),
        ("unit = \"Gbit/s\"", "per = [\"drops.buffers\"]", "measure[0].per: no report has a number `drops.buffers`"),
        ("field = \"goodput_gbps\"", "", "measure[0].field: is ambiguous or missing"),
    ];
    assert_errors(&example(), read_error, &cases);
}

/// A check on completion times of the example: all of them are from 1 us to 1 s.
fn with_distance(reference: &str) -> String {
    let check = format!(
        "[[check]]\nrow = \"E-2\"\nwhat = \"times\"\npaper = \"nothing\"\nband = {{ max = 0.5 }}\nwhy = \"Half.\"\n\
         [check.value]\nkind = \"distance\"\nsample = \"fct_us\"\nof = \"irn\"\nat = {{ loss = \"1%\" }}\n{reference}\n\
         [[plot]]"
    );
    example().replacen("[[plot]]", &check, 1)
}

const REFERENCE: &str = "reference = [[0.1, 1], [0.2, 2], [0.3, 3], [0.4, 4], [0.5, 5], [0.6, 6], [0.7, 7], [1, 1e6]]";

/// Checks that a distribution is compared with its reference: the one flow of the example takes longer than all values
/// of the reference but the last.
#[test]
fn a_distribution_is_compared_with_its_reference() {
    let catalogue = catalogue(&with_distance(REFERENCE)).expect("the experiment is valid");
    let work = all(&catalogue, Size::Fast);
    let mut samples = run(&work, 2);
    let row = |samples: &Samples| report(&work, samples).rows().concat().remove(1);
    let far = row(&samples);
    assert_eq!((far.value.map(|stat| stat.max), &far.verdict), (Some(0.7), &Verdict::Outside), "{far:?}");
    samples.values_mut().for_each(|sample| sample.quantiles.clear());
    let Verdict::Unjudged(reason) = row(&samples).verdict else { panic!("a distance without a distribution") };
    assert!(reason.contains("the run has no distribution `fct_us`"), "{reason}");
}

#[test]
fn errors_in_distances_are_one_line() {
    let cases = [
        ("\"fct_us\"", "\"fct\"", "check[1].value.sample: there is no distribution `fct`"),
        ("[0.1, 1], ", "", "check[1].value.reference: must have at least 8 points [share, value]"),
        ("[1, 1e6]", "[1.1, 1e6]", "check[1].value.reference: has the point [1.1, 1000000]; shares are above 0"),
        ("[0.3, 3]", "[0.3, 1]", "check[1].value.reference: must rise, but falls after the share 0.2"),
        ("[1, 1e6]", "[0.7, 1e6]", "check[1].value.reference: must rise, but falls after the share 0.7"),
        ("reference = ", "slack = 1.0\nreference = ", "check[1].value.slack: must be at least 0 and below 1"),
        ("at = { loss = \"1%\" }\nref", "ref", "check[1].value.at: names no value of axis"),
    ];
    assert_errors(&with_distance(REFERENCE), read_error, &cases);
}

#[test]
fn a_plan_that_cannot_be_run_names_the_variant_and_the_key() {
    let text = example().replace("name = \"roce-gbn\", rto", "name = \"roce-gbn\", rtoo");
    let catalogue = catalogue(&text).expect("the experiment itself is valid");
    let selected = catalogue.select(&["all".to_owned()]).expect("`all` is a valid name");
    let error = Work::new(selected, Size::Full, None).expect_err("the option does not exist").to_string();
    assert!(error.contains("variant `gbn` at loss 0.1%") && error.contains("rtoo"), "{error}");
}
