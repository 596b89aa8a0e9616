//! Computes the shapes of checks.

use super::{Samples, Stat, measured};
use crate::experiment::{At, Pair, Take, Value};
use crate::quantity;
use crate::work::{Layout, Place};

/// A number for each seed, and the description of the measure and point at which it was found.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    pub(super) values: Vec<f64>,
    pub(super) at: String,
}

/// Reason why there is no number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Gap {
    /// This size leaves out values of axes that the check needs.
    Size(String),
    /// The number should exist; this is a failure.
    Failed(String),
}

impl From<String> for Gap {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// Computes `value` from the samples of the runs of `layout`.
pub(super) fn compute(layout: &Layout<'_>, samples: &Samples, value: &Value) -> Result<Found, Gap> {
    let desk = Desk { layout, samples };
    match value {
        Value::Measure(single) => {
            let places = desk.places(&single.at, &single.over)?;
            let find = |measure: &str, place: &Place| desk.measured(measure, &single.of, place);
            desk.take(&single.measures, &places, single.take, find)
        }
        Value::Ratio(pair) => desk.pair(pair, |of, to| of / to),
        Value::Percent(pair) => desk.pair(pair, |of, to| (of / to - 1.0) * 100.0),
        Value::Change(pair) => desk.change(pair),
        Value::Order { measure, variants, at, over } => desk.order(measure, variants, at, over),
        Value::Knee { measure, of, axis, drop, at } => desk.knee(measure, of, axis, *drop, at),
        Value::Crossing { measure, of, to, axis, at } => desk.crossing(measure, of, to, axis, at),
        Value::Trend { measure, of, to, axis, at } => desk.trend(measure, of, to.as_deref(), axis, at),
        Value::Quantity { name, with } => {
            let number = quantity::find(name).and_then(|quantity| (quantity.compute)(with))?;
            Ok(Found { values: vec![number], at: String::new() })
        }
    }
}

struct Desk<'d> {
    layout: &'d Layout<'d>,
    samples: &'d Samples,
}

impl Desk<'_> {
    fn measured(&self, measure: &str, variant: &str, place: &Place) -> Result<Vec<f64>, Gap> {
        Ok(measured(self.layout, self.samples, measure, variant, place)?)
    }

    fn places(&self, at: &At, over: &[String]) -> Result<Vec<Place>, Gap> {
        let places = self.layout.places(at, over);
        if places.is_empty() { Err(Gap::Size("this size does not go there".to_owned())) } else { Ok(places) }
    }

    fn pair(&self, pair: &Pair, join: impl Fn(f64, f64) -> f64) -> Result<Found, Gap> {
        let places = self.places(&pair.at, &pair.over)?;
        let find = |measure: &str, place: &Place| {
            let of = self.measured(measure, &pair.of, place)?;
            let to = self.measured(measure, &pair.to, &self.elsewhere(place, &pair.to_at)?)?;
            Ok(of.into_iter().zip(to).map(|(of, to)| join(of, to)).collect())
        };
        self.take(&pair.measures, &places, pair.take, find)
    }

    fn change(&self, pair: &Pair) -> Result<Found, Gap> {
        let places = self.places(&pair.at, &pair.over)?;
        let find = |measure: &str, place: &Place| {
            let from = self.elsewhere(place, &pair.to_at)?;
            let of = |variant: &str| -> Result<Vec<f64>, Gap> {
                let (now, before) = (self.measured(measure, variant, place)?, self.measured(measure, variant, &from)?);
                Ok(now.into_iter().zip(before).map(|(now, before)| now / before).collect())
            };
            Ok(of(&pair.of)?.into_iter().zip(of(&pair.to)?).map(|(of, to)| of / to).collect())
        };
        self.take(&pair.measures, &places, pair.take, find)
    }

    /// Returns `place` with the axes that `at` names moved to its values.
    fn elsewhere(&self, place: &Place, at: &At) -> Result<Place, Gap> {
        let mut place = place.clone();
        for (name, label) in at {
            let axis = self.axis(name)?;
            let index = self.layout.axes[axis].iter().position(|point| point.label == *label);
            place[axis] = Some(index.ok_or_else(|| Gap::Size(format!("this size has no `{label}` on axis `{name}`")))?);
        }
        Ok(place)
    }

    fn axis(&self, name: &str) -> Result<usize, String> {
        let axes = &self.layout.selected.experiment.axis;
        axes.iter().position(|axis| axis.name == name).ok_or_else(|| format!("there is no axis `{name}`"))
    }

    /// Returns the selected one of the values that `find` computes for measures and places.
    fn take(
        &self,
        measures: &[String],
        places: &[Place],
        take: Option<Take>,
        find: impl Fn(&str, &Place) -> Result<Vec<f64>, Gap>,
    ) -> Result<Found, Gap> {
        let mut all = Vec::new();
        for measure in measures {
            for place in places {
                let at = self.name(measures, places, measure, place);
                all.push(Found { values: find(measure, place)?, at });
            }
        }
        pick(all, take).ok_or_else(|| Gap::Failed("there is nothing to choose from".to_owned()))
    }

    /// Describes which of several values it is, as far as that is ambiguous.
    fn name(&self, measures: &[String], places: &[Place], measure: &str, place: &Place) -> String {
        let label = |name: &str| {
            let measure = self.layout.selected.experiment.measure.iter().find(|measure| measure.name == name);
            measure.map_or_else(|| name.to_owned(), |measure| measure.label.clone())
        };
        let mut parts = Vec::new();
        if measures.len() > 1 {
            parts.push(label(measure));
        }
        if places.len() > 1 {
            parts.push(self.layout.place_name(place));
        }
        parts.join(", ")
    }

    fn order(&self, measure: &str, variants: &[String], at: &At, over: &[String]) -> Result<Found, Gap> {
        let places = self.places(at, over)?;
        let mut all = Vec::new();
        for place in &places {
            for pair in variants.windows(2) {
                let (before, after) =
                    (self.measured(measure, &pair[0], place)?, self.measured(measure, &pair[1], place)?);
                let values = after.into_iter().zip(before).map(|(after, before)| after / before).collect();
                let place = if places.len() > 1 { self.layout.place_name(place) } else { String::new() };
                let comma = if place.is_empty() { "" } else { ", " };
                all.push(Found { values, at: format!("{} after {}{comma}{place}", pair[1], pair[0]) });
            }
        }
        pick(all, Some(Take::Min)).ok_or_else(|| Gap::Failed("there is nothing to order".to_owned()))
    }

    /// Returns the measure along an axis: the position of each value, and for each seed the measured numbers.
    fn along(&self, axis: &str, at: &At, find: impl Fn(&Place) -> Result<Vec<f64>, Gap>) -> Result<Line, Gap> {
        let index = self.axis(axis)?;
        let mut line = Line { x: Vec::new(), seeds: vec![Vec::new(); self.layout.seeds.len()] };
        for place in self.places(at, &[axis.to_owned()])? {
            let Some(value) = place[index] else { continue };
            line.x.push(self.layout.axes[index][value].x.unwrap_or(value as f64));
            for (seed, number) in line.seeds.iter_mut().zip(find(&place)?) {
                seed.push(number);
            }
        }
        Ok(line)
    }

    fn knee(&self, measure: &str, of: &str, axis: &str, drop: f64, at: &At) -> Result<Found, Gap> {
        let line = self.along(axis, at, |place| self.measured(measure, of, place))?;
        let values = line.seeds.iter().map(|values| knee(&line.x, values, drop)).collect();
        Ok(Found { values, at: String::new() })
    }

    fn crossing(&self, measure: &str, of: &str, to: &str, axis: &str, at: &At) -> Result<Found, Gap> {
        let below = |place: &Place| {
            let (of, to) = (self.measured(measure, of, place)?, self.measured(measure, to, place)?);
            Ok(of.into_iter().zip(to).map(|(of, to)| of - to).collect())
        };
        let line = self.along(axis, at, below)?;
        let values = line.seeds.iter().map(|values| crossing(&line.x, values)).collect();
        Ok(Found { values, at: String::new() })
    }

    fn trend(&self, measure: &str, of: &str, to: Option<&str>, axis: &str, at: &At) -> Result<Found, Gap> {
        let find = |place: &Place| {
            let of = self.measured(measure, of, place)?;
            let Some(to) = to else { return Ok(of) };
            let to = self.measured(measure, to, place)?;
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

/// Returns the one of `all` whose mean is the least or the largest; or, for each seed, their mean or spread. If one is
/// not a number, returns that one, because no statement about the others is possible then.
fn pick(all: Vec<Found>, take: Option<Take>) -> Option<Found> {
    if let Some(index) = all.iter().position(|found| found.values.iter().any(|value| value.is_nan())) {
        return all.into_iter().nth(index);
    }
    let mean = |found: &Found| Stat::of(&found.values).map_or(f64::NAN, |stat| stat.mean);
    let by_seed = |join: fn(&[f64]) -> f64| {
        let seeds = all.iter().map(|found| found.values.len()).min()?;
        let of = |seed: usize| join(&all.iter().map(|found| found.values[seed]).collect::<Vec<_>>());
        Some(Found { values: (0..seeds).map(of).collect(), at: String::new() })
    };
    match take {
        Some(Take::Mean) => by_seed(|values| values.iter().sum::<f64>() / values.len() as f64),
        Some(Take::Spread) => by_seed(|values| Stat::of(values).map_or(f64::NAN, |stat| stat.max / stat.min)),
        Some(Take::Max) => all.into_iter().max_by(|a, b| mean(a).total_cmp(&mean(b))),
        Some(Take::Min) | None => all.into_iter().min_by(|a, b| mean(a).total_cmp(&mean(b))),
    }
}

/// Returns the position at which a line has fallen by `drop` of its first value, interpolated between points; infinite
/// if it never does.
fn knee(x: &[f64], values: &[f64], drop: f64) -> f64 {
    let Some(first) = values.first() else { return f64::NAN };
    let limit = first * (1.0 - drop);
    let Some(index) = values.iter().position(|value| *value < limit) else { return f64::INFINITY };
    let (above, below) = (values[index - 1], values[index]);
    x[index - 1] + (x[index] - x[index - 1]) * (above - limit) / (above - below)
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

/// Computes Kendall's tau-a: pairs in order minus pairs out of order, divided by all pairs.
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
    fn what_is_no_number_is_not_hidden_by_its_neighbours() {
        let of = |values: &[f64]| Found { values: values.to_vec(), at: String::new() };
        for take in [None, Some(Take::Min), Some(Take::Max), Some(Take::Mean), Some(Take::Spread)] {
            let picked = pick(vec![of(&[1.0, 2.0]), of(&[3.0, -f64::NAN]), of(&[0.5, 0.5])], take).expect("three");
            assert!(picked.values.iter().any(|value| value.is_nan()), "{take:?}");
        }
    }

    #[test]
    fn a_knee_lies_between_the_points_around_the_limit() {
        assert_eq!(knee(&[1.0, 2.0, 4.0], &[10.0, 10.0, 8.0], 0.1), 3.0);
        assert_eq!(knee(&[1.0, 2.0], &[10.0, 9.5], 0.1), f64::INFINITY);
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
    fn the_extreme_is_that_of_means_and_keeps_its_seeds() {
        let found = |values: &[f64], at: &str| Found { values: values.to_vec(), at: at.to_owned() };
        let all = || vec![found(&[1.0, 9.0], "a"), found(&[4.0, 4.0], "b")];
        assert_eq!(pick(all(), Some(Take::Max)), Some(found(&[1.0, 9.0], "a")));
        assert_eq!(pick(all(), Some(Take::Min)), Some(found(&[4.0, 4.0], "b")));
        assert_eq!(pick(all(), Some(Take::Mean)), Some(found(&[2.5, 6.5], "")));
        assert_eq!(pick(all(), Some(Take::Spread)), Some(found(&[4.0, 2.25], "")));
    }
}
