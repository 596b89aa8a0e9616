//! Charts and the HTML page that holds them: one file, readable without network, script or server.
//!
//! Charts are inline SVG that takes its colours from the page's style sheet, so that one file serves a light theme, a
//! dark theme and a printer. (`plotters` was tried for this: it writes colours and fonts into each element, so a second
//! theme would need a second picture.) Simulated results are hatched or dashed in every chart, and labelled as
//! simulated.

mod bars;
mod lines;
mod page;
mod ranges;
mod scale;

use maud::{Markup, html};

pub use bars::{Bar, BarChart, BarGroup};
pub use lines::{LineChart, Series};
pub use page::{Facts, Figure, Page, Width};
pub use ranges::{Range, RangeChart};
pub use scale::Axis;

/// Colour of a bar, line or range, by its role in the comparison; the style sheet has the colour values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hue {
    /// The subject that performs badly, such as go-back-N under loss.
    Warm,
    /// The subject that performs well, such as selective retransmission.
    Cool,
    /// A third subject.
    Third,
    /// A reference.
    Plain,
}

impl Hue {
    /// Returns the class to which the style sheet assigns the colour.
    fn class(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cool => "cool",
            Self::Third => "third",
            Self::Plain => "plain",
        }
    }
}

/// Draws a straight line of a class that the style sheet defines.
fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
    html! { line class=(class) x1=(x1) y1=(y1) x2=(x2) y2=(y2) {} }
}

/// Draws a point: a filled `dot` or a hollow `ring`.
fn dot(class: &str, hue: Hue, at: (f64, f64)) -> Markup {
    html! { circle class={ (class) " " (hue.class()) } cx=(coordinate(at.0)) cy=(coordinate(at.1)) r="4.5" {} }
}

/// Formats a coordinate for an SVG: a tenth of a pixel is precise enough, and shorter text makes a smaller file.
fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
