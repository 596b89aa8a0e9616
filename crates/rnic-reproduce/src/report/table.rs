//! The verdicts in Markdown: a page for documents, claim by claim and then row by row.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::Report;
use crate::SOURCES;
use crate::judge::{Row, Verdict};
use crate::work::Size;

pub(super) fn table(report: &Report<'_>) -> String {
    let rows: Vec<Row> = report.rows().into_iter().flatten().collect();
    let mut text = provenance(report, &rows);
    text.push_str("## Claim by claim\n\n| row | claim | inside | in | known causes |\n|---|---|---|---|---|\n");
    for id in distinct(rows.iter().map(|row| row.row.as_str())) {
        let of_claim: Vec<&Row> = rows.iter().filter(|row| row.row == id).collect();
        writeln!(text, "{}", claim(id, &of_claim)).expect(WRITES);
    }
    for paper in distinct(rows.iter().map(paper_of)) {
        write!(
            text,
            "\n## {paper}\n\n| row | experiment | what | the paper | found | band | |\n|---|---|---|---|---|---|---|\n"
        )
        .expect(WRITES);
        for row in rows.iter().filter(|row| paper_of(row) == paper) {
            writeln!(text, "{}", line(row)).expect(WRITES);
        }
    }
    text
}

const WRITES: &str = "writing to a string succeeds";

/// Returns what was run, when, from which sources and where.
fn provenance(report: &Report<'_>, rows: &[Row]) -> String {
    let count = |wanted: fn(&Verdict) -> bool| rows.iter().filter(|row| wanted(&row.verdict)).count();
    let inside = count(|verdict| *verdict == Verdict::Inside);
    let outside = count(|verdict| *verdict == Verdict::Outside);
    let not_judged = count(|verdict| matches!(verdict, Verdict::Unjudged(_)));
    let size = if report.work.size == Size::Fast { "small version" } else { "full size" };
    let runs: Vec<_> = report.work.runs.keys().filter_map(|key| report.samples.get(key)).collect();
    let hours = runs.iter().map(|sample| sample.wall_s).sum::<f64>() / 3_600.0;
    let fewest = report.work.layouts.iter().filter(|layout| layout.selected.experiment.needs_runs());
    let fewest = fewest.map(|layout| layout.seeds.len()).min();
    let seeds = fewest.map_or_else(String::new, |seeds| format!(", at least {seeds} seeds each"));
    format!(
        "# Rows of papers, and what was found\n\n\
         Written by `{}`, {size}: {inside} rows inside their bands, {outside} outside, {not_judged} not judged.\n\
         {} runs{seeds}, each on one processor, {hours:.1} hours in all; {} of them were kept from earlier commands \
         with the same sources.\n\
         Sources {SOURCES}; machine: {}.\n\
         All of OpenRNIC's numbers are {}; in brackets the least and the largest over the seeds.\n\n",
        report.command,
        runs.len(),
        report.kept,
        report.machine,
        report.origins(rows)
    )
}

/// Returns the line of a claim, whose rows are `rows`: how many are inside their bands, in which experiments, and where
/// causes of the others are written.
fn claim(id: &str, rows: &[&Row]) -> String {
    let judged = rows.iter().filter(|row| !matches!(row.verdict, Verdict::LeftOut(_)));
    let (inside, judged) =
        judged.fold((0, 0), |(inside, all), row| (inside + u32::from(row.verdict == Verdict::Inside), all + 1));
    let join = |texts: Vec<&str>, separator| texts.join(separator);
    let claims = join(distinct(rows.iter().map(|row| row.paper.as_str())), "; ");
    let experiments = join(distinct(rows.iter().map(|row| row.experiment.as_str())), ", ");
    let outside = rows.iter().filter(|row| row.verdict == Verdict::Outside);
    let causes = join(distinct(outside.filter_map(|row| row.known.as_deref())), ", ");
    format!("| {id} | {} | {inside} of {judged} | {experiments} | {} |", cell(&claims), cell(&causes))
}

fn line(row: &Row) -> String {
    let Row { row: id, experiment, what, paper, band, .. } = row;
    let verdict = match &row.verdict {
        Verdict::Inside => "inside",
        Verdict::Outside => "**OUTSIDE**",
        Verdict::Unjudged(_) => "**not judged**",
        Verdict::LeftOut(_) => "left out",
    };
    let found = row.found().unwrap_or_else(|| "\u{2013}".to_owned());
    format!("| {id} | {experiment} | {} | {} | {found} | {band} | {verdict} |", cell(what), cell(paper))
}

/// Returns the paper of a row: the folder of its experiment.
fn paper_of(row: &Row) -> &str {
    row.experiment.split_once('/').map_or(&row.experiment, |(paper, _)| paper)
}

/// Returns each text once, in the order of first appearance.
fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(*text)).collect()
}

/// Escapes vertical bars, which would end the cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
