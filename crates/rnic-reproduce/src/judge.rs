//! Computes rows from samples: the value found, beside the paper's value, with a verdict.
//!
//! Every value is computed for each seed, with the same seed on both sides of a ratio. The verdict is on the mean over
//! the seeds; the least and the largest are shown beside it.

pub(crate) mod series;
mod shape;

use std::collections::{BTreeMap, BTreeSet};

use rnic_fabric::Report;
use serde::Serialize;

use crate::experiment::{Band, Check, Measure, Take, Value};
use crate::origin::Origin;
use crate::run::Sample;
use crate::work::{Layout, Place, Size, Work};
use shape::Gap;

/// Statistics of a value over the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Stat {
    /// Mean of the values.
    pub mean: f64,
    /// Least value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

impl Stat {
    /// Returns the statistics of `values`; `None` when it is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (count > 0).then_some(Self { mean, min, max, count })
    }
}

/// Verdict of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// The mean lies in the band.
    Inside,
    /// The mean lies outside the band.
    Outside,
    /// No number could be computed, for this reason; this is a failure too.
    Unjudged(String),
    /// The row is left out at this size, for this reason.
    LeftOut(String),
}

impl Verdict {
    /// Returns the verdict in a word or two.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "OUTSIDE",
            Self::Unjudged(_) => "CANNOT BE JUDGED",
            Self::LeftOut(_) => "left out",
        }
    }

    /// Returns whether the verdict makes the command fail.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Outside | Self::Unjudged(_))
    }
}

/// A row of the report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Id of the experiment: `irn/fig1`.
    pub experiment: String,
    /// Id of the row: `I-R2`.
    pub row: String,
    /// Description of the comparison.
    pub what: String,
    /// The paper's value, as the paper states it.
    pub paper: String,
    /// The value found.
    pub value: Option<Stat>,
    /// Unit of the value.
    pub unit: String,
    /// Origin of the value.
    pub origin: Origin,
    /// Description of which of several values was selected.
    pub at: String,
    /// Interval in which the value must lie.
    #[serde(serialize_with = "as_text")]
    pub band: Band,
    /// Reason for the width of the band.
    pub why: String,
    /// Verdict of the check.
    #[serde(flatten)]
    pub verdict: Verdict,
}

fn as_text<S: serde::Serializer>(band: &Band, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(band)
}

/// Samples by the key of their run.
pub type Samples = BTreeMap<String, Sample>;

/// Returns the rows of `layout` that were requested.
pub fn rows(work: &Work<'_>, layout: &Layout<'_>, samples: &Samples) -> Vec<Row> {
    let experiment = layout.selected.experiment;
    let asked = experiment.check.iter().filter(|check| layout.selected.has_row(&check.row));
    asked.map(|check| row(work.size, layout, samples, check)).collect()
}

fn row(size: Size, layout: &Layout<'_>, samples: &Samples, check: &Check) -> Row {
    let experiment = layout.selected.experiment;
    let fast = check.fast.as_ref().filter(|_| size == Size::Fast);
    let band = fast.and_then(|fast| fast.band).unwrap_or(check.band);
    let why = fast.and_then(|fast| fast.why.as_ref()).unwrap_or(&check.why);
    let mut row = Row {
        experiment: experiment.id.clone(),
        row: check.row.clone(),
        what: check.what.clone(),
        paper: check.paper.clone(),
        value: None,
        unit: unit(layout, &check.value),
        origin: experiment.origin_of(&check.value),
        at: String::new(),
        band,
        why: why.clone(),
        verdict: Verdict::Outside,
    };
    if let Some(reason) = fast.and_then(|fast| fast.skip.clone()) {
        row.verdict = Verdict::LeftOut(reason);
        return row;
    }
    match shape::compute(layout, samples, &check.value) {
        Ok(found) => {
            row.value = Stat::of(&found.values);
            row.at = found.at;
            row.verdict = match row.value {
                Some(stat) if stat.mean.is_nan() => Verdict::Unjudged("the result is not a number".to_owned()),
                Some(stat) if band.holds(stat.mean) => Verdict::Inside,
                Some(_) => Verdict::Outside,
                None => Verdict::Unjudged("there are no seeds".to_owned()),
            };
        }
        // Only the small version may lack values; at full size this is a failure.
        Err(Gap::Size(reason)) if size == Size::Fast => row.verdict = Verdict::LeftOut(reason),
        Err(Gap::Size(reason) | Gap::Failed(reason)) => row.verdict = Verdict::Unjudged(reason),
    }
    row
}

fn unit(layout: &Layout<'_>, value: &Value) -> String {
    let experiment = layout.selected.experiment;
    match value {
        // The spread is a ratio: the largest divided by the least.
        Value::Measure(single) if single.take == Some(Take::Spread) => "x".to_owned(),
        Value::Measure(single) => {
            let first = experiment.measure.iter().find(|measure| measure.name == single.measures[0]);
            first.map(|measure| measure.unit.clone()).unwrap_or_default()
        }
        Value::Ratio(_) | Value::Change(_) | Value::Order { .. } => "x".to_owned(),
        Value::Percent(_) => "%".to_owned(),
        Value::Knee { .. } | Value::Crossing { .. } | Value::Trend { .. } | Value::Quantity { .. } => String::new(),
    }
}

/// Returns the measure called `name` of `variant` at `place`, for each seed.
///
/// # Errors
/// The reason why there is no such number.
pub fn measured(
    layout: &Layout<'_>,
    samples: &Samples,
    name: &str,
    variant: &str,
    place: &Place,
) -> Result<Vec<f64>, String> {
    let measure = layout.selected.experiment.measure.iter().find(|measure| measure.name == name);
    let measure = measure.ok_or_else(|| format!("there is no measure `{name}`"))?;
    let Some(path) = &measure.field else {
        let value = layout.quantity(name, variant, place);
        return value.map(|value| vec![value]).ok_or_else(|| format!("{variant}: `{name}` was not computed"));
    };
    let one = |seed: &u64| {
        let said = |what: &str| format!("{variant} with seed {seed}: {what}");
        let sample = layout.sample(samples, variant, place, *seed).ok_or_else(|| said("it has not run"))?;
        match &sample.failure {
            Some(failure) => Err(said(failure)),
            None => read(sample, path, measure).map_err(|what| said(&what)),
        }
    };
    layout.seeds.iter().map(one).collect()
}

fn read(sample: &Sample, path: &str, measure: &Measure) -> Result<f64, String> {
    if Report::is_series(path) {
        return series::read(sample, path, measure);
    }
    let value = field(sample, path)?;
    if measure.per.is_empty() {
        return Ok(value * measure.scale);
    }
    let divisor: f64 = measure.per.iter().map(|name| field(sample, name)).sum::<Result<f64, String>>()?;
    Ok(value / divisor * measure.scale)
}

/// Returns a number of a report, by its path.
fn field(sample: &Sample, path: &str) -> Result<f64, String> {
    let found = path.split('.').try_fold(&sample.report, |value, part| value.get(part));
    found.and_then(serde_json::Value::as_f64).ok_or_else(|| format!("its report has no number `{path}`"))
}

/// Describes the conditions under which the runs of `layouts` were measured, by this command or earlier ones: `SOME CPU
/// (opt-level 3, rustc 1.95.0, sse2), load average 0.20 to 1.31 before the runs`. Returns `None` when no run was
/// measured.
pub(crate) fn conditions(work: &Work<'_>, layouts: &[Layout<'_>], samples: &Samples) -> Option<String> {
    let keys: BTreeSet<&str> = layouts.iter().flat_map(Layout::runs).map(|(.., key)| key).collect();
    let specs = keys.iter().filter_map(|key| work.runs.get(*key));
    let places: BTreeSet<&str> = specs.filter_map(|spec| spec.task.measured_on.as_deref()).collect();
    let loads: Vec<f64> = keys.iter().filter_map(|key| samples.get(*key)?.load_average).collect();
    let load = Stat::of(&loads).map_or_else(String::new, |Stat { min, max, .. }| {
        let range = if min < max { format!("{min:.2} to {max:.2}") } else { format!("{min:.2}") };
        format!(", load average {range} before the runs")
    });
    (!places.is_empty()).then(|| places.into_iter().collect::<Vec<_>>().join("; ") + &load)
}
