//! Data of plots: the numbers of an experiment, arranged in panels.

use crate::experiment::{Experiment, Plot, PlotKind};
use crate::judge::series::Series;
use crate::judge::{Samples, Stat, measured};
use crate::run::levels;
use crate::work::{AxisPosition, Layout};

/// A panel of a plot: one picture with its own axes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Panel {
    /// Title above the panel.
    pub(super) title: String,
    /// Title of the horizontal axis.
    pub(super) x_title: String,
    /// Curves, one for each variant or, for traces, measure, in order; empty for those without data.
    pub(super) curves: Vec<Curve>,
    /// Position and name of each group of bars, or of each tick on the horizontal axis.
    pub(super) points: Vec<(f64, String)>,
}

/// A variant's numbers in one panel; for traces, a measure's.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Curve {
    /// Index in the legend, which determines colour and mark.
    pub(super) slot: usize,
    /// Horizontal position, and the statistics of the value there.
    pub(super) points: Vec<(f64, Stat)>,
}

/// Returns the indices in the experiment's list of the variants that `plot` shows.
pub(super) fn variants(experiment: &Experiment, plot: &Plot) -> Vec<usize> {
    let position = |name: &String| experiment.variant.iter().position(|variant| variant.name == *name);
    match &plot.variants {
        Some(names) => names.iter().filter_map(position).collect(),
        None => (0..experiment.variant.len()).collect(),
    }
}

/// Returns whether the lines of `plot` are its measures, with a panel for each variant.
pub(super) fn has_line_for_each_measure(experiment: &Experiment, plot: &Plot) -> bool {
    plot.kind == PlotKind::Traces || plot.kind == PlotKind::Cdf && experiment.trial.is_some()
}

/// Returns the panels of `plot`.
pub(super) fn panels(layout: &Layout<'_>, samples: &Samples, plot: &Plot) -> Vec<Panel> {
    let over: Vec<String> = plot.axis.iter().cloned().collect();
    let positions = layout.positions(&plot.at, &over);
    if has_line_for_each_measure(layout.selected.experiment, plot) {
        let variants = variants(layout.selected.experiment, plot);
        let panels = variants.into_iter().flat_map(|variant| positions.iter().map(move |at| (variant, at)));
        return panels.map(|(variant, position)| of_variant(layout, samples, plot, variant, position)).collect();
    }
    if plot.kind == PlotKind::Cdf {
        let panels = plot.measures.iter().flat_map(|name| positions.iter().map(move |position| (name, position)));
        return panels.map(|(name, position)| distribution(layout, samples, plot, name, position)).collect();
    }
    if plot.kind == PlotKind::Time {
        let panels = plot.measures.iter().flat_map(|name| positions.iter().map(move |position| (name, position)));
        return panels.map(|(name, position)| over_time(layout, samples, plot, name, position)).collect();
    }
    plot.measures.iter().map(|name| panel(layout, samples, plot, name, &positions)).collect()
}

fn panel(layout: &Layout<'_>, samples: &Samples, plot: &Plot, name: &str, positions: &[AxisPosition]) -> Panel {
    let experiment = layout.selected.experiment;
    let axis = plot.axis.as_ref().and_then(|name| experiment.axis.iter().position(|axis| axis.name == *name));
    let points: Vec<(f64, String)> =
        positions.iter().enumerate().map(|(index, position)| point(layout, axis, index, position)).collect();
    let curve = |(slot, variant): (usize, usize)| {
        let at = |(index, position): (usize, &AxisPosition)| {
            let stat = number(layout, samples, plot, name, variant, position)?;
            Some((points[index].0, stat))
        };
        Curve { slot, points: positions.iter().enumerate().filter_map(at).collect() }
    };
    let measure = experiment.measure.iter().find(|measure| measure.name == name);
    let (label, unit) = measure.map_or((name, ""), |measure| (measure.label.as_str(), measure.unit.as_str()));
    let title = match &plot.relative_to {
        Some(base) => {
            let base = experiment.variant.iter().find(|variant| variant.name == *base);
            format!("{label}, by that of {}", base.map_or("", |base| base.label.as_str()))
        }
        None if unit.is_empty() => label.to_owned(),
        None => format!("{label} ({unit})"),
    };
    let x_title = axis.map(|axis| experiment.axis[axis].label.clone()).unwrap_or_default();
    Panel { title, x_title, curves: variants(experiment, plot).into_iter().enumerate().map(curve).collect(), points }
}

fn point(layout: &Layout<'_>, axis: Option<usize>, index: usize, position: &AxisPosition) -> (f64, String) {
    let value = axis.and_then(|axis| position[axis].map(|value| &layout.axes[axis][value]));
    value.map_or((index as f64, String::new()), |value| (value.x.unwrap_or(index as f64), value.label.clone()))
}

fn number(
    layout: &Layout<'_>,
    samples: &Samples,
    plot: &Plot,
    name: &str,
    variant: usize,
    position: &AxisPosition,
) -> Option<Stat> {
    let experiment = layout.selected.experiment;
    let mut values = measured(layout, samples, name, &experiment.variant[variant].name, position).ok()?;
    if let Some(base) = &plot.relative_to {
        let base = measured(layout, samples, name, base, position).ok()?;
        values.iter_mut().zip(base).for_each(|(value, base)| *value /= base);
    }
    Stat::of(&values).filter(|stat| stat.mean.is_finite())
}

/// Returns a panel of series over time, with each slice plotted at its middle.
fn over_time(layout: &Layout<'_>, samples: &Samples, plot: &Plot, name: &str, position: &AxisPosition) -> Panel {
    let experiment = layout.selected.experiment;
    let measure = experiment.measure.iter().find(|measure| measure.name == name);
    let (label, unit, field, scale) = measure.map_or((name, "", "", 1.0), |measure| {
        (measure.label.as_str(), measure.unit.as_str(), measure.field.as_deref().unwrap_or_default(), measure.scale)
    });
    let (mut points, mut curves) = (Vec::new(), Vec::new());
    for (slot, variant) in variants(experiment, plot).into_iter().enumerate() {
        let of = |seed: &u64| {
            let sample = layout.sample(samples, &experiment.variant[variant].name, position, *seed)?;
            Series::of(sample, field).ok()
        };
        let seeds: Vec<Series> = layout.seeds.iter().filter_map(of).collect();
        // After the end of the shortest series there is no mean over all seeds.
        let slices = seeds.iter().map(|series| series.values.len()).min().unwrap_or(0);
        let at = |index: usize| {
            let values: Vec<f64> = seeds.iter().map(|series| series.values[index] * scale).collect();
            Some(((index as f64 + 0.5) * seeds[0].slice_us / 1e3, Stat::of(&values)?))
        };
        let curve = Curve { slot, points: (0..slices).filter_map(at).collect() };
        points.extend(curve.points.iter().map(|(x, _)| *x));
        curves.push(curve);
    }
    let title = if unit.is_empty() { label.to_owned() } else { format!("{label} ({unit})") };
    let points = whole_milliseconds(&points);
    Panel { title, x_title: "time (ms)".to_owned(), curves, points }
}

/// Returns a panel with the series of a variant, those of the first seed: over time, each slice at its middle, or as
/// cumulative distributions over flows.
fn of_variant(layout: &Layout<'_>, samples: &Samples, plot: &Plot, variant: usize, position: &AxisPosition) -> Panel {
    let experiment = layout.selected.experiment;
    let is_cdf = plot.kind == PlotKind::Cdf;
    let variant = &experiment.variant[variant];
    let sample = layout.seeds.first().and_then(|seed| layout.sample(samples, &variant.name, position, *seed));
    let curve = |(slot, name): (usize, &String)| {
        let measure = experiment.measure.iter().find(|measure| measure.name == *name);
        let series = sample
            .zip(measure)
            .and_then(|(sample, measure)| Some((Series::of(sample, measure.field.as_deref()?).ok()?, measure.scale)));
        let points = |(mut series, scale): (Series, f64)| {
            let count = series.values.len() as f64;
            let x = |index: f64| if is_cdf { (index + 1.0) / count } else { (index + 0.5) * series.slice_us / 1e3 };
            if is_cdf {
                series.values.sort_by(f64::total_cmp);
            }
            let at = |(index, value): (usize, &f64)| Some((x(index as f64), Stat::of(&[value * scale])?));
            series.values.iter().enumerate().filter_map(at).collect()
        };
        Curve { slot, points: series.map_or_else(Vec::new, points) }
    };
    let curves: Vec<Curve> = plot.measures.iter().enumerate().map(curve).collect();
    let at = layout.axis_position_name(position);
    let title = if at.is_empty() { variant.label.clone() } else { format!("{}, {at}", variant.label) };
    if is_cdf {
        let unit = experiment.measure.iter().find(|measure| plot.measures.contains(&measure.name));
        let x_title = unit.map_or_else(String::new, |measure| measure.unit.clone());
        return Panel { title, x_title, curves, points: Vec::new() };
    }
    let times: Vec<f64> = curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x)).collect();
    Panel { title, x_title: "time (ms)".to_owned(), curves, points: whole_milliseconds(&times) }
}

/// Returns tick labels for an axis that contains all of `times`.
fn whole_milliseconds(times: &[f64]) -> Vec<(f64, String)> {
    let last = times.iter().copied().fold(0.0, f64::max);
    let step = (last / TIME_LABELS_MAX).ceil().max(1.0) as usize;
    (0..=last.ceil() as usize).step_by(step).map(|at| (at as f64, at.to_string())).collect()
}

/// Returns a cumulative distribution of flows: at each share, the mean over the seeds.
fn distribution(layout: &Layout<'_>, samples: &Samples, plot: &Plot, name: &str, position: &AxisPosition) -> Panel {
    let experiment = layout.selected.experiment;
    let from = plot.from.unwrap_or(0.0);
    let curve = |(slot, variant): (usize, usize)| {
        let of = |seed: &u64| {
            layout.sample(samples, &experiment.variant[variant].name, position, *seed)?.quantiles.get(name)
        };
        let seeds: Vec<&Vec<f64>> = layout.seeds.iter().filter_map(of).collect();
        let at = |(index, level): (usize, f64)| {
            let values: Vec<f64> = seeds.iter().filter_map(|seed| seed.get(index).copied()).collect();
            Stat::of(&values).map(|stat| (level, stat))
        };
        let shown = |(_, level): &(usize, f64)| *level >= from && *level <= CDF_SHARE_MAX;
        Curve { slot, points: levels().into_iter().enumerate().filter(shown).filter_map(at).collect() }
    };
    let (label, unit) = match name {
        "slowdown" => ("slowdown", ""),
        "single_packet_fct_us" => ("completion time of single packets", " (us)"),
        _ => ("flow completion time", " (us)"),
    };
    let at = layout.axis_position_name(position);
    let title = if at.is_empty() { format!("CDF of {label} over flows") } else { at };
    Panel {
        title,
        x_title: format!("{label}{unit}"),
        curves: variants(experiment, plot).into_iter().enumerate().map(curve).collect(),
        points: Vec::new(),
    }
}

/// Maximum number of labels that fit under a time axis.
const TIME_LABELS_MAX: f64 = 30.0;
/// Largest cumulative share that is plotted: above it, the value depends on a single flow.
const CDF_SHARE_MAX: f64 = 0.999_6;
