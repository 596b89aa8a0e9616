//! Computes rows from samples: the value obtained, the paper's value and a verdict.
//!
//! Every value is computed for each seed, with the same seed on both sides of a ratio. The verdict is on the mean over
//! the seeds, unless the check selects the smallest or the largest value; both are also shown.

mod distance;
pub(crate) mod series;
mod shape;

use std::collections::{BTreeMap, BTreeSet};

use rnic_page::number::{short, with_unit};
use serde::Serialize;

use crate::experiment::{Band, Check, Measure, SeedChoice, Selection, Value};
use crate::origin::Origin;
use crate::run::Sample;
use crate::work::{AxisPosition, Layout, Size, Work};
use series::Series;
use shape::NoValue;

/// Statistics of a value over the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Stat {
    /// Mean of the values.
    pub mean: f64,
    /// Smallest value.
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
        let max = largest(values.iter().copied()).unwrap_or(f64::NAN);
        let min = -largest(values.iter().map(|value| -value)).unwrap_or(f64::NAN);
        (count > 0).then_some(Self { mean, min, max, count })
    }

    /// Returns the value that `seed` chooses.
    pub fn chosen(&self, seed: SeedChoice) -> f64 {
        match seed {
            SeedChoice::Mean => self.mean,
            SeedChoice::Min => self.min,
            SeedChoice::Max => self.max,
        }
    }

    /// Returns the mean with its range, `3.01 x (2.80 to 3.20)`; when all values are equal, only the mean.
    pub fn spread(&self, unit: &str) -> String {
        let mean = with_unit(self.mean, unit);
        if self.min == self.max { mean } else { format!("{mean} ({} to {})", short(self.min), short(self.max)) }
    }
}

/// Returns the largest of `values`, or the first that is not a number, which `f64::max` would hide.
fn largest(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    values.into_iter().reduce(|most, value| if most.is_nan() || value <= most { most } else { value })
}

impl Row {
    /// Returns `true` if the row makes the command fail: it cannot be judged, or is outside of its band without a
    /// reason that the experiment states.
    pub fn is_failure(&self) -> bool {
        match self.verdict {
            Verdict::Outside => self.known.is_none(),
            Verdict::Unjudged(_) => true,
            Verdict::Inside | Verdict::LeftOut(_) => false,
        }
    }

    /// Returns a note on a row that is known to lie outside: where the reason is written, or, if it lies inside, that
    /// it was known as outside.
    pub fn note_on_known(&self) -> Option<String> {
        let known = self.known.as_ref()?;
        match self.verdict {
            Verdict::Outside => Some(format!("known, see {known}")),
            Verdict::Inside => Some(format!("inside, although known as outside in {known}")),
            Verdict::Unjudged(_) | Verdict::LeftOut(_) => None,
        }
    }

    /// Returns the value for readers, with its range, its origin's mark, and which seed is judged if not the mean.
    pub fn found(&self) -> Option<String> {
        let note = self.seed.note().map_or_else(String::new, |note| format!(", {note}"));
        self.value.map(|stat| stat.spread(&self.unit) + self.origin.mark() + &note)
    }
}

/// Verdict of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// The value, selected as the check requires, lies in the band.
    Inside,
    /// The value lies outside of the band.
    Outside,
    /// No number could be computed, for this reason; this counts as a failure.
    Unjudged(String),
    /// The row is omitted in the small version, for this reason.
    LeftOut(String),
}

impl Verdict {
    /// Returns the verdict as one or two words.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "OUTSIDE",
            Self::Unjudged(_) => "CANNOT BE JUDGED",
            Self::LeftOut(_) => "left out",
        }
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
    /// The value obtained.
    pub value: Option<Stat>,
    /// Unit of the value.
    pub unit: String,
    /// Origin of the value: simulated, computed, searched or measured.
    pub origin: Origin,
    /// Description of which of several values was selected.
    pub at: String,
    /// Seed whose value is compared with the band.
    pub seed: SeedChoice,
    /// Interval in which the value must lie.
    #[serde(serialize_with = "as_text")]
    pub band: Band,
    /// Reason for the width of the band.
    pub why: String,
    /// For a row that is known to lie outside of its band: where the reason is written.
    pub known: Option<String>,
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
    let requested = experiment.check.iter().filter(|check| layout.selected.has_row(&check.row));
    requested.map(|check| row(work.size, layout, samples, check)).collect()
}

fn row(size: Size, layout: &Layout<'_>, samples: &Samples, check: &Check) -> Row {
    let experiment = layout.selected.experiment;
    let fast = check.fast.as_ref().filter(|_| size == Size::Fast);
    let band = fast.and_then(|fast| fast.band).unwrap_or(check.band);
    let known = check.known.as_ref().or_else(|| fast.and_then(|fast| fast.known.as_ref()));
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
        seed: check.seed,
        band,
        why: why.clone(),
        known: known.cloned(),
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
                Some(stat) if stat.chosen(check.seed).is_nan() => {
                    Verdict::Unjudged("the result is not a number".to_owned())
                }
                Some(stat) if band.holds(stat.chosen(check.seed)) => Verdict::Inside,
                Some(_) => Verdict::Outside,
                None => Verdict::Unjudged("the row has no results, because no seed was run".to_owned()),
            };
        }
        // Only the small version may lack values that a check needs; in the full version this is a failure.
        Err(NoValue::Size(reason)) if size == Size::Fast => row.verdict = Verdict::LeftOut(reason),
        Err(NoValue::Size(reason) | NoValue::Failed(reason)) => row.verdict = Verdict::Unjudged(reason),
    }
    row
}

fn unit(layout: &Layout<'_>, value: &Value) -> String {
    let experiment = layout.selected.experiment;
    match value {
        // The spread is the largest value divided by the least, and so has no unit.
        Value::Measure(single) if single.take == Some(Selection::Spread) => "x".to_owned(),
        Value::Measure(single) => {
            let first = experiment.measure.iter().find(|measure| measure.name == single.measures[0]);
            first.map(|measure| measure.unit.clone()).unwrap_or_default()
        }
        Value::Ratio(_) | Value::Change(_) | Value::Order { .. } | Value::Rise { .. } => "x".to_owned(),
        Value::Percent(_) => "%".to_owned(),
        Value::Settling { .. } => "us".to_owned(),
        Value::Deviation { .. } | Value::Proportion { .. } => "%".to_owned(),
        Value::Slope { measure, .. } => {
            let unit = experiment.measure.iter().find(|known| known.name == *measure).map(|known| known.unit.as_str());
            format!("{}/us", unit.unwrap_or_default())
        }
        Value::Knee { .. }
        | Value::Crossing { .. }
        | Value::Trend { .. }
        | Value::Fit { .. }
        | Value::Distance { .. }
        | Value::Quantity { .. } => String::new(),
    }
}

/// Returns the measure called `name` of `variant` at `position`, for each seed.
///
/// # Errors
/// The reason why the measure has no value there.
pub fn measured(
    layout: &Layout<'_>,
    samples: &Samples,
    name: &str,
    variant: &str,
    position: &AxisPosition,
) -> Result<Vec<f64>, String> {
    let measure = layout.selected.experiment.measure.iter().find(|measure| measure.name == name);
    let measure = measure.ok_or_else(|| format!("there is no measure `{name}`"))?;
    let Some(path) = &measure.field else {
        let value = layout.quantity(name, variant, position);
        return value.map(|value| vec![value]).ok_or_else(|| format!("{variant}: `{name}` was not computed"));
    };
    let is_series = layout.selected.experiment.is_series(path);
    for_each_seed(layout, samples, variant, position, |sample| match is_series {
        true => series::read(sample, path, measure),
        false => read(sample, path, measure),
    })
}

/// Returns the series that measure `name` of `variant` names, at `position`, for each seed.
fn series_of(
    layout: &Layout<'_>,
    samples: &Samples,
    name: &str,
    variant: &str,
    position: &AxisPosition,
) -> Result<Vec<Series>, String> {
    let measure = layout.selected.experiment.measure.iter().find(|measure| measure.name == name);
    let (measure, path) = measure
        .and_then(|measure| Some((measure, measure.field.as_deref()?)))
        .ok_or_else(|| format!("there is no series `{name}`"))?;
    let of = |sample: &Sample| {
        let mut series = Series::of(sample, path)?;
        series.values.iter_mut().for_each(|value| *value *= measure.scale);
        Ok(series)
    };
    for_each_seed(layout, samples, variant, position, of)
}

/// Returns the result of `read` for the sample of `variant` at `position`, for each seed.
fn for_each_seed<T>(
    layout: &Layout<'_>,
    samples: &Samples,
    variant: &str,
    position: &AxisPosition,
    read: impl Fn(&Sample) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let value_of = |seed: &u64| {
        let error = |what: &str| format!("variant {variant} with seed {seed}: {what}");
        let sample =
            layout.sample(samples, variant, position, *seed).ok_or_else(|| error("this run has not been executed"))?;
        match &sample.failure {
            Some(failure) => Err(error(failure)),
            None => read(sample).map_err(|what| error(&what)),
        }
    };
    layout.seeds.iter().map(value_of).collect()
}

fn read(sample: &Sample, path: &str, measure: &Measure) -> Result<f64, String> {
    let value = field(sample, path)?;
    if measure.per.is_empty() {
        return Ok(value * measure.scale);
    }
    let divisor: f64 = measure.per.iter().map(|name| field(sample, name)).sum::<Result<f64, String>>()?;
    Ok(value / divisor * measure.scale)
}

/// Returns the number at `path` in a report.
fn field(sample: &Sample, path: &str) -> Result<f64, String> {
    let found = path.split('.').try_fold(&sample.report, |value, part| value.get(part));
    found.and_then(serde_json::Value::as_f64).ok_or_else(|| format!("the report has no number `{path}`"))
}

/// Describes the conditions under which the runs of `layouts` were measured, by this command or earlier ones: `SOME CPU
/// (opt-level 3, rustc 1.95.0, sse2), load average 0.20 to 1.31 before the runs`. Returns `None` when no run was
/// measured.
pub(crate) fn conditions(work: &Work<'_>, layouts: &[Layout<'_>], samples: &Samples) -> Option<String> {
    let keys: BTreeSet<&str> = layouts.iter().flat_map(Layout::runs).map(|(.., key)| key).collect();
    let specs = keys.iter().filter_map(|key| work.runs.get(*key));
    let machines: BTreeSet<&str> = specs.filter_map(|spec| spec.task.measured_on.as_deref()).collect();
    let loads: Vec<f64> = keys.iter().filter_map(|key| samples.get(*key)?.load_average).collect();
    let load = Stat::of(&loads).map_or_else(String::new, |Stat { min, max, .. }| {
        let range = if min < max { format!("{min:.2} to {max:.2}") } else { format!("{min:.2}") };
        format!(", load average {range} before the runs")
    });
    (!machines.is_empty()).then(|| machines.into_iter().collect::<Vec<_>>().join("; ") + &load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_number_is_not_hidden() {
        assert!(largest([1.0, f64::NAN, 2.0]).is_some_and(f64::is_nan));
        assert!(Stat::of(&[1.0, f64::NAN, 2.0]).is_some_and(|stat| stat.min.is_nan() && stat.max.is_nan()));
        assert_eq!(largest([1.0, 3.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_check_may_choose_the_extreme_seed() {
        let stat = Stat::of(&[1.0, 0.4, 1.6]).expect("there are values");
        assert_eq!((stat.chosen(SeedChoice::Min), stat.chosen(SeedChoice::Max)), (0.4, 1.6));
        assert_eq!(stat.chosen(SeedChoice::Mean), 1.0);
    }

    #[test]
    fn spreads_show_their_range_when_values_differ() {
        let stat = Stat { mean: 3.0, min: 2.5, max: 3.5, count: 3 };
        assert_eq!(stat.spread("x"), "3.00\u{a0}x (2.50 to 3.50)");
        assert_eq!(Stat { min: 3.0, max: 3.0, count: 1, ..stat }.spread(""), "3.00");
    }
}
