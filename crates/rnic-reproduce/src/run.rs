//! One run. Its result is a pure function of plan, files and seed; that of a measured run depends on the machine too.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use rnic_base::Time;
use rnic_fabric::{Plan, Report, Simulation};
use rnic_transports::programs;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::SOURCES;
use crate::machine;
use crate::traces::{Included, Traces, hex};
use crate::trial;

/// Specification of a run: everything that the result depends on, so that it can be executed on another machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunSpec {
    /// Fingerprint of `sources`, `task` and `seed`.
    pub key: String,
    /// Fingerprint of the program that must execute it.
    pub sources: String,
    /// Task to run with the seed.
    #[serde(flatten)]
    pub task: Task,
    /// Seed of all random decisions.
    pub seed: u64,
}

/// A simulation or trial, without a seed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Task {
    /// Name of the trial; a simulation when absent.
    pub trial: Option<String>,
    /// Processor and build on which the run is measured, with no other run in parallel; `None` when the run reads no
    /// clock.
    pub measured_on: Option<String>,
    /// The plan of the simulation, or the arguments of the trial, as TOML.
    pub plan: String,
    /// Names and contents of the files that the plan names.
    pub files: BTreeMap<String, String>,
    /// Names and contents of the execution traces that the plan names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traces: Traces,
    /// Paths of the program files that the plan names, and the SHA-256 of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// Memory that the run may use, in bytes.
    pub memory: u64,
    /// Approximate cost of the run, as the number of bytes that a simulated network moves in the same time, in packets
    /// of 1 KB.
    pub cost: u64,
}

/// Result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Key of the run.
    pub key: String,
    /// Fingerprint of the program that executed it.
    pub sources: String,
    /// The fabric's report, or the result of the trial, as JSON.
    pub report: serde_json::Value,
    /// Distributions by name, such as `fct_us`: the value at each of the shares that [`levels`] returns.
    pub quantiles: BTreeMap<String, Vec<f64>>,
    /// Duration of the run, in seconds.
    pub wall_s: f64,
    /// Load average before a measured run; `None` when the system does not report it, and for other runs.
    #[serde(default)]
    pub load_average: Option<f64>,
    /// Reason why there is no valid result: the invariants that were violated, or an error that prevented the run.
    pub failure: Option<String>,
}

impl RunSpec {
    /// Returns a run of `task` with `seed`.
    pub fn new(task: Task, seed: u64) -> Self {
        let mut digest = Sha256::new();
        let mut add = |part: &str| digest.update(format!("{}\n{part}\n", part.len()));
        add(SOURCES);
        add(&task.plan);
        add(&seed.to_string());
        for (name, content) in &task.files {
            add(name);
            add(content);
        }
        let traces = task.traces.iter().map(|(name, trace)| (name.as_str(), trace.digest()));
        let programs = task.programs.iter().map(|(path, digest)| (path.as_str(), digest.as_str()));
        for (name, digest) in traces.chain(programs) {
            add(name);
            add(digest);
        }
        // A measured run has another key on another processor or with another build.
        task.trial.iter().chain(&task.measured_on).for_each(|part| add(part));
        let key = hex(&digest.finalize()[..16]);
        Self { key, sources: SOURCES.to_owned(), task, seed }
    }

    /// Returns `true` if the run is measured; it must then be executed on this machine, with no other run in
    /// parallel.
    pub fn needs_idle_machine(&self) -> bool {
        self.task.measured_on.is_some()
    }

    /// Executes the run.
    pub fn run(&self) -> Sample {
        let mut sample = Sample {
            key: self.key.clone(),
            sources: SOURCES.to_owned(),
            report: serde_json::Value::Null,
            quantiles: BTreeMap::new(),
            wall_s: 0.0,
            load_average: if self.needs_idle_machine() { machine::load_average() } else { None },
            failure: None,
        };
        let start = Instant::now();
        let outcome = match &self.task.trial {
            Some(name) => self.run_trial(name).map(|numbers| sample.report = numbers),
            None => self.simulate().map(|(report, plan)| {
                sample.failure = report.check().err().map(|failure| failure.violations.join("; "));
                sample.quantiles = quantiles(&report, &plan);
                sample.report = report.to_json();
            }),
        };
        sample.wall_s = start.elapsed().as_secs_f64();
        if let Err(failure) = outcome {
            sample.failure = Some(failure);
        }
        sample
    }

    fn run_trial(&self, name: &str) -> Result<serde_json::Value, String> {
        if let Some(wanted) = &self.task.measured_on {
            let here = machine::processor_and_build();
            if *wanted != here {
                return Err(format!("this run must be measured on {wanted}, but this machine is {here}"));
            }
        }
        let arguments = self.task.plan.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
        trial::find(name)?.run(&arguments, self.seed)
    }

    fn simulate(&self) -> Result<(Report, Plan), String> {
        if let Some((path, _)) = self.task.programs.iter().find(|(path, digest)| digest_of(path).as_ref() != Ok(digest))
        {
            return Err(format!("the program file {path} is not the one with which the run was planned"));
        }
        let plan = self.read()?;
        let mut simulation = Simulation::new(&plan, self.seed).map_err(|error| error.to_string())?;
        Ok((simulation.run(&mut |_| ControlFlow::Continue(())), plan))
    }

    fn read(&self) -> Result<Plan, String> {
        let mut files = |name: &str| {
            self.task
                .files
                .get(name)
                .cloned()
                .ok_or_else(|| "the file is not included in the description of the run".to_owned())
        };
        let mut traces = Included(&self.task.traces);
        Plan::from_toml_in(&self.task.plan, &[], &mut files, &mut traces).map_err(|error| error.to_string())
    }
}

/// Returns the SHA-256 of the program file at `path`, in hexadecimal digits.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn digest_of(path: &str) -> Result<String, String> {
    let bytes = programs::read(Path::new(path)).map_err(|error| error.to_string())?;
    Ok(hex(&Sha256::digest(bytes)))
}

/// Returns the shares at which distributions are stored: every percent, and above 90 every tenth of a percent.
pub fn levels() -> Vec<f64> {
    let percents = (0..90).map(|percent| f64::from(percent) / 100.0);
    percents.chain((900..1_000).map(|per_mille| f64::from(per_mille) / 1_000.0)).chain([0.9995, 1.0]).collect()
}

/// Returns the distributions over those flows that the averages include.
pub fn quantiles(report: &Report, plan: &Plan) -> BTreeMap<String, Vec<f64>> {
    let start = Time::ZERO + plan.run.warmup;
    let counted: Vec<_> = report.records.iter().filter(|flow| flow.start >= start).collect();
    let mut all = BTreeMap::new();
    let mut add_quantiles = |name: &str, mut values: Vec<f64>| {
        if values.is_empty() {
            return;
        }
        values.sort_unstable_by(f64::total_cmp);
        // Uses the nearest rank, as the fabric's percentiles do.
        let at = |level: f64| values[((values.len() as f64 * level).ceil() as usize).clamp(1, values.len()) - 1];
        all.insert(name.to_owned(), levels().into_iter().map(at).collect());
    };
    add_quantiles("slowdown", counted.iter().map(|flow| flow.slowdown()).collect());
    add_quantiles("fct_us", counted.iter().map(|flow| flow.fct.as_us_f64()).collect());
    let single = counted.iter().filter(|flow| flow.bytes <= u64::from(plan.mtu));
    add_quantiles("single_packet_fct_us", single.map(|flow| flow.fct.as_us_f64()).collect());
    all
}
