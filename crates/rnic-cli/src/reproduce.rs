//! `rnic reproduce`: re-runs figures of papers and judges the results.

mod elsewhere;
mod list;
mod progress;
mod summary;

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Instant;

use rnic_reproduce::judge::Samples;
use rnic_reproduce::pool::{self, Limits};
use rnic_reproduce::store::Store;
use rnic_reproduce::{Catalogue, Report, Row, RunSpec, Sample, Size, Work};

use crate::args::ReproduceArgs;
use crate::console;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::Folder;
use crate::shell;

/// Runs `rnic reproduce`.
///
/// # Errors
/// Bad input; or a row that is outside its band or cannot be judged.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    if args.run_lines {
        return elsewhere::work();
    }
    if args.quantities {
        list::quantities(args.json);
        return Ok(());
    }
    if !args.experiments.is_dir() {
        let what = "no such folder; run this in the root of the source tree, or say where it is with --experiments DIR";
        return Err(Failure::file(&args.experiments, what));
    }
    let catalogue = Catalogue::read(&args.experiments).map_err(Failure::input)?;
    if catalogue.experiments.is_empty() {
        return Err(Failure::file(
            &args.experiments,
            "no experiments there, which are folders with an experiment.toml",
        ));
    }
    if args.list {
        list::experiments(&catalogue, args.json);
        return Ok(());
    }
    let selected = catalogue.select(&args.ids).map_err(Failure::input)?;
    let size = if args.fast { Size::Fast } else { Size::Full };
    let work = Work::new(selected, size, args.seeds).map_err(Failure::input)?;
    let start = Instant::now();
    let mut desk = Desk::open(args)?;
    let kept = desk.fetch(&work)?;
    let left: Vec<&RunSpec> = work.runs.values().filter(|run| !desk.samples.contains_key(&run.key)).collect();
    if let Some(path) = &args.write_runs {
        return elsewhere::write(path, &left);
    }
    desk.run(&left, kept)?;
    let report = Report {
        work: &work,
        samples: &desk.samples,
        command: &command(args),
        machine: &Machine::here().summary(),
        wall_s: start.elapsed().as_secs_f64(),
        kept,
    };
    conclude(&report, args)
}

/// Writes the report, prints the rows, and fails when one of them does.
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
    console::result(&summary::text(&outcome), args.json.then_some(&outcome));
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
    let failed = rows.iter().filter(|row| row.verdict.is_failure());
    let mut names: Vec<String> = failed.map(|row| format!("{} of {}", row.row, row.experiment)).collect();
    let count = names.len();
    names.dedup();
    if names.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!("check failed: {count} of {} rows: {}", rows.len(), names.join(", "))))
}

/// Returns the command that repeats this one.
fn command(args: &ReproduceArgs) -> String {
    let mut words = vec!["rnic".to_owned(), "reproduce".to_owned()];
    words.extend(args.ids.iter().cloned());
    words.extend(args.fast.then(|| "--fast".to_owned()));
    words.extend(args.seeds.iter().flat_map(|seeds| ["--seeds".to_owned(), seeds.to_string()]));
    shell::join(&words)
}

/// The samples that exist already, and the means to produce further ones.
struct Desk<'a> {
    args: &'a ReproduceArgs,
    store: Store,
    samples: Samples,
}

impl<'a> Desk<'a> {
    fn open(args: &'a ReproduceArgs) -> Result<Self, Failure> {
        let folder = args.out.join("runs");
        let store = Store::open(&folder).map_err(|error| Failure::file(&folder, error))?;
        Ok(Self { args, store, samples: Samples::new() })
    }

    /// Loads the samples that exist already; returns their number.
    fn fetch(&mut self, work: &Work<'_>) -> Result<usize, Failure> {
        if !self.args.fresh {
            let kept = work.runs.keys().filter_map(|key| self.store.get(key));
            self.samples.extend(kept.map(|sample| (sample.key.clone(), sample)));
        }
        if let Some(path) = &self.args.read_results {
            elsewhere::read(path, |sample| {
                let is_wanted = work.runs.contains_key(&sample.key);
                if is_wanted { keep(&self.store, &mut self.samples, sample) } else { Ok(()) }
            })?;
        }
        Ok(self.samples.len())
    }

    /// Executes the remaining runs.
    fn run(&mut self, left: &[&RunSpec], kept: usize) -> Result<(), Failure> {
        let mut bar = progress::bar(left, kept);
        let mut done = |sample: Sample| {
            bar.done(&sample);
            keep(&self.store, &mut self.samples, sample)
        };
        // Runs that measure real time run on this machine, after all others.
        let (away, here) = match &self.args.dask {
            Some(_) => left.iter().copied().partition(|run| !run.is_alone()),
            None => (Vec::new(), left.to_vec()),
        };
        if let (Some(scheduler), false) = (&self.args.dask, away.is_empty()) {
            elsewhere::on_dask(scheduler, self.args, &away, &mut done)?;
        }
        if !here.is_empty() {
            let jobs = self.args.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
            pool::run_all(&here, Limits { jobs, memory: pool::free_memory() }, done)?;
        }
        bar.finish();
        Ok(())
    }
}

fn keep(store: &Store, samples: &mut Samples, sample: Sample) -> Result<(), Failure> {
    store.put(&sample).map_err(|error| Failure::Input(format!("cannot keep a run: {error}")))?;
    samples.insert(sample.key.clone(), sample);
    Ok(())
}
