//! Draws panels as SVG with plotters. Positions on an axis are computed by [`super::ticks`]: plotters receives
//! positions from 0 to 1, and draws ticks only where requested.

use std::error::Error;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::curves::{Curve, Panel};
use super::ticks::{Axis, thin};
use crate::experiment::{Plot, PlotKind, Scale};
use crate::number::short;

/// Colours that colour-blind readers can tell apart, dark enough for thin lines on white.
pub(super) const COLOURS: [(u8, u8, u8); 8] = [
    (0x00, 0x5f, 0xa3),
    (0xd9, 0x5f, 0x02),
    (0x1a, 0x8a, 0x6a),
    (0x8a, 0x3f, 0x9a),
    (0xb0, 0x8a, 0x00),
    (0xc2, 0x2f, 0x5a),
    (0x4d, 0x4d, 0x4d),
    (0x5a, 0xa5, 0xd6),
];
/// Dash patterns of lines without marks: on and off, in pixels; `None` is a solid line.
pub(super) const DASHES: [Option<(u32, u32)>; 4] = [None, Some((7, 4)), Some((2, 3)), Some((12, 4))];

type Cartesian = Cartesian2d<Places, Places>;
type Chart<'c> = ChartContext<'c, SVGBackend<'c>, Cartesian>;
type Drawn = Result<(), Box<dyn Error>>;

/// Draws `panel` as SVG.
///
/// # Errors
/// When plotters fails.
pub(super) fn draw(panel: &Panel, plot: &Plot, x_scale: Scale, width: u32) -> Result<String, String> {
    let mut svg = String::new();
    let drawn = match plot.kind {
        PlotKind::Bars => bars(&mut svg, panel, plot, width),
        PlotKind::Lines | PlotKind::Time => lines(&mut svg, panel, plot, x_scale, width),
        PlotKind::Cdf => distribution(&mut svg, panel, plot, width),
    };
    drawn.map_err(|error| error.to_string())?;
    Ok(svg)
}

fn bars(svg: &mut String, panel: &Panel, plot: &Plot, width: u32) -> Drawn {
    let groups = panel.points.len().max(1) as f64;
    let centre = |group: usize| (group as f64 + 0.5) / groups;
    let spots = panel.points.iter().enumerate().map(|(group, (_, label))| (centre(group), label.clone())).collect();
    let y = value_axis(&panel.curves, plot.scale, true);
    let frame = Frame { x_ticks: spots, y_ticks: y.ticks.clone(), y: &y, x_title: &panel.x_title, has_grid: false };
    let root = SVGBackend::with_string(svg, (width, HEIGHT)).into_drawing_area();
    let mut chart = frame.chart(&root)?;
    let slot = BARS_SHARE / groups / panel.curves.len().max(1) as f64;
    let floor = y.place(if plot.scale == Scale::Log { y.from() } else { 0.0 });
    let has_numbers = slot * f64::from(width - AXIS_WIDTH) >= NUMBER_WIDTH;
    for (index, curve) in panel.curves.iter().enumerate() {
        for (x, stat) in &curve.points {
            let group = panel.points.iter().position(|(place, _)| place == x).unwrap_or(0);
            let left = centre(group) + (index as f64 - panel.curves.len() as f64 / 2.0) * slot;
            let (inner, outer) = (left + slot * 0.08, left + slot * 0.92);
            let top = y.place(stat.mean);
            chart.draw_series([Rectangle::new([(inner, floor), (outer, top)], colour(curve.slot).filled())])?;
            let middle = left + slot / 2.0;
            whisker(&mut chart, middle, y.place(stat.min), y.place(stat.max), &INK)?;
            if has_numbers {
                let style = text(11).color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
                let above = y.place(stat.max).max(top) + 0.02;
                chart.draw_series([Text::new(short(stat.mean), (middle, above), style)])?;
            }
        }
    }
    chart.draw_series([PathElement::new([(0.0, floor), (1.0, floor)], INK)])?;
    root.present()?;
    Ok(())
}

fn lines(svg: &mut String, panel: &Panel, plot: &Plot, x_scale: Scale, width: u32) -> Drawn {
    let x = Axis::of_points(&panel.points, x_scale, f64::from(width - AXIS_WIDTH) * INNER);
    let y = value_axis(&panel.curves, plot.scale, plot.relative_to.is_none());
    // Leaves space for the outermost marks.
    let inset = |place: f64| (1.0 - INNER) / 2.0 + place * INNER;
    let x_ticks = x.ticks.iter().map(|(value, label)| (inset(x.place(*value)), label.clone())).collect();
    let frame = Frame { x_ticks, y_ticks: y.ticks.clone(), y: &y, x_title: &panel.x_title, has_grid: true };
    let root = SVGBackend::with_string(svg, (width, HEIGHT)).into_drawing_area();
    let mut chart = frame.chart(&root)?;
    if plot.relative_to.is_some() {
        let one = y.place(1.0);
        chart.draw_series([PathElement::new([(0.0, one), (1.0, one)], INK)])?;
    }
    for curve in &panel.curves {
        let style = colour(curve.slot).stroke_width(2);
        let places: Vec<(f64, f64)> =
            curve.points.iter().map(|(value, stat)| (inset(x.place(*value)), y.place(stat.mean))).collect();
        chart.draw_series(LineSeries::new(places.iter().copied(), style))?;
        for ((place, _), (_, stat)) in places.iter().zip(&curve.points) {
            whisker(&mut chart, *place, y.place(stat.min), y.place(stat.max), &colour(curve.slot))?;
        }
        marks(&mut chart, curve.slot, &places)?;
    }
    root.present()?;
    Ok(())
}

fn distribution(svg: &mut String, panel: &Panel, plot: &Plot, width: u32) -> Drawn {
    let means = panel.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, stat)| stat.mean));
    let x = Axis::of_values(means, plot.scale, false);
    let levels = panel.curves.iter().flat_map(|curve| curve.points.iter().map(|(level, _)| level * 100.0));
    let y = Axis::of_values(levels.chain([100.0]), Scale::Linear, false);
    let mut x_ticks: Vec<(f64, String)> =
        x.ticks.iter().map(|(value, label)| (x.place(*value), label.clone())).collect();
    thin(x_ticks.iter_mut().map(|(place, label)| (label, *place)), f64::from(width - AXIS_WIDTH));
    let y_ticks = y.ticks.iter().map(|(value, label)| (*value, format!("{label}%"))).collect();
    let frame = Frame { x_ticks, y_ticks, y: &y, x_title: &panel.x_title, has_grid: true };
    let root = SVGBackend::with_string(svg, (width, HEIGHT)).into_drawing_area();
    let mut chart = frame.chart(&root)?;
    for curve in &panel.curves {
        let style = colour(curve.slot).stroke_width(2);
        let places = curve.points.iter().map(|(level, stat)| (x.place(stat.mean), y.place(level * 100.0)));
        match DASHES[curve.slot % DASHES.len()] {
            None => chart.draw_series(LineSeries::new(places, style))?,
            Some((on, off)) => chart.draw_series(DashedLineSeries::new(places, on, off, style))?,
        };
    }
    root.present()?;
    Ok(())
}

/// Elements common to all panels.
struct Frame<'f> {
    /// Positions and labels of the horizontal ticks.
    x_ticks: Vec<(f64, String)>,
    /// Values and labels of the vertical ticks.
    y_ticks: Vec<(f64, String)>,
    y: &'f Axis,
    x_title: &'f str,
    has_grid: bool,
}

impl Frame<'_> {
    fn chart<'c>(
        &self,
        root: &DrawingArea<SVGBackend<'c>, plotters::coord::Shift>,
    ) -> Result<Chart<'c>, Box<dyn Error>> {
        let y_ticks: Vec<(f64, String)> =
            self.y_ticks.iter().map(|(value, label)| (self.y.place(*value), label.clone())).collect();
        let has_x_title = !self.x_title.is_empty();
        let mut chart = ChartBuilder::on(root)
            .margin_top(14)
            .margin_right(18)
            .margin_bottom(4)
            .x_label_area_size(if has_x_title { 42 } else { 24 })
            .y_label_area_size(AXIS_WIDTH - 10)
            .build_cartesian_2d(
                Places { to: 1.0, ticks: self.x_ticks.clone() },
                Places { to: ROOM_ABOVE, ticks: y_ticks },
            )?;
        let mut mesh = chart.configure_mesh();
        if !self.has_grid {
            mesh.disable_x_mesh();
        }
        mesh.x_labels(TICKS_MAX)
            .y_labels(TICKS_MAX)
            .label_style(text(12).color(&SOFT))
            .axis_style(LINE)
            .bold_line_style(LINE)
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(4);
        if has_x_title {
            mesh.x_desc(self.x_title).axis_desc_style(text(13).color(&INK));
        }
        mesh.draw()?;
        Ok(chart)
    }
}

/// An axis from 0 upwards, with ticks at given positions.
struct Places {
    to: f64,
    ticks: Vec<(f64, String)>,
}

impl Ranged for Places {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * value / self.to).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..self.to
    }
}

impl ValueFormatter<f64> for Places {
    fn format_ext(&self, value: &f64) -> String {
        let near = self.ticks.iter().find(|(place, _)| (place - value).abs() < 1e-9);
        near.map_or_else(String::new, |(_, label)| label.clone())
    }
}

/// Draws a whisker from the least to the largest value over the seeds.
fn whisker(chart: &mut Chart<'_>, x: f64, from: f64, to: f64, colour: &RGBColor) -> Drawn {
    let cap = 0.008;
    for line in [[(x, from), (x, to)], [(x - cap, from), (x + cap, from)], [(x - cap, to), (x + cap, to)]] {
        chart.draw_series([PathElement::new(line, *colour)])?;
    }
    Ok(())
}

/// Draws a different mark for each variant, so that lines can be told apart without colour.
fn marks(chart: &mut Chart<'_>, slot: usize, places: &[(f64, f64)]) -> Drawn {
    let style = colour(slot).filled();
    for place in places.iter().copied() {
        match slot % 4 {
            0 => chart.draw_series([Circle::new(place, 4, style)])?,
            1 => chart.draw_series([TriangleMarker::new(place, 6, style)])?,
            2 => {
                let square = Rectangle::new([(-4, -4), (4, 4)], style);
                chart.draw_series([EmptyElement::at(place) + square])?
            }
            _ => chart.draw_series([Cross::new(place, 4, colour(slot).stroke_width(2))])?,
        };
    }
    Ok(())
}

fn value_axis(curves: &[Curve], scale: Scale, from_zero: bool) -> Axis {
    let stats = curves.iter().flat_map(|curve| curve.points.iter().map(|(_, stat)| stat));
    Axis::of_values(stats.flat_map(|stat| [stat.min, stat.mean, stat.max]), scale, from_zero)
}

/// Returns the colour of an index in the legend.
pub(super) fn colour(slot: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[slot % COLOURS.len()];
    RGBColor(red, green, blue)
}

fn text(size: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size))
}

const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const SOFT: RGBColor = RGBColor(0x50, 0x57, 0x60);
const LINE: RGBColor = RGBColor(0xdc, 0xe0, 0xe5);
const HEIGHT: u32 = 270;
/// Width left of the plot for labels and margin, in pixels.
const AXIS_WIDTH: u32 = 58;
/// Share of a group's width that its bars take.
const BARS_SHARE: f64 = 0.78;
/// Width that a number above a bar needs, in pixels.
const NUMBER_WIDTH: f64 = 27.0;
/// Share of the width between the first and the last position of lines.
const INNER: f64 = 0.92;
/// Upper end of the vertical range, which leaves space for numbers above the highest bar.
const ROOM_ABOVE: f64 = 1.06;
const TICKS_MAX: usize = 100;
