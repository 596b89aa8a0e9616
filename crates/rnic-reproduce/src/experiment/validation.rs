//! Semantic checks of an experiment file: names must exist, and values must be computable.

use rnic_fabric::Report;

use super::{Axis, AxisValues, Check, Experiment, Measure, Overrides, Plot, PlotKind, Sweep, Value};
use crate::label::label_of;
use crate::trial::{self, Trial};

/// A problem: the key and its description.
pub(crate) type Problem = (String, String);

impl Experiment {
    /// Checks that everything that is named exists and that every check can be computed.
    pub(crate) fn validate(&self) -> Result<(), Problem> {
        if self.needs_runs() {
            self.check_runs()?;
        }
        let trial = self.trial.as_deref().map(trial::find).transpose().map_err(|what| ("trial".into(), what))?;
        if trial.is_some() && !self.needs_runs() {
            return Err(("trial".into(), "is unused: no measure reads a number from its runs".into()));
        }
        unique("variant", self.variant.iter().map(|variant| variant.name.as_str()))?;
        unique("axis", self.axis.iter().map(|axis| axis.name.as_str()))?;
        self.check_measures(trial)?;
        for (index, axis) in self.axis.iter().enumerate() {
            check_axis(axis).map_err(|(key, what)| (format!("axis[{index}].{key}"), what))?;
            for variant in axis.point.iter().flat_map(|point| point.only.keys()) {
                self.known_variant(variant).map_err(|what| (format!("axis[{index}].point.only"), what))?;
            }
        }
        if !self.open.is_empty() && !self.needs_runs() {
            return Err(("open".into(), "is unused: no measure reads a number from runs".into()));
        }
        unique("open", self.open.iter().map(|open| open.name.as_str()))?;
        for (index, open) in self.open.iter().enumerate() {
            self.check_open(open).map_err(|(key, what)| (format!("open[{index}].{key}"), what))?;
        }
        for (index, variant) in self.variant.iter().enumerate() {
            for axis in variant.axes.iter().flatten() {
                self.known_axis(axis).map_err(|what| (format!("variant[{index}].axes"), what))?;
            }
        }
        if self.check.is_empty() {
            return Err(("check".into(), "is missing; an experiment needs at least one check".into()));
        }
        for (index, check) in self.check.iter().enumerate() {
            self.check_check(check).map_err(|(key, what)| (format!("check[{index}].{key}"), what))?;
        }
        for (index, plot) in self.plot.iter().enumerate() {
            self.check_plot(plot).map_err(|(key, what)| (format!("plot[{index}].{key}"), what))?;
        }
        Ok(())
    }

    /// Checks an open parameter: its values are those of an axis, but of keys that no axis varies.
    fn check_open(&self, open: &Axis) -> Result<(), Problem> {
        check_axis(open)?;
        if open.why.is_empty() {
            return Err((
                "why".into(),
                "is missing; say what the paper says of this parameter, and why these values fit it".into(),
            ));
        }
        if open.fast.is_some() {
            return Err(("fast".into(), "does not apply to an open parameter; both sizes have all its values".into()));
        }
        let mut keys = Vec::new();
        for point in open.points() {
            for variant in point.only.keys() {
                self.known_variant(variant).map_err(|what| ("point.only".to_owned(), what))?;
            }
            keys.extend(point.set.into_keys().chain(point.only.into_values().flat_map(Overrides::into_keys)));
        }
        let varied =
            self.axis.iter().flat_map(|axis| axis.points().into_iter().flat_map(|point| point.set.into_keys()));
        match varied.into_iter().find(|key| keys.contains(key)) {
            Some(key) => {
                Err(("key".into(), format!("sets `{key}`, which an axis varies; an open parameter is constant")))
            }
            None => Ok(()),
        }
    }

    /// Returns whether the experiment needs any runs.
    pub fn needs_runs(&self) -> bool {
        let is_from_report = |measure: &Measure| measure.quantity.is_none();
        let is_distance = |check: &Check| matches!(check.value, Value::Distance { .. });
        self.measure.iter().any(is_from_report)
            || self.plot.iter().any(|plot| plot.kind == PlotKind::Cdf)
            || self.check.iter().any(is_distance)
    }

    fn check_runs(&self) -> Result<(), Problem> {
        match (&self.plan, &self.base) {
            (Some(_), _) if self.trial.is_some() => {
                return Err((
                    "plan".into(),
                    "does not apply to a trial; put the arguments of the trial under `base`".into(),
                ));
            }
            (None, None) if self.trial.is_some() => {}
            (None, None) => {
                return Err((
                    "plan".into(),
                    "is missing; give the path of a plan here, or its tables under `base`".into(),
                ));
            }
            (Some(_), Some(_)) => return Err(("base".into(), "conflicts with `plan`; give only one of them".into())),
            _ => {}
        }
        if self.seeds.len() < SEEDS_MIN {
            let what = format!("must have at least {SEEDS_MIN} seeds, so that the spread of each number is known");
            return Err(("seeds".into(), what));
        }
        if self.fast.seeds.as_ref().is_some_and(|seeds| seeds.len() < SEEDS_MIN) {
            return Err(("fast.seeds".into(), format!("must have at least {SEEDS_MIN} seeds")));
        }
        Ok(())
    }

    fn check_measures(&self, trial: Option<&Trial>) -> Result<(), Problem> {
        unique("measure", self.measure.iter().map(|measure| measure.name.as_str()))?;
        if self.measure.is_empty() {
            return Ok(());
        }
        if self.variant.is_empty() {
            return Err(("variant".into(), "is missing; give at least one".into()));
        }
        let numbers =
            trial.map_or_else(Report::numbers, |trial| trial.numbers.iter().map(|&name| name.into()).collect());
        let source = if trial.is_some() { "run of this trial" } else { "report" };
        let needs_runs = self.needs_runs();
        for (index, measure) in self.measure.iter().enumerate() {
            self.check_measure(measure, needs_runs, (source, &numbers))
                .map_err(|(key, what)| (format!("measure[{index}].{key}"), what))?;
        }
        Ok(())
    }

    fn check_check(&self, check: &Check) -> Result<(), Problem> {
        if check.band.min.is_none() && check.band.max.is_none() {
            return Err(("band".into(), "needs `min`, `max` or both".into()));
        }
        if let Some(fast) = &check.fast
            && (fast.band.is_some() && fast.why.is_none())
        {
            return Err((
                "fast.why".into(),
                "is missing; a different band for the small version needs a reason".into(),
            ));
        }
        let at = |key: &str, what: String| (format!("value.{key}"), what);
        match &check.value {
            Value::Measure(single) => {
                self.check_measures_exist(&single.measures).map_err(|what| at("measures", what))?;
                self.known_variant(&single.of).map_err(|what| at("of", what))?;
                self.check_place(&single.at, &single.over).map_err(|(key, what)| at(&key, what))?;
                check_take(single.measures.len(), &single.over, single.take.is_some()).map_err(|what| at("take", what))
            }
            Value::Change(pair) if pair.to_at.is_empty() => {
                Err(at("to_at", "is missing; name the axis values from which the change is computed".into()))
            }
            Value::Ratio(pair) | Value::Percent(pair) | Value::Change(pair) => {
                self.check_measures_exist(&pair.measures).map_err(|what| at("measures", what))?;
                self.known_variant(&pair.of).map_err(|what| at("of", what))?;
                self.known_variant(&pair.to).map_err(|what| at("to", what))?;
                self.check_place(&pair.at, &pair.over).map_err(|(key, what)| at(&key, what))?;
                for (axis, label) in &pair.to_at {
                    self.known_value(axis, label).map_err(|what| at("to_at", what))?;
                }
                check_take(pair.measures.len(), &pair.over, pair.take.is_some()).map_err(|what| at("take", what))
            }
            Value::Order { measure, variants, at: place, over } => {
                self.check_measure_exists(measure).map_err(|what| at("measure", what))?;
                variants.iter().try_for_each(|name| self.known_variant(name)).map_err(|what| at("variants", what))?;
                if variants.len() < 2 {
                    return Err(at("variants", "must name at least two variants".into()));
                }
                self.check_place(place, over).map_err(|(key, what)| at(&key, what))
            }
            Value::Knee { drop, .. } if !(*drop > 0.0 && *drop < 1.0) => {
                Err(at("drop", "must be between 0 and 1, for example 0.1 for a tenth".into()))
            }
            Value::Knee { measure, of, axis, at: place, .. } => self.check_along(measure, of, None, axis, place),
            Value::Crossing { measure, of, to, axis, at: place } => {
                self.check_along(measure, of, Some(to), axis, place)
            }
            Value::Trend { measure, of, to, axis, at: place } => {
                self.check_along(measure, of, to.as_deref(), axis, place)
            }
            Value::Distance { .. } => self.check_distance(&check.value),
            Value::Quantity { name, .. } => crate::quantity::find(name).map(|_| ()).map_err(|what| at("name", what)),
            value => self.check_curve(value),
        }
    }

    /// Checks the shapes that compare a curve, over an axis or over time, with a target.
    fn check_curve(&self, value: &Value) -> Result<(), Problem> {
        let at = |key: &str, what: String| (format!("value.{key}"), what);
        match value {
            Value::Fit { measure, of, axis, at: place } | Value::Rise { measure, of, axis, at: place } => {
                self.check_along(measure, of, None, axis, place)
            }
            Value::Proportion { factor, .. } if !(factor.is_finite() && *factor > 0.0) => {
                Err(at("factor", "must be above zero".into()))
            }
            Value::Proportion { measure, of, axis, at: place, .. } => self.check_along(measure, of, None, axis, place),
            Value::Settling { limits, of, at: place, .. } => {
                if limits.is_empty() || limits.iter().any(|limit| limit.min.is_none() && limit.max.is_none()) {
                    return Err(at("limits", "must have at least one entry, each with `min`, `max` or both".into()));
                }
                for limit in limits {
                    self.whole_series(&limit.measure).map_err(|what| at("limits", what))?;
                }
                self.known_variant(of).map_err(|what| at("of", what))?;
                self.check_place(place, &[]).map_err(|(key, what)| at(&key, what))
            }
            Value::Deviation { target, .. } if !(target.is_finite() && *target != 0.0) => {
                Err(at("target", "must be another number than zero, because the deviation is a share of it".into()))
            }
            Value::Deviation { measure, of, at: place, .. } | Value::Slope { measure, of, at: place, .. } => {
                self.whole_series(measure).map_err(|what| at("measure", what))?;
                self.known_variant(of).map_err(|what| at("of", what))?;
                self.check_place(place, &[]).map_err(|(key, what)| at(&key, what))
            }
            _ => Ok(()),
        }
    }

    /// Checks a distance to a reference distribution.
    fn check_distance(&self, value: &Value) -> Result<(), Problem> {
        let at = |key: &str, what: String| (format!("value.{key}"), what);
        let Value::Distance { sample, of, reference, slack, at: place } = value else { return Ok(()) };
        if self.trial.is_some() {
            return Err(at("kind", "is `distance`, but runs of a trial keep no distributions".into()));
        }
        known("distribution", sample, DISTRIBUTIONS.into_iter()).map_err(|what| at("sample", what))?;
        self.known_variant(of).map_err(|what| at("of", what))?;
        if reference.len() < REFERENCE_POINTS_MIN {
            return Err(at("reference", format!("must have at least {REFERENCE_POINTS_MIN} points [share, value]")));
        }
        let is_share = |(share, value): &(f64, f64)| *share > 0.0 && *share <= 1.0 && value.is_finite();
        if let Some((share, value)) = reference.iter().find(|point| !is_share(point)) {
            return Err(at("reference", format!("has the point [{share}, {value}]; shares are above 0 and at most 1")));
        }
        let falls = |pair: &&[(f64, f64)]| pair[1].0 <= pair[0].0 || pair[1].1 < pair[0].1;
        if let Some(pair) = reference.windows(2).find(falls) {
            return Err(at("reference", format!("must rise, but falls after the share {}", pair[0].0)));
        }
        if !(0.0..1.0).contains(slack) {
            return Err(at("slack", "must be at least 0 and below 1, for example 0.01 for a hundredth".into()));
        }
        self.check_place(place, &[]).map_err(|(key, what)| at(&key, what))
    }

    fn check_along(
        &self,
        measure: &str,
        of: &str,
        to: Option<&str>,
        axis: &str,
        place: &AxisValues,
    ) -> Result<(), Problem> {
        let at = |key: &str, what: String| (format!("value.{key}"), what);
        self.check_measure_exists(measure).map_err(|what| at("measure", what))?;
        self.known_variant(of).map_err(|what| at("of", what))?;
        to.map_or(Ok(()), |to| self.known_variant(to)).map_err(|what| at("to", what))?;
        self.known_axis(axis).map_err(|what| at("axis", what))?;
        self.check_place(place, &[axis.to_owned()]).map_err(|(key, what)| at(&key, what))
    }

    /// Checks that every axis is held at a value by `at` or iterated by `over`; when axes are varied one at a time, the
    /// axes not named keep the plan's value.
    fn check_place(&self, at: &AxisValues, over: &[String]) -> Result<(), Problem> {
        for (axis, label) in at {
            self.known_value(axis, label).map_err(|what| ("at".to_owned(), what))?;
            if over.contains(axis) {
                return Err(("over".into(), format!("names axis `{axis}`, which `at` already holds at one value")));
            }
        }
        over.iter().try_for_each(|axis| self.known_axis(axis).map(|_| ())).map_err(|what| ("over".to_owned(), what))?;
        let free = self.axis.iter().find(|axis| !at.contains_key(&axis.name) && !over.contains(&axis.name));
        match (self.sweep, free) {
            (Sweep::Grid, Some(axis)) => Err((
                "at".into(),
                format!("names no value of axis `{}`; name one, or list the axis in `over`", axis.name),
            )),
            (Sweep::Each, _) if at.len() > 1 => Err((
                "at".into(),
                "must name at most one axis, because this experiment varies one axis at a time".into(),
            )),
            _ => Ok(()),
        }
    }

    fn check_plot(&self, plot: &Plot) -> Result<(), Problem> {
        for name in plot.variants.iter().flatten().chain(&plot.relative_to) {
            self.known_variant(name).map_err(|what| ("variants".to_owned(), what))?;
        }
        if let Some(axis) = &plot.axis {
            self.known_axis(axis).map_err(|what| ("axis".to_owned(), what))?;
        }
        let over: Vec<String> = plot.axis.iter().cloned().collect();
        self.check_place(&plot.at, &over)?;
        match plot.kind {
            PlotKind::Lines if plot.axis.is_none() => {
                Err(("axis".into(), "is missing; a line plot needs an axis".into()))
            }
            PlotKind::Lines | PlotKind::Bars => {
                self.check_measures_exist(&plot.measures).map_err(|what| ("measures".to_owned(), what))
            }
            PlotKind::Time | PlotKind::Traces if plot.axis.is_some() || plot.relative_to.is_some() => {
                let name = if plot.kind == PlotKind::Time { "time" } else { "traces" };
                let what = format!("is `{name}`, which allows neither `axis` nor `relative_to`; remove them");
                Err(("kind".into(), what))
            }
            PlotKind::Time | PlotKind::Traces => {
                self.check_series(&plot.measures).map_err(|what| ("measures".to_owned(), what))
            }
            PlotKind::Cdf if self.trial.is_some() => {
                self.check_series(&plot.measures).map_err(|what| ("measures".to_owned(), what))
            }
            PlotKind::Cdf => match plot.measures.iter().find(|name| !DISTRIBUTIONS.contains(&name.as_str())) {
                Some(name) => Err((
                    "measures".into(),
                    format!("`{name}` is not a distribution; the distributions are {}", names(&DISTRIBUTIONS)),
                )),
                None => Ok(()),
            },
        }
    }

    fn known_variant(&self, name: &str) -> Result<(), String> {
        known("variant", name, self.variant.iter().map(|variant| variant.name.as_str())).map(|_| ())
    }

    fn check_measures_exist(&self, names: &[String]) -> Result<(), String> {
        if names.is_empty() {
            return Err("is empty; name at least one".into());
        }
        names.iter().try_for_each(|name| self.check_measure_exists(name))
    }

    fn check_measure_exists(&self, name: &str) -> Result<(), String> {
        known("measure", name, self.measure.iter().map(|measure| measure.name.as_str())).map(|_| ())
    }

    /// Checks that each of `names` is a measure that is a series.
    fn check_series(&self, names: &[String]) -> Result<(), String> {
        self.check_measures_exist(names)?;
        names.iter().try_for_each(|name| self.known_series(name))
    }

    fn known_series(&self, name: &str) -> Result<(), String> {
        let field =
            self.measure.iter().find(|measure| measure.name == *name).and_then(|measure| measure.field.as_ref());
        match field {
            Some(field) if self.is_series(field) => Ok(()),
            _ => Err(format!("`{name}` has one value per run; the series over time are {}", self.series_names())),
        }
    }

    /// Returns whether the runs have the series called `path`.
    pub(crate) fn is_series(&self, path: &str) -> bool {
        match self.trial.as_deref().map(trial::find) {
            Some(trial) => trial.is_ok_and(|trial| trial.series.contains(&path)),
            None => Report::is_series(path),
        }
    }

    /// Returns the names of the series that runs have.
    fn series_names(&self) -> String {
        match self.trial.as_deref().map(trial::find) {
            Some(Ok(Trial { series: [], .. }) | Err(_)) => "none: this trial has only single numbers".to_owned(),
            Some(Ok(trial)) => names(trial.series),
            None => names(&Report::series()),
        }
    }

    /// Checks that the measure called `name` is a series, and not the mean of an interval of it.
    fn whole_series(&self, name: &str) -> Result<(), String> {
        self.check_measure_exists(name)?;
        self.known_series(name)?;
        let is_timed = |measure: &&Measure| measure.between.is_some() || measure.relative_to.is_some();
        match self.measure.iter().filter(is_timed).find(|measure| measure.name == *name) {
            Some(_) => Err(format!("`{name}` is the mean of an interval; use a measure without `between`")),
            None => Ok(()),
        }
    }

    /// Checks a measure: runs provide numbers of their report, and code provides quantities; an experiment has one or
    /// the other.
    fn check_measure(&self, measure: &Measure, needs_runs: bool, numbers: (&str, &[String])) -> Result<(), Problem> {
        let is_timed = measure.between.is_some() || measure.relative_to.is_some();
        match (&measure.field, &measure.quantity) {
            (field, _) if is_timed && !field.as_deref().is_some_and(|field| self.is_series(field)) => {
                let key = if measure.between.is_some() { "between" } else { "relative_to" };
                Err((key.into(), format!("applies only to the series over time, which are {}", self.series_names())))
            }
            (Some(field), None) if self.is_series(field) => match measure.per.is_empty() {
                true => Ok(()),
                false => Err(("per".into(), "does not apply to a series; use `relative_to` instead".into())),
            },
            (Some(field), None) => {
                known_number(field, numbers).map_err(|what| ("field".to_owned(), what))?;
                measure
                    .per
                    .iter()
                    .try_for_each(|name| known_number(name, numbers))
                    .map_err(|what| ("per".to_owned(), what))
            }
            (None, Some(_)) if needs_runs => Err((
                "quantity".into(),
                "cannot be combined with other numbers of this experiment, which come from runs".into(),
            )),
            (None, Some(name)) if measure.per.is_empty() => {
                crate::quantity::find(name).map(|_| ()).map_err(|what| ("quantity".to_owned(), what))
            }
            (None, Some(_)) => Err(("per".into(), "applies only to fields of a report; remove it".into())),
            _ => Err((
                "field".into(),
                "is ambiguous or missing; give either `field` (the name of a report field) or `quantity`".into(),
            )),
        }
    }

    fn known_axis(&self, name: &str) -> Result<&Axis, String> {
        known("axis", name, self.axis.iter().map(|axis| axis.name.as_str())).map(|index| &self.axis[index])
    }

    fn known_value(&self, axis: &str, label: &str) -> Result<(), String> {
        let labels = self.known_axis(axis)?.labels();
        known("value of that axis", label, labels.iter().map(String::as_str)).map(|_| ())
    }
}

/// Checks that a report, or another `source`, can contain the number called `path`; the error suggests the most similar
/// names.
fn known_number(path: &str, (source, numbers): (&str, &[String])) -> Result<(), String> {
    if numbers.iter().any(|number| Report::is_instance(path, number)) {
        return Ok(());
    }
    let common_prefix_len = |number: &str| number.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
    let mut suggestions: Vec<&str> = numbers.iter().map(String::as_str).collect();
    suggestions.sort_by_key(|number| std::cmp::Reverse(common_prefix_len(number)));
    suggestions.truncate(SUGGESTIONS_MAX);
    Err(format!("no {source} has a number `{path}`; the most similar names are {}", names(&suggestions)))
}

fn check_axis(axis: &Axis) -> Result<(), Problem> {
    match (&axis.key, axis.values.is_empty(), axis.point.is_empty()) {
        (Some(_), false, true) | (None, true, false) => {}
        _ => {
            return Err((
                "values".into(),
                "is ambiguous or missing; give either `key` and `values`, or `point`".into(),
            ));
        }
    }
    let labels = axis.labels();
    unique("values", labels.iter().map(String::as_str))?;
    for fast in axis.fast.iter().flatten() {
        known("value", &label_of(fast), labels.iter().map(String::as_str)).map_err(|what| ("fast".to_owned(), what))?;
    }
    Ok(())
}

fn check_take(measures: usize, over: &[String], is_given: bool) -> Result<(), String> {
    if is_given || (measures == 1 && over.is_empty()) {
        return Ok(());
    }
    Err("is missing; several values are computed, so choose min, max, mean or spread".into())
}

fn unique<'n>(key: &str, names: impl Iterator<Item = &'n str>) -> Result<(), Problem> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err((key.to_owned(), format!("`{}` is defined twice", pair[0]))),
        None => Ok(()),
    }
}

fn known<'n>(kind: &str, name: &str, known_names: impl Iterator<Item = &'n str>) -> Result<usize, String> {
    let valid_names: Vec<&str> = known_names.collect();
    let found = valid_names.iter().position(|other| *other == name);
    found.ok_or_else(|| format!("there is no {kind} `{name}`; the valid names are: {}", names(&valid_names)))
}

fn names(names: &[&str]) -> String {
    names.join(", ")
}

/// Metrics of a run whose individual samples are kept, so that their distributions can be shown.
pub(crate) const DISTRIBUTIONS: [&str; 3] = ["fct_us", "slowdown", "single_packet_fct_us"];
/// Minimum number of points of a reference distribution: fewer leave gaps of more than an eighth.
const REFERENCE_POINTS_MIN: usize = 8;
/// Minimum number of seeds: fewer show no spread.
const SEEDS_MIN: usize = 3;
/// Maximum number of similar names in an error message, so that it fits into a line.
const SUGGESTIONS_MAX: usize = 4;
