//! The rows of studies as a table in Markdown: for which settings each is inside its band.

use std::fmt::Write;

use rnic_page::number::{short, with_unit};

use super::{Finding, Outcome, Sensitivity};
use crate::judge::{Row, Verdict};
use crate::report::cell;
use crate::work::Size;

/// Text where there is none.
const NONE: &str = "\u{2013}";

pub(super) fn tables(report: &Sensitivity<'_>) -> String {
    let size = if report.size == Size::Fast { "small version" } else { "full size" };
    let mut text = format!(
        "Written by `{}`, {size}, {} runs. In brackets the range over all settings.\n\n\
         | row | experiment | what | band | found | inside in | moved most by | settings |\n\
         |---|---|---|---|---|---|---|---|\n",
        report.command, report.runs
    );
    for (study, findings) in report.studies {
        for finding in findings {
            text.push_str(&line(study.id(), finding));
        }
    }
    text
}

fn line(id: &str, finding: &Finding) -> String {
    let Row { row, what, band, unit, .. } = &finding.row;
    let (inside, judged) = finding.holds();
    let found = finding.value().map_or_else(|| NONE.to_owned(), |value| with_unit(value, unit));
    let verdict = if finding.row.verdict == Verdict::Outside { " **OUTSIDE**" } else { "" };
    let range =
        finding.range().map_or_else(String::new, |(least, most)| format!(" ({} to {})", short(least), short(most)));
    let effect = finding.effects.first().filter(|effect| effect.mean_change > 0.0);
    let effect = effect.map_or(NONE, |effect| effect.parameter.as_str());
    let mut text = String::new();
    writeln!(
        text,
        "| {row} | {id} | {} | {band} | {found}{range}{verdict} | {inside} of {judged} | {} | {} |",
        cell(what),
        cell(effect),
        cell(&boundary(finding, inside, judged))
    )
    .expect("writing to a string succeeds");
    text
}

/// Lists the settings with the rarer verdict.
fn boundary(finding: &Finding, inside: usize, judged: usize) -> String {
    let (wanted, name) =
        if inside * 2 <= judged { (Verdict::Inside, "inside with") } else { (Verdict::Outside, "outside with") };
    let outcomes = finding.outcomes.iter().filter(|outcome| outcome.verdict == wanted);
    let settings: Vec<String> = outcomes.map(setting).collect();
    match settings.as_slice() {
        [] if judged == 0 => "not judged".to_owned(),
        [] if inside == judged => "inside with all".to_owned(),
        [] if inside == 0 => "outside with all".to_owned(),
        [] => format!("{name} none of the others"),
        settings => format!("{name} {}", settings.join("; ")),
    }
}

/// Returns the parameters that differ from the plan, with their values.
pub(super) fn setting(outcome: &Outcome) -> String {
    let one = |(label, value): &(String, String)| format!("{label}: {value}");
    outcome.setting.iter().map(one).collect::<Vec<_>>().join(", ")
}
