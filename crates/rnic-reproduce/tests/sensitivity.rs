//! Sensitivity studies: settings, runs, effects, reports, and open parameters that are refused.

mod common;

use common::{assert_errors, catalogue, example, read_error, root, run};
use rnic_reproduce::sensitivity::{Design, Finding, Sensitivity, Study};
use rnic_reproduce::{Catalogue, Files, Size, Verdict};

/// Open parameters for the example of the documentation: the first removes the loss that its row is about.
const OPEN: &str = r#"
[[open]]
name = "depth"
label = "Writes in flight"
key = "workload.depth"
values = [32, 128]
why = "Not stated."

[[open]]
name = "sound"
label = "other link"
point = [{ label = "without loss", set = { fault = [] } }]
why = "Removes what the row is about."
"#;

fn study(catalogue: &Catalogue, design: Design) -> Study {
    let selected = catalogue.select(&["E-1".to_owned()]).expect("the row exists");
    Study::new(&selected[0], design).expect("it has open parameters")
}

fn with_open() -> String {
    // The axis sets the faults, so that it would be an error to vary them as an open parameter, too.
    let text = example();
    let axis = text.find("[[axis]]").expect("an axis");
    let measure = text.find("[[measure]]").expect("a measure");
    let fault = "set = { fault = [{ kind = \"drop\", packets = \"data\", probability = \"1%\" }] }\n";
    let plot = text.find("[[plot]]").expect("a plot");
    let rest = text[measure..plot].replace("at = { loss = \"1%\" }", "at = {}");
    format!("{fault}{}{rest}{OPEN}", &text[..axis])
}

fn findings(study: &Study) -> Vec<Finding> {
    let work = study.work(Size::Fast, None).expect("every setting can be run");
    let samples = run(&work, 2);
    study.findings(&work, &samples)
}

#[test]
fn the_parameter_that_moves_a_row_most_is_named_first() {
    let catalogue = catalogue(&with_open()).expect("the experiment is valid");
    let study = study(&catalogue, Design::Each);
    assert_eq!(study.settings(), 1 + 2 + 1);
    let findings = findings(&study);
    assert_eq!(findings.len(), 1);
    let finding = &findings[0];
    assert_eq!(finding.row.verdict, Verdict::Inside);
    assert_eq!(finding.effects[0].parameter, "other link", "{finding:?}");
    assert_eq!((finding.effects[0].changes, finding.effects[1].changes), (1, 2));
    let without_loss = &finding.outcomes[2];
    assert_eq!(without_loss.setting, [("other link".to_owned(), "without loss".to_owned())]);
    assert_eq!(without_loss.verdict, Verdict::Outside, "go-back-N is worse without loss, too");
    assert_eq!(finding.holds(), (3, 4));
    let value = finding.value().expect("it is judged");
    let changed = without_loss.value.expect("it is judged");
    assert!((finding.effects[0].mean_change - (value - changed).abs()).abs() < 1e-9);
}

#[test]
fn a_screening_varies_all_parameters_together() {
    let catalogue = catalogue(&with_open()).expect("the experiment is valid");
    let study = study(&catalogue, Design::Morris);
    let finding = &findings(&study)[0];
    assert_eq!(study.settings(), 6, "not all combinations of three and two values");
    assert!(finding.outcomes.iter().any(|outcome| outcome.setting.len() == 2), "{finding:?}");
    assert_eq!(finding.effects[0].parameter, "other link");
    assert_eq!(finding.effects[0].changes, 10);
}

/// A row of a figure with several needs only what it reads.
#[test]
fn only_runs_that_the_row_reads_are_executed() {
    let open = OPEN.split_once("\n[[open]]\nname = \"sound\"").expect("two parameters").0;
    let catalogue = catalogue(&format!("{}{open}", example())).expect("the experiment is valid");
    let work = study(&catalogue, Design::Each);
    let work = work.work(Size::Fast, None).expect("it can be run");
    // Of two losses the row reads one; two variants, three seeds, three settings.
    assert_eq!(work.runs.len(), 2 * 3 * 3);
}

#[test]
fn reports_name_parameters_values_and_verdicts() {
    let catalogue = catalogue(&with_open()).expect("the experiment is valid");
    let study = study(&catalogue, Design::Each);
    let findings = findings(&study);
    let report = Sensitivity {
        studies: &[(&study, findings)],
        size: Size::Fast,
        command: "rnic reproduce E-1 --fast --sensitivity",
        machine: "a machine",
        runs: 24,
    };
    let page = report.html();
    for part in ["<svg", "Writes in flight", "without loss", "Not stated.", "Inside in <strong>3 of 4"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("src=") && !page.contains("href=\"http"), "the page refers to other resources");
    let table = report.markdown();
    for part in ["| E-1 | paper/figure | ", "| 3 of 4 | other link | outside with other link: without loss |"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn a_row_that_is_left_out_is_not_judged() {
    let text = with_open().replace("band = { min = 1.2", "fast = { skip = \"too short\" }\nband = { min = 1.2");
    let catalogue = catalogue(&text).expect("the experiment is valid");
    let study = study(&catalogue, Design::Each);
    let findings = findings(&study);
    assert_eq!(findings[0].holds(), (0, 0));
    let report = Sensitivity {
        studies: &[(&study, findings)],
        size: Size::Fast,
        command: "rnic reproduce E-1 --fast --sensitivity",
        machine: "a machine",
        runs: 24,
    };
    assert!(report.markdown().contains("| 0 of 0 | \u{2013} | not judged |"), "{}", report.markdown());
}

#[test]
fn an_experiment_without_open_parameters_has_no_study() {
    let catalogue = catalogue(&example()).expect("the experiment is valid");
    let selected = catalogue.select(&["E-1".to_owned()]).expect("the row exists");
    assert!(Study::new(&selected[0], Design::Each).is_none());
}

#[test]
fn open_parameters_with_mistakes_are_refused() {
    let good = with_open();
    assert_errors(
        &good,
        read_error,
        &[
            ("why = \"Not stated.\"", "", "open[0].why: is missing; say what the paper says"),
            ("values = [32, 128]", "values = [32, 128]\nfast = [32]", "open[0].fast: does not apply"),
            ("name = \"sound\"", "name = \"depth\"", "`depth` is defined twice"),
            ("values = [32, 128]", "values = []", "open[0].values: is ambiguous or missing"),
            ("values = [32, 128]", "values = [32, 32]", "`32` is defined twice"),
            (
                "set = { fault = [] } }]\nwhy",
                "only = { none = { depth = 1 } } }]\nwhy",
                "open[1].point.only: there is no variant",
            ),
        ],
    );
    let varied = format!("{}{OPEN}", example());
    assert!(read_error(&varied).contains("open[1].key: sets `fault`, which an axis varies"), "{}", read_error(&varied));
    // Plans of settings are not read before they are needed.
    assert!(catalogue(&good.replace("workload.depth", "workload.deep")).is_ok());
}

#[test]
fn every_setting_of_the_experiments_of_the_tree_can_be_run() {
    let catalogue = Catalogue::read(Files::Disk, &root().join("experiments")).expect("the experiment files are valid");
    let selected = catalogue.select(&["all".to_owned()]).expect("`all` is a valid name");
    let mut count = 0;
    for (design, size) in [(Design::Each, Size::Full), (Design::Morris, Size::Fast)] {
        for study in selected.iter().filter_map(|selected| Study::new(selected, design)) {
            let work = study.work(size, None).unwrap_or_else(|error| panic!("{}: {error}", study.id()));
            assert!(!work.runs.is_empty(), "{}", study.id());
            count += 1;
        }
    }
    assert!(count > 0, "no experiment has open parameters");
}

#[test]
fn a_setting_that_is_not_valid_is_named() {
    let catalogue = catalogue(&with_open().replace("workload.depth", "workload.deep")).expect("the file is valid");
    let study = study(&catalogue, Design::Each);
    let error = study.work(Size::Fast, None).expect_err("there is no such key").to_string();
    assert!(error.contains("deep") && error.contains("experiment.toml") && !error.contains('\n'), "{error}");
}
