//! The experiments in the source tree: no result that can be reproduced is missing, and each lists its deviations
//! from the paper.

use std::collections::BTreeSet;
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
