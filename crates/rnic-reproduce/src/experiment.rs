//! Contents of an experiment file. The format, with an example, is in `docs/reproduce.md`.
//!
//! The file is data: it contains no expressions. A check computes one of the variants of [`Value`].

mod span;
mod validation;
mod value;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::files::Files;
use crate::label::label_of;

pub use span::{Length, Span};
pub use value::{AxisValues, Pair, Place, Selection, SeriesLimit, Single, Value};

/// Replacement values, by the dotted path of the plan key that is replaced; a table replaces a table.
pub type Overrides = BTreeMap<String, toml::Value>;

/// An experiment file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Id from the folder, such as `irn/fig1`; not in the file.
    #[serde(skip)]
    pub id: String,
    /// Question that the figure answers, in one line.
    pub question: String,
    /// The paper and the figure in it: `IRN (SIGCOMM'18), figure 1`.
    pub figure: String,
    /// Content of the paper's figure, in the project's own words.
    pub caption: String,
    /// Plan to which all overrides apply: a path relative to the folder of this file.
    pub plan: Option<String>,
    /// The plan itself, as an alternative to `plan`. If every measure is a quantity, or a trial is run, it contains the
    /// arguments of the quantities or the trial.
    pub base: Option<toml::Table>,
    /// Trial to run instead of simulations; its arguments are `base` with the overrides.
    pub trial: Option<String>,
    /// Overrides for every run.
    #[serde(default)]
    pub set: Overrides,
    /// Seeds; every run is repeated with each.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Differences in the small version of the experiment.
    #[serde(default)]
    pub fast: Fast,
    /// Combination of several axes.
    #[serde(default)]
    pub sweep: Sweep,
    /// Memory that one run needs, which must be free before it starts ("500MB").
    pub memory: Option<String>,
    /// Variants that are compared.
    #[serde(default)]
    pub variant: Vec<Variant>,
    /// Axes: the parameters that are varied.
    #[serde(default)]
    pub axis: Vec<Axis>,
    /// Open parameters: those that the paper does not state, with other values that fit it than the plan's. Only a
    /// [sensitivity study](crate::sensitivity) varies them.
    #[serde(default)]
    pub open: Vec<Axis>,
    /// Measures that are read from a run's report.
    #[serde(default)]
    pub measure: Vec<Measure>,
    /// Checks of the results against the paper's values.
    pub check: Vec<Check>,
    /// Plots in the report.
    #[serde(default)]
    pub plot: Vec<Plot>,
    /// Differences from the paper's set-up, with reasons.
    #[serde(default)]
    pub deviations: Vec<String>,
    /// The plan as read from `plan` or `base`; not in the file.
    #[serde(skip)]
    pub(crate) base_plan: toml::Table,
    /// Values of open parameters, applied after all other overrides; not in the file.
    #[serde(skip)]
    pub(crate) setting: Vec<AxisPoint>,
    /// Place of the file and of those that it names; not in the file.
    #[serde(skip)]
    pub(crate) files: Files,
    /// Folder of the file; not in the file.
    #[serde(skip)]
    pub(crate) folder: std::path::PathBuf,
}

/// The small version of an experiment: fewer, shorter runs of the same set-up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fast {
    /// Overrides, applied after those of the variant.
    #[serde(default)]
    pub set: Overrides,
    /// Seeds that replace those of the experiment.
    pub seeds: Option<Vec<u64>>,
    /// Limitations of the small version.
    pub why: Option<String>,
}

/// Combination of several axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// Every combination of values.
    #[default]
    Grid,
    /// One axis at a time, with the others at the plan's values; and one run with all at the plan's values.
    Each,
}

/// One of the variants that are compared; in plots, a bar or a line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Name by which checks refer to it.
    pub name: String,
    /// Label for readers.
    pub label: String,
    /// Overrides of this variant.
    #[serde(default)]
    pub set: Overrides,
    /// Overrides in the small version, applied after all others except those of the axes.
    #[serde(default)]
    pub fast: Overrides,
    /// Axes that affect this variant; all when absent. Along other axes it is run once, and the result applies at every
    /// value.
    pub axes: Option<Vec<String>>,
}

/// A parameter that is varied: `key` with `values`, or `point`s.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name by which checks refer to it.
    pub name: String,
    /// Label for readers, with the unit.
    pub label: String,
    /// Key of the plan.
    pub key: Option<String>,
    /// Values of the key.
    #[serde(default)]
    pub values: Vec<toml::Value>,
    /// Values that set more than one key.
    #[serde(default)]
    pub point: Vec<AxisPoint>,
    /// Values in the small version: some of the values or, with `point`s, of their labels; all when absent.
    pub fast: Option<Vec<toml::Value>>,
    /// Spacing of the values in plots.
    #[serde(default)]
    pub scale: Scale,
    /// Statement of the paper about the parameter, and the reason for these values; required of an open parameter.
    #[serde(default)]
    pub why: String,
}

/// One value of an axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisPoint {
    /// Label for checks and readers.
    pub label: String,
    /// Position on a plot; when absent, the index in the list.
    pub x: Option<f64>,
    /// Overrides of this value.
    #[serde(default)]
    pub set: Overrides,
    /// Overrides for single variants, by their names, applied after `set`.
    #[serde(default)]
    pub only: BTreeMap<String, Overrides>,
}

/// Spacing of values on a plot axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear: equal differences have equal distances.
    #[default]
    Linear,
    /// Logarithmic: equal ratios have equal distances.
    Log,
}

/// A number read from a run's report, or one that the code computes without a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Name by which checks refer to it.
    pub name: String,
    /// Label for readers.
    pub label: String,
    /// Field of the fabric's report, such as `fct_p99_us` or `single_packet_fct_us.p999`, or of a trial's result.
    pub field: Option<String>,
    /// Quantity to use instead of a field, with the plan's keys as its arguments; `rnic reproduce --quantities` lists
    /// them.
    pub quantity: Option<String>,
    /// For a series, such as `slices.hosts.host-1.goodput_gbps`: takes the mean of the slices in this span of time; of
    /// all slices when absent.
    pub between: Option<Span>,
    /// Divides by the mean of the same series in this span.
    pub relative_to: Option<Span>,
    /// Divides the field by the sum of these fields.
    #[serde(default)]
    pub per: Vec<String>,
    /// Factor by which the result is multiplied.
    #[serde(default = "default_scale")]
    pub scale: f64,
    /// Unit of the result.
    #[serde(default)]
    pub unit: String,
}

fn default_scale() -> f64 {
    1.0
}

/// A row of the report: the paper's value, and the value obtained.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Id of the row in the list of targets: `I-R2`.
    pub row: String,
    /// Description of the comparison, in the project's own words.
    pub what: String,
    /// The paper's value, as the paper states it.
    pub paper: String,
    /// Value that is computed and compared with the band.
    pub value: Value,
    /// Seed whose value must lie in the band.
    #[serde(default)]
    pub seed: SeedChoice,
    /// Interval in which the value must lie.
    pub band: Band,
    /// Reason for the width of the band.
    pub why: String,
    /// For a row that is known to lie outside of its band: the document and heading that give the reason. The row
    /// still counts as outside, but does not make the command fail.
    pub known: Option<String>,
    /// Differences in the small version.
    pub fast: Option<FastCheck>,
}

/// The value that is compared with the band, of those that the seeds give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeedChoice {
    /// The mean over the seeds.
    #[default]
    Mean,
    /// The smallest value, for a paper that shows its worst of several random topologies or seeds.
    Min,
    /// The largest value.
    Max,
}

impl SeedChoice {
    /// Returns a note for readers of a report, unless the choice is the mean.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Self::Mean => None,
            Self::Min => Some("judged by the least"),
            Self::Max => Some("judged by the largest"),
        }
    }
}

/// Differences of a check in the small version.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FastCheck {
    /// Band that replaces the check's.
    pub band: Option<Band>,
    /// Reason for the different band.
    pub why: Option<String>,
    /// For a row that is known to lie outside in the small version only: where the reason is written
    /// ([`Check::known`]).
    pub known: Option<String>,
    /// Reason why the small version omits the check; when absent, the check is made.
    pub skip: Option<String>,
}

/// An interval, both ends included; either may be left out.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Lower bound.
    pub min: Option<f64>,
    /// Upper bound.
    pub max: Option<f64>,
}

impl Band {
    /// Returns `true` if `value` lies in the band.
    pub fn holds(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }
}

impl std::fmt::Display for Band {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) if min == max => write!(f, "{min}"),
            (Some(min), Some(max)) => write!(f, "{min} to {max}"),
            (Some(min), None) => write!(f, "at least {min}"),
            (None, Some(max)) => write!(f, "at most {max}"),
            (None, None) => f.write_str("any"),
        }
    }
}

/// A plot in the report.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Title above the plot.
    pub title: String,
    /// Type of the plot.
    pub kind: PlotKind,
    /// Measures, with a panel for each, or for `traces` with a line for each; for a `cdf`, one of
    /// `fct_us`, `slowdown`, `single_packet_fct_us`; for a `cdf` of a trial, series with a value for each flow.
    pub measures: Vec<String>,
    /// Axis of the plot. `lines`: the horizontal axis. `bars`: one group per value. `cdf`: one panel per value.
    pub axis: Option<String>,
    /// Fixed values of the other axes.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// Variants to show, in this order; all when absent.
    pub variants: Option<Vec<String>>,
    /// Variant by whose values all values are divided.
    pub relative_to: Option<String>,
    /// Spacing of the axis of values.
    #[serde(default)]
    pub scale: Scale,
    /// For `cdf`: the cumulative share at which the plot starts (0.9).
    pub from: Option<f64>,
    /// Note below the plot, for what the title does not explain.
    #[serde(default)]
    pub note: String,
}

/// Type of a plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// A bar for each variant.
    Bars,
    /// A line for each variant over an axis.
    Lines,
    /// A line for each variant: the cumulative share of values at or below each value. Of a trial: a panel for each
    /// variant with a line for each measure, a series of the first seed with a value for each flow.
    Cdf,
    /// A line for each variant over simulated time: measures are series, plotted slice by slice.
    Time,
    /// A line for each measure, a series of the first seed over simulated time; a panel for each variant.
    Traces,
}

impl Axis {
    /// Returns the labels of the values.
    pub fn labels(&self) -> Vec<String> {
        if self.key.is_some() {
            self.values.iter().map(label_of).collect()
        } else {
            self.point.iter().map(|point| point.label.clone()).collect()
        }
    }

    /// Returns the values as points.
    pub fn points(&self) -> Vec<AxisPoint> {
        let Some(key) = &self.key else { return self.point.clone() };
        let to_point = |value: &toml::Value| {
            let label = label_of(value);
            let x = leading_number(&label);
            AxisPoint { label, x, set: [(key.clone(), value.clone())].into(), only: BTreeMap::new() }
        };
        self.values.iter().map(to_point).collect()
    }

    /// Returns `true` if the small version has the value called `label`.
    pub fn is_fast(&self, label: &str) -> bool {
        self.fast.as_ref().is_none_or(|fast| fast.iter().any(|value| label_of(value) == label))
    }
}

/// Returns the number at the start of `text`: `240KB` is 240, because the unit is in the axis label.
fn leading_number(text: &str) -> Option<f64> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '_' || c == '-';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    text[..end].replace('_', "").parse().ok()
}
