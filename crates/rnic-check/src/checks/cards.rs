//! Checks that every crate has a header (card) with six headings, and that it agrees with the table of crates.

use std::collections::BTreeSet;

use crate::card::{COLOURS, Card, HEADINGS};
use crate::crates::{is_crate_dir, rule};
use crate::finding::Finding;
use crate::tree::manifest::Package;
use crate::tree::{SourceFile, Tree};

const RULE: &str = "cards";
const EXAMPLE: &str = "see crates/rnic-base/src/lib.rs";

/// Reports crates whose header is missing, incomplete or wrong.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.packages().iter().filter(|package| is_crate_dir(&package.dir));
    crates
        .flat_map(|package| match tree.root_file(package) {
            Some(file) => check_crate(package, file),
            None => Vec::new(), // Cargo itself rejects a package without a crate root.
        })
        .collect()
}

fn check_crate(package: &Package, file: &SourceFile) -> Vec<Finding> {
    let finding = |line, what: String, instead: &str| Finding::new(&file.path, line, RULE, what, instead);
    let Some(card) = Card::read(file.text().unwrap_or_default()) else {
        return vec![finding(
            1,
            "the crate has no header".to_owned(),
            &format!("begin the file with a header, {EXAMPLE}"),
        )];
    };
    let title = card.lines["CRATE"];
    let mut findings = Vec::new();
    if card.name != package.name {
        let what = format!("the header names crate `{}`, but the package is {}", card.name, package.name);
        findings.push(finding(title, what, "write the name of the package into the line `CRATE`"));
    }
    if !COLOURS.contains(&card.colour_word()) {
        let what = format!("the crate's colour is `{}`", card.colour_word());
        findings.push(finding(title, what, "write `CRATE name (green|amber|red: how it is changed)`"));
    }
    for heading in HEADINGS.iter().filter(|heading| card.text(heading).is_empty()) {
        findings.push(finding(title, format!("the header has no text under `{heading}`"), EXAMPLE));
    }
    findings.extend(wrong_may_use(package, &card).map(|(what, instead)| {
        let line = card.lines.get("May use").copied().unwrap_or(title);
        finding(line, what, &instead)
    }));
    findings
}

fn wrong_may_use(package: &Package, card: &Card) -> Option<(String, String)> {
    let allowed: BTreeSet<&str> = rule(&package.name)?.may_use.iter().map(String::as_str).collect();
    let stated: BTreeSet<&str> = card.may_use().into_iter().collect();
    let list = |names: &BTreeSet<&str>| {
        if names.is_empty() {
            "no other crate here".to_owned()
        } else {
            names.iter().copied().collect::<Vec<_>>().join(", ")
        }
    };
    (stated != allowed && !card.text("May use").is_empty()).then(|| {
        let what = format!(
            "the header permits {} under `May use`, but the table of crates permits {}",
            list(&stated),
            list(&allowed)
        );
        (what, "make them agree (the table is crates/rnic-check/crates.toml)".to_owned())
    })
}
