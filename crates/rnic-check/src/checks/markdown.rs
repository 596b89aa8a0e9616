//! Checks that a page has one top-level heading, and that relative links and anchors have a target.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

const RULE: &str = "markdown";

/// Data of a page, as far as the check needs it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    /// Lines of first-level headings.
    titles: Vec<usize>,
    /// Targets of `#...` links.
    anchors: BTreeSet<String>,
    /// Every link and image, with its line.
    links: Vec<(usize, String)>,
}

/// Reports pages without exactly one title, and links without a target.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files_ending(".md") {
        let page = Page::read(file.text().unwrap_or_default());
        // mdBook's table of contents has a top-level heading for each part.
        if page.titles.len() != 1 && !file.path.ends_with("SUMMARY.md") {
            let what = format!("the page has {} first-level headings", page.titles.len());
            let line = page.titles.get(1).copied().unwrap_or(1);
            findings.push(Finding::new(&file.path, line, RULE, what, "give it exactly one `# Title`"));
        }
        for (line, link) in &page.links {
            if let Some(what) = broken(tree, file, &page, link) {
                let instead = "point it to a file of the tree (and a heading in it)";
                findings.push(Finding::new(&file.path, *line, RULE, what, instead));
            }
        }
    }
    findings
}

/// Returns what is wrong with a link; `None` when it is valid or external.
fn broken(tree: &Tree, file: &SourceFile, page: &Page, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if path.starts_with('/') {
        return Some(format!("the link `{link}` is absolute"));
    }
    if path.is_empty() {
        let is_there = anchor.is_empty() || page.anchors.contains(anchor);
        return (!is_there).then(|| format!("no heading here for the link `{link}`"));
    }
    let dir = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let target = join(dir, path);
    if !tree.exists(&target) {
        return Some(format!("the link `{link}` leads to {target}, which does not exist"));
    }
    let other = tree.file(&target).filter(|file| file.path.ends_with(".md") && !anchor.is_empty())?;
    let has_anchor = Page::read(other.text().unwrap_or_default()).anchors.contains(anchor);
    (!has_anchor).then(|| format!("{target} has no heading for the link `{link}`"))
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = text[..range.start].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    if level == HeadingLevel::H1 {
                        page.titles.push(line);
                    }
                    heading = Some(String::new());
                }
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = slug(&heading.take().unwrap_or_default());
                    page.add_anchor(anchor);
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line, dest_url.to_string()));
                }
                _ => {}
            }
        }
        page
    }

    /// Adds an anchor; the second heading of the same text gets `-1`, the third `-2`, as Git hosting sites number them.
    fn add_anchor(&mut self, anchor: String) {
        let numbered = |count: usize| if count == 0 { anchor.clone() } else { format!("{anchor}-{count}") };
        let free = (0..=self.anchors.len()).map(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }
}

/// Returns the anchor that Git hosting sites generate for a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns `path` relative to `dir`, with `.` and `..` resolved.
fn join(dir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
