//! Sensitivity of rows to open parameters: which parameter that a paper does not state moves a row, by how much, and
//! for which values the paper's claim holds.
//!
//! An experiment lists its open parameters under `open`. A [`Study`] runs it in several settings, each with some open
//! parameters at other values than the plan's, and judges the requested rows in each.

mod design;
mod page;
mod table;

use serde::Serialize;

use crate::catalogue::{CatalogueError, Selected};
use crate::experiment::{Axis, Experiment};
use crate::judge::{Row, Samples, Stat, Verdict, rows};
use crate::work::{Layout, Size, Work};

pub use design::Design;
use design::{Plan, Setting, Step};

/// An experiment in several settings of its open parameters.
#[derive(Clone, Debug)]
pub struct Study {
    design: Design,
    rows: Vec<String>,
    plan: Plan,
    /// The experiment in each setting.
    experiments: Vec<Experiment>,
}

/// The result of a row in every setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The row with the plan's values.
    pub row: Row,
    /// The row in the other settings.
    pub outcomes: Vec<Outcome>,
    /// Effect of each open parameter, the largest first.
    pub effects: Vec<Effect>,
}

/// The row in one setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Open parameters with other values than the plan's: label and value.
    pub setting: Vec<(String, String)>,
    /// The value that is judged, if there is one.
    pub value: Option<f64>,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Effect of an open parameter on a row, from pairs of settings that differ only in it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effect {
    /// Label of the parameter.
    pub parameter: String,
    /// Number of pairs in which the row has a value.
    pub changes: usize,
    /// Mean of the absolute change of the row's value (Morris' mu*).
    pub mean_change: f64,
    /// Standard deviation of the change (Morris' sigma): large beside the mean when the effect depends on the other
    /// parameters, or on which values are exchanged.
    pub deviation: f64,
    /// Smallest and largest value of the row in these pairs; `None` without any.
    pub range: Option<(f64, f64)>,
}

impl Study {
    /// Returns the study of `selected` by `design`; `None` when the experiment has no open parameters.
    pub fn new(selected: &Selected<'_>, design: Design) -> Option<Self> {
        let experiment = selected.experiment;
        if experiment.open.is_empty() {
            return None;
        }
        let counts: Vec<usize> = experiment.open.iter().map(|open| open.points().len()).collect();
        let plan = Plan::new(design, &counts);
        let experiments = plan.settings.iter().map(|setting| with_setting(experiment, setting)).collect();
        Some(Self { design, rows: selected.rows.clone(), plan, experiments })
    }

    /// Returns the id of the experiment.
    pub fn id(&self) -> &str {
        &self.experiments[0].id
    }

    /// Returns the open parameters.
    pub fn open(&self) -> &[Axis] {
        &self.experiments[0].open
    }

    /// Returns the design.
    pub fn design(&self) -> Design {
        self.design
    }

    /// Returns the number of settings, the plan's included.
    pub fn settings(&self) -> usize {
        self.experiments.len()
    }

    /// Returns the runs that the requested rows need in all settings.
    ///
    /// # Errors
    /// The first setting whose plan cannot be run.
    pub fn work(&self, size: Size, seeds: Option<u32>) -> Result<Work<'_>, CatalogueError> {
        let select = |experiment| Selected { experiment, rows: self.rows.clone() };
        let mut work = Work::new(self.experiments.iter().map(select).collect(), size, seeds)?;
        work.keep_what_rows_read();
        Ok(work)
    }

    /// Judges the rows in all settings, from the samples of the runs of `work`, which [`Self::work`] returned.
    pub fn findings(&self, work: &Work<'_>, samples: &Samples) -> Vec<Finding> {
        let judge = |layout: &Layout<'_>| rows(work, layout, samples);
        let judged: Vec<Vec<Row>> = work.layouts.iter().map(judge).collect();
        let count = judged.first().map_or(0, Vec::len);
        (0..count).map(|index| self.finding(&judged.iter().map(|rows| &rows[index]).collect::<Vec<_>>())).collect()
    }

    /// Summarises one row, given in every setting.
    fn finding(&self, rows: &[&Row]) -> Finding {
        let values: Vec<Option<f64>> = rows.iter().map(|row| value_of(row)).collect();
        let outcome = |index: usize| Outcome {
            setting: self.labels(&self.plan.settings[index]),
            value: values[index],
            verdict: rows[index].verdict.clone(),
        };
        let mut effects: Vec<Effect> =
            (0..self.open().len()).map(|parameter| self.effect(parameter, &values)).collect();
        effects.sort_by(|a, b| b.mean_change.total_cmp(&a.mean_change));
        Finding { row: rows[0].clone(), outcomes: (1..rows.len()).map(outcome).collect(), effects }
    }

    fn effect(&self, parameter: usize, values: &[Option<f64>]) -> Effect {
        let steps = self.plan.steps.iter().filter(|step| step.parameter == parameter);
        let pairs: Vec<(f64, f64)> =
            steps.filter_map(|Step { from, to, .. }| Some((values[*from]?, values[*to]?))).collect();
        let count = pairs.len().max(1) as f64;
        let changes = || pairs.iter().map(|(from, to)| to - from);
        let mean = changes().sum::<f64>() / count;
        let variance = changes().map(|change| (change - mean).powi(2)).sum::<f64>() / count;
        let ends: Vec<f64> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
        Effect {
            parameter: self.open()[parameter].label.clone(),
            changes: pairs.len(),
            mean_change: changes().map(f64::abs).sum::<f64>() / count,
            deviation: variance.sqrt(),
            range: range_of(&ends),
        }
    }

    fn labels(&self, setting: &Setting) -> Vec<(String, String)> {
        let label =
            |(open, index): (&Axis, &Option<usize>)| Some((open.label.clone(), open.labels().swap_remove((*index)?)));
        self.open().iter().zip(setting).filter_map(label).collect()
    }
}

impl Finding {
    /// Returns the number of settings in which the row is inside its band, and in which it could be judged, the
    /// plan's included.
    pub fn holds(&self) -> (usize, usize) {
        let verdicts = || self.outcomes.iter().map(|outcome| &outcome.verdict).chain([&self.row.verdict]);
        let is_judged = |verdict: &&Verdict| matches!(verdict, Verdict::Inside | Verdict::Outside);
        let inside = verdicts().filter(|verdict| **verdict == Verdict::Inside).count();
        (inside, verdicts().filter(is_judged).count())
    }

    /// Returns the smallest and the largest value over all settings; `None` without any.
    pub fn range(&self) -> Option<(f64, f64)> {
        let values: Vec<f64> = self.outcomes.iter().filter_map(|outcome| outcome.value).chain(self.value()).collect();
        range_of(&values)
    }

    /// Returns the value that is judged with the plan's values.
    pub fn value(&self) -> Option<f64> {
        value_of(&self.row)
    }
}

/// Returns the smallest and the largest of `values`; `None` without any.
fn range_of(values: &[f64]) -> Option<(f64, f64)> {
    Stat::of(values).map(|stat| (stat.min, stat.max))
}

/// Returns the finite value that is judged.
fn value_of(row: &Row) -> Option<f64> {
    row.value.map(|stat| stat.chosen(row.seed)).filter(|value| value.is_finite())
}

fn with_setting(experiment: &Experiment, setting: &Setting) -> Experiment {
    let point = |(open, index): (&Axis, &Option<usize>)| Some(open.points().swap_remove((*index)?));
    let setting = experiment.open.iter().zip(setting).filter_map(point).collect();
    Experiment { setting, ..experiment.clone() }
}

/// Results of a command.
#[derive(Clone, Debug)]
pub struct Sensitivity<'s> {
    /// Each study with the findings of its rows.
    pub studies: &'s [(&'s Study, Vec<Finding>)],
    /// Version of the experiments: full or small.
    pub size: Size,
    /// Command that repeats it.
    pub command: &'s str,
    /// Machine on which the command ran.
    pub machine: &'s str,
    /// Number of runs.
    pub runs: usize,
}

impl Sensitivity<'_> {
    /// Returns the HTML page: for each row a picture of the effects, and the values in all settings.
    pub fn html(&self) -> String {
        page::page(self)
    }

    /// Returns a table in Markdown: a line for each row, with the settings in which it is inside or outside.
    pub fn markdown(&self) -> String {
        table::tables(self)
    }
}
