//! What a check computes: one of a few shapes.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Values of the other axes: axis to label.
pub type At = BTreeMap<String, String>;

/// What a check computes.
///
/// Everything is computed seed by seed, with both variants of a ratio under the same seed; the verdict is on the mean.
/// Where a shape has several `measures` or goes `over` axes, `take` says which of the values stands: that whose mean
/// over the seeds is the least or the largest.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Value {
    /// A measure of a variant.
    Measure(Single),
    /// The measure of one variant by that of another.
    Ratio(Pair),
    /// By how many percent the measure of one variant is above that of another.
    Percent(Pair),
    /// How a measure changes from one place to another, `to_at` to `at`, by how that of another variant does: above 1
    /// it falls by less, or rises by more.
    Change(Pair),
    /// Variants in ascending order of a measure: the least ratio of one to the one before. In order: 1 and above.
    Order {
        /// Of this.
        measure: String,
        /// The one with the least first.
        variants: Vec<String>,
        /// Where on the axes.
        #[serde(default)]
        at: At,
        /// Over all values of these axes: the least of all.
        #[serde(default)]
        over: Vec<String>,
    },
    /// Where on an axis a measure has fallen by a share of its first value; interpolated; infinite if it never does.
    Knee {
        /// Of this.
        measure: String,
        /// Of which variant.
        of: String,
        /// Along this axis.
        axis: String,
        /// The share: 0.1 is a tenth.
        drop: f64,
        /// Where on the other axes.
        #[serde(default)]
        at: At,
    },
    /// Where on an axis a measure of one variant falls below that of another; interpolated; infinite if it never does.
    Crossing {
        /// Of this.
        measure: String,
        /// The variant that falls below.
        of: String,
        /// The variant below which it falls.
        to: String,
        /// Along this axis.
        axis: String,
        /// Where on the other axes.
        #[serde(default)]
        at: At,
    },
    /// How a measure, or its ratio to another variant's, goes along an axis: 1 always up, -1 always down (Kendall's
    /// tau).
    Trend {
        /// Of this.
        measure: String,
        /// Of which variant.
        of: String,
        /// By which.
        to: Option<String>,
        /// Along this axis.
        axis: String,
        /// Where on the other axes.
        #[serde(default)]
        at: At,
    },
    /// A number that the code computes, without a run.
    Quantity {
        /// Its name; `rnic reproduce --quantities` lists them.
        name: String,
        /// Its arguments.
        #[serde(default)]
        with: BTreeMap<String, toml::Value>,
    },
}

/// Measures of one variant.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Single {
    /// Which measures.
    pub measures: Vec<String>,
    /// Of which variant.
    pub of: String,
    /// Where on the axes.
    #[serde(default)]
    pub at: At,
    /// Over all values of these axes.
    #[serde(default)]
    pub over: Vec<String>,
    /// Which of several values.
    pub take: Option<Take>,
}

/// Measures of two variants.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Which measures.
    pub measures: Vec<String>,
    /// Above the line.
    pub of: String,
    /// Below the line.
    pub to: String,
    /// Where on the axes.
    #[serde(default)]
    pub at: At,
    /// Where the lower variant is, on the axes on which it is elsewhere.
    #[serde(default)]
    pub to_at: At,
    /// Over all values of these axes.
    #[serde(default)]
    pub over: Vec<String>,
    /// Which of several values.
    pub take: Option<Take>,
}

/// Which of several values stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// The least.
    Min,
    /// The largest.
    Max,
    /// The mean of all.
    Mean,
    /// The largest by the least: 1 when nothing changes.
    Spread,
}
