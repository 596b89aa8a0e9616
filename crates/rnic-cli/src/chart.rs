//! Charts and the page that carries them: one HTML file, readable without network, script or server.
//!
//! Pictures are inline SVG that takes its colours from the page's style sheet, so that one file serves a light and a
//! dark theme and a printer. (`plotters` was tried for this: it writes colours and fonts into each element, so a
//! theme would need a second picture.) What is simulated is hatched or dashed everywhere, and called so.

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

/// Which colour stands for whom; the style sheet has the values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hue {
    /// What suffers.
    Warm,
    /// What copes.
    Cool,
    /// A third voice.
    Third,
    /// A reference.
    Plain,
}

impl Hue {
    /// The class that the style sheet gives its colour.
    fn class(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cool => "cool",
            Self::Third => "third",
            Self::Plain => "plain",
        }
    }
}

/// A straight line of a class that the style sheet knows.
fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
    html! { line class=(class) x1=(x1) y1=(y1) x2=(x2) y2=(y2) {} }
}

/// A point: a full `dot` or a hollow `ring`.
fn dot(class: &str, hue: Hue, at: (f64, f64)) -> Markup {
    html! { circle class={ (class) " " (hue.class()) } cx=(coordinate(at.0)) cy=(coordinate(at.1)) r="4.5" {} }
}

/// A coordinate in an SVG: a tenth of a pixel is enough, and shorter text is a smaller file.
fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
