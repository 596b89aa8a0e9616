//! The HTML page that holds the charts.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

use crate::plot::Plots;

/// An HTML page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Title of the document, shown in the browser's tab.
    pub title: String,
    /// Subject in a few words, above the headline.
    pub overline: String,
    /// Main result, in one sentence.
    pub headline: String,
    /// Contents below the headline.
    pub content: Markup,
}

/// One or several pictures with a title.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Title of the figure.
    pub title: String,
    /// Explanation of how to read the figure; may be empty.
    pub caption: String,
    /// Width of the figure on the page.
    pub width: Width,
    /// Drawn charts, one or several side by side, and legends.
    pub pictures: Vec<Markup>,
}

/// Width of a figure on the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// The full width of the page.
    Full,
    /// One of two columns.
    Half,
}

/// A table: column heads, then rows.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Title above the table.
    pub title: String,
    /// Heads of the columns; empty for pairs of name and value.
    pub heads: Vec<String>,
    /// Rows of cells.
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// Returns the complete HTML file.
    pub fn to_html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    (PreEscaped(HATCH))
                    main {
                        header { p.overline { (self.overline) } h1 { (self.headline) } }
                        (self.content)
                    }
                }
            }
        };
        format!("{}\n", page.into_string())
    }

    /// Returns the usual contents of a page: a summary, figures, and tables with the facts that a reader needs to judge
    /// and reproduce the result.
    pub fn figures(lead: &str, figures: &[Figure], facts: &[Facts]) -> Markup {
        Self::figures_and_plots(lead, figures, &Plots::default(), facts)
    }

    /// Returns the same with time series after the figures.
    pub fn figures_and_plots(lead: &str, figures: &[Figure], plots: &Plots, facts: &[Facts]) -> Markup {
        html! {
            p.lead { (lead) }
            div.figures { @for figure in figures { (figure) } }
            (plots)
            @for facts in facts { (facts) }
        }
    }
}

impl Render for Figure {
    fn render(&self) -> Markup {
        let class = if self.width == Width::Full { "full" } else { "half" };
        html! {
            figure class=(class) {
                figcaption {
                    strong { (self.title) }
                    @if !self.caption.is_empty() { p { (self.caption) } }
                }
                div.pictures { @for picture in &self.pictures { (picture) } }
            }
        }
    }
}

impl Render for Facts {
    fn render(&self) -> Markup {
        let is_pairs = self.heads.is_empty();
        html! {
            section {
                h2 { (self.title) }
                table class=(if is_pairs { "pairs" } else { "results" }) {
                    @if !is_pairs { thead { tr { @for head in &self.heads { th { (head) } } } } }
                    tbody { @for row in &self.rows { tr { @for cell in row { td { (cell_of(cell)) } } } } }
                }
            }
        }
    }
}

/// Renders a cell; text of several lines keeps its line breaks.
fn cell_of(text: &str) -> Markup {
    html! { @if text.contains('\n') { pre { (text) } } @else { (text) } }
}

/// Style sheet, embedded so that the page is self-contained.
const STYLE: &str = include_str!("page.css");

/// Hatch pattern; defined once per page, for all pictures.
const HATCH: &str = r#"<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="hatch-line" width="2.4" height="6"/></pattern></defs></svg>"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_self_contained_and_escapes_its_texts() {
        let facts = Facts { title: "How".into(), heads: Vec::new(), rows: vec![vec!["file".into(), "<b>.so".into()]] };
        let pictures = vec![html! { "picture" }];
        let figure = Figure { title: "f < g".into(), caption: String::new(), width: Width::Half, pictures };
        let content = Page::figures("l > m", &[figure], &[facts]);
        let page = Page { title: "t".into(), overline: "k".into(), headline: "h & h".into(), content };
        let html = page.to_html();
        assert!(html.starts_with("<!DOCTYPE html>"));
        for escaped in ["&lt;b&gt;.so", "h &amp; h", "f &lt; g", "l &gt; m"] {
            assert!(html.contains(escaped), "{escaped}");
        }
        for outside in ["http:", "https:", "<script", "<link", "@import", "url(//"] {
            assert!(!html.contains(outside), "the page refers to {outside}");
        }
    }
}
