//! Numbers, charts and HTML pages for users.
//!
//! ```text
//! CRATE    rnic-page (green: a newcomer may change anything that keeps the tests green)
//! Purpose  one format of numbers, one kind of axis, charts (SVG, and interactive), one template of HTML pages
//! May use  no other crate here
//! Must not depend on the meaning of a number; refer to a resource outside the page
//! Add here a kind of chart, a format of numbers
//! Not here the contents of a page (rnic-cli, rnic-reproduce)
//! Tested by tests in each module, and tests of the commands that write pages
//! ```
//!
//! A page is one file, readable without network or server, and, except for its time series, without scripts. Its charts
//! are inline SVG that takes its colours
//! from the page's style sheet, so that one file serves a light theme, a dark theme and a printer. (`plotters` and
//! similar libraries write colours and fonts into each element, so a second theme would need a second picture.)

mod axis;
mod bars;
mod lines;
pub mod number;
mod page;
mod plot;
mod style;

pub use axis::{Axis, Spacing};
pub use bars::{Bar, BarChart, BarGroup};
pub use lines::{LineChart, Series};
pub use page::{Facts, Figure, Page, Width};
pub use plot::{Plot, Plots, Quantity, TimeSeries};
pub use style::{Colour, Stroke, legend};
