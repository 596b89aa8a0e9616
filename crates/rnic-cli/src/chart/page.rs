//! The HTML page that holds the charts.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A page of figures and tables.
#[derive(Clone, Debug)]
pub struct Page {
    /// Title of the document, shown in the browser's tab.
    pub title: String,
    /// Subject in a few words, above the headline.
    pub kicker: String,
    /// Main result, in one sentence.
    pub headline: String,
    /// Summary of what was done, in a few sentences.
    pub lead: String,
    /// Figures, in order.
    pub figures: Vec<Figure>,
    /// Tables with the facts that a reader needs to judge and reproduce the result.
    pub facts: Vec<Facts>,
}

/// One or several pictures with a caption.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Title of the figure.
    pub title: String,
    /// Explanation of how to read the figure.
    pub caption: String,
    /// Width of the figure on the page.
    pub width: Width,
    /// SVG pictures, one or several side by side.
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
                        header {
                            p.kicker { (self.kicker) }
                            h1 { (self.headline) }
                            p.lead { (self.lead) }
                        }
                        div.figures { @for figure in &self.figures { (figure.draw()) } }
                        @for facts in &self.facts { (facts.draw()) }
                    }
                }
            }
        };
        format!("{}\n", page.into_string())
    }
}

impl Figure {
    fn draw(&self) -> Markup {
        let class = if self.width == Width::Full { "full" } else { "half" };
        html! {
            figure class=(class) {
                h2 { (self.title) }
                div.pictures { @for picture in &self.pictures { (picture) } }
                figcaption { (self.caption) }
            }
        }
    }
}

impl Facts {
    fn draw(&self) -> Markup {
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

const STYLE: &str = include_str!("page.css");

/// Hatch pattern for everything simulated; defined once per page, for all pictures.
const HATCH: &str = r#"<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="hatch-line" width="2.4" height="6"/></pattern></defs></svg>"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stands_alone_and_escapes_what_it_is_told() {
        let facts = Facts { title: "How".into(), heads: Vec::new(), rows: vec![vec!["file".into(), "<b>.so".into()]] };
        let page = Page {
            title: "t".into(),
            kicker: "k".into(),
            headline: "h & h".into(),
            lead: "l".into(),
            figures: Vec::new(),
            facts: vec![facts],
        };
        let html = page.to_html();
        assert!(html.starts_with("<!DOCTYPE html>") && html.contains("&lt;b&gt;.so") && html.contains("h &amp; h"));
        for outside in ["http:", "https:", "<script", "<link", "@import", "url(//"] {
            assert!(!html.contains(outside), "the page reaches out: {outside}");
        }
    }
}
