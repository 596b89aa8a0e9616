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
        let note = row.note_on_known();
        let note = match &row.verdict {
            Verdict::Outside => {
                let known = note.map_or_else(String::new, |note| format!(" ({note})"));
                format!("outside{known}; the paper: {}", row.paper)
            }
            Verdict::Unjudged(reason) => format!("cannot be judged: {reason}"),
            Verdict::LeftOut(reason) => format!("left out: {reason}"),
            Verdict::Inside => match note {
                Some(note) => note,
                None => continue,
            },
        };
        text.push_str(&format!("{}: {note}\n", row.row));
    }
    let count = |is: fn(&Verdict) -> bool| outcome.rows.iter().filter(|row| is(&row.verdict)).count();
    let known = outcome.rows.iter().filter(|row| row.verdict == Verdict::Outside && row.known.is_some()).count();
    text.push_str(&format!(
        "{} rows inside their band, {} outside ({known} of them known), {} cannot be judged, {} left out; {}, {} \
         runs\n",
        count(|verdict| *verdict == Verdict::Inside),
        count(|verdict| *verdict == Verdict::Outside),
        count(|verdict| matches!(verdict, Verdict::Unjudged(_))),
        count(|verdict| matches!(verdict, Verdict::LeftOut(_))),
        outcome.origins,
        outcome.runs,
    ));
    text
}
