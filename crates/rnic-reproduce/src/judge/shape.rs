//! Computes the values of checks, in each of their shapes.

use rnic_base::Duration;

use super::distance::{Reference, distances};
use super::series::{Series, settling_us};
use super::{Samples, Stat, largest, measured, series_of};
use crate::experiment::{AxisValues, Band, Length, Pair, Selection, SeriesLimit, Span, Value};
use crate::quantity;
use crate::work::{AxisPosition, Layout};

/// A number for each seed, and the description of the measure and point for which it was computed.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    pub(super) values: Vec<f64>,
    pub(super) at: String,
}

/// Reason why no number could be computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoValue {
    /// The small version omits values of axes that the check needs.
    Size(String),
    /// The number should exist; this is a failure.
    Failed(String),
}

impl From<String> for NoValue {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// Computes `value` from the samples of the runs of `layout`.
pub(super) fn compute(layout: &Layout<'_>, samples: &Samples, value: &Value) -> Result<Found, NoValue> {
    let evaluator = Evaluator { layout, samples };
    match value {
        Value::Measure(single) => {
            let positions = evaluator.positions(&single.at, &single.over)?;
            let find = |measure: &str, position: &AxisPosition| evaluator.measured(measure, &single.of, position);
            evaluator.take(&single.measures, &positions, single.take, find)
        }
        Value::Ratio(pair) => evaluator.pair(pair, |of, to| of / to),
        Value::Percent(pair) => evaluator.pair(pair, |of, to| (of / to - 1.0) * 100.0),
        Value::Change(pair) => evaluator.change(pair),
        Value::Order { measure, variants, at, over } => evaluator.order(measure, variants, at, over),
        Value::Knee { measure, of, axis, drop, at } => evaluator.knee(measure, of, axis, *drop, at),
        Value::Crossing { measure, of, to, axis, at } => evaluator.crossing(measure, of, to, axis, at),
        Value::Trend { measure, of, to, axis, at } => evaluator.trend(measure, of, to.as_deref(), axis, at),
        Value::Fit { measure, of, axis, at } => evaluator.each_line(measure, of, axis, at, fit),
        Value::Rise { measure, of, axis, at } => evaluator.each_line(measure, of, axis, at, |_, values| rise(values)),
        Value::Proportion { measure, of, axis, factor, at } => {
            evaluator.each_line(measure, of, axis, at, |x, values| proportion(x, values, *factor))
        }
        Value::Settling { limits, of, between, lasting, at } => {
            evaluator.settling(limits, of, (*between, lasting.map(|Length(lasting)| lasting)), at)
        }
        Value::Deviation { measure, of, target, between, at } => {
            let series = evaluator.series(measure, of, at)?;
            let values = series.iter().map(|series| series.deviation(*target, *between));
            Ok(Found { values: values.collect::<Result<_, _>>()?, at: String::new() })
        }
        Value::Slope { measure, of, between, at } => {
            let series = evaluator.series(measure, of, at)?;
            let values = series.iter().map(|series| series.slope(*between));
            Ok(Found { values: values.collect::<Result<_, _>>()?, at: String::new() })
        }
        Value::Distance { sample, of, reference, slack, at } => {
            let position = &evaluator.positions(at, &[])?[0];
            let values =
                distances(layout, samples, (sample, of), position, &Reference { points: reference, slack: *slack })?;
            Ok(Found { values, at: String::new() })
        }
        Value::Quantity { name, with } => {
            let number = quantity::find(name).and_then(|quantity| (quantity.compute)(with))?;
            Ok(Found { values: vec![number], at: String::new() })
        }
    }
}

struct Evaluator<'d> {
    layout: &'d Layout<'d>,
    samples: &'d Samples,
}

impl Evaluator<'_> {
    fn measured(&self, measure: &str, variant: &str, position: &AxisPosition) -> Result<Vec<f64>, NoValue> {
        Ok(measured(self.layout, self.samples, measure, variant, position)?)
    }

    /// Returns a series for each seed.
    fn series(&self, measure: &str, variant: &str, at: &AxisValues) -> Result<Vec<Series>, NoValue> {
        let positions = self.positions(at, &[])?;
        Ok(series_of(self.layout, self.samples, measure, variant, &positions[0])?)
    }

    fn settling(
        &self,
        limits: &[SeriesLimit],
        of: &str,
        (between, lasting): (Span, Option<Duration>),
        at: &AxisValues,
    ) -> Result<Found, NoValue> {
        let mut seeds: Vec<Vec<(Series, Band)>> = vec![Vec::new(); self.layout.seeds.len()];
        for limit in limits {
            for (seed, series) in seeds.iter_mut().zip(self.series(&limit.measure, of, at)?) {
                seed.push((series, limit.band()));
            }
        }
        let values = seeds.iter().map(|series| settling_us(series, between, lasting)).collect::<Result<_, _>>()?;
        Ok(Found { values, at: String::new() })
    }

    fn positions(&self, at: &AxisValues, over: &[String]) -> Result<Vec<AxisPosition>, NoValue> {
        let positions = self.layout.positions(at, over);
        if positions.is_empty() {
            Err(NoValue::Size("this size of the experiment does not include these axis values".to_owned()))
        } else {
            Ok(positions)
        }
    }

    fn pair(&self, pair: &Pair, combine: impl Fn(f64, f64) -> f64) -> Result<Found, NoValue> {
        let positions = self.positions(&pair.at, &pair.over)?;
        let find = |measure: &str, position: &AxisPosition| {
            let of = self.measured(measure, &pair.of, position)?;
            let to = self.measured(measure, &pair.to, &self.with_axis_values(position, &pair.to_at)?)?;
            Ok(of.into_iter().zip(to).map(|(of, to)| combine(of, to)).collect())
        };
        self.take(&pair.measures, &positions, pair.take, find)
    }

    fn change(&self, pair: &Pair) -> Result<Found, NoValue> {
        let positions = self.positions(&pair.at, &pair.over)?;
        let find = |measure: &str, position: &AxisPosition| {
            let from = self.with_axis_values(position, &pair.to_at)?;
            let of = |variant: &str| -> Result<Vec<f64>, NoValue> {
                let (now, before) =
                    (self.measured(measure, variant, position)?, self.measured(measure, variant, &from)?);
                Ok(now.into_iter().zip(before).map(|(now, before)| now / before).collect())
            };
            Ok(of(&pair.of)?.into_iter().zip(of(&pair.to)?).map(|(of, to)| of / to).collect())
        };
        self.take(&pair.measures, &positions, pair.take, find)
    }

    /// Returns `position` with the axes that `at` names set to the values in `at`.
    fn with_axis_values(&self, position: &AxisPosition, at: &AxisValues) -> Result<AxisPosition, NoValue> {
        let mut position = position.clone();
        for (name, label) in at {
            let axis = self.axis(name)?;
            let index = self.layout.axes[axis].iter().position(|point| point.label == *label);
            position[axis] = Some(index.ok_or_else(|| {
                NoValue::Size(format!(
                    "this size of the experiment does not include the value `{label}` of axis `{name}`"
                ))
            })?);
        }
        Ok(position)
    }

    fn axis(&self, name: &str) -> Result<usize, String> {
        let axes = &self.layout.selected.experiment.axis;
        axes.iter().position(|axis| axis.name == name).ok_or_else(|| format!("there is no axis `{name}`"))
    }

    /// Returns the value that `take` selects from those that `find` computes for each measure and position.
    fn take(
        &self,
        measures: &[String],
        positions: &[AxisPosition],
        take: Option<Selection>,
        find: impl Fn(&str, &AxisPosition) -> Result<Vec<f64>, NoValue>,
    ) -> Result<Found, NoValue> {
        let mut all = Vec::new();
        for measure in measures {
            for position in positions {
                let at = self.name(measures, positions, measure, position);
                all.push(Found { values: find(measure, position)?, at });
            }
        }
        select(all, take)
            .ok_or_else(|| NoValue::Failed("no value can be selected, because no values are available".to_owned()))
    }

    /// Describes the measure and position of one of several values; each only if there is more than one of it.
    fn name(&self, measures: &[String], positions: &[AxisPosition], measure: &str, position: &AxisPosition) -> String {
        let label = |name: &str| {
            let measure = self.layout.selected.experiment.measure.iter().find(|measure| measure.name == name);
            measure.map_or_else(|| name.to_owned(), |measure| measure.label.clone())
        };
        let mut parts = Vec::new();
        if measures.len() > 1 {
            parts.push(label(measure));
        }
        if positions.len() > 1 {
            parts.push(self.layout.axis_position_name(position));
        }
        parts.join(", ")
    }

    fn order(&self, measure: &str, variants: &[String], at: &AxisValues, over: &[String]) -> Result<Found, NoValue> {
        let positions = self.positions(at, over)?;
        let mut all = Vec::new();
        for position in &positions {
            for pair in variants.windows(2) {
                let (before, after) =
                    (self.measured(measure, &pair[0], position)?, self.measured(measure, &pair[1], position)?);
                let values = after.into_iter().zip(before).map(|(after, before)| after / before).collect();
                let position =
                    if positions.len() > 1 { self.layout.axis_position_name(position) } else { String::new() };
                let separator = if position.is_empty() { "" } else { ", " };
                all.push(Found { values, at: format!("{} after {}{separator}{position}", pair[1], pair[0]) });
            }
        }
        select(all, Some(Selection::Min))
            .ok_or_else(|| NoValue::Failed("the order cannot be checked, because no values are available".to_owned()))
    }

    /// Returns the measure along an axis: the position of each value, and for each seed the measured numbers.
    fn along(
        &self,
        axis: &str,
        at: &AxisValues,
        find: impl Fn(&AxisPosition) -> Result<Vec<f64>, NoValue>,
    ) -> Result<Line, NoValue> {
        let index = self.axis(axis)?;
        let mut line = Line { x: Vec::new(), seeds: vec![Vec::new(); self.layout.seeds.len()] };
        for position in self.positions(at, &[axis.to_owned()])? {
            let Some(value) = position[index] else { continue };
            line.x.push(self.layout.axes[index][value].x.unwrap_or(value as f64));
            for (seed, number) in line.seeds.iter_mut().zip(find(&position)?) {
                seed.push(number);
            }
        }
        Ok(line)
    }

    /// Computes a number from the line of each seed along an axis.
    fn each_line(
        &self,
        measure: &str,
        of: &str,
        axis: &str,
        at: &AxisValues,
        compute: impl Fn(&[f64], &[f64]) -> f64,
    ) -> Result<Found, NoValue> {
        let line = self.along(axis, at, |position| self.measured(measure, of, position))?;
        let values = line.seeds.iter().map(|values| compute(&line.x, values)).collect();
        Ok(Found { values, at: String::new() })
    }

    fn knee(&self, measure: &str, of: &str, axis: &str, drop: f64, at: &AxisValues) -> Result<Found, NoValue> {
        let line = self.along(axis, at, |position| self.measured(measure, of, position))?;
        let values = line.seeds.iter().map(|values| knee(&line.x, values, drop)).collect();
        Ok(Found { values, at: String::new() })
    }

    fn crossing(&self, measure: &str, of: &str, to: &str, axis: &str, at: &AxisValues) -> Result<Found, NoValue> {
        let below = |position: &AxisPosition| {
            let (of, to) = (self.measured(measure, of, position)?, self.measured(measure, to, position)?);
            Ok(of.into_iter().zip(to).map(|(of, to)| of - to).collect())
        };
        let line = self.along(axis, at, below)?;
        let values = line.seeds.iter().map(|values| crossing(&line.x, values)).collect();
        Ok(Found { values, at: String::new() })
    }

    fn trend(&self, measure: &str, of: &str, to: Option<&str>, axis: &str, at: &AxisValues) -> Result<Found, NoValue> {
        let find = |position: &AxisPosition| {
            let of = self.measured(measure, of, position)?;
            let Some(to) = to else { return Ok(of) };
            let to = self.measured(measure, to, position)?;
            Ok(of.into_iter().zip(to).map(|(of, to)| of / to).collect())
        };
        let line = self.along(axis, at, find)?;
        let values = line.seeds.iter().map(|values| tau(&line.x, values)).collect();
        Ok(Found { values, at: String::new() })
    }
}

struct Line {
    x: Vec<f64>,
    seeds: Vec<Vec<f64>>,
}

/// Returns the element of `all` whose mean is the smallest or the largest; or the mean or spread of all elements, for
/// each seed. If an element contains a NaN, returns that element, because the others cannot be compared with it.
fn select(all: Vec<Found>, take: Option<Selection>) -> Option<Found> {
    if let Some(index) = all.iter().position(|found| found.values.iter().any(|value| value.is_nan())) {
        return all.into_iter().nth(index);
    }
    let mean = |found: &Found| Stat::of(&found.values).map_or(f64::NAN, |stat| stat.mean);
    let by_seed = |combine: fn(&[f64]) -> f64| {
        let seeds = all.iter().map(|found| found.values.len()).min()?;
        let of = |seed: usize| combine(&all.iter().map(|found| found.values[seed]).collect::<Vec<_>>());
        Some(Found { values: (0..seeds).map(of).collect(), at: String::new() })
    };
    match take {
        Some(Selection::Mean) => by_seed(|values| values.iter().sum::<f64>() / values.len() as f64),
        Some(Selection::Spread) => by_seed(|values| Stat::of(values).map_or(f64::NAN, |stat| stat.max / stat.min)),
        Some(Selection::Max) => all.into_iter().max_by(|a, b| mean(a).total_cmp(&mean(b))),
        Some(Selection::Min) | None => all.into_iter().min_by(|a, b| mean(a).total_cmp(&mean(b))),
    }
}

/// Returns the position at which a line has fallen by the fraction `drop` of its first value, interpolated between
/// points; infinite if it never does.
fn knee(x: &[f64], values: &[f64], drop: f64) -> f64 {
    let Some(first) = values.first() else { return f64::NAN };
    let limit = first * (1.0 - drop);
    crossing(x, &values.iter().map(|value| value - limit).collect::<Vec<_>>())
}

/// Returns the position at which a line falls below zero, interpolated between points; infinite if it never does.
fn crossing(x: &[f64], values: &[f64]) -> f64 {
    match values.iter().position(|value| *value < 0.0) {
        None => f64::INFINITY,
        Some(0) => x[0],
        Some(index) => {
            let (above, below) = (values[index - 1], values[index]);
            x[index - 1] + (x[index] - x[index - 1]) * above / (above - below)
        }
    }
}

/// Returns R^2 of the least-squares line through zero; NaN if all values are equal, because there is then nothing to
/// explain.
fn fit(x: &[f64], values: &[f64]) -> f64 {
    let sum = |of: &dyn Fn(f64, f64) -> f64| x.iter().zip(values).map(|(x, value)| of(*x, *value)).sum::<f64>();
    let slope = sum(&|x, value| x * value) / sum(&|x, _| x * x);
    let mean = sum(&|_, value| value) / values.len() as f64;
    let (left, all) = (sum(&|x, value| (value - slope * x).powi(2)), sum(&|_, value| (value - mean).powi(2)));
    if all == 0.0 { f64::NAN } else { 1.0 - left / all }
}

/// Computes the largest deviation from `factor` times the position, in percent.
fn proportion(x: &[f64], values: &[f64], factor: f64) -> f64 {
    let deviations = x.iter().zip(values).map(|(x, value)| (value / (factor * x) - 1.0).abs() * 100.0);
    largest(deviations).unwrap_or(f64::NAN)
}

/// Returns the smallest ratio of a value to the preceding one.
fn rise(values: &[f64]) -> f64 {
    let ratios: Vec<f64> = values.windows(2).map(|pair| pair[1] / pair[0]).collect();
    Stat::of(&ratios).map_or(f64::NAN, |stat| stat.min)
}

/// Computes Kendall's tau-a: the number of pairs in order minus that of pairs out of order, divided by the number of
/// all pairs.
fn tau(x: &[f64], values: &[f64]) -> f64 {
    let (mut sum, mut pairs) = (0.0, 0.0);
    for later in 0..x.len() {
        for earlier in 0..later {
            let (run, rise) = (x[later] - x[earlier], values[later] - values[earlier]);
            sum += if run * rise > 0.0 {
                1.0
            } else if run * rise < 0.0 {
                -1.0
            } else {
                0.0
            };
            pairs += 1.0;
        }
    }
    sum / pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_is_not_hidden_by_other_values() {
        let of = |values: &[f64]| Found { values: values.to_vec(), at: String::new() };
        for take in [None, Some(Selection::Min), Some(Selection::Max), Some(Selection::Mean), Some(Selection::Spread)] {
            let picked = select(vec![of(&[1.0, 2.0]), of(&[3.0, -f64::NAN]), of(&[0.5, 0.5])], take)
                .expect("there are three values");
            assert!(picked.values.iter().any(|value| value.is_nan()), "{take:?}");
        }
    }

    #[test]
    fn a_knee_lies_between_the_points_around_the_limit() {
        assert_eq!(knee(&[1.0, 2.0, 4.0], &[10.0, 10.0, 8.0], 0.1), 3.0);
        assert_eq!(knee(&[1.0, 2.0], &[10.0, 9.5], 0.1), f64::INFINITY);
        // A line that starts below its limit, which happens when its first value is negative.
        assert_eq!(knee(&[1.0, 2.0], &[-10.0, -5.0], 0.1), 1.0);
    }

    #[test]
    fn a_crossing_lies_where_straight_lines_meet() {
        assert_eq!(crossing(&[1.0, 3.0, 5.0], &[4.0, 2.0, -2.0]), 4.0);
        assert_eq!(crossing(&[1.0, 3.0], &[-1.0, 2.0]), 1.0);
        assert_eq!(crossing(&[1.0, 3.0], &[1.0, 0.0]), f64::INFINITY);
    }

    #[test]
    fn a_trend_is_the_share_of_pairs_in_order() {
        assert_eq!(tau(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(tau(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
        assert_eq!(tau(&[1.0, 2.0, 3.0], &[1.0, 1.0, 1.0]), 0.0);
        assert!((tau(&[1.0, 2.0, 3.0], &[1.0, 3.0, 2.0]) - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_rise_is_the_least_ratio_of_neighbours() {
        assert_eq!(rise(&[1.0, 2.0, 2.0, 8.0]), 1.0);
        assert_eq!(rise(&[4.0, 8.0, 6.0, 9.0]), 0.75);
        assert!(rise(&[4.0, f64::NAN, 6.0]).is_nan());
        assert!(rise(&[4.0]).is_nan(), "one point");
    }

    #[test]
    fn a_fit_is_1_for_values_proportional_to_the_axis() {
        assert_eq!(fit(&[1.0, 2.0, 4.0], &[3.0, 6.0, 12.0]), 1.0);
        // Slope 14 / 14 = 1 for 1, 2, 3 and 2, 0, 4: residuals 1, 4, 1 of squares 0, 4, 4 about the mean.
        assert_eq!(fit(&[1.0, 2.0, 3.0], &[2.0, 0.0, 4.0]), 0.25);
        assert!(fit(&[1.0, 2.0], &[0.0, 0.0]).is_nan(), "values that do not differ fit any line");
        assert!((proportion(&[10.0, 20.0], &[9.0, 19.0], 1.0) - 10.0).abs() < 1e-9);
        assert_eq!(proportion(&[10.0, 20.0], &[5.0, 10.0], 0.5), 0.0);
        assert!(proportion(&[10.0, 20.0], &[f64::NAN, 20.0], 1.0).is_nan());
    }

    #[test]
    fn values_are_selected_by_their_means_and_keep_their_seeds() {
        let found = |values: &[f64], at: &str| Found { values: values.to_vec(), at: at.to_owned() };
        let all = || vec![found(&[1.0, 9.0], "a"), found(&[4.0, 4.0], "b")];
        assert_eq!(select(all(), Some(Selection::Max)), Some(found(&[1.0, 9.0], "a")));
        assert_eq!(select(all(), Some(Selection::Min)), Some(found(&[4.0, 4.0], "b")));
        assert_eq!(select(all(), Some(Selection::Mean)), Some(found(&[2.5, 6.5], "")));
        assert_eq!(select(all(), Some(Selection::Spread)), Some(found(&[4.0, 2.25], "")));
    }
}
