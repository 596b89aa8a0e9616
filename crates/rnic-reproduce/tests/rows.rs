//! The experiments in the source tree: no result that can be reproduced is missing, and each lists its deviations
//! from the paper.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rnic_reproduce::{Catalogue, Files};

fn catalogue() -> Catalogue {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    Catalogue::read(Files::Disk, &root).expect("every experiment can be read")
}

/// Checks that each experiment states how it differs from its paper's.
#[test]
fn every_experiment_with_runs_lists_its_deviations() {
    for experiment in catalogue().experiments.iter().filter(|experiment| experiment.needs_runs()) {
        let id = &experiment.id;
        assert!(!experiment.deviations.is_empty(), "{id} lists no deviations");
        assert!(experiment.fast.why.is_some(), "{id}: the small version has no reason");
    }
}

/// Checks that the rows that their experiments call known as outside are those that `docs/results.md` marks, and that
/// the named heading exists, names the row, and so explains it.
#[test]
fn rows_known_as_outside_are_those_of_the_results_and_are_explained() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).expect("a page of the documentation");
    let (results, reasons) = (read("results.md"), read("outside.md"));
    let headings: BTreeSet<&str> = reasons.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let marked: BTreeSet<String> = results
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("**OUTSIDE**"))
        .map(|line| line.split(" | ").take(3).collect::<Vec<_>>().join(" | "))
        .collect();
    let mut known = BTreeSet::new();
    for experiment in &catalogue().experiments {
        for check in &experiment.check {
            let of_small = check.fast.as_ref().and_then(|fast| fast.known.as_ref());
            for text in check.known.iter().chain(of_small) {
                let heading = text.strip_prefix("docs/outside.md: ");
                let heading = heading.unwrap_or_else(|| panic!("{}: {text}", experiment.id));
                assert!(headings.contains(heading), "{}: docs/outside.md has no heading `{heading}`", experiment.id);
                assert!(heading.contains(&check.row), "{}: `{heading}` does not name {}", experiment.id, check.row);
            }
            if check.known.is_none() {
                continue;
            }
            known.insert(format!("| {} | {} | {}", check.row, experiment.id, check.what.replace('|', "\\|")));
        }
    }
    assert_eq!(known, marked, "rows known as outside, and those of docs/results.md");
}

/// Checks that `docs/claims.md` names each row of a paper once, with as many rows inside as `docs/results.md` has.
#[test]
fn claims_are_counted_as_in_the_results() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let lines = |name: &str| -> Vec<Vec<String>> {
        let text = fs::read_to_string(docs.join(name)).expect("a page of the documentation");
        let rows = text.lines().filter(|line| line.starts_with("| "));
        rows.map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_owned()).collect()).collect()
    };
    let mut found: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for cells in lines("results.md").iter().filter(|cells| cells.len() == 7 && !cells[0].starts_with("X-")) {
        let (inside, all) = found.entry(cells[0].clone()).or_default();
        *inside += u32::from(cells[6] == "inside");
        *all += u32::from(["inside", "**OUTSIDE**"].contains(&cells[6].as_str()));
    }
    found.retain(|_, (_, all)| *all > 0);
    assert!(found.len() > 80, "{}", found.len());
    for cells in lines("claims.md").iter().filter(|cells| cells.len() == 4 && cells[2].contains(" of ")) {
        let counts = cells[0].split(", ").map(|row| found.remove(row).unwrap_or_else(|| panic!("{row}: not a result")));
        let (inside, all) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        assert_eq!(cells[2], format!("{inside} of {all}"), "docs/claims.md, {}", cells[0]);
    }
    assert!(found.is_empty(), "docs/claims.md does not name {:?}", found.keys());
}

#[test]
fn every_row_has_an_experiment() {
    let catalogue = catalogue();
    let checks = catalogue.experiments.iter().flat_map(|experiment| &experiment.check);
    let rows: BTreeSet<&str> = checks.map(|check| check.row.as_str()).collect();
    let expected = IRN.map(|number| format!("I-R{number}")).into_iter();
    let expected = expected.chain(FASR.map(|number| format!("R-R{number}")));
    let expected = expected.chain(SCR.map(|number| format!("S-R{number}")));
    for row in expected {
        assert!(rows.contains(row.as_str()), "{row} is in no experiment");
    }
}

/// Numbers of IRN's results that have an experiment.
const IRN: [u32; 21] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 25, 26];
/// Numbers of FaSR's results that have an experiment.
const FASR: [u32; 15] = [1, 2, 4, 5, 6, 7, 8, 10, 12, 15, 16, 17, 19, 20, 21];
/// Numbers of SCR's results that have an experiment.
const SCR: [u32; 23] = [2, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30];
