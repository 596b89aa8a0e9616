//! `rnic reproduce`: re-runs figures of papers and judges the results.

mod list;
mod progress;
mod remote_runs;
mod summary;

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Instant;

use rnic_reproduce::judge::Samples;
use rnic_reproduce::machine::Machine;
use rnic_reproduce::pool::{self, Limits};
use rnic_reproduce::store::Store;
use rnic_reproduce::{Catalogue, Report, Row, RunSpec, Sample, Size, Work};

use crate::args::ReproduceArgs;
use crate::built_in;
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;
use crate::shell;

/// Runs `rnic reproduce`.
///
/// # Errors
/// Bad input; or a row whose value is outside its band or cannot be judged.
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
    let work = Work::new(selected, size, args.seeds).map_err(Failure::input)?;
    let start = Instant::now();
    let mut source = SampleSource::open(args)?;
    let kept = source.fetch(&work)?;
    let left: Vec<&RunSpec> = work.runs.values().filter(|run| !source.samples.contains_key(&run.key)).collect();
    if let Some(path) = &args.write_runs {
        return remote_runs::write(path, &left);
    }
    source.run(&left, kept)?;
    let report = Report {
        work: &work,
        samples: &source.samples,
        command: &command(args),
        machine: &Machine::local().summary(),
        wall_s: start.elapsed().as_secs_f64(),
        kept,
    };
    conclude(&report, args)
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
    Err(Failure::Check(format!(
        "check failed: {count} of {} rows are outside their band or cannot be judged: {}",
        rows.len(),
        names.join(", ")
    )))
}

/// Returns the command line that repeats this command.
fn command(args: &ReproduceArgs) -> String {
    let mut words = vec!["rnic".to_owned(), "reproduce".to_owned()];
    words.extend(args.ids.iter().cloned());
    words.extend(args.fast.then(|| "--fast".to_owned()));
    words.extend(args.seeds.iter().flat_map(|seeds| ["--seeds".to_owned(), seeds.to_string()]));
    shell::join(&words)
}

/// The samples that exist already, and the means to produce further ones.
struct SampleSource<'a> {
    args: &'a ReproduceArgs,
    store: Store,
    samples: Samples,
}

impl<'a> SampleSource<'a> {
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
            remote_runs::read(path, |sample| {
                let is_wanted = work.runs.contains_key(&sample.key);
                if is_wanted { store_sample(&self.store, &mut self.samples, sample) } else { Ok(()) }
            })?;
        }
        Ok(self.samples.len())
    }

    /// Executes the remaining runs.
    fn run(&mut self, left: &[&RunSpec], kept: usize) -> Result<(), Failure> {
        let mut bar = progress::bar(left, kept);
        let mut on_sample = |sample: Sample| {
            bar.done(&sample);
            store_sample(&self.store, &mut self.samples, sample)
        };
        // Runs that measure real time run on this machine, after all others.
        let (remote, local) = match &self.args.dask {
            Some(_) => left.iter().copied().partition(|run| !run.needs_idle_machine()),
            None => (Vec::new(), left.to_vec()),
        };
        if let (Some(scheduler), false) = (&self.args.dask, remote.is_empty()) {
            remote_runs::on_dask(scheduler, self.args, &remote, &mut on_sample)?;
        }
        if !local.is_empty() {
            let jobs = self.args.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
            pool::run_all(&local, Limits { jobs, memory: pool::free_memory() }, on_sample)?;
        }
        bar.finish();
        Ok(())
    }
}

fn store_sample(store: &Store, samples: &mut Samples, sample: Sample) -> Result<(), Failure> {
    store.put(&sample).map_err(|error| Failure::Input(format!("cannot store the result of a run: {error}")))?;
    samples.insert(sample.key.clone(), sample);
    Ok(())
}
