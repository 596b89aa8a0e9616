//! A plot with its title and legend.

use maud::{Markup, html};
use rnic_page::{Axis, Bar, BarChart, BarGroup, Colour, Figure, LineChart, Series, Spacing, Stroke, Width};
use rnic_page::{legend, number::short};

use super::curves::{Curve, Panel, has_line_for_each_measure, panels, variants};
use crate::experiment::{Experiment, Plot, PlotKind, Scale};
use crate::judge::{Samples, Stat};
use crate::work::Layout;

/// Returns the figure of `plot`.
pub(super) fn figure(layout: &Layout<'_>, samples: &Samples, plot: &Plot) -> Figure {
    let experiment = layout.selected.experiment;
    let panels = panels(layout, samples, plot);
    let width = match panels.len() {
        1 => ONE_PANEL_WIDTH,
        2 => TWO_PANELS_WIDTH,
        _ => THREE_PANELS_WIDTH,
    };
    let labels: Vec<&str> = match plot.kind {
        _ if has_line_for_each_measure(experiment, plot) => {
            let label = |name: &String| experiment.measure.iter().find(|measure| measure.name == *name);
            plot.measures.iter().filter_map(label).map(|measure| measure.label.as_str()).collect()
        }
        _ => variants(experiment, plot).into_iter().map(|index| experiment.variant[index].label.as_str()).collect(),
    };
    let entries =
        labels.into_iter().enumerate().map(|(slot, label)| (Colour::of_entry(slot), stroke(plot.kind), label));
    // Bars have their names above them.
    let legend = (plot.kind != PlotKind::Bars).then(|| legend(entries));
    let draw = |panel: &Panel| {
        if panel.curves.iter().all(|curve| curve.points.is_empty()) {
            return html! {
                div.picture style={ "flex-basis: " (width) "px" } {
                    p.picture-title { (panel.title) }
                    p.nothing { "No run of this panel has a result." }
                }
            };
        }
        match plot.kind {
            PlotKind::Bars => bars(panel, experiment, plot, width),
            PlotKind::Lines | PlotKind::Time | PlotKind::Traces => lines(panel, experiment, plot, width),
            PlotKind::Cdf => distribution(panel, plot, width),
        }
    };
    let (title, caption) = (plot.title.clone(), plot.note.clone());
    let pictures = legend.into_iter().chain(panels.iter().map(draw)).collect();
    Figure { title, caption, width: Width::Full, pictures }
}

fn bars(panel: &Panel, experiment: &Experiment, plot: &Plot, width: f64) -> Markup {
    let axis = value_axis(&panel.curves, plot, Spacing::FromZero);
    let names: Vec<&str> =
        variants(experiment, plot).into_iter().map(|variant| experiment.variant[variant].label.as_str()).collect();
    let bar = |curve: &Curve, stat: &Stat| Bar {
        label: names[curve.slot].to_owned(),
        value: stat.mean,
        range: (stat.count > 1).then_some((stat.min, stat.max)),
        text: short(stat.mean),
        colour: Colour::of_entry(curve.slot),
        is_hatched: false,
    };
    let group = |(x, label): &(f64, String)| {
        let of = |curve: &Curve| {
            let stat = curve.points.iter().find(|(place, _)| place == x).map(|(_, stat)| stat)?;
            Some(bar(curve, stat))
        };
        // A value of the axis, such as a number of queue pairs, has no meaning without the name of the axis.
        let label = if label.is_empty() { String::new() } else { format!("{}: {label}", panel.x_title) };
        BarGroup { label, axis: axis.clone(), bars: panel.curves.iter().filter_map(of).collect() }
    };
    BarChart {
        description: panel.title.clone(),
        title: panel.title.clone(),
        groups: panel.points.iter().map(group).collect(),
        width,
    }
    .draw()
}

fn lines(panel: &Panel, experiment: &Experiment, plot: &Plot, width: f64) -> Markup {
    let axis = plot.axis.as_ref().and_then(|name| experiment.axis.iter().find(|axis| axis.name == *name));
    let x = spacing(axis.map_or(Scale::Linear, |axis| axis.scale), Spacing::Linear);
    let is_ratio = plot.relative_to.is_some();
    let has_range = |_: &&(f64, Stat)| plot.kind != PlotKind::Traces;
    let series = |curve: &Curve| Series {
        points: curve.points.iter().map(|(x, stat)| (*x, stat.mean)).collect(),
        ranges: curve.points.iter().filter(has_range).map(|(x, stat)| (*x, stat.min, stat.max)).collect(),
        ..unnamed(curve.slot, plot.kind)
    };
    LineChart {
        description: panel.title.clone(),
        title: panel.title.clone(),
        x: Axis::of_points(panel.x_title.clone(), &panel.points, x),
        y: value_axis(&panel.curves, plot, if is_ratio { Spacing::Linear } else { Spacing::FromZero }),
        reference: is_ratio.then_some(1.0),
        series: panel.curves.iter().map(series).collect(),
        width,
    }
    .draw()
}

fn distribution(panel: &Panel, plot: &Plot, width: f64) -> Markup {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let levels = points().map(|(level, _)| level * 100.0).chain([100.0]);
    let series = |curve: &Curve| Series {
        points: curve.points.iter().map(|(level, stat)| (stat.mean, level * 100.0)).collect(),
        ..unnamed(curve.slot, plot.kind)
    };
    let x = spacing(plot.scale, Spacing::Linear);
    LineChart {
        description: panel.title.clone(),
        title: panel.title.clone(),
        x: Axis::of_values(panel.x_title.clone(), points().map(|(_, stat)| stat.mean), x),
        y: Axis::of_values("", levels, Spacing::Linear).with_suffix("%"),
        reference: None,
        series: panel.curves.iter().map(series).collect(),
        width,
    }
    .draw()
}

/// Returns a line without points; its name is in the legend of the figure.
fn unnamed(slot: usize, kind: PlotKind) -> Series {
    Series { stroke: stroke(kind), ..Series::new("", Colour::of_entry(slot), Vec::new()) }
}

fn value_axis(curves: &[Curve], plot: &Plot, linear: Spacing) -> Axis {
    let stats = curves.iter().flat_map(|curve| curve.points.iter().map(|(_, stat)| stat));
    Axis::of_values("", stats.flat_map(|stat| [stat.min, stat.mean, stat.max]), spacing(plot.scale, linear))
}

fn spacing(scale: Scale, linear: Spacing) -> Spacing {
    if scale == Scale::Log { Spacing::Log } else { linear }
}

fn stroke(kind: PlotKind) -> Stroke {
    // Traces have too many points for marks.
    if matches!(kind, PlotKind::Cdf | PlotKind::Traces) { Stroke::Dashed } else { Stroke::Marked }
}

/// Width of a panel in pixels when a row has one, two or three panels.
const ONE_PANEL_WIDTH: f64 = 680.0;
const TWO_PANELS_WIDTH: f64 = 460.0;
const THREE_PANELS_WIDTH: f64 = 308.0;
