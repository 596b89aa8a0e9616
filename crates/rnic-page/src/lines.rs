//! Line charts over time or over another quantity.

use maud::{Markup, html};

use crate::style::{legend, line, picture, text};
use crate::{Axis, Colour, Stroke};

/// A chart of lines.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// Description for screen readers.
    pub description: String,
    /// Title above the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Value at which a horizontal line is drawn, for comparison.
    pub reference: Option<f64>,
    /// Lines; later ones are drawn over earlier ones.
    pub series: Vec<Series>,
    /// Width in pixels.
    pub width: f64,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend above the chart; the legend has no entry for an empty name.
    pub label: String,
    /// Colour of the line.
    pub colour: Colour,
    /// Style of the line.
    pub stroke: Stroke,
    /// Points (x, y), ordered by x.
    pub points: Vec<(f64, f64)>,
    /// Vertical lines (x, smallest y, largest y), such as from the smallest to the largest of several values.
    pub ranges: Vec<(f64, f64, f64)>,
}

const HEIGHT: f64 = 280.0;
const LEFT_MARGIN: f64 = 56.0;
/// Right margin, in pixels: half of the text of the last tick has to fit.
const RIGHT_MARGIN: f64 = 34.0;
const TOP_MARGIN: f64 = 30.0;
const BOTTOM_MARGIN: f64 = 50.0;
/// Maximum number of points drawn per line: more could not be told apart.
const POINTS_MAX: usize = 700;

impl Series {
    /// Returns a solid line.
    pub fn new(label: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self { label: label.into(), colour, stroke: Stroke::Solid, points, ranges: Vec::new() }
    }
}

impl LineChart {
    /// Draws the chart, with its title and its legend.
    pub fn draw(&self) -> Markup {
        let named = self.series.iter().filter(|series| !series.label.is_empty());
        let entries: Vec<_> = named.map(|series| (series.colour, series.stroke, series.label.as_str())).collect();
        let content = html! {
            (self.grid())
            @if let Some(y) = self.reference.map(|value| self.at_y(value)) {
                (line("reference", (LEFT_MARGIN, y), (self.width - RIGHT_MARGIN, y)))
            }
            @for series in &self.series { (self.path(series)) }
        };
        html! {
            div.picture style={ "flex-basis: " (self.width) "px" } {
                p.picture-title { (self.title) }
                @if !entries.is_empty() { (legend(entries)) }
                (picture(&self.description, (self.width, HEIGHT), &content))
            }
        }
    }

    fn at_x(&self, value: f64) -> f64 {
        LEFT_MARGIN + self.x.position(value) * (self.width - LEFT_MARGIN - RIGHT_MARGIN)
    }

    fn at_y(&self, value: f64) -> f64 {
        y_of(self.y.position(value))
    }

    fn grid(&self) -> Markup {
        let (right, axis_y) = (self.width - RIGHT_MARGIN, HEIGHT - BOTTOM_MARGIN);
        let length = right - LEFT_MARGIN;
        html! {
            @for (y, content) in self.y.ticks().map(|(position, content)| (y_of(position), content)) {
                (line("grid", (LEFT_MARGIN, y), (right, y)))
                (text("tick", (LEFT_MARGIN - 8.0, y + 4.0), "end", content))
            }
            @for (position, content) in self.x.ticks_along(length) {
                @let x = LEFT_MARGIN + position * length;
                (line("axis", (x, axis_y), (x, axis_y + 5.0)))
                @if !content.is_empty() { (text("tick", (x, axis_y + 20.0), "middle", content)) }
            }
            (line("axis", (LEFT_MARGIN, axis_y), (right, axis_y)))
            (text("tick", (right, axis_y + 42.0), "end", &self.x.label))
            (text("tick", (0.0, TOP_MARGIN - 16.0), "start", &self.y.label))
        }
    }

    fn path(&self, series: &Series) -> Markup {
        let positions: Vec<_> = thinned(&series.points).map(|(x, y)| (self.at_x(x), self.at_y(y))).collect();
        html! {
            g class=(series.colour.class()) {
                (series.stroke.draw(series.colour, &positions))
                @for (x, least, most) in &series.ranges {
                    @let (x, least, most) = (self.at_x(*x), self.at_y(*least), self.at_y(*most));
                    (line("range", (x, least), (x, most)))
                    @for y in [least, most] { (line("range", (x - 3.0, y), (x + 3.0, y))) }
                }
            }
        }
    }
}

fn y_of(position: f64) -> f64 {
    HEIGHT - BOTTOM_MARGIN - position * (HEIGHT - TOP_MARGIN - BOTTOM_MARGIN)
}

/// Returns at most [`POINTS_MAX`] of the points: evenly spread ones, and always the last.
fn thinned(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.last().filter(|_| !points.len().wrapping_sub(1).is_multiple_of(stride));
    points.iter().step_by(stride).chain(last).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spacing;

    fn chart(label: &str, points: &[(f64, f64)]) -> LineChart {
        let axis = |label: &str, to| Axis::of_values(label, [to], Spacing::FromZero);
        let ranges = vec![(10.0, 50.0, 100.0)];
        let series = Series { ranges, ..Series::new(label, Colour::WARM, points.to_vec()) };
        let (description, title, reference) = ("d".into(), "t".into(), Some(50.0));
        let (x, y) = (axis("ms", 10.0), axis("MB", 100.0));
        LineChart { description, title, x, y, reference, series: vec![series], width: 490.0 }
    }

    #[test]
    fn a_line_passes_through_its_values() {
        let drawn = chart("a<b", &[(0.0, 0.0), (10.0, 100.0)]).draw().into_string();
        assert!(drawn.contains("d=\"M56 230L456 30\""), "{drawn}");
        assert!(drawn.contains("class=\"range\" x1=\"456\" y1=\"130\" x2=\"456\" y2=\"30\""), "{drawn}");
        assert!(drawn.contains("class=\"reference\" x1=\"56\" y1=\"130\""), "{drawn}");
        assert!(drawn.contains("a&lt;b") && drawn.contains("aria-label=\"d\""), "names are not escaped");
    }

    #[test]
    fn lines_without_a_name_have_no_legend() {
        assert!(!chart("", &[(0.0, 0.0)]).draw().into_string().contains("legend"));
        assert!(chart("a", &[]).draw().into_string().contains("legend"));
    }

    #[test]
    fn long_lines_are_thinned_and_keep_their_ends() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|index| (f64::from(index), 1.0)).collect();
        let kept: Vec<(f64, f64)> = thinned(&points).collect();
        assert!(kept.len() <= POINTS_MAX + 1);
        assert_eq!((kept[0].0, kept[kept.len() - 1].0), (0.0, 9_999.0));
        assert_eq!(thinned(&[]).count(), 0);
    }
}
