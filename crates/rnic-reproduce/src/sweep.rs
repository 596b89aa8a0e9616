//! Sweeps: a plan with every combination of values of some of its keys, and several seeds.

use std::collections::BTreeMap;

use rnic_fabric::plan::insert;
use serde::Deserialize;

use crate::axis::Axis;
use crate::files::PlanFolder;
use crate::run::{RunSpec, Sample};
use crate::run_set::{PointRuns, RunSet, SeedRun};
use crate::traces::Traces;
use crate::work::simulation_of;

/// The runs of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Plan without the axes, as TOML.
    plan: String,
    axes: Vec<Axis>,
    seeds: Vec<u64>,
    /// For each point, in order: its values, and the keys of its runs, one for each seed.
    points: Vec<(Vec<String>, Vec<String>)>,
    runs: BTreeMap<String, RunSpec>,
}

impl Sweep {
    /// Plans the runs of `text`, a plan, with `settings` applied: every combination of the values of `axes`, with each
    /// of `seeds`. `folder` has the files that the plan names.
    ///
    /// # Errors
    /// A description of the first point whose plan is not valid, or of a sweep that is too large, in one line.
    pub fn new(
        text: &str,
        settings: &[(&str, &str)],
        axes: Vec<Axis>,
        seeds: Vec<u64>,
        folder: &PlanFolder,
    ) -> Result<Self, String> {
        let count = axes.iter().fold(seeds.len(), |count, axis| count.saturating_mul(axis.values.len()));
        if count > RUNS_MAX {
            return Err(format!("the sweep has {count} runs; the maximum is {RUNS_MAX}"));
        }
        for (index, axis) in axes.iter().enumerate() {
            if axes[..index].iter().any(|other| other.key == axis.key) {
                return Err(format!("the key {} is varied twice", axis.key));
            }
        }
        let mut base = with_settings(text, settings)?;
        let plan = toml::to_string(&base).map_err(|error| error.to_string())?;
        let mut sweep = Self { plan, axes, seeds, points: Vec::new(), runs: BTreeMap::new() };
        // The name does not affect the run, so that it is not part of the key.
        base.remove("name");
        let mut known_traces = Traces::new();
        for values in sweep.combinations() {
            let mut table = base.clone();
            for (axis, value) in sweep.axes.iter().zip(&values) {
                insert(&mut table, &axis.key, value_of(value))?;
            }
            let at = sweep.name_of(&values);
            let task = simulation_of(&table, folder, &mut known_traces).map_err(|error| format!("{at}{error}"))?;
            let specs = sweep.seeds.iter().map(|seed| RunSpec::new(task.clone(), *seed));
            let specs: Vec<RunSpec> = specs.collect();
            let keys = specs.iter().map(|spec| spec.key.clone()).collect();
            sweep.runs.extend(specs.into_iter().map(|spec| (spec.key.clone(), spec)));
            sweep.points.push((values, keys));
        }
        Ok(sweep)
    }

    /// Returns the runs, by key.
    pub fn runs(&self) -> &BTreeMap<String, RunSpec> {
        &self.runs
    }

    /// Returns what the runs have found; `command` is the command that repeats the sweep.
    ///
    /// # Panics
    /// When a run has no sample.
    pub fn run_set(&self, samples: &BTreeMap<String, Sample>, command: &str) -> RunSet {
        let run = |(seed, key): (&u64, &String)| SeedRun::new(*seed, &samples[key]);
        let point = |(values, keys): &(Vec<String>, Vec<String>)| PointRuns {
            at: values.clone(),
            runs: self.seeds.iter().zip(keys).map(run).collect(),
        };
        let points = self.points.iter().map(point).collect();
        RunSet::new(command, &self.plan, self.axes.clone(), points)
    }

    /// Returns every combination of values, those of the last axis varying fastest.
    fn combinations(&self) -> Vec<Vec<String>> {
        self.axes.iter().fold(vec![Vec::new()], |combinations, axis| {
            let extended = |values: &Vec<String>| -> Vec<Vec<String>> {
                axis.values.iter().map(|value| [values.as_slice(), std::slice::from_ref(value)].concat()).collect()
            };
            combinations.iter().flat_map(extended).collect()
        })
    }

    fn name_of(&self, values: &[String]) -> String {
        let named: Vec<String> =
            self.axes.iter().zip(values).map(|(axis, value)| format!("{}={value}", axis.key)).collect();
        if named.is_empty() { String::new() } else { format!("with {}: ", named.join(", ")) }
    }
}

/// Returns the plan `text` with `settings` applied.
///
/// # Errors
/// When the text is not TOML, or a setting does not fit.
pub fn with_settings(text: &str, settings: &[(&str, &str)]) -> Result<toml::Table, String> {
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().replace('\n', " "))?;
    for (key, value) in settings {
        insert(&mut table, key, value_of(value))?;
    }
    Ok(table)
}

/// Reads a value as in `--set`: TOML, or else text.
fn value_of(text: &str) -> toml::Value {
    let parsed = toml::de::ValueDeserializer::parse(text).and_then(toml::Value::deserialize);
    parsed.unwrap_or_else(|_| toml::Value::String(text.to_owned()))
}

/// Maximum number of runs of a sweep.
const RUNS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
        topology = { kind = "point-to-point" }
        links = { rate = "100Gbps", delay = "1us" }
        transport = { name = "irn" }
        workload = { kind = "closed-loop", op = "write", message = "10KB", depth = 4, count = 50 }
    "#;

    fn sweep(axes: &[&str], seeds: u64) -> Result<Sweep, String> {
        let axes = axes.iter().map(|axis| axis.parse()).collect::<Result<Vec<Axis>, _>>()?;
        Sweep::new(PLAN, &[("mtu", "4096")], axes, (1..=seeds).collect(), &PlanFolder::default())
    }

    #[test]
    fn every_combination_has_a_run_for_each_seed() {
        let sweep = sweep(&["links.delay=1us,2us", "transport=irn,roce-gbn,falcon"], 2).expect("it is valid");
        assert_eq!((sweep.points.len(), sweep.runs.len()), (6, 12));
        assert_eq!(sweep.points[1].0, ["1us", "roce-gbn"]);
        assert!(sweep.plan.contains("mtu = 4096") && !sweep.plan.contains("roce-gbn"));
    }

    /// Runs of execution traces contain the traces, so that they can be executed elsewhere; they share them here.
    #[test]
    fn a_sweep_of_execution_traces_has_the_traces() {
        let folder = PlanFolder {
            path: concat!(env!("CARGO_MANIFEST_DIR"), "/../rnic-fabric/tests").into(),
            ..PlanFolder::default()
        };
        let star = [
            ("topology", "{ kind = \"star\", hosts = 4 }"),
            ("switch", "{ model = \"shared-buffer\", buffer = \"8MB\" }"),
        ];
        let axes = ["links.rate=100Gbps,200Gbps".parse::<Axis>().expect("an axis")];
        let execution_of = |file: &str| {
            let chakra = ("workload", format!("{{ kind = \"chakra\", file = \"{file}\" }}"));
            let settings = [star[0], star[1], (chakra.0, &chakra.1)];
            let sweep = Sweep::new(PLAN, &settings, axes.to_vec(), vec![1, 2], &folder).expect("it is valid");
            assert_eq!(sweep.runs.len(), 4);
            let specs: Vec<&RunSpec> =
                sweep.points.iter().flat_map(|(_, keys)| keys).map(|key| &sweep.runs[key]).collect();
            let [first, .., last] = specs[..] else { panic!("four runs") };
            assert_eq!(first.task.traces.len(), 4);
            assert!(first.task.traces.iter().all(|(name, trace)| {
                std::ptr::eq(trace.bytes(), last.task.traces[name].bytes()) && name.starts_with("chakra/training.")
            }));
            let json = serde_json::to_string(first).expect("it has a form");
            let sent: RunSpec = serde_json::from_str(&json).expect("it is one");
            assert_eq!(sent, *first);
            let mut other = first.task.clone();
            other.traces.insert("chakra/training.0.et".to_owned(), vec![0].into());
            assert_ne!(RunSpec::new(other, first.seed).key, first.key, "a run depends on the traces");
            let samples = [first, &sent, last].map(RunSpec::run);
            for sample in &samples {
                assert_eq!(sample.failure, None);
            }
            let hashes = samples.each_ref().map(|sample| sample.report["trace_hash"].clone());
            assert_eq!(hashes[0], hashes[1]);
            assert_ne!(hashes[0], hashes[2]);
            samples[0].report["execution"].clone()
        };
        let execution = execution_of("chakra/training");
        assert_eq!(execution_of("chakra"), execution);
        assert!(execution["nodes"].as_u64().is_some_and(|nodes| nodes > 4), "{execution}");
    }

    /// A program file is another one after a change: results of the old one are not used, and it is not run instead.
    #[test]
    fn a_run_depends_on_the_program_files_that_its_plan_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("own.rnicp");
        let write = |name: &str| {
            let program = rnic_transports::programs::find(name).expect("it is in the tree");
            let text = rnic_transports::programs::to_file(program).expect("it has a file");
            std::fs::write(&path, text).expect("it is written");
        };
        let sweep = || {
            let axes = vec![format!("transport=irn,{}", path.display()).parse().expect("an axis")];
            Sweep::new(PLAN, &[], axes, vec![1], &PlanFolder::default()).expect("it is valid")
        };
        write("reno");
        let before = sweep();
        write("new-reno");
        let after = sweep();
        let key = |sweep: &Sweep, point: usize| sweep.points[point].1[0].clone();
        assert_eq!(key(&before, 0), key(&after, 0));
        assert_ne!(key(&before, 1), key(&after, 1));
        let sample = after.runs[&key(&after, 1)].run();
        assert_eq!(sample.failure, None);
        assert_eq!(sample.report["program"], "new-reno");
        let failure = before.runs[&key(&before, 1)].run().failure.expect("the file has changed");
        assert!(failure.contains("own.rnicp is not the one with which the run was planned"), "{failure}");
    }

    #[test]
    fn a_point_that_is_not_valid_is_named() {
        for (axes, seeds, reason) in [
            (&["links.rate=100Gbps,fast"][..], 1, "with links.rate=fast: plan, line"),
            (&["links.rate=1Gbps", "links.rate=2Gbps"], 1, "the key links.rate is varied twice"),
            (&["links.rate.of=1"], 1, "is not a table"),
            (&["mtu=256,512"], 60_000, "the sweep has 120000 runs; the maximum is 100000"),
        ] {
            let error = sweep(axes, seeds).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
    }
}
