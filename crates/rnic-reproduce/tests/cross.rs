//! The cross-checks with csg-htsim and ns-3 (`docs/cross-checks.md`), in their small version: a change of the simulator
//! that moves a number out of its tolerance fails here.

mod common;

use common::{report, root, run};
use rnic_reproduce::{Catalogue, Files, Size, Verdict, Work};

#[test]
fn cross_checks_are_inside_their_tolerances() {
    let catalogue = Catalogue::read(Files::Disk, &root().join("experiments")).expect("the experiment files are valid");
    let selected = catalogue.select(&["cross".to_owned()]).expect("the experiments exist");
    let work = Work::new(selected, Size::Fast, None).expect("the plans can be run");
    let samples = run(&work, 2);
    let rows = report(&work, &samples).rows().concat();
    assert_eq!(rows.len(), 75, "rows of these experiments");
    let failed: Vec<_> = rows.iter().filter(|row| row.is_failure()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let outside = rows.iter().filter(|row| row.verdict == Verdict::Outside).map(|row| row.row.as_str());
    let dcqcn = ["X-N10", "X-N12", "X-N14", "X-N15", "X-N9"];
    let irn = ["X-N16", "X-N17", "X-N18", "X-N19", "X-N22", "X-N23", "X-N24"];
    let known = [&dcqcn[..], &irn[..], &["X-H30", "X-H24"]].concat();
    assert_eq!(outside.collect::<Vec<_>>(), known, "rows that are known as outside");
}
