//! The value that a check computes: a measure, a ratio, a percentage, a change, an order, a point or a trend along an
//! axis, a time, a deviation or a slope in a series, a distance between distributions, or a quantity.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Band;
use super::span::{Length, Span};

/// Fixed values of axes: axis name to label.
pub type AxisValues = BTreeMap<String, String>;

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
    /// The factor by which a measure of variant `of` changes from the point `to_at` of the axes to the point `at`,
    /// divided by that factor for variant `to`: above 1, the measure of `of` falls by less or rises by more.
    Change(Pair),
    /// For variants that should be in ascending order of a measure: the smallest ratio of one variant's measure to that
    /// of the preceding variant; at least 1 if they are in order.
    Order {
        /// Name of the measure.
        measure: String,
        /// Variants, in the expected order: the one with the smallest value first.
        variants: Vec<String>,
        /// Fixed values of axes.
        #[serde(default)]
        at: AxisValues,
        /// Axes of which all values are evaluated; the smallest result counts.
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
        at: AxisValues,
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
        at: AxisValues,
    },
    /// The trend of a measure, or of its ratio to another variant's, along an axis, as Kendall's tau: 1 if it always
    /// rises, -1 if it always falls.
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
        at: AxisValues,
    },
    /// The coefficient of determination, R^2, of the line through zero that fits a measure along an axis best (least
    /// squares): 1 when the measure is proportional to the axis.
    Fit {
        /// Name of the measure.
        measure: String,
        /// Name of the variant.
        of: String,
        /// Axis along which the line is fitted.
        axis: String,
        /// Fixed values of the other axes.
        #[serde(default)]
        at: AxisValues,
    },
    /// The largest deviation of a measure from `factor` times the position on an axis, in percent.
    Proportion {
        /// Name of the measure.
        measure: String,
        /// Name of the variant.
        of: String,
        /// Axis whose positions are multiplied.
        axis: String,
        /// Value of the measure per unit of the axis.
        factor: f64,
        /// Fixed values of the other axes.
        #[serde(default)]
        at: AxisValues,
    },
    /// The smallest ratio of a measure at a point of an axis to that at the preceding point: at least 1 if the measure
    /// never falls.
    Rise {
        /// Name of the measure.
        measure: String,
        /// Name of the variant.
        of: String,
        /// Axis along which the ratios are computed.
        axis: String,
        /// Fixed values of the other axes.
        #[serde(default)]
        at: AxisValues,
    },
    /// The time in microseconds after the start of `between` from which all `limits` hold, in every slice until the end
    /// of `between` or for `lasting`; that of the start of a slice, and infinite if there is none.
    Settling {
        /// Limits that must all hold.
        limits: Vec<SeriesLimit>,
        /// Name of the variant.
        of: String,
        /// Interval in which the time is searched; its start is the event from which the time counts.
        between: Span,
        /// Time for which the limits must hold; when absent, to the end of `between`.
        lasting: Option<Length>,
        /// Fixed values of axes.
        #[serde(default)]
        at: AxisValues,
    },
    /// The largest deviation of a series from `target` in the slices within `between`, in percent of the target.
    Deviation {
        /// Name of the measure, which is a series.
        measure: String,
        /// Name of the variant.
        of: String,
        /// Value from which the deviation is computed, in the unit of the measure.
        target: f64,
        /// Interval of time.
        between: Span,
        /// Fixed values of axes.
        #[serde(default)]
        at: AxisValues,
    },
    /// The slope of the line that fits a series best (least squares) in the slices within `between`, in the measure's
    /// unit per microsecond.
    Slope {
        /// Name of the measure, which is a series.
        measure: String,
        /// Name of the variant.
        of: String,
        /// Interval of time.
        between: Span,
        /// Fixed values of axes.
        #[serde(default)]
        at: AxisValues,
    },
    /// The largest vertical distance between the distribution of a sample and a reference, which another program gave
    /// (Kolmogorov and Smirnov's, at the points of the reference): 0 when they are equal, 1 when they do not overlap.
    Distance {
        /// Distribution of the runs: `fct_us`, `slowdown` or `single_packet_fct_us`.
        sample: String,
        /// Name of the variant.
        of: String,
        /// Quantiles of the reference: shares, strictly ascending, each with the least value that it does not exceed.
        reference: Vec<(f64, f64)>,
        /// Share by which a value may differ from the reference's without counting: 0.01 is a hundredth.
        #[serde(default)]
        slack: f64,
        /// Fixed values of axes.
        #[serde(default)]
        at: AxisValues,
    },
    /// A number that the code computes, without running an experiment.
    Quantity {
        /// Name of the quantity; `rnic reproduce --quantities` lists them.
        name: String,
        /// Arguments of the quantity.
        #[serde(default)]
        with: BTreeMap<String, toml::Value>,
    },
}

/// Runs that a value reads: those of a variant, where axes have fixed values or any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place<'v> {
    /// Name of the variant.
    pub variant: &'v str,
    /// Fixed values of axes.
    pub at: AxisValues,
    /// Axes with any value.
    pub over: Vec<String>,
}

impl Value {
    /// Returns the runs that the value reads; none for a quantity.
    pub fn places(&self) -> Vec<Place<'_>> {
        let place = |variant, at: &AxisValues, over: &[String]| Place { variant, at: at.clone(), over: over.to_vec() };
        let along = |variant, at: &AxisValues, axis: &String| place(variant, at, std::slice::from_ref(axis));
        match self {
            Self::Measure(single) => vec![place(&single.of, &single.at, &single.over)],
            Self::Ratio(pair) | Self::Percent(pair) => {
                vec![place(&pair.of, &pair.at, &pair.over), pair.reference(&pair.to)]
            }
            Self::Change(pair) => {
                let both = [&pair.of, &pair.to];
                both.iter().flat_map(|of| [place(of, &pair.at, &pair.over), pair.reference(of)]).collect()
            }
            Self::Order { variants, at, over, .. } => variants.iter().map(|of| place(of, at, over)).collect(),
            Self::Crossing { of, to, axis, at, .. } => vec![along(of, at, axis), along(to, at, axis)],
            Self::Trend { of, to, axis, at, .. } => {
                [Some(of), to.as_ref()].into_iter().flatten().map(|of| along(of, at, axis)).collect()
            }
            Self::Knee { of, axis, at, .. }
            | Self::Fit { of, axis, at, .. }
            | Self::Proportion { of, axis, at, .. }
            | Self::Rise { of, axis, at, .. } => vec![along(of, at, axis)],
            Self::Settling { of, at, .. }
            | Self::Deviation { of, at, .. }
            | Self::Slope { of, at, .. }
            | Self::Distance { of, at, .. } => vec![place(of, at, &[])],
            Self::Quantity { .. } => Vec::new(),
        }
    }
}

impl Pair {
    /// Returns the runs of `variant` at the values of the denominator.
    fn reference<'v>(&self, variant: &'v str) -> Place<'v> {
        let mut at = self.at.clone();
        at.extend(self.to_at.clone());
        let over = self.over.iter().filter(|axis| !self.to_at.contains_key(*axis)).cloned().collect();
        Place { variant, at, over }
    }
}

/// Limits of a series: in slices in which they hold, the value must lie in this interval.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesLimit {
    /// Name of the measure, which is a series.
    pub measure: String,
    /// Lower bound.
    pub min: Option<f64>,
    /// Upper bound.
    pub max: Option<f64>,
}

impl SeriesLimit {
    /// Returns the interval in which the value must lie.
    pub(crate) fn band(&self) -> Band {
        Band { min: self.min, max: self.max }
    }
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
    pub at: AxisValues,
    /// Axes of which all values are evaluated.
    #[serde(default)]
    pub over: Vec<String>,
    /// Selection from several values.
    pub take: Option<Selection>,
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
    pub at: AxisValues,
    /// Values of axes for the denominator variant, where they differ from the numerator's; for a change, the reference
    /// point.
    #[serde(default)]
    pub to_at: AxisValues,
    /// Axes of which all values are evaluated.
    #[serde(default)]
    pub over: Vec<String>,
    /// Selection from several values.
    pub take: Option<Selection>,
}

/// Selection from several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The mean of all values.
    Mean,
    /// The largest value divided by the smallest: 1 if all are equal.
    Spread,
}
