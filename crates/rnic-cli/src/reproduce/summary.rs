//! The rows of a report as a table.

use rnic_reproduce::{Row, Size, Verdict};
use serde::{Serialize, Serializer};

use crate::table;

/// Results of a command.
#[derive(Serialize)]
pub struct Outcome<'o> {
    /// Size of the experiments.
    #[serde(serialize_with = "size_name")]
    pub size: Size,
    /// The rows.
    pub rows: &'o [Row],
    /// Number of runs on which the rows are based.
    pub runs: usize,
    /// Machine on which the command ran.
    pub machine: &'o str,
    /// Sources of the numbers in the rows; for measured numbers, with the conditions of the measurement.
    pub origins: String,
    /// Duration of the command, in seconds.
    pub wall_s: f64,
}

fn size_name<S: Serializer>(size: &Size, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match size {
        Size::Full => "full",
        Size::Fast => "fast",
    })
}

/// Returns a table of rows for terminals, and notes on individual rows.
pub fn text(outcome: &Outcome<'_>) -> String {
    let cells = |row: &Row| {
        vec![
            row.row.clone(),
            row.what.clone(),
            row.found().unwrap_or_else(|| "-".to_owned()),
            row.band.to_string(),
            row.verdict.name().to_owned(),
        ]
    };
    let heads = ["row", "what", "found (least to most)", "band", "verdict"];
    let mut text = table::results(&heads, outcome.rows.iter().map(cells).collect());
    for row in outcome.rows {
        match &row.verdict {
            Verdict::Outside => text.push_str(&format!("{}: outside; the paper: {}\n", row.row, row.paper)),
            Verdict::Unjudged(reason) => text.push_str(&format!("{}: cannot be judged: {reason}\n", row.row)),
            Verdict::LeftOut(reason) => text.push_str(&format!("{}: left out: {reason}\n", row.row)),
            Verdict::Inside => {}
        }
    }
    let count = |is: fn(&Verdict) -> bool| outcome.rows.iter().filter(|row| is(&row.verdict)).count();
    text.push_str(&format!(
        "{} rows inside their band, {} outside, {} cannot be judged, {} left out; {}, {} runs\n",
        count(|verdict| *verdict == Verdict::Inside),
        count(|verdict| *verdict == Verdict::Outside),
        count(|verdict| matches!(verdict, Verdict::Unjudged(_))),
        count(|verdict| matches!(verdict, Verdict::LeftOut(_))),
        outcome.origins,
        outcome.runs,
    ));
    text
}
