//! A plot with its title and legend.

use maud::{Markup, PreEscaped, html};

use super::curves::{panels, variants};
use super::plot::{self, COLOURS, DASHES};
use crate::experiment::{Plot, PlotKind, Scale};
use crate::judge::Samples;
use crate::work::Layout;

/// Returns the figure of `plot`.
pub(super) fn figure(layout: &Layout<'_>, samples: &Samples, plot: &Plot) -> Markup {
    let experiment = layout.selected.experiment;
    let panels = panels(layout, samples, plot);
    let axis = plot.axis.as_ref().and_then(|name| experiment.axis.iter().find(|axis| axis.name == *name));
    let x_scale = axis.map_or(Scale::Linear, |axis| axis.scale);
    let width = match panels.len() {
        1 => WIDE,
        2 => HALF,
        _ => THIRD,
    };
    html! {
        figure {
            figcaption {
                strong { (plot.title) }
                @if !plot.note.is_empty() { " " (plot.note) }
            }
            div.legend { @for (slot, variant) in variants(experiment, plot).into_iter().enumerate() {
                span { (key(plot.kind, slot)) (experiment.variant[variant].label) }
            } }
            div.panels { @for panel in &panels {
                div.panel style=(format!("width: {width}px")) {
                    p.panel-title { (panel.title) }
                    @if panel.curves.iter().all(|curve| curve.points.is_empty()) {
                        p.nothing { "No run of this panel has given a number." }
                    } @else {
                        @match plot::draw(panel, plot, x_scale, width) {
                            Ok(svg) => (PreEscaped(svg)),
                            Err(error) => p.nothing { "This could not be drawn: " (error) },
                        }
                    }
                }
            } }
        }
    }
}

/// Returns the legend key of a variant: its colour and mark in the plot.
fn key(kind: PlotKind, slot: usize) -> Markup {
    let (red, green, blue) = COLOURS[slot % COLOURS.len()];
    let colour = format!("#{red:02x}{green:02x}{blue:02x}");
    let dash = match (kind, DASHES[slot % DASHES.len()]) {
        (PlotKind::Cdf, Some((on, off))) => format!("{on} {off}"),
        _ => "none".to_owned(),
    };
    let mark = match slot % 4 {
        0 => "M9 6 a4 4 0 1 0 8 0 a4 4 0 1 0 -8 0",
        1 => "M8 10 L18 10 L13 1 Z",
        2 => "M9 2 H17 V10 H9 Z",
        _ => "M9 2 L17 10 M17 2 L9 10",
    };
    let has_marks = matches!(kind, PlotKind::Lines | PlotKind::Time);
    html! {
        svg.key width="26" height="12" viewBox="0 0 26 12" aria-hidden="true" {
            @if kind == PlotKind::Bars {
                rect x="6" y="0" width="14" height="12" fill=(colour) {}
            } @else {
                line x1="0" y1="6" x2="26" y2="6" stroke=(colour) stroke-width="2.5" stroke-dasharray=(dash) {}
                @if has_marks { path d=(mark) fill=(colour) stroke=(colour) stroke-width="1.5" {} }
            }
        }
    }
}

/// Width in pixels of a panel when one, two or three are in a row.
const WIDE: u32 = 680;
const HALF: u32 = 490;
const THIRD: u32 = 325;
