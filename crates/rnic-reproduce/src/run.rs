//! One run: a pure function of plan, files and seed; of what is measured, of the machine too.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use rnic_base::Time;
use rnic_fabric::{Plan, Report, Simulation};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::SOURCES;
use crate::machine;

/// What is to be run: everything that the result depends on, so that it can be sent elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunSpec {
    /// Fingerprint of the rest.
    pub key: String,
    /// Fingerprint of the program that must run it.
    pub sources: String,
    /// What is run with the seed.
    #[serde(flatten)]
    pub task: Task,
    /// The seed.
    pub seed: u64,
}

/// What is run, with whatever seed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Task {
    /// The trial; without, a simulation.
    pub trial: Option<String>,
    /// The processor and the build with which it is measured, alone; none where no clock is read.
    pub measured_on: Option<String>,
    /// The plan of the simulation, or the arguments of the trial, as TOML.
    pub plan: String,
    /// The files that it names, and what is in them.
    pub files: BTreeMap<String, String>,
    /// Bytes of memory that it may take.
    pub memory: u64,
    /// About how much work it is: bytes that a simulated network moves in the same time.
    pub cost: u64,
}

/// What a run has given.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Which run.
    pub key: String,
    /// The program that ran it.
    pub sources: String,
    /// The fabric's report, or what the trial gives, as JSON.
    pub report: serde_json::Value,
    /// Distributions at [`levels`].
    pub quantiles: BTreeMap<String, Vec<f64>>,
    /// Seconds that it took.
    pub wall_s: f64,
    /// Of what is measured: the load average before it ran, where the system tells.
    #[serde(default)]
    pub load_average: Option<f64>,
    /// Why it is no result: promises that were broken, or why it could not run.
    pub failure: Option<String>,
}

impl RunSpec {
    /// A run of `task` with `seed`.
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
        // Of another processor or another build, what was measured is another result.
        task.trial.iter().chain(&task.measured_on).for_each(|part| add(part));
        let key = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self { key, sources: SOURCES.to_owned(), task, seed }
    }

    /// Whether nothing may run beside it, and nowhere else: it is measured.
    pub fn is_alone(&self) -> bool {
        self.task.measured_on.is_some()
    }

    /// Runs it.
    pub fn run(&self) -> Sample {
        let mut sample = Sample {
            key: self.key.clone(),
            sources: SOURCES.to_owned(),
            report: serde_json::Value::Null,
            quantiles: BTreeMap::new(),
            wall_s: 0.0,
            load_average: if self.is_alone() { machine::load_average() } else { None },
            failure: None,
        };
        let start = Instant::now();
        let outcome = match &self.task.trial {
            Some(name) => self.try_out(name).map(|numbers| sample.report = numbers),
            None => self.simulate().map(|report| {
                sample.failure = report.check().err().map(|failure| failure.violations.join("; "));
                sample.quantiles = self.read().map(|plan| quantiles(&report, &plan)).unwrap_or_default();
                sample.report = report.to_json();
            }),
        };
        sample.wall_s = start.elapsed().as_secs_f64();
        if let Err(failure) = outcome {
            sample.failure = Some(failure);
        }
        sample
    }

    fn try_out(&self, name: &str) -> Result<serde_json::Value, String> {
        if let Some(wanted) = &self.task.measured_on {
            let here = machine::here();
            if *wanted != here {
                return Err(format!("it was to be measured on {wanted}, and this is {here}"));
            }
        }
        let arguments = self.task.plan.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
        rnic_trials::find(name)?.run(&arguments, self.seed)
    }

    fn simulate(&self) -> Result<Report, String> {
        let plan = self.read()?;
        let mut simulation = Simulation::new(&plan, self.seed).map_err(|error| error.to_string())?;
        Ok(simulation.run(&mut |_| ControlFlow::Continue(())))
    }

    fn read(&self) -> Result<Plan, String> {
        let mut files =
            |name: &str| self.task.files.get(name).cloned().ok_or_else(|| "the file has not come along".to_owned());
        Plan::from_toml_with(&self.task.plan, &[], &mut files).map_err(|error| error.to_string())
    }
}

/// The shares at which distributions are kept: every percent, and above 90 every tenth of one.
pub fn levels() -> Vec<f64> {
    let percents = (0..90).map(|percent| f64::from(percent) / 100.0);
    percents.chain((900..1_000).map(|per_mille| f64::from(per_mille) / 1_000.0)).chain([0.9995, 1.0]).collect()
}

/// Of the flows that count in averages.
fn quantiles(report: &Report, plan: &Plan) -> BTreeMap<String, Vec<f64>> {
    let start = Time::ZERO + plan.run.warmup;
    let counted: Vec<_> = report.records.iter().filter(|flow| flow.start >= start).collect();
    let mut all = BTreeMap::new();
    let mut keep = |name: &str, mut values: Vec<f64>| {
        if values.is_empty() {
            return;
        }
        values.sort_unstable_by(f64::total_cmp);
        // The nearest rank, as in the fabric's percentiles.
        let at = |level: f64| values[((values.len() as f64 * level).ceil() as usize).clamp(1, values.len()) - 1];
        all.insert(name.to_owned(), levels().into_iter().map(at).collect());
    };
    keep("slowdown", counted.iter().map(|flow| flow.slowdown()).collect());
    keep("fct_us", counted.iter().map(|flow| flow.fct.as_us_f64()).collect());
    let single = counted.iter().filter(|flow| flow.bytes <= u64::from(plan.mtu));
    keep("single_packet_fct_us", single.map(|flow| flow.fct.as_us_f64()).collect());
    all
}
