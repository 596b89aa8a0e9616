//! Ranges on a logarithmic scale: from a typical value to a tail value, such as p50 to p99.

use maud::{Markup, html};

use super::{Axis, Hue, coordinate, dot, line};

/// A chart of ranges.
#[derive(Clone, Debug)]
pub struct RangeChart {
    /// Description for screen readers.
    pub description: String,
    /// Scale shared by all ranges.
    pub axis: Axis,
    /// Names of the two ends, such as p50 and p99.
    pub ends: (String, String),
    /// Groups of ranges with their names, from top to bottom.
    pub groups: Vec<(String, Vec<Range>)>,
}

/// One range.
#[derive(Clone, Debug)]
pub struct Range {
    /// Label to the left of the range.
    pub label: String,
    /// Values of the two ends.
    pub ends: (f64, f64),
    /// Values of the two ends as text.
    pub texts: (String, String),
    /// Colour of the range.
    pub hue: Hue,
    /// True when the values are simulated; the upper end is then drawn hollow.
    pub is_simulated: bool,
}

const WIDTH: f64 = 460.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 40.0;
/// Space between the labels and the scale, in pixels, for the text of a range that begins at the left end of the scale.
const GAP: f64 = 34.0;
const HEAD: f64 = 30.0;
const PITCH: f64 = 44.0;
const FOOT: f64 = 44.0;

impl RangeChart {
    /// Draws the chart.
    pub fn draw(&self) -> Markup {
        let rows: usize = self.groups.iter().map(|(_, ranges)| ranges.len()).sum();
        let floor = self.groups.len() as f64 * HEAD + rows as f64 * PITCH + 6.0;
        let mut top = 0.0;
        let mut body = Vec::new();
        for (name, ranges) in &self.groups {
            body.push(html! { text.group x="0" y=(coordinate(top + 16.0)) { (name) } });
            top += HEAD;
            for (index, range) in ranges.iter().enumerate() {
                let names = (body.len() == 1 && index == 0).then_some(&self.ends);
                body.push(self.row(range, top + PITCH / 2.0 + 4.0, names));
                top += PITCH;
            }
        }
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (coordinate(floor + FOOT)) } role="img" aria-label=(self.description) {
                (self.scale(floor))
                @for part in body { (part) }
            }
        }
    }

    fn at(&self, value: f64) -> f64 {
        LEFT + GAP + self.axis.place(value) * (WIDTH - LEFT - GAP - RIGHT)
    }

    fn scale(&self, floor: f64) -> Markup {
        html! {
            @for (value, text) in self.axis.ticks(6) {
                (line("grid", (self.at(value), HEAD), (self.at(value), floor)))
                text.tick x=(coordinate(self.at(value))) y=(coordinate(floor + 18.0)) text-anchor="middle" { (text) }
            }
            text.axis-label x=(WIDTH - RIGHT) y=(coordinate(floor + 38.0)) text-anchor="end" { (self.axis.label) }
        }
    }

    fn row(&self, range: &Range, y: f64, names: Option<&(String, String)>) -> Markup {
        let (from, to) = (self.at(range.ends.0), self.at(range.ends.1));
        let class = range.hue.class();
        let far = if range.is_simulated { "ring" } else { "dot" };
        // The texts of two ends that are close together would overlap: they are then written on the outer sides.
        let is_tight = to - from < 64.0;
        let (left, right) = if is_tight { ("end", "start") } else { ("middle", "middle") };
        let middle = f64::midpoint(from, to);
        let (left_x, right_x) =
            if is_tight { ((from + 8.0).min(middle - 4.0), (to - 8.0).max(middle + 4.0)) } else { (from, to) };
        let named = |name: Option<&String>, text: &str| name.map_or(text.to_owned(), |name| format!("{name} {text}"));
        html! {
            text.name x=(LEFT - 10.0) y=(coordinate(y + 5.0)) text-anchor="end" { (range.label) }
            (line(&format!("span {class}"), (from, y), (to, y)))
            (dot("dot", range.hue, (from, y)))
            (dot(far, range.hue, (to, y)))
            text.value x=(coordinate(left_x)) y=(coordinate(y - 10.0)) text-anchor=(left) {
                (named(names.map(|names| &names.0), &range.texts.0))
            }
            text.value x=(coordinate(right_x)) y=(coordinate(y - 10.0)) text-anchor=(right) {
                (named(names.map(|names| &names.1), &range.texts.1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_lie_on_the_scale_and_the_first_row_names_them() {
        let texts = ("1 us".to_owned(), "100 us".to_owned());
        let range = Range { label: "x".into(), ends: (1.0, 100.0), texts, hue: Hue::Cool, is_simulated: true };
        let groups = vec![("g".to_owned(), vec![range.clone(), range])];
        let axis = Axis::decades("us", 1.0, 100.0);
        let chart = RangeChart { description: "d".into(), axis, ends: ("p50".into(), "p99".into()), groups };
        let drawn = chart.draw().into_string();
        assert!(drawn.contains("class=\"dot cool\" cx=\"112\"") && drawn.contains("class=\"ring cool\" cx=\"420\""));
        assert_eq!(drawn.matches("p50 1 us").count(), 1, "{drawn}");
        assert_eq!(drawn.matches("1 us<").count(), 2);
    }
}
