//! Line charts over time or over another quantity; each line is labelled at its end.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{Axis, Hue, coordinate, dot, line};

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
    /// Lines; later ones are drawn over earlier ones.
    pub series: Vec<Series>,
    /// Width and height of the picture, in pixels at full size.
    pub size: (f64, f64),
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Label at the end of the line.
    pub label: String,
    /// Colour of the line.
    pub hue: Hue,
    /// True when the line is dashed, as for a reference.
    pub is_dashed: bool,
    /// Points (x, y), in order of x.
    pub points: Vec<(f64, f64)>,
}

const LEFT: f64 = 56.0;
/// Right margin, in pixels: half of the text of the last tick has to fit.
const RIGHT: f64 = 28.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 50.0;
const TICKS: usize = 5;
/// Maximum number of points drawn per line: more could not be told apart.
const POINTS_MAX: usize = 700;
const LABEL_HEIGHT: f64 = 17.0;
/// Maximum number of positions tried before labels may overlap: enough for a few lines with ten positions each.
const TRIES_MAX: usize = 20_000;
/// Widths of a character in pixels: average widths, rounded up.
const LABEL_CHARACTER: f64 = 8.0;
const TICK_CHARACTER: f64 = 7.0;

impl LineChart {
    /// Draws the chart.
    pub fn draw(&self) -> Markup {
        let (width, height) = self.size;
        html! {
            svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(self.description) {
                text.group x="0" y="16" { (self.title) }
                (self.grid())
                @for series in &self.series { (self.path(series)) }
                @for (series, (x, y, anchor)) in self.series.iter().zip(self.label_places()) {
                    text class={ "end " (series.hue.class()) } x=(coordinate(x)) y=(coordinate(y))
                        text-anchor=(anchor) {
                        (series.label)
                    }
                }
            }
        }
    }

    fn at_x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (self.size.0 - LEFT - RIGHT)
    }

    fn at_y(&self, value: f64) -> f64 {
        self.size.1 - BOTTOM - self.y.place(value) * (self.size.1 - TOP - BOTTOM)
    }

    fn grid(&self) -> Markup {
        let (right, floor) = (self.size.0 - RIGHT, self.size.1 - BOTTOM);
        html! {
            @for (value, text) in self.y.ticks(TICKS) {
                (line("grid", (LEFT, self.at_y(value)), (right, self.at_y(value))))
                text.tick x=(LEFT - 8.0) y=(coordinate(self.at_y(value) + 4.0)) text-anchor="end" { (text) }
            }
            @for (value, text) in self.x.ticks(TICKS) {
                (line("axis", (self.at_x(value), floor), (self.at_x(value), floor + 5.0)))
                (self.tick_below(&text, self.at_x(value), floor + 20.0))
            }
            (line("axis", (LEFT, floor), (right, floor)))
            text.axis-label x=(right) y=(floor + 40.0) text-anchor="end" { (self.x.label) }
            text.axis-label x="0" y=(TOP - 14.0) { (self.y.label) }
        }
    }

    /// Draws the text of a tick, kept inside the picture.
    fn tick_below(&self, text: &str, x: f64, y: f64) -> Markup {
        let is_outside = x + text.chars().count() as f64 * TICK_CHARACTER / 2.0 > self.size.0;
        let (x, anchor) = if is_outside { (self.size.0, "end") } else { (x, "middle") };
        html! { text.tick x=(coordinate(x)) y=(y) text-anchor=(anchor) { (text) } }
    }

    fn path(&self, series: &Series) -> Markup {
        let mut path = String::new();
        for (index, (x, y)) in thinned(&series.points).into_iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{} {}", coordinate(self.at_x(x)), coordinate(self.at_y(y)));
        }
        let dashed = if series.is_dashed { " dashed" } else { "" };
        html! {
            path class={ "line " (series.hue.class()) (dashed) } d=(path) {}
            @if let (false, Some((x, y))) = (series.is_dashed, series.points.last()) {
                (dot("dot", series.hue, (self.at_x(*x), self.at_y(*y))))
            }
        }
    }

    /// Returns the position of each label: at the end of its line, inside the picture, without overlapping other labels
    /// and lines.
    fn label_places(&self) -> Vec<Place> {
        let candidates: Vec<Vec<Place>> = (0..self.series.len()).map(|index| self.candidates(index)).collect();
        let name = self.y.label.chars().count() as f64 * TICK_CHARACTER;
        let taken = vec![Area::of_label((0.0, TOP - 14.0, "start"), name)];
        let mut search = Search { candidates: &candidates, series: &self.series, taken, tries_left: TRIES_MAX };
        // When there is no space for all labels, they may overlap rather than be left out.
        search.places().unwrap_or_else(|| {
            let above = |index: usize| self.places_around(index)[1];
            (0..self.series.len()).map(|index| candidates[index].first().copied().unwrap_or(above(index))).collect()
        })
    }

    /// Returns the positions for the label of line `index` that are inside the picture and crossed by no other line,
    /// the best first.
    fn candidates(&self, index: usize) -> Vec<Place> {
        let is_free = |place: &Place| {
            let area = Area::of_label(*place, self.series[index].label_width());
            area.right < self.size.0 && area.left >= LEFT && !self.crosses_others(index, &area)
        };
        self.places_around(index).into_iter().filter(is_free).collect()
    }

    /// Returns positions around the end of line `index`, the best first.
    fn places_around(&self, index: usize) -> Vec<Place> {
        let (x, y) = self.series[index].points.last().map_or((LEFT, TOP), |(x, y)| (self.at_x(*x), self.at_y(*y)));
        let above = [(x + 4.0, y - 12.0, "end"), (x - 4.0, y - 12.0, "start")];
        let beside = [(x + 10.0, y + 5.0, "start"), (x - 10.0, y + 5.0, "end")];
        let below = (1..=self.series.len()).flat_map(|step| {
            let y = y + 5.0 + LABEL_HEIGHT * step as f64;
            [(x + 10.0, y, "start"), (x - 10.0, y, "end")]
        });
        [beside[0], above[0], beside[1], above[1]].into_iter().chain(below).collect()
    }

    /// Returns whether a line other than number `own` runs through `area`.
    fn crosses_others(&self, own: usize, area: &Area) -> bool {
        let others = self.series.iter().enumerate().filter(|(index, _)| *index != own);
        others.flat_map(|(_, series)| thinned(&series.points)).any(|(x, y)| area.holds(self.at_x(x), self.at_y(y)))
    }
}

impl Series {
    fn label_width(&self) -> f64 {
        self.label.chars().count() as f64 * LABEL_CHARACTER
    }
}

/// Position of a label (x, y), and the SVG text anchor: which end of the label is there.
type Place = (f64, f64, &'static str);

/// Searches positions at which no two labels overlap, line by line, with backtracking.
struct Search<'c> {
    candidates: &'c [Vec<Place>],
    series: &'c [Series],
    taken: Vec<Area>,
    tries_left: usize,
}

impl Search<'_> {
    fn places(&mut self) -> Option<Vec<Place>> {
        let mut places = Vec::new();
        self.place_from(0, &mut places).then_some(places)
    }

    fn place_from(&mut self, index: usize, places: &mut Vec<Place>) -> bool {
        let Some(candidates) = self.candidates.get(index) else { return true };
        for place in candidates {
            if self.tries_left == 0 {
                return false;
            }
            self.tries_left -= 1;
            let area = Area::of_label(*place, self.series[index].label_width());
            if self.taken.iter().any(|other| area.meets(other)) {
                continue;
            }
            self.taken.push(area);
            places.push(*place);
            if self.place_from(index + 1, places) {
                return true;
            }
            self.taken.pop();
            places.pop();
        }
        false
    }
}

/// A rectangle of the picture.
#[derive(Clone, Copy, Debug)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn of_label((x, y, anchor): Place, width: f64) -> Self {
        let left = if anchor == "start" { x } else { x - width };
        Self { left, right: left + width, top: y - 12.0, bottom: y + LABEL_HEIGHT - 12.0 }
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn holds(&self, x: f64, y: f64) -> bool {
        (self.left..self.right).contains(&x) && (self.top..self.bottom).contains(&y)
    }
}

/// Returns at most [`POINTS_MAX`] of the points: evenly spread ones, and always the last.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.last().filter(|_| !points.len().wrapping_sub(1).is_multiple_of(stride));
    points.iter().step_by(stride).chain(last).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: Vec<Series>) -> LineChart {
        let (x, y) = (Axis::from_zero("ms", 10.0), Axis::from_zero("MB", 100.0));
        LineChart { description: "d".into(), title: "t".into(), x, y, series, size: (468.0, 202.0) }
    }

    fn series(label: &str, points: &[(f64, f64)]) -> Series {
        Series { label: label.into(), hue: Hue::Warm, is_dashed: false, points: points.to_vec() }
    }

    #[test]
    fn a_line_goes_where_its_values_are() {
        let drawn = chart(vec![series("a", &[(0.0, 0.0), (10.0, 100.0)])]).draw().into_string();
        assert!(drawn.contains("d=\"M56 152L440 52\""), "{drawn}");
    }

    #[test]
    fn labels_of_lines_that_end_together_stand_apart() {
        let areas = |ends: [(f64, f64); 2]| {
            let series = vec![series("one", &ends[..1]), series("two", &ends[1..])];
            chart(series).label_places().into_iter().map(|place| Area::of_label(place, 24.0)).collect::<Vec<_>>()
        };
        for ends in [[(5.0, 50.0), (5.0, 51.0)], [(10.0, 99.0), (9.8, 99.0)], [(10.0, 100.0), (10.0, 100.0)]] {
            let areas = areas(ends);
            assert!(!areas[0].meets(&areas[1]) && areas.iter().all(|area| area.right < 468.0), "{areas:?}");
        }
        let far = areas([(1.0, 50.0), (7.0, 50.0)]);
        assert_eq!(far[0].top, far[1].top, "those far apart stay beside their ends");
    }

    #[test]
    fn labels_of_three_lines_stand_apart_from_each_other_and_from_the_axis() {
        for ends in [[9.9, 2.6, 2.5], [9.9, 4.3, 5.0], [2.0, 2.1, 2.2], [9.9, 4.3, 6.2], [9.9, 2.6, 3.4]] {
            let lines = ends.map(|end| [(0.0, 0.0), (end, 100.0)]);
            let mut chart = chart(lines.iter().map(|line| series("falcon, 6.61 ms", line)).collect());
            (chart.y.label, chart.size) = ("MB delivered".to_owned(), (460.0, 330.0));
            let areas: Vec<Area> =
                chart.label_places().into_iter().map(|place| Area::of_label(place, 15.0 * LABEL_CHARACTER)).collect();
            for (index, area) in areas.iter().enumerate() {
                assert!(area.left >= LEFT && area.right < 460.0, "{ends:?}: {areas:?}");
                assert!(areas[index + 1..].iter().all(|other| !area.meets(other)), "{ends:?}: {areas:?}");
            }
        }
    }

    #[test]
    fn long_lines_are_thinned_and_keep_their_ends() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|index| (f64::from(index), 1.0)).collect();
        let kept = thinned(&points);
        assert!(kept.len() <= POINTS_MAX + 1);
        assert_eq!((kept[0].0, kept[kept.len() - 1].0), (0.0, 9_999.0));
        assert!(thinned(&[]).is_empty());
    }
}
