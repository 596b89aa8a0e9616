//! Checks that every crate has a header (card) with six headings that agrees with the table of crates.

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
            Some(file) => check_room(package, file),
            None => Vec::new(), // Cargo itself refuses a package without a root.
        })
        .collect()
}

fn check_room(package: &Package, file: &SourceFile) -> Vec<Finding> {
    let finding = |line, what: String, instead: &str| Finding::new(&file.path, line, RULE, what, instead);
    let Some(card) = Card::read(file.text().unwrap_or_default()) else {
        return vec![finding(1, "the crate has no card".to_owned(), &format!("begin the file with one, {EXAMPLE}"))];
    };
    let title = card.lines["CRATE"];
    let mut findings = Vec::new();
    if card.name != package.name {
        let what = format!("the card is for `{}`, the package is {}", card.name, package.name);
        findings.push(finding(title, what, "name the package"));
    }
    if !COLOURS.contains(&card.colour_word()) {
        let what = format!("the crate's colour is `{}`", card.colour_word());
        findings.push(finding(title, what, "write `CRATE name (green|amber|red: how it is changed)`"));
    }
    for heading in HEADINGS.iter().filter(|heading| card.text(heading).is_empty()) {
        findings.push(finding(title, format!("the card says nothing under `{heading}`"), EXAMPLE));
    }
    findings.extend(wrong_may_use(package, &card).map(|(what, instead)| {
        let line = card.lines.get("May use").copied().unwrap_or(title);
        finding(line, what, &instead)
    }));
    findings
}

fn wrong_may_use(package: &Package, card: &Card) -> Option<(String, String)> {
    let allowed: BTreeSet<&str> = rule(&package.name)?.may_use.iter().copied().collect();
    let said: BTreeSet<&str> = card.may_use().into_iter().collect();
    let list = |names: &BTreeSet<&str>| {
        if names.is_empty() {
            "nothing of ours".to_owned()
        } else {
            names.iter().copied().collect::<Vec<_>>().join(", ")
        }
    };
    (said != allowed && !card.text("May use").is_empty()).then(|| {
        let what = format!("the card says `May use` {}, the table of crates says {}", list(&said), list(&allowed));
        (what, "make them agree (the table is crates/rnic-check/src/crates.rs)".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "//! About.\n//!\n//! ```text\n//! CRATE    rnic-wire (amber: careful)\n//! Purpose  p\n\
                        //! May use  rnic-base\n//! Must not m\n//! Add here a\n//! Not here n\n//! Proved by t\n\
                        //! ```\n";

    fn findings(lib: &str) -> Vec<String> {
        let manifest = "[package]\nname = \"rnic-wire\"\n";
        let tree = Tree::invent([("crates/rnic-wire/Cargo.toml", manifest), ("crates/rnic-wire/src/lib.rs", lib)]);
        check(&tree).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn a_whole_and_true_card_passes() {
        assert_eq!(findings(GOOD), Vec::<String>::new());
    }

    #[test]
    fn a_program_without_library_carries_the_card_itself() {
        let manifest = "[package]\nname = \"rnic-wire\"\n";
        let tree =
            Tree::invent([("crates/rnic-wire/Cargo.toml", manifest), ("crates/rnic-wire/src/main.rs", "//! x\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn every_fault_of_a_card_is_named() {
        assert_eq!(findings("//! About.\n"), ["the crate has no card"]);
        assert_eq!(findings(&GOOD.replace("rnic-wire", "rnic-wine")).len(), 1);
        assert_eq!(findings(&GOOD.replace("amber", "mauve")), ["the crate's colour is `mauve`"]);
        assert_eq!(findings(&GOOD.replace("//! Not here n\n", "")), ["the card says nothing under `Not here`"]);
    }

    #[test]
    fn may_use_must_be_what_the_table_says() {
        let expected = "the card says `May use` rnic-base, rnic-policy, the table of crates says rnic-base";
        assert_eq!(findings(&GOOD.replace("May use  rnic-base", "May use  rnic-base, rnic-policy")), [expected]);
        assert_eq!(findings(&GOOD.replace("May use  rnic-base", "May use  nothing of ours")).len(), 1);
    }
}
