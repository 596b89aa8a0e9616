//! `rnic reproduce`: figures of papers, re-run, with verdicts.

mod list;
mod progress;
mod summary;

use std::num::NonZeroUsize;
use std::thread;
use std::time::Instant;

use rnic_reproduce::judge::{self, Samples};
use rnic_reproduce::pool::{self, Limits};
use rnic_reproduce::store::Store;
use rnic_reproduce::{Catalogue, Row, RunSpec, Size, Work};

use crate::args::ReproduceArgs;
use crate::console;
use crate::failure::Failure;

/// Runs `rnic reproduce`.
///
/// # Errors
/// Bad input; or a row that is outside its band or cannot be judged.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    if args.quantities {
        list::quantities(args.json);
        return Ok(());
    }
    let catalogue = Catalogue::read(&args.experiments).map_err(Failure::input)?;
    if args.list {
        list::experiments(&catalogue, args.json);
        return Ok(());
    }
    let selected = catalogue.select(&args.ids).map_err(Failure::input)?;
    let size = if args.fast { Size::Fast } else { Size::Full };
    let work = Work::new(selected, size, args.seeds).map_err(Failure::input)?;
    let start = Instant::now();
    let samples = samples(&work, args)?;
    let rows: Vec<Row> = work.layouts.iter().flat_map(|layout| judge::rows(&work, layout, &samples)).collect();
    let outcome = summary::Outcome { size, rows: &rows, runs: work.runs.len(), wall_s: start.elapsed().as_secs_f64() };
    console::result(&summary::text(&outcome), args.json.then_some(&outcome));
    let failed: Vec<&str> = rows.iter().filter(|row| row.verdict.is_failure()).map(|row| row.row.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!("{} of {} rows failed: {}", failed.len(), rows.len(), failed.join(", "))))
}

/// The sample of every run: those that were kept, and the rest run now.
fn samples(work: &Work<'_>, args: &ReproduceArgs) -> Result<Samples, Failure> {
    let folder = args.out.join("runs");
    let store = Store::open(&folder).map_err(|error| Failure::file(&folder, error))?;
    let mut samples = Samples::new();
    if !args.fresh {
        let kept = work.runs.keys().filter_map(|key| store.get(key));
        samples.extend(kept.map(|sample| (sample.key.clone(), sample)));
    }
    let left: Vec<&RunSpec> = work.runs.values().filter(|run| !samples.contains_key(&run.key)).collect();
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let mut bar = progress::bar(&left, samples.len());
    pool::run_all(&left, Limits { jobs, memory: pool::free_memory() }, |sample| {
        store.put(&sample).map_err(|error| Failure::file(&folder, error))?;
        bar.done(&sample);
        samples.insert(sample.key.clone(), sample);
        Ok(())
    })?;
    bar.finish();
    Ok(samples)
}
