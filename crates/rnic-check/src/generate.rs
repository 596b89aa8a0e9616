//! Generates texts from single declarations: ARCHITECTURE's table of crates from their headers, the page of mechanisms
//! from the tables and the names of tests.

use core::fmt::Write as _;

use crate::card::Card;
use crate::crates::CRATES;
use crate::mechanisms;
use crate::tree::Tree;

/// Page with the table of crates.
pub const MAP: &str = "ARCHITECTURE.md";
/// Marker at the beginning of the generated part of ARCHITECTURE.md.
pub const CRATES_BEGIN: &str = "<!-- crates:begin -->";
/// Marker at the end of the generated part of ARCHITECTURE.md.
pub const CRATES_END: &str = "<!-- crates:end -->";

/// One generated file.
#[derive(Debug)]
pub struct Generated {
    /// Path from the root of the tree.
    pub path: &'static str,
    /// Complete text that the file should have, or the missing input because of which it cannot be generated.
    pub text: Result<String, String>,
    /// Text of the finding when the file differs from that.
    pub stale: &'static str,
}

/// Returns all generated files. A page that does not exist is not created: another check reports that it is missing.
pub fn all(tree: &Tree) -> Vec<Generated> {
    let map = tree.file(MAP).and_then(|file| file.text()).map(|text| Generated {
        path: MAP,
        text: with_crates(text, &crates_table(tree)),
        stale: "the table of crates does not say what the cards say",
    });
    let mechanisms = tree.file(mechanisms::PAGE).map(|_| Generated {
        path: mechanisms::PAGE,
        text: Ok(mechanisms::page(mechanisms::PAPERS, &mechanisms::tests(tree))),
        stale: "the page does not say what the tables and the tests say",
    });
    map.into_iter().chain(mechanisms).collect()
}

fn with_crates(text: &str, table: &str) -> Result<String, String> {
    let missing = || format!("no `{CRATES_BEGIN}` followed by `{CRATES_END}`");
    let (before, rest) = text.split_once(CRATES_BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(CRATES_END).ok_or_else(missing)?;
    Ok(format!("{before}{CRATES_BEGIN}\n{table}{CRATES_END}{after}"))
}

/// Returns a Markdown table of the crates that exist, in the order of [`crate::crates`].
fn crates_table(tree: &Tree) -> String {
    let mut table = "| crate | purpose | may use | add here |\n|---|---|---|---|\n".to_owned();
    for rule in &CRATES.rules {
        let package = tree.packages().iter().find(|package| package.name == rule.name);
        let Some(file) = package.and_then(|package| tree.root_file(package)) else { continue };
        let Some(card) = file.text().and_then(Card::read) else { continue };
        let cell = |heading| card.text(heading).replace('|', "\\|");
        let [purpose, may_use, add_here] = ["Purpose", "May use", "Add here"].map(cell);
        let (name, path) = (&rule.name, &file.path);
        let _ = writeln!(table, "| [{name}]({path}) ({}) | {purpose} | {may_use} | {add_here} |", card.colour_word());
    }
    table
}
