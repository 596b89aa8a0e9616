//! The experiments that come along: no row that can be run is forgotten, none hides how it differs.

use std::collections::BTreeSet;
use std::path::Path;

use rnic_reproduce::Catalogue;

fn catalogue() -> Catalogue {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    Catalogue::read(&root).expect("every experiment can be read")
}

/// What says how an experiment differs from its paper's is part of it.
#[test]
fn every_experiment_that_runs_something_says_how_it_differs() {
    for experiment in catalogue().experiments.iter().filter(|experiment| experiment.needs_runs()) {
        let id = &experiment.id;
        assert!(!experiment.deviations.is_empty(), "{id} differs in nothing?");
        assert!(experiment.fast.why.is_some(), "{id}: what is lost in the small version?");
    }
}

#[test]
fn no_row_is_forgotten() {
    let catalogue = catalogue();
    let checks = catalogue.experiments.iter().flat_map(|experiment| &experiment.check);
    let rows: BTreeSet<&str> = checks.map(|check| check.row.as_str()).collect();
    let expected =
        IRN.map(|number| format!("I-R{number}")).into_iter().chain(FASR.map(|number| format!("R-R{number}")));
    for row in expected {
        assert!(rows.contains(row.as_str()), "{row} is in no experiment");
    }
}

/// Of IRN's results, those that have an experiment.
const IRN: [u32; 21] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 25, 26];
/// Of FaSR's.
const FASR: [u32; 15] = [1, 2, 4, 5, 6, 7, 8, 10, 12, 15, 16, 17, 19, 20, 21];
