//! Samples of runs: those that earlier commands have stored, and the execution of the others, here or on a cluster.

mod progress;
pub mod remote_runs;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use rnic_reproduce::pool::{self, Limits};
use rnic_reproduce::store::Store;
use rnic_reproduce::{RunSpec, Sample};

use crate::args::PoolArgs;
use crate::failure::Failure;

/// The samples that exist already, and the means to produce further ones.
pub struct SampleSource<'a> {
    args: &'a PoolArgs,
    store: Store,
    samples: BTreeMap<String, Sample>,
}

impl<'a> SampleSource<'a> {
    /// Opens the samples in the output directory `out`.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(out: &Path, args: &'a PoolArgs) -> Result<Self, Failure> {
        let folder = out.join("runs");
        let store = Store::open(&folder).map_err(|error| Failure::file(&folder, error))?;
        Ok(Self { args, store, samples: BTreeMap::new() })
    }

    /// Returns the samples, by the keys of their runs.
    pub fn samples(&self) -> &BTreeMap<String, Sample> {
        &self.samples
    }

    /// Loads the samples of `runs` that exist already, also from the file `results`; returns their number.
    ///
    /// # Errors
    /// When `results` cannot be read.
    pub fn fetch(&mut self, runs: &BTreeMap<String, RunSpec>, results: Option<&Path>) -> Result<usize, Failure> {
        if !self.args.fresh {
            let kept = runs.keys().filter_map(|key| self.store.get(key));
            self.samples.extend(kept.map(|sample| (sample.key.clone(), sample)));
        }
        if let Some(path) = results {
            remote_runs::read(path, |sample| {
                let is_wanted = runs.contains_key(&sample.key);
                if is_wanted { store_sample(&self.store, &mut self.samples, sample) } else { Ok(()) }
            })?;
        }
        Ok(self.samples.len())
    }

    /// Returns those of `runs` that have no sample.
    pub fn left<'r>(&self, runs: &'r BTreeMap<String, RunSpec>) -> Vec<&'r RunSpec> {
        runs.values().filter(|run| !self.samples.contains_key(&run.key)).collect()
    }

    /// Executes the remaining runs; `kept` is the number of the others.
    ///
    /// # Errors
    /// When a sample cannot be stored, or the cluster fails.
    pub fn run(&mut self, left: &[&RunSpec], kept: usize) -> Result<(), Failure> {
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

fn store_sample(store: &Store, samples: &mut BTreeMap<String, Sample>, sample: Sample) -> Result<(), Failure> {
    store.put(&sample).map_err(|error| Failure::Input(format!("cannot store the result of a run: {error}")))?;
    samples.insert(sample.key.clone(), sample);
    Ok(())
}
