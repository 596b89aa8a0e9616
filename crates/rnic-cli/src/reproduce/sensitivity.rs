//! `rnic reproduce --sensitivity`: rows with other values of open parameters.

use std::collections::BTreeMap;
use std::fs;

use rnic_page::number::with_unit;
use rnic_reproduce::catalogue::Selected;
use rnic_reproduce::machine::Machine;
use rnic_reproduce::sensitivity::{Design, Effect, Finding, Sensitivity, Study};
use rnic_reproduce::{Size, Work};
use serde::Serialize;

use super::{command, sampled};
use crate::args::{ReproduceArgs, SensitivityDesign};
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;
use crate::table;

/// Result for scripts.
#[derive(Serialize)]
struct StudyResult<'r> {
    experiment: &'r str,
    design: Design,
    findings: &'r [Finding],
}

/// Judges the rows of `selected` in the settings of `design`.
///
/// # Errors
/// Bad input, such as experiments without open parameters; or a result that cannot be written.
pub fn run(
    args: &ReproduceArgs,
    selected: &[Selected<'_>],
    design: SensitivityDesign,
    size: Size,
) -> Result<(), Failure> {
    let design = match design {
        SensitivityDesign::Each => Design::Each,
        SensitivityDesign::Morris => Design::Morris,
    };
    let studies: Vec<Study> = selected.iter().filter_map(|selected| Study::new(selected, design)).collect();
    if studies.is_empty() {
        let ids: Vec<&str> = selected.iter().map(|selected| selected.experiment.id.as_str()).collect();
        return Err(Failure::Input(format!(
            "{}: no open parameters: list them as [[open]] in experiment.toml (docs/reproduce.md, Sensitivity)",
            ids.join(", ")
        )));
    }
    let works: Vec<Work<'_>> =
        studies.iter().map(|study| study.work(size, args.seeds)).collect::<Result<_, _>>().map_err(Failure::input)?;
    let runs: BTreeMap<_, _> = works.iter().flat_map(|work| work.runs.clone()).collect();
    let Some((source, _)) = sampled(args, &runs)? else { return Ok(()) };
    let findings = |(study, work): (&'_ Study, &Work<'_>)| study.findings(work, source.samples());
    let findings: Vec<Vec<Finding>> = studies.iter().zip(&works).map(findings).collect();
    let studies: Vec<(&Study, Vec<Finding>)> = studies.iter().zip(findings).collect();
    let (command, machine) = (command(args), Machine::local().summary());
    let report = Sensitivity { studies: &studies, size, command: &command, machine: &machine, runs: runs.len() };
    conclude(&report, args)
}

/// Writes the report and prints the findings.
fn conclude(report: &Sensitivity<'_>, args: &ReproduceArgs) -> Result<(), Failure> {
    let all: Vec<StudyResult<'_>> = report
        .studies
        .iter()
        .map(|(study, findings)| StudyResult { experiment: study.id(), design: study.design(), findings })
        .collect();
    let json = serde_json::json!({ "studies": all });
    console::result(&console::text(|| text(report)), args.json.then_some(&json));
    let folder = Folder::make(&args.out)?;
    let json = serde_json::to_string_pretty(&json).map_err(Failure::input)?;
    folder.write_text("sensitivity.json", &format!("{json}\n"))?;
    folder.write_text("sensitivity.md", &report.markdown())?;
    let page = folder.write_text("sensitivity.html", &report.html())?;
    let page = fs::canonicalize(&page).unwrap_or(page);
    console::line(&format!("The report: {} (sensitivity.json, sensitivity.md beside it)", page.display()));
    Ok(())
}

/// Returns the effects on each row as a table.
fn text(report: &Sensitivity<'_>) -> String {
    let mut text = String::new();
    for (study, findings) in report.studies {
        for finding in findings {
            let row = &finding.row;
            let value = finding.value().map_or_else(|| "-".to_owned(), |value| with_unit(value, &row.unit));
            text.push_str(&format!("{} of {}: {}\n", row.row, study.id(), row.what));
            text.push_str(&format!("found {value}, band {}, {}\n", row.band, row.verdict.name()));
            let cells = |effect: &Effect| {
                let range = effect.range.map_or_else(
                    || "-".to_owned(),
                    |(least, most)| format!("{} to {}", with_unit(least, ""), with_unit(most, &row.unit)),
                );
                vec![
                    effect.parameter.clone(),
                    range,
                    with_unit(effect.mean_change, ""),
                    with_unit(effect.deviation, ""),
                    effect.changes.to_string(),
                ]
            };
            let heads = ["open parameter", "found", "mean change", "deviation", "changes"];
            text.push_str(&table::results(&heads, finding.effects.iter().map(cells).collect()));
            let (inside, judged) = finding.holds();
            text.push_str(&format!("inside its band in {inside} of {judged} settings\n\n"));
        }
    }
    text
}
