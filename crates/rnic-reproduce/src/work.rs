//! Derives runs from experiments: each run occurs once, even if several figures need it.

use std::collections::{BTreeMap, BTreeSet};

use rnic_base::{Bytes, Duration, Probability};
use rnic_fabric::Plan;
use rnic_fabric::plan::insert;
use rnic_transports::programs::is_file;

use crate::catalogue::{CatalogueError, FILE, Selected};
use crate::experiment::{AxisPoint, Experiment, Overrides, Sweep, Variant};
use crate::files::PlanFolder;
use crate::input::TRACE_BYTES_MAX;
use crate::machine;
use crate::quantity::{self, Arguments};
use crate::run::{RunSpec, Sample, Task, digest_of};
use crate::traces::{Reading, Traces};
use crate::trial::{self, TrialKind};

/// Version of the experiments: full or small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// The full version, as published.
    Full,
    /// The reduced version of an experiment (`--fast`).
    Fast,
}

/// All runs that the requested experiments need.
#[derive(Clone, Debug)]
pub struct Work<'c> {
    /// The runs, by key.
    pub runs: BTreeMap<String, RunSpec>,
    /// Assignment of runs to variants, positions and seeds, one layout per experiment.
    pub layouts: Vec<Layout<'c>>,
    /// Version of the experiments: full or small.
    pub size: Size,
}

/// The runs of one experiment, by variant, position (a point of the axes) and seed.
#[derive(Clone, Debug)]
pub struct Layout<'c> {
    /// Experiment and rows that were requested.
    pub selected: Selected<'c>,
    /// Values of each axis in this version.
    pub axes: Vec<Vec<AxisPoint>>,
    /// Seeds; a single unused one when the experiment has no runs.
    pub seeds: Vec<u64>,
    positions: Vec<AxisPosition>,
    keys: BTreeMap<(usize, AxisPosition, u64), String>,
    /// Values of quantities, by measure, variant and position; used when the experiment has no runs.
    quantities: BTreeMap<(usize, usize, AxisPosition), f64>,
}

/// A point of the axes: for each axis the index of a value, or `None` for the value in the plan.
pub type AxisPosition = Vec<Option<usize>>;

impl<'c> Work<'c> {
    /// Returns the runs that `selected` needs; `seeds` is a number of seeds that replaces those of the files.
    ///
    /// # Errors
    /// The first plan that cannot be run, and its file.
    pub fn new(selected: Vec<Selected<'c>>, size: Size, seeds: Option<u32>) -> Result<Self, CatalogueError> {
        let mut work = Self { runs: BTreeMap::new(), layouts: Vec::new(), size };
        for selected in selected {
            let layout = work.plan_runs(selected, seeds)?;
            work.layouts.push(layout);
        }
        Ok(work)
    }

    fn plan_runs(&mut self, selected: Selected<'c>, seeds: Option<u32>) -> Result<Layout<'c>, CatalogueError> {
        let experiment = selected.experiment;
        let axes: Vec<Vec<AxisPoint>> = experiment
            .axis
            .iter()
            .map(|axis| {
                let is_in = |point: &AxisPoint| self.size == Size::Full || axis.is_fast(&point.label);
                axis.points().into_iter().filter(is_in).collect()
            })
            .collect();
        let listed = match (self.size, &experiment.fast.seeds) {
            (Size::Fast, Some(seeds)) => seeds,
            _ => &experiment.seeds,
        };
        let seeds = seeds.map_or_else(|| listed.clone(), |count| first_seeds(listed, count));
        let positions = positions(experiment.sweep, &axes);
        let (keys, quantities) = (BTreeMap::new(), BTreeMap::new());
        let mut layout = Layout { selected, axes, seeds, positions, keys, quantities };
        if experiment.needs_runs() {
            self.fill(&mut layout)?;
        } else {
            layout.seeds = vec![0];
            self.compute(&mut layout)?;
        }
        Ok(layout)
    }

    /// Computes every quantity for every variant at every position.
    fn compute(&self, layout: &mut Layout<'c>) -> Result<(), CatalogueError> {
        let experiment = layout.selected.experiment;
        for (variant_index, variant) in experiment.variant.iter().enumerate() {
            for position in layout.positions.clone() {
                let at = layout.name_of(variant, &position);
                let error_at = |what: String| wrong(experiment, at.clone(), what);
                let arguments: Arguments = overridden(experiment, &self.overrides(layout, variant, &position))
                    .map_err(error_at)?
                    .into_iter()
                    .collect();
                for (index, measure) in experiment.measure.iter().enumerate() {
                    let Some(name) = &measure.quantity else { continue };
                    let value =
                        quantity::find(name).and_then(|quantity| (quantity.compute)(&arguments)).map_err(error_at)?;
                    layout.quantities.insert((index, variant_index, position.clone()), value * measure.scale);
                }
            }
        }
        Ok(())
    }

    fn fill(&mut self, layout: &mut Layout<'c>) -> Result<(), CatalogueError> {
        let experiment = layout.selected.experiment;
        let wrong = |key: String, what: String| wrong(experiment, key, what);
        let memory =
            experiment.memory.as_deref().map_or(Ok(DEFAULT_MEMORY_BYTES), |text| text.parse::<Bytes>().map(Bytes::get));
        let memory = memory.map_err(|error| wrong("memory".into(), error.to_string()))?;
        let folder = PlanFolder { files: experiment.files, path: experiment.folder.clone() };
        let mut known_traces = Traces::new();
        for (index, variant) in experiment.variant.iter().enumerate() {
            for position in layout.positions.clone() {
                let overrides = self.overrides(layout, variant, &position);
                let error_at = |what: String| wrong(layout.name_of(variant, &position), what);
                let task = match &experiment.trial {
                    Some(name) => trial(experiment, name, &overrides),
                    None => overridden(experiment, &overrides)
                        .and_then(|table| simulation_of(&table, &folder, &mut known_traces)),
                };
                let task = Task { memory, ..task.map_err(error_at)? };
                for seed in layout.seeds.clone() {
                    let spec = RunSpec::new(task.clone(), seed);
                    layout.keys.insert((index, position.clone(), seed), spec.key.clone());
                    self.runs.entry(spec.key.clone()).or_insert(spec);
                }
            }
        }
        Ok(())
    }

    /// Returns the overrides of the plan, in the order in which they apply.
    fn overrides<'l>(&self, layout: &'l Layout<'c>, variant: &'c Variant, position: &AxisPosition) -> Vec<&'l Overrides>
    where
        'c: 'l,
    {
        let experiment = layout.selected.experiment;
        let mut overrides = vec![&experiment.set, &variant.set];
        if self.size == Size::Fast {
            overrides.extend([&experiment.fast.set, &variant.fast]);
        }
        for (axis, index) in position.iter().enumerate() {
            let moves = variant.axes.as_ref().is_none_or(|axes| axes.contains(&experiment.axis[axis].name));
            if let (Some(index), true) = (index, moves) {
                let point = &layout.axes[axis][*index];
                overrides.push(&point.set);
                overrides.extend(point.only.get(&variant.name));
            }
        }
        for point in &experiment.setting {
            overrides.push(&point.set);
            overrides.extend(point.only.get(&variant.name));
        }
        overrides
    }

    /// Removes the runs that no requested row reads.
    pub fn keep_what_rows_read(&mut self) {
        let mut read = BTreeSet::new();
        for layout in &mut self.layouts {
            layout.keep_what_rows_read();
            read.extend(layout.keys.values().cloned());
        }
        self.runs.retain(|key, _| read.contains(key));
    }
}

fn wrong(experiment: &Experiment, key: String, what: String) -> CatalogueError {
    let path = experiment.folder.join(FILE).display().to_string();
    CatalogueError::Key { path, line: None, key, what }
}

impl Layout<'_> {
    /// Returns the value measured by `measure` for `variant` at `position`; `None` if there is none.
    pub fn quantity(&self, measure: &str, variant: &str, position: &AxisPosition) -> Option<f64> {
        let experiment = self.selected.experiment;
        let measure = experiment.measure.iter().position(|other| other.name == measure)?;
        let variant = experiment.variant.iter().position(|other| other.name == variant)?;
        self.quantities.get(&(measure, variant, position.clone())).copied()
    }

    /// Returns the sample of the run of `variant` at `position` with `seed`.
    pub fn sample<'s>(
        &self,
        samples: &'s BTreeMap<String, Sample>,
        variant: &str,
        position: &AxisPosition,
        seed: u64,
    ) -> Option<&'s Sample> {
        let index = self.selected.experiment.variant.iter().position(|other| other.name == variant)?;
        samples.get(self.keys.get(&(index, position.clone(), seed))?)
    }

    fn keep_what_rows_read(&mut self) {
        let experiment = self.selected.experiment;
        let checks = experiment.check.iter().filter(|check| self.selected.has_row(&check.row));
        let mut read = BTreeSet::new();
        for place in checks.flat_map(|check| check.value.places()) {
            let variant = experiment.variant.iter().position(|other| other.name == place.variant);
            let positions = self.positions(&place.at, &place.over);
            read.extend(variant.into_iter().flat_map(|variant| positions.iter().map(move |at| (variant, at.clone()))));
        }
        self.keys.retain(|(variant, position, _), _| read.contains(&(*variant, position.clone())));
    }

    /// Returns every run: variant, position, seed and key.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &AxisPosition, u64, &str)> {
        let experiment = self.selected.experiment;
        self.keys.iter().map(move |((variant, position, seed), key)| {
            (experiment.variant[*variant].name.as_str(), position, *seed, key.as_str())
        })
    }

    /// Returns the positions at which the axes in `at` have the values given there, and those in `over` have any value;
    /// empty when this version lacks such a value.
    pub fn positions(&self, at: &crate::experiment::AxisValues, over: &[String]) -> Vec<AxisPosition> {
        let experiment = self.selected.experiment;
        let required_value = |axis: usize| at.get(&experiment.axis[axis].name);
        let is_iterated = |axis: usize| over.contains(&experiment.axis[axis].name);
        let is_selected = |position: &&AxisPosition| {
            let matches = |(axis, index): (usize, &Option<usize>)| match (required_value(axis), index) {
                (Some(label), Some(index)) => self.axes[axis][*index].label == *label,
                (Some(_), None) => false,
                (None, Some(_)) => is_iterated(axis),
                // When axes are varied one at a time, the others keep the plan's value; `moves` requires that one of
                // the axes in `over` is varied.
                (None, None) => true,
            };
            let moves = over.is_empty()
                || position.iter().enumerate().any(|(axis, index)| index.is_some() && is_iterated(axis));
            position.iter().enumerate().all(matches) && moves
        };
        self.positions.iter().filter(is_selected).cloned().collect()
    }

    /// Returns a description of `position`, such as `load 70%, buffer 60KB`, or an empty string.
    pub fn axis_position_name(&self, position: &AxisPosition) -> String {
        let axes = &self.selected.experiment.axis;
        let name = |(axis, index): (usize, &Option<usize>)| {
            index.map(|index| format!("{} {}", axes[axis].label, self.axes[axis][index].label))
        };
        position.iter().enumerate().filter_map(name).collect::<Vec<_>>().join(", ")
    }

    fn name_of(&self, variant: &Variant, position: &AxisPosition) -> String {
        let position = self.axis_position_name(position);
        let comma = if position.is_empty() { "" } else { " at " };
        format!("variant `{}`{comma}{position}", variant.name)
    }
}

fn first_seeds(listed: &[u64], count: u32) -> Vec<u64> {
    let mut seeds: Vec<u64> = listed.iter().copied().take(count as usize).collect();
    let mut next = listed.iter().max().map_or(1, |last| last + 1);
    while seeds.len() < count as usize {
        seeds.push(next);
        next += 1;
    }
    seeds
}

fn positions(sweep: Sweep, axes: &[Vec<AxisPoint>]) -> Vec<AxisPosition> {
    let unset = vec![None; axes.len()];
    match sweep {
        Sweep::Grid => axes.iter().enumerate().fold(vec![unset], |positions, (axis, points)| {
            let along = |position: &AxisPosition| -> Vec<AxisPosition> {
                (0..points.len()).map(|index| with_axis(position, axis, index)).collect()
            };
            positions.iter().flat_map(along).collect()
        }),
        Sweep::Each => {
            let one_axis = axes.iter().enumerate().flat_map(|(axis, points)| {
                let unset = &unset;
                (0..points.len()).map(move |index| with_axis(unset, axis, index))
            });
            std::iter::once(unset.clone()).chain(one_axis.collect::<Vec<_>>()).collect()
        }
    }
}

fn with_axis(position: &AxisPosition, axis: usize, index: usize) -> AxisPosition {
    let mut position = position.clone();
    position[axis] = Some(index);
    position
}

/// Returns the plan with all overrides applied.
fn overridden(experiment: &Experiment, overrides: &[&Overrides]) -> Result<toml::Table, String> {
    let mut table = experiment.base_plan.clone();
    // The name does not affect the run, so it is left out of the key.
    table.remove("name");
    for (key, value) in overrides.iter().flat_map(|overrides| overrides.iter()) {
        insert(&mut table, key, value.clone())?;
    }
    Ok(table)
}

/// Returns the task of the trial called `name`, with the overridden plan as its arguments.
fn trial(experiment: &Experiment, name: &str, overrides: &[&Overrides]) -> Result<Task, String> {
    let trial = trial::find(name)?;
    let arguments = overridden(experiment, overrides)?;
    let cost = trial.cost(&arguments)?;
    let plan = toml::to_string(&arguments).map_err(|error| error.to_string())?;
    let measured_on = (trial.kind == TrialKind::Measured).then(machine::processor_and_build);
    Ok(Task { trial: Some(name.to_owned()), measured_on, plan, cost, ..Task::default() })
}

/// Returns the task of a simulation of the plan `table`, with the files in `folder` that it names. `known` has the
/// execution traces of that folder that have been read before, and gets those that are read.
///
/// # Errors
/// When the plan cannot be run.
pub(crate) fn simulation_of(table: &toml::Table, folder: &PlanFolder, known: &mut Traces) -> Result<Task, String> {
    let text = toml::to_string(table).map_err(|error| error.to_string())?;
    let mut files = BTreeMap::new();
    let mut read = |name: &str| {
        let content = folder.read_text(name, TRACE_BYTES_MAX)?;
        files.insert(name.to_owned(), content.clone());
        Ok(content)
    };
    let mut trace_files = folder.clone();
    let mut traces = Reading::new(&mut trace_files, known);
    let plan = Plan::from_toml_in(&text, &[], &mut read, &mut traces).map_err(|error| error.to_string())?;
    let traces = traces.into_read();
    let mut programs = BTreeMap::new();
    table.values().try_for_each(|value| add_programs(value, &mut programs))?;
    let (memory, cost) = (DEFAULT_MEMORY_BYTES, cost(&plan, table));
    Ok(Task { plan: text, files, traces, programs, memory, cost, ..Task::default() })
}

/// Adds the program files that `value`, a part of a plan, names: their paths are relative to the folder in which the
/// command runs.
fn add_programs(value: &toml::Value, programs: &mut BTreeMap<String, String>) -> Result<(), String> {
    match value {
        toml::Value::String(path) if is_file(path) => {
            programs.insert(path.clone(), digest_of(path).map_err(|error| format!("{path}: {error}"))?);
            Ok(())
        }
        toml::Value::Array(values) => values.iter().try_for_each(|value| add_programs(value, programs)),
        toml::Value::Table(table) => table.values().try_for_each(|value| add_programs(value, programs)),
        _ => Ok(()),
    }
}

/// Estimates the bytes that hosts send in a run, in packets of [`PACKET`], to order the runs and to estimate the
/// remaining time; no result depends on it. Other workloads than `poisson` are taken to fill one link.
fn cost(plan: &Plan, table: &toml::Table) -> u64 {
    let workload = table.get("workload");
    let value_of = |key: &str| workload?.get(key)?.as_str();
    let duration = value_of("duration").and_then(|text| text.parse::<Duration>().ok());
    let load = value_of("load").and_then(|text| text.parse::<Probability>().ok()).map_or(1.0, |load| load.as_f64());
    let bytes = value_of("bytes").and_then(|text| text.parse::<Bytes>().ok()).map_or(0.0, |bytes| bytes.get() as f64);
    let repeats = workload.and_then(|workload| workload.get("repeats")?.as_integer()).unwrap_or(1);
    let seconds = duration.map_or(0.0, |duration| duration.as_us_f64() * 1e-6);
    let senders = if value_of("kind") == Some("poisson") { plan.topology.hosts() } else { 1 };
    let offered = plan.host_links.rate.as_gbps_f64() * 1e9 / 8.0 * seconds * load * f64::from(senders);
    ((offered + bytes * repeats as f64) * PACKET / f64::from(plan.mtu)).max(COST_MIN) as u64
}

/// Payload of the packets in which costs are counted, in bytes: a run takes the time of its packets.
const PACKET: f64 = 1024.0;
/// Minimum cost of a run, in bytes: setup and teardown take about as long as moving this number of bytes.
const COST_MIN: f64 = 1e6;
/// Default memory of a run, in bytes.
const DEFAULT_MEMORY_BYTES: u64 = 512 << 20;
