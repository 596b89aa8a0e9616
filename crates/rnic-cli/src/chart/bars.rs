//! Horizontal bars in groups; each group has its own scale and each bar shows its value as text.

use maud::{Markup, html};

use super::{Hue, coordinate, line};

/// A chart of groups of bars.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// Description for screen readers.
    pub description: String,
    /// Groups, from top to bottom.
    pub groups: Vec<BarGroup>,
}

/// A group of bars that are compared with each other.
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// Heading above the bars.
    pub label: String,
    /// Value at the right edge of the chart; `None` for the value of the largest bar.
    pub full: Option<f64>,
    /// Bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Label to the left of the bar.
    pub label: String,
    /// Value that the length of the bar shows.
    pub value: f64,
    /// Value as text, written at the end of the bar.
    pub text: String,
    /// Colour of the bar.
    pub hue: Hue,
    /// True when the value is simulated; the bar is then hatched, as in all charts.
    pub is_simulated: bool,
}

const WIDTH: f64 = 460.0;
const LABEL_WIDTH: f64 = 78.0;
/// Width reserved for the text at the end of a full bar, in pixels.
const TEXT_WIDTH: f64 = 130.0;
const BAR_HEIGHT: f64 = 26.0;
const BAR_PITCH: f64 = 34.0;
const GROUP_HEAD: f64 = 30.0;
const GROUP_GAP: f64 = 14.0;

impl BarChart {
    /// Draws the chart.
    pub fn draw(&self) -> Markup {
        let height: f64 = self.groups.iter().map(BarGroup::height).sum();
        let tops = self.groups.iter().scan(0.0, |top, group| {
            let mine = *top;
            *top += group.height();
            Some(mine)
        });
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (coordinate(height)) } role="img" aria-label=(self.description) {
                @for (group, top) in self.groups.iter().zip(tops) { (group.draw(top)) }
            }
        }
    }
}

impl BarGroup {
    fn height(&self) -> f64 {
        GROUP_HEAD + self.bars.len() as f64 * BAR_PITCH + GROUP_GAP
    }

    fn draw(&self, top: f64) -> Markup {
        let largest = self.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
        let full = self.full.unwrap_or(largest).max(f64::MIN_POSITIVE);
        let room = WIDTH - LABEL_WIDTH - TEXT_WIDTH;
        let bottom = top + self.height() - GROUP_GAP;
        html! {
            text.group x="0" y=(coordinate(top + 16.0)) { (self.label) }
            (line("axis", (LABEL_WIDTH, top + GROUP_HEAD - 4.0), (LABEL_WIDTH, bottom)))
            @for (index, bar) in self.bars.iter().enumerate() {
                (bar.draw(top + GROUP_HEAD + index as f64 * BAR_PITCH, (bar.value / full).clamp(0.0, 1.0) * room))
            }
        }
    }
}

impl Bar {
    fn draw(&self, top: f64, length: f64) -> Markup {
        let (middle, end) = (coordinate(top + BAR_HEIGHT / 2.0 + 5.0), coordinate(LABEL_WIDTH + length + 8.0));
        // Draws a small value as a visible sliver, to tell it from zero.
        let length = if self.value > 0.0 { length.max(1.5) } else { 0.0 };
        let place = |class: &str| {
            html! {
                rect class={ "bar " (class) } x=(LABEL_WIDTH) y=(coordinate(top)) width=(coordinate(length))
                    height=(BAR_HEIGHT) rx="2" {}
            }
        };
        html! {
            text.name x=(LABEL_WIDTH - 10.0) y=(middle) text-anchor="end" { (self.label) }
            (place(self.hue.class()))
            @if self.is_simulated { (place("hatch")) }
            text.value x=(end) y=(middle) { (self.text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64) -> Bar {
        Bar { label: "a<b".into(), value, text: "v".into(), hue: Hue::Cool, is_simulated: false }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let group = BarGroup { label: "g".into(), full: None, bars: vec![bar(50.0), bar(100.0), bar(0.0)] };
        let drawn = BarChart { description: "d".into(), groups: vec![group] }.draw().into_string();
        let widths: Vec<&str> = drawn.split("width=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(widths, ["126", "252", "0"]);
        assert!(drawn.contains("a&lt;b"), "names are escaped");
    }
}
