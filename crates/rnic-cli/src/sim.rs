//! `rnic sim`: simulates a plan with a seed and reports the result.

mod history;
mod page;
mod summary;
mod threads;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use rnic_fabric::record::{ParquetRecording, RecordError};
use rnic_fabric::simulation::{SignalLog, Traces};
use rnic_fabric::{Plan, Progress, Report, Simulation};
use rnic_reproduce::input::{PLAN_BYTES_MAX, TRACE_BYTES_MAX};
use rnic_reproduce::machine::Machine;
use rnic_reproduce::run_set::{self, RunSet, SeedRun};
use rnic_reproduce::sweep::with_settings;

use crate::args::SimArgs;
use crate::args::values::pairs;
use crate::built_in::{self, Located};
use crate::console;
use crate::failure::Failure;
use crate::heartbeat::{self, Heartbeat};
use crate::output::{self, Folder};
use crate::shell;
use crate::signals::Line;
use crate::sweep;

use history::{History, Recorder};

/// Runs `rnic sim`.
///
/// # Errors
/// Bad input; or an invariant that the run violated, with the command that repeats it.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    let found = built_in::plan(&args.plan)?;
    let text = found.files.read_text(&found.path, PLAN_BYTES_MAX).map_err(|error| Failure::file(&found.path, error))?;
    let plan = read_plan(&found, &text, args)?;
    if let (Some(seeds), Some(out)) = (args.seeds, &args.out) {
        if plan.record.is_some() {
            console::line("rnic: time series are recorded in runs of one seed only (--seed)");
        }
        let fields = sweep::Output { fields: &[], out, json: args.json };
        return sweep::run_seeds(&found, &text, &args.settings, seeds, &command(args), fields);
    }
    let folder = args.out.as_deref().map(Folder::make).transpose()?;
    if plan.record.is_some() && folder.is_none() {
        console::line("rnic: the plan records time series, which need a folder: add --out DIR");
    }
    let outputs = Outputs {
        pcap: args.pcap.as_deref(),
        signals: args.signals.as_deref(),
        trace: args.trace.as_deref(),
        folder: folder.as_ref(),
    };
    let (report, history) = simulate(&plan, args.seed, args.threads, outputs)?;
    let command = command(args);
    if let Some(folder) = &folder {
        let source = page::Source { plan: &plan, text: &text, command: &command, machine: &Machine::local(), history };
        write(folder, &source, &report, &pairs(&args.settings))?;
    }
    console::result(&console::text(|| summary::text(&report)), args.json.then(|| report.to_json()).as_ref());
    report.check().map_err(|failure| {
        Failure::Check(format!("check failed: {}; repeat with: {command}", failure.violations.join("; ")))
    })
}

fn read_plan(found: &Located, text: &str, args: &SimArgs) -> Result<Plan, Failure> {
    let mut traces = found.folder();
    let folder = traces.clone();
    let mut files = |name: &str| folder.read_text(name, TRACE_BYTES_MAX);
    Plan::from_toml_in(text, &pairs(&args.settings), &mut files, &mut traces)
        .map_err(|error| Failure::file(&found.path, error))
}

/// Files that a run writes while it lasts or when it has ended.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outputs<'p> {
    /// Capture of all packets.
    pub pcap: Option<&'p Path>,
    /// Signals of all hosts.
    pub signals: Option<&'p Path>,
    /// Trace for Perfetto.
    pub trace: Option<&'p Path>,
    /// Folder of the recording, if the plan asks for one.
    pub folder: Option<&'p Folder>,
}

/// Runs `plan` on the given number of threads and shows its progress; returns the report, and the time series that were
/// recorded.
///
/// # Errors
/// When the plan cannot be run, threads are refused, or the capture cannot be written.
pub fn simulate(
    plan: &Plan,
    seed: u64,
    threads: NonZeroUsize,
    outputs: Outputs<'_>,
) -> Result<(Report, Option<History>), Failure> {
    let mut simulation = Simulation::in_parts(plan, seed, threads.get()).map_err(Failure::input)?;
    let signals = outputs.signals.map(|path| Ok((path, output::capture(path)?))).transpose()?;
    if signals.is_some() {
        simulation.collect_signals();
    }
    if let Some(path) = outputs.pcap {
        simulation.capture_to(output::capture(path)?).map_err(|error| Failure::file(path, error))?;
    }
    if let Some(path) = outputs.trace {
        Traces::of(&mut simulation).write_to(output::capture(path)?);
    }
    let recording = outputs.folder.filter(|_| plan.record.is_some());
    let file = recording.map(|folder| folder.begin(SERIES_FILE)).transpose()?;
    if let Some(file) = file {
        let recording = ParquetRecording::new(file).map_err(Failure::input)?;
        simulation.time_series().record_to(Recorder::new(recording));
    }
    let spinner = console::spinner("simulating");
    let start = Instant::now();
    let mut heartbeat = Heartbeat::start();
    let mut report = threads::run(&mut simulation, &mut |progress: &Progress| {
        spinner.set_message(progress_text(progress));
        heartbeat.beat(|elapsed| {
            let end = progress.end.map(|end| progress.now.as_ps() as f64 / end.as_ps() as f64);
            format!("{}; {}", progress_text(progress), heartbeat::left(end.unwrap_or(0.0), elapsed))
        });
        ControlFlow::Continue(())
    })?;
    report.wall_s = Some(start.elapsed().as_secs_f64());
    spinner.finish_and_clear();
    if let (Some((path, file)), Some(log)) = (signals, simulation.take_signals()) {
        write_signals(&log, file).map_err(|error| Failure::file(path, error))?;
    }
    if let Some(failure) = Traces::of(&mut simulation).take_failure() {
        console::line(&format!("rnic: the trace ended before the run: {failure}"));
    }
    let history = match (recording, simulation.time_series().take::<Recorder>()) {
        (Some(folder), Some((recorder, failure))) => {
            end_recording(folder, failure)?;
            Some(recorder.into_history())
        }
        _ => None,
    };
    match (outputs.pcap, simulation.capture_failure()) {
        (Some(path), Some(error)) => Err(Failure::file(path, error)),
        _ => Ok((report, history)),
    }
}

/// Keeps the file of a recording; a file that could not be written is removed, and the run goes on.
fn end_recording(folder: &Folder, failure: Option<RecordError>) -> Result<(), Failure> {
    match failure {
        None => folder.keep(SERIES_FILE).map(drop),
        Some(full @ RecordError::Full(_)) => {
            console::line(&format!("rnic: the recording ended before the run: {full}"));
            folder.keep(SERIES_FILE).map(drop)
        }
        Some(error) => {
            console::line(&format!("rnic: the recording ended before the run, without {SERIES_FILE}: {error}"));
            folder.discard(SERIES_FILE);
            Ok(())
        }
    }
}

/// Name of the file of a recording.
const SERIES_FILE: &str = "series.parquet";

fn progress_text(progress: &Progress) -> String {
    let Progress { now, flows_started, flows_done, end } = progress;
    let of = end.map_or_else(String::new, |end| format!(" of {end}"));
    format!("simulating: {now}{of} done, {flows_done} of {flows_started} flows so far")
}

/// Writes the signals of a run, a line each.
fn write_signals(log: &SignalLog, mut file: impl Write) -> io::Result<()> {
    for (host, signal) in &log.records {
        let host = log.hosts[*host as usize].as_str();
        file.write_all(Line::new(Some(host), signal).to_text().as_bytes())?;
    }
    if log.lost > 0 {
        console::line(&format!("rnic: {} signals are not in the log, which has at most four million lines", log.lost));
    }
    file.flush()
}

fn write(
    folder: &Folder,
    source: &page::Source<'_>,
    report: &Report,
    settings: &[(&str, &str)],
) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(&report.to_json()).map_err(Failure::input)?;
    folder.write_text("report.json", &format!("{json}\n"))?;
    let plan =
        with_settings(source.text, settings).and_then(|plan| toml::to_string(&plan).map_err(|error| error.to_string()));
    let run = SeedRun::of_report(report, source.plan);
    let set = RunSet::of_one(source.command, &plan.map_err(Failure::input)?, run);
    let json = serde_json::to_string(&set).map_err(Failure::input)?;
    folder.write_text(run_set::FILE, &format!("{json}\n"))?;
    folder.write("flows.parquet", |output| report.write_parquet(output).map_err(io::Error::other))?;
    let page = folder.write_text("report.html", &page::page(source, report))?;
    let series = if source.history.is_some() { ", series.parquet" } else { "" };
    console::line(&format!("wrote report.json, runs.json, flows.parquet{series} and {}", page.display()));
    Ok(())
}

/// Returns the command that repeats the run.
fn command(args: &SimArgs) -> String {
    let mut words = vec!["rnic".to_owned(), "sim".to_owned(), args.plan.display().to_string()];
    match args.seeds {
        Some(seeds) => words.extend(["--seeds".to_owned(), seeds.to_string()]),
        None => words.extend(["--seed".to_owned(), args.seed.to_string()]),
    }
    for setting in &args.settings {
        words.extend(["--set".to_owned(), format!("{}={}", setting.key, setting.value)]);
    }
    shell::join(&words)
}
