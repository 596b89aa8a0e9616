//! Colours, strokes and marks of charts, and the legend that explains them.

use maud::{Markup, html};

/// Colour of a bar or a line: one of eight that colour-blind readers can tell apart. The style sheet has their values,
/// for a light and a dark background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colour(u8);

impl Colour {
    /// The subject that performs well, such as selective retransmission.
    pub const COOL: Self = Self(0);
    /// The subject that performs badly, such as go-back-N under loss.
    pub const WARM: Self = Self(1);
    /// Colour of a third subject.
    pub const THIRD: Self = Self(3);
    /// Colour of a reference.
    pub const PLAIN: Self = Self(6);

    /// Returns the colour of entry `index` of a legend.
    pub fn of_entry(index: usize) -> Self {
        Self((index % 8) as u8)
    }

    /// Returns the class to which the style sheet assigns the colour.
    pub(crate) fn class(self) -> String {
        format!("c{}", self.0)
    }

    fn dashes(self) -> &'static str {
        ["none", "7 4", "2 3", "12 4"][usize::from(self.0) % 4]
    }

    /// Returns the path of the colour's mark around a point.
    fn mark(self, x: f64, y: f64) -> String {
        let at = |dx: f64, dy: f64| format!("M{} {}", coordinate(x + dx), coordinate(y + dy));
        match self.0 % 4 {
            0 => at(-4.0, 0.0) + "a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
            1 => at(-5.0, 4.0) + "h10l-5 -9z",
            2 => at(-4.0, -4.0) + "h8v8h-8z",
            _ => at(-4.0, -4.0) + "l8 8m0 -8l-8 8",
        }
    }
}

/// Style of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stroke {
    /// Solid.
    Solid,
    /// Solid, with a mark at each point; marks differ like colours, so that lines can be told apart without colour.
    Marked,
    /// Dashed, with a pattern that differs like colours.
    Dashed,
}

impl Stroke {
    /// Draws a line through points of the picture.
    pub(crate) fn draw(self, colour: Colour, positions: &[(f64, f64)]) -> Markup {
        let point = |(x, y): &(f64, f64)| format!("{} {}", coordinate(*x), coordinate(*y));
        let path = format!("M{}", positions.iter().map(point).collect::<Vec<_>>().join("L"));
        let marks: String = positions.iter().map(|(x, y)| colour.mark(*x, *y)).collect();
        let dashes = (self == Self::Dashed).then(|| colour.dashes());
        html! {
            @if !positions.is_empty() {
                path.line d=(path) stroke-dasharray=[dashes] {}
                @if self == Self::Marked { path.mark d=(marks) {} }
            }
        }
    }
}

/// Returns a legend: names next to samples of their lines.
pub fn legend<'n>(entries: impl IntoIterator<Item = (Colour, Stroke, &'n str)>) -> Markup {
    html! {
        div.legend { @for (colour, stroke, name) in entries {
            span {
                svg.key width="26" height="12" viewBox="0 0 26 12" aria-hidden="true" {
                    g class=(colour.class()) {
                        @if stroke == Stroke::Marked { path.mark d=(colour.mark(13.0, 6.0)) {} }
                        @let dashes = (stroke == Stroke::Dashed).then(|| colour.dashes());
                        path.line d="M0 6L26 6" stroke-dasharray=[dashes] {}
                    }
                }
                (name)
            }
        } }
    }
}

/// Draws a picture of a width and a height in pixels; `description` is for screen readers.
pub(crate) fn picture(description: &str, (width, height): (f64, f64), content: &Markup) -> Markup {
    html! {
        svg viewBox={ "0 0 " (width) " " (coordinate(height)) } role="img" aria-label=(description) { (content) }
    }
}

/// Draws a straight line of a class that the style sheet defines.
pub(crate) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
    html! { line class=(class) x1=(x1) y1=(y1) x2=(x2) y2=(y2) {} }
}

/// Draws a text of a class that the style sheet defines; `anchor` is the end of the text that is at the point.
pub(crate) fn text(class: &str, (x, y): (f64, f64), anchor: &str, content: &str) -> Markup {
    html! { text class=(class) x=(coordinate(x)) y=(coordinate(y)) text-anchor=(anchor) { (content) } }
}

/// Formats a coordinate for an SVG: a tenth of a pixel is precise enough, and shorter text makes a smaller file.
pub(crate) fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_legend_differ_without_colour() {
        for stroke in [Stroke::Marked, Stroke::Dashed] {
            let drawn = |index| {
                let entry = [(Colour::of_entry(index), stroke, "<name>")];
                legend(entry).into_string().replace(&Colour::of_entry(index).class(), "")
            };
            let all: Vec<String> = (0..4).map(drawn).collect();
            for (index, one) in all.iter().enumerate() {
                assert!(!all[index + 1..].contains(one), "{stroke:?}: {one}");
                assert!(one.contains("&lt;name&gt;"), "names are not escaped");
            }
        }
    }
}
