//! The values of rows in all settings as tables in Markdown.

use std::fmt::Write;

use rnic_page::number::with_unit;

use super::{Finding, Outcome, Sensitivity};
use crate::judge::{Row, Verdict};
use crate::work::Size;

/// Value in tables where there is none.
const NONE: &str = "\u{2013}";

pub(super) fn tables(report: &Sensitivity<'_>) -> String {
    let size = if report.size == Size::Fast { "small version" } else { "full size" };
    let mut text = format!("Written by `{}`, {size}, {} runs.\n", report.command, report.runs);
    for (study, findings) in report.studies {
        for finding in findings {
            text.push_str(&section(study.id(), finding));
        }
    }
    text
}

fn section(id: &str, finding: &Finding) -> String {
    let Row { row, what, paper, band, unit, .. } = &finding.row;
    let (inside, judged) = finding.holds();
    let mut text = format!(
        "\n### {row}: {what}\n\n`{id}`. The paper: {paper}. Band: {band}{}. Inside in {inside} of {judged} \
         settings.\n\n\
         | setting | found | |\n|---|---|---|\n",
        if unit.is_empty() { String::new() } else { format!(" ({unit})") }
    );
    let mut line = |setting: &str, value: Option<f64>, verdict: &Verdict| {
        let value = value.map_or_else(|| NONE.to_owned(), |value| with_unit(value, unit));
        writeln!(text, "| {} | {value} | {} |", setting.replace('|', "\\|"), verdict_text(verdict))
            .expect("writing to a string succeeds");
    };
    line("as in the plan", finding.value(), &finding.row.verdict);
    for outcome in &finding.outcomes {
        line(&setting(outcome), outcome.value, &outcome.verdict);
    }
    text
}

/// Returns the parameters that differ from the plan, with their values.
pub(super) fn setting(outcome: &Outcome) -> String {
    let one = |(label, value): &(String, String)| format!("{label}: {value}");
    let all: Vec<String> = outcome.setting.iter().map(one).collect();
    if all.is_empty() { "as in the plan".to_owned() } else { all.join(", ") }
}

fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Inside => "inside".to_owned(),
        Verdict::Outside => "**OUTSIDE**".to_owned(),
        Verdict::Unjudged(reason) | Verdict::LeftOut(reason) => {
            format!("{}: {}", verdict.name(), reason.replace('|', "\\|"))
        }
    }
}
