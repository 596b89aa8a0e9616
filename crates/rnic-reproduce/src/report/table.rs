//! The verdicts as a table in Markdown, for documents and commit messages.

use std::fmt::Write;

use super::Report;
use crate::judge::{Row, Verdict};
use crate::work::Size;

pub(super) fn table(report: &Report<'_>) -> String {
    let rows: Vec<Row> = report.rows().into_iter().flatten().collect();
    let count = |wanted: fn(&Verdict) -> bool| rows.iter().filter(|row| wanted(&row.verdict)).count();
    let inside = count(|verdict| *verdict == Verdict::Inside);
    let outside = count(|verdict| *verdict == Verdict::Outside);
    let not_judged = count(|verdict| matches!(verdict, Verdict::Unjudged(_)));
    let size = if report.work.size == Size::Fast { "small version" } else { "full size" };
    let mut text = format!(
        "Written by `{}`, {size}: {inside} rows inside their bands, {outside} outside, {not_judged} not judged.\n\
         All of OpenRNIC's numbers are {}; in brackets the least and the largest over the seeds.\n\n\
         | row | experiment | what | the paper | found | band | |\n|---|---|---|---|---|---|---|\n",
        report.command,
        report.origins(&rows)
    );
    for row in &rows {
        let Row { row: id, experiment, what, paper, band, .. } = row;
        let verdict = match &row.verdict {
            Verdict::Inside => "inside",
            Verdict::Outside => "**OUTSIDE**",
            Verdict::Unjudged(_) => "**not judged**",
            Verdict::LeftOut(_) => "left out",
        };
        writeln!(
            text,
            "| {id} | {experiment} | {} | {} | {} | {band} | {verdict} |",
            cell(what),
            cell(paper),
            row.found().unwrap_or_else(|| "\u{2013}".to_owned())
        )
        .expect("writing to a string succeeds");
    }
    text
}

/// Escapes vertical bars, which would end the cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
