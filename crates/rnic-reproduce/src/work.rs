//! Derives runs from experiments: each run occurs once, however many figures need it.

use std::collections::BTreeMap;

use rnic_base::{Bytes, Duration, Probability};
use rnic_fabric::Plan;
use rnic_trials::Nature;

use crate::catalogue::{CatalogueError, FILE, Selected};
use crate::experiment::{AxisPoint, Experiment, Overrides, Sweep, Variant};
use crate::input::{TRACE_BYTES_MAX, read_text};
use crate::machine;
use crate::quantity::{self, Arguments};
use crate::run::{RunSpec, Sample, Task};

/// Version of the experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// The full version, as published.
    Full,
    /// The small version.
    Fast,
}

/// All runs that the requested experiments need.
#[derive(Clone, Debug)]
pub struct Work<'c> {
    /// The runs, by key.
    pub runs: BTreeMap<String, RunSpec>,
    /// Assignment of runs to variants, places and seeds, one layout per experiment.
    pub layouts: Vec<Layout<'c>>,
    /// Version of the experiments.
    pub size: Size,
}

/// The runs of one experiment, by variant, place (a point of the axes) and seed.
#[derive(Clone, Debug)]
pub struct Layout<'c> {
    /// Experiment and rows that were requested.
    pub selected: Selected<'c>,
    /// Values of each axis, at this size.
    pub axes: Vec<Vec<AxisPoint>>,
    /// Seeds; a single unused one when nothing is run.
    pub seeds: Vec<u64>,
    places: Vec<Place>,
    keys: BTreeMap<(usize, Place, u64), String>,
    /// Values of quantities, by measure, variant and place; used when nothing is run.
    quantities: BTreeMap<(usize, usize, Place), f64>,
}

/// A point of the axes: for each axis the index of a value, or `None` for the plan's own value.
pub type Place = Vec<Option<usize>>;

impl<'c> Work<'c> {
    /// Returns the runs that `selected` needs; `seeds` is a number of seeds that replaces those of the files.
    ///
    /// # Errors
    /// The first plan that cannot be run, and its file.
    pub fn new(selected: Vec<Selected<'c>>, size: Size, seeds: Option<u32>) -> Result<Self, CatalogueError> {
        let mut work = Self { runs: BTreeMap::new(), layouts: Vec::new(), size };
        for selected in selected {
            let layout = work.lay_out(selected, seeds)?;
            work.layouts.push(layout);
        }
        Ok(work)
    }

    fn lay_out(&mut self, selected: Selected<'c>, seeds: Option<u32>) -> Result<Layout<'c>, CatalogueError> {
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
        let places = places(experiment.sweep, &axes);
        let (keys, quantities) = (BTreeMap::new(), BTreeMap::new());
        let mut layout = Layout { selected, axes, seeds, places, keys, quantities };
        if experiment.needs_runs() {
            self.fill(&mut layout)?;
        } else {
            layout.seeds = vec![0];
            self.compute(&mut layout)?;
        }
        Ok(layout)
    }

    /// Computes every quantity for every variant at every place.
    fn compute(&self, layout: &mut Layout<'c>) -> Result<(), CatalogueError> {
        let experiment = layout.selected.experiment;
        for (variant_index, variant) in experiment.variant.iter().enumerate() {
            for place in layout.places.clone() {
                let at = layout.name_of(variant, &place);
                let told = |what: String| wrong(experiment, at.clone(), what);
                let with: Arguments = overridden(experiment, &self.overrides(layout, variant, &place))
                    .map_err(told)?
                    .into_iter()
                    .collect();
                for (index, measure) in experiment.measure.iter().enumerate() {
                    let Some(name) = &measure.quantity else { continue };
                    let value = quantity::find(name).and_then(|quantity| (quantity.compute)(&with)).map_err(told)?;
                    layout.quantities.insert((index, variant_index, place.clone()), value * measure.scale);
                }
            }
        }
        Ok(())
    }

    fn fill(&mut self, layout: &mut Layout<'c>) -> Result<(), CatalogueError> {
        let experiment = layout.selected.experiment;
        let wrong = |key: String, what: String| wrong(experiment, key, what);
        let memory = experiment.memory.as_deref().map_or(Ok(MEMORY), |text| text.parse::<Bytes>().map(Bytes::get));
        let memory = memory.map_err(|error| wrong("memory".into(), error.to_string()))?;
        for (index, variant) in experiment.variant.iter().enumerate() {
            for place in layout.places.clone() {
                let overrides = self.overrides(layout, variant, &place);
                let told = |what: String| wrong(layout.name_of(variant, &place), what);
                let task = match &experiment.trial {
                    Some(name) => trial(experiment, name, &overrides),
                    None => simulation(experiment, &overrides),
                };
                let task = Task { memory, ..task.map_err(told)? };
                for seed in layout.seeds.clone() {
                    let spec = RunSpec::new(task.clone(), seed);
                    layout.keys.insert((index, place.clone(), seed), spec.key.clone());
                    self.runs.entry(spec.key.clone()).or_insert(spec);
                }
            }
        }
        Ok(())
    }

    /// Returns the overrides of the plan, in the order in which they apply.
    fn overrides<'l>(&self, layout: &'l Layout<'c>, variant: &'c Variant, place: &Place) -> Vec<&'l Overrides>
    where
        'c: 'l,
    {
        let experiment = layout.selected.experiment;
        let mut overrides = vec![&experiment.set, &variant.set];
        if self.size == Size::Fast {
            overrides.extend([&experiment.fast.set, &variant.fast]);
        }
        for (axis, index) in place.iter().enumerate() {
            let moves = variant.axes.as_ref().is_none_or(|axes| axes.contains(&experiment.axis[axis].name));
            if let (Some(index), true) = (index, moves) {
                let point = &layout.axes[axis][*index];
                overrides.push(&point.set);
                overrides.extend(point.only.get(&variant.name));
            }
        }
        overrides
    }
}

fn wrong(experiment: &Experiment, key: String, what: String) -> CatalogueError {
    let path = experiment.folder.join(FILE).display().to_string();
    CatalogueError::Key { path, line: None, key, what }
}

impl Layout<'_> {
    /// Returns the value of the quantity of `measure` for `variant` at `place`.
    pub fn quantity(&self, measure: &str, variant: &str, place: &Place) -> Option<f64> {
        let experiment = self.selected.experiment;
        let measure = experiment.measure.iter().position(|other| other.name == measure)?;
        let variant = experiment.variant.iter().position(|other| other.name == variant)?;
        self.quantities.get(&(measure, variant, place.clone())).copied()
    }

    /// Returns the sample of the run of `variant` at `place` with `seed`.
    pub fn sample<'s>(
        &self,
        samples: &'s BTreeMap<String, Sample>,
        variant: &str,
        place: &Place,
        seed: u64,
    ) -> Option<&'s Sample> {
        let index = self.selected.experiment.variant.iter().position(|other| other.name == variant)?;
        samples.get(self.keys.get(&(index, place.clone(), seed))?)
    }

    /// Returns every run: variant, place, seed and key.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &Place, u64, &str)> {
        let experiment = self.selected.experiment;
        self.keys.iter().map(move |((variant, place, seed), key)| {
            (experiment.variant[*variant].name.as_str(), place, *seed, key.as_str())
        })
    }

    /// Returns the places at which the axes of `at` have these values and those of `over` have any; empty when this
    /// size lacks the value.
    pub fn places(&self, at: &crate::experiment::At, over: &[String]) -> Vec<Place> {
        let experiment = self.selected.experiment;
        let held = |axis: usize| at.get(&experiment.axis[axis].name);
        let is_gone_over = |axis: usize| over.contains(&experiment.axis[axis].name);
        let fits = |place: &&Place| {
            let is_there = |(axis, index): (usize, &Option<usize>)| match (held(axis), index) {
                (Some(label), Some(index)) => self.axes[axis][*index].label == *label,
                (Some(_), None) => false,
                (None, Some(_)) => is_gone_over(axis),
                // When axes are varied one at a time, the others keep the plan's value; `moves` ensures that one of
                // `over` is varied.
                (None, None) => true,
            };
            let moves =
                over.is_empty() || place.iter().enumerate().any(|(axis, index)| index.is_some() && is_gone_over(axis));
            place.iter().enumerate().all(is_there) && moves
        };
        self.places.iter().filter(fits).cloned().collect()
    }

    /// Returns a description such as `load 70%, buffer 60KB`, or an empty string.
    pub fn place_name(&self, place: &Place) -> String {
        let axes = &self.selected.experiment.axis;
        let name = |(axis, index): (usize, &Option<usize>)| {
            index.map(|index| format!("{} {}", axes[axis].label, self.axes[axis][index].label))
        };
        place.iter().enumerate().filter_map(name).collect::<Vec<_>>().join(", ")
    }

    fn name_of(&self, variant: &Variant, place: &Place) -> String {
        let place = self.place_name(place);
        let comma = if place.is_empty() { "" } else { " at " };
        format!("variant `{}`{comma}{place}", variant.name)
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

fn places(sweep: Sweep, axes: &[Vec<AxisPoint>]) -> Vec<Place> {
    let still = vec![None; axes.len()];
    match sweep {
        Sweep::Grid => axes.iter().enumerate().fold(vec![still], |places, (axis, points)| {
            let along =
                |place: &Place| -> Vec<Place> { (0..points.len()).map(|index| moved(place, axis, index)).collect() };
            places.iter().flat_map(along).collect()
        }),
        Sweep::Each => {
            let alone = axes.iter().enumerate().flat_map(|(axis, points)| {
                let still = &still;
                (0..points.len()).map(move |index| moved(still, axis, index))
            });
            std::iter::once(still.clone()).chain(alone.collect::<Vec<_>>()).collect()
        }
    }
}

fn moved(place: &Place, axis: usize, index: usize) -> Place {
    let mut place = place.clone();
    place[axis] = Some(index);
    place
}

/// Returns the plan with all overrides applied.
fn overridden(experiment: &Experiment, overrides: &[&Overrides]) -> Result<toml::Table, String> {
    let mut table = experiment.base_plan.clone();
    // The name does not affect the run, so it is left out of the key.
    table.remove("name");
    for (key, value) in overrides.iter().flat_map(|overrides| overrides.iter()) {
        replace(&mut table, key, value)?;
    }
    Ok(table)
}

/// Returns the task of the trial called `name`, with the overridden plan as its arguments.
fn trial(experiment: &Experiment, name: &str, overrides: &[&Overrides]) -> Result<Task, String> {
    let trial = rnic_trials::find(name)?;
    let arguments = overridden(experiment, overrides)?;
    let cost = trial.cost(&arguments)?;
    let plan = toml::to_string(&arguments).map_err(|error| error.to_string())?;
    let measured_on = (trial.nature == Nature::Measured).then(machine::here);
    Ok(Task { trial: Some(name.to_owned()), measured_on, plan, cost, ..Task::default() })
}

/// Returns the task of a simulation of the overridden plan, with the files that it names.
fn simulation(experiment: &Experiment, overrides: &[&Overrides]) -> Result<Task, String> {
    let table = overridden(experiment, overrides)?;
    let text = toml::to_string(&table).map_err(|error| error.to_string())?;
    let mut files = BTreeMap::new();
    let mut read = |name: &str| {
        let content = read_text(&experiment.folder.join(name), TRACE_BYTES_MAX).map_err(|error| error.to_string())?;
        files.insert(name.to_owned(), content.clone());
        Ok(content)
    };
    let plan = Plan::from_toml_with(&text, &[], &mut read).map_err(|error| error.to_string())?;
    Ok(Task { plan: text, files, cost: cost(&plan, &table), ..Task::default() })
}

/// Estimates the bytes that cross links in a run, for the order of runs and the remaining time; no result depends on
/// it.
fn cost(plan: &Plan, table: &toml::Table) -> u64 {
    let said = |key: &str| table.get("workload")?.get(key)?.as_str();
    let duration = said("duration").and_then(|text| text.parse::<Duration>().ok());
    let load = said("load").and_then(|text| text.parse::<Probability>().ok()).map_or(1.0, |load| load.as_f64());
    let bytes = said("bytes").and_then(|text| text.parse::<Bytes>().ok()).map_or(0.0, |bytes| bytes.get() as f64);
    let repeats = table.get("workload").and_then(|workload| workload.get("repeats")?.as_integer()).unwrap_or(1);
    let seconds = duration.map_or(0.0, |duration| duration.as_us_f64() * 1e-6);
    let offered = plan.host_links.rate.as_gbps_f64() * 1e9 / 8.0 * seconds * load * f64::from(plan.topology.hosts());
    (offered + bytes * repeats as f64).max(COST_MIN) as u64
}

/// Sets `key`, a dotted path.
fn replace(table: &mut toml::Table, key: &str, value: &toml::Value) -> Result<(), String> {
    let (parents, last) = key.rsplit_once('.').map_or((None, key), |(parents, last)| (Some(parents), last));
    let mut place = table;
    for part in parents.into_iter().flat_map(|parents| parents.split('.')) {
        let next = place.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place = next.as_table_mut().ok_or_else(|| format!("`{key}`: a part of this key is not a table"))?;
    }
    place.insert(last.to_owned(), value.clone());
    Ok(())
}

/// Minimum cost of a run, in bytes: setup and teardown take about as long as moving so many bytes.
const COST_MIN: f64 = 1e6;
/// Default memory of a run, in bytes.
const MEMORY: u64 = 512 << 20;
