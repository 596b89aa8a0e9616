//! Lists experiments and quantities.

use std::collections::BTreeSet;

use rnic_reproduce::quantity::QUANTITIES;
use rnic_reproduce::{Catalogue, Experiment};
use serde::Serialize;

use crate::console;
use crate::table;

#[derive(Serialize)]
struct Entry<'c> {
    id: &'c str,
    figure: &'c str,
    rows: Vec<&'c str>,
    question: &'c str,
}

impl<'c> Entry<'c> {
    fn of(experiment: &'c Experiment) -> Self {
        let mut known = BTreeSet::new();
        let rows = experiment.check.iter().map(|check| check.row.as_str()).filter(|row| known.insert(*row)).collect();
        Self { id: &experiment.id, figure: &experiment.figure, rows, question: &experiment.question }
    }
}

/// Prints every experiment with its rows.
pub fn experiments(catalogue: &Catalogue, json: bool) {
    let entries: Vec<Entry<'_>> = catalogue.experiments.iter().map(Entry::of).collect();
    let row = |entry: &Entry<'_>| vec![entry.id.to_owned(), entry.rows.join(" "), entry.question.to_owned()];
    let text = table::explained(0, entries.iter().map(row).collect());
    console::result(&text, json.then(|| serde_json::json!({ "experiments": entries })).as_ref());
}

/// Prints every quantity that an experiment can measure.
pub fn quantities(json: bool) {
    let text =
        table::explained(0, QUANTITIES.iter().map(|one| vec![one.name.into(), one.description.into()]).collect());
    let object =
        |one: &rnic_reproduce::quantity::Quantity| serde_json::json!({ "name": one.name, "what": one.description });
    let all: Vec<_> = QUANTITIES.iter().map(object).collect();
    console::result(&text, json.then(|| serde_json::json!({ "quantities": all })).as_ref());
}
