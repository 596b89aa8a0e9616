//! Checks that a path `rnic_x::Name` in a page refers to an existing name of that crate.
//!
//! Only the last segment is searched for, and only in crates that exist; the changelog may mention names that no longer
//! exist.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Parser};

use crate::finding::Finding;
use crate::tree::Tree;

const RULE: &str = "names";
const PREFIX: &str = "rnic_";

/// Reports code paths in pages that no longer exist.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let known = names_by_crate(tree);
    let mut findings = Vec::new();
    for file in tree.files_ending(".md").filter(|file| !file.path.ends_with("CHANGELOG.md")) {
        let text = file.text().unwrap_or_default();
        for (event, range) in Parser::new(text).into_offset_iter() {
            let Event::Code(code) = event else { continue };
            let Some((rule, name)) = crate_and_name(&code) else { continue };
            if known.get(rule).is_some_and(|names| !names.contains(name)) {
                let line = text[..range.start].matches('\n').count() + 1;
                let what = format!("{rule} has no `{name}`");
                findings.push(Finding::new(&file.path, line, RULE, what, "correct the name, or name the crate only"));
            }
        }
    }
    findings
}

/// Returns the crate and the last segment of a path such as `rnic_base::seq::Psn`; `None` for anything else.
fn crate_and_name(code: &str) -> Option<(&str, &str)> {
    let is_path_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let path = code.split(|c| !is_path_char(c)).next().filter(|path| path.starts_with(PREFIX))?;
    let (rule, rest) = path.split_once("::")?;
    Some((rule, rest.rsplit("::").next()?))
}

fn names_by_crate(tree: &Tree) -> BTreeMap<String, BTreeSet<&str>> {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (file, source) in tree.production_rust() {
        let Some(package) = tree.package_of(&file.path) else { continue };
        let idents = source.tokens.iter().filter_map(|token| token.ident());
        names.entry(package.name.replace('-', "_")).or_default().extend(idents);
    }
    names
}
