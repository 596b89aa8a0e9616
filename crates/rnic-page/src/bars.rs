//! Horizontal bars in groups; each bar has its name and its value written above it.

use maud::{Markup, html};

use crate::style::{coordinate, line, picture, text};
use crate::{Axis, Colour, Spacing};

/// A chart of groups of bars.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// Description for screen readers.
    pub description: String,
    /// Title above the chart; may be empty.
    pub title: String,
    /// Groups, from top to bottom.
    pub groups: Vec<BarGroup>,
    /// Width in pixels.
    pub width: f64,
}

/// A group of bars that are compared with each other.
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// Heading above the bars; may be empty.
    pub label: String,
    /// Axis along the bars. It is not drawn, because every bar has its value as text.
    pub axis: Axis,
    /// Bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name of the bar.
    pub label: String,
    /// Value that the length of the bar shows.
    pub value: f64,
    /// Interval of the line drawn over the bar, such as the smallest and the largest of several values.
    pub range: Option<(f64, f64)>,
    /// Value as text.
    pub text: String,
    /// Colour of the bar.
    pub colour: Colour,
    /// True for a simulated value on a page that also has real ones; the bar is then hatched.
    pub is_hatched: bool,
}

/// Height of the heading of a group, in pixels.
const GROUP_HEADING_HEIGHT: f64 = 28.0;
/// Distance between groups, in pixels.
const GROUP_GAP: f64 = 12.0;
/// Distance between the tops of two bars, in pixels.
const BAR_PITCH: f64 = 38.0;
/// Height of the text above a bar, in pixels.
const BAR_TEXT_HEIGHT: f64 = 18.0;
const BAR_HEIGHT: f64 = 12.0;

impl BarChart {
    /// Draws the chart.
    pub fn draw(&self) -> Markup {
        let mut height = 0.0;
        let mut groups = Vec::new();
        for group in &self.groups {
            groups.push(group.draw(height, self.width));
            height += group.height();
        }
        let content = html! { @for group in groups { (group) } };
        let picture = picture(&self.description, (self.width, height), &content);
        html! {
            div.picture style={ "flex-basis: " (self.width) "px" } {
                @if !self.title.is_empty() { p.picture-title { (self.title) } }
                (picture)
            }
        }
    }
}

impl BarGroup {
    /// Returns a group whose axis fits its bars.
    pub fn new(label: impl Into<String>, bars: Vec<Bar>) -> Self {
        let ends = |bar: &Bar| bar.range.map_or([bar.value; 2], |(least, most)| [least, most]);
        let values = bars.iter().flat_map(|bar| ends(bar).into_iter().chain([bar.value]));
        Self { label: label.into(), axis: Axis::of_values("", values, Spacing::FromZero), bars }
    }

    fn heading_height(&self) -> f64 {
        if self.label.is_empty() { 0.0 } else { GROUP_HEADING_HEIGHT }
    }

    fn height(&self) -> f64 {
        self.heading_height() + self.bars.len() as f64 * BAR_PITCH + GROUP_GAP
    }

    fn draw(&self, top: f64, width: f64) -> Markup {
        html! {
            (text("group", (0.0, top + 16.0), "start", &self.label))
            @for (index, bar) in self.bars.iter().enumerate() {
                (bar.draw(&self.axis, top + self.heading_height() + index as f64 * BAR_PITCH, width))
            }
        }
    }
}

impl Bar {
    fn draw(&self, axis: &Axis, top: f64, width: f64) -> Markup {
        let at = |value: f64| axis.position(value).clamp(0.0, 1.0) * width;
        let (from, to) = (at(self.value.min(0.0)), at(self.value.max(0.0)));
        // Draws a small value as a visible sliver, to tell it from zero.
        let length = if self.value == 0.0 { 0.0 } else { (to - from).max(1.5) };
        let (bar_top, middle) = (top + BAR_TEXT_HEIGHT, top + BAR_TEXT_HEIGHT + BAR_HEIGHT / 2.0);
        let rect = |class: &str, x: f64, length: f64| {
            html! {
                rect class=(class) x=(coordinate(x)) y=(coordinate(bar_top)) width=(coordinate(length))
                    height=(BAR_HEIGHT) rx="2" {}
            }
        };
        html! {
            (text("name", (0.0, top + 13.0), "start", &self.label))
            (text("value", (width, top + 13.0), "end", &self.text))
            (rect("track", 0.0, width))
            g class=(self.colour.class()) { (rect("bar", from, length)) }
            @if self.is_hatched { (rect("hatch", from, length)) }
            @if let Some((least, most)) = self.range.map(|(least, most)| (at(least), at(most))) {
                (line("whisker", (least, middle), (most, middle)))
                @for end in [least, most] { (line("whisker", (end, middle - 4.0), (end, middle + 4.0))) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64) -> Bar {
        let (label, text, colour) = ("a<b".into(), "v".into(), Colour::COOL);
        Bar { label, value, range: None, text, colour, is_hatched: false }
    }

    fn drawn(bars: Vec<Bar>) -> String {
        let chart = BarChart {
            description: "d".into(),
            title: String::new(),
            groups: vec![BarGroup::new("g", bars)],
            width: 400.0,
        };
        chart.draw().into_string()
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let drawn = drawn(vec![bar(50.0), bar(100.0), bar(0.0)]);
        let lengths: Vec<&str> =
            drawn.split("class=\"bar\"").skip(1).filter_map(|rest| rest.split('"').nth(5)).collect();
        assert_eq!(lengths, ["200", "400", "0"]);
        assert!(drawn.contains("a&lt;b") && drawn.contains("aria-label=\"d\""), "names are not escaped");
    }

    #[test]
    fn bars_of_negative_values_end_at_zero() {
        let drawn = drawn(vec![bar(-50.0), bar(50.0)]);
        let positions: Vec<&str> =
            drawn.split("class=\"bar\"").skip(1).filter_map(|rest| rest.split('"').nth(1)).collect();
        assert_eq!(positions, ["33.3", "200"]);
    }

    #[test]
    fn ranges_are_drawn_over_their_bars_and_fit_the_axis() {
        let wide = Bar { range: Some((50.0, 200.0)), is_hatched: true, ..bar(100.0) };
        let drawn = drawn(vec![wide]);
        assert!(drawn.contains("x1=\"100\" y1=\"52\" x2=\"400\"") && drawn.contains("class=\"hatch\""), "{drawn}");
    }
}
