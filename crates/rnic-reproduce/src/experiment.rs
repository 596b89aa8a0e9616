//! What an experiment file says. The format, with an example, is in `docs/reproduce.md`.
//!
//! The file is data: no expressions. What a check can compute is one of the shapes of [`Value`].

mod sound;
mod span;
mod value;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::label::label_of;

pub use span::Span;
pub use value::{At, Pair, Single, Take, Value};

/// Keys of a plan, as paths with dots, and what replaces them; a table replaces a table.
pub type Overrides = BTreeMap<String, toml::Value>;

/// An experiment file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// `irn/fig1`: its folder; not in the file.
    #[serde(skip)]
    pub id: String,
    /// What the figure asks, in one line.
    pub question: String,
    /// The paper and where in it: `IRN (SIGCOMM'18), figure 1`.
    pub figure: String,
    /// What the paper's figure shows, in our words.
    pub caption: String,
    /// The plan that everything else overrides: a path from the folder of this file.
    pub plan: Option<String>,
    /// The same, written here; where every measure is a quantity, or runs are of a trial, their arguments.
    pub base: Option<toml::Table>,
    /// Instead of simulations: the trial that runs are of; `base`, and what overrides it, are its arguments.
    pub trial: Option<String>,
    /// Overrides for every run.
    #[serde(default)]
    pub set: Overrides,
    /// Every run is repeated with each.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// How the small version differs.
    #[serde(default)]
    pub fast: Fast,
    /// How several axes combine.
    #[serde(default)]
    pub sweep: Sweep,
    /// Memory that one run needs: so many bytes must be free before it starts ("500MB").
    pub memory: Option<String>,
    /// What is compared.
    #[serde(default)]
    pub variant: Vec<Variant>,
    /// What is varied.
    #[serde(default)]
    pub axis: Vec<Axis>,
    /// What is read off a run.
    #[serde(default)]
    pub measure: Vec<Measure>,
    /// What the paper says, and whether we agree.
    pub check: Vec<Check>,
    /// Pictures.
    #[serde(default)]
    pub plot: Vec<Plot>,
    /// Where this differs from the paper's set-up, and why.
    #[serde(default)]
    pub deviations: Vec<String>,
    /// The plan as it was found, by `plan` or `base`; not in the file.
    #[serde(skip)]
    pub(crate) base_plan: toml::Table,
    /// The folder; not in the file.
    #[serde(skip)]
    pub(crate) folder: std::path::PathBuf,
}

/// The small version: fewer, shorter runs of the same thing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fast {
    /// Overrides, after those of the variant.
    #[serde(default)]
    pub set: Overrides,
    /// Instead of the experiment's.
    pub seeds: Option<Vec<u64>>,
    /// What is lost by it.
    pub why: Option<String>,
}

/// How several axes combine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// Every value with every other.
    #[default]
    Grid,
    /// One axis at a time, the others as the plan has them; and once all as the plan has them.
    Each,
}

/// One of those that are compared: a bar, a line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What checks call it.
    pub name: String,
    /// What people read.
    pub label: String,
    /// Overrides.
    #[serde(default)]
    pub set: Overrides,
    /// Overrides in the small version, after all others but the axes'.
    #[serde(default)]
    pub fast: Overrides,
    /// The axes that change it; without, all. On the others it is run once and stands at every value.
    pub axes: Option<Vec<String>>,
}

/// What is varied: `key` with `values`, or `point`s.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What checks call it.
    pub name: String,
    /// What people read, with the unit.
    pub label: String,
    /// The key of the plan.
    pub key: Option<String>,
    /// Its values.
    #[serde(default)]
    pub values: Vec<toml::Value>,
    /// Values that take more than one key.
    #[serde(default)]
    pub point: Vec<AxisPoint>,
    /// In the small version: some of the values or, with `point`s, of their labels; without, all.
    pub fast: Option<Vec<toml::Value>>,
    /// How plots space it.
    #[serde(default)]
    pub scale: Scale,
}

/// One value of an axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisPoint {
    /// What checks and people call it.
    pub label: String,
    /// Where it stands on a plot; without, by its place in the list.
    pub x: Option<f64>,
    /// Overrides.
    #[serde(default)]
    pub set: Overrides,
    /// Overrides for some variants alone, by their names, after `set`.
    #[serde(default)]
    pub only: BTreeMap<String, Overrides>,
}

/// How a plot spaces values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// By difference.
    #[default]
    Linear,
    /// By ratio.
    Log,
}

/// A number read off a run, or one that the code computes without a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// What checks call it.
    pub name: String,
    /// What people read.
    pub label: String,
    /// The field of the fabric's report, such as `fct_p99_us` or `single_packet_fct_us.p999`; or one of a trial.
    pub field: Option<String>,
    /// Instead: a quantity, with the plan's keys as its arguments; `rnic reproduce --quantities` lists them.
    pub quantity: Option<String>,
    /// Of a series, such as `slices.hosts.host-1.goodput_gbps`, the mean of the slices in this stretch of time;
    /// without, of all.
    pub between: Option<Span>,
    /// Divided by the mean of the same series in this one.
    pub relative_to: Option<Span>,
    /// A field divided by the sum of these fields.
    #[serde(default)]
    pub per: Vec<String>,
    /// Times this.
    #[serde(default = "one")]
    pub scale: f64,
    /// The unit after all that.
    #[serde(default)]
    pub unit: String,
}

fn one() -> f64 {
    1.0
}

/// A row: what the paper says beside what we find.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The row of the list of targets: `I-R2`.
    pub row: String,
    /// What is compared, in our words.
    pub what: String,
    /// The paper's value, in its words.
    pub paper: String,
    /// What is computed.
    pub value: Value,
    /// Where it must lie.
    pub band: Band,
    /// Why the band is that wide.
    pub why: String,
    /// What is different in the small version.
    pub fast: Option<FastCheck>,
}

/// A check in the small version.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FastCheck {
    /// Another band.
    pub band: Option<Band>,
    /// Why it is another one.
    pub why: Option<String>,
    /// The check is left out, for this reason.
    pub skip: Option<String>,
}

/// From and to, both included; either may be left out.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// The least.
    pub min: Option<f64>,
    /// The most.
    pub max: Option<f64>,
}

impl Band {
    /// Whether `value` lies in it.
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

/// A picture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// What kind.
    pub kind: PlotKind,
    /// A panel for each; for a `cdf`, one of `fct_us`, `slowdown`, `single_packet_fct_us`.
    pub measures: Vec<String>,
    /// `lines`: along this axis. `bars`: groups along it. `cdf`: a panel for each of its values.
    pub axis: Option<String>,
    /// The other axes, held at these values.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// Only these, in this order; without, all.
    pub variants: Option<Vec<String>>,
    /// Shows the ratio to this variant.
    pub relative_to: Option<String>,
    /// The axis of values.
    #[serde(default)]
    pub scale: Scale,
    /// `cdf`: from this share upwards (0.9).
    pub from: Option<f64>,
    /// Under it, where the title does not say all.
    #[serde(default)]
    pub note: String,
}

/// What kind of picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// A bar for each variant.
    Bars,
    /// A line for each variant over an axis.
    Lines,
    /// A line for each variant: share of values at or below.
    Cdf,
    /// A line for each variant over simulated time: measures are series, each as it goes from slice to slice.
    Time,
}

impl Axis {
    /// What the values are called.
    pub fn labels(&self) -> Vec<String> {
        if self.key.is_some() {
            self.values.iter().map(label_of).collect()
        } else {
            self.point.iter().map(|point| point.label.clone()).collect()
        }
    }

    /// The values as points.
    pub fn points(&self) -> Vec<AxisPoint> {
        let Some(key) = &self.key else { return self.point.clone() };
        let of = |value: &toml::Value| {
            let label = label_of(value);
            let x = leading_number(&label);
            AxisPoint { label, x, set: [(key.clone(), value.clone())].into(), only: BTreeMap::new() }
        };
        self.values.iter().map(of).collect()
    }

    /// Whether the small version has the value called `label`.
    pub fn is_fast(&self, label: &str) -> bool {
        self.fast.as_ref().is_none_or(|fast| fast.iter().any(|value| label_of(value) == label))
    }
}

/// `240KB` is 240: the unit is the axis's business.
fn leading_number(text: &str) -> Option<f64> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '_' || c == '-';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    text[..end].replace('_', "").parse().ok()
}
