//! Comparison of two sets of runs: in which keys their plans differ, and in which numbers the results differ.

use std::collections::BTreeMap;

use rnic_base::similar;
use serde::Serialize;

use crate::estimate::{Estimate, p_value, significant};
use crate::run_set::{PointRuns, RunSet};

/// Two sets of runs beside each other.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Keys of the plans, and other facts, that differ.
    pub differences: Vec<Difference>,
    /// Points that both have, with their numbers.
    pub points: Vec<PointComparison>,
    /// Number of points that only one of the two has.
    pub points_apart: usize,
}

/// A key whose value differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// Key of the plan, a dotted path; or `build`.
    pub key: String,
    /// Values in both, in order; `None` without the key.
    pub values: [Option<String>; 2],
}

/// The numbers at one point.
#[derive(Clone, Debug, Serialize)]
pub struct PointComparison {
    /// Keys that vary, and their values.
    pub at: Vec<(String, String)>,
    /// Seeds that both have.
    pub seeds_in_common: usize,
    /// Fields that both have.
    pub fields: Vec<FieldComparison>,
    /// Index of the point in each set.
    #[serde(skip)]
    pub indices: [usize; 2],
}

/// One number, at one point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FieldComparison {
    /// Path in the report.
    pub field: String,
    /// Means of both, in order.
    pub means: [Estimate; 2],
    /// Probability of such a difference if there were none; `None` with a single seed.
    pub p_value: Option<f64>,
    /// True when the difference is significant at 95 %, among all fields and points that are compared.
    pub is_significant: bool,
}

impl Comparison {
    /// Compares `fields` of two sets; all fields that both have when it is empty.
    ///
    /// # Errors
    /// When they have no point or no field in common, in one line.
    pub fn new(a: &RunSet, b: &RunSet, fields: &[String]) -> Result<Self, String> {
        let axes = |set: &RunSet| -> Vec<String> { set.axes.iter().map(|axis| axis.key.clone()).collect() };
        let (keys_a, keys_b) = (axes(a), axes(b));
        let mut sorted = [keys_a.clone(), keys_b.clone()];
        sorted.iter_mut().for_each(|keys| keys.sort_unstable());
        if sorted[0] != sorted[1] {
            let list = |keys: &[String]| if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
            return Err(format!(
                "the runs cannot be compared: one varies {}, the other {}; both must vary the same keys",
                list(&keys_a),
                list(&keys_b)
            ));
        }
        let (known_a, known_b) = (a.fields(), b.fields());
        let common: Vec<String> = known_a.into_iter().filter(|field| known_b.contains(field)).collect();
        if let Some(unknown) = fields.iter().find(|field| !common.contains(field)) {
            let mut hint = similar::hint(unknown, common.iter().map(String::as_str));
            if hint.is_empty() {
                hint = format!("; those of both are: {}", common.join(", "));
            }
            return Err(format!("not all of the runs have a field `{unknown}`{hint}"));
        }
        let fields = if fields.is_empty() { &common } else { fields };
        let points = points(a, b, &keys_a, &keys_b, fields);
        if points.is_empty() || fields.is_empty() {
            return Err("the runs cannot be compared: they have no point with the same values in common".to_owned());
        }
        let points_apart = a.points.len() + b.points.len() - 2 * points.len();
        let mut comparison = Self { differences: differences(a, b), points, points_apart };
        comparison.judge();
        Ok(comparison)
    }

    /// Decides which differences are significant, over all points and fields together.
    fn judge(&mut self) {
        let all = || self.points.iter().flat_map(|point| point.fields.iter().map(|field| field.p_value));
        let found = significant(&all().collect::<Vec<_>>());
        let fields = self.points.iter_mut().flat_map(|point| &mut point.fields);
        fields.zip(found).for_each(|(field, is_significant)| field.is_significant = is_significant);
    }
}

fn points(a: &RunSet, b: &RunSet, keys_a: &[String], keys_b: &[String], fields: &[String]) -> Vec<PointComparison> {
    let named = |keys: &[String], point: &PointRuns| -> BTreeMap<String, String> {
        keys.iter().cloned().zip(point.at.iter().cloned()).collect()
    };
    let others: Vec<_> = b.points.iter().map(|point| named(keys_b, point)).collect();
    let mut points = Vec::new();
    for (index, point) in a.points.iter().enumerate() {
        let at = named(keys_a, point);
        let Some(other) = others.iter().position(|other| *other == at) else { continue };
        let seeds: Vec<u64> = b.points[other].runs.iter().map(|run| run.seed).collect();
        points.push(PointComparison {
            at: at.into_iter().collect(),
            seeds_in_common: point.runs.iter().filter(|run| seeds.contains(&run.seed)).count(),
            fields: fields.iter().filter_map(|field| compare_field(field, point, &b.points[other])).collect(),
            indices: [index, other],
        });
    }
    points
}

fn compare_field(field: &str, a: &PointRuns, b: &PointRuns) -> Option<FieldComparison> {
    let (mut values_a, mut values_b) = (a.values(field), b.values(field));
    values_a.sort_unstable_by_key(|(seed, _)| *seed);
    values_b.sort_unstable_by_key(|(seed, _)| *seed);
    let seeds = |values: &[(u64, f64)]| values.iter().map(|(seed, _)| *seed).collect::<Vec<_>>();
    let is_paired = seeds(&values_a) == seeds(&values_b);
    let numbers = |values: &[(u64, f64)]| values.iter().map(|(_, value)| *value).collect::<Vec<_>>();
    let (numbers_a, numbers_b) = (numbers(&values_a), numbers(&values_b));
    Some(FieldComparison {
        field: field.to_owned(),
        means: [Estimate::of(&numbers_a)?, Estimate::of(&numbers_b)?],
        p_value: p_value(&numbers_a, &numbers_b, is_paired),
        is_significant: false,
    })
}

fn differences(a: &RunSet, b: &RunSet) -> Vec<Difference> {
    let keys = |set: &RunSet| {
        let mut keys = BTreeMap::new();
        let plan: toml::Table = set.plan.parse().unwrap_or_default();
        flatten("", &toml::Value::Table(plan), &mut keys);
        keys.insert("build".to_owned(), set.build.clone());
        keys
    };
    let (keys_a, keys_b) = (keys(a), keys(b));
    let mut all: Vec<&String> = keys_a.keys().chain(keys_b.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let difference = |key: &String| Difference {
        key: key.clone(),
        values: [&keys_a, &keys_b].map(|keys: &BTreeMap<String, String>| keys.get(key).cloned()),
    };
    let different = all.into_iter().map(difference).filter(|difference| difference.values[0] != difference.values[1]);
    different.collect()
}

fn flatten(path: &str, value: &toml::Value, keys: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{name}"), value, keys);
            }
        }
        other => drop(keys.insert(path.to_owned(), crate::label::label_of(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Axis;
    use crate::run_set::SeedRun;

    fn set(plan: &str, axis: Option<&str>, points: &[(&str, &[f64])]) -> RunSet {
        let axes = axis.map(|key| Axis { key: key.into(), values: Vec::new() }).into_iter().collect();
        let run = |(value, seed): (&f64, u64)| SeedRun {
            seed,
            fields: [("goodput_gbps".to_owned(), *value)].into(),
            quantiles: BTreeMap::new(),
            failure: None,
        };
        let point = |(at, values): &(&str, &[f64])| PointRuns {
            at: axis.map(|_| (*at).to_owned()).into_iter().collect(),
            runs: values.iter().zip(1..).map(run).collect(),
        };
        RunSet::new("rnic sweep", plan, axes, points.iter().map(point).collect())
    }

    /// Points are matched by their values; a clear difference is significant, noise is not.
    #[test]
    fn points_in_common_are_compared_and_judged() {
        let a = set("mtu = 1024", Some("k"), &[("1", &[9.0, 9.1, 9.2]), ("2", &[5.0, 5.2, 5.1]), ("3", &[1.0])]);
        let b = set("mtu = 4096\nreads = 8", Some("k"), &[("2", &[5.1, 5.1, 5.1]), ("1", &[12.0, 12.1, 12.2])]);
        let found = Comparison::new(&a, &b, &[]).expect("they have points in common");
        assert_eq!((found.points.len(), found.points_apart), (2, 1));
        let judged: Vec<_> = found.points.iter().map(|point| point.fields[0].is_significant).collect();
        assert_eq!(judged, [true, false]);
        assert_eq!(found.points[0].indices, [0, 1]);
        let differences: Vec<_> = found.differences.iter().map(|difference| difference.key.as_str()).collect();
        assert_eq!(differences, ["mtu", "reads"]);
        assert_eq!(found.differences[1].values, [None, Some("8".to_owned())]);
    }

    #[test]
    fn runs_without_points_in_common_are_refused() {
        let a = set("", Some("k"), &[("1", &[1.0])]);
        for (b, reason) in [
            (set("", Some("m"), &[("1", &[1.0])]), "one varies k, the other m"),
            (set("", None, &[("", &[1.0])]), "one varies k, the other nothing"),
            (set("", Some("k"), &[("2", &[1.0])]), "no point with the same values"),
        ] {
            let error = Comparison::new(&a, &b, &[]).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
        let error = Comparison::new(&a, &a, &["nothing".into()]).expect_err("there is no such field");
        assert!(error.contains("`nothing`; those of both are: goodput_gbps"), "{error}");
        let single = Comparison::new(&a, &a, &[]).expect("they are the same");
        assert!(single.points[0].fields[0].p_value.is_none() && !single.points[0].fields[0].is_significant);
    }
}
