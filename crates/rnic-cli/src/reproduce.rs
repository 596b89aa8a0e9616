//! `rnic reproduce`: re-runs figures of papers and judges the results.

mod list;
mod sensitivity;
mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Instant;

use rnic_reproduce::machine::Machine;
use rnic_reproduce::{Catalogue, Report, Row, RunSpec, Size, Work};

use crate::args::{ReproduceArgs, SensitivityDesign};
use crate::built_in;
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;
use crate::samples::{SampleSource, remote_runs};
use crate::shell;

/// Runs `rnic reproduce`.
///
/// # Errors
/// Bad input; or a row whose value cannot be judged, or is outside its band for no reason that the experiment states.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    if args.run_lines {
        return remote_runs::work();
    }
    if args.quantities {
        list::quantities(args.json);
        return Ok(());
    }
    let found = built_in::experiments(args.experiments.as_deref());
    let catalogue = Catalogue::read(found.files, &found.path).map_err(Failure::input)?;
    if catalogue.experiments.is_empty() {
        return Err(Failure::file(
            &found.path,
            "the folder contains no experiments; an experiment is a folder PAPER/FIGURE with a file experiment.toml",
        ));
    }
    if args.list {
        list::experiments(&catalogue, args.json);
        return Ok(());
    }
    let selected = catalogue.select(&args.ids).map_err(Failure::input)?;
    let size = if args.fast { Size::Fast } else { Size::Full };
    if let Some(design) = args.sensitivity {
        return sensitivity::run(args, &selected, design, size);
    }
    let work = Work::new(selected, size, args.seeds).map_err(Failure::input)?;
    let start = Instant::now();
    let Some((source, kept)) = sampled(args, &work.runs)? else { return Ok(()) };
    let report = Report {
        work: &work,
        samples: source.samples(),
        command: &command(args),
        machine: &Machine::local().summary(),
        wall_s: start.elapsed().as_secs_f64(),
        kept,
    };
    conclude(&report, args)
}

/// Executes those of `runs` that have no sample, and returns all samples, with the number of those that existed before;
/// `None` when the remaining runs were only to be written.
fn sampled<'a>(
    args: &'a ReproduceArgs,
    runs: &BTreeMap<String, RunSpec>,
) -> Result<Option<(SampleSource<'a>, usize)>, Failure> {
    let mut source = SampleSource::open(&args.out, &args.pool)?;
    let kept = source.fetch(runs, args.read_results.as_deref())?;
    let left = source.left(runs);
    if let Some(path) = &args.write_runs {
        return remote_runs::write(path, &left).map(|()| None);
    }
    source.run(&left, kept)?;
    Ok(Some((source, kept)))
}

/// Writes the report, prints the rows, and returns an error if one of them failed.
fn conclude(report: &Report<'_>, args: &ReproduceArgs) -> Result<(), Failure> {
    let rows: Vec<Row> = report.rows().into_iter().flatten().collect();
    let outcome = summary::Outcome {
        size: report.work.size,
        rows: &rows,
        runs: report.work.runs.len(),
        machine: report.machine,
        origins: report.origins(&rows),
        wall_s: report.wall_s,
    };
    console::result(&console::text(|| summary::text(&outcome)), args.json.then_some(&outcome));
    let folder = Folder::make(&args.out)?;
    let json = serde_json::to_string_pretty(&outcome).map_err(Failure::input)?;
    folder.write_text("report.json", &format!("{json}\n"))?;
    folder.write("runs.csv", |output| report.write_csv(output).map_err(io::Error::other))?;
    folder.write("runs.parquet", |output| report.write_parquet(output).map_err(io::Error::other))?;
    folder.write_text("verdicts.md", &report.markdown())?;
    let page = folder.write_text("report.html", &report.html())?;
    let page = fs::canonicalize(&page).unwrap_or(page);
    console::line(&format!(
        "The report: {} (report.json, verdicts.md, runs.csv, runs.parquet beside it)",
        page.display()
    ));
    let failed = rows.iter().filter(|row| row.is_failure());
    let mut names: Vec<String> = failed.map(|row| format!("{} of {}", row.row, row.experiment)).collect();
    let count = names.len();
    names.dedup();
    if names.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!(
        "check failed: {count} of {} rows are outside their band without a known reason, or cannot be judged: {}",
        rows.len(),
        names.join(", ")
    )))
}

/// Returns the command line that repeats this command.
fn command(args: &ReproduceArgs) -> String {
    let mut words = vec!["rnic".to_owned(), "reproduce".to_owned()];
    words.extend(args.ids.iter().cloned());
    words.extend(args.fast.then(|| "--fast".to_owned()));
    words.extend(args.sensitivity.map(|design| match design {
        SensitivityDesign::Each => "--sensitivity".to_owned(),
        SensitivityDesign::Morris => "--sensitivity=morris".to_owned(),
    }));
    words.extend(args.seeds.iter().flat_map(|seeds| ["--seeds".to_owned(), seeds.to_string()]));
    words.extend(args.experiments.iter().flat_map(|folder| ["--experiments".to_owned(), folder.display().to_string()]));
    shell::join(&words)
}
