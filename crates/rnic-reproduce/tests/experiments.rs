//! Experiment files: those of the tree, the one of the documentation, and what is refused.

mod common;

use std::fs;

use common::{all, catalogue, example, misread, mistakes, refusal, report, root, run};
use rnic_reproduce::judge::Samples;
use rnic_reproduce::store::Store;
use rnic_reproduce::{Catalogue, Size, Verdict, Work};

#[test]
fn every_experiment_of_the_tree_can_be_run_at_both_sizes() {
    let catalogue = Catalogue::read(&root().join("experiments")).expect("sound files");
    assert!(!catalogue.experiments.is_empty());
    for size in [Size::Full, Size::Fast] {
        assert!(!all(&catalogue, size).runs.is_empty());
    }
}

#[test]
fn the_example_of_the_documentation_runs_and_holds() {
    let catalogue = catalogue(&example()).expect("it is sound");
    let work = all(&catalogue, Size::Fast);
    assert_eq!(work.runs.len(), 2 * 2 * 3, "two variants, two values, three seeds");
    let samples = run(&work, 2);
    assert_eq!(samples.len(), work.runs.len());
    let report = report(&work, &samples);
    let rows = report.rows().concat();
    assert_eq!((rows.len(), &rows[0].verdict), (1, &Verdict::Inside), "{rows:?}");
    assert_eq!(rows[0].value.map(|stat| stat.count), Some(3));
    let page = report.html();
    assert!(page.contains("<svg") && page.contains("simulated") && page.contains("E-1"));
    assert!(!page.contains("src=") && !page.contains("href=\"http"), "the page needs nothing but itself");
    let mut csv = Vec::new();
    report.write_csv(&mut csv).expect("memory does not fail");
    let csv = String::from_utf8(csv).expect("text");
    assert!(csv.starts_with("experiment,variant,point,seed,run,field,value,origin\n"));
    assert_eq!(csv.lines().filter(|line| line.contains(",goodput_gbps,")).count(), 12, "each run's once");
    let mut parquet = Vec::new();
    report.write_parquet(&mut parquet).expect("memory does not fail");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

/// However many run at once, and however little memory there is.
#[test]
fn the_pool_makes_no_difference() {
    let catalogue = catalogue(&example()).expect("it is sound");
    let work = all(&catalogue, Size::Fast);
    let hashes = |samples: &Samples| -> Vec<String> {
        samples.values().map(|sample| sample.report["trace_hash"].to_string()).collect()
    };
    assert_eq!(hashes(&run(&work, 1)), hashes(&run(&work, 4)));
}

#[test]
fn a_row_outside_its_band_fails_and_a_broken_run_cannot_be_judged() {
    let text = example().replace("min = 1.2, max = 20", "max = 0.5");
    let catalogue = catalogue(&text).expect("it is sound");
    let work = all(&catalogue, Size::Fast);
    let mut samples = run(&work, 2);
    let verdict = |samples: &Samples| report(&work, samples).rows().concat().remove(0).verdict;
    assert_eq!(verdict(&samples), Verdict::Outside);
    assert!(report(&work, &samples).html().contains("OUTSIDE"));
    for sample in samples.values_mut() {
        sample.failure = Some("a message was lost".to_owned());
    }
    let broken = verdict(&samples);
    assert!(matches!(&broken, Verdict::Unjudged(reason) if reason.contains("a message was lost")), "{broken:?}");
    assert!(broken.is_failure());
}

/// A link that is half as fast from the third millisecond on, and the series of what comes over it.
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
fn measures_of_series_are_those_of_a_stretch_of_time() {
    let catalogue = catalogue(SERIES).expect("it is sound");
    let work = all(&catalogue, Size::Full);
    let mut samples = run(&work, 2);
    let rows = report(&work, &samples).rows().concat();
    assert!(rows.iter().all(|row| row.verdict == Verdict::Inside), "{rows:?}");
    let page = report(&work, &samples).html();
    assert!(page.contains("time (ms)") && page.contains("<polyline"), "a line is drawn");
    // Of a run without slices nothing can be said, and nothing is drawn.
    samples.values_mut().for_each(|sample| sample.report["slices"] = serde_json::Value::Null);
    let broken = report(&work, &samples).rows().concat().remove(0).verdict;
    assert!(matches!(&broken, Verdict::Unjudged(reason) if reason.contains("`run.slice`")), "{broken:?}");
    assert!(report(&work, &samples).html().contains("No run of this panel"));
}

#[test]
fn mistakes_in_series_are_one_line_too() {
    let series = "field = \"slices.hosts.host-1.goodput_gbps\"";
    for (from, to, expected) in [
        ("between = [\"1ms\", \"2ms\"]", "between = [\"2ms\", \"1ms\"]", "ends before it begins"),
        ("between = [\"1ms\", \"2ms\"]", "between = [\"1ms\"]", "between"),
        ("between = [\"1ms\", \"2ms\"]", "between = [\"1ms\", \"2 moons\"]", "`2 moons`"),
        (series, "field = \"goodput_gbps\"", "measure[0].between: only series go on in time"),
        (series, "quantity = \"footprint\"", "measure[0].between: only series go on in time"),
        (
            series,
            "field = \"slices.hosts.host-1.goodput\"",
            "measure[0].between: only series go on in time: slices.hosts.*",
        ),
        ("unit = \"Gbit/s\"", "per = [\"packets_sent\"]", "measure[0].per: divides numbers; a series has"),
        ("kind = \"time\"", "kind = \"time\"\nrelative_to = \"irn\"", "plot[0].kind: time is the axis here"),
    ] {
        let said = catalogue(&SERIES.replacen(from, to, 1)).expect_err(to);
        assert!(said.contains(expected) && said.contains("paper/figure/experiment.toml"), "{to}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
    let number = format!("{SERIES}\n[[measure]]\nname = \"nacks\"\nlabel = \"NACKs\"\nfield = \"nacks\"\n")
        .replace("kind = \"time\"\nmeasures = [\"before\"]", "kind = \"time\"\nmeasures = [\"nacks\"]");
    let said = catalogue(&number).expect_err("a number has no time");
    assert!(said.contains("plot[0].measures: `nacks` has one value a run"), "{said}");
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

/// What the code computes without a run goes along axes, through checks and into plots like what runs measure.
#[test]
fn quantities_stand_where_measures_stand() {
    let catalogue = catalogue(QUANTITIES).expect("it is sound");
    for size in [Size::Full, Size::Fast] {
        let work = all(&catalogue, size);
        assert!(work.runs.is_empty(), "there is nothing to run");
        let samples = Samples::new();
        let report = report(&work, &samples);
        let rows = report.rows().concat();
        assert!(rows.iter().all(|row| row.verdict == Verdict::Inside), "{rows:?}");
        assert_eq!(rows[1].value.map(|stat| (stat.mean, stat.count)), Some((12.0, 1)));
        assert!(report.html().contains("<svg") && !report.html().contains("has given a number"));
    }
}

#[test]
fn mistakes_in_quantities_are_one_line_too() {
    let cases = [
        ("quantity = \"footprint\"", "quantity = \"footprin\"", "measure[0].quantity: there is no quantity `footprin`"),
        ("requests = 0", "", "variant `fasr` at queue pairs 1: give `requests`, a number"),
        ("pool_units", "pool_unit", "pool_unit"),
        ("quantity = \"footprint\"", "quantity = \"footprint\"\nfield = \"bytes\"", "measure[0].field: give either"),
        (
            "[[check]]\nrow = \"Q-1\"",
            "[[measure]]\nname = \"run\"\nlabel = \"run\"\nfield = \"bytes\"\n[[check]]\nrow = \"Q-1\"",
            "seeds: give 3",
        ),
        ("to = \"srnic\"", "to = \"irn\"", "check[0].value.to: there is no variant `irn`"),
    ];
    mistakes(QUANTITIES, refusal, &cases);
    let both =
        QUANTITIES.replace("requests = 0", "requests = 0\n[[measure]]\nname = \"r\"\nlabel = \"r\"\nfield = \"bytes\"");
    let both = both.replace("question =", "seeds = [1, 2, 3]\nquestion =");
    let said = catalogue(&both).expect_err("one or the other");
    assert!(said.contains("measure[1].quantity: stands alone"), "{said}");
}

#[test]
fn a_size_without_the_value_leaves_the_row_out() {
    let text = example().replace("scale = \"log\"", "scale = \"log\"\nfast = [\"0.1%\"]");
    let catalogue = catalogue(&text).expect("it is sound");
    let work = all(&catalogue, Size::Fast);
    let row = report(&work, &Samples::new()).rows().concat().remove(0);
    assert!(matches!(row.verdict, Verdict::LeftOut(_)) && !row.verdict.is_failure(), "{row:?}");
    let full = all(&catalogue, Size::Full);
    let row = report(&full, &Samples::new()).rows().concat().remove(0);
    assert!(matches!(row.verdict, Verdict::Unjudged(_)), "nothing has run: {row:?}");
}

#[test]
fn runs_are_shared_kept_and_found_again() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for figure in ["one", "two"] {
        let place = folder.path().join("paper").join(figure);
        fs::create_dir_all(&place).expect("folders are made");
        fs::write(place.join("experiment.toml"), example()).expect("it is written");
    }
    let catalogue = Catalogue::read(folder.path()).expect("sound files");
    let work = all(&catalogue, Size::Fast);
    assert_eq!((work.layouts.len(), work.runs.len()), (2, 12), "both figures stand on the same runs");
    let store = Store::open(&folder.path().join("runs")).expect("a folder");
    let run = work.runs.values().next().expect("there are some");
    assert_eq!(store.get(&run.key), None);
    let sample = run.run();
    store.put(&sample).expect("it is written");
    assert_eq!(store.get(&run.key).map(|found| found.key), Some(sample.key));
    let full = all(&catalogue, Size::Full);
    assert!(!full.runs.contains_key(&run.key), "another plan is another run");
}

/// A key that only one variant's transport has may stand at a point of an axis that moves both.
#[test]
fn a_point_may_say_something_for_one_variant_alone() {
    let only = |variant: &str| {
        let point = format!("{{ label = \"1%\", x = 1, only = {{ {variant} = {{ \"transport.cap_packets\" = 77 }} }},");
        example().replace("{ label = \"1%\", x = 1,", &point)
    };
    let text = only("irn");
    let catalogue_of_irn = catalogue(&text).expect("it is sound");
    let work = all(&catalogue_of_irn, Size::Fast);
    let capped = work.runs.values().filter(|spec| spec.task.plan.contains("cap_packets = 77")).count();
    assert_eq!((capped, work.runs.len()), (3, 12), "of two variants and two values, one, with three seeds");
    let said = catalogue(&only("iwarp")).expect_err("no such variant");
    assert!(said.contains("axis[0].point.only: there is no variant `iwarp`"), "{said}");
}

#[test]
fn a_name_is_an_experiment_a_row_a_paper_or_all() {
    let catalogue = catalogue(&example()).expect("it is sound");
    for name in ["paper/figure", "paper", "all", "E-1", "e-1"] {
        assert_eq!(catalogue.select(&[name.to_owned()]).map(|found| found.len()), Ok(1), "{name}");
    }
    let said = catalogue.select(&["fig9".to_owned()]).expect_err("there is none").to_string();
    assert!(said.contains("`fig9`") && said.contains("--list"), "{said}");
}

/// What is wrong, by what in the example is replaced by what.
#[test]
fn mistakes_are_one_line_with_file_key_and_reason() {
    let cases = [
        ("seeds = [1, 2, 3]", "seeds = [1]", "seeds: give 3 seeds at least"),
        ("question =", "qestion =", "unknown field `qestion`"),
        ("of = \"irn\"", "of = \"iwarp\"", "check[0].value.of: there is no variant `iwarp`; there are: irn, gbn"),
        ("measures = [\"goodput\"], of", "measures = [\"speed\"], of", "check[0].value.measures: there is no measure"),
        (", at = { loss = \"1%\" }", "", "check[0].value.at: say where on axis `loss`"),
        (", at = { loss = \"1%\" }", ", over = [\"loss\"]", "check[0].value.take: there are several values"),
        (
            "at = { loss = \"1%\" }",
            "at = { loss = \"2%\" }",
            "there is no value of that axis `2%`; there are: 0.1%, 1%",
        ),
        ("band = { min = 1.2, max = 20 }", "band = {}", "check[0].band: without min and max it cannot fail"),
        ("kind = \"ratio\"", "kind = \"product\"", "check[0].value.kind: unknown variant `product`"),
        ("name = \"gbn\"", "name = \"irn\"", "variant: `irn` is there twice"),
        ("axis = \"loss\"", "axis = \"load\"", "plot[0].axis: there is no axis `load`"),
        ("mtu = 1024", "mtu = ", "not TOML"),
        (
            "field = \"goodput_gbps\"",
            "field = \"goodput\"",
            "measure[0].field: no report has a number `goodput`; the most alike: goodput_gbps,",
        ),
        ("unit = \"Gbit/s\"", "per = [\"drops.buffers\"]", "measure[0].per: no report has a number `drops.buffers`"),
        ("field = \"goodput_gbps\"", "", "measure[0].field: give either a field of the report or a quantity"),
    ];
    mistakes(&example(), misread, &cases);
}

#[test]
fn a_plan_that_cannot_be_run_names_the_variant_and_the_key() {
    let text = example().replace("name = \"roce-gbn\", rto", "name = \"roce-gbn\", rtoo");
    let catalogue = catalogue(&text).expect("the experiment itself is sound");
    let selected = catalogue.select(&["all".to_owned()]).expect("all is always there");
    let said = Work::new(selected, Size::Full, None).expect_err("no such option").to_string();
    assert!(said.contains("variant `gbn` at loss 0.1%") && said.contains("rtoo"), "{said}");
}
