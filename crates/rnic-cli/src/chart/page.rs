//! The page around the pictures.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A page of figures and tables.
#[derive(Clone, Debug)]
pub struct Page {
    /// What the browser shows in its tab.
    pub title: String,
    /// What it is about, in a few words above the headline.
    pub kicker: String,
    /// The finding, in one sentence.
    pub headline: String,
    /// What was done, in a few sentences.
    pub lead: String,
    /// Pictures, in order.
    pub figures: Vec<Figure>,
    /// What a reader needs to judge and repeat it.
    pub facts: Vec<Facts>,
}

/// A picture with its caption.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// How wide it is.
    pub width: Width,
    /// SVG, one or several side by side.
    pub pictures: Vec<Markup>,
}

/// How much of the page a figure takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// All of it.
    Full,
    /// One of two columns.
    Half,
}

/// A table: heads, then rows.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Stands above the table.
    pub title: String,
    /// Heads of the columns; none for pairs of name and value.
    pub heads: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// The whole file.
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

/// A cell; text of several lines keeps them.
fn cell_of(text: &str) -> Markup {
    html! { @if text.contains('\n') { pre { (text) } } @else { (text) } }
}

const STYLE: &str = include_str!("page.css");

/// The pattern that lies over everything simulated; once a page, for all pictures.
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
