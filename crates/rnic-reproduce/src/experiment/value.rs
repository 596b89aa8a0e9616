//! The value that a check computes, in one of a few shapes.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Fixed values of axes: axis name to label.
pub type At = BTreeMap<String, String>;

/// The value that a check computes.
///
/// Every value is computed for each seed, with both variants of a ratio under the same seed; the verdict is on the
/// mean. When a shape has several `measures` or iterates `over` axes, `take` selects one of the values: the one whose
/// mean over the seeds is the least or the largest.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Value {
    /// A measure of a variant.
    Measure(Single),
    /// The measure of one variant divided by that of another.
    Ratio(Pair),
    /// Percentage by which the measure of one variant exceeds that of another.
    Percent(Pair),
    /// The change of a measure from one point of the axes to another, `to_at` to `at`, divided by the change for
    /// another variant: above 1 it falls by less, or rises by more.
    Change(Pair),
    /// Variants in ascending order of a measure: the least ratio of one to the one before. In order: 1 and above.
    Order {
        /// Name of the measure.
        measure: String,
        /// Variants, in the expected order: the one with the least value first.
        variants: Vec<String>,
        /// Fixed values of axes.
        #[serde(default)]
        at: At,
        /// Axes of which all values are evaluated; the least result applies.
        #[serde(default)]
        over: Vec<String>,
    },
    /// The point of an axis at which a measure has fallen by a fraction of its first value; interpolated; infinite if
    /// it never does.
    Knee {
        /// Name of the measure.
        measure: String,
        /// Name of the variant.
        of: String,
        /// Axis along which the point is searched.
        axis: String,
        /// Fraction of the first value: 0.1 is a tenth.
        drop: f64,
        /// Fixed values of the other axes.
        #[serde(default)]
        at: At,
    },
    /// The point of an axis at which a measure of one variant falls below that of another; interpolated; infinite if it
    /// never does.
    Crossing {
        /// Name of the measure.
        measure: String,
        /// Variant whose measure falls below that of `to`.
        of: String,
        /// Variant with which `of` is compared.
        to: String,
        /// Axis along which the point is searched.
        axis: String,
        /// Fixed values of the other axes.
        #[serde(default)]
        at: At,
    },
    /// The trend of a measure, or of its ratio to another variant's, along an axis: 1 always up, -1 always down
    /// (Kendall's tau).
    Trend {
        /// Name of the measure.
        measure: String,
        /// Name of the variant.
        of: String,
        /// Variant by whose measure it is divided, if any.
        to: Option<String>,
        /// Axis along which the trend is computed.
        axis: String,
        /// Fixed values of the other axes.
        #[serde(default)]
        at: At,
    },
    /// A number that the code computes, without a run.
    Quantity {
        /// Name of the quantity; `rnic reproduce --quantities` lists them.
        name: String,
        /// Arguments of the quantity.
        #[serde(default)]
        with: BTreeMap<String, toml::Value>,
    },
}

/// Measures of one variant.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Single {
    /// Names of the measures.
    pub measures: Vec<String>,
    /// Name of the variant.
    pub of: String,
    /// Fixed values of axes.
    #[serde(default)]
    pub at: At,
    /// Axes of which all values are evaluated.
    #[serde(default)]
    pub over: Vec<String>,
    /// Selection from several values.
    pub take: Option<Take>,
}

/// Measures of two variants.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Names of the measures.
    pub measures: Vec<String>,
    /// Variant in the numerator.
    pub of: String,
    /// Variant in the denominator.
    pub to: String,
    /// Fixed values of axes.
    #[serde(default)]
    pub at: At,
    /// Values of axes for the denominator variant, where they differ from the numerator's.
    #[serde(default)]
    pub to_at: At,
    /// Axes of which all values are evaluated.
    #[serde(default)]
    pub over: Vec<String>,
    /// Selection from several values.
    pub take: Option<Take>,
}

/// Selection from several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// The least value.
    Min,
    /// The largest value.
    Max,
    /// The mean of all values.
    Mean,
    /// The largest divided by the least: 1 when nothing changes.
    Spread,
}
