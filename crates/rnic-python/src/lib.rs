//! The Python module `openrnic._openrnic`.
//!
//! ```text
//! CRATE    rnic-python (green: a newcomer may change anything that keeps the tests green)
//! Purpose  the simulator for Python: plans in, reports, tables and sweeps out; arrays without copies
//! May use  rnic-fabric, rnic-reproduce
//! Must not decide or compute anything that rnic-fabric and rnic-reproduce could
//! Add here a result that Python programs need as an array
//! Not here what is done with the arrays: python/openrnic
//! Tested by tests/test_openrnic.py, with the wheel (make wheel)
//! ```
//!
//! Arrays are moved to numpy, not copied. Simulations run without Python's lock, so that threads of a program run side
//! by side.

#![forbid(unsafe_code)]
// The macros of pyo3 convert errors that are of the right type already.
#![allow(clippy::useless_conversion, reason = "expanded from macros of pyo3")]

mod recording;
mod result;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use rnic_fabric::simulation::{Part, PartRunner};
use rnic_fabric::{Plan as FabricPlan, Simulation};
use rnic_reproduce::axis::Axis;
use rnic_reproduce::compare::Comparison;
use rnic_reproduce::input::{PLAN_BYTES_MAX, TRACE_BYTES_MAX, read_text};
use rnic_reproduce::pool::{self, Limits};
use rnic_reproduce::run_set::RunSet;
use rnic_reproduce::sweep::{Sweep, with_settings};
use rnic_reproduce::{Files, PlanFolder};

use recording::InMemory;
use result::Result as RunResult;

/// Keys of a plan and their values, as they are written in a plan.
type Settings = Vec<(String, String)>;

/// A plan: the description of a simulation except its seed.
#[pyclass(frozen)]
struct Plan {
    text: String,
    folder: PathBuf,
}

#[pymethods]
impl Plan {
    /// Creates a plan from TOML; files that it names are in `folder`.
    #[new]
    #[pyo3(signature = (text, folder = PathBuf::from(".")))]
    fn new(text: String, folder: PathBuf) -> PyResult<Self> {
        let plan = Self { text, folder };
        plan.read()?;
        Ok(plan)
    }

    /// Reads a plan from a file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{}: {error}", path.display()));
        let text = read_text(&path, PLAN_BYTES_MAX).map_err(|error| wrong(&error))?;
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        let plan = Self { text, folder };
        plan.read().map_err(|error| wrong(&error))?;
        Ok(plan)
    }

    /// Text of the plan, TOML.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// Returns the plan with some keys replaced.
    fn replaced(&self, settings: Settings) -> PyResult<Self> {
        let table = with_settings(&self.text, &pairs(&settings)).map_err(PyValueError::new_err)?;
        let text = toml::to_string(&table).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Self::new(text, self.folder.clone())
    }

    /// Simulates the plan.
    #[pyo3(signature = (seed = 1, threads = 1))]
    fn run(&self, py: Python<'_>, seed: u64, threads: usize) -> PyResult<RunResult> {
        let plan = self.read()?;
        py.detach(|| simulate(&plan, seed, threads)).map_err(PyValueError::new_err)
    }

    /// Simulates every combination of values of `axes` with each of `seeds`, on `jobs` processors; returns a set of
    /// runs as JSON.
    #[pyo3(signature = (axes, seeds, jobs = None))]
    fn sweep(
        &self,
        py: Python<'_>,
        axes: Vec<(String, Vec<String>)>,
        seeds: Vec<u64>,
        jobs: Option<usize>,
    ) -> PyResult<String> {
        let axes = axes.into_iter().map(|(key, values)| Axis { key, values }).collect();
        let sweep = Sweep::new(&self.text, &[], axes, seeds, &self.files()).map_err(PyValueError::new_err)?;
        let set = py.detach(|| execute(&sweep, jobs));
        serde_json::to_string(&set).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

impl Plan {
    fn read(&self) -> PyResult<FabricPlan> {
        let (folder, mut traces) = (self.files(), self.files());
        let mut files = |name: &str| folder.read_text(name, TRACE_BYTES_MAX);
        FabricPlan::from_toml_in(&self.text, &[], &mut files, &mut traces)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn files(&self) -> PlanFolder {
        PlanFolder { files: Files::Disk, path: self.folder.clone() }
    }
}

fn pairs(settings: &Settings) -> Vec<(&str, &str)> {
    settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Runs each part of a network on a thread of the pool.
struct Pool(rayon::ThreadPool);

impl PartRunner for Pool {
    fn run(&mut self, parts: &mut [Part]) {
        self.0.install(|| parts.par_iter_mut().with_max_len(1).for_each(Part::run));
    }
}

fn simulate(plan: &FabricPlan, seed: u64, threads: usize) -> std::result::Result<RunResult, String> {
    let mut simulation = Simulation::in_parts(plan, seed, threads.max(1)).map_err(|error| error.to_string())?;
    if simulation.part_count() > 1 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(simulation.part_count()).build();
        simulation.set_runner(Box::new(Pool(pool.map_err(|error| error.to_string())?)));
    }
    simulation.time_series().record_to(InMemory::default());
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    let series = simulation.time_series().take::<InMemory>().map(|(recording, _)| *recording);
    Ok(RunResult::new(report, series))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the number of processors changes how long a sweep takes, not its results"
)]
fn execute(sweep: &Sweep, jobs: Option<usize>) -> RunSet {
    let available = std::thread::available_parallelism().ok();
    let jobs = jobs.and_then(std::num::NonZeroUsize::new).or(available).unwrap_or(std::num::NonZeroUsize::MIN);
    let specs: Vec<_> = sweep.runs().values().collect();
    let mut samples = std::collections::BTreeMap::new();
    let limits = Limits { jobs, memory: pool::free_memory() };
    let done = pool::run_all(&specs, limits, |sample| {
        samples.insert(sample.key.clone(), sample);
        Ok::<(), std::convert::Infallible>(())
    });
    match done {
        Ok(()) => sweep.run_set(&samples, "openrnic.sweep"),
        Err(never) => match never {},
    }
}

/// Compares two sets of runs, given as JSON; returns the comparison as JSON. `fields` are those to compare; all if
/// empty.
#[pyfunction]
#[pyo3(signature = (a, b, fields = Vec::new()))]
fn compare(a: &str, b: &str, fields: Vec<String>) -> PyResult<String> {
    let read = |text: &str| RunSet::parse(text).map_err(PyValueError::new_err);
    let comparison = Comparison::new(&read(a)?, &read(b)?, &fields).map_err(PyValueError::new_err)?;
    serde_json::to_string(&comparison).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// The module.
#[pymodule]
fn _openrnic(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Plan>()?;
    module.add_class::<RunResult>()?;
    module.add_function(wrap_pyfunction!(compare, module)?)?;
    Ok(())
}
